"""What one firing trigger asks for: a number of replicas, or nothing and why not. Pure.

The arithmetic is that of the Horizontal Pod Autoscaler (autoscaling/v2): Percent rounds away from what is there,
Utilization counts replicas that are not ready as 0 when going up, AverageValue sizes to the total.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from responder.alerting.episodes import episode_of
from responder.deciding.claims import Alert
from responder.deciding.words import count, moment, number
from responder.ledger import FALLBACK
from responder.model import Direction, Ledger, Observed, Reason, Record, ScaleType, Value
from responder.policy import Fallback, Policy, Trigger

VALUE_MAX_AGE = timedelta(minutes=5)
"""Prometheus itself looks back no longer. An annotation lives as long as its alert."""
_STEPS = (ScaleType.PODS, ScaleType.PERCENT)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a trigger asks for. `replicas` is None when it asks for no change, for `reason`.

    `why` continues "<alert> fires". `step` is true of Pods and Percent, which wait for readiness.
    """

    trigger: Trigger
    alerts: tuple[Alert, ...]
    replicas: int | None
    reason: Reason
    why: str
    episode: str
    step: bool = False
    value_missing: bool = False

    @property
    def text(self) -> str:
        return f"{names(self.alerts)} fires{self.why}"


@dataclass(frozen=True, slots=True)
class Sizing:
    """What asking looks at, the same for every trigger of one decision."""

    policy: Policy
    observed: Observed
    record: Record
    ledger: Ledger
    current: int
    target: float | None = None
    """From an annotation; it may only lower a trigger's own."""


def ask(sizing: Sizing, trigger: Trigger, alerts: tuple[Alert, ...], now: datetime) -> Ask:
    """What the trigger asks for while these alerts of it fire."""
    scale = trigger.scale
    episode = episode_of(sizing.record, sizing.policy, trigger, alerts[0].span).id
    if scale.sized:
        return _sized(sizing, trigger, alerts, episode, now)
    return _step(sizing, trigger, alerts, episode, scale.type, scale.value)


def names(alerts: tuple[Alert, ...]) -> str:
    """The alert's name; that of the first and how many others, if there are several names."""
    distinct = list(dict.fromkeys(alert.name for alert in alerts))
    return distinct[0] if len(distinct) == 1 else f"{distinct[0]} (and {len(distinct) - 1} more)"


def ceil(number: float) -> int:
    """Round up, but not for what floating point adds: 3 × 0.8 ÷ 0.6 is 4."""
    return math.ceil(round(number, 6))


def stepped(kind: ScaleType, value: float, direction: Direction, current: int) -> int:
    """Where a step of Pods or Percent leads from `current`, before limits; never nowhere."""
    size = ceil(value) if kind is ScaleType.PODS else ceil(current * value / 100)
    size = max(size, 1)
    return current + size if direction is Direction.UP else max(current - size, 0)


def _step(
    sizing: Sizing,
    trigger: Trigger,
    alerts: tuple[Alert, ...],
    episode: str,
    kind: ScaleType,
    value: float,
    why: str = "",
) -> Ask:
    current, direction = sizing.current, trigger.scale.direction
    if kind not in _STEPS:
        wanted = int(value)
        return _towards(trigger, alerts, episode, current, wanted, f"{why} and asks for {wanted}")
    taken = sizing.ledger.steps.get(episode, 0)
    if trigger.max_steps is not None and taken >= trigger.max_steps:
        verb = "is" if trigger.max_steps == 1 else "are"
        spent = f"{why}, and its {count(trigger.max_steps, 'step')} of this episode {verb} taken"
        return Ask(trigger, alerts, None, Reason.STEPS_SPENT, spent, episode, step=True)
    wanted = stepped(kind, value, direction, current)
    sign = "+" if direction is Direction.UP else "−"
    size = f"{sign}{number(value)} %" if kind is ScaleType.PERCENT else f"{sign}{number(value)}"
    asks = f"{why}, and none is left" if wanted == current else f"{why} and asks for {wanted} ({size})"
    return replace(_towards(trigger, alerts, episode, current, wanted, asks), step=True)


def _towards(
    trigger: Trigger, alerts: tuple[Alert, ...], episode: str, current: int, wanted: int, why: str
) -> Ask:
    """An ask for a number, which never goes against the trigger's direction."""
    further = wanted > current if trigger.scale.direction is Direction.UP else wanted < current
    return Ask(trigger, alerts, wanted if further else None, Reason.ALREADY_THERE, why, episode)


def _sized(sizing: Sizing, trigger: Trigger, alerts: tuple[Alert, ...], episode: str, now: datetime) -> Ask:
    value, error = usable(trigger, sizing.observed.values.get(trigger.name), sizing.policy, now)
    if value is None:
        return _missing(sizing, trigger, alerts, episode, error, now)
    target = trigger.scale.target if sizing.target is None else min(trigger.scale.target, sizing.target)
    up_tolerance, down_tolerance = sizing.policy.scale_up.tolerance, sizing.policy.scale_down.tolerance
    ready, current = sizing.observed.pods.ready, sizing.current
    if trigger.scale.type is ScaleType.UTILIZATION:
        load, ratio = ready * value, value / target
        told = f" ({number(value)} on {ready} ready, target {number(target)})"
    else:
        load = value
        ratio = load / (target * current) if current else (math.inf if load > 0 else 1.0)
        told = f" ({number(value)} in all, {number(target)} per replica)"
    if not (ratio > over(up_tolerance) or ratio < under(down_tolerance)):
        return Ask(trigger, alerts, None, Reason.WITHIN_TOLERANCE, f"{told}, within tolerance", episode)
    if trigger.scale.direction is Direction.DOWN:
        wanted = fewest(load, target, up_tolerance)
        return _towards(trigger, alerts, episode, current, wanted, f"{told}, which {wanted} can serve")
    wanted = ceil(load / target)
    if trigger.scale.type is ScaleType.UTILIZATION and current and ready < current and ratio > 1:
        # What is starting will take its share: counted as idle, as the HPA does, is there still too much?
        spread = load / (target * current)
        if 1 < spread <= over(up_tolerance):
            why = f"{told}, within tolerance once {current - ready} more are ready"
            return Ask(trigger, alerts, None, Reason.WITHIN_TOLERANCE, why, episode)
    return _towards(trigger, alerts, episode, current, wanted, f"{told} and asks for {wanted}")


def over(tolerance: float) -> float:
    """The ratio up to which is near enough, with room for what floating point adds."""
    return 1 + tolerance + 1e-9


def under(tolerance: float) -> float:
    return 1 - tolerance - 1e-9


def fewest(load: float, target: float, up_tolerance: float) -> int:
    """The fewest replicas whose load each stays so far below target that they will not ask for more at once."""
    share = target * (1 - up_tolerance)
    return ceil(load / share) if share > 0 else ceil(load / target) + 1


def usable(trigger: Trigger, value: Value | None, policy: Policy, now: datetime) -> tuple[float | None, str]:
    """The number to size by, or None and why there is none. Zero is a number."""
    if value is None:
        return None, "it was not asked for"
    if value.value is None:
        return None, value.error or "there is none"
    if not math.isfinite(value.value):
        return None, f"it is {number(value.value)}"
    if value.value < 0:
        return None, f"it is {number(value.value)}, below 0"
    if now >= stale_at(trigger, value, policy):
        return None, "it is too old"
    return value.value, ""


def stale_at(trigger: Trigger, value: Value, policy: Policy) -> datetime:
    """When the value becomes too old to size by."""
    source = trigger.scale.value_from
    annotated = source is not None and source.annotation and not source.query
    return value.at + (policy.timing.alert_timeout if annotated else VALUE_MAX_AGE)


def _missing(
    sizing: Sizing, trigger: Trigger, alerts: tuple[Alert, ...], episode: str, error: str, now: datetime
) -> Ask:
    told = f", but its value is missing: {error.strip().rstrip('.')}"
    fallback = trigger.scale.fallback
    if fallback is None or trigger.scale.direction is not Direction.UP:
        return Ask(trigger, alerts, None, Reason.VALUE_MISSING, told, episode, value_missing=True)
    at = fallback_at(sizing.record, trigger, fallback, now)
    if now < at:
        told += f", and its fallback waits until {moment(at, now)}"
        return Ask(trigger, alerts, None, Reason.VALUE_MISSING, told, episode, value_missing=True)
    found = _step(
        sizing, trigger, alerts, episode + FALLBACK, fallback.type, fallback.value, f"{told}; it falls back"
    )
    reason = found.reason if found.replicas is not None else Reason.VALUE_MISSING
    return Ask(
        trigger, alerts, found.replicas, reason, found.why, found.episode, step=found.step, value_missing=True
    )


def fallback_at(record: Record, trigger: Trigger, fallback: Fallback, now: datetime) -> datetime:
    """When the fallback takes over, if the value stays missing."""
    return min(record.missing.get(trigger.name, now), now) + fallback.after
