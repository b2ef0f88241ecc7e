"""A trigger's times of firing on one target. Steps are counted by the episode's id. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from responder.model import Episode, Record, Span
from responder.policy import Policy, Settings, Trigger, policy_of, trigger_of


def key_of(policy: Policy, trigger: Trigger) -> str:
    """The name under which a record keeps the trigger's episode."""
    return f"{policy.name}/{trigger.name}"


def claim_of(settings: Settings, labels: Mapping[str, str]) -> tuple[str, Trigger] | None:
    """The key and the trigger that an alert with these labels falls under."""
    policy = policy_of(settings.policies, labels)
    trigger = trigger_of(policy, labels) if policy is not None else None
    if policy is None or trigger is None:
        return None
    return key_of(policy, trigger), trigger


def opened(key: str, trigger: Trigger, span: Span) -> Episode:
    """A new episode. Its id follows from the span alone, so that folding twice does not make two of them."""
    opened_at = span.opened_at.isoformat(timespec="microseconds")
    return Episode(f"{key}/{span.fingerprint}/{opened_at}", trigger.name, span.opened_at)


def episode_of(record: Record, policy: Policy, trigger: Trigger, span: Span) -> Episode:
    """The trigger's episode as recorded, else the one that this span would open."""
    key = key_of(policy, trigger)
    return record.episodes.get(key) or opened(key, trigger, span)


def after(
    episodes: Mapping[str, Episode],
    spans: dict[str, Span],
    before: Span | None,
    span: Span,
    settings: Settings,
    now: datetime,
) -> Mapping[str, Episode]:
    """The episodes once `before` has become `span`, which is in `spans` already."""
    same_span = before is not None and before.opened_at == span.opened_at
    if same_span and before is not None and before.firing == span.firing:
        return episodes
    claim = claim_of(settings, span.labels)
    if claim is None:
        return episodes
    key, trigger = claim
    known = episodes.get(key)
    if span.firing:
        # A span in place of one that was forgotten while it fired goes on with what others keep open.
        alone = known is not None and before is not None and before.firing
        alone = alone and not _any_fires(spans, key, settings, besides=span.fingerprint)
        if known is None or alone or (known.ended_at is not None and not same_span):
            return {**episodes, key: opened(key, trigger, span)}
        # A span that re-opens re-opens its episode, whose steps stay counted.
        return episodes if known.ended_at is None else {**episodes, key: replace(known, ended_at=None)}
    if known is None or known.ended_at is not None or _any_fires(spans, key, settings):
        return episodes
    return {**episodes, key: replace(known, ended_at=now)}


def _any_fires(spans: dict[str, Span], key: str, settings: Settings, besides: str = "") -> bool:
    # Groups resolve in the order in which they fired, so one that still fires is found at the end.
    for span in reversed(spans.values()):
        if span.firing and span.fingerprint != besides:
            claim = claim_of(settings, span.labels)
            if claim is not None and claim[0] == key:
                return True
    return False


def rebuilt(record: Record, settings: Settings) -> Mapping[str, Episode]:
    """The episodes under these settings: those of vanished triggers go, those of new ones open."""
    firing: dict[str, tuple[Trigger, Span]] = {}
    known: dict[str, Trigger] = {}
    for span in record.alerts.values():
        claim = claim_of(settings, span.labels)
        if claim is None:
            continue
        key, trigger = claim
        known[key] = trigger
        first = firing.get(key)
        if span.firing and (first is None or _order(span) < _order(first[1])):
            firing[key] = (trigger, span)
    episodes = {key: episode for key, episode in record.episodes.items() if key in known}
    for key, (trigger, span) in firing.items():
        if key not in episodes or episodes[key].ended_at is not None:
            episodes[key] = opened(key, trigger, span)
    return {
        key: episode
        if key in firing or episode.ended_at
        else replace(episode, ended_at=_last(record, episode))
        for key, episode in episodes.items()
    }


def _order(span: Span) -> tuple[datetime, str]:
    return span.opened_at, span.fingerprint


def _last(record: Record, episode: Episode) -> datetime:
    return max((span.last_seen_at for span in record.alerts.values()), default=episode.started_at)
