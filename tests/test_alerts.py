"""Promises 1 to 6: what notifications make of spans and episodes, and how they age."""

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.alerts import Condition, condition, fold, fold_all, fold_standing, next_change, prune, rematch
from responder.matchers import parse
from responder.model import Notification, Record
from responder.policy import Heartbeat, Timing
from tests.deciding import LESS, MORE, REF, T0, at, episode_id, fires, policy, resolves, s, settings, span

FILE = settings()


def folded(*notifications: Notification) -> Record:
    record = Record(REF)
    for each in notifications:
        record = fold(record, each, FILE, each.received_at)
    return record


def test_a_repeat_changes_only_last_seen_and_annotations() -> None:
    """Promise 1."""
    once = folded(fires())
    twice = fold(once, fires("more", 60, annotations={"value": "7"}), FILE, at(60))
    expected = replace(once.alerts["more"], last_seen_at=at(60), annotations={"value": "7"})
    assert twice == replace(once, alerts={"more": expected})


def test_while_firing_any_starts_at_is_the_same_span() -> None:
    """Promise 2: startsAt moves, and opens nothing while the alert fires."""
    record = folded(fires(), fires("more", 60, started=50), fires("more", 70, started=-100))
    assert record.alerts["more"].starts_at == T0
    assert record.episodes == folded(fires()).episodes


def test_firing_after_the_end_opens_a_new_span_and_episode() -> None:
    """Promise 2."""
    before = folded(fires(), resolves("more", 100))
    after = fold(before, fires("more", 200, started=150), FILE, at(200))
    assert after.alerts["more"].opened_at == at(200)
    assert after.alerts["more"].starts_at == at(150)
    assert after.alerts["more"].ends_at is None
    assert episode_id(after) != episode_id(before)


@pytest.mark.parametrize(
    ("received", "firing"),
    [
        pytest.param(
            101, False, id="a firing alert that started before the end is stale just after the resolve"
        ),
        pytest.param(700, False, id="it is stale for all of staleAfterSeconds"),
        pytest.param(701, True, id="it re-opens the span later"),
    ],
)
def test_stale_firing(received: float, firing: bool) -> None:
    """Promise 2: 600 s of staleAfterSeconds after the resolve that was received at 100."""
    before = folded(fires(), resolves("more", 100))
    after = fold(before, fires("more", received), FILE, at(received))
    assert after.alerts["more"].firing is firing
    if not firing:
        assert after == before


def test_a_span_that_re_opens_keeps_its_counters() -> None:
    """Promise 2: the episode, by whose id steps are counted, is the old one."""
    before = folded(fires(), resolves("more", 100))
    after = fold(before, fires("more", 800), FILE, at(800))
    assert episode_id(after) == episode_id(before)
    assert after.episodes["inference/more"].ended_at is None
    assert after.alerts["more"].opened_at == T0


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(resolves("more", 90, ended=-1), id="a resolve older than the span"),
        pytest.param(resolves("other", 90), id="a resolve of an alert never heard of"),
    ],
)
def test_resolves_that_do_nothing(late: Notification) -> None:
    """Promise 3."""
    before = folded(fires())
    assert fold(before, late, FILE, at(90)) is before


def test_a_resolve_at_the_very_start_of_the_span_ends_it() -> None:
    """The span ends with a resolved whose endsAt is not before its start."""
    assert not folded(fires(), resolves("more", 90, ended=0)).alerts["more"].firing


def test_an_alert_missing_from_a_notification_goes_on_firing() -> None:
    """Promise 4: only its own resolve ends it."""
    record = fold_all(folded(fires("more"), fires("less")), (fires("less", 60),), FILE, at(60))
    assert record.alerts["more"].firing


def test_an_older_delivery_does_not_undo_a_newer_one() -> None:
    """Reordered deliveries: annotations and lastSeenAt only go forward."""
    newest = folded(fires("more", 60, annotations={"value": "9"}))
    assert fold(newest, fires("more", 30, annotations={"value": "3"}), FILE, at(61)) == newest


def test_a_resolve_folded_again_after_the_span_re_opened_is_old_news() -> None:
    """A delivery that is folded twice after a crash cannot end what has begun since."""
    resolve = resolves("more", 100)
    record = folded(fires(), resolve, fires("more", 800))
    assert fold(record, resolve, FILE, at(900)) == record
    assert not fold(record, resolves("more", 900, ended=100), FILE, at(900)).alerts["more"].firing


def test_a_repeat_received_before_the_resolve_is_old_news_after_it() -> None:
    """Its startsAt had moved past the end: folded again, it must not look like a new firing."""
    repeat = fires("more", 60, started=50)
    record = folded(fires(), repeat, resolves("more", 100, ended=40))
    assert fold(record, repeat, FILE, at(200)) == record
    assert fold(record, fires("more", 101, started=50), FILE, at(200)).alerts["more"].firing


def test_the_end_of_a_span_never_moves_back() -> None:
    """A late resolve with an earlier endsAt closes what re-opened, and leaves no gap for a stale firing."""
    record = folded(fires(), resolves("more", 100), fires("more", 800), resolves("more", 900, ended=50))
    assert not record.alerts["more"].firing
    assert record.alerts["more"].ends_at == at(100)


def test_an_episode_lasts_while_any_of_its_alerts_fires() -> None:
    """Two alerts of one trigger are one episode; it ends with the last of them."""
    first, second = fires("more", 0, fingerprint="a"), fires("more", 10, fingerprint="b")
    record = folded(first, second, resolves("more", 20, fingerprint="a"))
    assert episode_id(record) == episode_id(folded(first))
    assert record.episodes["inference/more"].ended_at is None
    record = fold(record, resolves("more", 30, fingerprint="b"), FILE, at(30))
    assert record.episodes["inference/more"].ended_at == at(30)


def test_an_alert_that_re_opens_goes_on_with_the_episode_it_had_joined() -> None:
    """Its steps stay counted though another alert had opened it."""
    record = folded(
        fires("more", 0, fingerprint="a"),
        fires("more", 10, fingerprint="b"),
        resolves("more", 20, fingerprint="a"),
        resolves("more", 30, fingerprint="b"),
        fires("more", 800, fingerprint="b"),
    )
    assert episode_id(record) == episode_id(folded(fires("more", 0, fingerprint="a")))
    assert record.episodes["inference/more"].ended_at is None


def test_an_alert_that_was_forgotten_rejoins_what_others_kept_open() -> None:
    """The trigger has fired all the time."""
    record = folded(
        fires("more", 0, fingerprint="a"),
        fires("more", 10, fingerprint="b"),
        fires("more", 20000, fingerprint="a"),
        fires("more", 30000, fingerprint="b"),
    )
    assert record.alerts["b"].opened_at == at(30000)
    assert episode_id(record) == episode_id(folded(fires("more", 0, fingerprint="a")))


def test_an_alert_that_joins_a_running_episode_opens_none() -> None:
    """Steps are counted per target and trigger, whatever the number of alerts."""
    record = folded(
        fires("more", 0, fingerprint="a"),
        fires("more", 5, fingerprint="b"),
        resolves("more", 10, fingerprint="b"),
        fires("more", 20, fingerprint="b", started=15),
    )
    assert episode_id(record) == episode_id(folded(fires("more", 0, fingerprint="a")))


@pytest.mark.parametrize(
    ("unheard", "expected"),
    [
        pytest.param(-5, Condition.FIRING, id="heard of later than now, by a clock set back: firing"),
        pytest.param(899, Condition.FIRING, id="heard of within alertTimeoutSeconds: firing"),
        pytest.param(900, Condition.UNKNOWN, id="not heard of for 900 s: unknown"),
        pytest.param(22499, Condition.UNKNOWN, id="unknown for almost 21600 s: still unknown"),
        pytest.param(22500, Condition.FORGOTTEN, id="unknown for 21600 s: forgotten"),
    ],
)
def test_ageing(unheard: float, expected: Condition) -> None:
    """Promise 6: alertTimeoutSeconds 900, then forgetAfterSeconds 21600."""
    assert condition(span(), Timing(), at(unheard)) is expected


def test_an_alert_received_later_than_now_is_received_now() -> None:
    """A clock that was set back: it must not keep an alert alive for as long as that."""
    record = fold(Record(REF), fires("more", 5000), FILE, at(50))
    assert record.alerts["more"].last_seen_at == at(50)
    assert record.alerts["more"].opened_at == at(50)


def test_suppressed_and_resolved() -> None:
    """Suppressed is silenced, and resolved is over however old it is."""
    assert condition(span(suppressed=True), Timing(), at(1)) is Condition.SUPPRESSED
    assert condition(span(suppressed=True), Timing(), at(900)) is Condition.UNKNOWN
    assert condition(span(firing=False), Timing(), at(99999)) is Condition.RESOLVED


def test_what_is_delivered_is_not_suppressed() -> None:
    """Alertmanager does not deliver what it silences."""
    quiet = replace(folded(fires()), alerts={"more": span(suppressed=True)})
    assert not fold(quiet, fires("more", 60), FILE, at(60)).alerts["more"].suppressed


def test_an_alert_forgotten_while_firing_begins_anew() -> None:
    """Heard of again after it was forgotten, it opens a new span and a new episode."""
    before = folded(fires())
    after = fold(before, fires("more", 30000), FILE, at(30000))
    assert after.alerts["more"].opened_at == at(30000)
    assert episode_id(after) != episode_id(before)


def test_next_change_is_when_the_first_alert_becomes_unknown() -> None:
    """Then the first is forgotten; nothing follows."""
    record = folded(fires("more"), fires("less", 50))
    assert next_change(record, FILE, at(60)) == at(900)
    assert next_change(record, FILE, at(950)) == at(900 + 21600)
    assert next_change(folded(fires(), resolves("more", 9)), FILE, at(10)) is None


def test_next_change_of_standing_alerts_counts_the_heartbeat() -> None:
    """The heartbeat is missed after its own timeout."""
    file = settings(heartbeat=Heartbeat((parse('alertname="Watchdog"'),), s(120)))
    assert next_change([span("Watchdog", heard=10)], file, at(20)) == at(130)


def test_a_standing_alert_folds_like_any_other() -> None:
    """Holds and heartbeats have spans too."""
    opened = fold_standing(None, fires("Watchdog"), FILE, at(0))
    assert opened is not None
    assert opened.firing
    resolved = fold_standing(opened, resolves("Watchdog", 5), FILE, at(5))
    assert resolved is not None
    assert not resolved.firing
    assert fold_standing(None, resolves("Watchdog", 5), FILE, at(5)) is None


def test_rematch_closes_the_episodes_of_vanished_triggers() -> None:
    """On reload, known alerts are matched anew."""
    record = folded(fires("more"), fires("less"))
    assert set(rematch(record, settings(policy(LESS))).episodes) == {"inference/less"}
    assert rematch(record, FILE) is record


def test_rematch_opens_an_episode_for_a_trigger_that_is_new() -> None:
    """The alert is known already; its new trigger counts its own steps, from none."""
    renamed = replace(MORE, name="renamed")
    record = rematch(folded(fires("more")), settings(policy(renamed, LESS)))
    assert set(record.episodes) == {"inference/renamed"}
    back = rematch(record, FILE)
    assert episode_id(back) == episode_id(folded(fires("more"))), "a slip in the file costs no step"


def test_rematch_leaves_a_running_episode_alone() -> None:
    """Also when the alert that opened it is over: steps stay counted across a reload."""
    record = folded(
        fires("more", 0, fingerprint="a"),
        fires("more", 10, fingerprint="b"),
        resolves("more", 20, fingerprint="a"),
    )
    assert rematch(record, settings(policy(MORE))) is record


def test_rematch_ends_the_episode_of_a_trigger_that_lost_its_alerts() -> None:
    """They fire on, for another trigger; what it had resolved before may still re-open."""
    wide = replace(MORE, name="wide", matchers=(parse('fp="b"'),))
    record = folded(
        fires("more", 0, fingerprint="a"),
        fires("more", 10, fingerprint="b", labels={"fp": "b"}),
        resolves("more", 20, fingerprint="a"),
    )
    matched = rematch(record, settings(policy(wide, MORE)))
    assert matched.episodes["inference/more"].ended_at is not None
    assert matched.episodes["inference/wide"].ended_at is None


def test_prune_forgets_what_can_matter_no_more() -> None:
    """A resolved alert goes when it could no longer re-open usefully, with its episode and steps."""
    record = folded(fires("more"), resolves("more", 100), fires("less", 20000))
    steps = {episode_id(record): 1, episode_id(record, "less"): 2, "long gone": 1}
    record = replace(record, ledger=replace(record.ledger, steps=steps))
    soon = prune(record, FILE, at(21000))
    assert set(soon.alerts) == {"more", "less"}
    assert set(soon.ledger.steps) == {episode_id(record), episode_id(record, "less")}
    late = prune(record, FILE, at(23000))
    assert set(late.alerts) == {"less"}
    assert late.ledger.steps == {episode_id(record, "less"): 2}
    assert set(late.episodes) == {"inference/less"}


def test_prune_forgets_an_alert_that_was_forgotten_while_firing() -> None:
    """Not heard of for alertTimeoutSeconds and forgetAfterSeconds."""
    assert prune(folded(fires()), FILE, at(22499)).alerts
    assert not prune(folded(fires()), FILE, at(22500)).alerts


def _sent(firing: bool, name: str, started: int, delay: int, ended: int) -> Notification:
    fingerprint = f"{name}{started % 2}"
    if firing:
        return fires(name, started + delay, started=started, fingerprint=fingerprint)
    ended = started + min(ended, delay)
    return resolves(name, started + delay, started=started, ended=ended, fingerprint=fingerprint)


NOTIFICATIONS = st.builds(
    _sent,
    st.booleans(),
    st.sampled_from(["more", "less"]),
    st.integers(0, 2000),
    st.integers(0, 900),
    st.integers(0, 800),
)


def _from_the_first_firing(sent: list[Notification]) -> list[Notification]:
    """Without resolves of alerts not heard of yet, which do nothing the first time, and one at a time."""
    last: dict[str, datetime] = {}
    kept = []
    for each in sent:
        known = last.get(each.fingerprint)
        if each.firing if known is None else each.received_at > known:
            kept.append(each)
            last[each.fingerprint] = each.received_at
    return kept


def _unseen(record: Record) -> Record:
    return replace(
        record, alerts={name: replace(each, last_seen_at=T0) for name, each in record.alerts.items()}
    )


@given(st.lists(NOTIFICATIONS, max_size=12), st.data())
def test_folding_any_delivery_again_changes_nothing(sent: list[Notification], data: st.DataObject) -> None:
    """Duplicates are harmless wherever they come: at most lastSeenAt moves."""
    received = _from_the_first_firing(sorted(sent, key=lambda each: each.received_at))
    record = folded(*received)
    if received:
        again = data.draw(st.sampled_from(received))
        assert _unseen(fold(record, again, FILE, at(5000))) == _unseen(record)


@given(st.lists(NOTIFICATIONS, max_size=12))
def test_folding_the_whole_inbox_again_changes_nothing(sent: list[Notification]) -> None:
    """After a crash the inbox may be folded twice."""
    received = _from_the_first_firing(sorted(sent, key=lambda each: each.received_at))
    record = folded(*received)
    again = fold_all(record, received, FILE, at(5000))
    assert _unseen(again) == _unseen(record)


@given(st.lists(NOTIFICATIONS, max_size=12))
def test_an_episode_is_open_exactly_while_an_alert_of_its_trigger_fires(sent: list[Notification]) -> None:
    """In whatever order deliveries come."""
    record = folded(*sent)
    for name in ("more", "less"):
        firing = any(each.firing for each in record.alerts.values() if each.labels["alertname"] == name)
        episode = record.episodes.get(f"inference/{name}")
        assert firing == (episode is not None and episode.ended_at is None)
