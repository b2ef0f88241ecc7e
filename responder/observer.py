"""What the actor does, as log lines and metrics; it is told after it has been stored."""

import logging
from datetime import datetime
from typing import Protocol

from responder import metrics
from responder.model import Failure, HistoryEntry, Intent, Outcome, Reason, Record, TargetRef, target_of_key

log = logging.getLogger(__name__)
decisions = logging.getLogger("responder.audit.decisions")

_ROUTINE = frozenset(
    {Reason.NOTHING_FIRING, Reason.ALREADY_THERE, Reason.COOLDOWN, Reason.STABILIZED, Reason.RATE_LIMITED}
)
"""Holds that come and go with every episode: no news on the target itself."""
_WARNINGS = frozenset(
    {
        Reason.AT_MAX_REPLICAS,
        Reason.UNSCHEDULABLE,
        Reason.NO_CAPACITY,
        Reason.OWNER_UNKNOWN,
        Reason.REVERTED,
        Reason.VALUE_MISSING,
        Reason.SAFE_MODE,
        Reason.NOT_ALLOWED,
        Reason.EFFECT_UNCERTAIN,
    }
)


_TOLD_BY_FAILED = frozenset(
    {
        Reason.TARGET_GONE,
        Reason.NOT_SCALABLE,
        Reason.FORBIDDEN,
        Reason.INVALID,
        Reason.NAMESPACE_TERMINATING,
        Reason.API_UNAVAILABLE,
        Reason.UNCLAIMED,
    }
)
"""Failures have an Event of their own, and of what nothing claims none is wanted."""


class Events(Protocol):
    """Who leaves Events on targets: best effort, and never blocking."""

    def tell(self, ref: TargetRef, uid: str, reason: str, message: str, kind: str = "Normal") -> None: ...


class Observer:
    """Counts and logs, and leaves Events on targets. What it records is logged as the audit of decisions."""

    def __init__(self, events: Events | None = None) -> None:
        self._events = events

    def recorded(self, entry: HistoryEntry) -> None:
        """A line was added to history."""
        if entry.outcome is None:
            metrics.decisions.labels(entry.reason.value).inc()
        else:
            metrics.scale_operations.labels(entry.outcome.value).inc()
        decisions.info(
            entry.message,
            extra={
                "target": entry.target,
                "reason": entry.reason.value,
                "from": entry.current,
                "to": entry.desired,
                **({"outcome": entry.outcome.value} if entry.outcome is not None else {}),
                **({"policy": entry.policy} if entry.policy else {}),
                **({"trigger": entry.trigger} if entry.trigger else {}),
                **({"intent": entry.intent} if entry.intent else {}),
                **({"dryRun": True} if entry.dry_run else {}),
            },
        )
        if self._events is not None and _is_news(entry):
            said = f"{entry.message} (dry run)" if entry.dry_run else entry.message
            self._tell(target_of_key(entry.target), "", entry.reason, said)

    def scaled(self, record: Record, intent: Intent, at: datetime) -> None:
        """A scale was written, and `at` is now."""
        said = f"{intent.from_replicas} to {intent.to_replicas}: {intent.message}"
        self._tell(record.target, record.uid, intent.reason, said)
        spans = [record.alerts[alert] for alert in intent.alerts if alert in record.alerts]
        if spans:
            started, heard = min(s.starts_at for s in spans), max(s.last_seen_at for s in spans)
            metrics.alert_to_scale.observe(max((at - started).total_seconds(), 0))
            metrics.receipt_to_scale.observe(max((at - heard).total_seconds(), 0))

    def failed(self, target: TargetRef, failure: Failure) -> None:
        """A target cannot be looked at or written."""
        log.warning(
            failure.message,
            extra={
                "target": target.key,
                "reason": failure.reason.value,
                "attempts": failure.attempts,
                "retryAt": failure.retry_at.isoformat(),
            },
        )
        if failure.reason is not Reason.API_UNAVAILABLE:
            self._tell(target, "", failure.reason, failure.message, "Warning")

    def _tell(self, target: TargetRef, uid: str, reason: Reason, message: str, kind: str = "") -> None:
        if self._events is not None:
            kind = kind or ("Warning" if reason in _WARNINGS else "Normal")
            self._events.tell(target, uid, reason.value, message, kind)


def _is_news(entry: HistoryEntry) -> bool:
    """Holds that a person would want to see on the target, dry runs, and effects that nobody can know.

    What was written is told by `scaled`, and what failed by `failed`.
    """
    if entry.outcome is not None:
        return entry.outcome in (Outcome.UNCERTAIN, Outcome.DRY_RUN)
    if entry.target.startswith("/"):
        return False  # a node: it bears a note itself
    return entry.desired == entry.current and entry.reason not in _ROUTINE | _TOLD_BY_FAILED


def called(method: str, result: str, seconds: float) -> None:  # noqa: ARG001 - what the client tells
    """A request to the Kubernetes API has ended."""
    if result != "ok":
        metrics.api_errors.labels(result).inc()
