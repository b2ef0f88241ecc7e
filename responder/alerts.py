"""Folding notifications into what is known of a target's alerts, and how that ages (promises 1 to 6). Pure.

`heal`, `holds_on` and `safe_mode` have modules of their own and are at hand here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from responder.alerting import episodes as episodes_of
from responder.alerting.heal import gathered, heal, heal_span, unheard
from responder.alerting.spans import Condition, changes_at, condition, heard
from responder.deciding.holds import holds_on, safe_mode
from responder.ledger import with_steps_of
from responder.model import Episode, Notification, Record, Span
from responder.policy import Settings, Timing

__all__ = [
    "Condition",
    "condition",
    "fold",
    "fold_all",
    "fold_standing",
    "gathered",
    "heal",
    "heal_span",
    "holds_on",
    "next_change",
    "prune",
    "prunes_span",
    "rematch",
    "safe_mode",
    "unheard",
]


def fold(record: Record, notification: Notification, settings: Settings, now: datetime) -> Record:
    """What is known of the record's alerts after one notification. Folding it again changes nothing."""
    return fold_all(record, (notification,), settings, now)


def fold_all(
    record: Record, notifications: Sequence[Notification], settings: Settings, now: datetime
) -> Record:
    """Fold several, in order: a group of 10,000 alerts copies its record once."""
    alerts: dict[str, Span] = dict(record.alerts)
    episodes: Mapping[str, Episode] = record.episodes
    changed = False
    for notification in notifications:
        timely = _timely(notification, now)
        before = alerts.get(timely.fingerprint)
        span = heard(before, timely, settings.timing)
        if span is None or span is before:
            continue
        changed = True
        alerts[span.fingerprint] = span
        episodes = episodes_of.after(episodes, alerts, before, span, settings, timely.received_at)
    return replace(record, alerts=alerts, episodes=episodes) if changed else record


def fold_standing(
    span: Span | None, notification: Notification, settings: Settings, now: datetime
) -> Span | None:
    """The same for an alert that stands alone: a hold or the heartbeat. None if nothing is known of it."""
    return heard(span, _timely(notification, now), settings.timing)


def rematch(record: Record, settings: Settings) -> Record:
    """Match the known alerts anew under a changed policy file: episodes of vanished triggers are closed."""
    episodes = episodes_of.rebuilt(record, settings)
    return record if episodes == record.episodes else replace(record, episodes=episodes)


def next_change(known: Record | Iterable[Span], settings: Settings, now: datetime) -> datetime | None:
    """When the next alert becomes unknown or is forgotten, or the heartbeat is missed, if nothing is heard."""
    spans = known.alerts.values() if isinstance(known, Record) else known
    heartbeat = settings.heartbeat
    moments: list[datetime] = []
    for span in spans:
        moments += changes_at(span, settings.timing)
        if heartbeat is not None and span.firing:
            moments.append(span.last_seen_at + heartbeat.timeout)
    return min((at for at in moments if at > now), default=None)


def prune(record: Record, settings: Settings, now: datetime) -> Record:
    """Forget what can matter no more: alerts forgotten or long resolved, their episodes, and those's steps.

    A resolved alert is kept as long as a forgotten one, since it may re-open with its counters.
    """
    kept = {name: span for name, span in record.alerts.items() if not prunes_span(span, settings.timing, now)}
    if len(kept) < len(record.alerts):
        record = replace(record, alerts=kept)
        record = replace(record, episodes=episodes_of.rebuilt(record, settings))
    keep_for = _keep_for(settings.timing)
    episodes = {
        key: episode
        for key, episode in record.episodes.items()
        if episode.ended_at is None or now - episode.ended_at < keep_for
    }
    if episodes != record.episodes:
        record = replace(record, episodes=episodes)
    return with_steps_of(record, frozenset(episode.id for episode in record.episodes.values()))


def prunes_span(span: Span, timing: Timing, now: datetime) -> bool:
    """True if the alert can be forgotten altogether."""
    found = condition(span, timing, now)
    if found is Condition.RESOLVED:
        return now - (span.resolved_received_at or span.last_seen_at) >= _keep_for(timing)
    return found is Condition.FORGOTTEN


def _keep_for(timing: Timing) -> timedelta:
    return max(timing.stale_after, timing.forget_after) + timing.alert_timeout


def _timely(notification: Notification, now: datetime) -> Notification:
    """One received later than now, by a clock that was set back, counts as received now."""
    if notification.received_at <= now:
        return notification
    return replace(notification, received_at=now)
