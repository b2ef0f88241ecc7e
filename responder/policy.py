"""Policies, triggers, holds and behavior, and which of them an alert falls under. Pure.

Built by `config`, which has checked all of it; durations are timedeltas here and seconds in the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from responder import templates
from responder.matchers import Matcher, all_match, quoted, within
from responder.model import Direction, Record, ScaleType, TargetRef


class SelectPolicy(StrEnum):
    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class Capacity(StrEnum):
    IGNORE = "Ignore"
    REPORT = "Report"
    CLIP = "Clip"


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """At most `value` pods, or percent of the replicas at the period's start, per period."""

    type: ScaleType
    value: int
    period: timedelta


@dataclass(frozen=True, slots=True)
class Rules:
    """One direction of `behavior`: words and meaning of autoscaling/v2, and a cooldown."""

    cooldown: timedelta
    stabilization_window: timedelta
    policies: tuple[RatePolicy, ...] = ()
    select_policy: SelectPolicy = SelectPolicy.MAX
    tolerance: float = 0.1


@dataclass(frozen=True, slots=True)
class ValueFrom:
    """Where a sized trigger's value comes from: a PromQL template or the name of an annotation."""

    query: str = ""
    annotation: str = ""


@dataclass(frozen=True, slots=True)
class Fallback:
    """The step to take, upwards only, when the value has been missing for `after`."""

    type: ScaleType
    value: float
    after: timedelta


@dataclass(frozen=True, slots=True)
class Scale:
    """What a trigger asks for. `value` goes with Pods, Percent, Replicas; `target` with the sized types."""

    direction: Direction
    type: ScaleType
    value: float = 0
    target: float = 0
    value_from: ValueFrom | None = None
    fallback: Fallback | None = None

    @property
    def sized(self) -> bool:
        return self.type in (ScaleType.UTILIZATION, ScaleType.AVERAGE_VALUE)


@dataclass(frozen=True, slots=True)
class Trigger:
    """`max_steps` is None when it may step as often as cooldown allows; it binds Pods and Percent."""

    name: str
    matchers: tuple[Matcher, ...]
    scale: Scale
    max_steps: int | None = 1
    evaluation: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class NodeAction:
    """Cordon the alert's node, at most so many nodes and so much of the GPU pool at once.

    Lifted once the fault's alert has been resolved for `uncordon_after`; None leaves that to a person.
    """

    action: str = "Cordon"
    max_nodes: int = 1
    max_percent: float = 10
    uncordon_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NodeTrigger:
    """A trigger that acts on a node; `before` of the other triggers stand ahead of it in the file."""

    name: str
    matchers: tuple[Matcher, ...]
    node: NodeAction
    before: int = 0


@dataclass(frozen=True, slots=True)
class TargetTemplate:
    """`scaleTargetRef` with `{{ $labels.x }}` still in it."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Timing:
    """How alerts age; from the top of the policy file."""

    alert_timeout: timedelta = timedelta(seconds=900)
    """Not heard of for so long, an alert is unknown."""
    stale_after: timedelta = timedelta(seconds=600)
    """A firing that is older than the last resolve re-opens its span only so long after it."""
    forget_after: timedelta = timedelta(seconds=21600)
    """An unknown up trigger or hold forbids scale-down for so long."""


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    matchers: tuple[Matcher, ...]
    min_replicas: int
    max_replicas: int
    triggers: tuple[Trigger, ...]
    scale_up: Rules
    scale_down: Rules
    target: TargetTemplate | None = None
    dry_run: bool = False
    wake_from_zero: bool = False
    ready_timeout: timedelta = timedelta(seconds=600)
    capacity: Capacity = Capacity.IGNORE
    timing: Timing = Timing()
    node_triggers: tuple[NodeTrigger, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """A firing alert that forbids a direction for the targets that `equal` ties to it."""

    name: str
    matchers: tuple[Matcher, ...]
    forbid: Direction
    equal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    matchers: tuple[Matcher, ...]
    timeout: timedelta


@dataclass(frozen=True, slots=True)
class ActionBudget:
    """At most `max_actions` of one direction per period, over all targets."""

    max_actions: int
    period: timedelta


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole policy file."""

    policies: tuple[Policy, ...]
    holds: tuple[Hold, ...] = ()
    cluster: str = ""
    dry_run: bool = False
    allowed_namespaces: tuple[str, ...] = ()
    """Globs; empty allows all."""
    budgets: Mapping[Direction, ActionBudget] = field(default_factory=dict)
    heartbeat: Heartbeat | None = None
    timing: Timing = Timing()
    freeze: str = ""
    """Why everything is stopped; empty when it is not."""
    source: str = ""
    """The file's name."""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an alert cannot lead to a target, in one sentence."""

    message: str


TEST_LABEL = "gpu_responder_test"
"""On the alerts that `gpu-responder doctor --send-test` sends: which of them it is."""

# (kind, group) by what kubernetes-mixin calls it in workload_type, in lower case.
_KINDS = {
    "deployment": ("Deployment", "apps"),
    "statefulset": ("StatefulSet", "apps"),
    "replicaset": ("ReplicaSet", "apps"),
    "daemonset": ("DaemonSet", "apps"),
    "job": ("Job", "batch"),
    "cronjob": ("CronJob", "batch"),
    "replicationcontroller": ("ReplicationController", ""),
    "leaderworkerset": ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"),
    "rollout": ("Rollout", "argoproj.io"),
    "cloneset": ("CloneSet", "apps.kruise.io"),
}
_WITHOUT_SCALE = frozenset({("DaemonSet", "apps"), ("Job", "batch"), ("CronJob", "batch")})
_PODS = frozenset({"barepod", "staticpod", "pod"})
# As kube-state-metrics names them. `job` is not here: in Prometheus it is the scrape job.
_KIND_LABELS = {
    "deployment": ("Deployment", "apps"),
    "statefulset": ("StatefulSet", "apps"),
    "replicaset": ("ReplicaSet", "apps"),
    "replicationcontroller": ("ReplicationController", ""),
    "daemonset": ("DaemonSet", "apps"),
    "job_name": ("Job", "batch"),
    "cronjob": ("CronJob", "batch"),
}


def policy_of(policies: Sequence[Policy], labels: Mapping[str, str]) -> Policy | None:
    """The first policy in file order whose matchers all hold."""
    for policy in policies:
        if all_match(policy.matchers, labels):
            return policy
    return None


def trigger_of(policy: Policy, labels: Mapping[str, str]) -> Trigger | None:
    """The first trigger of the policy whose matchers all hold; None if that one acts on the node."""
    for index, trigger in enumerate(policy.triggers):
        if all_match(trigger.matchers, labels):
            node = node_trigger_of(policy, labels) if policy.node_triggers else None
            return None if node is not None and node.before <= index else trigger
    return None


def node_trigger_of(policy: Policy, labels: Mapping[str, str]) -> NodeTrigger | None:
    """The policy's trigger that acts on the alert's node, if it is the first whose matchers all hold."""
    for node in policy.node_triggers:
        if all_match(node.matchers, labels):
            ahead = policy.triggers[: node.before]
            return None if any(all_match(trigger.matchers, labels) for trigger in ahead) else node
    return None


def target_of(
    policy: Policy, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> TargetRef | Rejection | None:
    """The workload that the alert is about, as the policy's scaleTargetRef or the alert's labels name it.

    None when neither does: the pod label may still lead there, by reading its owners.
    """
    if policy.target is not None:
        return _from_template(policy.target, labels, annotations)
    workload, kind = labels.get("workload", ""), labels.get("workload_type", "")
    if workload and kind:
        return _from_workload(workload, kind, labels)
    named = [label for label in _KIND_LABELS if labels.get(label)]
    if len(named) > 1:
        return Rejection(f"The alert has the labels {' and '.join(named)}, and only one can be the target.")
    if named:
        return _checked(_KIND_LABELS[named[0]], labels[named[0]], labels)
    return None


def governing(settings: Settings, record: Record) -> Policy | None:
    """The first policy in file order that any known alert of the record falls under."""
    claims = [policy_of(settings.policies, span.labels) for span in record.alerts.values()]
    for policy in settings.policies:
        if any(claim is policy for claim in claims):
            return policy
    return None


def allowed(settings: Settings, namespace: str) -> bool:
    """True if the policy file lets targets be in this namespace."""
    return within(namespace, settings.allowed_namespaces or None)


def ours(settings: Settings, labels: Mapping[str, str]) -> bool:
    """False if the alert's `cluster` label names another cluster than the policy file does, or it is a test."""
    if is_test(labels):
        return False
    return not settings.cluster or labels.get("cluster", "") in ("", settings.cluster)


def is_test(labels: Mapping[str, str]) -> bool:
    """True for an alert that only asks whether alerts arrive: nothing ever acts on it, whatever its other labels."""
    return bool(labels.get(TEST_LABEL))


def stands_alone(settings: Settings, labels: Mapping[str, str]) -> bool:
    """True if the alert is a hold, the heartbeat or about a node, and is kept whatever target it may have."""
    heartbeat = settings.heartbeat
    if heartbeat is not None and all_match(heartbeat.matchers, labels):
        return True
    return any(all_match(hold.matchers, labels) for hold in settings.holds) or acts_on_node(settings, labels)


def acts_on_node(settings: Settings, labels: Mapping[str, str]) -> bool:
    """True if the alert falls under a trigger that acts on its node."""
    policy = policy_of(settings.policies, labels)
    return policy is not None and node_trigger_of(policy, labels) is not None


def value_query(
    trigger: Trigger, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> str | Rejection | None:
    """The PromQL that gives the trigger's value for this alert; None if it is not sized by a query."""
    source = trigger.scale.value_from
    if source is None or not source.query:
        return None
    try:
        return templates.render_query(source.query, labels, annotations)
    except templates.MissingError as error:
        return Rejection(f"The query of trigger {trigger.name} cannot be asked: {error}.")


def _from_template(
    target: TargetTemplate, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> TargetRef | Rejection:
    try:
        namespace = templates.render(target.namespace, labels, annotations)
        name = templates.render(target.name, labels, annotations)
    except templates.MissingError as error:
        return Rejection(f"The target cannot be named: {error}.")
    group = target.api_version.rpartition("/")[0]
    return _legal(TargetRef(namespace, target.kind, name, group))


def _from_workload(name: str, kind: str, labels: Mapping[str, str]) -> TargetRef | Rejection | None:
    if kind.lower() in _PODS:
        return Rejection(f"Label workload_type is {quoted(kind)}, and a pod without an owner has no scale.")
    known = _KINDS.get(kind.lower())
    if known is None:
        # `Kind.group`; a custom kind without its group has to be looked up by discovery.
        bare, _, group = kind.partition(".")
        if not group:
            return None
        known = (bare, group.lower())
        if not (bare.isascii() and bare.isalnum()) or not templates.is_object_name(known[1]):
            return Rejection(
                f"Label workload_type is {quoted(kind)}, which is no kind: write it as Kind.group."
            )
    return _checked(known, name, labels)


def _checked(known: tuple[str, str], name: str, labels: Mapping[str, str]) -> TargetRef | Rejection:
    # An exporter scraped without honorLabels has its own namespace in `namespace`.
    namespace = labels.get("exported_namespace") or labels.get("namespace", "")
    kind, group = known
    if not namespace:
        return Rejection(f"The alert names {kind} {quoted(name)} and has no label 'namespace'.")
    if known in _WITHOUT_SCALE:
        return Rejection(
            f"{kind} {quoted(name)} in namespace {quoted(namespace)} cannot be scaled: "
            f"a {kind} has no replicas of its own."
        )
    return _legal(TargetRef(namespace, kind, name, group))


def _legal(target: TargetRef) -> TargetRef | Rejection:
    if not templates.is_namespace(target.namespace):
        return Rejection(f"{quoted(target.namespace)} is not a legal Kubernetes namespace.")
    if not templates.is_object_name(target.name):
        return Rejection(f"{quoted(target.name)} is not a legal name of a Kubernetes {target.kind}.")
    return target
