"""Policies, triggers, holds and behavior, and which of them an alert falls under. Pure.

Built by `config`, which has checked all of it; durations are timedeltas here and seconds in the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from responder.matchers import Matcher
from responder.model import Direction, ScaleType


class SelectPolicy(StrEnum):
    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class Capacity(StrEnum):
    IGNORE = "Ignore"
    REPORT = "Report"
    CLIP = "Clip"


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """At most `value` pods, or percent of the replicas at the period's start, per period."""

    type: ScaleType
    value: int
    period: timedelta


@dataclass(frozen=True, slots=True)
class Rules:
    """One direction of `behavior`: words and meaning of autoscaling/v2, and a cooldown."""

    cooldown: timedelta
    stabilization_window: timedelta
    policies: tuple[RatePolicy, ...] = ()
    select_policy: SelectPolicy = SelectPolicy.MAX
    tolerance: float = 0.1


@dataclass(frozen=True, slots=True)
class ValueFrom:
    """Where a sized trigger's value comes from: a PromQL template or the name of an annotation."""

    query: str = ""
    annotation: str = ""


@dataclass(frozen=True, slots=True)
class Fallback:
    """The step to take, upwards only, when the value has been missing for `after`."""

    type: ScaleType
    value: float
    after: timedelta


@dataclass(frozen=True, slots=True)
class Scale:
    """What a trigger asks for. `value` goes with Pods, Percent, Replicas; `target` with the sized types."""

    direction: Direction
    type: ScaleType
    value: float = 0
    target: float = 0
    value_from: ValueFrom | None = None
    fallback: Fallback | None = None

    @property
    def sized(self) -> bool:
        return self.type in (ScaleType.UTILIZATION, ScaleType.AVERAGE_VALUE)


@dataclass(frozen=True, slots=True)
class Trigger:
    """`max_steps` is None when it may step as often as cooldown allows; it binds Pods and Percent."""

    name: str
    matchers: tuple[Matcher, ...]
    scale: Scale
    max_steps: int | None = 1
    evaluation: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class TargetTemplate:
    """`scaleTargetRef` with `{{ $labels.x }}` still in it."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Timing:
    """How alerts age; from the top of the policy file."""

    alert_timeout: timedelta = timedelta(seconds=900)
    """Not heard of for so long, an alert is unknown."""
    stale_after: timedelta = timedelta(seconds=600)
    """A firing that is older than the last resolve re-opens its span only so long after it."""
    forget_after: timedelta = timedelta(seconds=21600)
    """An unknown up trigger or hold forbids scale-down for so long."""


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    matchers: tuple[Matcher, ...]
    min_replicas: int
    max_replicas: int
    triggers: tuple[Trigger, ...]
    scale_up: Rules
    scale_down: Rules
    target: TargetTemplate | None = None
    dry_run: bool = False
    wake_from_zero: bool = False
    ready_timeout: timedelta = timedelta(seconds=600)
    capacity: Capacity = Capacity.IGNORE
    timing: Timing = Timing()


@dataclass(frozen=True, slots=True)
class Hold:
    """A firing alert that forbids a direction for the targets that `equal` ties to it."""

    name: str
    matchers: tuple[Matcher, ...]
    forbid: Direction
    equal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    matchers: tuple[Matcher, ...]
    timeout: timedelta


@dataclass(frozen=True, slots=True)
class ActionBudget:
    """At most `max_actions` of one direction per period, over all targets."""

    max_actions: int
    period: timedelta


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole policy file."""

    policies: tuple[Policy, ...]
    holds: tuple[Hold, ...] = ()
    cluster: str = ""
    dry_run: bool = False
    allowed_namespaces: tuple[str, ...] = ()
    """Globs; empty allows all."""
    budgets: Mapping[Direction, ActionBudget] = field(default_factory=dict)
    heartbeat: Heartbeat | None = None
    timing: Timing = Timing()
    freeze: str = ""
    """Why everything is stopped; empty when it is not."""
    source: str = ""
    """The file's name."""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an alert cannot lead to a target, in one sentence."""

    message: str


def policy_of(policies: Sequence[Policy], labels: Mapping[str, str]) -> Policy | None:
    """The first policy in file order whose matchers all hold."""
    raise NotImplementedError


def trigger_of(policy: Policy, labels: Mapping[str, str]) -> Trigger | None:
    """The first trigger of the policy whose matchers all hold."""
    raise NotImplementedError
