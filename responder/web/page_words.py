"""What the page says in words: times, lengths of time, who binds what. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from responder.deciding.overrides import EARLIEST, FOREVER
from responder.model import HistoryEntry, Outcome, Override, Silence
from responder.store import StoredEntry
from responder.web.views import decision_view, stamp

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
KINDS = {
    "pause": "Pause",
    "pauseScaleUp": "Pause scale-up",
    "pauseScaleDown": "Pause scale-down",
    "pin": "Pin",
    "bounds": "Bounds",
    "freeze": "Freeze",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A decision and what became of it, which history has as two entries; or one of both alone."""

    stored: StoredEntry
    outcome: Outcome | None
    took_at: datetime
    latency: float | None = None


def lines_of(history: Sequence[StoredEntry]) -> list[Line]:
    """History, newest first, with each outcome beside its decision."""
    lines: list[Line] = []
    pending: dict[str, StoredEntry] = {}
    for stored in history:
        entry = stored.entry
        if entry.outcome is not None:
            other = pending.pop(entry.target, None)
            lines += [_line(other)] if other is not None else []
            pending[entry.target] = stored
            continue
        became = pending.pop(entry.target, None)
        if became is not None and _same(became.entry, entry):
            lines.append(replace(_line(became), stored=stored))
            continue
        lines += [_line(became)] if became is not None else []
        lines.append(_line(stored))
    lines += map(_line, pending.values())
    return sorted(lines, key=lambda line: line.stored.id, reverse=True)


def line_view(line: Line) -> dict[str, Any]:
    """One line of history as the page lists it."""
    return {
        **decision_view(line.stored),
        "outcome": line.outcome.value if line.outcome else None,
        "alertToScaleSeconds": line.latency,
    }


def _line(stored: StoredEntry) -> Line:
    entry = stored.entry
    return Line(stored, entry.outcome, entry.at, decision_view(stored)["alertToScaleSeconds"])


def _same(became: HistoryEntry, decided: HistoryEntry) -> bool:
    return (became.current, became.desired, became.dry_run) == (
        decided.current,
        decided.desired,
        decided.dry_run,
    ) and decided.current != decided.desired


def short(span: timedelta) -> str:
    """`45 s`, `12 min`, `2 h 5 min`, `3 d 4 h`."""
    seconds = max(round(abs(span.total_seconds())), 0)
    for (unit, size), (finer, smaller) in zip(_UNITS, (*_UNITS[1:], ("", 1)), strict=True):
        if seconds >= size > 1:
            rest = seconds % size // smaller
            return f"{seconds // size} {unit}" + (f" {rest} {finer}" if rest and size > 60 else "")
    return f"{seconds} s"


def ago(moment: datetime, now: datetime) -> str:
    """`4 min ago`, `in 2 h`, `now`."""
    apart = moment - now
    if abs(apart) < timedelta(seconds=1):
        return "now"
    return f"in {short(apart)}" if apart > timedelta(0) else f"{short(apart)} ago"


def clock(moment: datetime, now: datetime) -> str:
    """`21:30:05`, with the date if it is not today; in UTC."""
    at = moment.astimezone(UTC)
    return f"{at:%H:%M:%S}" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d %H:%M}"


def override_line(override: Override, now: datetime) -> dict[str, Any]:
    """An override as the page lists it."""
    what = KINDS[override.kind.value]
    if override.replicas is not None:
        what += f" at {override.replicas}" + (" (forced)" if override.force else "")
    if override.min_replicas is not None:
        what += f", min {override.min_replicas}"
    if override.max_replicas is not None:
        what += f", max {override.max_replicas}"
    return {
        "id": override.id,
        "what": what,
        "target": override.target,
        "whom": override.target or ", ".join(override.matchers) or "all targets",
        "by": override.created_by,
        "comment": override.comment,
        "state": "active" if override.in_force(now) else "pending",
        "startsAt": None if override.starts_at == EARLIEST else stamp(override.starts_at),
        "endsAt": None if override.ends_at == FOREVER else stamp(override.ends_at),
        "source": override.source,
    }


def silence_line(silence: Silence, now: datetime) -> dict[str, Any]:
    """A silence as the page lists it."""
    return {
        "id": silence.id,
        "whom": ", ".join(silence.matchers),
        "by": silence.created_by,
        "comment": silence.comment,
        "state": "active" if silence.in_force(now) else "pending",
        "startsAt": stamp(silence.starts_at),
        "endsAt": stamp(silence.ends_at),
    }
