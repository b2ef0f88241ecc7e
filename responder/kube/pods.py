"""A target's pods: how many are ready, where they run, and which of them wait for GPUs."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from responder.kube.amounts import Amounts, Container, effective
from responder.kube.connection import Connection
from responder.kube.quantity import milli
from responder.model import Pods

V = TypeVar("V", str, int)

# "0/5 nodes are available: 5 Insufficient nvidia.com/gpu." Only extended resources have a slash.
_INSUFFICIENT = re.compile(r"Insufficient ([A-Za-z0-9.-]+/[A-Za-z0-9._-]+[A-Za-z0-9])")
_CLAIMS = re.compile(r"cannot allocate all claims")


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, str] | None = None


class Pod(msgspec.Struct):
    """A pod as the server writes it."""

    metadata: _Meta
    spec: _Spec
    status: _Status | None = None


@dataclass(frozen=True, slots=True)
class PodState:
    """What is kept of a pod: small, since there may be a hundred thousand.

    `counts`: neither finished nor being deleted. `holds`: it has what it requests of its node. `lacks`: the
    extended resources for want of which it cannot be scheduled.
    """

    namespace: str
    name: str
    labels: Mapping[str, str]
    node: str
    counts: bool
    holds: bool
    ready: bool
    lacks: tuple[str, ...]
    requests: Mapping[str, int]


def state_of(pod: Pod) -> PodState:
    """The state of a pod. Equal labels and requests are shared between pods."""
    phase = pod.status.phase if pod.status else ""
    conditions = (pod.status.conditions if pod.status else None) or []
    counts = phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None
    scheduled = next((c for c in conditions if c.type == "PodScheduled"), None)
    return PodState(
        namespace=sys.intern(pod.metadata.namespace),
        name=pod.metadata.name,
        labels=shared(pod.metadata.labels or {}),
        node=sys.intern(pod.spec.node_name),
        counts=counts,
        holds=bool(pod.spec.node_name) and phase not in ("Succeeded", "Failed"),
        ready=counts and any(c.type == "Ready" and c.status == "True" for c in conditions),
        lacks=lacking(scheduled.reason, scheduled.message)
        if scheduled and scheduled.status == "False"
        else (),
        requests=shared(_requests(pod.spec)),
    )


_shared: dict[frozenset[tuple[str, object]], Mapping[str, object]] = {}
_MOST_SHARED = 50_000


def shared(mapping: dict[str, V]) -> Mapping[str, V]:
    """One and the same mapping for all that are equal: a workload's pods differ in little but their names."""
    if len(_shared) >= _MOST_SHARED:
        _shared.clear()
    found: Mapping[str, V] = _shared.setdefault(frozenset(mapping.items()), mapping)  # type: ignore[assignment]
    return found


def _requests(spec: _Spec) -> Amounts:
    """What the scheduler reserves for a pod, itself included as one of the node's `pods`."""
    amounts = effective(spec.containers or [], spec.init_containers or [])
    for name, quantity in (spec.overhead or {}).items():
        amounts[name] = amounts.get(name, 0) + milli(quantity)
    return amounts


def lacking(reason: str, message: str) -> tuple[str, ...]:
    """The extended resources that the scheduler's message names; device claims are named as such."""
    if reason != "Unschedulable":
        return ()
    names = dict.fromkeys(_INSUFFICIENT.findall(message))
    if _CLAIMS.search(message):
        names["devices of its resource claims"] = None
    return tuple(names)


def listed(connection: Connection, namespace: str, selector: str, doing: str) -> Iterator[PodState]:
    """The pods of a namespace that a selector selects, read from the server."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    return map(state_of, connection.items(path, Pod, doing, query={"labelSelector": selector}))


def count(pods: Iterable[PodState]) -> Pods:
    """What a target's pods come to."""
    ready = total = unschedulable = 0
    nodes: set[str] = set()
    missing: dict[str, None] = {}
    for pod in pods:
        if not pod.counts:
            continue
        total += 1
        ready += pod.ready
        if pod.node:
            nodes.add(pod.node)
            continue
        unschedulable += bool(pod.lacks)
        missing |= dict.fromkeys(pod.lacks)
    return Pods(ready, total, unschedulable, ", ".join(missing), frozenset(nodes))
