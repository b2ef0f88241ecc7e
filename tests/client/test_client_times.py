"""Times as people type and read them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from responder.client import times

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A person one hour east of UTC."""
    monkeypatch.setenv("TZ", "UTC-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("30s", 30), ("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("1.5d", 129600), ("2w", 1209600), ("1H 5M", 3900)],
)  # fmt: skip
def test_lengths_are_read(typed: str, seconds: float) -> None:
    """Units may be joined, fractional and in any case."""
    assert times.length(typed) == timedelta(seconds=seconds)


@pytest.mark.parametrize("typed", ["", "2", "h", "2 hours", "-2h", "0m", "2h-", "1e9d", "99999d", "２h３"])
def test_what_is_no_length_is_told_in_a_sentence(typed: str) -> None:
    """It quotes what was typed, and shows how it is written or why it cannot be."""
    with pytest.raises(ValueError, match=r"is no length|no time at all|ten years"):
        times.length(typed)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("18:30Z", datetime(2026, 11, 30, 18, 30, tzinfo=UTC)),
        ("18:30", datetime(2026, 11, 30, 17, 30, tzinfo=UTC)),
        ("3:00", datetime(2026, 12, 1, 2, 0, tzinfo=UTC)),
        ("2026-12-02 08:00", datetime(2026, 12, 2, 7, 0, tzinfo=UTC)),
        ("2026-12-02T08:00:00Z", datetime(2026, 12, 2, 8, 0, tzinfo=UTC)),
        ("2026-12-02T08:00:00+05:30", datetime(2026, 12, 2, 2, 30, tzinfo=UTC)),
    ],
    ids=[
        "a time in UTC",
        "a time of one's own",
        "one that is over today",
        "a date of one's own",
        "UTC",
        "a zone",
    ],
)
@pytest.mark.usefixtures("berlin")
def test_times_are_of_whoever_types_them(typed: str, meant: datetime) -> None:
    """Without a zone it is local time, and a time of day is the next such."""
    assert times.moment(typed, NOON) == meant


def test_a_past_time_of_day_is_the_last_such() -> None:
    """`--since 18:30` at noon is yesterday's."""
    assert times.moment("18:30Z", NOON, past=True) == datetime(2026, 11, 29, 18, 30, tzinfo=UTC)
    assert times.moment("11:59Z", NOON, past=True) == datetime(2026, 11, 30, 11, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "past", "meant"),
    [
        (datetime(2026, 10, 24, 20, tzinfo=UTC), False, datetime(2026, 10, 25, 7, tzinfo=UTC)),
        (datetime(2026, 3, 28, 20, tzinfo=UTC), False, datetime(2026, 3, 29, 6, tzinfo=UTC)),
        (datetime(2026, 10, 25, 5, tzinfo=UTC), True, datetime(2026, 10, 24, 6, tzinfo=UTC)),
        (datetime(2026, 10, 24, 23, 30, tzinfo=UTC), False, datetime(2026, 10, 25, 7, tzinfo=UTC)),
    ],
    ids=["to winter", "to summer", "back into summer", "on the day itself"],
)
def test_a_time_of_day_is_by_the_clock_of_its_own_day(
    monkeypatch: pytest.MonkeyPatch, at: datetime, past: bool, meant: datetime
) -> None:
    """`--until 08:00` on the evening before the clocks change is 08:00 on the clock next morning."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        assert times.moment("08:00", at, past=past) == meant
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("typed", ["", "tomorrow", "25:00", "12:60", "2026-13-01", "12"])
def test_what_is_no_time_is_told_in_a_sentence(typed: str) -> None:
    """It quotes what was typed and shows how times are written."""
    with pytest.raises(ValueError, match=r"is no time: write it like 18:30"):
        times.moment(typed, NOON)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (245, "4m 5s"), (660, "11m"), (3600, "1h"), (7500, "2h 5m"),
     (90000, "1d 1h"), (864000, "10d"), (1296000, "2w 1d"), (-5, "0s")],
)  # fmt: skip
def test_lengths_are_no_finer_than_a_person_cares_for(seconds: float, shown: str) -> None:
    """Two units at most, and seconds only within ten minutes."""
    assert times.short(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (NOON - timedelta(minutes=4), "11:56:00Z (4m ago)"),
        (NOON + timedelta(hours=2), "14:00:00Z (in 2h)"),
        (NOON + timedelta(days=1), "2026-12-01 12:00:00Z (in 1d)"),
        (NOON, "12:00:00Z (now)"),
        (datetime.max.replace(tzinfo=UTC), "never"),
        (None, "-"),
    ],
    ids=["gone by", "to come", "another day", "now", "an annotation's end", "none"],
)
def test_times_are_shown_both_ways(at: datetime | None, shown: str) -> None:
    """Absolute in UTC, with the date if that is another, and relative."""
    assert times.both(at, NOON) == shown
