"""Where state is kept. The nouns that stores give back beside the model's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from responder.model import HistoryEntry


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of history and the number it is known by."""

    id: int
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class Summary:
    """What the metrics tell of all records at once."""

    inbox: int
    """Deliveries that are not folded in yet."""
    records: int
    pending: tuple[tuple[str, datetime], ...]
    """Targets with an intent that is not settled, and when it was decided."""
    at_max: tuple[str, ...]
    """Targets that would be scaled up but for maxReplicas."""
    unknown_alerts: int
    """Firing alerts that have not been heard of for longer than the time-out."""


@dataclass(frozen=True, slots=True)
class Status:
    """A small document that one process leaves for the others, the newest only, such as what the actor can reach."""

    at: datetime
    body: Mapping[str, str] = field(default_factory=dict)
