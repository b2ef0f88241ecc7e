"""Demand as requests per second over simulated time: a built-in day, or a recorded trace. Pure."""

import csv
import io
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PEAK_REPLICAS = 6.0
"""Replicas that a curve's peak needs, unless a workload says otherwise."""

QUIET_SECONDS = 45 * 60.0
"""Rules that ask for half an hour of silence before scaling down need at least this much of it."""

IDLE_TAIL_SECONDS = 120 * 60.0
"""Appended where that much is missing. Longer, because Alertmanager's own delays do not shrink with time."""

QUIET_FRACTION = 0.1
"""A trace has fallen quiet when its end stays below this fraction of its peak."""

IDLE_FRACTION = 0.02
GAP_BIN_SECONDS = 60.0
MAX_GAP_BINS = 18
PEAK_WINDOW_SECONDS = 60.0

# Minutes and fractions of the peak. A day squeezed into four hours: night, a morning that ramps, the burst
# that needs every replica, a plateau with two bursts of its own, and a night long enough to scale down in.
_DAY = (
    (0, 0.08),
    (12, 0.08),
    (27, 0.55),
    (30, 1.00),
    (42, 1.00),
    (46, 0.68),
    (56, 0.64),
    (57, 0.90),
    (60, 0.90),
    (61, 0.66),
    (72, 0.62),
    (73, 0.82),
    (75, 0.82),
    (76, 0.60),
    (84, 0.56),
    (94, 0.08),
    (110, 0.03),
    (240, 0.03),
)


class TraceError(ValueError):
    """A trace cannot be used; the message is one sentence naming file, line, column and mend."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Piecewise linear requests per second, repeating after `duration` seconds."""

    times: tuple[float, ...]
    rates: tuple[float, ...]
    duration: float
    description: str = ""

    def rate(self, t: float) -> float:
        """Requests per second at `t` seconds of load."""
        if t < 0:
            return 0.0
        t %= self.duration
        right = bisect_right(self.times, t)
        if right == 0:
            return self.rates[0]
        if right == len(self.times):
            return self.rates[-1]
        t0, t1 = self.times[right - 1], self.times[right]
        r0, r1 = self.rates[right - 1], self.rates[right]
        return r0 + (r1 - r0) * (t - t0) / (t1 - t0)

    def scaled(self, factor: float) -> "Curve":
        """The same shape, `factor` times as high."""
        return Curve(self.times, tuple(r * factor for r in self.rates), self.duration, self.description)

    def peak(self) -> float:
        """The highest mean over a minute: what capacity has to be there for, single spikes aside."""
        step = PEAK_WINDOW_SECONDS / 6
        samples = [self.rate(i * step) for i in range(max(1, math.ceil(self.duration / step)))]
        window = min(6, len(samples))
        total = highest = sum(samples[:window])
        for i in range(window, len(samples)):
            total += samples[i] - samples[i - window]
            highest = max(highest, total)
        return highest / window


def day_curve() -> Curve:
    """The built-in demand: a day in four simulated hours, its peak at 1 request per second."""
    return Curve(
        times=tuple(minutes * 60.0 for minutes, _ in _DAY),
        rates=tuple(fraction for _, fraction in _DAY),
        duration=_DAY[-1][0] * 60.0,
        description="built-in day",
    )


def steady_curve(rate: float) -> Curve:
    """The same rate for ever."""
    return Curve((0.0,), (rate,), 3600.0, "steady")


def read_trace(path: Path) -> Curve:
    """The demand recorded in a CSV file, gaps filled and an idle tail added where it does not fall quiet.

    Raises TraceError when the file cannot be read or is not a trace.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; give --trace a CSV file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read as UTF-8 text ({error}); give a CSV file.") from None
    return parse_trace(text, name=str(path))


def parse_trace(text: str, *, name: str = "trace") -> Curve:
    """`read_trace` for text at hand."""
    rows = csv.reader(io.StringIO(text))
    header = [cell.strip().lstrip("\ufeff") for cell in next(rows, [])]
    columns = []
    for column in ("t_seconds", "requests_per_second"):
        if column not in header:
            raise TraceError(
                f"{name}: line 1: column {column} is missing; the first line must name the columns "
                "t_seconds and requests_per_second."
            )
        columns.append(header.index(column))
    times: list[float] = []
    rates: list[float] = []
    try:
        for row in rows:
            if not row or all(not cell.strip() for cell in row):
                continue
            t, rate = (_number(row, columns[i], header[columns[i]], name, rows.line_num) for i in (0, 1))
            if times and t <= times[-1]:
                raise TraceError(
                    f"{name}: line {rows.line_num}: t_seconds is {t:g} after {times[-1]:g}; "
                    "sort the rows by time and keep one per instant."
                )
            times.append(t)
            rates.append(rate)
    except csv.Error as error:
        raise TraceError(f"{name}: line {rows.line_num}: not CSV ({error}); save it as plain CSV.") from None
    if len(times) < 2:
        raise TraceError(f"{name}: only {len(times)} row(s) of data; a trace needs at least two.")
    if max(rates) <= 0:
        raise TraceError(f"{name}: requests_per_second is 0 throughout; a trace needs some demand.")
    return _curve(times, rates, name)


def _number(row: Sequence[str], index: int, column: str, name: str, line: int) -> float:
    where = f"{name}: line {line}: {column}"
    cell = row[index].strip() if index < len(row) else ""
    if not cell:
        raise TraceError(f"{where} is empty; write a number.")
    try:
        value = float(cell)
    except ValueError:
        raise TraceError(f"{where} is {cell[:40]!r}; write a number.") from None
    if not math.isfinite(value) or value < 0:
        raise TraceError(f"{where} is {cell[:40]}; write a finite number of at least 0.")
    return value


def _curve(times: Iterable[float], rates: list[float], name: str) -> Curve:
    first, *_ = times = tuple(times)
    times = tuple(t - first for t in times)
    width = sorted(b - a for a, b in itertools.pairwise(times))[(len(times) - 1) // 2]
    filled = fill_gaps(times, rates) if width >= GAP_BIN_SECONDS else list(rates)
    end = times[-1] + width
    curve = Curve(times, tuple(filled), end, name)
    peak = curve.peak()
    if _quiet_at_end(times, filled, end, peak):
        return curve
    # The drop takes a minute; the tail proper starts after it.
    tail = (end + 60.0, end + 60.0 + IDLE_TAIL_SECONDS)
    return Curve(
        (*times, *tail),
        (*filled, peak * IDLE_FRACTION, peak * IDLE_FRACTION),
        tail[1],
        f"{name} and an idle tail",
    )


def fill_gaps(times: Sequence[float], rates: Sequence[float]) -> list[float]:
    """Replaces short runs of zeros between measured bins by interpolation.

    For traces in bins of a minute or more: there a zero amid traffic is a gap in the recording. In finer
    bins, and in runs longer than `MAX_GAP_BINS`, a zero is a zero.
    """
    filled = list(rates)
    last = None
    for i, rate in enumerate(rates):
        if rate <= 0:
            continue
        if last is not None and 1 < i - last <= MAX_GAP_BINS + 1:
            for j in range(last + 1, i):
                share = (times[j] - times[last]) / (times[i] - times[last])
                filled[j] = rates[last] + (rate - rates[last]) * share
        last = i
    return filled


def _quiet_at_end(times: Sequence[float], rates: Sequence[float], end: float, peak: float) -> bool:
    if end < QUIET_SECONDS:
        return False
    late = [r for t, r in zip(times, rates, strict=True) if t >= end - QUIET_SECONDS]
    return bool(late) and max(late) <= peak * QUIET_FRACTION


def fitted(curve: Curve, *, replicas: float, requests_per_second: float) -> Curve:
    """Scales a curve so that its peak needs `replicas`, each good for `requests_per_second` at target."""
    peak = curve.peak()
    return curve.scaled(replicas * requests_per_second / peak) if peak > 0 else curve
