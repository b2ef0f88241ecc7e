"""The stated model of a served workload."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.sim.queueing import Queue, Service, share


def settled(rate: float, ready: int, seconds: float = 3600) -> Queue:
    """A queue after an hour of one rate."""
    queue = Queue(Service())
    queue.advance(0, seconds, lambda _: rate, ready)
    return queue


def test_below_capacity_requests_in_flight_follow_littles_law_and_nobody_waits() -> None:
    """2.4 per second for 10 s each are 24 in flight: 80 % of three replicas of ten."""
    queue = settled(2.4, ready=3)
    assert queue.running == pytest.approx(24, rel=0.01)
    assert queue.waiting == 0
    assert queue.utilization == pytest.approx(0.8, rel=0.01)
    assert queue.abandoned == 0


def test_above_capacity_utilization_saturates_and_the_rest_waits_until_it_gives_up() -> None:
    """One replica completes 1 per second; of 3 per second, 2 join the queue and leave after 30 s."""
    queue = settled(3.0, ready=1)
    assert queue.utilization == 1
    assert queue.running == 10
    assert queue.waiting == pytest.approx(60, rel=0.02)
    assert queue.served == pytest.approx(3600, rel=0.02)
    assert queue.saturated_seconds == pytest.approx(3600, rel=0.02)


def test_without_replicas_everything_waits_and_counts_as_saturated() -> None:
    """Nothing is served, and it shows."""
    queue = settled(1.0, ready=0)
    assert (queue.running, queue.served, queue.utilization) == (0, 0, 0)
    assert queue.waiting == pytest.approx(30, rel=0.02)
    assert queue.saturated_seconds > 3500


def test_taking_replicas_away_puts_their_requests_back_in_line() -> None:
    """No request is lost by scaling down."""
    queue = settled(2.4, ready=3)
    in_flight = queue.in_flight
    queue.advance(3600, 3600.5, lambda _: 2.4, 1)
    assert queue.running == 10
    assert queue.in_flight == pytest.approx(in_flight, abs=2)


def test_an_idle_workload_reads_exactly_zero() -> None:
    """Zero is a value, not a small number."""
    queue = settled(0.0, ready=2)
    assert (queue.in_flight, queue.utilization, queue.saturated_seconds) == (0, 0, 0)


@given(
    st.lists(st.tuples(st.floats(0.1, 300), st.floats(0, 50), st.integers(0, 12)), min_size=1, max_size=20)
)
def test_every_request_is_served_waiting_running_or_gone(steps: list[tuple[float, float, int]]) -> None:
    """Arrived = served + abandoned + in flight, whatever happens."""
    queue, now = Queue(Service()), 0.0
    for seconds, rate, ready in steps:
        queue.advance(now, now + seconds, lambda _, rate=rate: rate, ready)
        now += seconds
        assert queue.in_flight >= 0
        assert 0 <= queue.utilization <= 1
    assert queue.arrived == pytest.approx(queue.served + queue.abandoned + queue.in_flight, abs=1e-6)
    assert queue.seconds == pytest.approx(now)


@given(st.floats(0, 1e5), st.integers(1, 50))
def test_shares_of_a_total_add_up_to_it_and_differ_by_at_most_one(total: float, count: int) -> None:
    """Pods show whole requests; together they show all of them."""
    shares = [share(total, i, count) for i in range(count)]
    assert sum(shares) == round(total)
    assert max(shares) - min(shares) <= 1
