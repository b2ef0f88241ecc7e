"""One effect per cause, by exhaustion: every schedule of crashes, lost answers, late writes, other processes and
rival writers with at most so many disturbances, against the real `settle` and `reconcile`.

A schedule is a sequence of choices. At each gap between two steps of a look, one of these may happen: nothing; a
write of status, of the template, or of replicas by somebody else, to another count or to the very one that is
wanted; the process dies; another process looks in between (this one is paused); a write that was sent earlier
lands. At the write itself the answer may be lost, or the request may hang and land at any later gap, or never,
while its process is dead. Each but a landing is a disturbance. Looks follow until nothing changes any more.

What is decided is kept simple: one step up, once. What must hold is not: never two effects, never none unless
history says that the effect is uncertain, never an uncertain one that can be told, and a line of history for
each effect, one for one.

ENUMERATION_DISTURBANCES=4 goes one deeper, by hand.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from responder import alerts, ledger, reconcile, settle
from responder.errors import Conflict, TransientError
from responder.model import (
    Budget,
    Commit,
    Decision,
    Observed,
    Outcome,
    Override,
    Ownership,
    Pods,
    Reason,
    Record,
    Silence,
    Span,
    TargetRef,
    Workload,
)
from responder.reconcile import Reconciler
from responder.settle import Settlement
from tests.fakes import REF, T0, Crash, FakeValues, MemoryStore, ModelServer, Notebook, notification
from tests.responding import UP, settings

DISTURBANCES = int(os.environ.get("ENUMERATION_DISTURBANCES", "3"))
LOOKS = 8
"""Enough to come to rest after any schedule; more would be a livelock."""
SETTINGS = settings()
FIRING = alerts.fold(Record(REF), notification(UP), SETTINGS, T0)
EPISODE = "e"


class Chooser:
    """Replays a prefix of choices, then takes the first option everywhere; keeps what else there was."""

    def __init__(self, prefix: list[int], disturbances: int) -> None:
        self.taken: list[int] = []
        self.widths: list[int] = []
        self._prefix = prefix
        self._left = disturbances

    def choose(self, free: tuple[str, ...], costly: tuple[str, ...]) -> str:
        options = free + costly if self._left else free
        index = len(self.taken)
        choice = self._prefix[index] if index < len(self._prefix) else 0
        self.taken.append(choice)
        self.widths.append(len(options))
        if choice >= len(free):
            self._left -= 1
        return options[choice]

    def next(self) -> list[int] | None:
        """The prefix of the next schedule; None after the last."""
        for index in range(len(self.taken) - 1, -1, -1):
            if self.taken[index] + 1 < self.widths[index]:
                return [*self.taken[:index], self.taken[index] + 1]
        return None


RIVALS = ("status", "template", "replicas", "same replicas")
GAPS = {
    "before reading": (*RIVALS, "another looks"),
    "before a commit": ("dies", "another looks"),
    "after the intent": (*RIVALS, "dies", "another looks"),
}
"""What makes a difference where. A rival's write or a landing between two steps that do not touch the server is
the same as one after both; a death after the write is the same as one before its outcome is stored."""
AT_THE_WRITE = ("answer lost", "hangs")


@dataclass(slots=True)
class Run:
    """One schedule: a store, an API server, and the processes that come and go."""

    chooser: Chooser
    steps: tuple[int, ...]
    """By how much the first, second, … look wants to go up; 0 holds. The last goes on for ever."""
    start: int = 2
    manager: str = "helm"
    store: MemoryStore = field(default_factory=MemoryStore)
    server: ModelServer = field(default_factory=ModelServer)
    hanging: list[tuple[Workload, int]] = field(default_factory=list)
    rival: int = 10
    looks: int = 0
    ids: int = 0
    restless: bool = False
    log: list[str] = field(default_factory=list)
    watched: bool = False
    shown: Workload | None = None
    """What a lagging watch shows: the target as it was when the look before this one began."""
    coming: Workload | None = None

    def __post_init__(self) -> None:
        self.server.add(replicas=self.start, manager=self.manager)
        self.store._records[REF.key] = (FIRING, 1)

    @property
    def untracked(self) -> bool:
        """The server cannot say who wrote replicas, and rivals write as untraceably as we do."""
        return not self.manager or self.start + self.steps[0] == 0

    def all_of_it(self) -> None:
        """Look until nothing changes, let what hangs land or not, and look again."""
        self.settle_down()
        while self.hanging:
            if self.chooser.choose(("never lands", "lands"), ()) == "lands":
                self._land()
            else:
                self.hanging.pop(0)
        self.settle_down()

    def settle_down(self) -> None:
        for _ in range(LOOKS):
            before = (self.store._records[REF.key], self.server.read(REF))
            lived = self.look(nested=False)
            if lived and (self.store._records[REF.key], self.server.read(REF)) == before:
                return
        self.restless = True

    def look(self, nested: bool) -> bool:
        """One look by a fresh process; False if it died in it."""
        self.looks += 1
        if self.watched:
            self.shown, self.coming = self.coming, self.server.read(REF)
        step = self.steps[min(self.looks, len(self.steps)) - 1]
        process = Process(self, nested)
        reconciler = Reconciler(
            process,
            process,
            process,
            FakeValues(),
            lambda: SETTINGS,
            clock=lambda: T0,
            limits=NoLimits(),
            observer=Notebook(),
            started_at=T0,
            new_id=self._new_id,
        )
        STEP[0] = step
        try:
            # A failure waits for its next try; here that is at once.
            reconciler.reconcile(REF.key, T0, anew=True)
        except Crash:
            return False
        return True

    def gap(self, where: str, nested: bool) -> None:
        """Between two steps of a process: what happens here?"""
        costly = GAPS[where][:-1] if nested else GAPS[where]
        lands = self.hanging and where != "before a commit"
        free = ("nothing", "lands") if lands else ("nothing",)
        chosen = self.chooser.choose(free, costly)
        if chosen == "nothing":
            return
        self.log.append(f"{where}: {chosen}")
        if chosen == "status":
            self.server.status_write()
        elif chosen == "template":
            self.server.template_write()
        elif chosen == "replicas":
            self.rival += 10
            self.server.replicas_write(REF, self.rival, by_scale=self.untracked)
        elif chosen == "same replicas":
            same = max(0, self.server.things[REF.key].replicas + self.steps[0])
            self.server.replicas_write(REF, same, by_scale=self.untracked)
        elif chosen == "lands":
            self._land()
        elif chosen == "dies":
            raise Crash
        else:
            step = STEP[0]
            self.look(nested=True)
            STEP[0] = step

    def _land(self) -> None:
        read, replicas = self.hanging.pop(0)
        try:
            self.server.put_scale(REF, read, replicas)
        except Conflict:
            self.log.append("(it was too late)")

    def _new_id(self) -> str:
        self.ids += 1
        return f"i{self.ids}"


STEP = [1]
"""By how much the running look wants to go up."""


class Process:
    """One process's store and API server, with a gap before each step that others can see or disturb."""

    def __init__(self, run: Run, nested: bool) -> None:
        self._run = run
        self._nested = nested

    def record(self, key: str) -> tuple[Record, int] | None:
        return self._run.store.record(key)

    def commit(self, commit: Commit) -> None:
        self._run.gap("before a commit", self._nested)
        self._run.store.commit(commit)
        if commit.records[0][0].intent is not None:
            self._run.gap("after the intent", self._nested)

    def standing(self) -> tuple[Span, ...]:
        return ()

    def overrides(self) -> tuple[Override, ...]:
        return ()

    def silences(self) -> tuple[Silence, ...]:
        return ()

    def seen(self, ref: TargetRef) -> Workload | None:
        return self._run.shown

    def workload(self, ref: TargetRef) -> Workload:
        self._run.gap("before reading", self._nested)
        return self._run.server.read(ref)

    def scale(self, ref: TargetRef, workload: Workload, replicas: int, *, dry_run: bool = False) -> None:
        fate = self._run.chooser.choose(("answered",), AT_THE_WRITE)
        if fate == "hangs":
            self._run.log.append("the write hangs and its process dies")
            self._run.hanging.append((workload, replicas))
            raise Crash
        self._run.server.put_scale(ref, workload, replicas)
        if fate == "answer lost":
            self._run.log.append("the answer is lost")
            raise TransientError("lost")


class NoLimits:
    """No action budget."""

    def offer(self, key: str, now: object) -> Budget:
        return Budget()

    def take(self, key: str, direction: object, now: object) -> bool:
        return True

    def give_back(self, direction: object, taken_at: object) -> None: ...

    def wait(self, key: str, direction: object, since: object) -> None: ...

    def leave(self, key: str) -> None: ...


def one_step(policy: object, observed: Observed, record: Record, now: object) -> Decision:
    """The least there is to decide: up by a step, once in an episode."""
    current = observed.workload.replicas
    if record.ledger.steps.get(EPISODE) or not STEP[0]:
        return Decision(current, current, Reason.STEPS_SPENT, "")
    return Decision(current, current + STEP[0], Reason.SCALED_UP, "", episode=EPISODE)


def seen(settings: object, policy: object, record: Record, live: Workload, **rest: object) -> Observed:
    return Observed(live, Pods(live.replicas), Ownership())


@pytest.fixture(autouse=True)
def simple(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what has no part in one effect: most of the time would go there."""
    monkeypatch.setattr(reconcile, "decide", one_step)
    monkeypatch.setattr(reconcile, "observe", seen)
    monkeypatch.setattr(alerts, "prune", lambda record, settings, now: record)


TWO, LOST, UNACCOUNTED = (
    "two effects",
    "an acknowledged trigger is lost",
    "history does not account for the effects one for one",
)


def faults(run: Run) -> Iterator[str]:
    """What must never be, seen from outside: the server's effects against history's account of them."""
    effects = len(run.server.ours())
    lines = Counter(entry.outcome for entry in run.store.entries)
    applied, uncertain = lines[Outcome.APPLIED], lines[Outcome.UNCERTAIN]
    record = run.store._records[REF.key][0]
    if run.restless:
        yield "never comes to rest"
    if effects > 1:
        yield TWO
    if effects == 0 and not uncertain:
        yield LOST
    if effects > applied + uncertain or applied > effects:
        yield UNACCOUNTED
    if uncertain + applied > 1:
        yield "more than one line for one effect"
    if record.ledger.steps.get(EPISODE, 0) != 1:
        yield "the step is not charged once"
    if record.intent is not None:
        yield "an intent stays open"
    if uncertain and run.server.things[REF.key].generation < 3 and not run.untracked:
        yield "uncertain, though one change since can be told apart from ours"


def explore(
    steps: tuple[int, ...], disturbances: int, start: int = 2, manager: str = "helm", *, watched: bool = False
) -> tuple[int, Counter[str], dict[str, list[str]]]:
    """Run every schedule; how many there are, what went wrong how often, and an example of each."""
    count, found, examples = 0, Counter[str](), dict[str, list[str]]()
    prefix: list[int] | None = []
    while prefix is not None:
        chooser = Chooser(prefix, disturbances)
        run = Run(chooser, steps, start, manager, watched=watched)
        run.all_of_it()
        for fault in faults(run):
            found[fault] += 1
            examples.setdefault(fault, run.log)
        count += 1
        prefix = chooser.next()
    return count, found, examples


SCENARIOS = [
    pytest.param((1,), id="all processes want the same"),
    pytest.param((1, 2, 1), id="the second wants another count"),
    pytest.param((1, 0, 1), id="the second wants nothing"),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("steps", SCENARIOS)
def test_every_schedule_has_one_effect_and_one_line_for_it(steps):
    """59,105 schedules over the three scenarios, with up to three disturbances each."""
    count, found, examples = explore(steps, DISTURBANCES)
    print(f"{count} schedules")
    assert found == Counter(), examples
    assert count > 15_000 or DISTURBANCES < 3


@pytest.mark.parametrize(
    ("steps", "start", "manager"),
    [
        pytest.param((-1,), 1, "gpu-responder", id="down to 0, which nobody holds"),
        pytest.param((1,), 0, "", id="up from 0, which nobody holds"),
        pytest.param((1,), 3, "", id="up from 3, which nobody holds since it was at 0"),
        pytest.param((1, 0, 1), 0, "", id="up from 0, and the second wants nothing"),
    ],
)
def test_a_write_that_leaves_no_trace_has_one_effect_too(steps, start, manager):
    """At 0, and after it, the server does not say who wrote replicas: what cannot be told is uncertain, once."""
    count, found, examples = explore(steps, 2, start, manager)
    print(f"{count} schedules")
    assert found == Counter(), examples
    assert count > 500


@pytest.mark.parametrize("steps", SCENARIOS)
def test_a_watch_that_lags_changes_nothing_about_that(steps):
    """Looks that the watch's word is enough for come between, and it is a look behind."""
    count, found, examples = explore(steps, 2, watched=True)
    print(f"{count} schedules")
    assert found == Counter(), examples
    assert count > 300


def test_the_enumeration_notices_a_watch_that_is_believed(monkeypatch):
    """Settling from what a watch shows would take our own write for undone, or for another's."""
    monkeypatch.setattr(Reconciler, "_seen", lambda self, record: self._cluster.seen(record.target))
    _, found, _ = explore((1, 0, 1), 2, watched=True)
    assert found[UNACCOUNTED] > 0


def test_three_different_writes_at_one_version_never_have_two_effects():
    """Two are kept to be watched. The third makes the first count as uncertain: safe, and said."""
    count, found, examples = explore((1, 2, 3), 2)
    assert not found.keys() & {TWO, LOST, UNACCOUNTED}, examples
    assert count > 500


def without_settling(intent, live):
    """Decide again on a 409 or after a crash, as if nothing could have happened."""
    return Settlement(Outcome.NOT_APPLIED)


def by_count(intent, live):
    """Tell by the count alone, as one would without managedFields."""
    applied = live.replicas == intent.to_replicas
    return Settlement(Outcome.APPLIED if applied else Outcome.NOT_APPLIED)


def by_generation(intent, live):
    """Take any change of spec for ours."""
    return Settlement(Outcome.NOT_APPLIED if live.generation == intent.generation else Outcome.APPLIED)


def never_uncertain(intent, live):
    """Take what cannot be told for not applied."""
    found = settle_by_the_table(intent, live)
    return replace(found, outcome=Outcome.NOT_APPLIED) if found.outcome is Outcome.UNCERTAIN else found


def forgetting_paused_writes(intent, live):
    """Close an intent for good when nothing has moved, though its write may still be on its way."""
    return replace(settle_by_the_table(intent, live), may_land=False)


settle_by_the_table = settle.settle


def test_taking_a_write_without_trace_for_not_ours_is_caught(monkeypatch):
    """The table without its row for writes that leave no trace has double effects on the way from 0."""
    monkeypatch.setattr(settle, "_leaves_no_trace", lambda intent: False)
    _, found, _ = explore((1,), 2, 0, "")
    assert found[TWO] + found[LOST] + found[UNACCOUNTED] > 0


@pytest.mark.parametrize(
    ("wrong", "steps", "fault"),
    [
        pytest.param(without_settling, (1,), TWO, id="deciding again on 409"),
        pytest.param(by_count, (1,), LOST, id="telling by the count"),
        pytest.param(by_count, (1,), TWO, id="telling by the count, the other way"),
        pytest.param(by_generation, (1,), LOST, id="telling by the generation"),
        pytest.param(never_uncertain, (1,), TWO, id="never being uncertain"),
        pytest.param(forgetting_paused_writes, (1, 0, 1), TWO, id="forgetting writes that may still land"),
    ],
)
def test_the_enumeration_has_teeth(monkeypatch, wrong, steps, fault):
    """Each plausible shortcut is caught by some schedule."""
    monkeypatch.setattr(settle, "settle", wrong)
    count, found, _ = explore(steps, 2)
    print(f"{found[fault]} of {count} schedules: {fault}")
    assert found[fault] > 0


def test_the_enumeration_notices_a_write_without_resource_version(monkeypatch):
    """The fence is the version that the write carries: without it the election would have to be believed."""

    def put(self, ref, read, replicas):
        self.replicas_write(ref, replicas, settle.MANAGER)

    monkeypatch.setattr(ModelServer, "put_scale", put)
    _, found, _ = explore((1, 2, 1), 2)
    assert found[TWO] > 0


def test_the_enumeration_notices_an_uncharged_step(monkeypatch):
    """What is found applied must count, or the episode steps again."""
    monkeypatch.setattr(ledger, "charge", lambda record, intent, **_: record)
    _, found, _ = explore((1,), 0)
    assert found[TWO] > 0
