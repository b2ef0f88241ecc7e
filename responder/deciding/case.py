"""Everything that one decision looks at, matched once, so that it can be judged at several moments. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime

from responder import ledger as ledgers
from responder.deciding.claims import Claims, claims_of
from responder.deciding.overrides import Bounds, annotated, bounds_of
from responder.deciding.sizing import Sizing
from responder.model import Decision, Intent, Ledger, Observed, Override, Record
from responder.policy import Policy


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of a decision but for the time."""

    policy: Policy
    observed: Observed
    record: Record
    claims: Claims
    overrides: tuple[Override, ...]
    target_load: float | None
    notes: tuple[str, ...]

    @property
    def current(self) -> int:
        return self.observed.workload.replicas

    @property
    def target(self) -> str:
        return self.record.target.key

    @property
    def ledger(self) -> Ledger:
        """What limits look back on: dry run has a past of its own."""
        return self.record.shadow if self.policy.dry_run else self.record.ledger

    @property
    def sizing(self) -> Sizing:
        return Sizing(self.policy, self.observed, self.record, self.ledger, self.current, self.target_load)

    def bounds(self, now: datetime) -> Bounds:
        return bounds_of(self.policy, self.overrides, now)

    def noted(self, decision: Decision, now: datetime) -> "Case":
        """The case once it is recorded what the decision found."""
        return replace(self, record=ledgers.note(self.record, decision, now, self.policy.dry_run))

    def after(self, decision: Decision, now: datetime) -> "Case":
        """The case once the decision has taken effect."""
        intent = Intent(
            id="what if",
            uid=self.record.uid,
            from_replicas=decision.current,
            to_replicas=decision.desired,
            resource_version="",
            generation=0,
            manager="",
            decided_at=now,
            reason=decision.reason,
            message="",
            episode=decision.episode,
        )
        dry_run = self.policy.dry_run
        record = ledgers.charge(self.record, intent, dry_run=dry_run)
        if dry_run:
            return replace(self, record=record)
        workload = replace(self.observed.workload, replicas=decision.desired)
        return replace(self, record=record, observed=replace(self.observed, workload=workload))


def case_of(policy: Policy, observed: Observed, record: Record, now: datetime) -> Case:
    """Match the record's alerts to the policy, and what people have said to the target."""
    record = ledgers.clamped(record, now)
    said = annotated(policy, record.target, observed.workload)
    return Case(
        policy,
        observed,
        record,
        claims_of(policy, record, observed.silences),
        (*observed.overrides, *said.overrides),
        said.target,
        said.notes,
    )
