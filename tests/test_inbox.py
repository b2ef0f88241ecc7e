"""From deliveries to records: together or not at all, in order, and the same when it is done twice."""

import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from responder.acting import inbox as inboxes
from responder.acting.inbox import Inbox, wants_look
from responder.errors import Conflict, StoreUnavailable
from responder.policy import Rejection
from tests.fakes import REF, T0, Crash, delivery, notification
from tests.responding import DOWN, UP, World

MINUTE = timedelta(minutes=1)


def told(**labels):
    return notification({**UP, **labels})


def drained(world, inbox=None):
    return (inbox or Inbox(world.store)).drain(world.settings, world.clock.now)


def test_records_and_drained_deliveries_are_one_commit():
    """A crash leaves the delivery or its effect on the record, never neither."""
    world, steps = World(), []
    world.store.append(delivery([told()]))
    world.store.trace = steps.append
    assert drained(world).changed == {REF.key}
    assert steps.count("commit") == 1
    assert world.store.inbox(1) == []


@pytest.mark.parametrize("step", ["inbox", "record", "commit", "committed"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_crash_while_folding_loses_nothing(monkeypatch, step, count):
    """Whatever was folded already is folded again, to the same records."""
    monkeypatch.setattr(inboxes, "RECORDS", 1)
    world, calm = World(), World()
    for one in (world, calm):
        one.store.append(delivery([told(workload=name) for name in "abc"]))
        one.store.append(delivery([replace(told(workload="b"), firing=False, ends_at=T0 + MINUTE)]))
    drained(calm)
    seen = []

    def dies(name):
        seen.append(name)
        if name == step and seen.count(name) == count:
            raise Crash

    world.store.trace = dies
    with contextlib.suppress(Crash):
        drained(world)
    world.store.trace = lambda name: None
    drained(world)
    assert world.store.inbox(1) == []
    assert [record for record, _ in world.store.records()] == [record for record, _ in calm.store.records()]


def test_a_change_by_somebody_else_only_costs_another_try():
    """When one record of a commit was changed meanwhile, each is folded for itself, on what is there then."""
    world, left = World(), [3]
    world.store.append(delivery([told(workload=name) for name in "abc"]))

    def busy(name):
        if name == "commit" and left[0]:
            left[0] -= 1
            raise Conflict("somebody was faster")

    world.store.trace = busy
    assert len(drained(world).changed) == 3
    assert world.store.inbox(1) == []


def test_a_store_that_is_down_keeps_the_deliveries():
    """They are folded when it is back."""
    world = World()
    world.store.append(delivery([told()]))
    world.store.down = "disk full"
    with pytest.raises(StoreUnavailable):
        drained(world)
    world.store.down = ""
    drained(world)
    assert world.record().alerts


def test_a_repeat_wants_no_look():
    """Only lastSeenAt moves; an annotation or a heard-of-again alert is news."""
    world = World()
    world.fire()
    before = world.record()
    world.clock.tick(60)
    world.fire(starts_at=T0)
    assert not wants_look(before, world.record(), world.settings, world.clock.now)
    world.fire(starts_at=T0, annotations={"value": "3"})
    assert wants_look(before, world.record(), world.settings, world.clock.now)
    before = world.record()
    world.clock.tick(3600)
    world.fire(starts_at=T0, annotations={"value": "3"})
    assert wants_look(before, world.record(), world.settings, world.clock.now), (
        "it was unknown and is heard of"
    )


def test_a_resolve_that_waits_for_its_lookup_stays_behind_its_firing():
    """Notifications of one alert are folded in the order received, also when its target is found late."""
    world, found = World(), {}

    class Lookup:
        def find(self, labels):
            return found.get(labels["pod"])

    only_pod = {"alertname": "Busy", "action": "scale_up", "namespace": "inference", "pod": "p"}
    inbox = Inbox(world.store, Lookup())
    world.store.append(delivery([notification(only_pod), told()]))
    world.store.append(delivery([notification(only_pod, firing=False, received_at=T0 + MINUTE)]))
    world.clock.tick(120)
    assert drained(world, inbox).changed == {REF.key}
    assert drained(world, inbox).changed == frozenset()
    assert len(world.store.inbox(9)) == 2
    found["p"] = replace(REF, name="found")
    drained(world, inbox)
    assert world.store.inbox(9) == []
    (span,) = world.record(found["p"]).alerts.values()
    assert not span.firing


def test_what_stands_beside_an_alert_that_waits_is_not_lost_with_a_commit():
    """A store that is down for a moment while one alert is looked up: its sibling is folded in all the same."""
    world, found = World(), {}

    class Lookup:
        def find(self, labels):
            return found.get("target")

    inbox = Inbox(world.store, Lookup())
    only_pod = {"alertname": "Busy", "action": "scale_up", "namespace": "inference", "pod": "p"}
    world.store.append(delivery([notification(only_pod), told()]))

    def down(name):
        if name == "commit":
            raise StoreUnavailable("the disk is full")

    world.store.trace = down
    with pytest.raises(StoreUnavailable):
        drained(world, inbox)
    world.store.trace = lambda name: None
    found["target"] = replace(REF, name="found")
    assert drained(world, inbox).changed == {REF.key, found["target"].key}
    assert world.store.inbox(1) == []


def test_an_alert_whose_target_cannot_be_found_does_not_stay():
    """A pod without a scalable owner is no reason to keep its delivery for ever."""
    world = World()

    class Lookup:
        def find(self, labels):
            return Rejection("no owner")

    world.store.append(delivery([notification({"alertname": "Busy", "action": "scale_up", "pod": "p"})]))
    drained(world, Inbox(world.store, Lookup()))
    assert world.store.inbox(1) == []
    assert list(world.store.records()) == []


def test_two_senders_at_once_fold_to_one_state():
    """Two Alertmanagers deliver the same: one alert, one episode."""
    world = World()
    for seconds in (0, 1):
        received_at = T0 + timedelta(seconds=seconds)
        world.store.append(delivery([replace(told(), received_at=received_at)], sender=str(seconds)))
    world.clock.tick(1)
    drained(world)
    assert (len(world.record().alerts), len(world.record().episodes)) == (1, 1)


def test_a_batch_takes_more_when_there_is_more():
    """A long backlog is drained in bites."""
    world = World()
    for number in range(inboxes.DELIVERIES + 1):
        world.store.append(delivery([notification({**DOWN, "pod": str(number)})]))
    assert drained(world).more
    assert not drained(world).more
    assert world.store.inbox(1) == []
