"""Which of a target's alerts its policy's triggers claim, and what each trigger is at a moment. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from responder.alerting.spans import Condition, condition
from responder.matchers import all_match, parse
from responder.model import Direction, Record, Silence, Span
from responder.policy import Policy, Timing, Trigger, trigger_of


class Standing(IntEnum):
    """What a trigger is. The greatest of its alerts counts; all but QUIET forbid down if the trigger is up."""

    QUIET = 0
    UNKNOWN = 1
    SILENCED = 2
    FIRING = 3


@dataclass(frozen=True, slots=True)
class Alert:
    """A known alert, and the silences that match it, in force or not."""

    span: Span
    silences: tuple[Silence, ...] = ()

    @property
    def name(self) -> str:
        return name_of(self.span)


@dataclass(frozen=True, slots=True)
class Claim:
    """A trigger with the alerts that fall under it."""

    trigger: Trigger
    alerts: tuple[Alert, ...]

    @property
    def direction(self) -> Direction:
        return self.trigger.scale.direction


@dataclass(frozen=True, slots=True)
class Claims:
    """All that a policy makes of a record's alerts; `others` fall under other policies and only hold."""

    by_trigger: tuple[Claim, ...]
    others: tuple[Alert, ...] = ()


def name_of(span: Span) -> str:
    """What people call the alert."""
    return span.labels.get("alertname") or span.fingerprint


def claims_of(policy: Policy, record: Record, silences: Iterable[Silence] = ()) -> Claims:
    """Match the record's alerts to the policy's triggers, resolved ones left out."""
    silences = tuple(silences)
    found: dict[str, tuple[Trigger, list[Alert]]] = {}
    others: list[Alert] = []
    for span in sorted(record.alerts.values(), key=lambda span: (span.opened_at, span.fingerprint)):
        if not span.firing:
            continue
        alert = Alert(span, tuple(silence for silence in silences if silenced_by(silence, span.labels)))
        if not all_match(policy.matchers, span.labels):
            others.append(alert)
            continue
        trigger = trigger_of(policy, span.labels)
        if trigger is not None:
            found.setdefault(trigger.name, (trigger, []))[1].append(alert)
    ordered = [found[trigger.name] for trigger in policy.triggers if trigger.name in found]
    return Claims(tuple(Claim(trigger, _telling(alerts)) for trigger, alerts in ordered), _telling(others))


_TOLD = 32


def _telling(alerts: list[Alert]) -> tuple[Alert, ...]:
    """Of very many alerts, those that tell what all together are: the first, to be named, and the freshest.

    Alerts under the same silences are as alive as the one that was heard of last.
    """
    if len(alerts) <= _TOLD:
        return tuple(alerts)
    freshest: dict[tuple[bool, tuple[Silence, ...]], int] = {}
    for index, alert in enumerate(alerts):
        alike = (alert.span.suppressed, alert.silences)
        best = freshest.get(alike)
        if best is None or alert.span.last_seen_at > alerts[best].span.last_seen_at:
            freshest[alike] = index
    return tuple(alerts[index] for index in sorted({*range(_TOLD), *freshest.values()}))


def standing(alert: Alert, timing: Timing, now: datetime) -> Standing:
    """What the alert is now; its own silences and Alertmanager's count alike."""
    match condition(alert.span, timing, now):
        case Condition.FIRING:
            silenced = any(silence.in_force(now) for silence in alert.silences)
            return Standing.SILENCED if silenced else Standing.FIRING
        case Condition.SUPPRESSED:
            return Standing.SILENCED
        case Condition.UNKNOWN:
            return Standing.UNKNOWN
        case _:
            return Standing.QUIET


def standing_of(claim: Claim, timing: Timing, now: datetime) -> tuple[Standing, tuple[Alert, ...]]:
    """What the trigger is now, and the alerts that make it so, the first to fire first."""
    each = [(standing(alert, timing, now), alert) for alert in claim.alerts]
    most = max((found for found, _ in each), default=Standing.QUIET)
    return most, tuple(alert for found, alert in each if found is most)


def silence_of(alert: Alert, now: datetime) -> Silence | None:
    """The silence that keeps the alert quiet longest, if one of our own does."""
    return max(
        (silence for silence in alert.silences if silence.in_force(now)),
        key=lambda silence: silence.ends_at,
        default=None,
    )


def silenced_by(silence: Silence, labels: Mapping[str, str]) -> bool:
    """True if the silence matches these labels, whenever it may be in force."""
    return all(parse(text).matches(labels) for text in silence.matchers)
