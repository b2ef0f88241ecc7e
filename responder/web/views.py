"""Records, decisions and overrides as the API's JSON. Pure: camelCase begins here.

Times are RFC 3339 in UTC.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from responder.alerting.spans import condition
from responder.deciding.overrides import EARLIEST, FOREVER, bounds_of
from responder.model import Failure, HistoryEntry, Intent, Override, Reason, Record, Span
from responder.observe import overrides_of
from responder.policy import Policy, Settings, governing, trigger_of
from responder.store import StoredEntry
from responder.web import ages

LIMITED = frozenset(
    {
        Reason.AT_MAX_REPLICAS,
        Reason.AT_MIN_REPLICAS,
        Reason.RATE_LIMITED,
        Reason.STABILIZED,
        Reason.STEPS_SPENT,
        Reason.COOLDOWN,
        Reason.WAITING_FOR_READY,
        Reason.UNSCHEDULABLE,
        Reason.NO_CAPACITY,
        Reason.BUDGET_SPENT,
        Reason.DIRECTION_DISABLED,
    }
)
"""The alert asks for more than a limit lets through."""

STEADY = frozenset({Reason.NOTHING_FIRING, Reason.ALREADY_THERE, Reason.WITHIN_TOLERANCE, Reason.PINNED})


def stamp(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def target_view(
    record: Record, settings: Settings, overrides: Iterable[Override], now: datetime
) -> dict[str, Any]:
    """One target: what it is, what is to become of it, and why."""
    policy = governing(settings, record)
    verdict = record.verdict
    bound = overrides_of(overrides, record.target, policy.name if policy else "")
    annotated = record.annotated if policy else ()
    bounds = bounds_of(policy, (*bound, *annotated), now) if policy else None
    return {
        "target": record.target.key,
        "namespace": record.target.namespace,
        "kind": record.target.key.split("/")[1],
        "name": record.target.name,
        "group": record.target.group,
        "policy": policy.name if policy else "",
        "replicas": record.replicas,
        "ready": record.ready,
        "countedAt": stamp(ages.counted_at(record)),
        "desired": verdict.desired if verdict else None,
        "state": state_of(record),
        "reason": verdict.reason.value if verdict else None,
        "message": verdict.message if verdict else "It has not been looked at yet.",
        "decidedAt": stamp(verdict.at) if verdict else None,
        "lookAgainAt": stamp(verdict.look_again_at) if verdict else None,
        "minReplicas": bounds.least if bounds else None,
        "maxReplicas": bounds.most if bounds else None,
        "dryRun": bool(policy and policy.dry_run),
        "alerts": [_alert(span, policy, settings, now) for span in _newest_first(record.alerts.values())],
        "overrides": [override_view(override, now) for override in (*bound, *annotated)],
        "intent": _intent(record.intent or record.outstanding),
        "failure": _failure(record.failure),
        "foreignAt": stamp(record.foreign_at),
    }


def state_of(record: Record) -> str:
    """One word for the page: pending, failing, up, down, limited, steady or held."""
    verdict = record.verdict
    if record.failure is not None:
        return "failing"
    if verdict is None:
        return "pending"
    if verdict.reason in STEADY:
        return "steady"
    if record.replicas is not None and verdict.desired != verdict.current:
        return "up" if verdict.desired > verdict.current else "down"
    return "limited" if verdict.reason in LIMITED else "held"


def decision_view(stored: StoredEntry, inputs: bool = False) -> dict[str, Any]:
    """One line of history, with what it was decided from if `inputs`."""
    entry = stored.entry
    namespace, kind, name = entry.target.split("/", 2)
    return {
        "id": stored.id,
        "at": stamp(entry.at),
        "target": entry.target,
        "namespace": namespace,
        "kind": kind,
        "name": name,
        "current": entry.current,
        "desired": entry.desired,
        "reason": entry.reason.value,
        "message": entry.message,
        "policy": entry.policy,
        "trigger": entry.trigger,
        "alerts": list(entry.alerts),
        "intent": entry.intent,
        "outcome": entry.outcome.value if entry.outcome else None,
        "dryRun": entry.dry_run,
        "lookAgainAt": stamp(entry.look_again_at),
        "alertToScaleSeconds": _latency(entry),
        **({"inputs": _inputs(entry)} if inputs else {}),
    }


def _inputs(entry: HistoryEntry) -> dict[str, Any]:
    """What it was decided from, and the moment itself: a cooldown may end within the millisecond."""
    return {**entry.inputs, "at": entry.at} if entry.inputs else {}


def moment_view(entry: HistoryEntry) -> dict[str, Any]:
    """One moment of a target's timeline. `ready` is None where history does not say it."""
    return {
        "at": stamp(entry.at),
        "current": entry.current,
        "desired": entry.desired,
        "ready": ready_of(entry),
        "reason": entry.reason.value,
        "message": entry.message,
        "outcome": entry.outcome.value if entry.outcome else None,
    }


def ready_of(entry: HistoryEntry) -> int | None:
    """How many were ready when it was decided; None where history does not say it."""
    observed: Any = entry.inputs.get("observed")
    pods = observed.get("pods") if isinstance(observed, dict) else None
    found = pods.get("ready") if isinstance(pods, dict) else None
    return found if isinstance(found, int) else None


def override_view(override: Override, now: datetime) -> dict[str, Any]:
    """One override, with what it is at this moment. One from an annotation may have no beginning and no end."""
    return {
        "id": override.id,
        "kind": override.kind.value,
        "target": override.target,
        "matchers": list(override.matchers),
        "replicas": override.replicas,
        "force": override.force,
        "minReplicas": override.min_replicas,
        "maxReplicas": override.max_replicas,
        "createdBy": override.created_by,
        "comment": override.comment,
        "createdAt": _bounded(override.created_at),
        "startsAt": _bounded(override.starts_at),
        "endsAt": _bounded(override.ends_at),
        "expiredAt": stamp(override.expired_at),
        "state": _override_state(override, now),
        "source": override.source,
    }


def _bounded(moment: datetime) -> str | None:
    return None if moment in (EARLIEST, FOREVER) else stamp(moment)


def _override_state(override: Override, now: datetime) -> str:
    if override.in_force(now):
        return "active"
    return "pending" if override.expired_at is None and now < override.starts_at else "ended"


def _alert(span: Span, policy: Policy | None, settings: Settings, now: datetime) -> dict[str, Any]:
    trigger = trigger_of(policy, span.labels) if policy else None
    return {
        "fingerprint": span.fingerprint,
        "name": span.labels.get("alertname", span.fingerprint),
        "state": condition(span, settings.timing, now).name.lower(),
        "trigger": trigger.name if trigger else "",
        "startsAt": stamp(span.starts_at),
        "lastSeenAt": stamp(span.last_seen_at),
        "labels": dict(span.labels),
        "annotations": dict(span.annotations),
        "generatorURL": span.generator_url if is_link(span.generator_url) else "",
    }


def is_link(url: str) -> bool:
    """True if the address may stand in a link."""
    return url.startswith(("http://", "https://"))


def _newest_first(spans: Iterable[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (not span.firing, -span.starts_at.timestamp(), span.fingerprint))


def _intent(intent: Intent | None) -> dict[str, Any] | None:
    if intent is None:
        return None
    return {
        "id": intent.id,
        "from": intent.from_replicas,
        "to": intent.to_replicas,
        "decidedAt": stamp(intent.decided_at),
        "reason": intent.reason.value,
    }


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "reason": failure.reason.value,
        "message": failure.message,
        "since": stamp(failure.since),
        "retryAt": stamp(failure.retry_at),
        "attempts": failure.attempts,
    }


def _latency(entry: HistoryEntry) -> float | None:
    if entry.alert_started_at is None:
        return None
    return round((entry.at - entry.alert_started_at).total_seconds(), 3)
