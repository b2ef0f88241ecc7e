"""Which of people's words decides: the narrowest, then the newest, that is in force. Pure.

Annotations on the workload and its namespace count as overrides that may only narrow the policy.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from responder.matchers import parse, quoted
from responder.model import Direction, Override, OverrideKind, TargetRef, Workload
from responder.policy import Policy

PREFIX = "gpu-responder.io/"
_NAMES = frozenset(
    f"{PREFIX}{name}"
    for name in ("paused", "paused-until", "pinned-replicas", "min-replicas", "max-replicas", "target")
)
_LONGEST = 256
"""Characters of a value that can mean anything; the API server takes a quarter of a mebibyte."""
FOREVER = datetime.max.replace(tzinfo=UTC)
"""The end of what stands in an annotation without one: until it is removed."""
EARLIEST = datetime.min.replace(tzinfo=UTC)
"""Since when an annotation stands: that is not known, so anybody else's word is newer."""
_TRUE = frozenset({"true", "yes", "on", "1", ""})
_FALSE = frozenset({"false", "no", "off", "0"})

_STOPS = {
    Direction.UP: frozenset(
        {OverrideKind.PIN, OverrideKind.PAUSE, OverrideKind.FREEZE, OverrideKind.PAUSE_SCALE_UP}
    ),
    Direction.DOWN: frozenset(
        {OverrideKind.PIN, OverrideKind.PAUSE, OverrideKind.FREEZE, OverrideKind.PAUSE_SCALE_DOWN}
    ),
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """minReplicas and maxReplicas in force, and the overrides that set them."""

    least: int
    most: int
    least_by: Override | None = None
    most_by: Override | None = None

    def within(self, replicas: int) -> int:
        return max(self.least, min(replicas, self.most))


@dataclass(frozen=True, slots=True)
class Annotations:
    """What the annotations say: overrides, a target for sized triggers, and what could not be read."""

    overrides: tuple[Override, ...] = ()
    target: float | None = None
    notes: tuple[str, ...] = ()


def said(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Those annotations that can decide anything: history keeps them, and others write there what they like."""
    return {name: text[:_LONGEST] for name, text in (annotations or {}).items() if name in _NAMES}


def width(override: Override) -> tuple[int, int, int, int]:
    """How narrow an override is; the greater, the narrower: one target, one name, then by number of labels."""
    if override.target:
        return 1, 0, 0, 0
    matchers = [parse(text) for text in override.matchers]
    exact = {matcher.name for matcher in matchers if matcher.op == "=" and matcher.value}
    loose = {matcher.name for matcher in matchers} - exact
    return 0, int("name" in exact), len(exact), len(loose)


def deciding(overrides: Iterable[Override], direction: Direction, now: datetime) -> Override | None:
    """The pin, pause or freeze that decides about moves in this direction."""
    return _first(overrides, _STOPS[direction], now)


def pin_of(overrides: Iterable[Override], now: datetime) -> Override | None:
    """The pin that decides among pins; a pause may still decide over it."""
    pins = (override for override in overrides if override.replicas is not None)
    return _first(pins, frozenset({OverrideKind.PIN}), now)


def bounds_of(policy: Policy, overrides: Iterable[Override], now: datetime) -> Bounds:
    """The policy's bounds, or those that an override sets for now; minimum and maximum each on its own."""
    overrides = tuple(overrides)
    kinds = frozenset({OverrideKind.BOUNDS})
    least_by = _first((each for each in overrides if each.min_replicas is not None), kinds, now)
    most_by = _first((each for each in overrides if each.max_replicas is not None), kinds, now)
    least, most = policy.min_replicas, policy.max_replicas
    if least_by is not None and least_by.min_replicas is not None:
        least = least_by.min_replicas
    if most_by is not None and most_by.max_replicas is not None:
        most = most_by.max_replicas
    # Of two people's words that exclude each other, the one that spends less.
    return Bounds(min(least, most), most, least_by, most_by)


def annotated(policy: Policy, target: TargetRef, workload: Workload) -> Annotations:
    """Read the annotations. What cannot be read as a pause or pin pauses, since somebody meant to stop it."""
    overrides: list[Override] = []
    notes: list[str] = []
    given = {
        name.removeprefix(PREFIX): value.strip()
        for name, value in workload.annotations.items()
        if name.startswith(PREFIX)
    }
    if "paused" in given and given["paused"].lower() not in _FALSE:
        readable = given["paused"].lower() in _TRUE
        overrides.append(_pause("paused", target, FOREVER, "" if readable else quoted(given["paused"])))
    if "paused-until" in given:
        overrides.append(_pause_until(given["paused-until"], target))
    namespaced = workload.namespace_annotations.get(f"{PREFIX}paused-until")
    if namespaced is not None:
        overrides.append(_pause_until(namespaced.strip(), target, namespace=True))
    if "pinned-replicas" in given:
        overrides.append(_pin(given["pinned-replicas"], target))
    bounds = _annotated_bounds(policy, target, given, notes)
    if bounds is not None:
        overrides.append(bounds)
    return Annotations(tuple(overrides), _annotated_target(given, notes), tuple(notes))


def _first(overrides: Iterable[Override], kinds: frozenset[OverrideKind], now: datetime) -> Override | None:
    return max(
        (each for each in overrides if each.kind in kinds and each.in_force(now)),
        key=lambda each: (width(each), each.created_at, each.id),
        default=None,
    )


def _annotation(
    kind: OverrideKind, name: str, target: TargetRef, ends_at: datetime, comment: str
) -> Override:
    return Override(
        id=f"annotation:{name}",
        kind=kind,
        created_by="annotation",
        comment=comment,
        created_at=EARLIEST,
        starts_at=EARLIEST,
        ends_at=ends_at,
        target=target.key,
        source=f"annotation {PREFIX}{name}",
    )


def _pause(name: str, target: TargetRef, ends_at: datetime, unread: str = "") -> Override:
    comment = f"its value {unread} cannot be read, so it pauses until it is mended" if unread else ""
    return _annotation(OverrideKind.PAUSE, name, target, ends_at, comment)


def _pause_until(text: str, target: TargetRef, namespace: bool = False) -> Override:
    ends_at = _time(text)
    unread = "" if ends_at is not None else quoted(text)
    pause = _pause("paused-until", target, FOREVER if ends_at is None else ends_at, unread)
    if not namespace:
        return pause
    return replace(
        pause,
        id="annotation:namespace/paused-until",
        target="",
        matchers=(f'namespace="{target.namespace}"',),
        source=f"annotation {PREFIX}paused-until of namespace {target.namespace}",
    )


def _pin(text: str, target: TargetRef) -> Override:
    replicas = _whole(text)
    if replicas is None:
        return _pause("pinned-replicas", target, FOREVER, quoted(text))
    pin = _annotation(OverrideKind.PIN, "pinned-replicas", target, FOREVER, "")
    return replace(pin, replicas=replicas)


def _annotated_bounds(
    policy: Policy, target: TargetRef, given: dict[str, str], notes: list[str]
) -> Override | None:
    least, most = (_read(given, name, notes) for name in ("min-replicas", "max-replicas"))
    if least is None and most is None:
        return None
    narrow = Bounds(policy.min_replicas, policy.max_replicas)
    for name, wanted in (("min-replicas", least), ("max-replicas", most)):
        if wanted is not None and narrow.within(wanted) != wanted:
            notes.append(
                f"annotation {PREFIX}{name} of {wanted} may only narrow the policy's "
                f"{policy.min_replicas} to {policy.max_replicas}, so it counts as {narrow.within(wanted)}"
            )
    bounds = _annotation(OverrideKind.BOUNDS, "min-replicas, max-replicas", target, FOREVER, "")
    return replace(
        bounds,
        id="annotation:bounds",
        source=f"annotations {PREFIX}min-replicas and {PREFIX}max-replicas",
        min_replicas=None if least is None else narrow.within(least),
        max_replicas=None if most is None else narrow.within(most),
    )


def _read(given: dict[str, str], name: str, notes: list[str]) -> int | None:
    if name not in given:
        return None
    number = _whole(given[name])
    if number is None:
        notes.append(
            f"annotation {PREFIX}{name} is {quoted(given[name])}, which is not a whole number: ignored"
        )
    return number


def _annotated_target(given: dict[str, str], notes: list[str]) -> float | None:
    if "target" not in given:
        return None
    try:
        target = float(given["target"])
    except ValueError:
        target = math.nan
    if math.isfinite(target) and target > 0:
        return target
    notes.append(
        f"annotation {PREFIX}target is {quoted(given['target'])}, which is not a number above 0: ignored"
    )
    return None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
