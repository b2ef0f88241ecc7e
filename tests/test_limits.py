"""Promise 15: stabilization windows and rates as autoscaling/v2 means them, for recommendations that come seldom."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.decide import decide
from responder.deciding.limits import looks_back, net_change, rate, stabilized, waits_for_ready
from responder.ledger import note
from responder.model import Decision, Direction, Reason, Record
from responder.policy import RatePolicy, SelectPolicy
from tests.deciding import (
    DOWN,
    LESS,
    UP,
    at,
    change,
    ledger,
    observed,
    percent_per,
    pin,
    pods_per,
    policy,
    record,
    rules,
    s,
    trigger,
)

WINDOWS = policy(scale_up=rules(0, 60), scale_down=rules(0, 300))


@pytest.mark.parametrize(
    ("history", "current", "asked", "now", "expected"),
    [
        pytest.param((), 4, 6, 0, 4, id="up: before the first look 4 was wanted: least(4, 6) = 4"),
        pytest.param(((0, 6),), 4, 6, 59, 4, id="up: 59 s later 4 is in the window of 60 s still"),
        pytest.param(((0, 6),), 4, 6, 60, 6, id="up: 60 s later it is not: 6"),
        pytest.param(((0, 6), (50, 9)), 4, 9, 60, 6, id="up: least(6, 9) = 6"),
        pytest.param(
            ((0, 6), (50, None)), 4, 9, 60, 4, id="up: nothing was asked for from 50 on: least(6, 4, 9) = 4"
        ),
        pytest.param((), 4, 2, 0, 4, id="down: before the first look 4 was wanted: greatest(4, 2) = 4"),
        pytest.param(((0, 2),), 4, 2, 299, 4, id="down: 299 s later 4 is in the window of 300 s still"),
        pytest.param(((0, 2),), 4, 2, 300, 2, id="down: 300 s later it is not: 2"),
        pytest.param(((-500, 3), (250, 2)), 4, 2, 300, 3, id="down: greatest(3, 2) = 3, in force until 250"),
        pytest.param(
            ((-500, 2), (-200, 3), (-100, 2)), 4, 2, 150, 3, id="down: 3 was in force until -100: 3"
        ),
        pytest.param(((-500, 2), (-200, 3), (-100, 2)), 4, 2, 200, 2, id="down: at 200 that is 300 s ago: 2"),
        pytest.param(((-500, 2), (0, None)), 4, 2, 100, 4, id="down: what is there was wanted since 0: 4"),
        pytest.param(((-500, 9),), 4, 2, 0, 4, id="down: greatest(9, 2) is above what is there, which stays"),
        pytest.param(((-500, 2),), 4, 6, 0, 4, id="up: least(2, 6) is below what is there, which stays"),
    ],
)
def test_stabilization(history: Any, current: int, asked: int, now: float, expected: int) -> None:
    """Raised to the least of 60 s, lowered to the greatest of 300 s, what is asked now included."""
    assert stabilized(WINDOWS, ledger(recommended=history), current, asked, at(now)) == expected


def test_without_windows_what_is_asked_now_counts() -> None:
    """A window of 0 s holds nothing but now."""
    found = ledger(recommended=((-1, 4), (0, 9)))
    assert stabilized(policy(), found, 4, 6, at(0)) == 6
    assert stabilized(policy(), found, 4, 2, at(0)) == 2


def looks(rec: Record, times: range, **more: Any) -> dict[int, int]:
    """What is decided at each of these seconds, each look noted as reconcile does."""
    found = {}
    for now in times:
        decision = decide(WINDOWS, observed(4, **more), rec, at(now))
        rec = note(rec, decision, at(now))
        found[now] = decision.desired
    return found


def test_sparse_looks_and_frequent_ones_agree() -> None:
    """A recommendation is in force until the next: what is decided does not depend on how often one looks."""
    often = looks(record("less"), range(0, 400, 10))
    seldom = looks(record("less"), range(0, 400, 100))
    assert {now: often[now] for now in seldom} == seldom
    assert min(now for now, desired in often.items() if desired == 3) == 300


def test_recommendations_are_recorded_also_while_pinned() -> None:
    """At the pin's end the window is over, and what was asked for all along is done at once."""
    rec = record("less")
    pinned = decide(WINDOWS, observed(4, overrides=(pin(4, until=300),)), rec, at(0))
    assert (pinned.reason, pinned.recommendation) == (Reason.PINNED, 3)
    rec = note(rec, pinned, at(0))
    assert decide(WINDOWS, observed(4), rec, at(300)).desired == 3


def test_a_new_episode_starts_the_window_anew() -> None:
    """Between two episodes what is there is wanted: the down window waits for that to pass."""
    rec = record("less")
    rec = note(rec, decide(WINDOWS, observed(4), rec, at(0)), at(0))
    quiet = replace(rec, alerts={})
    rec = replace(note(quiet, decide(WINDOWS, observed(4), quiet, at(200)), at(200)), alerts=rec.alerts)
    rec = note(rec, decide(WINDOWS, observed(4), rec, at(250)), at(250))
    assert decide(WINDOWS, observed(4), rec, at(549)).reason is Reason.STABILIZED
    assert decide(WINDOWS, observed(4), rec, at(550)).desired == 3


def test_stabilization_is_looked_at_again_when_the_window_is_over() -> None:
    """The one moment at which the answer changes."""
    decision = decide(WINDOWS, observed(4), record("less"), at(0))
    assert (decision.reason, decision.look_again_at) == (Reason.STABILIZED, at(300))


MAX, MIN = SelectPolicy.MAX, SelectPolicy.MIN
FIVE, FULL = pods_per(5, 60), percent_per(100, 60)


@pytest.mark.parametrize(
    ("way", "current", "changes", "policies", "select", "expected"),
    [
        pytest.param(UP, 4, (), (FIVE,), MAX, 9, id="4 + 5 = 9"),
        pytest.param(UP, 4, (), (FULL,), MAX, 8, id="4 x 2 = 8"),
        pytest.param(UP, 4, (), (FIVE, FULL), MAX, 9, id="Max: the greater change, 9"),
        pytest.param(UP, 4, (), (FIVE, FULL), MIN, 8, id="Min: the smaller change, 8"),
        pytest.param(UP, 3, (), (percent_per(50, 60),), MAX, 5, id="3 x 1.5 = 4.5, up to 5"),
        pytest.param(UP, 10, (), (percent_per(10, 60),), MAX, 11, id="10 x 1.1 = 11, not 12"),
        pytest.param(UP, 6, ((-30, 4, 6),), (FULL,), MAX, 8, id="start 6 - 2 = 4: 4 x 2 = 8"),
        pytest.param(UP, 8, ((-30, 4, 8),), (FULL,), MAX, 8, id="start 4: 8 are reached"),
        pytest.param(UP, 8, ((-60, 4, 8),), (FULL,), MAX, 16, id="60 s ago is out of the period: 8 x 2 = 16"),
        pytest.param(UP, 5, ((-30, 8, 5),), (FIVE,), MAX, 13, id="start 5 + 3 removed = 8: 8 + 5 = 13"),
        pytest.param(
            UP, 12, ((-30, 4, 8),), (FIVE,), MAX, 13, id="8 to 12 was foreign: start 12 - 4 = 8: 13"
        ),
        pytest.param(
            UP, 2, ((-30, 4, 8),), (FIVE,), MAX, 3, id="8 to 2 was foreign: start 2 - 4 = -2: -2 + 5 = 3"
        ),
        pytest.param(UP, 0, (), (FULL,), MAX, 1, id="0 x 2 = 0 would never wake: 1"),
        pytest.param(DOWN, 9, (), (FIVE,), MAX, 4, id="9 - 5 = 4"),
        pytest.param(
            DOWN, 9, (), (percent_per(50, 60),), MAX, 4, id="9 x 0.5 = 4.5, down to 4 as the HPA does"
        ),
        pytest.param(DOWN, 9, (), (FIVE, percent_per(10, 60)), MAX, 4, id="Max: the greater change, to 4"),
        pytest.param(
            DOWN, 9, (), (FIVE, percent_per(10, 60)), MIN, 8, id="Min: the smaller: 9 x 0.9 = 8.1, to 8"
        ),
        pytest.param(DOWN, 6, ((-30, 8, 6),), (FIVE,), MAX, 3, id="start 6 + 2 = 8: 8 - 5 = 3"),
        pytest.param(DOWN, 3, ((-30, 8, 3),), (FIVE,), MAX, 3, id="start 8: 3 are reached"),
        pytest.param(DOWN, 9, ((-30, 4, 8),), (FIVE,), MAX, 0, id="start 9 - 4 = 5: 5 - 5 = 0"),
    ],
)
def test_rates(
    way: Direction,
    current: int,
    changes: tuple[tuple[float, int, int], ...],
    policies: tuple[RatePolicy, ...],
    select: SelectPolicy,
    expected: int,
) -> None:
    """periodStart = current − added + removed, by our own changes alone."""
    kept = ledger(changes=tuple(change(*each) for each in changes))
    found = rate(rules(0, 0, *policies, select_policy=select), kept, way, current, at(0))
    assert found is not None
    assert found.limit == expected


def test_rates_of_several_periods_each_look_back_their_own_length() -> None:
    """4 per 15 s and 6 per 60 s, Min: after 4 at -20 and 1 at -5, 3 are left of the first, 1 of the second."""
    kept = ledger(changes=(change(-20, 4, 8), change(-5, 8, 9)))
    both = rules(0, 0, pods_per(4, 15), pods_per(6, 60), select_policy=MIN)
    found = rate(both, kept, UP, 9, at(0))
    assert found is not None
    assert (found.limit, found.text) == (10, "6 pods per 60 s")
    assert net_change(kept, s(15), at(0)) == 1


def test_no_policies_are_no_limit() -> None:
    """And none is a limit only where something was configured."""
    assert rate(rules(), ledger(), UP, 4, at(0)) is None


def test_a_spent_rate_is_waited_for() -> None:
    """2 pods per 60 s, spent at -50: free again at 10."""
    pol = policy(LESS, scale_down=rules(0, 0, pods_per(2, 60)))
    rec = record("less", pol=pol, ledger=ledger(changes=(change(-50, 6, 4),)))
    decision = decide(pol, observed(4), rec, at(0))
    assert (decision.desired, decision.reason) == (4, Reason.RATE_LIMITED)
    assert "scaleDown allows 2 pods per 60 s, and that is used up" in decision.message
    assert decision.look_again_at == at(10)
    assert decide(pol, observed(4), rec, at(10)).desired == 3


def test_a_rate_never_reverses_a_direction() -> None:
    """Somebody else took away more than we added: start 2 − 6 = −4, −4 + 5 = 1 is below what is there."""
    kept = ledger(changes=(change(-5, 2, 8),))
    found = rate(rules(0, 0, FIVE), kept, UP, 2, at(0))
    assert found is not None
    assert found.limit == 2


def test_an_up_reaches_min_replicas_whatever_the_rate() -> None:
    """As the HPA: 1 pod per 60 s is spent, and 5 is the minimum."""
    pol = policy(trigger("more", UP), min_replicas=5, scale_up=rules(0, 0, pods_per(1, 60)))
    rec = record("more", pol=pol, ledger=ledger(changes=(change(-5, 1, 2),)))
    decision = decide(pol, observed(2), rec, at(0))
    assert (decision.desired, decision.reason) == (5, Reason.SCALED_UP)
    assert "raised to minReplicas 5" in decision.message


def test_a_dry_runs_changes_use_up_rates_though_nothing_changed() -> None:
    """4 are there still: of 5 per 60 s, 3 are spent on paper, so 2 are left: 6."""
    kept = ledger(changes=(change(-5, 4, 7),))
    found = rate(rules(0, 0, FIVE), kept, UP, 4, at(0), dry_run=True)
    assert found is not None
    assert found.limit == 6


def test_waiting_for_ready_needs_a_last_up() -> None:
    """Nothing was asked for yet."""
    assert waits_for_ready(policy(), ledger(), 4, 0, at(0)) is None
    assert waits_for_ready(policy(), ledger(up=0, last_up_to=4), 4, 0, at(0)) == 4


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param(
            ((0, 9), (10, 5), (20, 4)), ((0, 9), (10, 5), (20, 4)), id="falling: each may be the greatest"
        ),
        pytest.param(
            ((0, 4), (10, 5), (20, 9)), ((0, 4), (10, 5), (20, 9)), id="rising: each may be the least"
        ),
        pytest.param(
            ((0, 9), (10, 5), (20, 4), (30, 6)), ((0, 9), (10, 4), (30, 6)), id="5 lies between 4 and 6"
        ),
        pytest.param(
            ((0, None), (10, 5), (20, None)), ((10, 5), (20, None)), id="what is there, at first and at last"
        ),
        pytest.param(((0, 3), (10, None), (20, 3)), ((0, None), (20, 3)), id="the same number again"),
    ],
)
def test_which_recommendations_are_kept(given: Any, kept: Any) -> None:
    """Those that may be the least or the greatest of some window; the next takes over the time of others."""
    rec = record()
    for when, number in given:
        rec = note(rec, Decision(4, 4, Reason.COOLDOWN, "", recommendation=number), at(when))
    # The first "what is there" is not kept: that is what the past is without any history.
    assert rec.ledger == ledger(recommended=kept)


def test_how_far_a_policy_looks_back() -> None:
    """The longest of both windows and all periods."""
    assert looks_back(policy(scale_up=rules(0, 60), scale_down=rules(0, 300))) == s(300)
    assert looks_back(policy(scale_up=rules(0, 600), scale_down=rules(0, 300, FIVE))) == s(600)
    assert looks_back(policy(scale_up=rules(0, 60), scale_down=rules(0, 0, FIVE, pods_per(1, 900)))) == s(900)


@given(
    st.lists(st.tuples(st.integers(1, 100), st.none() | st.integers(0, 9)), max_size=15),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from([0, 30, 100, 400]),
    st.sampled_from([0, 30, 100, 400]),
)
def test_what_the_ledger_forgets_no_window_misses(
    gaps: list[tuple[int, int | None]], current: int, asked: int, up: int, down: int
) -> None:
    """It keeps a short list, and every window finds in it what it would find in the whole history."""
    pol = policy(scale_up=rules(0, up), scale_down=rules(0, down))
    kept, whole, now = record(), [], 0
    for gap, replicas in gaps:
        now += gap
        decision = Decision(
            current, current, Reason.COOLDOWN, "", recommendation=replicas, remember=s(max(up, down))
        )
        kept = note(kept, decision, at(now))
        whole.append((now, replicas))
        complete = ledger(recommended=tuple(whole))
        assert stabilized(pol, kept.ledger, current, asked, at(now)) == stabilized(
            pol, complete, current, asked, at(now)
        )
    assert len(kept.ledger.recommendations) <= 22
