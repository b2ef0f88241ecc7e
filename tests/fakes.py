"""What stands in for the store, the API server and the clock in tests of the core: all in memory, all in order.

A `Trace` is told of every step that touches the outside, before and after it, and may raise, to crash there, or
do something else first, such as what another process would do meanwhile.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from responder.errors import Conflict, PermanentError, StoreUnavailable
from responder.model import (
    AuditEntry,
    Commit,
    Delivery,
    Direction,
    HistoryEntry,
    Notification,
    Outcome,
    Override,
    Ownership,
    Pods,
    Reason,
    Record,
    Silence,
    Span,
    TargetRef,
    Value,
    Workload,
)
from responder.settle import MANAGER
from responder.store import StoredEntry

T0 = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
REF = TargetRef("inference", "Deployment", "vllm")

Trace = Callable[[str], None]


class Crash(BaseException):
    """The process dies here: nothing may catch it on the way."""


def silent(step: str) -> None:
    """A trace that does nothing."""


class FakeClock:
    """A clock that moves only when told to."""

    def __init__(self, now: datetime = T0) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def tick(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


class MemoryStore:
    """A store without a disk, with the compare-and-set of the real ones."""

    def __init__(self, trace: Trace = silent) -> None:
        self.trace = trace
        self.down = ""
        """Why it cannot be used; empty when it can."""
        self.entries: list[HistoryEntry] = []
        self.trail: list[AuditEntry] = []
        self._records: dict[str, tuple[Record, int]] = {}
        self._inbox: dict[str, Delivery] = {}
        self._standing: dict[str, Span] = {}
        self._overrides: dict[str, Override] = {}
        self._silences: dict[str, Silence] = {}
        self._leases: dict[str, tuple[str, datetime]] = {}
        self._ids = 0
        self._lock = threading.RLock()
        self._bell = threading.Event()

    def _step(self, name: str) -> None:
        self.trace(name)
        if self.down:
            raise StoreUnavailable(self.down)

    # Deliveries

    def append(self, delivery: Delivery) -> None:
        with self._lock:
            self._step("append")
            self._ids += 1
            self._inbox[str(self._ids)] = delivery
        self._bell.set()

    def inbox(self, limit: int) -> list[tuple[str, Delivery]]:
        with self._lock:
            self._step("inbox")
            return list(self._inbox.items())[:limit]

    def wait(self, timeout: float) -> bool:
        rung = self._bell.wait(timeout)
        self._bell.clear()
        return rung

    def ring(self) -> None:
        self._bell.set()

    # Records

    def record(self, key: str) -> tuple[Record, int] | None:
        with self._lock:
            self._step("record")
            return self._records.get(key)

    def records(self) -> Iterator[tuple[Record, int]]:
        with self._lock:
            self._step("records")
            return iter(list(self._records.values()))

    def unseen(self) -> list[str]:
        return [record.target.key for record, _ in self.records() if record.unseen or record.verdict is None]

    def intents(self) -> list[Record]:
        return [record for record, _ in self._records.values() if record.intent or record.outstanding]

    def commit(self, commit: Commit) -> Mapping[str, int]:
        with self._lock:
            self._step("commit")
            read = [(record.target.key, version) for record, version in commit.records]
            for key, version in (*read, *commit.forgotten):
                if self._records.get(key, (None, 0))[1] != version:
                    raise Conflict(f"{key} was changed by somebody else")
            for record, version in commit.records:
                self._records[record.target.key] = (record, version + 1)
            for key, _ in commit.forgotten:
                del self._records[key]
            self._standing |= {span.fingerprint: span for span in commit.standing}
            for fingerprint in commit.standing_gone:
                self._standing.pop(fingerprint, None)
            self.entries += commit.history
            for identity in commit.drained:
                self._inbox.pop(identity, None)
            versions = {key: version + 1 for key, version in read}
        self.trace("committed")
        return versions

    # People

    def standing(self) -> tuple[Span, ...]:
        self._step("standing")
        return tuple(self._standing.values())

    def overrides(self, include_ended: bool = False) -> tuple[Override, ...]:
        self._step("overrides")
        return tuple(self._overrides.values())

    def put_override(self, override: Override) -> None:
        self._overrides[override.id] = override
        self._bell.set()

    def silences(self, include_expired: bool = False) -> tuple[Silence, ...]:
        return tuple(self._silences.values())

    def put_silence(self, silence: Silence) -> None:
        self._silences[silence.id] = silence
        self._bell.set()

    def audit(self, entry: AuditEntry) -> None:
        self.trail.append(entry)

    # History

    def history(self, *, target: str = "", limit: int = 100) -> list[StoredEntry]:
        found = [
            StoredEntry(number, entry)
            for number, entry in enumerate(self.entries, 1)
            if not target or entry.target == target
        ]
        return found[::-1][:limit]

    def actions_since(self, direction: Direction, since: datetime) -> list[datetime]:
        return [
            entry.at
            for entry in self.entries
            if entry.outcome in (Outcome.APPLIED, Outcome.UNCERTAIN)
            and entry.at >= since
            and (entry.desired > entry.current) is (direction is Direction.UP)
        ]

    # The lease

    def lease(self, name: str, holder: str, ttl: timedelta, now: datetime) -> bool:
        with self._lock:
            self._step("lease")
            known, until = self._leases.get(name, (holder, now))
            if known != holder and now < until:
                return False
            self._leases[name] = (holder, now + ttl)
            return True

    def release(self, name: str, holder: str) -> None:
        with self._lock:
            if self._leases.get(name, ("", T0))[0] == holder:
                del self._leases[name]


@dataclass(slots=True)
class Thing:
    """A Deployment as far as its scale goes."""

    uid: str
    replicas: int
    manager: str = "helm"
    generation: int = 1
    resource_version: int = 100
    ready: int | None = None
    """None: all of them, at once."""
    unschedulable: int = 0


@dataclass(frozen=True, slots=True)
class Effect:
    """A change of replicas that the server took."""

    key: str
    manager: str
    before: int
    after: int


@dataclass(slots=True)
class ModelServer:
    """Keeps generation, resourceVersion and the manager of spec.replicas as the recordings show them.

    A write of the same value moves nothing; status moves resourceVersion only; a change of spec moves both, and
    one of replicas moves the manager too.
    """

    things: dict[str, Thing] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    _made: int = 0

    def add(self, ref: TargetRef = REF, replicas: int = 2, manager: str = "helm") -> Thing:
        self._made += 1
        thing = Thing(f"uid-{self._made}", replicas, manager, resource_version=100 * self._made)
        self.things[ref.key] = thing
        return thing

    def delete(self, ref: TargetRef = REF) -> None:
        del self.things[ref.key]

    def status_write(self, ref: TargetRef = REF) -> None:
        self.things[ref.key].resource_version += 1

    def template_write(self, ref: TargetRef = REF) -> None:
        thing = self.things[ref.key]
        thing.generation += 1
        thing.resource_version += 1

    def replicas_write(
        self, ref: TargetRef, replicas: int, manager: str = "kubectl", *, by_scale: bool = False
    ) -> None:
        thing = self.things[ref.key]
        if thing.replicas == replicas:
            return
        self.effects.append(Effect(ref.key, manager, thing.replicas, replicas))
        # A Scale at 0 omits the field, and a scale write does not begin to track what nobody holds.
        untracked = by_scale and (replicas == 0 or not thing.manager)
        thing.replicas, thing.manager = replicas, "" if untracked else manager
        thing.generation += 1
        thing.resource_version += 1

    def read(self, ref: TargetRef) -> Workload:
        thing = self._get(ref)
        return Workload(
            thing.uid, thing.generation, str(thing.resource_version), thing.replicas, thing.manager
        )

    def put_scale(self, ref: TargetRef, read: Workload, replicas: int) -> None:
        """A PUT of the scale by us, against the version read. Raises Conflict."""
        thing = self._get(ref)
        if (thing.uid, str(thing.resource_version)) != (read.uid, read.resource_version):
            raise Conflict(f"{ref} has changed")
        self.replicas_write(ref, replicas, MANAGER, by_scale=True)

    def ours(self, ref: TargetRef = REF) -> list[Effect]:
        """Effects of our writes."""
        return [effect for effect in self.effects if (effect.key, effect.manager) == (ref.key, MANAGER)]

    def _get(self, ref: TargetRef) -> Thing:
        if ref.key not in self.things:
            raise PermanentError(f"{ref} does not exist", Reason.TARGET_GONE)
        return self.things[ref.key]


class FakeCluster:
    """One process's way to a ModelServer. What `failing` names raises once each, before it reaches the server.

    `lost` names calls whose answer is lost after they took effect.
    """

    def __init__(self, server: ModelServer, trace: Trace = silent) -> None:
        self.server = server
        self.trace = trace
        self.failing: dict[str, list[Exception]] = defaultdict(list)
        self.lost: dict[str, list[Exception]] = defaultdict(list)
        self.rehearsed: list[tuple[str, int]] = []
        self.watched: dict[str, Workload] = {}

    def workload(self, ref: TargetRef) -> Workload:
        self._fail("workload")
        return self.server.read(ref)

    def seen(self, ref: TargetRef) -> Workload | None:
        """No watch, unless a test says what it shows."""
        return self.watched.get(ref.key)

    def pods(self, ref: TargetRef, workload: Workload) -> Pods:
        self._fail("pods")
        thing = self.server.things.get(ref.key)
        total = thing.replicas if thing else 0
        ready = total if thing is None or thing.ready is None else thing.ready
        return Pods(ready=ready, total=total, unschedulable=thing.unschedulable if thing else 0)

    def ownership(self, ref: TargetRef, workload: Workload) -> Ownership:
        self._fail("ownership")
        return Ownership(owner=self.server.owners.get(ref.key, ""))

    def scale(self, ref: TargetRef, workload: Workload, replicas: int, *, dry_run: bool = False) -> Workload:
        self._fail("scale")
        if dry_run:
            self.rehearsed.append((ref.key, replicas))
            return replace(workload, replicas=replicas)
        self.server.put_scale(ref, workload, replicas)
        self.trace("scaled")
        if self.lost["scale"]:
            raise self.lost["scale"].pop(0)
        return self.server.read(ref)

    def _fail(self, call: str) -> None:
        self.trace(call)
        if self.failing[call]:
            raise self.failing[call].pop(0)


class FakeValues:
    """Answers every query with `value`, fresh."""

    def __init__(self, value: float | None = None) -> None:
        self.value = value
        self.asked: list[str] = []

    def query(self, expr: str, now: datetime) -> Value:
        self.asked.append(expr)
        return Value(self.value, now, "" if self.value is not None else "no sample")


class Notebook:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []
        self.scales: list[object] = []
        self.failures: list[object] = []

    def recorded(self, entry: HistoryEntry) -> None:
        self.entries.append(entry)

    def scaled(self, record: Record, intent: object, at: datetime) -> None:
        self.scales.append(intent)

    def failed(self, target: TargetRef, failure: object) -> None:
        self.failures.append(failure)


def notification(
    labels: Mapping[str, str],
    *,
    firing: bool = True,
    starts_at: datetime = T0,
    received_at: datetime = T0,
    ends_at: datetime | None = None,
    annotations: Mapping[str, str] | None = None,
    fingerprint: str = "",
) -> Notification:
    """An alert as delivered; its fingerprint follows from its labels unless given."""
    if not firing and ends_at is None:
        ends_at = received_at
    return Notification(
        fingerprint or "-".join(labels.values()),
        firing,
        labels,
        annotations or {},
        starts_at,
        ends_at,
        received_at,
    )


def delivery(notifications: Sequence[Notification], **fields: object) -> Delivery:
    """A webhook with these alerts, received with the first of them."""
    received_at = notifications[0].received_at if notifications else T0
    return Delivery(received_at, tuple(notifications), **fields)  # type: ignore[arg-type]


class TracedStore:
    """One process's way to a store that others use too: its own trace, shared state."""

    def __init__(self, store: MemoryStore, trace: Trace) -> None:
        self._store = store
        self._trace = trace

    def record(self, key: str) -> tuple[Record, int] | None:
        self._trace("record")
        return self._store.record(key)

    def commit(self, commit: Commit) -> Mapping[str, int]:
        self._trace("commit")
        versions = self._store.commit(commit)
        self._trace("committed")
        return versions

    def standing(self) -> tuple[Span, ...]:
        return self._store.standing()

    def overrides(self, include_ended: bool = False) -> tuple[Override, ...]:
        self._trace("overrides")
        return self._store.overrides()

    def silences(self, include_expired: bool = False) -> tuple[Silence, ...]:
        return self._store.silences()
