"""Promise 6: what the Alertmanagers say mends what webhooks missed."""

from dataclasses import replace
from typing import Any

import pytest

from responder.alerts import gathered, heal, heal_span, unheard
from responder.model import AlertmanagerReading, Record, StandingAlert
from tests.deciding import at, episode_id, fires, record, resolves, settings, span
from tests.test_alerts import folded

FILE = settings()


def alert(name: str = "more", state: str = "active", started: float = 0, **more: Any) -> StandingAlert:
    labels = {"alertname": name, "namespace": "inference"}
    return StandingAlert(name, labels, {}, at(started), at(9999), state, ("responder",), **more)


def reading(
    read: float, *alerts: StandingAlert, up: float | None = -7200, error: str = "", url: str = "a"
) -> AlertmanagerReading:
    return AlertmanagerReading(url, at(read), None if up is None else at(up), alerts, error)


def healed(found: Record, *readings: AlertmanagerReading, receiver: str = "responder") -> Record:
    now = max(each.read_at for each in readings)
    return heal(found, gathered(readings), FILE, now, frozenset({receiver} - {""}))


def test_absent_in_two_reads_a_minute_apart_is_resolved() -> None:
    """A lost resolve: the span and its episode end."""
    found = healed(record("more"), reading(100))
    assert found.alerts["more"].firing
    assert found.alerts["more"].denied_at == at(100)
    assert healed(found, reading(159)) is found, "59 s: not yet"
    found = healed(found, reading(160))
    assert not found.alerts["more"].firing
    assert found.alerts["more"].ends_at == at(160)
    assert found.episodes["inference/more"].ended_at == at(160)


def test_one_read_used_twice_is_not_two_reads() -> None:
    """However late it is looked at again."""
    once = healed(record("more"), reading(100))
    assert heal(once, gathered([reading(100)]), FILE, at(500)).alerts["more"].firing


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(reading(200, error="connection refused", url="b"), id="it does not answer"),
        pytest.param(reading(200, up=-100, url="b"), id="it is up for 300 s only, and may know nothing yet"),
        pytest.param(reading(200, up=None, url="b"), id="it does not say since when it is up"),
        pytest.param(reading(200, alert(), url="b"), id="it has the alert"),
        pytest.param(reading(200, alert(state="suppressed"), url="b"), id="it has it silenced"),
        pytest.param(reading(200, alert(state="unprocessed"), url="b"), id="it has it, not yet processed"),
    ],
)
def test_every_alertmanager_must_deny_it(second: AlertmanagerReading) -> None:
    """Resolved only if all answer and none has it."""
    found = replace(record("more"), alerts={"more": span("more", denied_at=at(50))})
    assert healed(found, reading(200), second).alerts["more"].firing


def test_up_for_ten_minutes_is_long_enough() -> None:
    """And a second less is not."""
    found = replace(record("more"), alerts={"more": span("more", denied_at=at(0))})
    assert healed(found, reading(600, up=1)).alerts["more"].firing
    assert not healed(found, reading(600, up=0)).alerts["more"].firing


def test_a_read_from_before_the_last_delivery_denies_nothing() -> None:
    """The alert was told of after the read."""
    found = record("more", heard=300)
    assert healed(found, reading(299)) is found


def test_being_seen_again_takes_a_denial_back() -> None:
    """Two reads in a row must not have it."""
    found = healed(healed(record("more"), reading(100)), reading(130, alert()))
    assert found.alerts["more"].denied_at is None
    assert healed(found, reading(200)).alerts["more"].firing


def test_active_anywhere_keeps_it_alive() -> None:
    """Lost repeats: it does not become unknown."""
    found = healed(record("more"), reading(800, alert()), reading(790, url="b"))
    assert found.alerts["more"].last_seen_at == at(800)


def test_active_after_a_resolve_opens_a_new_span() -> None:
    """A lost webhook of a new firing."""
    found = folded(fires(), resolves("more", 100))
    after = healed(found, reading(300, alert(started=200)))
    assert after.alerts["more"].firing
    assert episode_id(after) != episode_id(found)
    stale = healed(found, reading(300, alert(started=50)))
    assert not stale.alerts["more"].firing, "the other Alertmanager has not heard of the end yet"


def test_suppressed_is_silenced_and_not_resolved() -> None:
    """However often it is read; and it ends with the silence."""
    found = healed(record("more"), reading(100, alert(state="suppressed")))
    found = healed(found, reading(200, alert(state="suppressed")))
    assert found.alerts["more"].firing
    assert found.alerts["more"].suppressed
    assert found.alerts["more"].last_seen_at == at(200)
    assert not healed(found, reading(300, alert())).alerts["more"].suppressed


def test_active_for_another_receiver_is_neither_firing_nor_over() -> None:
    """Routing changed: it is left to age."""
    found = folded(fires(), resolves("more", 100))
    elsewhere = replace(alert(started=200), receivers=("pager",))
    assert healed(found, reading(300, elsewhere)) is found
    firing = replace(record("more"), alerts={"more": span("more", denied_at=at(1))})
    assert healed(firing, reading(300, elsewhere)).alerts["more"].firing


def test_without_alertmanagers_nothing_is_healed() -> None:
    """Alerts age by themselves then."""
    found = record("more")
    assert heal(found, gathered([]), FILE, at(500)) is found


def test_alerts_never_heard_of_are_told_as_notifications() -> None:
    """truncatedAlerts and lost webhooks: only those that fire for us, once each."""
    readings = [
        reading(100, alert("a"), alert("b"), alert("c", state="suppressed"), url="a"),
        reading(100, alert("a"), replace(alert("d"), receivers=("pager",)), url="b"),
        reading(100, alert("e"), error="it broke off", url="c"),
    ]
    found = unheard({"b"}, gathered(readings), at(100), {"responder"})
    assert [(each.fingerprint, each.firing, each.received_at) for each in found] == [("a", True, at(100))]


def test_standing_alerts_and_gathered_readings() -> None:
    """Holds are healed as well, and readings are ordered once for all records."""
    hold = span("hot")
    readings = gathered([reading(100)])
    once = heal_span(hold, readings, FILE, at(100))
    assert once.denied_at == at(100)
    assert heal(record("more"), readings, FILE, at(100)).alerts["more"].denied_at == at(100)


def test_an_alert_that_a_limited_sender_told_of_is_the_one_that_alertmanager_has() -> None:
    """It is kept apart from others' by its namespace: it is healed as itself, and not taken in a second time."""
    own = span("more@inference")
    healer = gathered([reading(100)])
    denied = heal_span(own, healer, FILE, at(100))
    assert denied.denied_at == at(100)
    over = heal_span(denied, gathered([reading(200)]), FILE, at(200))
    assert not over.firing
    again = heal_span(over, gathered([reading(900, alert(started=800))]), FILE, at(900))
    assert (again.firing, again.fingerprint) == (True, "more@inference")
    said = gathered([reading(100, alert())])
    assert unheard({"more@inference"}, said, at(100)) == ()
    assert len(unheard({"more@other"}, said, at(100))) == 1
