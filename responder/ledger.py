"""What a record keeps of acting: steps, changes, cooldowns, foreign changes, recommendations. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from responder.model import (
    Change,
    Decision,
    Direction,
    Intent,
    Ledger,
    Reason,
    Recommendation,
    Record,
    Reverts,
)

LOOK_BACK = timedelta(days=7)
"""No window and no period may be longer. What a policy's own do not need goes at the next look."""
REVERTS_WITHIN = timedelta(hours=24)
BACKOFF = timedelta(minutes=10)
LONGEST_BACKOFF = timedelta(hours=6)
_CHANGES_KEPT = 8
"""However old: what a revert restores, and whether a 0 is ours, is told from the last changes."""


def charge(record: Record, intent: Intent, *, dry_run: bool = False) -> Record:
    """Count a change of ours that took effect, from its `decided_at`. Charging an intent twice counts once.

    A dry run's change is kept in the shadow ledger, and leaves the record's replicas alone.
    """
    ledger = record.shadow if dry_run else record.ledger
    if any(change.intent == intent.id for change in ledger.changes):
        return record
    ledger = _charged(ledger, intent)
    if dry_run:
        return replace(record, shadow=ledger)
    zero_from = record.zero_from
    if intent.to_replicas > 0:
        zero_from = None
    elif intent.reason is Reason.PINNED and intent.from_replicas > 0:
        zero_from = intent.from_replicas
    return replace(record, ledger=ledger, replicas=intent.to_replicas, zero_from=zero_from)


def foreign(record: Record, replicas: int, manager: str, now: datetime) -> Record:
    """Respect a change that no intent explains, first seen now. One that undoes ours is a revert."""
    return replace(
        record,
        replicas=replicas,
        manager=manager,
        foreign_at=now,
        zero_from=None,
        reverts=_reverts(record, replicas, manager, now),
    )


def note(record: Record, decision: Decision, now: datetime, dry_run: bool = False) -> Record:
    """Keep what a look found, also when it holds: the recommendation, and since when a value is missing."""
    record = clamped(record, now)
    ledger = record.shadow if dry_run else record.ledger
    noted = _noted(ledger, decision, now)
    missing: Mapping[str, datetime] = {name: record.missing.get(name, now) for name in decision.missing}
    if noted is ledger and missing == record.missing:
        return record
    if dry_run:
        return replace(record, shadow=noted, missing=missing)
    return replace(record, ledger=noted, missing=missing)


def clamped(record: Record, now: datetime) -> Record:
    """Let times later than now count as now: left by a clock that was set back, they would block for ever."""
    ledger, shadow = _clamped(record.ledger, now), _clamped(record.shadow, now)
    foreign_at = None if record.foreign_at is None else min(record.foreign_at, now)
    missing: Mapping[str, datetime] = record.missing
    if any(since > now for since in missing.values()):
        missing = {name: min(since, now) for name, since in missing.items()}
    reverts = record.reverts
    if reverts is not None and reverts.last_at > now:
        until = None if reverts.until is None else min(reverts.until, now + LONGEST_BACKOFF)
        reverts = replace(reverts, last_at=now, until=until)
    later = (ledger, shadow, foreign_at, missing, reverts)
    if later == (record.ledger, record.shadow, record.foreign_at, record.missing, record.reverts):
        return record
    return replace(
        record, ledger=ledger, shadow=shadow, foreign_at=foreign_at, missing=missing, reverts=reverts
    )


def _clamped(ledger: Ledger, now: datetime) -> Ledger:
    times = (ledger.last_up_at, ledger.last_down_at, *(change.at for change in ledger.changes[-1:]))
    steps = ledger.recommendations
    if all(at is None or at <= now for at in times) and (not steps or steps[-1].at <= now):
        return ledger
    # Of steps that fall together, the last one is in force.
    kept = [step for step in steps if step.at <= now]
    if len(kept) < len(steps):
        kept = [*(step for step in kept if step.at < now), Recommendation(now, steps[-1].replicas)]
    return replace(
        ledger,
        last_up_at=None if ledger.last_up_at is None else min(ledger.last_up_at, now),
        last_down_at=None if ledger.last_down_at is None else min(ledger.last_down_at, now),
        changes=tuple(replace(change, at=min(change.at, now)) for change in ledger.changes),
        recommendations=tuple(kept),
    )


def with_steps_of(record: Record, episodes: frozenset[str]) -> Record:
    """Drop the steps of all other episodes."""
    return replace(record, ledger=_of(record.ledger, episodes), shadow=_of(record.shadow, episodes))


FALLBACK = "/fallback"
"""Ends the name under which the steps of a trigger's fallback are counted, beside those it is sized by."""


def _of(ledger: Ledger, episodes: frozenset[str]) -> Ledger:
    kept = {name: steps for name, steps in ledger.steps.items() if name.removesuffix(FALLBACK) in episodes}
    return ledger if len(kept) == len(ledger.steps) else replace(ledger, steps=kept)


def _charged(ledger: Ledger, intent: Intent) -> Ledger:
    at = intent.decided_at
    steps = ledger.steps
    if intent.episode is not None:
        steps = {**steps, intent.episode: steps.get(intent.episode, 0) + 1}
    change = Change(at, intent.from_replicas, intent.to_replicas, intent.id)
    recent = [old for old in ledger.changes if old.at > at - LOOK_BACK]
    changes = (*max(recent, list(ledger.changes[-_CHANGES_KEPT:]), key=len), change)
    if intent.direction is Direction.UP:
        last_up_at = at if ledger.last_up_at is None else max(at, ledger.last_up_at)
        return replace(
            ledger, steps=steps, changes=changes, last_up_at=last_up_at, last_up_to=intent.to_replicas
        )
    last_down_at = at if ledger.last_down_at is None else max(at, ledger.last_down_at)
    return replace(ledger, steps=steps, changes=changes, last_down_at=last_down_at)


def _noted(ledger: Ledger, decision: Decision, now: datetime) -> Ledger:
    # Without any history the past is "what is there", so that is not worth a line.
    replicas, steps = decision.recommendation, ledger.recommendations
    last = steps[-1].replicas if steps else None
    if last != replicas:
        steps = (*(step for step in steps if step.at != now), Recommendation(now, replicas))
    start = now - decision.remember
    over = sum(1 for step in steps if step.at <= start)
    steps = _decisive(steps[max(over - 1, 0) :])
    recent = sum(1 for change in ledger.changes if change.at > start)
    changes = ledger.changes[-max(recent, _CHANGES_KEPT) :]
    if (steps, changes) == (ledger.recommendations, ledger.changes):
        return ledger
    return replace(ledger, recommendations=steps, changes=changes)


def _decisive(steps: tuple[Recommendation, ...]) -> tuple[Recommendation, ...]:
    """Without the steps that no window's least or greatest can be, so that a busy hour stays a short list.

    A step is neither once a later one is as great and a later one as small: those stay in every window longer.
    The next one takes over its time, which it outlasts anyway.
    """
    kept: list[Recommendation] = []
    numbers: list[int] = []
    what_is_there = False
    for step in reversed(steps):
        if step.replicas is None:
            idle, what_is_there = what_is_there, True
        else:
            idle = bool(numbers) and min(numbers) <= step.replicas <= max(numbers)
            numbers.append(step.replicas)
        if idle:
            kept[-1] = replace(kept[-1], at=step.at)
        else:
            kept.append(step)
    return tuple(reversed(kept))


def _reverts(record: Record, replicas: int, manager: str, now: datetime) -> Reverts | None:
    before = record.reverts
    if not _undoes(record, replicas):
        return before
    recent = before is not None and now - before.last_at <= REVERTS_WITHIN
    count = before.count + 1 if recent and before is not None else 1
    until = None
    if count > 1:
        until = now + min(BACKOFF * 2 ** min(count - 2, 16), LONGEST_BACKOFF)
    return Reverts(count, now, manager, until, replicas)


def _undoes(record: Record, replicas: int) -> bool:
    """True if our last change stood until now, and the new count is one that ours had replaced."""
    standing = record.replicas
    earlier: list[int] = []
    for change in reversed(record.ledger.changes):
        if change.to_replicas != standing:
            break
        standing = change.from_replicas
        earlier.append(standing)
    return replicas != record.replicas and replicas in earlier
