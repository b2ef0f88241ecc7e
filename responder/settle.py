"""What became of an intent, from what was about to be written and what is read now. Pure.

The table and its order are promise 19's. They rest on three facts of the API server: `generation` moves with
every change of spec and with nothing else, a write with a stale resourceVersion never lands, and managedFields
name who holds `spec.replicas`. A process may be paused between check and write for any time, so neither clock
nor lease takes part: an intent whose resourceVersion has not moved may still land, however old it is.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from responder import ledger
from responder.model import HistoryEntry, Intent, Outcome, Reason, Record, Workload

MANAGER = "gpu-responder"
"""The field manager that scale writes are made with."""

_TOO_LATE = "an earlier write landed first"


@dataclass(frozen=True, slots=True)
class Settlement:
    """A verdict on one intent. `foreign`: somebody else changed replicas or took the field over.

    `may_land`: nothing has moved since the intent, so a write that was sent or paused may still take effect.
    """

    outcome: Outcome
    foreign: bool = False
    message: str = ""
    may_land: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """A record that has no open intent any more, and what history should say of it.

    `loose` is the intent that was found not applied; `commit_to` or `withdraw` says what becomes of it. `unmoved`:
    spec has not changed since; `may_land`: nor has anything else.
    """

    record: Record
    entries: tuple[HistoryEntry, ...] = ()
    loose: Intent | None = None
    unmoved: bool = False
    may_land: bool = False


def settle(intent: Intent, live: Workload | None) -> Settlement:
    """What became of the intent, given the object and its scale read live at one resourceVersion; None is 404."""
    if live is None:
        return Settlement(Outcome.GONE, message="the target is gone")
    if live.uid != intent.uid:
        return Settlement(Outcome.GONE, message="the target was deleted and made anew")
    if live.generation == intent.generation:
        return Settlement(
            Outcome.NOT_APPLIED,
            message="the target's spec has not changed since",
            may_land=live.resource_version == intent.resource_version,
        )
    if _leaves_no_trace(intent) and not live.manager and live.replicas == intent.to_replicas:
        # Not foreign: if it was somebody else's change, it came to what we wanted.
        return Settlement(
            Outcome.UNCERTAIN,
            message=f"spec.replicas is {live.replicas} and nobody holds it, as our write would have left it",
        )
    ours = live.manager == MANAGER
    if ours and live.replicas == intent.to_replicas:
        return Settlement(Outcome.APPLIED, message=f"{MANAGER} holds spec.replicas at {live.replicas}")
    if ours:
        return Settlement(
            Outcome.NOT_APPLIED, message=f"{MANAGER} still holds spec.replicas at {live.replicas}"
        )
    if live.generation == intent.generation + 1:
        # The one change since leaves the field with another, so it was not ours.
        return Settlement(
            Outcome.NOT_APPLIED,
            foreign=live.replicas != intent.from_replicas or live.manager != intent.manager,
            message=f"the one change since is not ours; {live.manager or 'nobody'} holds spec.replicas",
        )
    return Settlement(
        Outcome.UNCERTAIN,
        foreign=True,
        message=f"spec changed {live.generation - intent.generation} times since, and "
        f"{live.manager or 'nobody'} holds spec.replicas at {live.replicas} now",
    )


def _leaves_no_trace(intent: Intent) -> bool:
    """True if the API server would not keep us as the manager of what is written.

    A Scale at 0 omits spec.replicas, which takes the field from every manager, and a scale write does not begin
    to track a field that nobody holds (recorded of Kubernetes 1.36).
    """
    return intent.to_replicas == 0 or not intent.manager


def is_as_known(record: Record, seen: Workload) -> bool:
    """True if nothing is open and nobody has changed the replicas: then there is nothing to settle or to date."""
    return not record.open_intents and (record.uid, record.replicas, record.manager) == _held(seen)


def account(record: Record, live: Workload | None, now: datetime) -> Settled:
    """Settle the record's open intents against what is read live, charge what took effect, date foreign changes.

    At most one of `intent` and `outstanding` took effect, since both were for one resourceVersion.
    """
    if live is None or (record.uid and live.uid != record.uid):
        return _replaced(record, live, now)
    if is_as_known(record, live):
        return Settled(record)
    found = [(intent, settle(intent, live)) for intent in record.open_intents]
    effects = [(intent, verdict) for intent, verdict in found if verdict.outcome in _EFFECTS]
    left = [(intent, verdict) for intent, verdict in found if verdict.outcome not in _EFFECTS]
    settled, entries = _charged(record, effects, now)
    loose, may_land, outstanding = None, False, None
    for intent, verdict in left:
        if intent is not record.intent:
            outstanding = intent if verdict.may_land else None
        elif effects:
            # The outstanding one took effect, so this one met a resourceVersion that had moved.
            entries.append(entry(record, intent, Outcome.NOT_APPLIED, _TOO_LATE, now))
        else:
            loose, may_land = intent, verdict.may_land
    expected = effects[0][0].to_replicas if effects else record.replicas
    if any(verdict.foreign for _, verdict in found) or expected not in (None, live.replicas):
        if not any(verdict.outcome is Outcome.UNCERTAIN for _, verdict in effects):
            entries.append(_foreign_entry(record, expected, live, now))
        settled = ledger.foreign(settled, live.replicas, live.manager, now)
    uid, replicas, manager = _held(live)
    settled = replace(
        settled, uid=uid, replicas=replicas, manager=manager, intent=None, outstanding=outstanding
    )
    unmoved = loose is not None and loose.generation == live.generation
    return Settled(settled, tuple(entries), loose, unmoved, may_land)


def landed(record: Record, intent_id: str, now: datetime) -> Settled | None:
    """The server has answered that it took this intent's write, so the other open one met a version that had moved.

    None when it is not open any more: another look has settled it, from what it read.
    """
    mine = next((intent for intent in record.open_intents if intent.id == intent_id), None)
    if mine is None:
        return None
    entries = [entry(record, mine, Outcome.APPLIED, "", now)]
    if record.intent is not None and record.intent is not mine:
        entries.append(entry(record, record.intent, Outcome.NOT_APPLIED, _TOO_LATE, now))
    record = replace(
        ledger.charge(record, mine),
        replicas=mine.to_replicas,
        manager=MANAGER,
        intent=None,
        outstanding=None,
        failure=None,
    )
    return Settled(record, tuple(entries))


def commit_to(settled: Settled, intent: Intent, now: datetime) -> Settled:
    """Make `intent` the record's open one, and say what becomes of those it replaces.

    A write that is the same as an earlier one that may still land keeps that one's id: whichever lands, one
    intent is found applied.
    """
    record = settled.record
    loose, outstanding = settled.loose, record.outstanding
    if loose is not None and same_write(loose, intent):
        intent, loose = replace(intent, id=loose.id), None
    elif outstanding is not None and same_write(outstanding, intent):
        intent, outstanding = replace(intent, id=outstanding.id), None
    left = replace(settled, record=replace(record, outstanding=outstanding), loose=loose)
    closed = _close(left, Outcome.NOT_APPLIED, "a new decision takes its place", now)
    return replace(closed, record=replace(closed.record, intent=intent))


def withdraw(
    settled: Settled,
    now: datetime,
    outcome: Outcome | None = None,
    message: str = "nothing is to be written any more",
    reason: Reason | None = None,
) -> Settled:
    """Close the intent that was found not applied, since nothing is to be written now."""
    if outcome is None:
        outcome = Outcome.ABANDONED if settled.unmoved else Outcome.NOT_APPLIED
    return _close(settled, outcome, message, now, reason)


def spend(record: Record, intent: Intent) -> Record:
    """Count the intent's step and nothing else."""
    if intent.episode is None:
        return record
    steps = {**record.ledger.steps, intent.episode: record.ledger.steps.get(intent.episode, 0) + 1}
    return replace(record, ledger=replace(record.ledger, steps=steps))


def same_write(one: Intent, other: Intent) -> bool:
    """True if it makes no difference which of the two lands."""
    return (one.uid, one.resource_version, one.to_replicas, one.episode) == (
        other.uid,
        other.resource_version,
        other.to_replicas,
        other.episode,
    )


def entry(record: Record, intent: Intent, outcome: Outcome, message: str, now: datetime) -> HistoryEntry:
    """The line of history that says what became of an intent."""
    return HistoryEntry(
        at=now,
        target=record.target.key,
        current=intent.from_replicas,
        desired=intent.to_replicas,
        reason=_OUTCOME_REASONS.get(outcome, intent.reason),
        message=f"{intent.message} ({message})" if message else intent.message,
        policy=intent.policy,
        trigger=intent.trigger,
        alerts=intent.alerts,
        intent=intent.id,
        outcome=outcome,
        alert_started_at=min(
            (record.alerts[alert].starts_at for alert in intent.alerts if alert in record.alerts),
            default=None,
        ),
    )


_OUTCOME_REASONS = {
    Outcome.NOT_APPLIED: Reason.WRITE_CONFLICT,
    Outcome.UNCERTAIN: Reason.EFFECT_UNCERTAIN,
    Outcome.GONE: Reason.TARGET_GONE,
    Outcome.ABANDONED: Reason.INTENT_ABANDONED,
}


_EFFECTS = (Outcome.APPLIED, Outcome.UNCERTAIN)


def _held(live: Workload) -> tuple[str, int, str]:
    return live.uid, live.replicas, live.manager


def _charged(
    record: Record, effects: list[tuple[Intent, Settlement]], now: datetime
) -> tuple[Record, list[HistoryEntry]]:
    """Charge the one effect. Of two that may have had it, neither episode may take its step again."""
    if not effects:
        return record, []
    (intent, verdict), others = effects[0], effects[1:]
    entries = [entry(record, intent, verdict.outcome, verdict.message, now)]
    record = ledger.charge(record, intent)
    for other, _ in others:
        if other.episode != intent.episode:
            record = spend(record, other)
    return record, entries


def _replaced(record: Record, live: Workload | None, now: datetime) -> Settled:
    """The object that the record knows is no more; a new one of its name may stand there.

    What was outstanding may have landed before, so it gets its line as well.
    """
    entries = [
        entry(record, intent, Outcome.GONE, settle(intent, live).message, now)
        for intent in record.open_intents
    ]
    record = replace(record, intent=None, outstanding=None)
    if live is None:
        return Settled(record, tuple(entries))
    if record.replicas is not None and live.replicas != record.replicas:
        entries.append(_foreign_entry(record, record.replicas, live, now))
        record = ledger.foreign(record, live.replicas, live.manager, now)
    record = replace(record, uid=live.uid, replicas=live.replicas, manager=live.manager)
    return Settled(record, tuple(entries))


def _close(
    settled: Settled, outcome: Outcome, message: str, now: datetime, reason: Reason | None = None
) -> Settled:
    """Close `loose`; if it may land yet, keep it outstanding until the resourceVersion has moved."""
    loose, record, entries = settled.loose, settled.record, list(settled.entries)
    if loose is None:
        return settled
    line = entry(record, loose, outcome, message, now)
    entries.append(line if reason is None else replace(line, reason=reason))
    if settled.may_land:
        if record.outstanding is not None:
            # One is kept. Of the older it will never be known what became of it: count it as if it had landed.
            older = record.outstanding
            record = spend(record, older)
            entries.append(entry(record, older, Outcome.UNCERTAIN, "it may still land", now))
        record = replace(record, outstanding=loose)
    return Settled(record, tuple(entries))


def _foreign_entry(before: Record, expected: int | None, live: Workload, now: datetime) -> HistoryEntry:
    current = live.replicas if expected is None else expected
    who = live.manager or "somebody"
    message = (
        f"{who} changed replicas from {current} to {live.replicas}; that is respected"
        if current != live.replicas
        else f"{who} holds spec.replicas at {live.replicas} now; that is respected"
    )
    return HistoryEntry(
        at=now,
        target=before.target.key,
        current=current,
        desired=live.replicas,
        reason=Reason.FOREIGN_CHANGE,
        message=message,
    )
