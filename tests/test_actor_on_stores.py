"""The actor on the real stores: what the fakes promise holds there too."""

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from responder.actor import Actor
from responder.model import Outcome
from tests.fakes import REF, FakeCluster, FakeValues, ModelServer, Notebook, delivery, notification
from tests.responding import UP, settings
from tests.test_store_contract import STORES

DEADLINE = 30.0


class Source:
    generation = 0

    def __call__(self):
        return settings()


def started(store, server, name):
    stop = threading.Event()
    actor = Actor(
        store, FakeCluster(server), FakeValues(), [], Source(), holder=name, observer=Notebook(), threads=4
    )
    thread = threading.Thread(target=actor.run, args=(stop, lambda: None), daemon=True)
    thread.start()

    def end():
        stop.set()
        store.ring()
        thread.join(DEADLINE)
        assert not thread.is_alive()

    return end


def until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.005)


@pytest.mark.parametrize("kind", list(STORES))
def test_deliveries_become_scales_across_a_restart(tmp_path, kind):
    """Two actors one after the other, 40 targets each: one effect and one line for each alert."""
    with STORES[kind](tmp_path) as opening:
        restarted(opening(), ModelServer())


def restarted(store, server):
    refs = [replace(REF, name=f"w{number}") for number in range(80)]
    for ref in refs:
        server.add(ref)
    for name, some in (("one", refs[:40]), ("two", refs[40:])):
        now = datetime.now(UTC)
        end = started(store, server, name)
        told = [notification({**UP, "workload": ref.name}, starts_at=now, received_at=now) for ref in some]
        for _ in range(2):
            store.append(delivery(told))
        until(lambda some=some: all(server.things[ref.key].replicas == 3 for ref in some))
        until(lambda: not store.inbox(1))
        end()
    entries = [stored.entry for stored in store.history(limit=10_000)]
    assert len(server.effects) == 80
    assert sum(entry.outcome is Outcome.APPLIED for entry in entries) == 80
    assert store.intents() == []
    store.close()
