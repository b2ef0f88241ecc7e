"""What damps a change: cooldowns, the readiness gate, stabilization windows, rates. Pure.

Windows and rates mean what autoscaling/v2 means by them; see `calculateScaleUpLimitWithScalingRules` and
`stabilizeRecommendationWithBehaviors` in Kubernetes' horizontal.go. A window or period that ends at `now`
does not count what lies exactly its length back. No time is later than now: see `ledger.clamped`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from responder.deciding.words import count, seconds
from responder.model import Direction, Ledger, ScaleType
from responder.policy import Policy, RatePolicy, Rules, SelectPolicy


@dataclass(frozen=True, slots=True)
class Cooldown:
    """When a direction may move again, and what it waits after."""

    until: datetime
    after: str
    at: datetime
    length: timedelta


@dataclass(frozen=True, slots=True)
class Rate:
    """The furthest that rates let a change go, and the rate policy that says so."""

    limit: int
    policy: RatePolicy

    @property
    def text(self) -> str:
        percent = self.policy.type is ScaleType.PERCENT
        size = f"{self.policy.value} %" if percent else count(self.policy.value, "pod")
        return f"{size} per {seconds(self.policy.period)}"


def rules_of(policy: Policy, direction: Direction) -> Rules:
    return policy.scale_up if direction is Direction.UP else policy.scale_down


def looks_back(policy: Policy) -> timedelta:
    """How far back the policy's windows and periods look."""
    both = (policy.scale_up, policy.scale_down)
    periods = [rate.period for rules in both for rate in rules.policies]
    return max(*(rules.stabilization_window for rules in both), *periods)


def cooldown(
    policy: Policy, ledger: Ledger, foreign_at: datetime | None, direction: Direction
) -> Cooldown | None:
    """What this direction has to wait for longest, over or not."""
    own = rules_of(policy, direction).cooldown
    waits: list[Cooldown] = []
    for at, after in _own_changes(ledger, direction):
        waits.append(Cooldown(at + own, after, at, own))
    if foreign_at is not None:
        longer = max(policy.scale_up.cooldown, policy.scale_down.cooldown)
        waits.append(Cooldown(foreign_at + longer, "somebody else's change", foreign_at, longer))
    return max(waits, key=lambda wait: wait.until, default=None)


def _own_changes(ledger: Ledger, direction: Direction) -> Iterable[tuple[datetime, str]]:
    if ledger.last_up_at is not None:
        yield ledger.last_up_at, "the last scale-up"
    if direction is Direction.DOWN and ledger.last_down_at is not None:
        yield ledger.last_down_at, "the last scale-down"


def waits_for_ready(policy: Policy, ledger: Ledger, current: int, ready: int, now: datetime) -> int | None:
    """How many replicas must be ready before the next step up; None when it need not wait."""
    if ledger.last_up_at is None or ledger.last_up_to is None:
        return None
    # Fewer are there if they were taken away since; what is not there cannot become ready.
    asked = min(ledger.last_up_to, current)
    if ready >= asked or now >= ledger.last_up_at + policy.ready_timeout:
        return None
    return asked


def stabilized(policy: Policy, ledger: Ledger, current: int, asked: int, now: datetime) -> int:
    """`current`, raised to the least recommendation of the up window, lowered to the greatest of the down one."""
    least = min(_within(ledger, current, asked, policy.scale_up.stabilization_window, now))
    most = max(_within(ledger, current, asked, policy.scale_down.stabilization_window, now))
    return min(max(current, least), most)


def _within(ledger: Ledger, current: int, asked: int, window: timedelta, now: datetime) -> list[int]:
    """The recommendations in force at some time of the window, now's included."""
    found = [asked]
    if window <= timedelta(0):
        return found
    start = now - window
    steps = ledger.recommendations
    if not steps or steps[0].at > start:
        # Before the first of them nothing asked for anything.
        found.append(current)
    for index, step in enumerate(steps):
        end = steps[index + 1].at if index + 1 < len(steps) else now
        if end > start:
            found.append(current if step.replicas is None else step.replicas)
    return found


def rate(
    rules: Rules, ledger: Ledger, direction: Direction, current: int, now: datetime, *, dry_run: bool = False
) -> Rate | None:
    """The furthest that the rate policies let a change go; None when they do not limit it.

    Only our own changes count. A dry run's were never made, so its periods start from what is there.
    """
    if not rules.policies:
        return None
    up = direction is Direction.UP
    limits: list[Rate] = []
    for policy in rules.policies:
        added = net_change(ledger, policy.period, now)
        start = current if dry_run else current - added
        limit = _proposed(policy, start, up)
        limits.append(Rate(limit - added if dry_run else limit, policy))
    furthest = (rules.select_policy is SelectPolicy.MIN) != up
    chosen = max(limits, key=_limit) if furthest else min(limits, key=_limit)
    # No limit reverses a direction.
    limit = max(chosen.limit, current) if up else min(chosen.limit, current)
    return Rate(limit, chosen.policy)


def net_change(ledger: Ledger, period: timedelta, now: datetime) -> int:
    """Replicas that our own changes added within the period, less those they removed."""
    start = now - period
    return sum(change.to_replicas - change.from_replicas for change in ledger.changes if change.at > start)


def _proposed(policy: RatePolicy, start: int, up: bool) -> int:
    if policy.type is ScaleType.PODS:
        return start + policy.value if up else start - policy.value
    if up:
        # From 0, a percentage would never lead anywhere.
        return max(math.ceil(round(start * (1 + policy.value / 100), 6)), start + 1)
    return math.floor(round(start * (1 - policy.value / 100), 6))


def _limit(found: Rate) -> int:
    return found.limit
