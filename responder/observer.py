"""What the actor does, as log lines and metrics; it is told after it has been stored."""

import logging
from datetime import datetime

from responder import metrics
from responder.model import Failure, HistoryEntry, Intent, Record, TargetRef

log = logging.getLogger(__name__)


class Observer:
    """Counts and logs. Its log lines are the audit of decisions for those who keep logs."""

    def recorded(self, entry: HistoryEntry) -> None:
        """A line was added to history."""
        if entry.outcome is None:
            metrics.decisions.labels(entry.reason.value).inc()
        else:
            metrics.scale_operations.labels(entry.outcome.value).inc()
        log.info(
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

    def scaled(self, record: Record, intent: Intent, at: datetime) -> None:
        """A scale was written, and `at` is now."""
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


def called(method: str, result: str, seconds: float) -> None:  # noqa: ARG001 - what the client tells
    """A request to the Kubernetes API has ended."""
    if result != "ok":
        metrics.api_errors.labels(result).inc()
