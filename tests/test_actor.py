"""The elected actor: it drains the inbox, looks at what is due and at nothing else, and steps down at once."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from responder.acting import inbox
from responder.acting.lease import Lease
from responder.actor import Actor
from responder.errors import ConfigError, PermanentError, StoreUnavailable, TransientError
from responder.matchers import parse
from responder.model import (
    AlertmanagerReading,
    Direction,
    Outcome,
    OverrideKind,
    Reason,
    Record,
    StandingAlert,
    TargetRef,
    Verdict,
)
from responder.policy import ActionBudget, Heartbeat, Hold
from tests.fakes import REF, T0, FakeCluster, delivery, notification
from tests.responding import DOWN, UP, World, policy, settings, trigger

DEADLINE = 20.0
SHORT = timedelta(seconds=0.3)
"""A lease that is renewed every tenth of a second."""
RESTING = Verdict(T0, 2, 2, Reason.NOTHING_FIRING, "nothing fires")


class Source:
    """The policy file in force, as the service's own source gives it."""

    def __init__(self, world):
        self.world = world
        self.generation = 0

    def __call__(self):
        return self.world.settings


class ActorRun:
    """One actor process in a thread of its own, on a world's store and server."""

    def __init__(
        self,
        world,
        name="actor-1",
        *,
        cluster=None,
        alertmanagers=(),
        threads=4,
        lookup=None,
        monotonic=None,
        ttl=timedelta(days=1),
    ):
        self.world = world
        self.source = Source(world)
        self.beats = 0
        self.stopping = threading.Event()
        self.actor = Actor(
            world.store,
            cluster or world.cluster,
            world.values,
            alertmanagers,
            self.source,
            holder=name,
            observer=world.notebook,
            lookup=lookup,
            clock=world.clock,
            monotonic=monotonic or (lambda: world.clock.now.timestamp()),  # noqa: PLW0108 - `now` changes
            lease_ttl=ttl,
            threads=threads,
        )
        self.thread = threading.Thread(target=self.actor.run, args=(self.stopping, self.beat), daemon=True)

    def beat(self):
        self.beats += 1

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopping.set()
        self.world.store.ring()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive(), "the actor does not stop"


@contextmanager
def running(world, **options):
    run = ActorRun(world, **options).start()
    try:
        yield run
    finally:
        run.stop()


def until(condition, world=None, what=""):
    """Wait for a condition, with a deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"never came true: {what or condition}"
        time.sleep(0.002)


def deliver(world, *notifications, **fields):
    world.store.append(delivery(notifications, **fields))


def alert(labels=None, **fields):
    return notification(labels or UP, **fields)


def quiet(world):
    return not world.store.inbox(1)


def many(world, count):
    refs = [replace(REF, name=f"w{number}") for number in range(count)]
    for ref in refs:
        world.server.add(ref)
    return refs


def for_(ref, labels=UP):
    return {**labels, "workload": ref.name}


def test_a_delivery_becomes_a_scale():
    """From the inbox to one effect; the delivery is drained with it."""
    world = World()
    with running(world):
        deliver(world, alert())
        until(lambda: world.outcomes() == [("i", Outcome.APPLIED)] or world.replicas() == 3)
        until(lambda: quiet(world))
    assert len(world.server.ours()) == 1


def test_repeats_ask_the_api_server_nothing():
    """A storm of repeats changes lastSeenAt and wakes nobody."""
    world = World()
    with running(world):
        deliver(world, alert())
        until(lambda: world.replicas() == 3)
        until(lambda: world.record().intent is None)
        asked = []
        world.trace = asked.append
        world.clock.tick(1)
        for _ in range(50):
            deliver(world, alert(received_at=world.clock.now))
        until(lambda: quiet(world))
        until(lambda: next(iter(world.record().alerts.values())).last_seen_at == world.clock.now)
    assert "workload" not in asked


def test_a_poison_alert_does_not_block_the_inbox(monkeypatch, caplog):
    """What trips the code is left out and logged; its healthy siblings and what comes after go on."""
    real = inbox.target_of

    def trips(policy, labels, annotations):
        if labels.get("poison"):
            raise RuntimeError("trips")
        return real(policy, labels, annotations)

    monkeypatch.setattr(inbox, "target_of", trips)
    world = World()
    with running(world):
        deliver(world, alert({**UP, "poison": "yes"}), alert())
        until(lambda: world.replicas() == 3)
        until(lambda: quiet(world))
    assert "is left out" in caplog.text


def test_alerts_of_another_cluster_are_ignored():
    """The `cluster` label says whose they are."""
    world = World(settings=settings(cluster="eu"))
    with running(world):
        deliver(world, alert({**UP, "cluster": "us"}))
        until(lambda: quiet(world))
    assert world.store.record(REF.key) is None


def test_a_limited_sender_reaches_only_its_namespaces():
    """The delivering token's namespaces bind the targets that its alerts may reach."""
    world = World()
    with running(world):
        deliver(world, alert(), namespaces=("training",))
        until(lambda: quiet(world))
        assert world.store.record(REF.key) is None
        deliver(world, alert(), namespaces=("infer*",))
        until(lambda: world.replicas() == 3)


def test_a_hung_call_holds_up_no_other_target():
    """One thread waits; every other target is served (promise 26)."""
    world = World()
    refs = many(world, 50)
    hung, seen = threading.Event(), threading.Event()

    class Hangs(FakeCluster):
        def workload(self, ref):
            if ref == REF:
                seen.set()
                hung.wait(DEADLINE)
            return super().workload(ref)

    with running(world, cluster=Hangs(world.server), threads=2):
        deliver(world, alert())
        assert seen.wait(DEADLINE)
        deliver(world, *(alert(for_(ref)) for ref in refs))
        until(lambda: all(world.replicas(ref) == 3 for ref in refs))
        assert world.replicas() == 2
        hung.set()
        until(lambda: world.replicas() == 3)


def test_any_number_of_hung_calls_holds_up_no_other_target(monkeypatch):
    """More targets hang than there are threads: those who wait long make room, and the room is taken back."""
    monkeypatch.setattr("responder.acting.pool.SLOW_SECONDS", 0.05)
    world = World()
    refs = many(world, 20)
    bad, good = refs[:10], refs[10:]
    hung = threading.Event()

    class Hangs(FakeCluster):
        def workload(self, ref):
            if ref in bad:
                hung.wait(DEADLINE)
            return super().workload(ref)

    def looking():
        return sum(thread.name.startswith("looks-") for thread in threading.enumerate())

    others = looking()
    with running(world, cluster=Hangs(world.server), threads=2):
        deliver(world, *(alert(for_(ref)) for ref in bad))
        deliver(world, *(alert(for_(ref)) for ref in good))
        until(lambda: all(world.replicas(ref) == 3 for ref in good))
        assert not any(world.replicas(ref) == 3 for ref in bad)
        hung.set()
        until(lambda: all(world.replicas(ref) == 3 for ref in bad))
        for ref in good * 5:
            deliver(world, alert(for_(ref, DOWN), fingerprint=f"{ref.name}{time.monotonic_ns()}"))
        until(lambda: looking() <= others + 2, what="the threads beyond two end")


def test_one_target_is_never_looked_at_twice_at_once():
    """News during a look waits for its end."""
    world = World()
    inside, most, lock = [0], [0], threading.Lock()

    class Counts(FakeCluster):
        def workload(self, ref):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            with lock:
                inside[0] -= 1
            return super().workload(ref)

    with running(world, cluster=Counts(world.server), threads=8):
        for number in range(20):
            deliver(world, alert({**UP, "pod": str(number)}))
        until(lambda: quiet(world))
        until(lambda: world.replicas() == 3)
    assert most == [1]


def test_a_fault_in_one_look_does_not_stop_the_others(caplog):
    """A bug that one target trips is logged, and the thread goes on."""
    world = World()
    (other,) = many(world, 1)

    class Faulty(FakeCluster):
        def workload(self, ref):
            if ref == REF:
                raise RuntimeError("a bug")
            return super().workload(ref)

    with running(world, cluster=Faulty(world.server), threads=1):
        deliver(world, alert())
        deliver(world, alert(for_(other)))
        until(lambda: world.replicas(other) == 3)
    assert "cannot look at inference/deployment/vllm" in caplog.text


def test_looks_again_when_the_decision_said_and_not_before():
    """The second step comes when the cooldown is over."""
    up = trigger("scale_up", Direction.UP, max_steps=None)
    cooling = replace(policy().scale_up, cooldown=timedelta(seconds=30))
    world = World(settings=settings(policy(triggers=(up,), scale_up=cooling)))
    with running(world):
        deliver(world, alert())
        until(lambda: world.replicas() == 3)
        until(lambda: world.record().intent is None)
        world.clock.tick(29)
        deliver(world, alert({**UP, "pod": "b"}, received_at=world.clock.now))
        until(lambda: world.record().verdict.reason is Reason.COOLDOWN)
        assert world.replicas() == 3
        world.clock.tick(1)
        until(lambda: world.replicas() == 4)


@pytest.mark.parametrize(
    ("labels", "seconds"),
    [
        pytest.param(UP, 61, id="within a minute where something fires"),
        pytest.param(None, 301, id="within five minutes where nothing does"),
    ],
)
def test_what_a_person_does_to_a_workload_is_noticed_though_nothing_is_due(labels, seconds):
    """Annotations and scales by hand tell nobody, so a target is never left unread for longer than that."""
    reads = []
    world = World(trace=reads.append)
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.replicas() == 3 and world.record().intent is None)
        if labels is None:
            deliver(world, alert(firing=False, received_at=world.clock.now))
            until(lambda: world.record().verdict.reason is Reason.NOTHING_FIRING)
        world.clock.tick(90)  # past the look that follows each write
        until(lambda: reads.count("workload") > 1 and run.actor._schedule.idle(0))
        world.server.replicas_write(REF, 5)
        world.clock.tick(seconds)
        until(lambda: world.record().foreign_at is not None)
        assert world.record().replicas == 5


def test_what_a_watch_tells_is_looked_at_at_once():
    """A scale by hand is noticed without any time passing; what no alert was ever about is nobody's business."""
    world = World()
    other = TargetRef("ns", "Deployment", "other")
    world.server.add(other)
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.replicas() == 3 and world.record().intent is None)
        until(lambda: run.actor._schedule.idle(0))
        world.server.replicas_write(REF, 5)
        run.actor.changed(other)
        run.actor.changed(REF)
        until(lambda: world.record().foreign_at is not None)
        assert world.record().replicas == 5
        assert world.store.record(other.key) is None


def test_a_target_that_comes_back_is_tried_at_once():
    """Its failure would have waited five minutes."""
    world = World()
    world.server.delete()
    with running(world) as run:
        deliver(world, alert())
        until(lambda: (found := world.store.record(REF.key)) and found[0].failure)
        world.server.add(REF)
        run.actor.changed(REF)
        until(lambda: world.replicas() == 3)


def test_the_next_step_comes_a_second_after_the_pods_are_ready():
    """Not when the trigger is evaluated again; of what waits for nothing or elsewhere, no look is taken."""
    up = trigger("scale_up", Direction.UP, max_steps=None)
    world = World(settings=settings(policy(triggers=(up,))))
    with running(world) as run:
        thing = world.server.things[REF.key]
        thing.ready = 2
        deliver(world, alert())
        until(lambda: world.replicas() == 3 and world.record().intent is None)
        deliver(world, alert({**UP, "pod": "b"}, received_at=world.clock.now))
        until(lambda: world.record().verdict.reason is Reason.WAITING_FOR_READY)
        until(lambda: run.actor._schedule.idle(0))
        thing.ready = 3
        run.actor.pods_changed(replace(REF, name="other"))
        world.clock.tick(2)
        assert world.replicas() == 3
        run.actor.pods_changed(REF)
        world.clock.tick(1)
        until(lambda: world.replicas() == 4)


def test_who_does_not_lead_is_told_in_vain():
    """A process without the lease looks at nothing, whatever its watch says."""
    world, reads = World(), []
    world.trace = reads.append
    run = ActorRun(world)
    run.actor.changed(REF)
    run.actor.pods_changed(REF)
    assert len(run.actor._schedule) == 0
    assert reads == []


def test_settles_open_intents_first_at_start():
    """What the last actor left open is settled before anything else is looked at."""
    world = World()
    refs = many(world, 20)
    for ref in refs:
        world.tell(alert(for_(ref)), ref=ref)
    world.fire()
    world.cluster.lost["scale"].append(TransientError("lost"))
    world.look()
    order = []

    class Notes(FakeCluster):
        def workload(self, ref):
            order.append(ref)
            return super().workload(ref)

    world.clock.tick(5)
    with running(world, cluster=Notes(world.server), threads=1):
        until(lambda: all(world.replicas(ref) == 3 for ref in refs))
    assert order[0] == REF
    assert len(world.server.ours()) == 1
    assert (world.outcomes()[0][1]) is Outcome.APPLIED


def test_only_one_of_two_acts_and_the_other_takes_over():
    """The lease elects one; when it is given back, the other acts."""
    world = World()
    (other,) = many(world, 1)
    first = ActorRun(world, "one", ttl=SHORT).start()
    until(lambda: world.store._leases)
    second = ActorRun(world, "two", ttl=SHORT).start()
    try:
        deliver(world, alert())
        until(lambda: world.replicas() == 3)
        assert world.store._leases["actor"][0] == "one"
        first.stop()
        until(lambda: world.store._leases.get("actor", ("",))[0] == "two")
        deliver(world, alert(for_(other)))
        until(lambda: world.replicas(other) == 3)
    finally:
        second.stop()
    assert len(world.server.ours()) == 1


def test_who_loses_the_lease_stops_acting():
    """Between decision and write the lease runs out: nothing is written."""
    world = World()
    reached, go = threading.Event(), threading.Event()

    class Slow(FakeCluster):
        def ownership(self, ref, workload):
            reached.set()
            go.wait(DEADLINE)
            return super().ownership(ref, workload)

    run = ActorRun(world, cluster=Slow(world.server), ttl=SHORT).start()
    try:
        deliver(world, alert())
        assert reached.wait(DEADLINE)
        world.store.down = "unreachable"  # no renewal
        world.clock.tick(60)
        until(lambda: not run.actor._lease.held())
        go.set()
        until(lambda: run.actor._schedule.running() == 0)
        assert world.replicas() == 2
        world.store.down = ""
    finally:
        go.set()
        run.stop()


def test_a_stop_waits_for_looks_that_run():
    """A graceful stop finishes what was begun, and gives the lease back."""
    world = World()
    reached, go = threading.Event(), threading.Event()

    class Slow(FakeCluster):
        def scale(self, ref, workload, replicas, *, dry_run=False):
            reached.set()
            go.wait(DEADLINE)
            return super().scale(ref, workload, replicas, dry_run=dry_run)

    run = ActorRun(world, cluster=Slow(world.server)).start()
    deliver(world, alert())
    assert reached.wait(DEADLINE)
    run.stopping.set()
    world.store.ring()
    go.set()
    run.stop()
    assert world.outcomes()[-1][1] is Outcome.APPLIED
    assert world.store._leases == {}


def test_a_reload_matches_known_alerts_anew():
    """A trigger that the new file adds acts on an alert that fires already."""
    world = World(settings=settings(policy(triggers=())))
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.store.record(REF.key) and world.record().verdict)
        assert world.replicas() == 2
        world.settings = settings()
        run.source.generation += 1
        until(lambda: world.replicas() == 3)


def test_a_reload_that_the_store_cuts_short_is_done_whole():
    """A store that is down for a moment leaves no target under the old file."""
    world, cut = World(settings=settings(policy(triggers=()))), []
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.store.record(REF.key) and world.record().verdict)

        def down(step):
            if step == "records" and not cut:
                cut.append(step)
                raise StoreUnavailable("the disk is full")

        world.store.trace = down
        world.settings = settings()
        run.source.generation += 1
        until(lambda: world.replicas() == 3)
    assert cut


def test_a_reload_tries_again_what_was_refused():
    """Permanent errors are tried again on reload."""
    world = World()
    world.cluster.failing["scale"].append(PermanentError("no right", Reason.FORBIDDEN))
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.store.record(REF.key) and world.record().failure)
        run.source.generation += 1
        until(lambda: world.replicas() == 3)


def test_a_reload_is_not_forgotten_while_the_store_is_down():
    """What was to be tried again at once is tried as soon as it can be, and not an hour later."""
    world = World()
    world.cluster.failing["scale"].append(PermanentError("no right", Reason.FORBIDDEN))
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.store.record(REF.key) and world.record().failure)
        refused = threading.Event()

        def down(step):
            if step == "record" and threading.current_thread().name.startswith("looks"):
                refused.set()
                raise StoreUnavailable("the disk is full")

        world.store.trace = down
        run.source.generation += 1
        until(refused.is_set)
        world.store.trace = lambda step: None
        world.clock.tick(6)
        until(lambda: world.replicas() == 3)


def test_a_new_override_is_acted_on_and_so_is_its_end():
    """A pin acts when it is made; when it ends, what was held goes on."""
    world = World()
    with running(world):
        deliver(world, alert(DOWN))
        until(lambda: world.replicas() == 1)
        until(lambda: world.record().intent is None)
        world.override(OverrideKind.PIN, replicas=0, force=True, target=REF.key)
        until(lambda: world.replicas() == 0)
        until(lambda: world.record().intent is None)
        world.clock.tick(3601)
        until(lambda: world.replicas() == 1)


def test_a_pause_that_ends_early_wakes_its_targets():
    """Nobody has to wait for the end that was planned."""
    world = World()
    pause = world.override(OverrideKind.PAUSE)
    with running(world):
        deliver(world, alert())
        until(lambda: world.store.record(REF.key) and world.record().verdict)
        assert world.record().verdict.reason is Reason.PAUSED
        world.clock.tick(1)
        world.store.put_override(replace(pause, expired_at=world.clock.now))
        until(lambda: world.replicas() == 3)


def test_the_budget_serves_the_longest_waiting_first():
    """Three want to go down, one may a minute: in the order in which they asked."""
    limits = {Direction.DOWN: ActionBudget(1, timedelta(seconds=60))}
    world = World(settings=settings(budgets=limits))
    refs = many(world, 3)
    with running(world, threads=1):
        for ref in refs:
            deliver(world, alert(for_(ref, DOWN), received_at=world.clock.now))
            until(lambda ref=ref: world.store.record(ref.key) and world.record(ref).verdict)
            world.clock.tick(1)
        assert [world.replicas(ref) for ref in refs] == [1, 2, 2]
        world.clock.tick(58)
        until(lambda: world.replicas(refs[1]) == 1)
        assert world.replicas(refs[2]) == 2
        world.clock.tick(60)
        until(lambda: world.replicas(refs[2]) == 1)
    assert [entry.target for entry in world.store.entries if entry.outcome] == [ref.key for ref in refs]


def test_a_hold_that_ends_wakes_who_was_held():
    """A hold's alert is no alert of the target; its end is news for it all the same."""
    hold = Hold("hot", (parse('alertname="Hot"'),), Direction.DOWN, ("namespace", "workload"))
    world = World(settings=settings(holds=(hold,)))
    hot = {"alertname": "Hot", "namespace": REF.namespace, "workload": REF.name}
    with running(world):
        deliver(world, alert(hot), alert(DOWN))
        until(lambda: world.store.record(REF.key) and world.record().verdict)
        until(lambda: world.record().verdict.reason is Reason.HELD)
        world.clock.tick(1)
        deliver(world, alert(hot, firing=False, received_at=world.clock.now))
        until(lambda: world.replicas() == 1)


def test_safe_mode_ends_when_the_heartbeat_arrives():
    """Scale-down waits for a heartbeat that has not come since the start, and goes on when it has."""
    heartbeat = Heartbeat((parse('alertname="Watchdog"'),), timedelta(seconds=600))
    world = World(settings=settings(policy(matchers=(parse('action!=""'),)), heartbeat=heartbeat))
    with running(world):
        deliver(world, alert(DOWN))
        until(lambda: world.store.record(REF.key) and world.record().verdict)
        assert world.record().verdict.reason is Reason.SAFE_MODE
        world.clock.tick(1)
        deliver(world, alert({"alertname": "Watchdog"}, received_at=world.clock.now))
        until(lambda: world.replicas() == 1)


def test_a_store_that_is_another_clusters_for_a_while_ends_no_renewal():
    """Whatever the store says against it, the lease is tried again: a person may be mending just that."""

    class Refusing:
        asked = 0

        def lease(self, name, holder, ttl, now):
            self.asked += 1
            if self.asked < 3:
                raise ConfigError("--store: it belongs to cluster 'a'")
            return True

        def release(self, name, holder): ...

    lease = Lease(Refusing(), "actor-1", lambda: T0, SHORT)
    lease.start()
    until(lease.held)
    lease.stop()


def test_a_store_that_is_down_says_so_once(caplog):
    """It may be down for hours, and every turn finds it so."""
    world = World()
    with running(world) as run:
        until(lambda: run.beats > 1)
        world.store.down = "the disk is full"
        for _ in range(5):
            world.store.ring()
            until(lambda before=run.beats: run.beats > before)
        world.store.down = ""
        deliver(world, alert())
        until(lambda: world.replicas() == 3)
    told = [each for each in caplog.messages if each.startswith("the store cannot be used")]
    assert told == ["the store cannot be used: the disk is full"]


def test_a_clock_that_is_set_back_does_not_put_looks_off():
    """Everything due is computed anew, since it was dated by the old clock."""
    up = trigger("scale_up", Direction.UP, max_steps=None)
    cooling = replace(policy().scale_up, cooldown=timedelta(seconds=30))
    world = World(settings=settings(policy(triggers=(up,), scale_up=cooling)))
    with running(world, monotonic=lambda: 1.0):
        deliver(world, alert())
        until(lambda: world.replicas() == 3)
        until(lambda: world.record().intent is None)
        world.clock.tick(-7 * 24 * 3600)
        until(lambda: world.record().verdict.reason is Reason.COOLDOWN)
        world.clock.tick(31)
        until(lambda: world.replicas() == 4)


class OneAlertmanager:
    def __init__(self, world, *alerts):
        self.world, self.alerts_ = world, alerts
        self.asked = 0

    def alerts(self):
        self.asked += 1
        now = self.world.clock.now
        return AlertmanagerReading("am", now, now - timedelta(hours=1), self.alerts_)

    def asked_again(self, **fields):
        """Let a minute pass, and have it asked at once."""
        before = self.asked
        self.world.clock.tick(61)
        deliver(self.world, truncated=1, **fields)
        until(lambda: self.asked > before)


def standing_alert(labels, state="active", receivers=("gpu",), fingerprint="lost"):
    return StandingAlert(fingerprint, labels, {}, T0, T0 + timedelta(minutes=5), state, receivers)


def test_a_lost_delivery_is_healed_from_the_alertmanager():
    """An alert that no delivery brought is asked for, and acted on."""
    world = World()
    with running(world, alertmanagers=[OneAlertmanager(world, standing_alert(UP))]):
        until(lambda: world.replicas() == 3)


def test_truncated_groups_are_asked_for_at_once():
    """A delivery that says it lacks alerts is no reason to wait a minute."""
    world = World()
    alertmanager = OneAlertmanager(world)
    with running(world, alertmanagers=[alertmanager]):
        until(lambda: alertmanager.asked == 1)
        alertmanager.alerts_ = (standing_alert(UP),)
        deliver(world, truncated=3, receiver="gpu")
        until(lambda: world.replicas() == 3)


def test_a_hold_whose_resolve_was_lost_is_healed_too():
    """Else it would forbid scaling down for hours, though Alertmanager knows better."""
    hold = Hold("hot", (parse('alertname="Hot"'),), Direction.DOWN, ("namespace", "workload"))
    world = World(settings=settings(holds=(hold,)))
    down, hot = alert(DOWN), alert({"alertname": "Hot", "namespace": REF.namespace, "workload": REF.name})
    alertmanager = OneAlertmanager(world, standing_alert(DOWN, fingerprint=down.fingerprint))
    with running(world, alertmanagers=[alertmanager]):
        deliver(world, hot, down, receiver="gpu")
        until(lambda: world.store.record(REF.key) and world.record().verdict)
        until(lambda: world.record().verdict.reason is Reason.HELD)
        alertmanager.asked_again()
        until(lambda: world.store.standing()[0].denied_at)
        alertmanager.asked_again()
        until(lambda: world.replicas() == 1)


def test_an_alert_of_a_receiver_not_heard_of_yet_is_not_over():
    """A new actor knows few of the names that deliver here; what others delivered before it goes on."""
    world = World()
    up = alert()
    world.fire()
    alertmanager = OneAlertmanager(
        world, standing_alert(UP, receivers=("team-a",), fingerprint=up.fingerprint)
    )
    with running(world, alertmanagers=[alertmanager]):
        until(lambda: world.replicas() == 3)
        deliver(world, receiver="team-b")
        until(lambda: quiet(world))
        for _ in range(3):
            alertmanager.asked_again()
    assert world.record().alerts[up.fingerprint].firing


def test_what_the_alertmanager_has_suppressed_is_not_taken_in():
    """A silenced alert triggers nothing, and the heartbeat must come by itself."""
    heartbeat = Heartbeat((parse('alertname="Watchdog"'),), timedelta(seconds=600))
    world = World(settings=settings(heartbeat=heartbeat))
    alertmanager = OneAlertmanager(
        world, standing_alert(UP, "suppressed"), standing_alert({"alertname": "Watchdog"})
    )
    with running(world, alertmanagers=[alertmanager]):
        until(lambda: alertmanager.asked)
        until(lambda: quiet(world))
    assert world.store.record(REF.key) is None
    assert world.store.standing() == ()


def test_ten_thousand_quiet_targets_cost_a_start_nothing():
    """A start looks at what is due, not at everything: seconds, and no API call for those at rest."""
    world = World()
    for number in range(10_000):
        ref = replace(REF, name=f"w{number}")
        world.store._records[ref.key] = (Record(ref, verdict=RESTING), 1)
    asked = []
    world.trace = asked.append
    began = time.monotonic()
    with running(world):
        deliver(world, alert())
        until(lambda: world.replicas() == 3)
    assert time.monotonic() - began < 10
    assert asked.count("workload") <= 3


def test_a_backlog_gives_one_look_per_target():
    """10,000 alerts for 100 targets: each is looked at with its newest state, not once per alert."""
    world = World()
    refs = many(world, 100)
    for number in range(20):
        deliver(
            world,
            *(alert({**for_(ref), "pod": f"{number}-{each}"}) for ref in refs for each in range(5)),
        )
    asked = []
    world.trace = asked.append
    with running(world, threads=2):
        until(lambda: all(world.replicas(ref) == 3 for ref in refs))
        until(lambda: quiet(world))
    assert asked.count("workload") <= 3 * len(refs)
    assert all(len(world.record(ref).alerts) == 100 for ref in refs)


def test_alerts_that_name_only_a_pod_are_looked_up_without_blocking_the_others():
    """A slow lookup keeps its own alerts in the inbox, in order, and no others."""
    world = World()
    (other,) = many(world, 1)
    known = {}

    class Lookup:
        def find(self, labels):
            return known.get(labels["pod"])

    only_pod = {"alertname": "Busy", "action": "scale_up", "namespace": "inference", "pod": "p1"}
    with running(world, lookup=Lookup()):
        deliver(world, alert(only_pod), alert(for_(other)))
        deliver(world, alert(only_pod, firing=False, received_at=T0 + timedelta(seconds=1)))
        until(lambda: world.replicas(other) == 3)
        assert len(world.store.inbox(10)) == 2
        assert world.replicas() == 2
        known["p1"] = REF
        world.store.ring()
        until(lambda: quiet(world))
    (span,) = world.record().alerts.values()
    assert not span.firing
