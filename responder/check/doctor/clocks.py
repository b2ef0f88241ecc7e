"""Clocks that disagree: ages, cooldowns and resolves are reckoned across them. Pure."""

from collections.abc import Iterable, Iterator

from responder.check.doctor.servers import ClockReading
from responder.check.findings import Finding, warning

MAX_SKEW_SECONDS = 2.0


def check(readings: Iterable[ClockReading], most: float = MAX_SKEW_SECONDS) -> Iterator[Finding]:
    """Each server whose clock surely differs from this machine's, or from another's, by more than `most` seconds."""
    readings = list(readings)
    off = [each for each in readings if _surely(each.ahead, each.within) > most]
    for each in off:
        way = "ahead of" if each.ahead > 0 else "behind"
        said = f"Its clock is {abs(each.ahead):.1f} s {way} this machine's."
        yield warning(each.name, 0, "clock-skew", said, "run chrony or another NTP client on both")
    if off:
        return
    for index, one in enumerate(readings):
        for other in readings[index + 1 :]:
            apart = abs(one.ahead - other.ahead)
            if _surely(apart, one.within + other.within) > most:
                said = f"Its clock and that of {other.name} are {apart:.1f} s apart."
                yield warning(one.name, 0, "clock-skew", said, "run chrony or another NTP client on both")


def _surely(apart: float, within: float) -> float:
    return abs(apart) - within
