"""Gathering all that a decision on one target looks at. Declares whom it asks."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from responder import alerts
from responder.decide import sized_triggers
from responder.matchers import parse
from responder.model import (
    Budget,
    Observed,
    Override,
    Ownership,
    Pods,
    Record,
    Silence,
    Span,
    TargetRef,
    Value,
    Workload,
)
from responder.policy import Capacity, Policy, Rejection, Settings, Trigger, value_query


class Fit(Protocol):
    """Room for `more` replicas; `limit` names the extended resources that they ask for."""

    @property
    def more(self) -> int: ...

    @property
    def limit(self) -> str: ...


class Cluster(Protocol):
    """The API server. Everything may raise TransientError or PermanentError."""

    def workload(self, ref: TargetRef) -> Workload:
        """Object and scale live at one resourceVersion. 404 is a PermanentError with TargetGone."""

    def seen(self, ref: TargetRef) -> Workload | None:
        """As `workload`, from a watch that may be a moment behind; None without one. Never raises."""

    def pods(self, ref: TargetRef, workload: Workload) -> Pods: ...

    def ownership(self, ref: TargetRef, workload: Workload) -> Ownership: ...

    def fit(self, ref: TargetRef, workload: Workload) -> Fit | None:
        """How many more replicas can be placed; None where that cannot be told or GPUs do not bound it."""

    def scale(self, ref: TargetRef, workload: Workload, replicas: int, *, dry_run: bool = False) -> Workload:
        """Write the scale against the workload's resourceVersion. Conflict on 409.

        After a TransientError, and after a Conflict too, it may have taken effect.
        """


class Values(Protocol):
    def query(self, expr: str, now: datetime) -> Value:
        """The one fresh sample of an instant query, or a Value that says why there is none. Never raises."""


class People(Protocol):
    """What people have said, read anew each time. Raises StoreUnavailable."""

    def overrides(self) -> tuple[Override, ...]: ...

    def silences(self) -> tuple[Silence, ...]: ...

    def standing(self) -> tuple[Span, ...]: ...


@dataclass(frozen=True, slots=True)
class Will:
    """What binds one target by people's word, as read at one moment."""

    overrides: tuple[Override, ...]
    silences: tuple[Silence, ...]
    freeze: str

    def same(self, later: "Will", then: datetime, now: datetime) -> bool:
        """True if nothing was added, ended or changed, and nothing began or ran out between the two moments."""
        return (
            self == later
            and all(override.in_force(then) == override.in_force(now) for override in self.overrides)
            and all(silence.in_force(then) == silence.in_force(now) for silence in self.silences)
        )


def will(settings: Settings, policy: Policy, record: Record, people: People) -> Will:
    """Read what people have said of this target."""
    bind = overrides_of(people.overrides(), record.target, policy.name)
    return Will(bind, people.silences(), settings.freeze)


def overrides_of(overrides: Iterable[Override], target: TargetRef, policy: str) -> tuple[Override, ...]:
    """Those that are for this target: by its key, by matchers over it, or for all."""
    labels = {"namespace": target.namespace, "kind": target.kind, "name": target.name, "policy": policy}
    return tuple(
        override
        for override in overrides
        if (not override.target or override.target == target.key) and _all_match(override.matchers, labels)
    )


def _all_match(matchers: Iterable[str], labels: Mapping[str, str]) -> bool:
    return all(parse(text).matches(labels) for text in matchers)


def observe(
    settings: Settings,
    policy: Policy,
    record: Record,
    live: Workload,
    *,
    cluster: Cluster,
    values: Values,
    people: People,
    budget: Budget,
    started_at: datetime,
    now: datetime,
) -> Observed:
    """All that `decide` looks at besides the record. Raises what cluster and store raise."""
    pods = cluster.pods(record.target, live)
    standing = people.standing()
    word = will(settings, policy, record, people)
    fit = None if policy.capacity is Capacity.IGNORE else cluster.fit(record.target, live)
    return Observed(
        workload=live,
        pods=pods,
        ownership=cluster.ownership(record.target, live),
        values={
            trigger.name: _value(trigger, span, values, now)
            for trigger, span in sized_triggers(policy, record, now)
        },
        holds=alerts.holds_on(settings, standing, record, pods.nodes, now),
        overrides=word.overrides,
        silences=word.silences,
        freeze=word.freeze,
        safe_mode=alerts.safe_mode(settings, standing, now, started_at),
        budget=budget,
        schedulable=None if fit is None else fit.more,
        scarce="" if fit is None else fit.limit,
    )


def _value(trigger: Trigger, span: Span, values: Values, now: datetime) -> Value:
    query = value_query(trigger, span.labels, span.annotations)
    if isinstance(query, Rejection):
        return Value(None, now, query.message)
    if query is not None:
        return values.query(query, now)
    return annotated_value(trigger, span)


def annotated_value(trigger: Trigger, span: Span) -> Value:
    """The number in the alert's own annotation, as of when the alert was last heard of."""
    source = trigger.scale.value_from
    name = source.annotation if source else ""
    text = span.annotations.get(name, "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return Value(None, span.last_seen_at, f"annotation {name} is {text!r} and not a number")
    return Value(number, span.last_seen_at)
