"""Times as people type and read them.

Shown in UTC, as the service's own sentences have them; read as local time unless a zone is given.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from responder.deciding import words
from responder.web import ages

_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_LENGTH = re.compile(r"(?:\d+(?:\.\d+)?[wdhms])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([wdhms])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(Z|UTC)?", re.IGNORECASE)
LONGEST = timedelta(days=3660)


def now() -> datetime:
    return datetime.now(UTC)


def parse(stamp: str | None) -> datetime | None:
    """A time of the API's; None for none."""
    return datetime.fromisoformat(stamp) if stamp else None


def stamp(at: datetime) -> str:
    """A time for the API."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def length(text: str) -> timedelta:
    """Read `2h`, `90m`, `1h30m`, `1.5d`. Raises ValueError with a sentence."""
    bare = text.strip().lower().replace(" ", "")
    if not _LENGTH.fullmatch(bare):
        raise ValueError(f"{text!r} is no length of time: write it like 30m, 2h, 1h30m or 3d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(bare))
    if not 0 < seconds <= LONGEST.total_seconds():
        raise ValueError(f"{text!r} is {'no time at all' if seconds == 0 else 'longer than ten years'}")
    return timedelta(seconds=seconds)


def moment(text: str, at: datetime, *, past: bool = False) -> datetime:
    """Read a time of day or a date and time; the next such time, or the last one. Raises ValueError with a sentence."""
    clock = _CLOCK.fullmatch(text.strip())
    try:
        if clock is None:
            found = datetime.fromisoformat(text.strip())
            # A zone that is not said is the one of whoever types.
            return found.astimezone(UTC)
        zone = UTC if clock[4] else None
        hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        # Without a zone, so that each day has its own distance from UTC, also where the clocks change in between.
        day = at.astimezone(zone).replace(tzinfo=zone, fold=0)
        found = day.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no time: write it like 18:30, 18:30Z, '2026-01-31 18:30' or 2026-01-31T18:30:00Z"
        ) from None
    if past and found.astimezone(UTC) > at:
        found -= timedelta(days=1)
    if not past and found.astimezone(UTC) <= at:
        found += timedelta(days=1)
    return found.astimezone(UTC)


def short(span: timedelta) -> str:
    """`45s`, `12m`, `2h 5m`, `3d 4h`: no finer than a person cares for."""
    seconds = max(round(span.total_seconds()), 0)
    for unit, finer in (("w", "d"), ("d", "h"), ("h", "m")):
        if seconds >= _UNITS[unit] * (2 if unit == "w" else 1):
            whole, rest = divmod(seconds, _UNITS[unit])
            part = rest // _UNITS[finer]
            return f"{whole}{unit} {part}{finer}" if part else f"{whole}{unit}"
    if seconds >= 600:
        return f"{seconds // 60}m"
    if seconds >= 60:
        return f"{seconds // 60}m {seconds % 60}s" if seconds % 60 else f"{seconds // 60}m"
    return f"{seconds}s"


def ago(at: datetime | None, then: datetime) -> str:
    """`4m ago`, `in 2h 5m`, `now`; `-` for none."""
    if at is None:
        return "-"
    if _is_forever(at):
        return "never"
    apart = at - then
    if abs(apart) < timedelta(seconds=1):
        return "now"
    return f"in {short(apart)}" if apart > timedelta(0) else f"{short(-apart)} ago"


def counted(view: Any, then: datetime) -> str:
    """`4m ago`, for a target's counts that are too old to pass for what is there now; else empty."""
    # A service of an earlier version does not say it.
    at = parse(view.get("countedAt"))
    return ago(at, then) if ages.stale(at, then) else ""


def absolute(at: datetime | None, then: datetime) -> str:
    """`18:30:05Z`, with the date if that is another than today's."""
    if at is None:
        return "-"
    if _is_forever(at):
        return "never"
    return words.moment(at.astimezone(UTC), then.astimezone(UTC))


def both(at: datetime | None, then: datetime) -> str:
    """`18:30:05Z (4m ago)`."""
    if at is None or _is_forever(at):
        return absolute(at, then)
    return f"{absolute(at, then)} ({ago(at, then)})"


def _is_forever(at: datetime) -> bool:
    # What an annotation without an end has as its end.
    return at.year >= 9999


def length_option(text: str) -> timedelta:
    """A length of time on the command line."""
    try:
        return length(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def future_option(text: str) -> datetime:
    """A time to come on the command line."""
    try:
        return moment(text, now())
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def past_option(text: str) -> datetime:
    """A time gone by on the command line: `2h` is two hours ago."""
    try:
        if _LENGTH.fullmatch(text.strip().lower().replace(" ", "")):
            return now() - length(text)
        return moment(text, now(), past=True)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or 2h for two hours ago.") from None
