"""The action budget over all targets: so many per period, longest waiting first."""

from datetime import timedelta

from responder.acting.budget import BudgetBook
from responder.model import Budget, Direction
from responder.policy import ActionBudget
from tests.fakes import T0

MINUTE = timedelta(seconds=60)
DOWN = Direction.DOWN


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def book(actions=2):
    made = BudgetBook()
    made.limit({DOWN: ActionBudget(actions, MINUTE)})
    return made


def test_a_direction_without_a_limit_is_unlimited():
    """Up is unlimited unless said."""
    made = book()
    assert made.offer("a", T0) == Budget(up=None, down=2)
    assert all(made.take("a", Direction.UP, T0) for _ in range(100))


def test_actions_come_back_a_period_after_they_were_taken():
    """Two a minute: the third waits for the first to be a minute old."""
    made = book()
    assert made.take("a", DOWN, at(0))
    assert made.take("b", DOWN, at(10))
    assert not made.take("c", DOWN, at(20))
    assert made.offer("c", at(20)) == Budget(None, 0, None, at(60))
    assert made.take("c", DOWN, at(60))
    assert not made.take("d", DOWN, at(60))


def test_the_longest_waiting_is_served_first():
    """A newcomer cannot take what somebody waits for."""
    made = book(1)
    assert made.take("a", DOWN, at(0))
    made.wait("late", DOWN, at(20))
    made.wait("early", DOWN, at(10))
    assert made.next_served(at(30)) == []
    assert made.next_served(at(60)) == ["early"]
    assert made.offer("newcomer", at(60)).down == 0
    assert made.offer("late", at(60)).down == 0
    assert not made.take("late", DOWN, at(60))
    assert made.take("early", DOWN, at(60))
    assert made.next_served(at(120)) == ["late"]


def test_who_no_longer_wants_makes_room():
    """A target whose alert resolved while it waited does not block those behind it."""
    made = book(1)
    made.wait("early", DOWN, at(10))
    made.wait("late", DOWN, at(20))
    made.leave("early")
    assert made.next_served(at(30)) == ["late"]


def test_what_did_not_happen_is_given_back():
    """A write that was refused spends nothing."""
    made = book(1)
    assert made.take("a", DOWN, at(0))
    made.give_back(DOWN, at(0))
    assert made.take("b", DOWN, at(1))


def test_a_restart_remembers_what_was_done():
    """Restarting is no way around the budget."""
    made = book()
    made.restore(DOWN, [at(-70), at(-10), at(-5)])
    assert made.offer("a", T0).down == 0


def test_a_clock_set_back_does_not_lock_the_budget():
    """An action dated in the future counts as now, and comes back a period later."""
    made = book(1)
    assert made.take("a", DOWN, at(3600))
    assert made.offer("b", at(0)).down == 0
    assert made.offer("b", at(61)).down == 1


def test_a_look_that_began_earlier_does_not_keep_an_action_from_coming_back():
    """Looks run side by side, each with its own time: what one takes and gives back, another has counted between."""
    made = book(1)
    assert made.take("a", DOWN, at(10.5))
    assert made.offer("b", at(10.4)).down == 0
    made.give_back(DOWN, at(10.5))
    assert made.offer("b", at(11)).down == 1


def test_giving_back_what_has_long_come_back_gives_nothing_twice():
    """A write that hung for longer than the period and was refused then."""
    made = book(1)
    assert made.take("a", DOWN, at(0))
    assert made.take("b", DOWN, at(70))
    made.give_back(DOWN, at(0))
    assert not made.take("c", DOWN, at(71))
