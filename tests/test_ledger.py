"""What acting uses up, foreign changes and reverts, and what a look leaves behind."""

from dataclasses import replace
from datetime import timedelta

import pytest

from responder.decide import decide
from responder.ledger import charge, clamped, foreign, note
from responder.model import Decision, Intent, Reason, Record
from tests.deciding import REF, at, change, ledger, observed, policy, record


def intent(
    seconds: float, before: int, after: int, reason: Reason = Reason.SCALED_UP, episode: str | None = "e1"
) -> Intent:
    return Intent(
        f"i{seconds}", "u1", before, after, "1", 1, "kubectl", at(seconds), reason, "", episode=episode
    )


EMPTY = Record(REF, uid="u1", replicas=4)


def noted(found: Record, seconds: float, recommendation: int | None, missing: tuple[str, ...] = ()) -> Record:
    decision = Decision(4, 4, Reason.COOLDOWN, "", recommendation=recommendation, missing=missing)
    return note(found, decision, at(seconds))


def test_a_charge_counts_step_change_and_cooldown_from_decided_at() -> None:
    """Promise 19: applied is charged from decidedAt, whenever it is found out."""
    charged = charge(EMPTY, intent(0, 4, 6))
    assert charged.replicas == 6
    assert charged.ledger == ledger(up=0, last_up_to=6, steps={"e1": 1}, changes=(change(0, 4, 6, "i0"),))
    down = charge(charged, intent(50, 6, 5, episode=None))
    assert (down.ledger.last_up_at, down.ledger.last_down_at, down.ledger.last_up_to) == (at(0), at(50), 6)
    assert down.ledger.steps == {"e1": 1}


def test_charging_an_intent_twice_counts_once() -> None:
    """It may be found applied by its answer and by settling."""
    once = charge(EMPTY, intent(0, 4, 6))
    assert charge(once, intent(0, 4, 6)) is once


def test_a_late_charge_does_not_turn_a_cooldown_back() -> None:
    """An outstanding intent is found applied after a newer one was charged."""
    late = charge(charge(EMPTY, intent(50, 6, 8)), intent(0, 4, 6))
    assert late.ledger.last_up_at == at(50)
    late = charge(charge(EMPTY, intent(50, 6, 4)), intent(0, 8, 6))
    assert late.ledger.last_down_at == at(50)


def test_a_dry_run_charges_its_shadow_alone() -> None:
    """Promise 23."""
    charged = charge(EMPTY, intent(0, 4, 6), dry_run=True)
    assert charged.ledger == EMPTY.ledger
    assert charged.shadow.steps == {"e1": 1}
    assert charged.replicas == 4


@pytest.mark.parametrize(
    ("reason", "after", "expected"),
    [
        pytest.param(Reason.PINNED, 0, 4, id="a pin of 0 remembers what it replaced"),
        pytest.param(Reason.PINNED, 2, None, id="another pin does not"),
        pytest.param(Reason.SCALED_DOWN, 0, None, id="nor does a trigger's 0"),
    ],
)
def test_a_pins_zero_is_remembered(reason: Reason, after: int, expected: int | None) -> None:
    """Promise 8: it returns when the pin ends."""
    assert charge(EMPTY, intent(0, 4, after, reason, None)).zero_from == expected


def test_what_a_zero_replaced_is_forgotten_when_it_is_over() -> None:
    """By a change of ours or of anybody."""
    zero = charge(EMPTY, intent(0, 4, 0, Reason.PINNED, None))
    assert charge(zero, intent(9, 0, 4, Reason.PIN_ENDED, None)).zero_from is None
    assert foreign(zero, 3, "kubectl", at(9)).zero_from is None


def test_changes_are_kept_as_long_as_rates_look_back_and_the_last_few_for_ever() -> None:
    """For rates; and to tell whose a 0 is, and what a revert restores."""
    found = EMPTY
    for minute in range(0, 300, 20):
        found = noted(charge(found, intent(minute * 60, 4, 5)), minute * 60, None)
    assert len(found.ledger.changes) == 8
    for second in range(30):
        found = noted(charge(found, intent(20000 + second, 4, 5)), 20000 + second, None)
    assert len(found.ledger.changes) == 31, "one of the earlier is less than an hour old"


def test_a_foreign_change_is_dated_when_first_seen() -> None:
    """And respected: nothing is charged."""
    found = foreign(EMPTY, 9, "kubectl", at(7))
    assert (found.replicas, found.manager, found.foreign_at, found.reverts) == (9, "kubectl", at(7), None)
    assert found.ledger == EMPTY.ledger


def test_the_first_revert_is_a_foreign_change_and_the_second_backs_off() -> None:
    """Promise 7: 10 minutes, doubling to 6 hours, within 24 h each."""
    found, now, waits = EMPTY, 0.0, []
    for _ in range(9):
        found = charge(found, intent(now, 4, 6))
        found = foreign(found, 4, "argocd", at(now + 30))
        assert found.reverts is not None
        waits.append(
            None if found.reverts.until is None else (found.reverts.until - at(now + 30)).total_seconds()
        )
        now += 23 * 3600
    assert waits == [None, 600, 1200, 2400, 4800, 9600, 19200, 21600, 21600]
    assert found.reverts.manager == "argocd"
    found = charge(found, intent(now + 7200, 4, 6))
    late = foreign(found, 4, "argocd", at(now + 7200))
    assert late.reverts is not None
    assert late.reverts.count == 1, "24 h after the last one it counts anew"


def test_a_revert_to_where_several_steps_began() -> None:
    """GitOps writes its manifest's number, not our last one but one."""
    found = charge(charge(EMPTY, intent(0, 2, 4)), intent(60, 4, 8))
    reverted = foreign(found, 2, "flux", at(90))
    assert reverted.reverts is not None


@pytest.mark.parametrize(
    ("found", "replicas"),
    [
        pytest.param(EMPTY, 2, id="we changed nothing"),
        pytest.param(charge(EMPTY, intent(0, 4, 6)), 5, id="to a number that was not there before"),
        pytest.param(
            foreign(charge(EMPTY, intent(0, 4, 6)), 8, "kubectl", at(9)), 4, id="after somebody else's change"
        ),
        pytest.param(charge(EMPTY, intent(0, 4, 6)), 6, id="only the field manager changed"),
    ],
)
def test_foreign_changes_that_are_no_reverts(found: Record, replicas: int) -> None:
    """They do not back off."""
    assert foreign(found, replicas, "kubectl", at(60)).reverts is None


def test_recommendations_are_steps_of_time() -> None:
    """Only changes are kept."""
    found = noted(noted(noted(noted(EMPTY, 0, None), 10, 6), 20, 6), 30, None)
    assert found.ledger == ledger(recommended=((10, 6), (30, None)))
    assert noted(found, 40, None) is found, "nothing new is no reason to write"


def test_recommendations_are_forgotten_but_for_the_one_in_force_an_hour_ago() -> None:
    """Windows are at most an hour."""
    found = noted(noted(noted(EMPTY, 0, 6), 100, 7), 5000, 8)
    assert found.ledger == ledger(recommended=((100, 7), (5000, 8)))


def test_since_when_a_value_is_missing() -> None:
    """From the first look that found it so, until one that did not."""
    found = noted(noted(EMPTY, 10, None, ("sized",)), 20, None, ("sized",))
    assert found.missing == {"sized": at(10)}
    assert noted(found, 30, None).missing == {}


def test_a_dry_run_notes_in_its_shadow() -> None:
    """The real recommendations are not its own."""
    found = note(EMPTY, Decision(4, 4, Reason.COOLDOWN, "", recommendation=6), at(0), True)
    assert found.ledger == EMPTY.ledger
    assert found.shadow == ledger(recommended=((0, 6),))


def test_a_clock_that_was_set_back_blocks_for_no_longer_than_a_cooldown() -> None:
    """Times later than now count as now from the first look on, and not at each look anew."""
    pol = policy(scale_up=replace(policy().scale_up, cooldown=timedelta(seconds=60)))
    found = record(
        "more", ledger=ledger(up=9000, changes=(change(9000, 3, 4),), recommended=((8000, 3), (9000, 6)))
    )
    found = note(found, decide(pol, observed(4), found, at(0)), at(0))
    assert found.ledger.last_up_at == at(0)
    assert found.ledger.changes[-1].at == at(0)
    assert [step.replicas for step in found.ledger.recommendations] == [5]
    assert decide(pol, observed(4), found, at(59)).reason is Reason.COOLDOWN
    assert decide(pol, observed(4), found, at(60)).desired == 5


def test_a_back_off_is_no_longer_than_it_can_be_after_a_clock_was_set_back() -> None:
    """Six hours from now."""
    found = foreign(charge(EMPTY, intent(0, 4, 6)), 4, "argocd", at(99999))
    found = foreign(charge(found, intent(100000, 4, 6)), 4, "argocd", at(100030))
    turned = clamped(found, at(0))
    assert turned.reverts is not None
    assert turned.reverts.until == at(21600)
    assert turned.foreign_at == at(0)
