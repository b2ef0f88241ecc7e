"""Where in the policy file a policy, trigger, hold or other key stands."""

from responder.check.located import Located
from responder.check.sources import Sources
from responder.policy import Hold, NodeTrigger, Policy, Trigger


def top(sources: Sources, *path: str | int) -> Located:
    """A key of the policy file."""
    document = sources.policy or Located(None, sources.settings.source if sources.settings else "")
    return document.at(*path)


def of_policy(sources: Sources, policy: Policy, *path: str | int) -> Located:
    """The policy, or a key below it."""
    return _named(top(sources, "policies"), policy.name).at(*path)


def of_trigger(sources: Sources, policy: Policy, trigger: Trigger | NodeTrigger, *path: str | int) -> Located:
    """The trigger, or a key below it."""
    return _named(of_policy(sources, policy, "triggers"), trigger.name).at(*path)


def of_hold(sources: Sources, hold: Hold, *path: str | int) -> Located:
    """The hold, or a key below it."""
    return _named(top(sources, "holds"), hold.name).at(*path)


def _named(within: Located, name: str) -> Located:
    return next((item for item in within.items() if item.text("name") == name), within)
