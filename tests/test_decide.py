"""Promises 7 to 18: the order of precedence, each rule by itself and against its neighbours."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from responder.decide import decide
from responder.matchers import parse
from responder.model import (
    ActiveHold,
    Budget,
    Decision,
    Direction,
    Intent,
    Observed,
    OverrideKind,
    Ownership,
    Pods,
    Reason,
    Record,
    Reverts,
    ScaleType,
)
from responder.policy import Capacity, Policy, SelectPolicy
from tests.deciding import (
    DOWN,
    LESS,
    MORE,
    SIZED,
    UP,
    at,
    change,
    episode_id,
    ledger,
    observed,
    override,
    percent_per,
    pin,
    pods_per,
    policy,
    record,
    rules,
    s,
    silence,
    span,
    trigger,
)

NOW = at(1)
FORBID_UP = ActiveHold("full", UP, "NoRoom", at(-60))
FORBID_DOWN = ActiveHold("hot", DOWN, "GPUHot", at(-60))
PAUSE = override(OverrideKind.PAUSE)
FREEZE = override(OverrideKind.FREEZE)


def look(
    seen: Observed, rec: Record, pol: Policy | None = None, now: datetime = NOW, **more: Any
) -> Decision:
    return decide(pol or policy(), replace(seen, **more), rec, now)


def outcome(decision: Decision) -> tuple[int, Reason]:
    return decision.desired, decision.reason


# --- Each reason to hold, alone --------------------------------------------------------------------

HOLDS = [
    ("nobody fires", record(), {}, Reason.NOTHING_FIRING),
    (
        "an HPA owns it",
        record("more"),
        {"ownership": Ownership(owner="HPA inference/vllm")},
        Reason.OTHER_OWNER,
    ),
    ("owners unreadable", record("more"), {"ownership": Ownership(known=False)}, Reason.OWNER_UNKNOWN),
    (
        "our writes are reverted",
        record("more", reverts=Reverts(2, at(-60), "argocd", at(540))),
        {},
        Reason.REVERTED,
    ),
    ("frozen by an override", record("more"), {"overrides": (FREEZE,)}, Reason.FROZEN),
    ("frozen by the file", record("more"), {"freeze": "the night of the 5th"}, Reason.FROZEN),
    ("paused", record("more"), {"overrides": (PAUSE,)}, Reason.PAUSED),
    (
        "up paused",
        record("more"),
        {"overrides": (override(OverrideKind.PAUSE_SCALE_UP),)},
        Reason.PAUSED,
    ),
    (
        "down paused",
        record("less"),
        {"overrides": (override(OverrideKind.PAUSE_SCALE_DOWN),)},
        Reason.PAUSED,
    ),
    ("up silenced", record("more"), {"silences": (silence('alertname="more"'),)}, Reason.SILENCED),
    ("down silenced", record("less"), {"silences": (silence('alertname=~"le.*"'),)}, Reason.SILENCED),
    ("up held", record("more"), {"holds": (FORBID_UP,)}, Reason.HELD),
    ("down held", record("less"), {"holds": (FORBID_DOWN,)}, Reason.HELD),
    ("down in safe mode", record("less"), {"safe_mode": "Watchdog is missing."}, Reason.SAFE_MODE),
    (
        "no up left in the budget",
        record("more"),
        {"budget": Budget(up=0, up_until=at(60))},
        Reason.BUDGET_SPENT,
    ),
    ("no down left in the budget", record("less"), {"budget": Budget(down=0)}, Reason.BUDGET_SPENT),
]


@pytest.mark.parametrize(("rec", "seen", "reason"), [pytest.param(*row[1:], id=row[0]) for row in HOLDS])
def test_what_holds_by_itself(rec: Record, seen: dict[str, Any], reason: Reason) -> None:
    """Nothing changes, and the reason says why."""
    decision = look(observed(4), rec, **seen)
    assert outcome(decision) == (4, reason)
    assert decision.message.startswith("Holding inference/deployment/vllm at 4: ")
    assert decision.message.endswith(".")
    assert "\n" not in decision.message


def test_the_other_direction_goes_on() -> None:
    """Pauses, holds, budgets and safe mode bind one direction only."""
    assert look(observed(4), record("less"), overrides=(override(OverrideKind.PAUSE_SCALE_UP),)).desired == 3
    assert (
        look(observed(4), record("more"), overrides=(override(OverrideKind.PAUSE_SCALE_DOWN),)).desired == 5
    )
    assert look(observed(4), record("more"), holds=(FORBID_DOWN,)).desired == 5
    assert look(observed(4), record("less"), holds=(FORBID_UP,)).desired == 3
    assert look(observed(4), record("more"), safe_mode="Watchdog is missing").desired == 5
    assert look(observed(4), record("more"), budget=Budget(up=1, down=0)).desired == 5


def test_a_plain_scale_up_names_what_shaped_it() -> None:
    """Alert, trigger, policy and episode."""
    rec = record("more")
    decision = look(observed(4), rec)
    assert outcome(decision) == (5, Reason.SCALED_UP)
    assert (decision.policy, decision.trigger, decision.alerts) == ("inference", "more", ("more",))
    assert decision.episode == episode_id(rec)
    assert (
        decision.message == "Scaling inference/deployment/vllm from 4 to 5: more fires and asks for 5 (+1)."
    )


def test_a_sized_scale_up_tells_its_arithmetic_and_its_limits() -> None:
    """46 / 8 = 6; twice 2 within 60 s is 4."""
    pol = policy(scale_up=rules(0, 0, percent_per(100, 60)))
    decision = look(observed(2, value=46), record("sized"), pol)
    assert decision.message == (
        "Scaling inference/deployment/vllm from 2 to 4: sized fires (46 in all, 8 per replica) and asks for 6; "
        "limited from 6 to 4 by 100 % per 60 s."
    )


def test_the_chain_tells_what_each_rule_made_of_the_number() -> None:
    """From what is there to what is done."""
    pol = policy(scale_up=rules(0, 0, percent_per(100, 60)), max_replicas=3)
    decision = look(observed(2, value=46), record("sized"), pol)
    assert [(step.rule, step.replicas) for step in decision.chain] == [
        ("current", 2),
        ("owner", 2),
        ("triggers", 6),
        ("cooldown", 6),
        ("rate", 4),
        ("bounds", 3),
    ]


# --- The order of precedence -----------------------------------------------------------------------

FULL = policy(
    trigger("more", UP, steps=1),
    trigger("less", DOWN),
    scale_up=rules(60, 60, pods_per(1, 60)),
    max_replicas=4,
)
WORST: dict[str, Any] = {
    "ownership": Ownership(owner="HPA inference/vllm"),
    "overrides": (pin(4), PAUSE),
    "freeze": "all stop",
    "silences": (silence('alertname="more"'),),
    "holds": (FORBID_UP,),
    "budget": Budget(up=0),
    "safe_mode": "Watchdog is missing",
}
"""Everything that could stop a scale-up at once, to be taken away one by one."""


def test_precedence_up() -> None:
    """7 owner, 7 reverts, 8 pin, 9 freeze, pause, silence, 11 hold, 12 steps, 13 cooldown, 14 ready, 15, 16, 17."""
    rec = record("more", pol=FULL)
    rec = replace(
        rec,
        reverts=Reverts(2, at(0), "argocd", at(600)),
        ledger=ledger(
            up=0,
            last_up_to=4,
            steps={episode_id(rec): 1},
            changes=(change(0, 3, 4),),
            recommended=((-600, 4),),
        ),
    )
    seen = replace(
        observed(4, ready=3), **{**WORST, "overrides": (pin(4), replace(PAUSE, matchers=(), target=""))}
    )

    def reason(now: float = 1) -> Reason:
        return decide(FULL, seen, rec, at(now)).reason

    assert reason() is Reason.OTHER_OWNER
    seen = replace(seen, ownership=Ownership(known=False))
    assert reason() is Reason.OWNER_UNKNOWN
    seen = replace(seen, ownership=Ownership())
    assert reason() is Reason.REVERTED
    rec = replace(rec, reverts=None)
    assert reason() is Reason.PINNED
    seen = replace(seen, overrides=(PAUSE,))
    assert reason() is Reason.FROZEN
    seen = replace(seen, freeze="")
    assert reason() is Reason.PAUSED
    seen = replace(seen, overrides=())
    assert reason() is Reason.SILENCED
    seen = replace(seen, silences=())
    assert reason() is Reason.HELD
    seen = replace(seen, holds=())
    assert reason() is Reason.STEPS_SPENT
    rec = replace(rec, ledger=replace(rec.ledger, steps={}))
    assert reason() is Reason.COOLDOWN
    rec = replace(rec, ledger=replace(rec.ledger, last_up_at=at(-60)))
    assert reason() is Reason.WAITING_FOR_READY
    seen = replace(seen, pods=Pods(4, 4))
    assert reason() is Reason.STABILIZED
    rec = replace(
        rec, ledger=replace(rec.ledger, recommendations=ledger(recommended=((-600, 9),)).recommendations)
    )
    assert reason() is Reason.RATE_LIMITED
    rec = replace(rec, ledger=replace(rec.ledger, changes=()))
    assert reason() is Reason.AT_MAX_REPLICAS
    wider = replace(FULL, max_replicas=5, capacity=Capacity.CLIP)
    seen = replace(seen, schedulable=0)
    assert decide(wider, seen, rec, at(1)).reason is Reason.NO_CAPACITY
    seen = replace(seen, schedulable=1)
    assert decide(wider, seen, rec, at(1)).reason is Reason.BUDGET_SPENT
    assert outcome(decide(wider, replace(seen, budget=Budget()), rec, at(1))) == (5, Reason.SCALED_UP)


def test_precedence_down() -> None:
    """9 silence, 11 hold, up beats down, 12 steps, 13 cooldown, 15, 16, 17, 18 safe mode."""
    pol = policy(
        MORE,
        trigger("less", DOWN, steps=1),
        trigger("other", UP),
        scale_down=rules(300, 300, pods_per(1, 60)),
        min_replicas=4,
    )
    rec = record("less", "more", "other", pol=pol)
    rec = replace(
        rec,
        alerts={**rec.alerts, "other": span("other", heard=-900)},
        ledger=ledger(
            down=0,
            steps={episode_id(rec, "less"): 1},
            changes=(change(0, 5, 4),),
            recommended=((-600, 4),),
        ),
    )
    seen = observed(4, silences=(silence('alertname="more"'),), holds=(FORBID_DOWN,), budget=Budget(down=0))
    seen = replace(seen, safe_mode="Watchdog is missing")

    def reason() -> Reason:
        return decide(pol, seen, rec, at(1)).reason

    assert reason() is Reason.SILENCED
    rec = replace(rec, alerts={name: each for name, each in rec.alerts.items() if name != "more"})
    assert reason() is Reason.HELD
    seen = replace(seen, holds=())
    assert reason() is Reason.ALERT_UNKNOWN
    rec = replace(rec, alerts={"less": rec.alerts["less"]})
    assert reason() is Reason.STEPS_SPENT
    rec = replace(rec, ledger=replace(rec.ledger, steps={}))
    assert reason() is Reason.COOLDOWN
    rec = replace(rec, ledger=replace(rec.ledger, last_down_at=None))
    assert reason() is Reason.STABILIZED
    rec = replace(
        rec, ledger=replace(rec.ledger, recommendations=ledger(recommended=((-600, 1),)).recommendations)
    )
    assert reason() is Reason.RATE_LIMITED
    rec = replace(rec, ledger=replace(rec.ledger, changes=()))
    assert reason() is Reason.AT_MIN_REPLICAS
    pol = replace(pol, min_replicas=1)
    assert reason() is Reason.BUDGET_SPENT
    seen = replace(seen, budget=Budget())
    assert reason() is Reason.SAFE_MODE
    seen = replace(seen, safe_mode="")
    assert outcome(decide(pol, seen, rec, at(1))) == (3, Reason.SCALED_DOWN)


# --- 7: owners and reverts -------------------------------------------------------------------------


def test_another_owner_holds_pins_too() -> None:
    """Promise 7: two who decide would fight; it is looked at again, since owners go without telling."""
    decision = look(observed(4), record("more"), ownership=Ownership(owner="HPA x"), overrides=(pin(6),))
    assert outcome(decision) == (4, Reason.OTHER_OWNER)
    assert "HPA x" in decision.message
    assert decision.look_again_at == at(1 + 300)


def test_a_revert_backs_off_until_its_time_is_over() -> None:
    """It says who holds the field, and tries again at the end."""
    rec = record("more", reverts=Reverts(2, at(-60), "argocd", at(540)))
    decision = look(observed(4), rec)
    assert "argocd holds spec.replicas and has undone our change 2 times" in decision.message
    assert decision.look_again_at == at(540)
    assert look(observed(4), rec, now=at(540)).desired == 5


# --- 8 and 9: people's word ------------------------------------------------------------------------


def test_a_pin_goes_past_all_that_follows() -> None:
    """Promise 8: cooldown, holds, rates, budget, safe mode, the file's freeze."""
    pol = policy(scale_up=rules(600, 600, pods_per(1, 600)), scale_down=rules(600))
    rec = record("less", ledger=ledger(up=0, down=0, last_up_to=9), foreign_at=at(0))
    seen = {**WORST, "ownership": Ownership()}
    decision = look(observed(4, ready=0), rec, pol, **{**seen, "overrides": (pin(9),)})
    assert outcome(decision) == (9, Reason.PINNED)
    assert decision.override == "pin"
    assert decision.episode is None, "a pin is charged to no episode"
    assert 'pinned to 9 by anna until 13:00:00Z ("maintenance")' in decision.message
    assert look(observed(4), rec, pol, **{**seen, "overrides": (pin(2),)}).desired == 2


def test_a_pin_that_is_met_holds_against_triggers() -> None:
    """Pinned, and the recommendation is recorded meanwhile."""
    decision = look(observed(4, value=46), record("sized"), overrides=(pin(4),))
    assert outcome(decision) == (4, Reason.PINNED)
    assert decision.recommendation == 6


@pytest.mark.parametrize(
    ("wanted", "force", "expected"),
    [
        pytest.param(50, False, 10, id="above maxReplicas 10: 10"),
        pytest.param(0, False, 1, id="below minReplicas 1: 1"),
        pytest.param(50, True, 50, id="forced above"),
        pytest.param(0, True, 0, id="forced below"),
    ],
)
def test_pins_stay_within_bounds_unless_forced(wanted: int, force: bool, expected: int) -> None:
    """Promise 8."""
    decision = look(observed(4), record(), overrides=(pin(wanted, force=force),))
    assert outcome(decision) == (expected, Reason.PINNED)


def test_at_a_pins_end_nothing_is_restored() -> None:
    """5 stays 5, whatever was there before the pin."""
    decision = look(observed(5), record(), overrides=(pin(5, until=0),), now=at(0))
    assert outcome(decision) == (5, Reason.NOTHING_FIRING)


@pytest.mark.parametrize(
    ("before", "least", "expected"),
    [
        pytest.param(3, 1, 3, id="to the earlier count"),
        pytest.param(1, 2, 2, id="at least minReplicas"),
        pytest.param(30, 1, 10, id="at most maxReplicas"),
    ],
)
def test_a_zero_that_a_pin_wrote_returns(before: int, least: int, expected: int) -> None:
    """Promise 8: at its end; it is no zero of foreign origin."""
    rec = record(zero_from=before, ledger=ledger(changes=(change(-99, before, 0),), down=-1))
    pol = policy(min_replicas=least)
    held = look(observed(0), rec, pol, overrides=(pin(0, until=60, force=True),))
    assert outcome(held) == (0, Reason.PINNED)
    assert held.look_again_at == at(60)
    ended = look(observed(0), rec, pol, overrides=(pin(0, until=60, force=True),), now=at(60))
    assert outcome(ended) == (expected, Reason.PIN_ENDED)


def test_a_pins_zero_does_not_return_into_a_pause() -> None:
    """Frozen is frozen; it returns when that ends."""
    rec = record(zero_from=3)
    frozen = look(observed(0), rec, overrides=(override(OverrideKind.FREEZE, until=60),))
    assert outcome(frozen) == (0, Reason.FROZEN)
    assert frozen.look_again_at == at(60)
    up_paused = look(observed(0), rec, overrides=(override(OverrideKind.PAUSE_SCALE_UP),))
    assert outcome(up_paused) == (0, Reason.PAUSED)


def test_overrides_begin_and_end_on_time() -> None:
    """To the second, and the look again is then."""
    later = override(OverrideKind.PAUSE, since=100, until=200)
    rec = record("more", pol=policy(trigger("more", UP, steps=None)))
    pol = policy(max_replicas=4)
    assert look(observed(4), rec, pol, overrides=(later,)).look_again_at == at(100)
    assert look(observed(4), rec, pol, overrides=(later,), now=at(100)).reason is Reason.PAUSED
    assert look(observed(4), rec, pol, overrides=(later,), now=at(100)).look_again_at == at(200)
    assert look(observed(4), rec, pol, overrides=(later,), now=at(200)).reason is Reason.AT_MAX_REPLICAS
    deleted = replace(later, expired_at=at(150))
    assert look(observed(4), rec, pol, overrides=(deleted,), now=at(149)).look_again_at == at(150)
    assert look(observed(4), rec, pol, overrides=(deleted,), now=at(150)).reason is Reason.AT_MAX_REPLICAS


def test_a_silence_ends_on_time() -> None:
    """And its start is looked out for as well."""
    quiet = silence('alertname="more"', since=100, until=200)
    pol = policy(max_replicas=4)
    assert look(observed(4), record("more"), pol, silences=(quiet,)).look_again_at == at(100)
    during = look(observed(4), record("more"), pol, silences=(quiet,), now=at(150))
    assert during.reason is Reason.SILENCED
    assert during.look_again_at == at(200)
    assert 'silenced by anna until 12:03:20Z ("night work")' in during.message


def test_a_silenced_up_alert_still_forbids_down() -> None:
    """Promise 9; whether we or Alertmanager silence it."""
    by_us = look(observed(4), record("more", "less"), silences=(silence('alertname="more"'),))
    assert outcome(by_us) == (4, Reason.SILENCED)
    rec = record("more", "less")
    rec = replace(rec, alerts={**rec.alerts, "more": span("more", suppressed=True)})
    by_alertmanager = look(observed(4), rec)
    assert outcome(by_alertmanager) == (4, Reason.SILENCED)
    assert "in Alertmanager" in by_alertmanager.message


def test_an_alert_that_is_not_silenced_goes_on_for_its_trigger() -> None:
    """One of two alerts is silenced: the other still fires."""
    rec = record("more")
    rec = replace(rec, alerts={**rec.alerts, "b": span("more", fingerprint="b", labels={"gpu": "1"})})
    decision = look(observed(4), rec, silences=(silence('gpu="1"'),))
    assert outcome(decision) == (5, Reason.SCALED_UP)
    assert decision.alerts == ("more",)


# --- 10: switched off ------------------------------------------------------------------------------


def test_a_target_switched_off_stays_off() -> None:
    """Promise 10: a 0 that we did not write is a person's wish."""
    assert outcome(look(observed(0), record("more"))) == (0, Reason.SWITCHED_OFF)
    rec = record("more", ledger=ledger(changes=(change(-99, 1, 0),)), foreign_at=at(-50))
    assert outcome(look(observed(0), rec, policy(min_replicas=0))) == (0, Reason.SWITCHED_OFF)
    never = record("more", ledger=ledger(changes=(change(-99, 1, 4),)))
    assert outcome(look(observed(0), never)) == (0, Reason.SWITCHED_OFF)


def test_wake_from_zero_and_a_zero_of_our_own() -> None:
    """An up goes at least to minReplicas."""
    waking = policy(wake_from_zero=True, min_replicas=3)
    assert outcome(look(observed(0), record("more"), waking)) == (3, Reason.SCALED_UP)
    ours = record("more", ledger=ledger(changes=(change(-99, 1, 0),)))
    assert outcome(look(observed(0), ours, policy(min_replicas=0))) == (1, Reason.SCALED_UP)


# --- 11: holds, and up beats down ------------------------------------------------------------------

SPENT = trigger("more", UP, steps=0)


@pytest.mark.parametrize(
    ("up", "seen", "reason"),
    [
        pytest.param(SPENT, {}, Reason.UP_BEATS_DOWN, id="its steps are spent"),
        pytest.param(
            trigger("more", UP, ScaleType.AVERAGE_VALUE, target=8),
            {},
            Reason.UP_BEATS_DOWN,
            id="its value is missing",
        ),
        pytest.param(MORE, {"holds": (FORBID_UP,)}, Reason.HELD, id="a hold stops it"),
        pytest.param(
            MORE,
            {"overrides": (override(OverrideKind.PAUSE_SCALE_UP),)},
            Reason.PAUSED,
            id="a pause stops it",
        ),
        pytest.param(MORE, {"budget": Budget(up=0)}, Reason.BUDGET_SPENT, id="the budget stops it"),
        pytest.param(
            trigger("more", UP, ScaleType.REPLICAS, 4), {}, Reason.UP_BEATS_DOWN, id="what it wants is there"
        ),
    ],
)
def test_any_up_trigger_forbids_down(up: Any, seen: dict[str, Any], reason: Reason) -> None:
    """Promise 11, also when the up trigger itself can do nothing."""
    pol = policy(up, LESS)
    decision = look(observed(4), record("more", "less", pol=pol), pol, **seen)
    assert outcome(decision) == (4, reason)


def test_an_unknown_up_trigger_forbids_down_until_it_is_forgotten() -> None:
    """Promise 6: unknown at 900 s, forgotten 21600 s later."""
    rec = record("more")
    rec = replace(rec, alerts={**rec.alerts, "less": span("less", heard=22000)})
    assert look(observed(4), rec, now=at(899)).desired == 5
    unknown = look(observed(4), rec, now=at(22000))
    assert outcome(unknown) == (4, Reason.ALERT_UNKNOWN)
    assert unknown.look_again_at == at(22500)
    assert outcome(look(observed(4), rec, now=at(22500))) == (3, Reason.SCALED_DOWN)


def test_an_unknown_alert_triggers_nothing() -> None:
    """And says so."""
    assert look(observed(4), record("more"), now=at(899)).desired == 5
    decision = look(observed(4), record("more"), now=at(900))
    assert outcome(decision) == (4, Reason.ALERT_UNKNOWN)
    assert "has not been heard of since 12:00:00Z" in decision.message
    assert look(observed(4), record("more"), now=at(22500)).reason is Reason.NOTHING_FIRING


def test_an_unknown_hold_forbids_down_and_nothing_else() -> None:
    """Of what is not heard of any more only the caution stays."""
    down_hold, up_hold = replace(FORBID_DOWN, unknown=True), replace(FORBID_UP, unknown=True)
    assert look(observed(4), record("less"), holds=(down_hold,)).reason is Reason.HELD
    assert look(observed(4), record("more"), holds=(up_hold,)).desired == 5


def test_alerts_of_another_policy_only_hold() -> None:
    """They trigger nothing, and forbid scaling down."""
    pol = policy(matchers=(parse('namespace="inference"'), parse('team="a"')))
    ours = span("less", labels={"team": "a"})
    theirs = span("more", labels={"team": "b"})
    rec = replace(record(), alerts={"less": ours, "more": theirs})
    assert outcome(look(observed(4), rec, pol)) == (4, Reason.OTHER_POLICY)
    assert outcome(look(observed(4), replace(rec, alerts={"more": theirs}), pol)) == (4, Reason.OTHER_POLICY)
    assert look(observed(4), replace(rec, alerts={"less": ours}), pol).desired == 3


@pytest.mark.parametrize(
    ("alerts", "expected"),
    [
        pytest.param({"less": span("less")}, 3, id="alone it asks for 3"),
        pytest.param(
            {"less": span("less"), "more": span("more", suppressed=True)}, None, id="an up is silenced"
        ),
        pytest.param({"less": span("less"), "more": span("more", heard=-1000)}, None, id="an up is unknown"),
        pytest.param(
            {"less": span("less"), "more": span("more", labels={"namespace": "x"})}, None, id="another's"
        ),
        pytest.param({"less": span("less"), "more": span("more")}, 5, id="an up fires"),
    ],
)
def test_what_is_recommended_beside_a_down_trigger(alerts: dict[str, Any], expected: int | None) -> None:
    """Less is not wanted while an up trigger forbids it: the down window starts when that is over."""
    rec = replace(record(), alerts={**alerts, "less": span("less", heard=0)})
    assert look(observed(4), rec).recommendation == expected


# --- Of several ------------------------------------------------------------------------------------


def test_of_ups_the_largest_and_of_downs_the_smallest_reduction() -> None:
    """Section 3."""
    pol = policy(
        trigger("a", UP), trigger("b", UP, value=3), trigger("c", DOWN, value=3), trigger("d", DOWN, value=2)
    )
    up = look(observed(4), record("a", "b", pol=pol), pol)
    assert (up.desired, up.trigger) == (7, "b")
    down = look(observed(6), record("c", "d", pol=pol), pol)
    assert (down.desired, down.trigger) == (4, "d")


def test_a_down_trigger_that_needs_what_is_there_stands_in_the_way() -> None:
    """The smallest reduction is none: a value that says so, or one that is missing, counts."""
    rec = record("less", "shrink")
    needs_all = look(observed(4, value=30), rec)
    assert outcome(needs_all) == (4, Reason.WITHIN_TOLERANCE)
    assert outcome(look(observed(4), rec)) == (4, Reason.VALUE_MISSING)
    assert outcome(look(observed(4, value=8), rec)) == (3, Reason.SCALED_DOWN)


def test_a_down_trigger_whose_steps_are_spent_does_not() -> None:
    """It has had its say."""
    pol = policy(trigger("spent", DOWN, steps=0), LESS)
    assert look(observed(4), record("spent", "less", pol=pol), pol).desired == 3


# --- 12: steps -------------------------------------------------------------------------------------


def test_steps_are_counted_per_episode() -> None:
    """Promise 12: as many as maxStepsPerEpisode, and anew in the next episode."""
    pol = policy(trigger("more", UP, steps=2))
    rec = record("more", pol=pol)
    once = replace(rec, ledger=ledger(steps={episode_id(rec): 1}))
    twice = replace(rec, ledger=ledger(steps={episode_id(rec): 2}))
    assert look(observed(4), once, pol).desired == 5
    assert outcome(look(observed(4), twice, pol)) == (4, Reason.STEPS_SPENT)
    assert look(observed(4), replace(rec, ledger=ledger(steps={"an older one": 2})), pol).desired == 5


def test_absolute_types_have_no_steps() -> None:
    """Replicas and sized triggers follow their number."""
    pol = policy(SIZED, trigger("fixed", UP, ScaleType.REPLICAS, 9, steps=1))
    rec = record("fixed", pol=pol)
    rec = replace(rec, ledger=ledger(steps={episode_id(rec, "fixed"): 7}))
    assert look(observed(4), rec, pol).desired == 9


# --- 13: cooldowns ---------------------------------------------------------------------------------

COOL = policy(scale_up=rules(60), scale_down=rules(300))


@pytest.mark.parametrize(
    ("name", "kept", "until"),
    [
        pytest.param("more", {"up": 0}, 60, id="up waits 60 s after the last up"),
        pytest.param("more", {"down": 0}, None, id="up does not wait after a down"),
        pytest.param("less", {"up": 0}, 300, id="down waits 300 s after the last up"),
        pytest.param("less", {"down": 0}, 300, id="down waits 300 s after the last down"),
        pytest.param("less", {"up": -100, "down": -200}, 200, id="down waits for the later of the two"),
        pytest.param(
            "more", {"foreign": 0}, 300, id="up waits the longer one, 300 s, after a foreign change"
        ),
        pytest.param("less", {"foreign": 0}, 300, id="so does down"),
        pytest.param("more", {"up": 500}, 61, id="a time later than now (at 1 s) counts as now"),
        pytest.param("less", {"foreign": 500}, 301, id="so does that of a foreign change"),
    ],
)
def test_cooldowns(name: str, kept: dict[str, float], until: float | None) -> None:
    """Promise 13: scaleUp.cooldownSeconds 60, scaleDown.cooldownSeconds 300."""
    foreign = kept.pop("foreign", None) if "foreign" in kept else None
    rec = record(name, ledger=ledger(**kept), foreign_at=None if foreign is None else at(foreign))
    decision = look(observed(4), rec, COOL)
    if until is None:
        assert decision.acts
        return
    assert outcome(decision) == (4, Reason.COOLDOWN)
    assert decision.look_again_at == at(until)
    assert "cooldown" in decision.message
    if until not in (61, 301):
        assert look(observed(4), rec, COOL, now=at(until - 0.001)).reason is Reason.COOLDOWN
        assert look(observed(4), rec, COOL, now=at(until)).acts


# --- 14: readiness ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ready", "now", "expected"),
    [
        pytest.param(5, 100, Reason.WAITING_FOR_READY, id="5 of the 6 that were asked for are ready"),
        pytest.param(6, 100, 7, id="all 6 are ready"),
        pytest.param(0, 599, Reason.WAITING_FOR_READY, id="readyTimeoutSeconds, 600, are not over"),
        pytest.param(0, 600, 7, id="they are over"),
    ],
)
def test_steps_wait_for_what_was_asked_for(ready: int, now: float, expected: object) -> None:
    """Promise 14."""
    decision = look(observed(6, ready), record("more", ledger=ledger(up=0, last_up_to=6)), now=at(now))
    assert (decision.desired if decision.acts else decision.reason) == expected


def test_waiting_for_ready_looks_at_the_pods_again() -> None:
    """Nobody tells when pods become ready; the timeout is not slept through either."""
    rec = record("more", ledger=ledger(up=0, last_up_to=6))
    assert look(observed(6, 5), rec, now=at(100)).look_again_at == at(130)
    assert look(observed(6, 5), rec, now=at(590)).look_again_at == at(600)


def test_sized_triggers_do_not_wait_for_readiness() -> None:
    """Absolute types cannot run away: they ask for a number."""
    rec = record("sized", "more", ledger=ledger(up=0, last_up_to=4))
    decision = look(observed(4, 1, value=60), rec)
    assert (decision.desired, decision.trigger) == (8, "sized")


def test_pods_taken_away_since_are_not_waited_for() -> None:
    """The last up asked for 8; 5 are there and ready."""
    rec = record("more", ledger=ledger(up=0, last_up_to=8))
    assert look(observed(5, 5), rec).desired == 6


# --- 15 is in test_limits.py; 16: bounds -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "current", "expected", "reason"),
    [
        pytest.param("more", 9, 10, Reason.SCALED_UP, id="up to maxReplicas"),
        pytest.param("more", 10, 10, Reason.AT_MAX_REPLICAS, id="up stops at maxReplicas"),
        pytest.param("more", 12, 12, Reason.AT_MAX_REPLICAS, id="above maxReplicas: reported, not corrected"),
        pytest.param("less", 12, 11, Reason.SCALED_DOWN, id="maxReplicas does not bound a down"),
        pytest.param("less", 4, 3, Reason.SCALED_DOWN, id="down to minReplicas"),
        pytest.param("less", 3, 3, Reason.AT_MIN_REPLICAS, id="down stops at minReplicas"),
        pytest.param(
            "less", 2, 2, Reason.AT_MIN_REPLICAS, id="below minReplicas: no limit reverses a direction"
        ),
        pytest.param("more", 1, 3, Reason.SCALED_UP, id="an up goes at least to minReplicas"),
        pytest.param("", 12, 12, Reason.NOTHING_FIRING, id="above, nothing fires: not corrected"),
        pytest.param("", 1, 1, Reason.NOTHING_FIRING, id="below, nothing fires: not corrected"),
    ],
)
def test_bounds(name: str, current: int, expected: int, reason: Reason) -> None:
    """Promise 16: minReplicas 3, maxReplicas 10."""
    rec = record(*([name] if name else []))
    decision = look(observed(current), rec, policy(min_replicas=3))
    assert outcome(decision) == (expected, reason)
    if not 3 <= current <= 10 and not decision.acts:
        assert "maxReplicas 10" in decision.message or "minReplicas 3" in decision.message


def test_an_up_is_shortened_to_max_replicas() -> None:
    """80 / 8 = 10, at most 7."""
    decision = look(observed(4, value=80), record("sized"), policy(max_replicas=7))
    assert outcome(decision) == (7, Reason.SCALED_UP)
    assert "limited from 10 to 7 by maxReplicas 7" in decision.message


def test_a_bounds_override_sets_other_bounds_for_a_while() -> None:
    """And is named when it shapes a decision."""
    wider = override(OverrideKind.BOUNDS, max_replicas=20, until=60)
    decision = look(observed(10), record("more"), overrides=(wider,))
    assert outcome(decision) == (11, Reason.SCALED_UP)
    narrower = override(OverrideKind.BOUNDS, max_replicas=4, until=60)
    held = look(observed(4), record("more"), overrides=(narrower,))
    assert outcome(held) == (4, Reason.AT_MAX_REPLICAS)
    assert held.override == "bounds"
    assert "set by anna until 12:01:00Z" in held.message
    assert held.look_again_at == at(60)


# --- capacity and 17 -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "room", "expected"),
    [
        pytest.param(Capacity.IGNORE, 1, 8, id="Ignore: 60 / 8 = 8"),
        pytest.param(Capacity.REPORT, 1, 8, id="Report: 8, and says that 1 fits"),
        pytest.param(Capacity.CLIP, 1, 5, id="Clip: 4 + 1 = 5"),
        pytest.param(Capacity.CLIP, 0, Reason.NO_CAPACITY, id="Clip: none fits"),
        pytest.param(Capacity.CLIP, None, 8, id="Clip: it was not asked what fits"),
    ],
)
def test_capacity(capacity: Capacity, room: int | None, expected: object) -> None:
    """What could be placed, between bounds and budget."""
    decision = look(observed(4, value=60, schedulable=room), record("sized"), policy(capacity=capacity))
    assert (decision.desired if decision.acts else decision.reason) == expected
    if capacity is Capacity.REPORT:
        assert "can be placed now for want of GPUs" in decision.message


def test_the_budget_is_waited_for() -> None:
    """Until one is given back."""
    pol = policy(trigger("more", UP))
    decision = look(observed(4), record("more", pol=pol), pol, budget=Budget(up=0, up_until=at(44)))
    assert decision.reason is Reason.BUDGET_SPENT
    assert "12:00:44Z" in decision.message
    assert decision.look_again_at == at(44)


def test_a_budget_that_others_wait_for_is_not_called_spent() -> None:
    """An action is left, and goes to those who have waited longer."""
    pol = policy(trigger("more", UP))
    decision = look(observed(4), record("more", pol=pol), pol, budget=Budget(up=0))
    assert decision.reason is Reason.BUDGET_SPENT
    assert decision.message.endswith(
        "but the actionBudget for scaleUp is kept for those who have waited longer."
    )


# --- 23: dry run -----------------------------------------------------------------------------------


def test_dry_run_looks_back_on_its_shadow() -> None:
    """Its steps and cooldowns are its own; the real ones neither bind it nor are bound."""
    pol = policy(trigger("more", UP, steps=1), scale_up=rules(60), dry_run=True)
    rec = record("more", pol=pol)
    real = replace(rec, ledger=ledger(up=0, steps={episode_id(rec): 1}))
    shadow = replace(rec, shadow=ledger(up=0, steps={}))
    decision = look(observed(4), real, pol)
    assert outcome(decision) == (5, Reason.SCALED_UP)
    assert decision.dry_run
    assert look(observed(4), shadow, pol).reason is Reason.COOLDOWN
    assert not look(observed(4), shadow, replace(pol, dry_run=False)).dry_run


def test_a_dry_run_goes_on_from_what_is_there_and_does_not_spin() -> None:
    """Nothing was written: 4 are there, below maxReplicas 5, so it would act again, after a pause."""
    pol = policy(trigger("more", UP), max_replicas=5, dry_run=True)
    assert look(observed(4), record("more", pol=pol), pol).look_again_at == at(31)
    assert look(observed(4), record(), pol, overrides=(pin(5),)).look_again_at == at(301)
    cooling = replace(pol, scale_up=rules(60))
    assert look(observed(4), record("more", pol=pol), cooling).look_again_at == at(61)


# --- When to look again ----------------------------------------------------------------------------


def test_nothing_to_wait_for() -> None:
    """No blind poll: nothing fires, nothing will change by itself."""
    assert look(observed(4), record()).look_again_at is None
    assert look(observed(4), record(ledger=ledger(up=0, changes=(change(0, 3, 4),)))).look_again_at is None


def test_after_acting_it_looks_when_the_next_step_could_follow() -> None:
    """The cooldown of 60 s after a change decided now, at 1."""
    pol = policy(scale_up=rules(60))
    assert look(observed(4, ready=9), record("more", pol=pol), pol).look_again_at == at(61)
    once = policy(trigger("more", UP, steps=1), scale_up=rules(60))
    # Its step spent, the alert can only become unknown.
    assert look(observed(4), record("more", pol=once), once).look_again_at == at(900)


def test_what_could_follow_at_once_is_looked_at_at_once() -> None:
    """No cooldown, no rate, all ready: the next step is due now."""
    assert look(observed(4, ready=9), record("more")).look_again_at == at(1)


def test_it_looks_again_when_a_value_becomes_too_old_or_its_fallback_is_due() -> None:
    """If that comes before the next evaluation, here after 600 s."""
    seldom = replace(
        trigger("sized", UP, ScaleType.AVERAGE_VALUE, target=8, fallback=(ScaleType.PODS, 1, 60)),
        evaluation=s(600),
    )
    pol = policy(seldom)
    assert look(observed(4, value=30), record("sized", pol=pol), pol, now=at(0)).look_again_at == at(300)
    assert look(observed(4), record("sized", pol=pol), pol, now=at(0)).look_again_at == at(60)


def test_it_looks_again_when_another_policys_alert_is_forgotten() -> None:
    """Until then that one forbids scaling down."""
    theirs = span("more", labels={"namespace": "elsewhere"}, heard=-22000)
    rec = replace(record(), alerts={"less": span("less"), "more": theirs})
    decision = look(observed(4), rec)
    assert (decision.reason, decision.look_again_at) == (Reason.OTHER_POLICY, at(500))


def test_a_decision_can_be_made_an_intent_of() -> None:
    """All that an intent needs is in it."""
    decision = look(observed(4), record("more"))
    intent = Intent("i", "u1", 4, decision.desired, "1", 1, "", at(1), decision.reason, decision.message)
    assert intent.direction is Direction.UP


def test_select_policy_disabled() -> None:
    """The direction is off."""
    pol = policy(scale_down=rules(select_policy=SelectPolicy.DISABLED))
    assert outcome(look(observed(4), record("less"), pol)) == (4, Reason.DIRECTION_DISABLED)
    assert look(observed(4), record("more"), pol).desired == 5


def test_a_group_of_ten_thousand_names_a_few() -> None:
    """History is not filled by one storm."""
    alerts = {str(i): span("more", fingerprint=str(i)) for i in range(100)}
    decision = look(observed(4), replace(record("more"), alerts=alerts))
    assert len(decision.alerts) == 16


def test_of_very_many_alerts_the_freshest_counts() -> None:
    """All but one are unknown; and of the silenced ones none is."""
    alerts = {str(i): span("more", fingerprint=str(i), heard=-2000) for i in range(100)}
    alerts["77"] = replace(alerts["77"], last_seen_at=at(-1))
    rec = replace(record(), alerts=alerts)
    fresh = look(observed(4), rec, policy(max_replicas=4))
    assert (fresh.reason, fresh.alerts, fresh.look_again_at) == (Reason.AT_MAX_REPLICAS, ("77",), at(899))
    alerts["78"] = replace(alerts["78"], last_seen_at=at(0), suppressed=True)
    rec = replace(record(), alerts=alerts)
    assert look(observed(4), rec).desired == 5, "one is silenced, the other fires"
    alerts = {**alerts, "77": replace(alerts["77"], firing=False)}
    rec = replace(record(), alerts=alerts)
    assert look(observed(4), rec).reason is Reason.SILENCED
