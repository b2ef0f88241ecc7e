"""When a decision could change by itself, so that the target is looked at then and not before. Pure.

Every rule changes its mind at moments that follow from its inputs. Those are gathered, and judged one after the
other: the first at which the answer differs is the one.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from responder.alerting.spans import changes_at
from responder.deciding.case import Case
from responder.deciding.claims import Standing, standing_of
from responder.deciding.sizing import fallback_at, stale_at
from responder.model import Decision, Reason

RECHECK = timedelta(minutes=5)
"""Owners come and go without telling."""
_JUDGED = 24
"""So many moments are judged; the next one is taken unjudged, which is early but never late."""
_OWNED = (Reason.OTHER_OWNER, Reason.OWNER_UNKNOWN)
_WAITS_FOR_PODS = (Reason.WAITING_FOR_READY, Reason.UNSCHEDULABLE, Reason.NO_CAPACITY)

Judge = Callable[[Case, datetime], Decision]


def look_again_at(case: Case, decision: Decision, now: datetime, judge: Judge) -> datetime | None:
    """The earliest moment at which the answer could change by itself; None if it cannot."""
    noted = case.noted(decision, now)
    found = _changes(noted, decision, now, judge)
    if decision.acts:
        after = noted.after(decision, now)
        then = judge(after, now)
        if not then.acts:
            return _earlier(found, _changes(after.noted(then, now), then, now, judge))
        # A dry run changes nothing, so it would act without end.
        return _earlier(found, now + _pause(case, now)) if case.policy.dry_run else now
    return found


def _changes(case: Case, decision: Decision, now: datetime, judge: Judge) -> datetime | None:
    """The first moment that differs, or that of the next measurement if it comes first."""
    measured = _measured_again(case, decision, now)
    moments = sorted({at for at in _moments(case, now) if at > now})
    for index, at in enumerate(moments):
        if measured is not None and at >= measured:
            break
        if index == _JUDGED:
            return at
        then = judge(case, at)
        if (then.desired, then.reason) != (decision.desired, decision.reason):
            return at
    return measured


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _measured_again(case: Case, decision: Decision, now: datetime) -> datetime | None:
    """When what is measured from outside is due again: values, pods, owners."""
    waits: list[timedelta] = []
    if decision.reason in _OWNED and (case.claims.by_trigger or case.overrides):
        waits.append(RECHECK)
    for claim in case.claims.by_trigger:
        measured = claim.trigger.scale.sized or decision.reason in _WAITS_FOR_PODS
        if measured and standing_of(claim, case.policy.timing, now)[0] is Standing.FIRING:
            waits.append(claim.trigger.evaluation)
    return now + min(waits) if waits else None


def _pause(case: Case, now: datetime) -> timedelta:
    """How long a dry run waits before it says the same again."""
    timing = case.policy.timing
    firing = [each for each in case.claims.by_trigger if standing_of(each, timing, now)[0] is Standing.FIRING]
    return min((claim.trigger.evaluation for claim in firing), default=RECHECK)


def _moments(case: Case, now: datetime) -> Iterator[datetime]:
    yield from _of_alerts(case, now)
    yield from _of_people(case)
    budget, reverts = case.observed.budget, case.record.reverts
    if case.claims.by_trigger:
        # What limits a change matters only while something may ask for one.
        yield from _of_ledger(case)
        yield from (at for at in (budget.up_until, budget.down_until) if at is not None)
    if reverts is not None and reverts.until is not None:
        yield reverts.until


def _of_alerts(case: Case, now: datetime) -> Iterator[datetime]:
    timing = case.policy.timing
    for claim in case.claims.by_trigger:
        for alert in claim.alerts:
            yield from changes_at(alert.span, timing)
            for silence in alert.silences:
                yield from (silence.starts_at, silence.ends_at)
        trigger = claim.trigger
        value = case.observed.values.get(trigger.name)
        if value is not None:
            yield stale_at(trigger, value, case.policy)
        if trigger.scale.fallback is not None:
            yield fallback_at(case.record, trigger, trigger.scale.fallback, now)
    for alert in case.claims.others:
        yield from changes_at(alert.span, timing)


def _of_people(case: Case) -> Iterator[datetime]:
    for override in case.overrides:
        yield from (override.starts_at, override.end)


def _of_ledger(case: Case) -> Iterator[datetime]:
    policy, ledger = case.policy, case.ledger
    up, down = policy.scale_up, policy.scale_down
    if ledger.last_up_at is not None:
        yield from _after(ledger.last_up_at, (up.cooldown, down.cooldown, policy.ready_timeout))
    if ledger.last_down_at is not None:
        yield ledger.last_down_at + down.cooldown
    if case.record.foreign_at is not None:
        yield case.record.foreign_at + max(up.cooldown, down.cooldown)
    windows = (up.stabilization_window, down.stabilization_window)
    for step in ledger.recommendations:
        # A step leaves the window when the next one has been in force for all of it.
        yield from _after(step.at, windows)
    periods = {rate.period for rules in (up, down) for rate in rules.policies}
    for change in ledger.changes:
        yield from _after(change.at, periods)


def _after(at: datetime, lengths: Iterable[timedelta]) -> Iterator[datetime]:
    return (at + length for length in lengths)
