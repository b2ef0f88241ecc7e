"""Scaled time and demand: the built-in day, recorded traces, and what is wrong with bad ones."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.sim.clock import SimClock
from responder.sim.load import (
    IDLE_TAIL_SECONDS,
    TraceError,
    day_curve,
    fitted,
    parse_trace,
    read_trace,
    steady_curve,
)

HEADER = "t_seconds,requests_per_second\n"


def trace(*rows: tuple[float, float], extra: str = "") -> str:
    """A trace's text."""
    return HEADER + "".join(f"{t},{rate}{extra}\n" for t, rate in rows)


class Monotonic:
    """A monotonic clock moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_time_runs_faster_by_the_speed_and_the_load_has_its_own_zero() -> None:
    """A second is a minute at 60; the load's clock begins when told, once."""
    real = Monotonic()
    clock = SimClock(60, real)
    real.seconds += 2
    assert clock.now() == pytest.approx(120)
    assert clock.load_now() is None
    clock.start_load()
    real.seconds += 1
    clock.start_load()
    assert clock.load_now() == pytest.approx(60)
    assert clock.real_seconds(30) == pytest.approx(0.5)


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_that_is_not_a_positive_number_is_refused(speed: float) -> None:
    """Time has to pass."""
    with pytest.raises(ValueError, match="speed"):
        SimClock(speed)


def test_the_day_is_quiet_ramps_bursts_and_falls_quiet_long_enough_to_scale_down() -> None:
    """The shape that the demo depends on."""
    day = day_curve()
    assert day.peak() == pytest.approx(1.0)
    assert day.rate(0) < 0.1
    assert day.rate(35 * 60) == pytest.approx(1.0)
    assert 0.5 < day.rate(65 * 60) < 0.8
    tail = [day.rate(t) for t in range(int(day.duration - IDLE_TAIL_SECONDS), int(day.duration), 10)]
    assert max(tail) <= 0.05
    assert day.rate(day.duration + 35 * 60) == pytest.approx(1.0), "the day repeats"


def test_a_curve_fitted_to_replicas_needs_that_many_at_its_peak() -> None:
    """Six replicas at 0.8 requests per second each."""
    curve = fitted(day_curve(), replicas=6, requests_per_second=0.8)
    assert curve.peak() == pytest.approx(4.8)


def test_a_trace_is_interpolated_and_ignores_further_columns() -> None:
    """Two columns count, wherever they stand."""
    text = "requests_per_second,tokens,t_seconds\n1,x,100\n3,y,110\n2,z,120\n"
    curve = parse_trace(text)
    assert curve.rate(0) == 1
    assert curve.rate(5) == pytest.approx(2)
    assert curve.rate(10) == 3


def test_a_trace_that_ends_busy_gets_an_idle_tail() -> None:
    """Otherwise nothing would ever scale down."""
    curve = parse_trace(trace(*((t, 5.0) for t in range(0, 3600, 10))))
    assert curve.duration >= 3600 + IDLE_TAIL_SECONDS
    assert curve.rate(3590) == 5
    assert curve.rate(curve.duration - 1) <= 0.1 * 5
    assert curve.rate(curve.duration - IDLE_TAIL_SECONDS + 1) <= 0.1 * 5
    assert "idle tail" in curve.description


def test_a_trace_that_falls_quiet_by_itself_is_left_alone() -> None:
    """An hour busy and an hour quiet is enough."""
    rows = [(t, 5.0 if t < 3600 else 0.1) for t in range(0, 7200, 10)]
    assert parse_trace(trace(*rows)).duration == 7200


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        pytest.param(600, 3.0, id="in coarse bins it is a gap"),
        pytest.param(10, 0.0, id="in fine bins it is 0"),
    ],
)
def test_a_zero_bin_amid_traffic(width: int, expected: float) -> None:
    """Recordings in bins of minutes have gaps; those in bins of seconds have pauses."""
    rows = [(i * width, rate) for i, rate in enumerate((2.0, 0.0, 4.0, 4.0))]
    assert parse_trace(trace(*rows)).rate(width) == pytest.approx(expected)


def test_a_long_run_of_zeros_is_a_quiet_night_even_in_coarse_bins() -> None:
    """Half a day without requests is no gap."""
    rows = [(i * 600, 0.0 if 10 <= i < 80 else 5.0) for i in range(100)]
    assert parse_trace(trace(*rows)).rate(40 * 600) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", ["line 1", "t_seconds", "missing"], id="an empty file"),
        pytest.param("t_seconds,rps\n0,1\n", ["requests_per_second", "missing"], id="a missing column"),
        pytest.param(trace((0, 1)), ["only 1 row"], id="one row"),
        pytest.param(HEADER + "0,1\n10,x\n", ["line 3", "requests_per_second", "'x'"], id="a word"),
        pytest.param(HEADER + "0,1\n10\n", ["line 3", "requests_per_second", "empty"], id="a short row"),
        pytest.param(HEADER + "0,1\n10,nan\n", ["line 3", "finite"], id="not a number"),
        pytest.param(HEADER + "0,1\n10,-1\n", ["line 3", "at least 0"], id="a negative rate"),
        pytest.param(HEADER + "0,1\n0,2\n", ["line 3", "t_seconds", "sort"], id="time standing still"),
        pytest.param(HEADER + "0,0\n10,0\n", ["0 throughout"], id="no demand"),
    ],
)
def test_a_bad_trace_is_refused_in_one_sentence_that_says_where(text: str, words: list[str]) -> None:
    """File, line, column and mend."""
    with pytest.raises(TraceError) as caught:
        parse_trace(text, name="demand.csv")
    message = str(caught.value)
    assert message.startswith("demand.csv: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_missing_or_binary_trace_is_refused_by_name(tmp_path) -> None:
    """Never a traceback."""
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "none.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="UTF-8"):
        read_trace(binary)


@given(
    st.lists(st.floats(0, 1e4), min_size=2, max_size=50).filter(lambda rates: max(rates) > 1),
    st.floats(0, 1e6),
)
def test_a_curve_never_leaves_the_range_of_what_was_recorded(rates: list[float], t: float) -> None:
    """Interpolation, gaps and the tail invent no demand."""
    curve = parse_trace(trace(*((i * 60, rate) for i, rate in enumerate(rates))))
    assert 0 <= curve.rate(t) <= max(rates) * (1 + 1e-9)
    assert all(a < b for a, b in pairwise(curve.times))


def test_a_steady_curve_is_steady() -> None:
    """The same at any time."""
    assert {steady_curve(0.4).rate(t) for t in (0, 17, 1e6)} == {0.4}
