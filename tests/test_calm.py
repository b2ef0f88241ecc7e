"""News of a target is looked at at once; news without end is looked at now and then, and takes nobody's turn."""

from dataclasses import replace
from datetime import timedelta

from responder.acting.calm import Calm
from responder.model import Direction, Reason
from tests.fakes import REF, T0
from tests.responding import UP, World, policy, settings, trigger
from tests.test_actor import ActorRun, alert, deliver, running, until

SECOND = timedelta(seconds=1)


def looked(run: ActorRun, world: World) -> bool:
    """Whether nothing is due now, nor being looked at."""
    schedule = run.actor._schedule
    return schedule._due.get(REF.key, T0 + timedelta(days=1)) > world.clock.now and schedule.idle(0)


def test_a_few_at_once_and_then_one_in_a_while() -> None:
    """What comes while a look is due is for that look, and a quiet time earns looks back."""
    calm = Calm(3, timedelta(seconds=10))
    assert [calm.when("a", T0) for _ in range(3)] == [T0] * 3
    later = T0 + timedelta(seconds=10)
    assert [calm.when("a", T0 + n * SECOND) for n in range(5)] == [later] * 5
    assert calm.when("b", T0) == T0
    assert calm.when("a", later) == later + timedelta(seconds=10)
    quiet = later + timedelta(seconds=60)
    assert [calm.when("a", quiet) for _ in range(3)] == [quiet] * 3
    assert calm.when("a", quiet) > quiet


def test_what_is_forgotten_counts_anew() -> None:
    """Also everything, when the clock was set: nothing waits for a time that is far off."""
    calm = Calm(1, timedelta(seconds=10))
    calm.when("a", T0)
    calm.when("b", T0)
    assert calm.when("a", T0) > T0
    calm.forget("a")
    assert calm.when("a", T0) == T0
    calm.clear()
    assert calm.when("b", T0 - timedelta(days=1)) == T0 - timedelta(days=1)


def test_who_keeps_changing_a_target_gets_no_look_for_each_change() -> None:
    """Another hand on the replicas all the time: the first few changes are noticed, and the newest at last."""
    reads: list[str] = []
    world = World()
    world.trace = reads.append
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.replicas() == 3 and world.record().intent is None)
        until(lambda: looked(run, world))
        reads.clear()
        for number in range(40):
            until(lambda: looked(run, world))
            world.server.replicas_write(REF, 5 + number % 2)
            run.actor.changed(REF)
            world.clock.tick(0.1)
        until(lambda: looked(run, world))
        assert 0 < reads.count("workload") <= 8
        world.server.replicas_write(REF, 7)
        run.actor.changed(REF)
        world.clock.tick(10)
        until(lambda: world.record().replicas == 7)


def test_pods_that_come_and_go_are_counted_now_and_then() -> None:
    """Each count would be a write to the store; a step that waits for them comes as soon as ever."""
    up = trigger("scale_up", Direction.UP, max_steps=None)
    world = World(settings=settings(policy(triggers=(up,))))
    with running(world) as run:
        thing = world.server.things[REF.key]
        thing.ready = 2
        deliver(world, alert())
        until(lambda: world.replicas() == 3 and world.record().intent is None)
        run.actor._reasons[REF.key] = Reason.NOTHING_FIRING
        for _ in range(1000):
            run.actor.pods_changed(REF)
        now = world.clock.now
        assert run.actor._schedule._due[REF.key] <= now + SECOND
        until(lambda: run.actor._counts.when(REF.key, now) > now + SECOND)
        deliver(world, alert({**UP, "pod": "b"}, received_at=now))
        until(lambda: world.record().verdict.reason is Reason.WAITING_FOR_READY)
        until(lambda: looked(run, world))
        thing.ready = 3
        run.actor.pods_changed(REF)
        world.clock.tick(1)
        until(lambda: world.replicas() == 4)


def test_what_nobody_minds_any_more_is_forgotten() -> None:
    """Targets come and go for years."""
    world = World()
    other = replace(REF, name="never-heard-of")
    with running(world) as run:
        deliver(world, alert())
        until(lambda: world.replicas() == 3 and world.record().intent is None)
        run.actor.changed(REF)
        run.actor.changed(other)
        until(lambda: looked(run, world))
        assert REF.key in run.actor._news._known
        assert other.key not in run.actor._news._known
