"""What history kept of a decision's inputs, read back to decide again."""

from dataclasses import replace
from datetime import datetime

import msgspec

from responder.model import HistoryEntry, Ledger, Observed, Record


def inputs_of(entry: HistoryEntry) -> tuple[Observed, Record] | None:
    """What was observed and known before that decision; None where history does not have it, or no longer so."""
    try:
        observed = msgspec.convert(entry.inputs["observed"], Observed)
        record = msgspec.convert(entry.inputs["record"], Record)
    except (msgspec.ValidationError, KeyError):
        return None
    ledger, shadow = _before(record.ledger, entry.at), _before(record.shadow, entry.at)
    return observed, replace(record, ledger=ledger, shadow=shadow)


def _before(ledger: Ledger, at: datetime) -> Ledger:
    """Without what that very decision noted: it is to be made again."""
    steps = tuple(step for step in ledger.recommendations if step.at < at)
    return replace(ledger, recommendations=steps)
