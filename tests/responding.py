"""A small policy file and a target with its alerts, for tests of what becomes of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from responder import alerts
from responder.acting.budget import BudgetBook
from responder.matchers import parse
from responder.model import (
    Commit,
    Direction,
    HistoryEntry,
    Outcome,
    Override,
    OverrideKind,
    Record,
    ScaleType,
    TargetRef,
)
from responder.policy import Policy, Rules, Scale, Settings, Trigger
from responder.reconcile import Look, Reconciler
from tests.fakes import (
    REF,
    FakeClock,
    FakeCluster,
    FakeValues,
    MemoryStore,
    ModelServer,
    Notebook,
    Trace,
    TracedStore,
    notification,
    silent,
)

NONE = timedelta(0)
LABELS = {"namespace": REF.namespace, "workload": REF.name, "workload_type": "deployment"}
UP = {"alertname": "Busy", "action": "scale_up", **LABELS}
DOWN = {"alertname": "Idle", "action": "scale_down", **LABELS}


def trigger(name: str, direction: Direction, **fields: Any) -> Trigger:
    """One pod more or less for alerts with action=<name>."""
    scale = Scale(direction, ScaleType.PODS, 1)
    return replace(Trigger(name, (parse(f'action="{name}"'),), scale), **fields)


def policy(**fields: Any) -> Policy:
    """Up and down by one pod, no cooldowns, no windows, 1 to 8 replicas."""
    triggers = (trigger("scale_up", Direction.UP), trigger("scale_down", Direction.DOWN))
    plain = Policy(
        "inference", (), 1, 8, triggers, Rules(NONE, NONE, tolerance=0.1), Rules(NONE, NONE, tolerance=0.1)
    )
    return replace(plain, **fields)


def settings(*policies: Policy, **fields: Any) -> Settings:
    return Settings(policies=policies or (policy(),), **fields)


@dataclass(slots=True)
class World:
    """A store, an API server with one Deployment of two replicas, and processes that look at it."""

    settings: Settings = field(default_factory=settings)
    clock: FakeClock = field(default_factory=FakeClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    server: ModelServer = field(default_factory=ModelServer)
    values: FakeValues = field(default_factory=FakeValues)
    budget: BudgetBook = field(default_factory=BudgetBook)
    notebook: Notebook = field(default_factory=Notebook)
    cluster: FakeCluster = field(init=False)
    trace: Trace = silent
    ids: int = 0

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(self.server, self._traced)
        self.server.add()
        self.budget.limit(self.settings.budgets)

    def _traced(self, step: str) -> None:
        self.trace(step)

    def _new_id(self) -> str:
        self.ids += 1
        return f"i{self.ids}"

    def process(
        self, cluster: FakeCluster | None = None, fence: Callable[[], bool] = lambda: True
    ) -> Reconciler:
        """A process of its own: what it knows is in the store and nowhere else."""
        records = TracedStore(self.store, self._traced)
        return Reconciler(
            records,
            records,
            cluster or self.cluster,
            self.values,
            lambda: self.settings,
            clock=self.clock,
            limits=self.budget,
            observer=self.notebook,
            started_at=self.clock.now,
            fence=fence,
            new_id=self._new_id,
        )

    def look(self, ref: TargetRef = REF, **options: Any) -> Look:
        """One look by a fresh process."""
        return self.process().reconcile(ref.key, self.clock.now, **options)

    def tell(self, *notifications: Any, ref: TargetRef = REF) -> None:
        """Fold notifications into a target's record."""
        record, version = self.store.record(ref.key) or (Record(ref), 0)
        for one in notifications:
            record = alerts.fold(record, one, self.settings, self.clock.now)
        self.store.commit(Commit(records=((record, version),)))

    def fire(self, labels: dict[str, str] | None = None, **fields: Any) -> None:
        """An alert fires now; scale_up unless said."""
        fields.setdefault("starts_at", self.clock.now)
        self.tell(notification(labels or UP, received_at=self.clock.now, **fields))

    def resolve(self, labels: dict[str, str] | None = None) -> None:
        self.tell(notification(labels or UP, firing=False, received_at=self.clock.now))

    def override(self, kind: OverrideKind, **fields: Any) -> Override:
        """A person's word from now on for an hour, for all targets unless said."""
        now = self.clock.now
        made = Override(
            f"o{len(self.store.overrides())}", kind, "ana", "test", now, now, now + timedelta(hours=1)
        )
        made = replace(made, **fields)
        self.store.put_override(made)
        return made

    def record(self, ref: TargetRef = REF) -> Record:
        found = self.store.record(ref.key)
        if found is None:
            raise AssertionError(f"no record of {ref}")
        return found[0]

    def replicas(self, ref: TargetRef = REF) -> int:
        return self.server.things[ref.key].replicas

    def outcomes(self) -> list[tuple[str, Outcome]]:
        """What history says became of intents, in order."""
        return [(entry.intent, entry.outcome) for entry in self.store.entries if entry.outcome]

    def reasons(self) -> list[str]:
        return [entry.reason.value for entry in self.store.entries]


def accounted(entries: list[HistoryEntry]) -> int:
    """Effects that history accounts for."""
    return sum(entry.outcome in (Outcome.APPLIED, Outcome.UNCERTAIN) for entry in entries)
