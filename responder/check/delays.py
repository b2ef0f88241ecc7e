"""Cooldowns against the time that the chain takes to tell what an action did. Pure."""

from collections.abc import Iterator

from responder.check import places
from responder.check.chain import Alert, Chain, Fate
from responder.check.findings import Finding, warning
from responder.model import Direction, ScaleType
from responder.policy import Policy, Trigger


def check(chain: Chain) -> Iterator[Finding]:
    """Steps that follow one another before what the first did can be known.

    Only Pods and Percent with more than one step an episode: other types ask for a number, and asking for it
    twice is asking once.
    """
    settings = chain.settings
    if settings is None:
        return
    for policy in settings.policies:
        for direction, key in ((Direction.UP, "scaleUp"), (Direction.DOWN, "scaleDown")):
            rules = policy.scale_up if direction is Direction.UP else policy.scale_down
            slow = [
                (chain.delay(alert, taken.route.group_wait if taken else 0) / 1000, alert, fate)
                for alert in chain.scaling
                for fate in alert.fates
                if fate.policy is policy and _steps(fate, direction)
                for taken in (chain.route_of(alert),)
            ]
            if not slow:
                continue
            longest, alert, fate = max(slow, key=lambda item: item[0])
            if rules.cooldown.total_seconds() < longest:
                yield _short(chain, policy, key, rules.cooldown.total_seconds(), longest, alert, fate)


def _steps(fate: Fate, direction: Direction) -> bool:
    trigger = fate.trigger
    if not isinstance(trigger, Trigger) or trigger.scale.direction is not direction:
        return False
    return trigger.scale.type in (ScaleType.PODS, ScaleType.PERCENT) and trigger.max_steps != 1


def _short(
    chain: Chain, policy: Policy, key: str, cooldown: float, longest: float, alert: Alert, fate: Fate
) -> Finding:
    at = places.of_policy(chain.sources, policy, "behavior", key, "cooldownSeconds")
    trigger = fate.trigger.name if fate.trigger else ""
    return warning(
        at.file,
        at.line,
        "cooldown-short",
        f"The cooldown of {key} in policy {policy.name} ({cooldown:g} s) is shorter than {alert.name} takes to tell"
        f" what a step did ({longest:g} s: scrape, evaluation, for and group_wait), so that trigger {trigger} takes"
        " steps in the dark.",
        f"set behavior.{key}.cooldownSeconds to {longest:g} or more, or size the trigger by AverageValue",
    )
