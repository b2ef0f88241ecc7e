"""Recorded history under another policy file: each decision made again from what was there then. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from responder import alerts
from responder.decide import decide, sized_triggers
from responder.inputs import inputs_of
from responder.model import (
    Budget,
    Decision,
    Direction,
    HistoryEntry,
    Observed,
    Record,
)
from responder.policy import Policy, Settings, allowed, governing
from responder.store import StoredEntry
from responder.verdicts import unclaimed


@dataclass(frozen=True, slots=True)
class Difference:
    """One decision that would be another. `unrecorded` are triggers whose value was not asked for then."""

    id: int
    entry: HistoryEntry
    decision: Decision
    unrecorded: tuple[str, ...] = ()

    @property
    def acts_otherwise(self) -> bool:
        return self.entry.desired != self.decision.desired


@dataclass(frozen=True, slots=True)
class Replayed:
    """`skipped` lines hold no decision that could be made again."""

    compared: int
    skipped: int
    differences: tuple[Difference, ...]


def replay(history: Iterable[StoredEntry], settings: Settings) -> Replayed:
    """Decide again what history recorded, each line for itself: what would have followed is not played on."""
    compared = skipped = 0
    differences: list[Difference] = []
    for stored in history:
        decided = again(stored.entry, settings)
        if decided is None:
            skipped += 1
            continue
        compared += 1
        decision, unrecorded = decided
        if (decision.desired, decision.reason) != (stored.entry.desired, stored.entry.reason):
            differences.append(Difference(stored.id, stored.entry, decision, unrecorded))
    return Replayed(compared, skipped, tuple(differences))


def again(entry: HistoryEntry, settings: Settings) -> tuple[Decision, tuple[str, ...]] | None:
    """The decision that the settings lead to, and triggers without a recorded value; None if it cannot be said."""
    inputs = inputs_of(entry)
    if inputs is None:
        return None
    observed, record = inputs[0], alerts.rematch(inputs[1], settings)
    permitted = allowed(settings, record.target.namespace)
    policy = _policy(settings, record, entry)
    if policy is None or not permitted:
        return unclaimed(replace(record, replicas=observed.workload.replicas), permitted), ()
    # Whether a policy writes is no question of what it decides, and each has a past of its own.
    policy = replace(policy, dry_run=entry.dry_run)
    needed = [trigger.name for trigger, _ in sized_triggers(policy, record, entry.at)]
    unrecorded = tuple(name for name in needed if name not in observed.values)
    return decide(policy, _under(observed, settings), record, entry.at), unrecorded


def _under(observed: Observed, settings: Settings) -> Observed:
    """What was there then, but for what the policy file itself says."""
    kept = {hold.name: hold for hold in settings.holds}
    holds = tuple(
        replace(hold, forbid=kept[hold.name].forbid) for hold in observed.holds if hold.name in kept
    )
    budget = observed.budget
    limited = settings.budgets
    return replace(
        observed,
        holds=holds,
        freeze=settings.freeze or observed.freeze,
        safe_mode=observed.safe_mode if settings.heartbeat is not None else "",
        budget=Budget(
            budget.up if Direction.UP in limited else None,
            budget.down if Direction.DOWN in limited else None,
            budget.up_until,
            budget.down_until,
        ),
    )


def _policy(settings: Settings, record: Record, entry: HistoryEntry) -> Policy | None:
    policy = governing(settings, record)
    if policy is None and record.zero_from is not None:
        return next((each for each in settings.policies if each.name == entry.policy), None)
    return policy
