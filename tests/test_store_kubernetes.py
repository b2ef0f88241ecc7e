"""What only the store in ConfigMaps can get wrong: lost answers, several shards, size, repeats, and what it costs."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from responder.acting.lease import Lease
from responder.codec import encode
from responder.errors import ConfigError, Conflict, StoreUnavailable
from responder.model import (
    Commit,
    Delivery,
    HistoryEntry,
    Notification,
    Override,
    OverrideKind,
    Reason,
    Record,
    Span,
    TargetRef,
    Verdict,
)
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from responder.store.kubernetes import KubernetesStore
from responder.store.kubernetes.kept import Kept, Line, numbered, shard_of, trimmed
from responder.store.kubernetes.people import Shared
from tests.serving import until

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TTL = timedelta(seconds=10)


@pytest.fixture
def server() -> Iterator[SimServer]:
    objects = ObjectStore()
    with SimServer(objects) as server:
        objects.create("namespaces", {"metadata": {"name": "gpu"}}, manager="test")
        yield server


@pytest.fixture
def make(server: SimServer, tmp_path: Path) -> Iterator[Callable[..., KubernetesStore]]:
    with ExitStack() as opened:

        def make_one(**more: Any) -> KubernetesStore:
            kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
            given = {"clock": NOW.timestamp, "passing": datetime.timestamp, **more}
            store = KubernetesStore("gpu", kubeconfig, **given)
            opened.callback(store.close)
            return store

        yield make_one


@pytest.fixture
def store(make: Callable[..., KubernetesStore]) -> KubernetesStore:
    return make()


def delivery(fingerprint: str = "f", seen: datetime = NOW, padding: str = "") -> Delivery:
    labels = {"alertname": "A", "padding": padding}
    return Delivery(NOW, (Notification(fingerprint, True, labels, {}, NOW, None, seen),))


def record(name: str = "vllm", **more: Any) -> Record:
    return Record(TargetRef("inference", "Deployment", name), **more)


def span(seen: datetime = NOW, fingerprint: str = "f") -> Span:
    return Span(fingerprint, {"a": "b"}, {}, True, NOW, NOW, seen)


def entry(name: str = "vllm", message: str = "because", **more: Any) -> HistoryEntry:
    return HistoryEntry(NOW, f"inference/deployment/{name}", 1, 2, Reason.SCALED_UP, message, **more)


def noise(length: int) -> str:
    """Text that does not compress."""
    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


def writes(server: SimServer) -> list[str]:
    """What has been written since the log was cleared, and to what of the store; dry runs left out."""
    return [
        f"{each['method']} {each['path'].partition('/gpu-responder-')[2].partition('-')[0]}".strip()
        for each in server.requests
        if each["method"] not in ("GET", "HEAD") and "dryRun" not in each["query"]
    ]


class TestLostAnswers:
    @pytest.mark.parametrize("fault", ["reset", "applyThenReset"])
    @pytest.mark.parametrize("fails", [1, 3], ids=["once", "three times"])
    def test_a_commit_takes_effect_once(
        self, server: SimServer, store: KubernetesStore, fault: str, fails: int
    ) -> None:
        """Whether or not the write had landed, the caller hears that it is done, and it is done once."""
        server.faults.set([{"methods": ["POST", "PATCH"], "fault": fault, "times": fails}])
        store.commit(Commit(records=((record(uid="a"), 0),), history=(entry(message="a"),)))
        server.faults.set([{"methods": ["POST", "PATCH"], "fault": fault, "times": fails}])
        store.commit(Commit(records=((record(uid="b"), 1),), history=(entry(message="b"),)))
        assert store.record(record().target.key) == (record(uid="b"), 2)
        assert [line.entry.message for line in store.history()] == ["b", "a"]

    @pytest.mark.parametrize("fault", ["reset", "applyThenReset"])
    def test_a_delivery_is_taken_once(self, server: SimServer, store: KubernetesStore, fault: str) -> None:
        """As above, for the inbox."""
        server.faults.set([{"methods": ["POST"], "fault": fault, "times": 2}])
        store.append(delivery())
        assert [each for _, each in store.inbox(10)] == [delivery()]

    def test_an_answer_that_never_comes_is_unavailable(
        self, server: SimServer, store: KubernetesStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One sentence after a bounded time, and nothing is lost when the server is back."""
        monkeypatch.setattr("responder.store.kubernetes.configmaps.PATIENCE", 0.5)
        server.faults.set([{"methods": "writes", "fault": "status", "status": 503}])
        with pytest.raises(StoreUnavailable, match="the store in namespace gpu: Cannot create ConfigMap"):
            store.append(delivery())
        assert "503" in store.ready()
        server.faults.clear()
        monkeypatch.undo()
        store.append(delivery())
        assert len(store.inbox(10)) == 1

    def test_a_write_that_lands_late_meets_what_came_after_it(
        self, server: SimServer, make: Callable[..., KubernetesStore], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A commit that was given up and lands later is seen by the next, which is a Conflict."""
        first, second = make(), make()
        first.commit(Commit(records=((record(), 0),)))
        monkeypatch.setattr("responder.store.kubernetes.configmaps.PATIENCE", 0.3)
        server.faults.set([{"methods": ["PATCH"], "fault": "hang", "seconds": 0.8, "times": 1}])
        with pytest.raises(StoreUnavailable):
            first.commit(Commit(records=((record(uid="late"), 1),)))
        monkeypatch.undo()
        until(lambda: second.record(record().target.key) == (record(uid="late"), 2), what="it lands")
        with pytest.raises(Conflict):
            first.commit(Commit(records=((record(uid="b"), 1),)))


class TestShards:
    def test_neighbours_in_a_shard_do_not_disturb_each_other(
        self, make: Callable[..., KubernetesStore]
    ) -> None:
        """Processes that change different targets of one shard both succeed, though one writes first."""
        names = [name for name in (f"w{i}" for i in range(2000)) if shard_of(record(name).target.key) == 7][
            :4
        ]
        stores = [make() for _ in names]
        stores[0].lease("actor", "a/1/1", TTL, NOW)

        def change(store: KubernetesStore, name: str) -> None:
            for version in range(10):
                store.commit(Commit(records=((record(name, uid=str(version)), version),)))

        threads = [threading.Thread(target=change, args=each) for each in zip(stores, names, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {(each.target.name, version) for each, version in stores[0].records()} == {
            (name, 10) for name in names
        }

    def test_who_acts_by_what_it_knows_meets_who_wrote(self, make: Callable[..., KubernetesStore]) -> None:
        """The actor does not read before it writes; another's write is a Conflict, and then it knows."""
        actor, other = make(), make()
        actor.lease("actor", "a/1/1", TTL, NOW)
        actor.commit(Commit(records=((record(), 0),)))
        other.commit(Commit(records=((record(uid="other"), 1),)))
        assert actor.record(record().target.key) == (record(), 1)
        with pytest.raises(Conflict):
            actor.commit(Commit(records=((record(uid="actor"), 1),)))
        assert actor.record(record().target.key) == (record(uid="other"), 2)

    def test_a_new_actor_knows_nothing_from_before(self, make: Callable[..., KubernetesStore]) -> None:
        """What a process knew when it last acted is not what it goes by when it acts again."""
        a, b = make(), make()
        a.lease("actor", "a/1/1", TTL, NOW)
        a.commit(Commit(records=((record(), 0),)))
        a.release("actor", "a/1/1")
        b.lease("actor", "b/1/1", TTL, NOW)
        b.commit(Commit(records=((record(uid="b"), 1),)))
        b.release("actor", "b/1/1")
        a.lease("actor", "a/1/1", TTL, NOW)
        assert a.record(record().target.key) == (record(uid="b"), 2)

    def test_keeps_the_last_decisions_of_each_target(self, store: KubernetesStore) -> None:
        """Fifty of each, whatever the others do; numbers rise over all of them."""
        for number in range(60):
            store.commit(Commit(history=(entry("a", str(number)), entry("b", str(number)))))
        kept = store.history(limit=1000)
        assert [line.entry.message for line in kept[:4]] == ["59", "59", "58", "58"]
        assert len(kept) == 100
        assert [line.id for line in kept] == sorted((line.id for line in kept), reverse=True)
        assert kept[0].id < 2**53

    def test_history_of_what_is_forgotten_goes_with_time(self, make: Callable[..., KubernetesStore]) -> None:
        """It outlives its record for as long as history is kept, and no longer."""
        clock = [NOW.timestamp()]
        store = make(clock=lambda: clock[0])
        gone, other = [
            name for name in (f"w{i}" for i in range(2000)) if shard_of(record(name).target.key) == 7
        ][:2]
        store.commit(Commit(records=((record(gone), 0),), history=(entry(gone),)))
        store.commit(Commit(forgotten=((record(gone).target.key, 1),)))
        store.commit(Commit(records=((record(other), 0),)))
        assert [line.entry.target for line in store.history()] == [record(gone).target.key]
        clock[0] += timedelta(days=31).total_seconds()
        store.commit(Commit(records=((record(other, uid="u"), 1),)))
        assert store.history() == []
        assert [each.target.name for each, _ in store.records()] == [other]

    def test_a_target_too_large_for_a_configmap_is_said_to_be(self, store: KubernetesStore) -> None:
        """The sentence names the target; the others of its shard are not harmed."""
        store.commit(Commit(records=((record(), 0),)))
        alerts = {"f": replace(span(), annotations={"x": noise(2_000_000)})}
        with pytest.raises(StoreUnavailable, match="most of it for inference/deployment/vllm"):
            store.commit(Commit(records=((record(alerts=alerts), 1),)))
        assert store.record(record().target.key) == (record(), 1)

    def test_of_ten_thousand_alerts_fits(self, store: KubernetesStore) -> None:
        """A target with a whole group of alerts is kept."""
        alerts = {
            f"{n:016x}": Span(
                f"{n:016x}",
                {"alertname": "GPUHot", "namespace": "inference", "pod": f"vllm-{n}", "gpu": str(n % 8)},
                {"summary": "GPU is hot"},
                True,
                NOW,
                NOW,
                NOW,
            )
            for n in range(10_000)
        }
        store.commit(Commit(records=((record(alerts=alerts), 0),)))
        assert store.record(record().target.key) == (record(alerts=alerts), 1)


class TestInbox:
    def test_a_large_delivery_is_split(self, server: SimServer, store: KubernetesStore) -> None:
        """At most 512 KiB each, whole again when read, and all gone when it is folded in."""
        sent = delivery(padding=noise(2_000_000))
        store.append(sent)
        pieces = [each.obj for each in server.store.entries("configmaps", "gpu")]
        pieces = [each for each in pieces if "-inbox-" in each["metadata"]["name"]]
        assert len(pieces) > 2
        assert all(len(each["binaryData"]["deliveries"]) <= 512 * 1024 * 4 / 3 + 4 for each in pieces)
        [(identity, read)] = store.inbox(10)
        assert read == sent
        store.commit(Commit(drained=(identity,)))
        assert store.inbox(10) == []
        assert not [
            each
            for each in server.store.entries("configmaps", "gpu")
            if "-inbox-" in each.obj["metadata"]["name"]
        ]

    def test_a_delivery_of_which_a_piece_lacks_is_not_read(
        self, server: SimServer, store: KubernetesStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was not acknowledged; its pieces go after a while."""
        monkeypatch.setattr("responder.store.kubernetes.configmaps.PATIENCE", 0.3)
        server.faults.set([{"methods": ["POST"], "fault": "status", "status": 500, "after": 1}])
        with pytest.raises(StoreUnavailable):
            store.append(delivery(padding=noise(2_000_000)))
        server.faults.clear()
        monkeypatch.undo()
        assert store.inbox(10) == []
        monkeypatch.setattr("responder.store.kubernetes.inbox.FORSAKEN_SECONDS", -1.0)
        store.inbox(10)
        assert store.summary(NOW, TTL).inbox == 0

    def test_standing_alerts_that_cannot_be_read_are_named(self, store: KubernetesStore) -> None:
        """All that follows waits for it, so whoever reads this must know what to delete."""
        store.maps.create("gpu-responder-standing-3", "standing", binary={"deliveries": b"junk"})
        with pytest.raises(
            StoreUnavailable, match=r"ConfigMap gpu/gpu-responder-standing-3 holds .* delete it"
        ):
            store.standing()

    def test_a_delivery_that_cannot_be_read_holds_up_no_other(
        self, store: KubernetesStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is named once and left there, for the release that wrote it."""
        name = "gpu-responder-inbox-0000000000001-ab-0-of-1"
        store.maps.create(name, "inbox", binary={"deliveries": b"junk"})
        store.append(delivery())
        for _ in range(2):
            assert [each for _, each in store.inbox(10)] == [delivery()]
        assert [name in each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == [True]
        assert store.maps.get(name) is not None

    def test_a_backlog_comes_in_its_order(self, store: KubernetesStore) -> None:
        """More than is read at once come all, oldest first, and the store says that there are more."""
        for number in range(120):
            store.append(delivery(str(number)))
        seen: list[str] = []
        while found := store.inbox(40):
            seen += [each.notifications[0].fingerprint for _, each in found]
            assert store.wait(0) == (len(seen) < 120)
            store.commit(Commit(drained=tuple(identity for identity, _ in found)))
        assert seen == [str(number) for number in range(120)]

    def test_a_storm_costs_few_writes(self, server: SimServer, store: KubernetesStore) -> None:
        """Deliveries that wait for each other share a ConfigMap."""
        server.requests.clear()
        server.faults.set([{"methods": ["POST"], "fault": "hang", "seconds": 0.3, "times": 2}])
        threads = [threading.Thread(target=store.append, args=(delivery(str(i)),)) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.inbox(100)) == 50
        assert len(writes(server)) <= 6


class TestCost:
    """Writes to the API server; docs/kubernetes.md has these figures."""

    def test_of_a_delivery_that_changes_something(self, server: SimServer, store: KubernetesStore) -> None:
        """Three: into the inbox, into the shard, out of the inbox."""
        store.lease("actor", "a/1/1", TTL, NOW)
        store.commit(Commit(records=((record(), 0),)))
        server.requests.clear()
        store.append(delivery())
        [(identity, _)] = store.inbox(10)
        after = record(alerts={"f": span()})
        store.commit(Commit(records=((after, 1),), drained=(identity,)))
        assert writes(server) == ["POST", "PATCH records", "DELETE inbox"]

    def test_of_a_repeat(self, server: SimServer, store: KubernetesStore) -> None:
        """Two: in and out. Who acts knows of it; it is written when it was not for some minutes."""
        store.lease("actor", "a/1/1", TTL, NOW)
        store.commit(Commit(records=((record(alerts={"f": span()}), 0),)))
        server.requests.clear()
        heard = record(alerts={"f": span(NOW + timedelta(seconds=60))})
        store.append(delivery())
        [(identity, _)] = store.inbox(10)
        store.commit(Commit(records=((heard, 1),), drained=(identity,)))
        assert writes(server) == ["POST", "DELETE inbox"]
        assert store.record(record().target.key) == (heard, 1)
        assert list(store.records()) == [(heard, 1)]
        late = record(alerts={"f": span(NOW + timedelta(seconds=180))})
        store.commit(Commit(records=((late, 1),)))
        assert store.record(record().target.key) == (late, 2)

    def test_repeats_are_not_lost_to_a_change(self, make: Callable[..., KubernetesStore]) -> None:
        """A change after a repeat is written with it; and a process that does not act writes all."""
        actor, other = make(), make()
        actor.lease("actor", "a/1/1", TTL, NOW)
        actor.commit(Commit(records=((record(alerts={"f": span()}), 0),)))
        heard = record(alerts={"f": span(NOW + timedelta(seconds=60))})
        actor.commit(Commit(records=((heard, 1),)))
        changed = replace(heard, verdict=Verdict(NOW, 1, 2, Reason.COOLDOWN, "waits"))
        actor.commit(Commit(records=((changed, 1),)))
        assert other.record(record().target.key) == (changed, 2)
        again = replace(changed, alerts={"f": span(NOW + timedelta(seconds=90))})
        other.commit(Commit(records=((again, 2),)))
        assert other.record(record().target.key) == (again, 3)

    def test_of_a_decision(self, server: SimServer, store: KubernetesStore) -> None:
        """One for each commit: a decision that acts has two, its intent and its outcome."""
        store.lease("actor", "a/1/1", TTL, NOW)
        store.commit(Commit(records=((record(), 0),)))
        server.requests.clear()
        store.commit(Commit(records=((record(uid="i"), 1),), history=(entry(),)))
        store.commit(Commit(records=((record(uid="o"), 2),), history=(entry(),)))
        assert writes(server) == ["PATCH records"] * 2

    def test_a_standing_alert_is_not_written_at_each_repeat(
        self, server: SimServer, store: KubernetesStore
    ) -> None:
        """A heartbeat every few seconds is told at once and written now and then."""
        store.lease("actor", "a/1/1", TTL, NOW)
        store.commit(Commit(standing=(span(),)))
        server.requests.clear()
        for seconds in range(5, 30, 5):
            store.commit(Commit(standing=(span(NOW + timedelta(seconds=seconds)),)))
            assert store.standing() == (span(NOW + timedelta(seconds=seconds)),)
        assert writes(server) == []
        assert not list(server.requests)
        late = span(NOW + timedelta(seconds=60))
        store.commit(Commit(standing=(late,)))
        assert writes(server) == ["PATCH standing"]
        store.release("actor", "a/1/1")
        assert store.standing() == (late,)

    def test_standing_alerts_that_another_wrote_are_read_when_acting_begins(
        self, make: Callable[..., KubernetesStore]
    ) -> None:
        """And what was put off by one that lost the lease is lost with it, and harms nobody."""
        a, b = make(), make()
        a.lease("actor", "a/1/1", TTL, NOW)
        a.commit(Commit(standing=(span(), span(fingerprint="g"))))
        a.commit(Commit(standing=(span(NOW + timedelta(seconds=9)),)))
        a.release("actor", "a/1/1")
        b.lease("actor", "b/1/1", TTL, NOW)
        assert b.standing() == (span(), span(fingerprint="g"))
        b.commit(Commit(standing=(span(NOW + TTL * 9),), standing_gone=("g",)))
        b.release("actor", "b/1/1")
        a.lease("actor", "a/1/1", TTL, NOW)
        assert a.standing() == b.standing() == (span(NOW + TTL * 9),)


class TestLease:
    def test_who_cannot_renew_steps_down_before_another_takes_over(
        self, server: SimServer, make: Callable[..., KubernetesStore]
    ) -> None:
        """The API server hangs for one of two: at no moment do both believe that they lead."""
        ttl = timedelta(seconds=1)
        a, b = (make(passing=lambda now: time.monotonic()) for _ in range(2))
        first = Lease(a, "host-a/1/1", lambda: datetime.now(UTC), ttl)
        second = Lease(b, "host-b/1/1", lambda: datetime.now(UTC), ttl)
        assert first.try_hold()
        began = time.monotonic()
        assert not second.try_hold()
        a.maps.close()  # as good as a connection on which nothing comes back
        while not second.try_hold():
            assert time.monotonic() - began < 30
            first.try_hold()
            time.sleep(0.02)
        assert not first.held()
        assert time.monotonic() - began >= 1
        assert second.held()

    @pytest.mark.parametrize("days", [1, -1], ids=["a day ahead", "a day behind"])
    def test_the_holders_clock_is_not_trusted(self, make: Callable[..., KubernetesStore], days: int) -> None:
        """Whatever its clock says, a holder keeps the lease while it renews, and loses it after."""
        moment = [0.0]
        a, b = (make(passing=lambda now: moment[0]) for _ in range(2))
        for _ in range(5):
            wrong = NOW + timedelta(days=days, seconds=moment[0])
            assert a.lease("actor", "host-a/1/1", TTL, wrong)
            assert not b.lease("actor", "host-b/1/1", TTL, NOW)
            moment[0] += 6
        assert not b.lease("actor", "host-b/1/1", TTL, NOW)
        moment[0] += 4
        assert b.lease("actor", "host-b/1/1", TTL, NOW)


class TestPeople:
    def test_a_read_is_never_older_than_who_asks(self) -> None:
        """Who asks while a read is under way gets the next one, and all who wait share it."""
        gate, reads = threading.Event(), []

        def read() -> int:
            reads.append(len(reads))
            if len(reads) == 1:
                gate.wait(60)
            return reads[-1]

        shared, found = Shared(read), []
        waiting = shared._condition._waiters  # type: ignore[attr-defined]
        first = threading.Thread(target=lambda: found.append(shared.get()))
        first.start()
        while not reads:
            time.sleep(0.001)
        others = [threading.Thread(target=lambda: found.append(shared.get())) for _ in range(5)]
        for thread in others:
            thread.start()
        until(lambda: len(waiting) == len(others), what="all others wait")
        gate.set()
        for thread in (first, *others):
            thread.join()
        assert found.count(0) == 1
        assert set(found) == {0, 1}

    def test_a_full_configmap_gives_up_what_has_ended(self, store: KubernetesStore) -> None:
        """Those that are in force stay; of those that have ended the first to end go."""
        hour = timedelta(hours=1)
        ended = [
            Override(
                f"e{n}", OverrideKind.PAUSE, "me", noise(90_000), NOW, NOW - 9 * hour, NOW - hour * (9 - n)
            )
            for n in range(9)
        ]
        for each in ended:
            store.put_override(each)
        live = replace(ended[0], id="live", ends_at=NOW + hour)
        store.put_override(live)
        kept = [each.id for each in store.overrides(include_ended=True)]
        assert "live" in kept
        assert "e8" in kept
        assert "e0" not in kept


def test_another_cluster_is_refused(make: Callable[..., KubernetesStore]) -> None:
    """The store remembers whose it is; a policy file without a name may use it."""
    make(cluster="a")
    make(cluster="a")
    make()
    with pytest.raises(ConfigError, match="belongs to cluster 'a'"):
        make(cluster="b")


def test_without_a_namespace_it_says_how_to_name_one(tmp_path: Path) -> None:
    """Outside of a pod the namespace has to be given."""
    with pytest.raises(ConfigError, match="kubernetes:<namespace>"):
        KubernetesStore("", str(tmp_path / "kubeconfig"))


def test_an_api_server_that_is_away(server: SimServer, make: Callable[..., KubernetesStore]) -> None:
    """Starting says so, or goes on if asked, and then works as soon as the server is there."""
    server.faults.set([{"fault": "status", "status": 403}])
    with pytest.raises(StoreUnavailable, match="the store in namespace gpu"):
        make()
    store = make(start_anyway=True)
    assert store.ready()
    server.faults.clear()
    store.append(delivery())


def test_the_watch_survives_cuts(server: SimServer, make: Callable[..., KubernetesStore]) -> None:
    """A delivery after a cut still wakes the actor, without waiting for it to look by itself."""
    actor, web = make(), make()
    actor.lease("actor", "a/1/1", TTL, NOW)
    for number in range(3):
        server.cut()
        web.append(delivery(str(number)))
        assert actor.wait(60)


def test_an_old_history_line_loses_its_inputs_first() -> None:
    """A target's history is bounded in bytes too; what happened stays, what a replay needs goes."""
    given = [entry("a", str(n), inputs={"x": "y" * 20_000}) for n in range(10)]
    lines = [Line(n, msgspec.Raw(encode(each))) for each, n in numbered(given, 1)]
    kept = [line.entry() for line in trimmed(Kept(history=lines).history, NOW - TTL)]
    assert [each.message for each in kept] == [str(n) for n in range(10)]
    assert kept[-1].inputs
    assert not kept[0].inputs
