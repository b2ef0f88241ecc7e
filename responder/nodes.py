"""Which nodes to cordon for a GPU's fault, and which of our own cordons to lift. Pure.

An alert that falls under a trigger with `node` cordons the node that its label `node` names. What a person did is
left alone, both ways: a person's cordon is never lifted, and a cordon of ours that a person lifted is not made
again while the same alert goes on firing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from responder.alerting.spans import Condition, condition
from responder.deciding.claims import name_of, silenced_by
from responder.deciding.words import count, moment, number, seconds
from responder.model import Override, OverrideKind, Reason, Silence, Span
from responder.policy import NodeTrigger, Policy, Settings, node_trigger_of, ours, policy_of


@dataclass(frozen=True, slots=True)
class Cordon:
    """Our note on a node that we cordoned: when, under which trigger, for which alert.

    `lifted` once a person was seen to have made the node schedulable: a later cordon is theirs.
    """

    at: datetime
    policy: str
    trigger: str
    fingerprint: str
    alert: str
    lifted: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read."""

    name: str
    unschedulable: bool
    gpus: frozenset[str] = frozenset()
    """The extended resources that it has, also when none of them is healthy."""
    cordon: Cordon | None = None
    resource_version: str = ""

    @property
    def cordoned_by_us(self) -> bool:
        return self.unschedulable and self.cordon is not None and not self.cordon.lifted

    @property
    def lifted_unseen(self) -> bool:
        """A person has lifted our cordon, and the note does not say so yet."""
        return not self.unschedulable and self.cordon is not None and not self.cordon.lifted


@dataclass(frozen=True, slots=True)
class Fault:
    """An alert that asks for its node to be cordoned, and under what."""

    node: str
    span: Span
    policy: Policy
    trigger: NodeTrigger


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """What to do about one node. It acts when `reason` is Cordoned or Uncordoned."""

    node: Node
    reason: Reason
    message: str
    policy: str
    trigger: str
    alert: str = ""
    cordon: Cordon | None = None
    dry_run: bool = False

    @property
    def acts(self) -> bool:
        return self.reason in (Reason.CORDONED, Reason.UNCORDONED)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is there: every GPU node as a pool counts it, and those that an alert or a cordon is about, live."""

    pool: Sequence[Node] = ()
    live: Mapping[str, Node] = field(default_factory=dict)


def acts_on_nodes(settings: Settings) -> bool:
    return any(policy.node_triggers for policy in settings.policies)


def faults(settings: Settings, standing: Iterable[Span]) -> list[Fault]:
    """The standing alerts that are about nodes, whatever their state, the longest standing first."""
    found: list[Fault] = []
    for span in sorted(standing, key=lambda span: (span.opened_at, span.fingerprint)):
        if not ours(settings, span.labels):
            continue
        policy, node = policy_of(settings.policies, span.labels), span.labels.get("node", "")
        trigger = node_trigger_of(policy, span.labels) if policy is not None else None
        if policy is not None and trigger is not None and node:
            found.append(Fault(node, span, policy, trigger))
    return found


def keeps(settings: Settings, span: Span, now: datetime) -> bool:
    """True if a resolved alert must be remembered, since a cordon is lifted so long after it."""
    for fault in faults(settings, (span,)):
        after, resolved = fault.trigger.node.uncordon_after, span.resolved_received_at
        if after is not None and resolved is not None and not span.firing:
            return now - resolved < after + timedelta(days=1)
    return False


def decide(
    settings: Settings,
    standing: Iterable[Span],
    cluster: Cluster,
    silences: Iterable[Silence],
    overrides: Iterable[Override],
    now: datetime,
) -> list[NodeDecision]:
    """Decisions that act, and those that something keeps from acting; silent about all that is as it should be."""
    known = faults(settings, standing)
    decisions = _lifts(settings, known, cluster, now)
    frozen = _frozen(settings, overrides, now)
    silenced = [silence for silence in silences if silence.in_force(now)]
    cordoned = {node.name for node in cluster.live.values() if node.cordoned_by_us}
    taken: list[Node] = []
    for fault in known:
        node = cluster.live.get(fault.node)
        if condition(fault.span, settings.timing, now) is not Condition.FIRING or node is None:
            continue
        if node.unschedulable or node.name in cordoned or _lifted_by_hand(node, fault.span):
            continue
        if any(silenced_by(silence, fault.span.labels) for silence in silenced):
            continue
        decision = _cordon(settings, fault, node, cluster, taken, frozen, now)
        if decision.acts:
            cordoned.add(node.name)
            taken.append(node)
        decisions.append(decision)
    return [
        _held(each, frozen) if each.reason is Reason.UNCORDONED and frozen else each for each in decisions
    ]


def _cordon(
    settings: Settings,
    fault: Fault,
    node: Node,
    cluster: Cluster,
    taken: Sequence[Node],
    frozen: str,
    now: datetime,
) -> NodeDecision:
    """Cordon the node, unless everything is frozen or a limit is reached."""
    alert, limit = name_of(fault.span), _limit(fault, node, cluster, taken)
    why = f"{alert} fires on node {node.name}"
    cordon, dry_run = None, settings.dry_run or fault.policy.dry_run
    if frozen or limit:
        reason = Reason.FROZEN if frozen else Reason.CORDON_LIMITED
        message = f"Not cordoning node {node.name}: {why}, but {frozen or limit}."
    else:
        reason, message = Reason.CORDONED, f"Cordoning node {node.name}: {why}."
        cordon = Cordon(now, fault.policy.name, fault.trigger.name, fault.span.fingerprint, alert)
    return NodeDecision(
        node,
        reason,
        message,
        fault.policy.name,
        fault.trigger.name,
        fault.span.fingerprint,
        cordon,
        dry_run,
    )


def _limit(fault: Fault, node: Node, cluster: Cluster, taken: Sequence[Node]) -> str:
    """Which limit one more cordon would pass; empty for none. `taken` are those cordoned in this round."""
    action = fault.trigger.node
    mine = [each for each in cluster.live.values() if _is_of(each, fault.trigger)]
    # Those taken in this round count for every trigger: which of them it was is no matter.
    cordoned = len(mine) + len(taken)
    if cordoned >= action.max_nodes:
        return f"{count(cordoned, 'node')} cordoned already reach maxNodes {action.max_nodes}"
    pool = [each for each in cluster.pool if each.gpus & node.gpus or not node.gpus]
    gone = {each.name for each in taken}
    away = {each.name for each in pool if each.unschedulable or each.name in gone} | {node.name}
    if 100 * len(away) / max(len(pool), 1) > action.max_percent:
        return (
            f"{len(away)} of the {count(len(pool), 'node')} of its GPU pool would be cordoned, "
            f"more than maxPercent {number(action.max_percent)}"
        )
    return ""


def _is_of(node: Node, trigger: NodeTrigger) -> bool:
    """True if we cordoned the node under this trigger."""
    return node.cordoned_by_us and node.cordon is not None and node.cordon.trigger == trigger.name


def _lifts(settings: Settings, known: Sequence[Fault], cluster: Cluster, now: datetime) -> list[NodeDecision]:
    """Our own cordons whose alerts have all been resolved for as long as their policy says."""
    found: list[NodeDecision] = []
    for node in sorted(cluster.live.values(), key=lambda node: node.name):
        cordon = node.cordon
        if not node.cordoned_by_us or cordon is None:
            continue
        about = [fault for fault in known if fault.node == node.name]
        cause = next((fault for fault in about if fault.span.fingerprint == cordon.fingerprint), None)
        # Of an alert that is not known any more nobody can say that it is over: that is for a person.
        if cause is None:
            continue
        after = cause.trigger.node.uncordon_after
        if after is None or not all(_resolved_for(fault.span, settings, after, now) for fault in about):
            continue
        why = f"{cordon.alert} has been resolved for {seconds(after)}"
        since = moment(cordon.at, now)
        found.append(
            NodeDecision(
                node,
                Reason.UNCORDONED,
                f"Uncordoning node {node.name}, cordoned at {since}: {why}.",
                cause.policy.name,
                cause.trigger.name,
                cordon.fingerprint,
                dry_run=settings.dry_run or cause.policy.dry_run,
            )
        )
    return found


def _held(decision: NodeDecision, frozen: str) -> NodeDecision:
    message = f"Not uncordoning node {decision.node.name}: {frozen}."
    return NodeDecision(
        decision.node, Reason.FROZEN, message, decision.policy, decision.trigger, decision.alert
    )


def _resolved_for(span: Span, settings: Settings, after: timedelta, now: datetime) -> bool:
    if condition(span, settings.timing, now) is not Condition.RESOLVED:
        return False
    return now - (span.resolved_received_at or span.last_seen_at) >= after


def _lifted_by_hand(node: Node, span: Span) -> bool:
    """True if a person made the node schedulable again after we cordoned it for this very time of firing."""
    cordon = node.cordon
    return cordon is not None and cordon.fingerprint == span.fingerprint and cordon.at >= span.opened_at


def _frozen(settings: Settings, overrides: Iterable[Override], now: datetime) -> str:
    if settings.freeze:
        return f"everything is frozen by the policy file: {settings.freeze}"
    for override in overrides:
        whole = override.kind is OverrideKind.FREEZE and not override.target and not override.matchers
        if whole and override.in_force(now):
            until = moment(override.ends_at, now)
            return f"everything is frozen by {override.created_by} until {until}: {override.comment}"
    return ""
