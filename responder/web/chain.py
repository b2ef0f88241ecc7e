"""The chain of reasons of a decision in history: made again from its inputs, since history keeps only its end."""

from dataclasses import replace
from typing import Any

from responder.decide import decide
from responder.inputs import inputs_of
from responder.model import HistoryEntry
from responder.policy import Settings


def chain_of(entry: HistoryEntry, settings: Settings) -> list[dict[str, Any]]:
    """What each rule made of the number; empty when that cannot be told, as after a change of the policy."""
    policy = next((each for each in settings.policies if each.name == entry.policy), None)
    inputs = inputs_of(entry)
    if policy is None or inputs is None:
        return []
    decision = decide(replace(policy, dry_run=entry.dry_run), *inputs, entry.at)
    if (decision.desired, decision.reason) != (entry.desired, entry.reason):
        return []
    return [
        {"rule": step.rule, "replicas": step.replicas, "message": step.message} for step in decision.chain
    ]
