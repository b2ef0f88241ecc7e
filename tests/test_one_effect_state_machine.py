"""One effect per cause under everything that can happen: hypothesis drives deliveries, people, rivals, crashes,
errors and the clock against the real folding, deciding, settling and reconciling, one process at a time or two
interleaved.

HYPOTHESIS_PROFILE=soak runs 50,000 examples, by hand.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from responder.acting.inbox import Inbox
from responder.errors import Conflict, PermanentError, TransientError
from responder.model import (
    Commit,
    Direction,
    Intent,
    Notification,
    Outcome,
    OverrideKind,
    Reason,
    Silence,
    TargetRef,
    Workload,
)
from tests.fakes import REF, Crash, FakeCluster, delivery, notification
from tests.responding import DOWN, UP, World, policy, settings, trigger

MIN, MAX, STEPS = 1, 6, 2
SETTINGS = settings(
    policy(
        min_replicas=MIN,
        max_replicas=MAX,
        triggers=(
            trigger("scale_up", Direction.UP, max_steps=STEPS),
            trigger("scale_down", Direction.DOWN, max_steps=STEPS),
        ),
    )
)
ALERTS = {
    f"{kind}-{pod}": {**labels, "pod": pod} for kind, labels in (("up", UP), ("down", DOWN)) for pod in "ab"
}
ERRORS: dict[str, Callable[[], Exception]] = {
    "timeout": lambda: TransientError("no answer", kind="timeout"),
    "500": lambda: TransientError("internal error", kind="server"),
    "429": lambda: TransientError("too many requests", retry_after=7, kind="throttled"),
    "409": lambda: Conflict("somebody else was first"),
    "403": lambda: PermanentError("no right", Reason.FORBIDDEN),
    "404": lambda: PermanentError("not found", Reason.TARGET_GONE),
    "422": lambda: PermanentError("invalid", Reason.INVALID),
    "namespace": lambda: PermanentError("terminating", Reason.NAMESPACE_TERMINATING),
}
READING = sorted(ERRORS.keys() - {"409", "404"})
"""What a read can answer; that a target which is there is gone, no API server says."""
PAUSES = (OverrideKind.PAUSE, OverrideKind.FREEZE, OverrideKind.PAUSE_SCALE_UP, OverrideKind.PAUSE_SCALE_DOWN)
STOPPED = {
    Direction.UP: {OverrideKind.PAUSE, OverrideKind.FREEZE, OverrideKind.PAUSE_SCALE_UP},
    Direction.DOWN: {OverrideKind.PAUSE, OverrideKind.FREEZE, OverrideKind.PAUSE_SCALE_DOWN},
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A write as it left its process, with the cause that its intent names."""

    workload: Workload
    replicas: int
    episode: str | None


class Watched(FakeCluster):
    """A process's API server; each write that leaves is checked against what had been said by then."""

    def __init__(self, machine: "OneEffect", trace: Callable[[str], None]) -> None:
        super().__init__(machine.world.server, trace)
        self.machine = machine
        self.hangs = False

    def scale(self, ref: TargetRef, workload: Workload, replicas: int, *, dry_run: bool = False) -> Workload:
        self._fail("scale")
        sent = self.machine.leaves(workload, replicas)
        if self.hangs:
            self.machine.hanging.append(sent)
            raise Crash
        self.machine.lands(sent)
        self.trace("scaled")
        if self.lost["scale"]:
            raise self.lost["scale"].pop(0)
        return self.server.read(ref)


class OneEffect(RuleBasedStateMachine):
    """Alerts are true or not; Alertmanagers tell of them late, twice or out of order; the rest goes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=SETTINGS)
        self.inbox = Inbox(self.world.store)
        self.truth: dict[str, tuple[bool, datetime]] = {}
        self.underway: list[tuple[Notification, ...]] = []
        """Notifications that a sender has not delivered yet, or may deliver again."""
        self.hanging: list[Sent] = []
        self.shown: dict[str, Workload] = {}
        """What the watch shows, which may be long out of date."""
        self.effects: Counter[tuple[str, str]] = Counter()
        self.intents: dict[tuple[str, int], Intent] = {}
        """All that were ever stored, by the write that they announce."""
        self.crash_in: int | None = None
        self.meanwhile: tuple[int, Callable[[], None]] | None = None
        commit = self.world.store.commit

        def committed(changes: Commit) -> object:
            done = commit(changes)
            for record, _ in changes.records:
                if record.intent is not None:
                    key = (record.intent.resource_version, record.intent.to_replicas)
                    self.intents[key] = record.intent
            return done

        self.world.store.commit = committed  # type: ignore[method-assign,assignment]

    @initialize(name=st.none() | st.sampled_from(sorted(ALERTS)))
    def begins(self, name: str | None) -> None:
        """Often something fires already, so that the rest has something to disturb."""
        if name is not None:
            self.truth[name] = (True, self.now)
            self._deliver(self._told(name))
            self._drain_quietly()

    # What is true, and what is told of it

    @rule(name=st.sampled_from(sorted(ALERTS)), firing=st.booleans())
    def is_told_at_once(self, name: str, firing: bool) -> None:
        """An alert begins, ends or is repeated, and all goes well."""
        was, started = self.truth.get(name, (False, self.now))
        if was or firing:
            self.truth[name] = (firing, started if was else self.now)
            self._deliver(self._told(name))
            self._drain_quietly()

    @rule(name=st.sampled_from(sorted(ALERTS)), firing=st.booleans())
    def changes(self, name: str, firing: bool) -> None:
        """An alert begins or ends, and a notification of it is underway."""
        was, started = self.truth.get(name, (False, self.now))
        if was or firing:
            self.truth[name] = (firing, started if was else self.now)
            self.underway.append((self._told(name),))

    @rule(data=st.data(), again=st.booleans())
    @precondition(lambda self: self.underway)
    def delivers(self, data: st.DataObject, again: bool) -> None:
        """Any notification that is underway arrives, late and out of order as may be; or arrives twice."""
        index = data.draw(st.integers(0, len(self.underway) - 1))
        told = self.underway[index] if again else self.underway.pop(index)
        self._deliver(*told)

    @rule(crash_in=st.none() | st.integers(1, 6))
    def drains(self, crash_in: int | None) -> None:
        """The actor folds the inbox in, and may die at any step of it."""
        self.crash_in = crash_in
        self.world.trace = self.world.store.trace = self._step
        try:
            self.inbox.drain(SETTINGS, self.now)
        except Crash:
            self.inbox = Inbox(self.world.store)
        finally:
            self._calm()

    # Looks

    @rule(crash_in=st.none() | st.integers(1, 16), hangs=st.booleans())
    def looks(self, crash_in: int | None, hangs: bool) -> None:
        """A process looks, and may die at any step; a write of its may hang and land after its death."""
        self.crash_in = crash_in
        self._look(hangs=hangs and crash_in is None)

    @rule(
        after=st.integers(1, 16),
        what=st.sampled_from(
            ["look", "dying look", "hanging look", "status", "template", "replicas", "drain"]
        ),
    )
    def looks_while(self, after: int, what: str) -> None:
        """A process is paused at any step of its look while something else happens, and goes on."""
        happenings: dict[str, Callable[[], None]] = {
            "look": self._look,
            "dying look": lambda: self._look(dies_before="commit"),
            "hanging look": lambda: self._look(hangs=True),
            "status": self.world.server.status_write,
            "template": self.world.server.template_write,
            "replicas": lambda: self.world.server.replicas_write(REF, 4),
            "drain": self._drain_quietly,
        }
        self.meanwhile = (after, happenings[what])
        self._look()

    @rule(
        call=st.sampled_from(["workload", "pods", "ownership"]),
        error=st.sampled_from(READING),
    )
    def looks_through_read_errors(self, call: str, error: str) -> None:
        """A read fails in any way; nothing was changed by it."""
        self._look(fails=(call, error, False))

    @rule(error=st.sampled_from(sorted(ERRORS)), lost=st.booleans())
    def looks_through_write_errors(self, error: str, lost: bool) -> None:
        """The write fails in any way, before it took effect or after (then any last answer may follow)."""
        self._look(fails=("scale", error, lost))

    @rule(data=st.data())
    @precondition(lambda self: self.hanging)
    def hung_write_lands(self, data: st.DataObject) -> None:
        """A request of a process that is long dead reaches the server."""
        index = data.draw(st.integers(0, len(self.hanging) - 1))
        sent = self.hanging.pop(index)
        with contextlib.suppress(Conflict):
            self.lands(sent)

    # Others

    @rule(what=st.sampled_from(["status", "template"]))
    def controllers_write(self, what: str) -> None:
        if what == "status":
            self.world.server.status_write()
        else:
            self.world.server.template_write()

    @rule(replicas=st.integers(0, 9), manager=st.sampled_from(["kubectl", "argocd-controller"]))
    def a_rival_scales(self, replicas: int, manager: str) -> None:
        self.world.server.replicas_write(REF, replicas, manager)

    @rule(replicas=st.integers(1, 4))
    def somebody_makes_it_anew(self, replicas: int) -> None:
        """Deleted and created again: another uid, and what was meant for the old one is closed as gone."""
        self.world.server.delete()
        self.world.server.add(REF, replicas)

    @rule(kind=st.sampled_from(PAUSES), seconds=st.integers(1, 4000))
    def somebody_pauses(self, kind: OverrideKind, seconds: int) -> None:
        self.world.override(kind, ends_at=self.now + timedelta(seconds=seconds))

    @rule(replicas=st.integers(0, 8), seconds=st.integers(1, 4000))
    def somebody_pins(self, replicas: int, seconds: int) -> None:
        self.world.override(
            OverrideKind.PIN, replicas=replicas, target=REF.key, ends_at=self.now + timedelta(seconds=seconds)
        )

    @rule(name=st.sampled_from(["Busy", "Idle"]), seconds=st.integers(1, 4000))
    def somebody_silences(self, name: str, seconds: int) -> None:
        ends_at = self.now + timedelta(seconds=seconds)
        self.world.store.put_silence(
            Silence(f"s{name}", (f'alertname="{name}"',), self.now, ends_at, "ana", "test", self.now)
        )

    @rule()
    def the_watch_catches_up(self) -> None:
        """It shows the target as it is now, and goes on showing that until it catches up again."""
        self.shown = {REF.key: self.world.server.read(REF)}

    @rule(seconds=st.sampled_from([0.1, 1, 7, 60, 301, 700, 4000, -1, -60, -900]))
    def time_passes(self, seconds: float) -> None:
        """Forwards, or somebody sets the clock back."""
        self.world.clock.tick(seconds)

    # What must always hold

    @property
    def now(self) -> datetime:
        return self.world.clock.now

    def leaves(self, workload: Workload, replicas: int) -> Sent:
        """A write leaves a process: its intent is stored, and nobody has forbidden it."""
        intent = self.intents.get((workload.resource_version, replicas))
        assert intent is not None, "a write without an intent"
        up = replicas > workload.replicas
        direction = Direction.UP if up else Direction.DOWN
        by_hand = intent.episode is None
        kinds = {override.kind for override in self.world.store.overrides() if override.in_force(self.now)}
        if by_hand:
            assert intent.reason in (Reason.PINNED, Reason.PIN_ENDED)
        else:
            assert not kinds & STOPPED[direction], "written while paused or frozen"
            assert not self._silenced("Busy" if up else "Idle"), "written while silenced"
            assert intent.trigger == ("scale_up" if up else "scale_down"), "a direction is reversed"
        if up:
            assert replicas <= MAX, "an up past maxReplicas"
        else:
            assert replicas >= MIN or intent is None or intent.reason is Reason.PINNED, (
                "a down past minReplicas"
            )
        return Sent(workload, replicas, intent.episode)

    def lands(self, sent: Sent) -> None:
        before = len(self.world.server.ours())
        self.world.server.put_scale(REF, sent.workload, sent.replicas)
        if len(self.world.server.ours()) > before and sent.episode is not None:
            self.effects[sent.workload.uid, sent.episode] += 1

    @invariant()
    def no_episode_has_more_effects_than_steps(self) -> None:
        assert all(count <= STEPS for count in self.effects.values()), self.effects

    @invariant()
    def history_accounts_for_effects(self) -> None:
        """Each line has its effect; an effect without a line has its intent still open, or its target is gone."""
        lines = Counter(entry.outcome for entry in self.world.store.entries)
        applied, uncertain = lines[Outcome.APPLIED], lines[Outcome.UNCERTAIN] + lines[Outcome.GONE]
        effects = len(self.world.server.ours())
        assert applied <= effects
        found = self.world.store._records.get(REF.key)
        open_ = found is not None and (found[0].intent or found[0].outstanding)
        assert effects <= applied + uncertain + bool(open_)

    def teardown(self) -> None:
        """Peace: everything arrives, errors end. Then no intent is open, and every alert has had its due."""
        self._calm()
        self.world.clock.tick(24 * 3600)
        for sent in self.hanging:
            with contextlib.suppress(Conflict):
                self.lands(sent)
        for told in self.underway:
            self._deliver(*told)
        quiet = 0
        for _ in range(60):
            for name, (firing, _) in self.truth.items():
                if firing:
                    self._deliver(self._told(name))
            self._drain_quietly()
            look = self.world.look()
            # A firing that seems older than its resolve counts once it is no longer taken for a straggler.
            again = look.look_again_at or self.now + timedelta(minutes=11)
            quiet = 0 if look.acted or again < self.now + timedelta(minutes=10) else quiet + 1
            if quiet == 4:
                break
            self.world.clock.now = max(self.now, again)
        self.no_episode_has_more_effects_than_steps()
        self.history_accounts_for_effects()
        self._nothing_acknowledged_is_lost()

    def _nothing_acknowledged_is_lost(self) -> None:
        found = self.world.store._records.get(REF.key)
        if found is None:
            assert not any(firing for firing, _ in self.truth.values())
            return
        record = found[0]
        assert record.intent is None
        firing = {name.partition("-")[0] for name, (fires, _) in self.truth.items() if fires}
        replicas = self.world.replicas()
        if "up" in firing and 0 < replicas < MAX:
            episode = next(e for e in record.episodes.values() if e.trigger == "scale_up")
            assert record.ledger.steps.get(episode.id, 0) >= STEPS, "an acknowledged trigger is lost"

    # Below: how

    def _told(self, name: str) -> Notification:
        firing, started = self.truth[name]
        return notification(
            ALERTS[name], firing=firing, starts_at=started, received_at=self.now, fingerprint=name
        )

    def _deliver(self, *told: Notification) -> None:
        self.world.store.append(delivery([replace(one, received_at=self.now) for one in told]))

    def _drain_quietly(self) -> None:
        self.inbox.drain(SETTINGS, self.now)

    def _silenced(self, name: str) -> bool:
        return any(s.id == f"s{name}" and s.in_force(self.now) for s in self.world.store.silences())

    def _step(self, step: str) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                self.crash_in = None
                raise Crash
        if self.meanwhile is not None:
            left, happening = self.meanwhile
            self.meanwhile = (left - 1, happening) if left > 1 else None
            if left <= 1:
                happening()

    def _look(
        self,
        hangs: bool = False,
        fails: tuple[str, str, bool] | None = None,
        dies_before: str = "",
    ) -> None:
        """One look by a fresh process, which may die in it."""
        self.world.trace = self._step

        def trace(step: str) -> None:
            if step == dies_before:
                raise Crash
            self._step(step)

        cluster = Watched(self, trace)
        cluster.watched = self.shown
        cluster.hangs = hangs
        if fails is not None:
            call, error, lost = fails
            (cluster.lost if lost else cluster.failing)[call].append(ERRORS[error]())
        try:
            with contextlib.suppress(Crash):
                self.world.process(cluster).reconcile(REF.key, self.now, anew=fails is not None)
        finally:
            if self.meanwhile is None:
                self._calm()

    def _calm(self) -> None:
        self.crash_in = self.meanwhile = None
        self.world.store.trace = self.world.trace = lambda step: None


OneEffect.TestCase.settings = hypothesis_settings(
    max_examples=max(2_000, hypothesis_settings().max_examples), stateful_step_count=20
)
TestOneEffect = OneEffect.TestCase
