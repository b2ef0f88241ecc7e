"""What to do about one target now, and why: the one order of precedence (promises 7 to 18). Pure.

Each rule is handed the number so far. It passes it on, shortens it, or ends the look by holding.
"""

from dataclasses import replace
from datetime import datetime

from responder.alerting.spans import Condition, condition
from responder.deciding.asks import Asks, asks_of
from responder.deciding.case import Case, case_of
from responder.deciding.claims import claims_of
from responder.deciding.directions import down, nothing, up
from responder.deciding.look import Look
from responder.deciding.standdown import owned, pin_ended, reverted, switched_off, told
from responder.deciding.wake import look_again_at
from responder.model import Decision, Observed, Record, Span
from responder.policy import Policy, Trigger

_BEFORE_TRIGGERS = (owned, reverted, told, pin_ended, switched_off)


def decide(policy: Policy, observed: Observed, record: Record, now: datetime) -> Decision:
    """What to do about the record's target as the policy says, and when to look again."""
    case = case_of(policy, observed, record, now)
    decision = judge(case, now)
    return replace(decision, look_again_at=look_again_at(case, decision, now, judge))


def judge(case: Case, now: datetime) -> Decision:
    """The decision alone, without when to look again."""
    asks = asks_of(case, now)
    look = Look(case, now, recommendation=asks.recommendation, missing=asks.missing)
    look.step("current", f"{case.current} replicas are there", case.current)
    for note in case.notes:
        look.step("annotations", note)
    for rule in _BEFORE_TRIGGERS:
        decision = rule(look)
        if decision is not None:
            return decision
    look.report = _outside(case, now)
    return _by_triggers(look, asks)


def sized_triggers(policy: Policy, record: Record, now: datetime) -> tuple[tuple[Trigger, Span], ...]:
    """The firing triggers that need a value to be decided on, each with the alert to ask it for."""
    found: list[tuple[Trigger, Span]] = []
    for claim in claims_of(policy, record).by_trigger:
        if not claim.trigger.scale.sized:
            continue
        spans = [alert.span for alert in claim.alerts]
        firing = [span for span in spans if condition(span, policy.timing, now) is Condition.FIRING]
        if firing:
            latest = max(firing, key=lambda span: (span.last_seen_at, span.fingerprint))
            found.append((claim.trigger, latest))
    return tuple(found)


def _by_triggers(look: Look, asks: Asks) -> Decision:
    if asks.ups:
        return up(look, asks)
    if asks.downs:
        return down(look, asks)
    return nothing(look, asks)


def _outside(case: Case, now: datetime) -> str:
    """What to say of replicas outside the bounds: they are reported, and corrected by no rule."""
    bounds = case.bounds(now)
    if case.current > bounds.most:
        return f" ({case.current} is above maxReplicas {bounds.most}, and no rule corrects that)"
    if 0 < case.current < bounds.least:
        return f" ({case.current} is below minReplicas {bounds.least}, and no rule corrects that)"
    return ""
