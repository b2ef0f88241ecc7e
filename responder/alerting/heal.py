"""Setting right what webhooks missed, from what every Alertmanager says stands now (promise 6). Pure."""

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from responder.alerting import episodes as episodes_of
from responder.alerting.spans import fingerprint_of, fingerprint_within, heard
from responder.model import AlertmanagerReading, Episode, Notification, Record, Span, StandingAlert
from responder.policy import Settings

UP_LONG_ENOUGH = timedelta(minutes=10)
"""An Alertmanager keeps no alerts across a restart, and learns of them only as Prometheus sends them again."""
BETWEEN_READS = timedelta(seconds=60)
ANY: Set[str] = frozenset()
"""No receiver is known to be ours yet, so every alert may be for us."""


@dataclass(frozen=True, slots=True)
class Readings:
    """What all Alertmanagers say, by fingerprint; made once and used for every record."""

    all: tuple[AlertmanagerReading, ...]
    by_fingerprint: Mapping[str, tuple[tuple[AlertmanagerReading, StandingAlert], ...]]


def gathered(readings: Sequence[AlertmanagerReading]) -> Readings:
    """Order the readings by fingerprint. One with an error says nothing."""
    found: dict[str, tuple[tuple[AlertmanagerReading, StandingAlert], ...]] = {}
    for reading in readings:
        for alert in () if reading.error else reading.alerts:
            found[alert.fingerprint] = (*found.get(alert.fingerprint, ()), (reading, alert))
    return Readings(tuple(readings), found)


def heal(
    record: Record, readings: Readings, settings: Settings, now: datetime, receivers: Set[str] = ANY
) -> Record:
    """The record with its alerts as the Alertmanagers have them.

    Firing if any has it active and routed to one of `receivers`, which are ours. Resolved only if all answer, each
    up for ten minutes, and two reads a minute apart do not have it at all. Suppressed is silenced, not resolved.
    """
    alerts: dict[str, Span] = dict(record.alerts)
    episodes: Mapping[str, Episode] = record.episodes
    for fingerprint, before in record.alerts.items():
        span = heal_span(before, readings, settings, now, receivers)
        if span is not before:
            alerts[fingerprint] = span
            episodes = episodes_of.after(episodes, alerts, before, span, settings, now)
    if alerts == record.alerts:
        return record
    return replace(record, alerts=alerts, episodes=episodes)


def heal_span(
    span: Span, readings: Readings, settings: Settings, now: datetime, receivers: Set[str] = ANY
) -> Span:
    """The same for one alert, as for those that stand alone."""
    found = readings.by_fingerprint.get(fingerprint_of(span.fingerprint), ())
    active = [pair for pair in found if _fires_for(pair[1], receivers)]
    if active:
        reading, alert = max(active, key=lambda pair: (pair[0].read_at, pair[0].url))
        said = replace(_notification(alert, reading, now), fingerprint=span.fingerprint)
        return heard(span, said, settings.timing) or span
    suppressed = [reading.read_at for reading, alert in found if alert.state == "suppressed"]
    if suppressed:
        return _suppressed(span, min(max(suppressed), now))
    if found:
        # It stands, though not for us, or is not processed yet: neither firing nor over.
        return span if span.denied_at is None else replace(span, denied_at=None)
    return _absent(span, readings.all, now)


def unheard(
    known: Container[str], readings: Readings, now: datetime, receivers: Set[str] = ANY
) -> tuple[Notification, ...]:
    """Alerts that fire for us and that no webhook told of, to be folded like a delivery."""
    found: list[Notification] = []
    for fingerprint, pairs in readings.by_fingerprint.items():
        told = next((pair for pair in pairs if _fires_for(pair[1], receivers)), None)
        if told is None:
            continue
        within = fingerprint_within(fingerprint, told[1].labels.get("namespace", ""))
        if fingerprint not in known and within not in known:
            found.append(_notification(told[1], told[0], now))
    return tuple(found)


def _fires_for(alert: StandingAlert, receivers: Set[str]) -> bool:
    return alert.state == "active" and (not receivers or not receivers.isdisjoint(alert.receivers))


def _notification(alert: StandingAlert, reading: AlertmanagerReading, now: datetime) -> Notification:
    return Notification(
        fingerprint=alert.fingerprint,
        firing=True,
        labels=alert.labels,
        annotations=alert.annotations,
        starts_at=alert.starts_at,
        ends_at=None,
        received_at=min(reading.read_at, now),
        generator_url=alert.generator_url,
    )


def _suppressed(span: Span, read_at: datetime) -> Span:
    if not span.firing or read_at < span.last_seen_at:
        return span
    return replace(span, suppressed=True, last_seen_at=read_at, denied_at=None)


def _absent(span: Span, readings: Sequence[AlertmanagerReading], now: datetime) -> Span:
    if not span.firing or not readings or not all(_knows(reading, span) for reading in readings):
        return span
    read_at = min(*(reading.read_at for reading in readings), now)
    if span.denied_at is None or span.denied_at > read_at:
        return replace(span, denied_at=read_at)
    if read_at - span.denied_at < BETWEEN_READS:
        return span
    return replace(
        span, firing=False, ends_at=now, resolved_received_at=now, suppressed=False, denied_at=None
    )


def _knows(reading: AlertmanagerReading, span: Span) -> bool:
    """True if this Alertmanager would know of the alert, were it firing."""
    return (
        not reading.error
        and reading.up_since is not None
        and reading.read_at - reading.up_since >= UP_LONG_ENOUGH
        and reading.read_at > span.last_seen_at
    )
