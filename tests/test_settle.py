"""What became of an intent: promise 19's table row by row, and what a record makes of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from responder import settle
from responder.model import Intent, Outcome, Reason, Record, Workload
from responder.settle import MANAGER, account, commit_to, withdraw
from tests.fakes import REF, T0

NOW = T0 + timedelta(seconds=30)
INTENT = Intent("i1", "u1", 2, 3, "100", 7, "helm", T0, Reason.SCALED_UP, "one more", episode="e1")
UNTOUCHED = Workload("u1", 7, "100", 2, "helm")
LANDED = Workload("u1", 8, "101", 3, MANAGER)
RECORD = Record(REF, uid="u1", replicas=2, manager="helm", intent=INTENT)


@pytest.mark.parametrize(
    ("live", "outcome", "foreign", "may_land"),
    [
        pytest.param(None, Outcome.GONE, False, False, id="404 is gone"),
        pytest.param(replace(LANDED, uid="u2"), Outcome.GONE, False, False, id="another uid is gone"),
        pytest.param(
            UNTOUCHED, Outcome.NOT_APPLIED, False, True, id="nothing moved: not applied, may land yet"
        ),
        pytest.param(
            replace(UNTOUCHED, resource_version="105"),
            Outcome.NOT_APPLIED,
            False,
            False,
            id="status moved resourceVersion: not applied, and never will be",
        ),
        pytest.param(LANDED, Outcome.APPLIED, False, False, id="ours, as asked: applied"),
        pytest.param(
            replace(LANDED, generation=9, resource_version="109"),
            Outcome.APPLIED,
            False,
            False,
            id="ours, as asked, and the template changed since: applied",
        ),
        pytest.param(
            Workload("u1", 8, "101", 2, MANAGER),
            Outcome.NOT_APPLIED,
            False,
            False,
            id="ours from before, and the template changed: not applied",
        ),
        pytest.param(
            Workload("u1", 8, "101", 2, "helm"),
            Outcome.NOT_APPLIED,
            False,
            False,
            id="one change, of the template: not applied",
        ),
        pytest.param(
            Workload("u1", 8, "101", 5, "kubectl"),
            Outcome.NOT_APPLIED,
            True,
            False,
            id="one change, a person's of replicas: not applied and foreign",
        ),
        pytest.param(
            Workload("u1", 8, "101", 3, "kubectl"),
            Outcome.NOT_APPLIED,
            True,
            False,
            id="one change, a person's to the very count that we wanted: not applied and foreign",
        ),
        pytest.param(
            Workload("u1", 8, "101", 2, "argocd-controller"),
            Outcome.NOT_APPLIED,
            True,
            False,
            id="one change, another took the field over at the same count: foreign",
        ),
        pytest.param(
            Workload("u1", 9, "102", 2, "kubectl"),
            Outcome.UNCERTAIN,
            True,
            False,
            id="two changes and the field with another: uncertain",
        ),
        pytest.param(
            Workload("u1", 6, "102", 2, "helm"),
            Outcome.UNCERTAIN,
            True,
            False,
            id="generation went back, as after a restored etcd: uncertain",
        ),
    ],
)
def test_settles_by_the_first_row_that_holds(live, outcome, foreign, may_land):
    """Each row of the table gives its verdict, and says whether a paused write may still land."""
    found = settle.settle(INTENT, live)
    assert (found.outcome, found.foreign, found.may_land) == (outcome, foreign, may_land)
    assert found.message


def outcomes(settled):
    return [(line.intent, line.outcome) for line in settled.entries if line.outcome]


def test_applied_is_charged_from_its_decision():
    """Step and cooldown count from decidedAt, not from when it was found out."""
    settled = account(RECORD, LANDED, NOW)
    assert outcomes(settled) == [("i1", Outcome.APPLIED)]
    assert settled.record.ledger.steps == {"e1": 1}
    assert settled.record.ledger.last_up_at == T0
    assert (settled.record.replicas, settled.record.manager) == (3, MANAGER)
    assert settled.record.intent is None
    assert settled.record.foreign_at is None


def test_uncertain_charges_the_step_and_counts_a_foreign_change():
    """It may have taken effect, so its step is spent and both cooldowns start."""
    settled = account(RECORD, Workload("u1", 9, "102", 6, "kubectl"), NOW)
    assert [line.reason for line in settled.entries] == [Reason.EFFECT_UNCERTAIN]
    assert settled.record.ledger.steps == {"e1": 1}
    assert settled.record.foreign_at == NOW
    assert settled.record.replicas == 6


def test_a_foreign_change_without_an_intent_is_dated_when_first_seen():
    """Replicas that differ from the record with no intent to explain it are respected, once."""
    record = replace(RECORD, intent=None)
    settled = account(record, Workload("u1", 8, "101", 5, "kubectl"), NOW)
    assert [(line.reason, line.current, line.desired) for line in settled.entries] == [
        (Reason.FOREIGN_CHANGE, 2, 5)
    ]
    assert settled.record.foreign_at == NOW
    again = account(settled.record, Workload("u1", 8, "101", 5, "kubectl"), NOW + timedelta(minutes=1))
    assert again.entries == ()
    assert again.record == settled.record


def test_the_first_look_at_a_target_sees_nothing_foreign():
    """What was there before us is no change."""
    settled = account(Record(REF), UNTOUCHED, NOW)
    assert settled.entries == ()
    assert settled.record.foreign_at is None
    assert (settled.record.uid, settled.record.replicas) == ("u1", 2)


def test_a_target_made_anew_closes_its_intents():
    """Another uid is another object: what was meant for the old one cannot reach it."""
    record = replace(RECORD, outstanding=replace(INTENT, id="i0", to_replicas=5))
    settled = account(record, Workload("u2", 1, "300", 4, "helm"), NOW)
    assert outcomes(settled)[:2] == [("i1", Outcome.GONE), ("i0", Outcome.GONE)], (
        "both may have landed before"
    )
    assert (settled.record.intent, settled.record.outstanding) == (None, None)
    assert settled.record.foreign_at == NOW
    assert settled.record.ledger.steps == {}


def test_withdrawn_while_it_may_land_it_stays_outstanding():
    """A paused process may still send it, so it is watched until the resourceVersion has moved."""
    closed = withdraw(account(RECORD, UNTOUCHED, NOW), NOW)
    assert outcomes(closed) == [("i1", Outcome.ABANDONED)]
    assert closed.record.outstanding == INTENT
    late = account(closed.record, LANDED, NOW)
    assert outcomes(late) == [("i1", Outcome.APPLIED)]
    assert late.record.ledger.steps == {"e1": 1}
    assert late.record.outstanding is None
    assert late.record.foreign_at is None


def test_withdrawn_once_it_cannot_land_it_is_forgotten():
    """A resourceVersion that has moved turns the late write away."""
    closed = withdraw(account(RECORD, replace(UNTOUCHED, resource_version="105"), NOW), NOW)
    assert closed.record.outstanding is None
    outstanding = replace(RECORD, intent=None, outstanding=INTENT)
    assert account(outstanding, replace(UNTOUCHED, resource_version="105"), NOW).record.outstanding is None


def test_the_same_write_decided_anew_keeps_its_id():
    """Whichever of the two lands, one intent is found applied, and one effect is counted."""
    again = replace(INTENT, id="i2", decided_at=NOW)
    begun = commit_to(account(RECORD, UNTOUCHED, NOW), again, NOW)
    assert begun.record.intent == replace(again, id="i1")
    assert begun.record.outstanding is None
    assert begun.entries == ()


def test_another_write_at_the_same_version_keeps_the_first_outstanding():
    """Either may land, at most one can, and each is known for what it is when it has."""
    other = replace(INTENT, id="i2", to_replicas=5, episode="e2")
    begun = commit_to(account(RECORD, UNTOUCHED, NOW), other, NOW)
    assert (begun.record.intent, begun.record.outstanding) == (other, INTENT)
    first = account(begun.record, LANDED, NOW)
    assert dict(outcomes(first)[-2:]) == {"i1": Outcome.APPLIED, "i2": Outcome.NOT_APPLIED}
    assert first.record.ledger.steps == {"e1": 1}
    second = account(begun.record, replace(LANDED, replicas=5), NOW)
    assert outcomes(second) == [("i2", Outcome.APPLIED)]
    assert second.record.ledger.steps == {"e2": 1}


def test_two_episodes_that_asked_for_the_same_count_are_both_charged():
    """Which of the two writes landed cannot be told, so neither episode may take the step again."""
    other = replace(INTENT, id="i2", episode="e2")
    begun = commit_to(account(RECORD, UNTOUCHED, NOW), other, NOW)
    settled = account(begun.record, LANDED, NOW)
    assert settled.record.ledger.steps == {"e1": 1, "e2": 1}
    assert outcomes(settled) == [("i2", Outcome.APPLIED)]
    assert len(settled.record.ledger.changes) == 1


def test_a_third_write_at_one_version_gives_the_first_up_as_uncertain():
    """Two are watched; the oldest is counted as if it had landed, so that it can never count twice."""
    second = replace(INTENT, id="i2", to_replicas=5, episode="e2")
    third = replace(INTENT, id="i3", to_replicas=6, episode="e3")
    begun = commit_to(account(RECORD, UNTOUCHED, NOW), second, NOW)
    begun = commit_to(account(begun.record, UNTOUCHED, NOW), third, NOW)
    assert ("i1", Outcome.UNCERTAIN) in outcomes(begun)
    assert begun.record.ledger.steps == {"e1": 1}
    assert (begun.record.intent, begun.record.outstanding) == (third, second)
    late = account(begun.record, LANDED, NOW)
    assert late.record.ledger.steps == {"e1": 1}
    assert late.record.foreign_at == NOW


def test_a_new_intent_after_the_version_moved_closes_the_old_one():
    """It can never land: history says so, and nothing stays to be watched."""
    moved = replace(UNTOUCHED, resource_version="105")
    again = replace(INTENT, id="i2", resource_version="105", decided_at=NOW)
    begun = commit_to(account(RECORD, moved, NOW), again, NOW)
    assert outcomes(begun) == [("i1", Outcome.NOT_APPLIED)]
    assert (begun.record.intent, begun.record.outstanding) == (again, None)


def test_a_refusal_is_closed_with_its_reason():
    """History names what the server objected to."""
    closed = withdraw(account(RECORD, UNTOUCHED, NOW), NOW, Outcome.FAILED, "no right", Reason.FORBIDDEN)
    assert [(line.outcome, line.reason) for line in closed.entries] == [(Outcome.FAILED, Reason.FORBIDDEN)]


TO_ZERO = replace(INTENT, from_replicas=2, to_replicas=0, manager=MANAGER)
FROM_NOBODY = replace(INTENT, from_replicas=0, to_replicas=1, manager="")


@pytest.mark.parametrize(
    ("intent", "live", "outcome", "foreign"),
    [
        pytest.param(TO_ZERO, Workload("u1", 8, "101", 0, ""), Outcome.UNCERTAIN, False, id="at 0 as asked"),
        pytest.param(
            TO_ZERO, Workload("u1", 8, "101", 2, MANAGER), Outcome.NOT_APPLIED, False, id="still held by us"
        ),
        pytest.param(
            TO_ZERO, Workload("u1", 8, "101", 0, "helm"), Outcome.NOT_APPLIED, True, id="0 held by another"
        ),
        pytest.param(
            FROM_NOBODY, Workload("u1", 8, "101", 1, ""), Outcome.UNCERTAIN, False, id="from 0 as asked"
        ),
        pytest.param(
            FROM_NOBODY, Workload("u1", 8, "101", 0, ""), Outcome.NOT_APPLIED, False, id="template changed"
        ),
        pytest.param(
            FROM_NOBODY, Workload("u1", 8, "101", 4, ""), Outcome.NOT_APPLIED, True, id="another count"
        ),
        pytest.param(
            FROM_NOBODY, Workload("u1", 9, "102", 0, ""), Outcome.UNCERTAIN, True, id="two changes, 0 again"
        ),
    ],
)
def test_a_write_that_leaves_no_trace_is_told_by_the_count_and_never_called_applied(
    intent, live, outcome, foreign
):
    """A Scale at 0 omits replicas, so nobody holds them then, nor after: whose change it was cannot be read."""
    found = settle.settle(intent, live)
    assert (found.outcome, found.foreign) == (outcome, foreign)


def test_an_untraceable_zero_of_ours_is_not_taken_for_a_person_s():
    """The step is charged and no foreign change is dated, or the target would count as switched off for good."""
    record = replace(RECORD, manager=MANAGER, intent=TO_ZERO)
    settled = account(record, Workload("u1", 8, "101", 0, ""), NOW)
    assert settled.record.ledger.steps == {"e1": 1}
    assert settled.record.foreign_at is None
    assert [entry.outcome for entry in settled.entries] == [Outcome.UNCERTAIN]
