"""Which standing alerts forbid a direction on a target, and whether the heartbeat still beats. Pure."""

from collections.abc import Iterable, Set
from datetime import datetime

from responder.alerting.spans import Condition, condition
from responder.deciding.claims import name_of
from responder.deciding.words import moment, seconds
from responder.matchers import all_match
from responder.model import ActiveHold, Direction, Record, Span
from responder.policy import Hold, Settings


def holds_on(
    settings: Settings, standing: Iterable[Span], record: Record, nodes: Set[str], now: datetime
) -> tuple[ActiveHold, ...]:
    """The holds that bind the record's target now; `nodes` are those that its pods run on.

    A silenced hold still holds. An unknown one goes on forbidding down, and nothing else, until forgotten.
    """
    active: list[ActiveHold] = []
    spans = sorted(standing, key=lambda span: (span.opened_at, span.fingerprint))
    for hold in settings.holds:
        for span in spans:
            unknown = _standing(span, settings, hold, now)
            if unknown is None or not all_match(hold.matchers, span.labels):
                continue
            if all(_ties(label, span, settings, record, nodes) for label in hold.equal):
                active.append(ActiveHold(hold.name, hold.forbid, name_of(span), span.opened_at, unknown))
    return tuple(active)


def safe_mode(settings: Settings, standing: Iterable[Span], now: datetime, started_at: datetime) -> str:
    """Why scale-down is held for want of the heartbeat; empty while it beats, or if none is configured."""
    heartbeat = settings.heartbeat
    if heartbeat is None:
        return ""
    beats = [span for span in standing if all_match(heartbeat.matchers, span.labels)]
    wanted = ", ".join(str(matcher) for matcher in heartbeat.matchers)
    firing = [span for span in beats if span.firing]
    if beats and not firing:
        return f"the heartbeat ({wanted}) has resolved, so no alert can be trusted to arrive"
    last = max((span.last_seen_at for span in firing), default=None)
    if last is None or last < started_at:
        return f"the heartbeat ({wanted}) has not arrived since the start at {moment(started_at, now)}"
    if now - last >= heartbeat.timeout:
        return (
            f"the heartbeat ({wanted}) has not arrived since {moment(last, now)}, "
            f"longer than its {seconds(heartbeat.timeout)}"
        )
    return ""


def _standing(span: Span, settings: Settings, hold: Hold, now: datetime) -> bool | None:
    """Whether the alert is unknown; None if it does not hold (any more)."""
    found = condition(span, settings.timing, now)
    if found in (Condition.FIRING, Condition.SUPPRESSED):
        return False
    return True if found is Condition.UNKNOWN and hold.forbid is Direction.DOWN else None


def _ties(label: str, span: Span, settings: Settings, record: Record, nodes: Set[str]) -> bool:
    """True if the alert and the target agree in this label."""
    value, target = span.labels.get(label, ""), record.target
    match label:
        case "namespace":
            return value == target.namespace
        case "workload":
            return value == target.name
        case "workload_type":
            kind = target.kind.lower()
            return value.lower() in (kind, f"{kind}.{target.group}")
        case "node":
            return value in nodes
        case "cluster":
            return _same_cluster(value, settings, record)
    return any(value == known.labels.get(label) for known in record.alerts.values())


def _same_cluster(value: str, settings: Settings, record: Record) -> bool:
    # Without a name for the cluster on either side there is only the one.
    if not value or settings.cluster:
        return value in ("", settings.cluster)
    named = {known.labels["cluster"] for known in record.alerts.values() if known.labels.get("cluster")}
    return not named or value in named
