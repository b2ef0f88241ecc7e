"""What a process knew when it died or lost the lease: whoever acts next does what it had still to do."""

from dataclasses import replace

import pytest

from responder.acting.inbox import Inbox
from responder.errors import StoreUnavailable
from responder.model import Commit, OverrideKind, Record, Verdict
from responder.store.sqlite import SqliteStore
from tests.fakes import REF, MemoryStore, delivery
from tests.responding import DOWN, World, settings
from tests.test_actor import ActorRun, alert, deliver, for_, many, policy, quiet, running, until


def rested(world):
    """One look, so that the target's record has a verdict: nothing fires."""
    world.fire()
    world.resolve()
    world.look()
    assert world.record().verdict is not None


def test_news_that_was_kept_and_not_looked_at_is_looked_at_by_the_next():
    """Killed between folding an alert and looking at its target: the next process scales, with no repeat."""
    world = World()
    rested(world)
    world.clock.tick(3600)
    deliver(world, alert(starts_at=world.clock.now, received_at=world.clock.now))
    Inbox(world.store).drain(world.settings, world.clock.now)
    assert quiet(world)
    assert world.replicas() == 2
    with running(world):
        until(lambda: world.replicas() == 3)
        until(lambda: not world.record().unseen)
    assert len(world.server.ours()) == 1


def test_news_kept_by_one_that_has_lost_the_lease_is_found():
    """Paused between its check and its commit, it folds while another acts, and tells nobody."""
    world = World()
    rested(world)
    with running(world) as run:
        until(lambda: quiet(world) and not world.store.unseen())
        world.clock.tick(3600)
        elsewhere = MemoryStore()
        elsewhere.append(delivery((alert(starts_at=world.clock.now, received_at=world.clock.now),)))
        world.store.inbox, real = elsewhere.inbox, world.store.inbox
        Inbox(world.store).drain(world.settings, world.clock.now)
        world.store.inbox = real
        assert run.thread.is_alive()
        until(lambda: world.clock.tick(1) and world.replicas() == 3)


def test_a_fold_that_failed_half_way_wakes_when_it_is_done_again(monkeypatch):
    """The records were kept and the deliveries not drained: the same deliveries wake the same targets."""
    world = World()
    refs = many(world, 2)
    monkeypatch.setattr("responder.acting.inbox.RECORDS", 1)
    for ref in refs:
        deliver(world, alert(for_(ref)))
    real, calls = world.store.commit, []

    def once(commit):
        calls.append(commit)
        if len(calls) == 2:
            raise StoreUnavailable("the disk is full")
        return real(commit)

    monkeypatch.setattr(world.store, "commit", once)
    box = Inbox(world.store)
    with pytest.raises(StoreUnavailable):
        box.drain(world.settings, world.clock.now)
    assert box.drain(world.settings, world.clock.now).changed == {ref.key for ref in refs}


def test_a_pause_that_ended_early_while_nobody_acted_holds_no_longer():
    """Its end was announced to no process; the verdict says to look again only at the end it was to have."""
    world = World()
    made = world.override(OverrideKind.PAUSE)
    with running(world):
        deliver(world, alert())
        until(lambda: quiet(world) and world.store.record(REF.key) and world.record().verdict is not None)
    assert world.replicas() == 2
    world.clock.tick(60)
    # The store tells of overrides in force or to come.
    del world.store._overrides[made.id]
    with running(world):
        until(lambda: world.clock.tick(0.1) and world.replicas() == 3)


def test_looks_for_caution_do_not_keep_news_waiting():
    """Thousands that something keeps from acting are looked at one after the other, and news at once."""
    world = World(settings=settings(policy(min_replicas=2)))
    refs = many(world, 3000)
    for ref in refs:
        world.tell(alert(for_(ref, DOWN)), ref=ref)
        record, version = world.store.record(ref.key)
        verdict = Verdict(world.clock.now, 2, 2, "AtMinReplicas", "at its minimum")
        world.store.commit(
            Commit(records=((replace(record, verdict=verdict, uid="u", replicas=2), version),))
        )
    run = ActorRun(world, threads=1)
    run.actor._load(run.beat)
    run.actor._wake("n/deployment/news")
    assert len(run.actor._schedule) == 3001
    due = run.actor._schedule.take()
    assert due == "n/deployment/news"
    assert world.clock.tick(60)
    assert run.actor._schedule.take() in {ref.key for ref in refs}


def test_the_store_names_what_has_not_been_looked_at(tmp_path):
    """New records and those with news; not those that were looked at, whatever came of it."""
    world = World()
    world.fire()
    world.look()
    seen = world.record()
    store = SqliteStore(tmp_path / "store.db")
    try:
        news = replace(seen, target=replace(REF, name="news"), unseen=True)
        fresh = Record(replace(REF, name="fresh"))
        store.commit(Commit(records=((seen, 0), (news, 0), (fresh, 0))))
        assert store.unseen() == sorted([news.target.key, fresh.target.key])
        store.commit(Commit(records=((replace(news, unseen=False), 1),)))
        assert store.unseen() == [fresh.target.key]
    finally:
        store.close()
