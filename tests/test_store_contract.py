"""What every store must do, whatever it is made of: each test runs on each of STORES."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from responder.errors import Conflict, StoreUnavailable
from responder.model import (
    AuditEntry,
    Change,
    Commit,
    Delivery,
    Direction,
    Episode,
    HistoryEntry,
    Intent,
    Ledger,
    Notification,
    Outcome,
    Override,
    OverrideKind,
    Reason,
    Record,
    Silence,
    Span,
    TargetRef,
    Verdict,
)
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from responder.store import HistoryFilter, Status
from responder.store.kubernetes import KubernetesStore
from responder.store.sqlite import SqliteStore

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
HOUR = timedelta(hours=1)


@contextlib.contextmanager
def in_sqlite(folder: Path) -> Iterator[Callable[..., Any]]:
    yield lambda **more: SqliteStore(folder / "store.db", clock=NOW.timestamp, **more)


@contextlib.contextmanager
def in_kubernetes(folder: Path) -> Iterator[Callable[..., Any]]:
    """On a simulated API server; the clock that leases go by is the one that the tests give."""
    objects = ObjectStore()
    with SimServer(objects) as server:
        objects.create("namespaces", {"metadata": {"name": "gpu"}}, manager="test")
        kubeconfig = str(server.kubeconfig(folder / "kubeconfig"))
        yield lambda **more: KubernetesStore(
            "gpu", kubeconfig, clock=NOW.timestamp, passing=datetime.timestamp, **more
        )


STORES = {"sqlite": in_sqlite, "kubernetes": in_kubernetes}


@pytest.fixture(params=list(STORES))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the store again at each call, as another process would."""
    opened: list[Any] = []
    with STORES[request.param](tmp_path) as opening:

        def make_one(**more: Any) -> Any:
            store = opening(**more)
            opened.append(store)
            return store

        yield make_one
        for store in opened:
            store.close()


@pytest.fixture
def store(make: Callable[..., Any]) -> Any:
    return make()


def span(
    fingerprint: str = "f", *, seen: datetime = NOW, firing: bool = True, suppressed: bool = False
) -> Span:
    return Span(fingerprint, {"a": "b"}, {}, firing, NOW, NOW, seen, suppressed=suppressed)


def delivery(fingerprint: str = "f", **more: Any) -> Delivery:
    notification = Notification(
        fingerprint, True, {"alertname": "A", "x": "ü\n\"'"}, {"n": "NaN"}, NOW, None, NOW
    )
    return Delivery(NOW, (notification,), **more)


def intent(identity: str = "i") -> Intent:
    return Intent(identity, "uid", 1, 2, "7", 3, "kubectl", NOW, Reason.SCALED_UP, "because")


def record(name: str = "vllm", **more: Any) -> Record:
    return Record(TargetRef("inference", "Deployment", name), **more)


def entry(name: str = "vllm", *, at: datetime = NOW, **more: Any) -> HistoryEntry:
    values = {"current": 1, "desired": 2, "reason": Reason.SCALED_UP, "message": "because", **more}
    return HistoryEntry(at=at, target=f"inference/deployment/{name}", **values)


def override(identity: str, *, ends: timedelta = HOUR, expired_at: datetime | None = None) -> Override:
    return Override(
        identity, OverrideKind.PAUSE, "me", "why", NOW, NOW - HOUR, NOW + ends, expired_at=expired_at
    )


class TestInbox:
    def test_keeps_deliveries_in_order_until_they_are_drained(self, store: Any) -> None:
        """What is appended comes back whole and in order, and goes when a commit says so."""
        sent = [delivery(str(i), sender="am", namespaces=("a", "b-*"), truncated=i) for i in range(5)]
        for each in sent:
            store.append(each)
        kept = store.inbox(10)
        assert [each for _, each in kept] == sent
        assert [each for _, each in store.inbox(2)] == sent[:2]
        store.commit(Commit(drained=tuple(identity for identity, _ in kept[:3])))
        assert [each for _, each in store.inbox(10)] == sent[3:]

    def test_is_durable_and_shared(self, make: Callable[..., Any]) -> None:
        """Another opening of the store sees what one has appended, also after that one is closed."""
        first, second = make(), make()
        first.append(delivery("x"))
        assert [each for _, each in second.inbox(1)] == [delivery("x")]
        first.close()
        assert [each for _, each in make().inbox(1)] == [delivery("x")]

    def test_loses_none_of_what_many_threads_append(self, make: Callable[..., Any]) -> None:
        """Group commit answers each writer for its own delivery."""
        stores = [make(), make()]

        def append(store: Any, writer: int) -> None:
            for i in range(25):
                store.append(delivery(f"{writer}-{i}"))

        threads = [threading.Thread(target=append, args=(stores[i % 2], i)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = [each.notifications[0].fingerprint for _, each in stores[0].inbox(1000)]
        assert sorted(kept) == sorted(f"{writer}-{i}" for writer in range(8) for i in range(25))

    def test_refuses_when_closed(self, store: Any) -> None:
        """A closed store takes nothing in rather than losing it."""
        store.close()
        with pytest.raises(StoreUnavailable):
            store.append(delivery())


class TestRecords:
    def test_come_back_equal(self, store: Any) -> None:
        """Every field of a record survives, dates to the microsecond."""
        full = record(
            uid="u",
            replicas=0,
            alerts={"f": span(), "g": replace(span("g"), ends_at=NOW, firing=False)},
            episodes={"t": Episode("e", "t", NOW)},
            ledger=Ledger({"e": 2}, (Change(NOW, 1, 2, "i"),), (), NOW, None, 4),
            intent=intent(),
            zero_from=3,
            verdict=Verdict(NOW, 1, 2, Reason.COOLDOWN, "waits"),
            namespaces=("a",),
        )
        store.commit(Commit(records=((full, 0),)))
        assert store.record(full.target.key) == (full, 1)
        assert list(store.records()) == [(full, 1)]

    def test_change_only_at_the_version_read(self, store: Any) -> None:
        """A version is one more after each change, and a stale one is a Conflict."""
        key = record().target.key
        assert store.record(key) is None
        store.commit(Commit(records=((record(), 0),)))
        with pytest.raises(Conflict):
            store.commit(Commit(records=((record(uid="late"), 0),)))
        store.commit(Commit(records=((record(uid="b"), 1),)))
        with pytest.raises(Conflict):
            store.commit(Commit(records=((record(uid="late"), 1),)))
        assert store.record(key) == (record(uid="b"), 2)

    def test_a_conflict_writes_nothing_at_all(self, store: Any) -> None:
        """One stale version and none of the commit's other parts are kept."""
        store.commit(Commit(records=((record("a"), 0),)))
        store.append(delivery())
        [(identity, _)] = store.inbox(1)
        with pytest.raises(Conflict):
            store.commit(
                Commit(
                    records=((record("new"), 0), (record("a"), 7)),
                    standing=(span(),),
                    history=(entry(),),
                    drained=(identity,),
                )
            )
        assert [each.target.name for each, _ in store.records()] == ["a"]
        assert store.standing() == ()
        assert store.history() == []
        assert len(store.inbox(5)) == 1

    def test_are_forgotten_at_the_version_read(self, store: Any) -> None:
        """Forgetting is a change like others; what is forgotten can be made anew."""
        key = record().target.key
        store.commit(Commit(records=((record(), 0),)))
        with pytest.raises(Conflict):
            store.commit(Commit(forgotten=((key, 2),)))
        store.commit(Commit(forgotten=((key, 1),)))
        assert store.record(key) is None
        with pytest.raises(Conflict):
            store.commit(Commit(forgotten=((key, 1),)))
        store.commit(Commit(records=((record(), 0),)))

    def test_of_two_that_change_one_only_one_succeeds(self, make: Callable[..., Any]) -> None:
        """Racing changes from the same version: each round has exactly one winner."""
        stores = [make(), make()]
        stores[0].commit(Commit(records=((record(), 0),)))
        wins: list[int] = []

        def race(store: Any) -> None:
            for version in range(1, 31):
                try:
                    store.commit(Commit(records=((record(), version),)))
                    wins.append(version)
                except Conflict:
                    pass
                while store.record(record().target.key)[1] == version:
                    pass

        threads = [threading.Thread(target=race, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(wins) == list(range(1, 31))

    def test_are_listed_over_pages(self, store: Any) -> None:
        """More records than are read at once come all, in the order of their keys, each once."""
        made = tuple((record(f"w{i:04}"), 0) for i in range(1201))
        store.commit(Commit(records=made))
        assert [each for each, _ in store.records()] == [each for each, _ in made]

    def test_those_with_an_intent_are_found(self, store: Any) -> None:
        """Pending and outstanding intents are told, and no longer once they are settled."""
        store.commit(
            Commit(
                records=(
                    (record("none"), 0),
                    (record("pending", intent=intent()), 0),
                    (record("outstanding", outstanding=intent()), 0),
                )
            )
        )
        assert [each.target.name for each in store.intents()] == ["outstanding", "pending"]
        store.commit(Commit(records=((record("pending"), 1),)))
        assert [each.target.name for each in store.intents()] == ["outstanding"]

    def test_those_with_news_are_found(self, store: Any) -> None:
        """A new record, and one that is marked: not those that were looked at since."""
        seen = Verdict(NOW, 1, 1, Reason.NOTHING_FIRING, "calm")
        made = (record("new"), record("calm", verdict=seen), record("news", verdict=seen, unseen=True))
        store.commit(Commit(records=tuple((each, 0) for each in made)))
        assert store.unseen() == ["inference/deployment/new", "inference/deployment/news"]

    def test_are_summed_up(self, store: Any) -> None:
        """The summary counts what the metrics tell, and leaves out what is not so."""
        old = NOW - 2 * HOUR
        at_max = Verdict(NOW, 8, 8, Reason.AT_MAX_REPLICAS, "at max")
        alerts = {
            "late": span("late", seen=old),
            "resolved": span("resolved", seen=old, firing=False),
            "suppressed": span("suppressed", seen=old, suppressed=True),
            "fresh": span("fresh"),
        }
        store.append(delivery())
        store.commit(
            Commit(
                records=(
                    (record("a", alerts=alerts, intent=intent()), 0),
                    (record("b", verdict=at_max), 0),
                    (record("calm", verdict=Verdict(NOW, 1, 1, Reason.NOTHING_FIRING, "calm")), 0),
                    (record("moving", verdict=Verdict(NOW, 1, 2, Reason.SCALED_UP, "up")), 0),
                )
            )
        )
        summary = store.summary(NOW, HOUR)
        assert (summary.inbox, summary.records, summary.unknown_alerts) == (1, 4, 1)
        assert summary.pending == (("inference/deployment/a", NOW),)
        assert summary.held == (("inference/deployment/b", "AtMaxReplicas"),)


class TestStanding:
    def test_alerts_are_replaced_and_removed(self, store: Any) -> None:
        """Standing alerts are kept by fingerprint."""
        store.commit(Commit(standing=(span("a"), span("b"))))
        newer = span("b", seen=NOW + HOUR)
        store.commit(Commit(standing=(newer,), standing_gone=("a",)))
        assert store.standing() == (newer,)


class TestStatuses:
    def test_the_newest_of_a_name_is_told_to_every_process(self, make: Callable[..., Any]) -> None:
        """What the actor leaves there is read by those that answer HTTP, with its time."""
        one, other = make(), make()
        one.put_status("actor", {"kubernetes": "cannot be reached"})
        one.put_status("page", {"key": "ü"})
        one.put_status("actor", {})
        assert other.statuses() == {"actor": Status(NOW, {}), "page": Status(NOW, {"key": "ü"})}

    def test_there_are_none_at_first(self, store: Any) -> None:
        """And nobody has to make a place for them."""
        assert store.statuses() == {}


class TestPeople:
    def test_overrides_are_told_until_they_end(self, store: Any) -> None:
        """Ended and expired ones are told only when asked for."""
        live, ended = override("live"), override("ended", ends=-timedelta(seconds=1))
        expired = override("expired", expired_at=NOW - timedelta(seconds=1))
        for each in (live, ended, expired):
            store.put_override(each)
        assert store.overrides() == (live,)
        assert set(store.overrides(include_ended=True)) == {live, ended, expired}

    def test_an_override_is_replaced_by_its_id(self, store: Any) -> None:
        """Ending one early is putting it again."""
        store.put_override(override("a"))
        store.put_override(override("a", expired_at=NOW))
        assert store.overrides() == ()
        assert store.overrides(include_ended=True) == (override("a", expired_at=NOW),)

    def test_silences_are_told_until_they_expire(self, store: Any) -> None:
        """As overrides are."""
        live = Silence("live", ('a="b"',), NOW, NOW + HOUR, "me", "why", NOW)
        expired = replace(live, id="expired", ends_at=NOW)
        store.put_silence(live)
        store.put_silence(expired)
        assert store.silences() == (live,)
        assert set(store.silences(include_expired=True)) == {live, expired}

    def test_what_ended_long_ago_is_dropped(self, store: Any) -> None:
        """Ended overrides do not pile up for ever."""
        store.put_override(override("ancient", ends=-timedelta(days=100)))
        store.put_override(override("live"))
        assert [each.id for each in store.overrides(include_ended=True)] == ["live"]

    def test_the_audit_only_grows(self, store: Any) -> None:
        """Lines come back newest first."""
        lines = [AuditEntry(NOW, "me", "::1", "override.add", str(i)) for i in range(3)]
        for line in lines:
            store.audit(line)
        assert store.audits(2) == [lines[2], lines[1]]


class TestHistory:
    @pytest.mark.parametrize(
        ("filters", "names"),
        [
            pytest.param({}, ["b", "a", "b", "a"], id="all, newest first"),
            pytest.param(
                {"namespace": "inference", "kind": "deployment", "name": "a"}, ["a", "a"], id="by target"
            ),
            pytest.param({"namespace": "inference", "name": "b"}, ["b", "b"], id="by namespace and name"),
            pytest.param({"namespace": "other"}, [], id="of another namespace"),
            pytest.param({"kind": "Deployment"}, ["b", "a", "b", "a"], id="by kind as Kubernetes spells it"),
            pytest.param({"reason": "Cooldown"}, ["b"], id="by reason"),
            pytest.param({"since": NOW + HOUR}, ["b", "a"], id="since a moment"),
            pytest.param({"namespaces": ("infer*",), "name": "a"}, ["a", "a"], id="within globs"),
            pytest.param({"namespaces": ("team-*",)}, [], id="outside of globs"),
            pytest.param({"namespaces": ("[!i]*",)}, [], id="within a glob that says what it is not"),
            pytest.param(
                {"namespaces": ("[!o]*",), "name": "a"}, ["a", "a"], id="within one that is not another"
            ),
            pytest.param({"namespaces": ()}, [], id="within no namespace"),
            pytest.param({"name": "a' OR '1'='1"}, [], id="by what would be code"),
        ],
    )
    def test_is_filtered(self, store: Any, filters: dict[str, Any], names: list[str]) -> None:
        """Each filter narrows, and they hold together."""
        later = NOW + HOUR
        store.commit(Commit(history=(entry("a"), entry("b", reason=Reason.COOLDOWN, desired=1))))
        store.commit(Commit(history=(entry("a", at=later), entry("b", at=later))))
        found = store.history(HistoryFilter(**filters))
        assert found[:1] == store.history(HistoryFilter(**filters), limit=1)
        assert store.history(HistoryFilter(**filters), limit=0) == []
        assert [each.entry.target.rpartition("/")[2] for each in found] == names

    def test_entries_are_known_by_number(self, store: Any) -> None:
        """An entry is found again by its id, inputs and all."""
        given = entry(inputs={"observed": {"replicas": 3, "values": [1.5, None]}}, outcome=Outcome.APPLIED)
        store.commit(Commit(history=(given, entry("b"))))
        first = store.history()[1]
        assert store.history(HistoryFilter(id=first.id)) == [first]
        assert first.entry == given

    def test_actions_are_those_that_took_effect(self, store: Any) -> None:
        """For the action budget: changes of one direction that were applied, or may have been."""
        store.commit(
            Commit(
                history=(
                    entry(at=NOW - 2 * HOUR, outcome=Outcome.APPLIED),
                    entry(at=NOW, outcome=Outcome.APPLIED),
                    entry(at=NOW + HOUR, outcome=Outcome.UNCERTAIN),
                    entry(at=NOW, outcome=Outcome.NOT_APPLIED),
                    entry(at=NOW, outcome=Outcome.APPLIED, current=3),
                    entry(at=NOW),
                )
            )
        )
        assert store.actions_since(Direction.UP, NOW) == [NOW, NOW + HOUR]
        assert store.actions_since(Direction.DOWN, NOW) == [NOW]

    def test_is_bounded_by_rows(self, make: Callable[..., Any]) -> None:
        """The oldest go when there are too many."""
        store = make(history_rows=10)
        for i in range(40):
            store.commit(Commit(history=(entry(message=str(i)),)))
        kept = [each.entry.message for each in store.history(limit=1000)]
        assert kept[0] == "39"
        assert 10 <= len(kept) <= 20

    def test_is_bounded_by_age(self, make: Callable[..., Any]) -> None:
        """What is older than the bound goes, what is younger stays."""
        store = make(history_rows=3, history_age=HOUR)
        store.commit(Commit(history=(entry("old", at=NOW - 2 * HOUR), entry("young"), entry("young"))))
        assert [each.entry.target.rpartition("/")[2] for each in store.history()] == ["young", "young"]


class TestLease:
    TTL = timedelta(seconds=15)

    def test_has_one_holder_at_a_time(self, make: Callable[..., Any]) -> None:
        """Another gets it when it has not been renewed for its time, and not a moment before."""
        a, b = make(), make()
        assert a.lease("actor", "host-a/1/1", self.TTL, NOW)
        assert not b.lease("actor", "host-b/1/1", self.TTL, NOW)
        assert a.lease("actor", "host-a/1/1", self.TTL, NOW + timedelta(seconds=10))
        assert not b.lease("actor", "host-b/1/1", self.TTL, NOW + timedelta(seconds=10))
        assert not b.lease("actor", "host-b/1/1", self.TTL, NOW + timedelta(seconds=24.9))
        assert b.lease("actor", "host-b/1/1", self.TTL, NOW + timedelta(seconds=25))
        assert not a.lease("actor", "host-a/1/1", self.TTL, NOW + timedelta(seconds=26))

    def test_is_given_back(self, store: Any) -> None:
        """Released by its holder it is free at once; nobody else can release it."""
        assert store.lease("actor", "a/1/1", self.TTL, NOW)
        store.release("actor", "b/1/1")
        assert not store.lease("actor", "b/1/1", self.TTL, NOW)
        store.release("actor", "a/1/1")
        assert store.lease("actor", "b/1/1", self.TTL, NOW)

    def test_a_clock_that_went_back_does_not_lock_it(self, store: Any) -> None:
        """A renewal later than now counts as now, so the lease ends after its time and not after the step."""
        assert store.lease("actor", "a/1/1", self.TTL, NOW + HOUR)
        assert not store.lease("actor", "b/1/1", self.TTL, NOW)
        assert store.lease("actor", "b/1/1", self.TTL, NOW + self.TTL)

    def test_leases_have_names(self, store: Any) -> None:
        """One name's holder says nothing of another's."""
        assert store.lease("actor", "a/1/1", self.TTL, NOW)
        assert store.lease("other", "b/1/1", self.TTL, NOW)


class TestWaiting:
    RINGS = {
        "a delivery": lambda store: store.append(delivery()),
        "an override": lambda store: store.put_override(override("a")),
        "a silence": lambda store: store.put_silence(
            Silence("s", ('a="b"',), NOW, NOW + HOUR, "me", "why", NOW)
        ),
        "the bell": lambda store: store.ring(),
    }

    @pytest.mark.parametrize("what", list(RINGS))
    def test_another_process_wakes_who_holds_the_lease(self, make: Callable[..., Any], what: str) -> None:
        """The actor hears of what any process does, and only once."""
        actor, web = make(), make()
        assert actor.lease("actor", "a/1/1", timedelta(seconds=15), NOW)
        assert not actor.wait(0)
        self.RINGS[what](web)
        assert actor.wait(60)
        assert not actor.wait(0)

    def test_a_ring_before_the_wait_counts(self, make: Callable[..., Any]) -> None:
        """What happens between looking and waiting is not slept through."""
        actor, web = make(), make()
        actor.lease("actor", "a/1/1", timedelta(seconds=15), NOW)
        web.append(delivery())
        assert actor.wait(60)

    def test_the_new_holder_is_woken_and_the_old_no_more(self, make: Callable[..., Any]) -> None:
        """The bell goes with the lease."""
        old, new, web = make(), make(), make()
        assert old.lease("actor", "a/1/1", timedelta(seconds=15), NOW)
        assert not new.lease("actor", "b/1/1", timedelta(seconds=15), NOW)
        assert new.lease("actor", "b/1/1", timedelta(seconds=15), NOW + HOUR)
        assert not old.lease("actor", "a/1/1", timedelta(seconds=15), NOW + HOUR)
        web.append(delivery())
        assert new.wait(60)
        assert not old.wait(0)

    def test_the_own_bell_wakes_without_a_lease(self, store: Any) -> None:
        """A process that is told to stop gets out of its wait."""
        threading.Timer(0.05, store.ring).start()
        assert store.wait(60)

    def test_what_is_no_news_wakes_nobody(self, make: Callable[..., Any]) -> None:
        """The actor's own commits and the audit do not make it look again."""
        actor = make()
        actor.lease("actor", "a/1/1", timedelta(seconds=15), NOW)
        actor.commit(Commit(records=((record(), 0),), history=(entry(),)))
        actor.audit(AuditEntry(NOW, "me", "::1", "x", "y"))
        assert not actor.wait(0.05)


def test_a_store_that_works_is_ready(store: Any) -> None:
    """Nothing to say while deliveries can be taken."""
    assert store.ready() == ""


_counter = itertools.count()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    operations=st.lists(
        st.tuples(st.sampled_from(["put", "forget"]), st.sampled_from("abc"), st.integers(0, 3)), max_size=25
    )
)
def test_commits_are_those_of_a_plain_dictionary(
    make: Callable[..., Any], operations: list[tuple[str, str, int]]
) -> None:
    """Any sequence of commits leaves what compare-and-set on a dictionary leaves, conflicts included."""
    store = make()
    run = next(_counter)
    model: dict[str, tuple[str, int]] = {}
    for step, (what, letter, version) in enumerate(operations):
        name = f"w{run}-{letter}"
        key = record(name).target.key
        known = model.get(key, ("", 0))[1]
        change = record(name, uid=str(step))
        commit = (
            Commit(records=((change, version),)) if what == "put" else Commit(forgotten=((key, version),))
        )
        if version == known:
            store.commit(commit)
            if what == "put":
                model[key] = (str(step), version + 1)
            else:
                model.pop(key, None)
        else:
            with pytest.raises(Conflict):
                store.commit(commit)
    kept = {
        each.target.key: (each.uid, version)
        for each, version in store.records()
        if f"w{run}-" in each.target.name
    }
    assert kept == model
    store.close()
