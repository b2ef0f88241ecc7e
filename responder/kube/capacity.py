"""How many more replicas of a pod template could be placed. Pure arithmetic over nodes and what runs on them.

Looks at allocatable and requests of every resource, taints, node selectors and required node affinity. Pod
affinity, topology spread, quotas and volumes are not looked at, so the true number may be smaller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from responder.kube.amounts import Amounts, Container, effective, is_extended
from responder.kube.objects import Json
from responder.kube.pods import PodState
from responder.kube.quantity import milli


class Taint(msgspec.Struct):
    key: str
    value: str = ""
    effect: str = ""


class _NodeSpec(msgspec.Struct):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class _NodeStatus(msgspec.Struct):
    allocatable: dict[str, str | int] | None = None


class _NodeMeta(msgspec.Struct):
    name: str
    labels: dict[str, str] | None = None


class Node(msgspec.Struct):
    metadata: _NodeMeta
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None

    @property
    def allocatable(self) -> Amounts:
        given = (self.status.allocatable if self.status else None) or {}
        return {name: milli(quantity) for name, quantity in given.items()}


@dataclass(frozen=True, slots=True)
class Room:
    """One node's share: what is free there. `taints` are those that keep pods off."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    free: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fit:
    """`more` replicas could be placed beside those that run; `limit` names the extended resources they ask for."""

    more: int
    limit: str


def rooms(nodes: Iterable[Node], pods: Iterable[PodState]) -> tuple[Room, ...]:
    """What is free on each node. Pods that are being deleted still hold what they have."""
    used: dict[str, Amounts] = {}
    for pod in pods:
        if pod.holds:
            taken = used.setdefault(pod.node, {})
            for name, amount in pod.requests.items():
                taken[name] = taken.get(name, 0) + amount
    return tuple(_room(node, used.get(node.metadata.name, {})) for node in nodes)


def _room(node: Node, used: Amounts) -> Room:
    spec = node.spec or _NodeSpec()
    allocatable = node.allocatable
    return Room(
        node.metadata.name,
        node.metadata.labels or {},
        tuple(t for t in spec.taints or () if t.effect in ("NoSchedule", "NoExecute")),
        spec.unschedulable,
        allocatable,
        {name: amount - used.get(name, 0) for name, amount in allocatable.items()},
    )


def fit(template: Json, among: Iterable[Room], waiting: int) -> Fit | None:
    """How many more pods of the template fit, after `waiting` that are asked for already have been placed.

    None when the template asks for no extended resource, so that GPUs do not bound it.
    """
    containers = msgspec.convert(template.get("containers") or [], list[Container])
    init = msgspec.convert(template.get("initContainers") or [], list[Container])
    need = {name: amount for name, amount in effective(containers, init).items() if amount > 0}
    wanted = [name for name in need if is_extended(name)]
    if not wanted:
        return None
    places = sum(_places(need, room) for room in among if may_run(template, room))
    return Fit(max(0, places - waiting), ", ".join(sorted(wanted)))


def _places(need: Amounts, room: Room) -> int:
    return max(0, min(room.free.get(name, 0) // amount for name, amount in need.items()))


def may_run(template: Json, room: Room) -> bool:
    """Whether the node takes such pods at all, however full it is."""
    if room.unschedulable:
        return False
    tolerations = template.get("tolerations") or []
    if not all(any(_tolerates(t, taint) for t in tolerations) for taint in room.taints):
        return False
    selector = template.get("nodeSelector") or {}
    if any(room.labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = ((template.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return affinity is None or any(
        _term_holds(term, room) for term in affinity.get("nodeSelectorTerms") or []
    )


def _tolerates(toleration: Json, taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key = toleration.get("key")
    if toleration.get("operator") == "Exists":
        return not key or key == taint.key
    return bool(key == taint.key and (toleration.get("value") or "") == taint.value)


def _term_holds(term: Json, room: Room) -> bool:
    """One node selector term; an empty one selects nothing."""
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_holds(e, room.labels) for e in expressions) and all(
        _holds(f, {"metadata.name": room.name}) for f in fields
    )


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values: list[Any] = expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                return (
                    int(value or "") > int(values[0])
                    if operator == "Gt"
                    else int(value or "") < int(values[0])
                )
            except (ValueError, IndexError):
                return False
    return False
