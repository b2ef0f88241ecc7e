"""Where state is kept. The nouns that stores take and give back beside the model's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from responder.matchers import within
from responder.model import HistoryEntry, Reason, Record


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of history and the number it is known by."""

    id: int
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which entries of history are wanted: those that fit all that is given."""

    namespace: str = ""
    kind: str = ""
    name: str = ""
    reason: str = ""
    since: datetime | None = None
    id: int | None = None
    namespaces: tuple[str, ...] | None = None
    """Globs, one of which the namespace matches; None is no limit."""

    @classmethod
    def of(cls, target: str) -> "HistoryFilter":
        """All of one target, by its key."""
        namespace, kind, name = target.split("/", 2)
        return cls(namespace, kind, name)

    @property
    def target(self) -> str:
        """The key of the one target that it is about; empty for any."""
        whole = self.namespace and self.kind and self.name
        return f"{self.namespace}/{self.kind.lower()}/{self.name}" if whole else ""

    def fits(self, stored: StoredEntry) -> bool:
        """True for an entry that is wanted."""
        namespace, kind, name = stored.entry.target.split("/", 2)
        return (
            self.id in (None, stored.id)
            and self.namespace in ("", namespace)
            and self.kind.lower() in ("", kind)
            and self.name in ("", name)
            and self.reason in ("", stored.entry.reason.value)
            and (self.since is None or stored.entry.at >= self.since)
            and within(namespace, self.namespaces)
        )


ALL_HISTORY = HistoryFilter()


NOT_HELD = frozenset(
    {
        Reason.SCALED_UP,
        Reason.SCALED_DOWN,
        Reason.PINNED,
        Reason.PIN_ENDED,
        Reason.NOTHING_FIRING,
        Reason.ALREADY_THERE,
    }
)
"""Reasons by which a target is where it is wanted, or on its way there."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the metrics tell of all records at once."""

    inbox: int
    """Deliveries that are not folded in yet."""
    records: int
    pending: tuple[tuple[str, datetime], ...]
    """Targets with an intent that is not settled, and when it was decided."""
    held: tuple[tuple[str, str], ...]
    """Targets whose last decision held them though something asked for more, fewer or an answer, and its reason."""
    unknown_alerts: int
    """Firing alerts that have not been heard of for longer than the time-out."""


def reason_of(record: Record) -> str:
    """The reason of its last decision; empty while it has yet to be looked at: it is new, or there is news."""
    return record.verdict.reason.value if record.verdict is not None and not record.unseen else ""


def heard_at(record: Record) -> float | None:
    """When the quietest of its firing alerts was last heard of, in seconds since the epoch; None without any."""
    heard = [
        span.last_seen_at.timestamp()
        for span in record.alerts.values()
        if span.firing and not span.suppressed
    ]
    return min(heard, default=None)


def unknown_alerts(record: Record, late: datetime) -> int:
    """How many of its firing alerts have not been heard of since then."""
    return sum(
        span.firing and not span.suppressed and span.last_seen_at < late for span in record.alerts.values()
    )


def pending_of(record: Record) -> list[tuple[str, datetime]]:
    """Its intents that are not settled, as a Summary tells them."""
    return [(record.target.key, intent.decided_at) for intent in record.open_intents]


@dataclass(frozen=True, slots=True)
class Status:
    """A small document that one process leaves for the others, the newest only, such as what the actor can reach."""

    at: datetime
    body: Mapping[str, str] = field(default_factory=dict)
