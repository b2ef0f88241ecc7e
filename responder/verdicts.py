"""What history and a record say of a look: changes of (desired, reason), and no more. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from responder.model import Decision, Failure, HistoryEntry, Observed, Reason, Record, Verdict


def is_news(record: Record, decision: Decision) -> bool:
    """True if the decision differs in (desired, reason) from the last that history has."""
    known = record.verdict
    return known is None or (known.desired, known.reason) != (decision.desired, decision.reason)


def is_shaped_anew(record: Record, decision: Decision) -> bool:
    """True if it comes to the same by another override: no news for history, but the sentence names the wrong one."""
    return record.verdict is not None and record.verdict.override != decision.override


def judged(record: Record, decision: Decision, now: datetime, look_again_at: datetime | None) -> Record:
    """The record with this verdict, dated from when its (desired, reason) was new."""
    known = record.verdict
    return replace(
        record,
        verdict=Verdict(
            at=now if known is None or is_news(record, decision) else known.at,
            current=decision.current,
            desired=decision.desired,
            reason=decision.reason,
            message=decision.message,
            policy=decision.policy,
            look_again_at=look_again_at,
            override=decision.override,
        ),
    )


def line(
    record: Record,
    decision: Decision,
    observed: Observed | None,
    now: datetime,
    look_again_at: datetime | None,
) -> HistoryEntry:
    """The line of history for a decision, with what a replay needs to decide it again."""
    return HistoryEntry(
        at=now,
        target=record.target.key,
        current=decision.current,
        desired=decision.desired,
        reason=decision.reason,
        message=decision.message,
        policy=decision.policy,
        trigger=decision.trigger,
        alerts=decision.alerts,
        intent=record.intent.id if record.intent else "",
        dry_run=decision.dry_run,
        look_again_at=look_again_at,
        inputs={} if observed is None else inputs(observed, record),
    )


def inputs(observed: Observed, record: Record) -> Mapping[str, object]:
    """What `decide` was given, as the store's JSON will have it."""
    return {"observed": observed, "record": replace(record, intent=None, verdict=None)}


def failing(record: Record, failure: Failure) -> Decision:
    """A failure as a decision to hold."""
    current = record.replicas or 0
    policy = record.verdict.policy if record.verdict else ""
    return Decision(current, current, failure.reason, failure.message, policy)


def unclaimed(record: Record, allowed: bool) -> Decision:
    """Nothing is written there: nothing claims the target, or its namespace is not allowed."""
    current = record.replicas or 0
    if allowed:
        return Decision(current, current, Reason.UNCLAIMED, "no policy claims it")
    message = f"namespace {record.target.namespace} is not among allowedNamespaces"
    return Decision(current, current, Reason.NOT_ALLOWED, message)
