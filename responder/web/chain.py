"""The chain of reasons of a decision in history: made again from its inputs, since history keeps only its end."""

from dataclasses import replace
from typing import Any

import msgspec

from responder.decide import decide
from responder.model import HistoryEntry, Ledger, Observed, Record
from responder.policy import Settings


def chain_of(entry: HistoryEntry, settings: Settings) -> list[dict[str, Any]]:
    """What each rule made of the number; empty when that cannot be told, as after a change of the policy."""
    policy = next((each for each in settings.policies if each.name == entry.policy), None)
    if policy is None or not entry.inputs:
        return []
    try:
        observed = msgspec.convert(entry.inputs["observed"], Observed)
        record = msgspec.convert(entry.inputs["record"], Record)
    except (msgspec.ValidationError, KeyError):
        return []
    record = replace(record, ledger=_before(record.ledger, entry), shadow=_before(record.shadow, entry))
    decision = decide(replace(policy, dry_run=entry.dry_run), observed, record, entry.at)
    if (decision.desired, decision.reason) != (entry.desired, entry.reason):
        return []
    return [
        {"rule": step.rule, "replicas": step.replicas, "message": step.message} for step in decision.chain
    ]


def _before(ledger: Ledger, entry: HistoryEntry) -> Ledger:
    """Without what that very decision noted."""
    steps = tuple(step for step in ledger.recommendations if step.at < entry.at)
    return replace(ledger, recommendations=steps)
