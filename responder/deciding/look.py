"""One decision in the making: the number so far, the chain of reasons, and the sentence at the end."""

from dataclasses import dataclass, field
from datetime import datetime

from responder.deciding.case import Case
from responder.deciding.claims import Alert, Claim
from responder.deciding.limits import looks_back
from responder.deciding.sizing import Ask
from responder.model import Decision, Override, Reason, Step

_ALERTS_NAMED = 16
"""A decision names so many alerts at most: a group of 10,000 would fill history with itself."""


@dataclass(slots=True)
class Look:
    """Handed from rule to rule. A rule passes the number on, shortens it, or ends the look with a Decision."""

    case: Case
    now: datetime
    recommendation: int | None = None
    missing: tuple[str, ...] = ()
    subject: Ask | Claim | None = None
    override: Override | None = None
    report: str = ""
    replicas: int = 0
    limits: list[str] = field(default_factory=list)
    chain: list[Step] = field(default_factory=list)

    @property
    def current(self) -> int:
        return self.case.current

    def step(self, rule: str, message: str, replicas: int | None = None) -> None:
        """Say what a rule made of the number."""
        if replicas is not None:
            self.replicas = replicas
        self.chain.append(Step(rule, self.replicas, message))

    def limit(self, rule: str, replicas: int, by: str) -> None:
        """Let a rule change how far the change goes."""
        told = f"limited from {self.replicas} to {replicas} by {by}"
        self.limits.append(told)
        self.step(rule, told, replicas)

    def hold(self, rule: str, reason: Reason, why: str) -> Decision:
        """End the look: nothing is to be done."""
        self.step(rule, why, self.current)
        sentence = f"Holding {self.case.target} at {self.current}: {why}{self.report}."
        return self._decision(self.current, reason, sentence)

    def go(self, reason: Reason, why: str) -> Decision:
        """End the look: the number so far is to be written."""
        told = "; ".join([why, *self.limits])
        sentence = f"Scaling {self.case.target} from {self.current} to {self.replicas}: {told}."
        return self._decision(self.replicas, reason, sentence)

    def _decision(self, desired: int, reason: Reason, sentence: str) -> Decision:
        subject = self.subject
        alerts: tuple[Alert, ...] = () if subject is None else subject.alerts
        return Decision(
            current=self.current,
            desired=desired,
            reason=reason,
            message=sentence,
            policy=self.case.policy.name,
            trigger="" if subject is None else subject.trigger.name,
            episode=subject.episode if isinstance(subject, Ask) else None,
            override=None if self.override is None else self.override.id,
            alerts=tuple(alert.span.fingerprint for alert in alerts[:_ALERTS_NAMED]),
            recommendation=self.recommendation,
            missing=self.missing,
            chain=tuple(self.chain),
            dry_run=self.case.policy.dry_run,
            remember=looks_back(self.case.policy),
        )
