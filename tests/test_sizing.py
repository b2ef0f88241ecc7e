"""What one trigger asks for: the arithmetic of the five types, tolerance, values that are none, fallback."""

import math

import pytest

from responder.decide import decide, sized_triggers
from responder.deciding.sizing import ceil, fewest, stepped
from responder.model import Decision, Direction, Pods, Reason, ScaleType, Value
from responder.policy import Trigger, ValueFrom
from tests.deciding import (
    DOWN,
    MORE,
    SHRINK,
    SIZED,
    UP,
    at,
    episode_id,
    ledger,
    observed,
    policy,
    record,
    rules,
    s,
    trigger,
)

PODS, PERCENT, REPLICAS = ScaleType.PODS, ScaleType.PERCENT, ScaleType.REPLICAS
UTILIZATION, AVERAGE = ScaleType.UTILIZATION, ScaleType.AVERAGE_VALUE


@pytest.mark.parametrize(
    ("kind", "value", "way", "current", "expected"),
    [
        pytest.param(PODS, 2, UP, 3, 5, id="3 + 2 = 5"),
        pytest.param(PODS, 2, DOWN, 3, 1, id="3 - 2 = 1"),
        pytest.param(PODS, 5, DOWN, 3, 0, id="3 - 5 is not below 0"),
        pytest.param(PERCENT, 50, UP, 4, 6, id="4 + 50 % = 6"),
        pytest.param(PERCENT, 50, UP, 3, 5, id="3 + 50 % = 4.5, rounded up to 5"),
        pytest.param(PERCENT, 10, UP, 5, 6, id="5 + 10 % = 5.5, rounded up to 6: never nothing"),
        pytest.param(PERCENT, 10, UP, 10, 11, id="10 + 10 % = 11 and not 12 for what floating point adds"),
        pytest.param(PERCENT, 50, UP, 0, 1, id="0 + 50 % would be 0: a step is never nothing"),
        pytest.param(PERCENT, 50, DOWN, 3, 1, id="3 - 50 % = 1.5, rounded as the HPA does to 1"),
        pytest.param(PERCENT, 10, DOWN, 5, 4, id="5 - 10 % = 4.5, rounded to 4: never nothing"),
        pytest.param(PERCENT, 30, DOWN, 10, 7, id="10 - 30 % = 7"),
    ],
)
def test_steps(kind: ScaleType, value: float, way: Direction, current: int, expected: int) -> None:
    """Pods and Percent before limits."""
    assert stepped(kind, value, way, current) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(4.0, 4), (4.000000000000001, 4), (4.001, 5), (3 * 0.8 / 0.6, 4), (0.0, 0), (0.001, 1)],
)
def test_rounding_up_ignores_what_floating_point_adds(number: float, expected: int) -> None:
    """3 × 0.8 ÷ 0.6 is 4, not 5."""
    assert ceil(number) == expected


def sized(name: str, way: Direction, kind: ScaleType, target: float) -> Trigger:
    return trigger(name, way, kind, target=target)


def asked(
    way: Direction, kind: ScaleType, target: float, value: float, replicas: int, ready: int | None = None
) -> Decision:
    only = trigger("sized", way, kind, target=target)
    pol = policy(only, max_replicas=100, min_replicas=0, wake_from_zero=True)
    return decide(pol, observed(replicas, ready, value=value), record("sized", pol=pol), at(1))


HOLDS, NEAR = Reason.ALREADY_THERE, Reason.WITHIN_TOLERANCE


@pytest.mark.parametrize(
    ("way", "target", "total", "current", "expected"),
    [
        pytest.param(UP, 8, 46, 2, 6, id="46 / 8 = 5.75: 6"),
        pytest.param(UP, 8, 48, 2, 6, id="48 / 8 = 6"),
        pytest.param(UP, 8, 17.6, 2, NEAR, id="17.6 / (8 x 2) = 1.1 is within the tolerance of 0.1"),
        pytest.param(UP, 8, 17.7, 2, 3, id="17.7 / (8 x 2) = 1.106 is not: 17.7 / 8 = 2.2: 3"),
        pytest.param(UP, 8, 4, 2, HOLDS, id="4 / (8 x 2) = 0.25: up never goes down"),
        pytest.param(UP, 8, 3, 0, 1, id="from 0, 3 / 8 = 0.4: 1"),
        pytest.param(UP, 8, 0, 0, NEAR, id="nothing to serve and nothing there"),
        pytest.param(DOWN, 8, 14.5, 4, 3, id="14.5 / (8 x 0.9) = 2.01: 3"),
        pytest.param(DOWN, 8, 14.4, 4, 2, id="14.4 / (8 x 0.9) = 2: the survivors are at 7.2 each"),
        pytest.param(DOWN, 8, 0, 4, 0, id="a true zero is a value: 0 / 7.2 = 0"),
        pytest.param(DOWN, 8, 28.8, 4, NEAR, id="28.8 / (8 x 4) = 0.9 is within tolerance"),
        pytest.param(
            DOWN, 8, 28.0, 4, HOLDS, id="28 / (8 x 4) = 0.875 is not, but 28 / 7.2 = 3.9 needs all 4"
        ),
        pytest.param(DOWN, 8, 60, 4, HOLDS, id="60 / (8 x 4) = 1.9: down never goes up"),
    ],
)
def test_average_value(way: Direction, target: float, total: float, current: int, expected: object) -> None:
    """AverageValue sizes to the total; down leaves each survivor at most target × (1 − up tolerance)."""
    decision = asked(way, AVERAGE, target, total, current)
    found = decision.desired if decision.acts else decision.reason
    assert found == expected


@pytest.mark.parametrize(
    ("way", "value", "current", "ready", "expected"),
    [
        pytest.param(UP, 0.9, 3, 3, 5, id="3 x 0.9 / 0.6 = 4.5: 5"),
        pytest.param(UP, 0.8, 3, 3, 4, id="3 x 0.8 / 0.6 = 4"),
        pytest.param(UP, 0.66, 3, 3, NEAR, id="0.66 / 0.6 = 1.1 is within tolerance"),
        pytest.param(UP, 0.9, 4, 2, HOLDS, id="2 ready: 2 x 0.9 / 0.6 = 3 reverses direction from 4"),
        pytest.param(UP, 1.0, 4, 3, 5, id="3 ready: 3 x 1 / (0.6 x 4) = 1.25: 3 x 1 / 0.6 = 5"),
        pytest.param(UP, 0.99, 6, 4, NEAR, id="4 ready: 4 x 0.99 / (0.6 x 6) = 1.1 is within tolerance"),
        pytest.param(UP, 1.0, 3, 0, HOLDS, id="none ready: nothing was measured"),
        pytest.param(DOWN, 0.2, 6, 6, 3, id="6 x 0.2 / (0.6 x 0.9) = 2.2: 3"),
        pytest.param(DOWN, 0.55, 6, 6, NEAR, id="0.55 / 0.6 = 0.92 is within tolerance"),
        pytest.param(DOWN, 0.9, 6, 6, HOLDS, id="down never goes up"),
        pytest.param(DOWN, 0.0, 6, 6, 0, id="a true zero: idle"),
    ],
)
def test_utilization(way: Direction, value: float, current: int, ready: int, expected: object) -> None:
    """Utilization with a target of 0.6; what is not ready counts as 0 going up."""
    decision = asked(way, UTILIZATION, 0.6, value, current, ready)
    found = decision.desired if decision.acts else decision.reason
    assert found == expected


@pytest.mark.parametrize(
    ("way", "value", "current", "expected"),
    [
        pytest.param(UP, 6, 2, 6, id="up to 6"),
        pytest.param(UP, 6, 6, HOLDS, id="6 are there"),
        pytest.param(UP, 6, 8, HOLDS, id="up never goes down to 6"),
        pytest.param(DOWN, 2, 6, 2, id="down to 2"),
        pytest.param(DOWN, 2, 1, HOLDS, id="down never goes up to 2"),
    ],
)
def test_replicas(way: Direction, value: float, current: int, expected: object) -> None:
    """Replicas asks for a number, in its direction only."""
    pol = policy(trigger("sized", way, REPLICAS, value))
    decision = decide(pol, observed(current), record("sized", pol=pol), at(1))
    assert (decision.desired if decision.acts else decision.reason) == expected


def test_tolerance_is_each_directions_own() -> None:
    """Up tolerates 0.5 here: 46 / (8 × 4) = 1.44 holds; down tolerates 0: 30 / (8 × 4) = 0.94 acts."""
    pol = policy(SIZED, SHRINK, scale_up=rules(tolerance=0.5), scale_down=rules(tolerance=0.0))
    assert decide(pol, observed(4, value=46), record("sized", pol=pol), at(1)).reason is NEAR
    # Survivors at 8 × 0.5 = 4 at most need 30 / 4 = 8: more than are there.
    assert decide(pol, observed(4, value=30), record("shrink", pol=pol), at(1)).reason is HOLDS
    assert decide(pol, observed(9, value=30), record("shrink", pol=pol), at(1)).desired == 8


def test_the_survivors_of_a_scale_down_do_not_ask_for_more() -> None:
    """Down and up by the same value do not bounce, for loads and sizes of all kinds."""
    for current in range(2, 12):
        for total in range(8 * current):
            m = fewest(total, 8, 0.1)
            if 0 < m < current:
                assert not asked(UP, AVERAGE, 8, total, m).acts, (current, total)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="not asked for"),
        pytest.param(Value(None, at(0), "Prometheus answered with 2 samples, not one."), id="failed"),
        pytest.param(Value(math.nan, at(0)), id="NaN"),
        pytest.param(Value(math.inf, at(0)), id="infinite"),
        pytest.param(Value(-1.0, at(0)), id="below zero"),
        pytest.param(Value(46.0, at(-300)), id="300 s old"),
    ],
)
@pytest.mark.parametrize("name", ["sized", "shrink"])
def test_a_value_that_is_none_holds(value: Value | None, name: str) -> None:
    """ValueMissing, never zero: neither up nor down."""
    values = {} if value is None else {name: value}
    decision = decide(policy(), observed(4, values=values), record(name), at(0))
    assert (decision.desired, decision.reason) == (4, Reason.VALUE_MISSING)
    assert decision.missing == (name,)
    assert "value is missing" in decision.message


def test_an_annotations_value_lives_as_long_as_its_alert() -> None:
    """Its time is that of its receipt, and repeats come seldom."""
    pol = policy(trigger("sized", UP, AVERAGE, target=8, value_from=ValueFrom(annotation="v")))
    values = {"sized": Value(46.0, at(0))}
    rec = record("sized", pol=pol)
    assert decide(pol, observed(4, values=values), rec, at(899)).desired == 6
    assert decide(pol, observed(4, values=values), rec, at(900)).reason is Reason.ALERT_UNKNOWN


BACK = trigger("sized", UP, AVERAGE, target=8, steps=1, fallback=(PERCENT, 50, 60))


@pytest.mark.parametrize(
    ("since", "taken", "expected"),
    [
        pytest.param(None, 0, Reason.VALUE_MISSING, id="just noticed: it waits for afterSeconds"),
        pytest.param(-59, 0, Reason.VALUE_MISSING, id="missing for 59 s: it waits"),
        pytest.param(-60, 0, 6, id="missing for 60 s: 4 + 50 % = 6"),
        pytest.param(-60, 1, Reason.VALUE_MISSING, id="its one step of the episode is taken"),
    ],
)
def test_fallback(since: float | None, taken: int, expected: object) -> None:
    """A Percent of 50 after 60 s without a value."""
    pol = policy(BACK)
    rec = record("sized", pol=pol)
    steps = {episode_id(rec, "sized") + "/fallback": taken}
    missing = {} if since is None else {"sized": at(since)}
    rec = record("sized", pol=pol, missing=missing, ledger=ledger(steps=steps))
    decision = decide(pol, observed(4), rec, at(0))
    assert (decision.desired if decision.acts else decision.reason) == expected
    assert decision.missing == ("sized",)
    if since is None:
        assert decision.look_again_at == at(30), "the value is asked for again first"


def test_the_fallback_counts_its_own_steps() -> None:
    """Changes that were sized to a value leave the fallback its step."""
    pol = policy(BACK)
    rec = record("sized", pol=pol)
    rec = record(
        "sized", pol=pol, missing={"sized": at(-99)}, ledger=ledger(steps={episode_id(rec, "sized"): 5})
    )
    assert decide(pol, observed(4), rec, at(0)).desired == 6


def test_a_fallback_never_goes_down() -> None:
    """Up only: a down trigger without a value holds, whatever its fallback says."""
    pol = policy(trigger("shrink", DOWN, AVERAGE, target=8, fallback=(PODS, 1, 0)))
    rec = record("shrink", pol=pol, missing={"shrink": at(-999)})
    assert decide(pol, observed(4), rec, at(0)).reason is Reason.VALUE_MISSING


def test_an_annotation_may_only_lower_a_target() -> None:
    """46 / 4 = 11.5: 12, under `target: 4`; `target: 20` changes nothing."""
    pol = policy(SIZED, max_replicas=20)
    lower = observed(2, value=46, annotations={"gpu-responder.io/target": "4"})
    assert decide(pol, lower, record("sized", pol=pol), at(1)).desired == 12
    higher = observed(2, value=46, annotations={"gpu-responder.io/target": "20"})
    assert decide(pol, higher, record("sized", pol=pol), at(1)).desired == 6


def test_sized_triggers_are_those_that_fire_now() -> None:
    """Unknown and resolved ones need no value, nor do steps."""
    rec = record("sized", "more", "shrink", heard=0)
    found = sized_triggers(policy(), rec, at(10))
    assert [(each.name, span.fingerprint) for each, span in found] == [
        ("sized", "sized"),
        ("shrink", "shrink"),
    ]
    assert sized_triggers(policy(), rec, at(900)) == ()


def test_a_sized_trigger_is_evaluated_again_every_evaluation_seconds() -> None:
    """30 s by default, also while nothing has to change."""
    decision = decide(policy(), observed(6, value=46), record("sized"), at(0))
    assert decision.reason is NEAR
    assert decision.look_again_at == at(30)


def test_replicas_that_cannot_be_scheduled_stop_absolute_types() -> None:
    """Promise 14: more of them would only wait beside those that do."""
    pods = Pods(2, 4, 2, "2 x nvidia.com/gpu")
    decision = decide(policy(), observed(4, pods=pods, value=80), record("sized"), at(1))
    assert (decision.desired, decision.reason) == (4, Reason.UNSCHEDULABLE)
    assert "2 pods cannot be scheduled for want of GPUs (2 x nvidia.com/gpu)" in decision.message
    assert decide(policy(), observed(4, ready=1, value=80), record("sized"), at(1)).desired == 10
    stepping = policy(MORE, ready_timeout=s(0))
    assert decide(stepping, observed(4, pods=pods), record("more", pol=stepping), at(1)).desired == 5
