"""Builders for tests of the pure core: policies, records and observations in as few words as a table row has."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from responder.alerts import fold
from responder.matchers import parse
from responder.model import (
    Change,
    Direction,
    Episode,
    Ledger,
    Notification,
    Observed,
    Override,
    OverrideKind,
    Pods,
    Recommendation,
    Record,
    ScaleType,
    Silence,
    Span,
    TargetRef,
    Value,
    Workload,
)
from responder.policy import Fallback, Policy, RatePolicy, Rules, Scale, Settings, Trigger, ValueFrom

T0 = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
REF = TargetRef("inference", "Deployment", "vllm")
UP, DOWN = Direction.UP, Direction.DOWN


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def at(seconds: float) -> datetime:
    """So many seconds after T0; before it if negative."""
    return T0 + s(seconds)


def rules(cooldown: float = 0, window: float = 0, *policies: RatePolicy, **more: Any) -> Rules:
    return Rules(s(cooldown), s(window), policies, **more)


def pods_per(value: int, period: float) -> RatePolicy:
    return RatePolicy(ScaleType.PODS, value, s(period))


def percent_per(value: int, period: float) -> RatePolicy:
    return RatePolicy(ScaleType.PERCENT, value, s(period))


def trigger(
    name: str,
    direction: Direction,
    kind: ScaleType = ScaleType.PODS,
    value: float = 1,
    *,
    target: float = 0,
    steps: int | None = None,
    fallback: tuple[ScaleType, float, float] | None = None,
    value_from: ValueFrom | None = None,
) -> Trigger:
    """A trigger that takes the alerts whose label `alertname` is its name."""
    sized = kind in (ScaleType.UTILIZATION, ScaleType.AVERAGE_VALUE)
    back = None if fallback is None else Fallback(fallback[0], fallback[1], s(fallback[2]))
    source = value_from or (ValueFrom(query="x") if sized else None)
    scale = Scale(direction, kind, value, target, source, back)
    return Trigger(name, (parse(f'alertname="{name}"'),), scale, steps)


MORE = trigger("more", UP)
LESS = trigger("less", DOWN)
SIZED = trigger("sized", UP, ScaleType.AVERAGE_VALUE, target=8)
SHRINK = trigger("shrink", DOWN, ScaleType.AVERAGE_VALUE, target=8)


def policy(*triggers: Trigger, **more: Any) -> Policy:
    """1 to 10 replicas, no cooldowns, windows or rates unless said."""
    defaults: dict[str, Any] = {
        "name": "inference",
        "matchers": (parse('namespace="inference"'),),
        "min_replicas": 1,
        "max_replicas": 10,
        "triggers": triggers or (MORE, LESS, SIZED, SHRINK),
        "scale_up": rules(),
        "scale_down": rules(),
    }
    return Policy(**{**defaults, **more})


def settings(*policies: Policy, **more: Any) -> Settings:
    return Settings(policies or (policy(),), **more)


def fires(name: str = "more", seconds: float = 0, **more: Any) -> Notification:
    return _notification(name, True, seconds, **more)


def resolves(
    name: str = "more", seconds: float = 0, *, ended: float | None = None, **more: Any
) -> Notification:
    ends_at = at(seconds if ended is None else ended)
    return replace(_notification(name, False, seconds, **more), ends_at=ends_at)


def _notification(
    name: str,
    firing: bool,
    seconds: float,
    *,
    started: float = 0,
    fingerprint: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Notification:
    return Notification(
        fingerprint or name,
        firing,
        {"alertname": name, "namespace": "inference", **(labels or {})},
        annotations or {},
        at(started),
        None,
        at(seconds),
    )


def record(*names: str, pol: Policy | None = None, heard: float = 0, **more: Any) -> Record:
    """A record on which the named alerts fire since T0, last heard of at `heard`."""
    file = settings(pol or policy())
    found = Record(REF, uid="u1")
    for name in names:
        found = fold(found, fires(name), file, at(0))
        if heard:
            found = fold(found, fires(name, heard), file, at(heard))
    return replace(found, **more)


def span(name: str = "more", *, heard: float = 0, **more: Any) -> Span:
    labels = {"alertname": name, "namespace": "inference", **more.pop("labels", {})}
    defaults: dict[str, Any] = {
        "fingerprint": name,
        "annotations": {},
        "firing": True,
        "starts_at": at(0),
        "opened_at": at(0),
        "last_seen_at": at(heard),
    }
    return Span(labels=labels, **{**defaults, **more})


def observed(replicas: int, ready: int | None = None, *, value: float | None = None, **more: Any) -> Observed:
    """`replicas` are there and ready, unless said; `value` is every sized trigger's."""
    pods = more.pop("pods", None) or Pods(replicas if ready is None else ready, replicas)
    workload = Workload("u1", 1, "1", replicas, annotations=more.pop("annotations", {}))
    workload = replace(workload, namespace_annotations=more.pop("namespace_annotations", {}))
    values = more.pop("values", {})
    if value is not None:
        values = {name: Value(value, at(0)) for name in ("sized", "shrink")}
    return Observed(workload, pods, values=values, **more)


def override(kind: OverrideKind, *, since: float = -10, until: float = 3600, **more: Any) -> Override:
    defaults: dict[str, Any] = {
        "id": kind.value,
        "created_by": "anna",
        "comment": "maintenance",
        "created_at": at(since),
        "target": REF.key,
    }
    return Override(kind=kind, starts_at=at(since), ends_at=at(until), **{**defaults, **more})


def pin(replicas: int, **more: Any) -> Override:
    return override(OverrideKind.PIN, replicas=replicas, **more)


def silence(*matchers: str, since: float = -10, until: float = 3600) -> Silence:
    return Silence("s1", matchers, at(since), at(until), "anna", "night work", at(since))


def change(seconds: float, before: int, after: int, intent: str = "") -> Change:
    return Change(at(seconds), before, after, intent or f"i{seconds}")


def ledger(**more: Any) -> Ledger:
    """`up` and `down` are seconds of the last change each way."""
    up, down = more.pop("up", None), more.pop("down", None)
    steps = more.pop("recommended", ())
    return Ledger(
        last_up_at=None if up is None else at(up),
        last_down_at=None if down is None else at(down),
        recommendations=tuple(Recommendation(at(seconds), replicas) for seconds, replicas in steps),
        **more,
    )


def episode_id(found: Record, name: str = "more") -> str:
    episode: Episode = found.episodes[f"inference/{name}"]
    return episode.id
