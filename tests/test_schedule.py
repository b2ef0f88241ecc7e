"""What is due when: earliest first, one look at a time per target, no wake lost."""

import threading
from datetime import timedelta

from responder.acting.schedule import Schedule
from tests.fakes import T0, FakeClock


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def test_takes_what_is_due_earliest_first():
    """Who has waited longest is served first."""
    clock = FakeClock()
    schedule = Schedule(clock)
    schedule.wake("b", at(2))
    schedule.wake("a", at(1))
    schedule.wake("c", at(99))
    clock.tick(10)
    assert [schedule.take(), schedule.take()] == ["a", "b"]
    assert len(schedule) == 1


def test_waking_never_puts_off():
    """A later wake leaves an earlier one in force; an earlier one moves it forward."""
    clock = FakeClock()
    schedule = Schedule(clock)
    schedule.wake("a", at(5))
    schedule.wake("a", at(50))
    clock.tick(5)
    assert schedule.take() == "a"
    schedule.done("a", at(50))
    schedule.wake("a", at(6))
    clock.tick(1)
    assert schedule.take() == "a"


def test_a_target_woken_while_it_is_looked_at_is_due_again_after():
    """News that comes during a look is not lost, and does not start a second look beside it."""
    clock = FakeClock()
    schedule = Schedule(clock)
    schedule.wake("a", at(0))
    assert schedule.take() == "a"
    schedule.wake("a", at(0))
    schedule.wake("b", at(0))
    assert schedule.take() == "b"
    schedule.done("a", at(500))
    assert schedule.take() == "a"


def test_a_look_that_asks_for_none_leaves_nothing():
    """A target with nothing to wait for costs nothing until there is news."""
    schedule = Schedule(FakeClock())
    schedule.wake("a", T0)
    assert schedule.take() == "a"
    schedule.done("a", None)
    assert len(schedule) == 0


def test_closing_lets_every_thread_go():
    """A stop does not wait for targets that are due in an hour."""
    schedule = Schedule(FakeClock())
    schedule.wake("a", at(3600))
    taken: list[str | None] = []
    threads = [threading.Thread(target=lambda: taken.append(schedule.take())) for _ in range(4)]
    for thread in threads:
        thread.start()
    schedule.close()
    for thread in threads:
        thread.join(60)
    assert taken == [None] * 4


def test_idle_waits_for_looks_that_run():
    """A stop can tell whether all looks have ended."""
    schedule = Schedule(FakeClock())
    schedule.wake("a", T0)
    schedule.take()
    assert not schedule.idle(0.01)
    schedule.done("a", None)
    assert schedule.idle(0.01)
