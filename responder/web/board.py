"""All targets at a glance: one row each, the worst first. Read once for all who look at the same time."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from responder.alerting.spans import Condition, condition
from responder.deciding.overrides import bounds_of
from responder.errors import StoreUnavailable
from responder.model import Override, OverrideKind, Reason, Record
from responder.observe import overrides_of
from responder.policy import Settings, governing
from responder.web import ages
from responder.web.views import state_of

STATES = ("failing", "limited", "held", "up", "down", "pending", "steady")
"""The worst first: what a person has to look at before anything else."""
_LEAST_SECONDS = 1.0
_SHARE = 10
"""Reading thousands of records takes time; no more than a tenth of all time goes into it."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the list shows of one target."""

    key: str
    namespace: str
    kind: str
    name: str
    state: str
    reason: str
    message: str
    policy: str
    replicas: int | None
    ready: int | None
    counted_at: datetime | None
    desired: int | None
    least: int | None
    most: int | None
    decided_at: datetime | None
    firing: tuple[str, ...]
    annotated: tuple[str, ...]
    """The kinds of what annotations on it say."""
    unreachable: str
    """Why the API server could not be reached for it."""


def row_of(record: Record, settings: Settings, overrides: Iterable[Override], now: datetime) -> Row:
    """The record's row, with the bounds that are in force."""
    policy = governing(settings, record)
    # Of thousands of targets each: what cannot set bounds is not even matched.
    bounding = [each for each in overrides if each.kind is OverrideKind.BOUNDS]
    verdict, failure = record.verdict, record.failure
    said = verdict.message if verdict else "It has not been looked at yet."
    bound = overrides_of(bounding, record.target, policy.name) if policy else ()
    bounds = bounds_of(policy, (*bound, *record.annotated), now) if policy else None
    unreachable = failure is not None and failure.reason is Reason.API_UNAVAILABLE
    return Row(
        key=record.target.key,
        namespace=record.target.namespace,
        kind=record.target.key.split("/")[1],
        name=record.target.name,
        state=state_of(record),
        reason=(failure.reason if failure else verdict.reason if verdict else ""),
        message=failure.message if failure else said,
        policy=policy.name if policy else "",
        replicas=record.replicas,
        ready=record.ready,
        counted_at=ages.counted_at(record),
        desired=verdict.desired if verdict else None,
        least=bounds.least if bounds else None,
        most=bounds.most if bounds else None,
        decided_at=failure.since if failure else verdict.at if verdict else None,
        firing=tuple(
            sorted(
                span.labels.get("alertname", span.fingerprint)
                for span in record.alerts.values()
                if condition(span, settings.timing, now) in (Condition.FIRING, Condition.UNKNOWN)
            )
        ),
        annotated=tuple(each.kind.value for each in record.annotated if policy and each.in_force(now)),
        unreachable=failure.message if unreachable and failure else "",
    )


def ordered(rows: Iterable[Row]) -> list[Row]:
    """The worst first, then by name."""
    rank = {state: place for place, state in enumerate(STATES)}
    return sorted(rows, key=lambda row: (rank[row.state], row.key))


def counted(rows: Iterable[Row]) -> dict[str, int]:
    """How many are in each state; every state is there."""
    counts = Counter(row.state for row in rows)
    return {state: counts[state] for state in STATES}


class Board:
    """The rows of all targets. `read` makes them anew, for one caller at a time, and not too often."""

    def __init__(self, read: Callable[[], list[Row]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._failure: StoreUnavailable | None = None
        self._until = 0.0

    def rows(self) -> list[Row]:
        """The rows as they were moments ago. Raises StoreUnavailable, if need be what another was told a moment ago."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._until = self._read_again() + time.monotonic()
            if self._failure is not None:
                raise self._failure
            return self._rows

    def _read_again(self) -> float:
        """Read, and tell for how many seconds that will do."""
        began, self._failure = time.monotonic(), None
        try:
            self._rows = self._read()
        except StoreUnavailable as error:
            # Who waits meanwhile must not wait for a time-out of their own, for each holds a thread.
            self._failure = error
            return _LEAST_SECONDS
        return max(_LEAST_SECONDS, _SHARE * (time.monotonic() - began))

    def forget(self) -> None:
        """Read anew when next asked: somebody has just changed something."""
        self._until = 0.0
