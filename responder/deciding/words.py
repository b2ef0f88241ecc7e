"""Numbers, times and lengths as a decision's sentences write them."""

from datetime import datetime, timedelta


def number(value: float) -> str:
    """At most six digits, and no zeros behind."""
    return f"{value:.6g}"


def moment(at: datetime, now: datetime) -> str:
    """A time of day, with the date if that is another than today's."""
    return f"{at:%H:%M:%SZ}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%SZ}"


def seconds(length: timedelta) -> str:
    """As in the policy file: `60 s`, `0.5 s`."""
    return f"{length.total_seconds():.6g} s"


def count(number_of: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number_of} {noun}" if number_of == 1 else f"{number_of} {noun}s"
