"""A target's pods: how many are ready, where they run, and which of them wait for GPUs."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from responder.errors import PermanentError
from responder.kube.connection import Connection
from responder.kube.objects import Json, ListMeta, Meta
from responder.kube.workloads import Details
from responder.model import Pods, Reason, TargetRef

_PAGE = 500
# "0/5 nodes are available: 5 Insufficient nvidia.com/gpu." Only extended resources have a slash.
_INSUFFICIENT = re.compile(r"Insufficient ([A-Za-z0-9.-]+/[A-Za-z0-9._-]+[A-Za-z0-9])")
_CLAIMS = re.compile(r"cannot allocate all claims")


class Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct):
    phase: str = ""
    conditions: list[Condition] | None = None


class Container(msgspec.Struct, rename="camel"):
    resources: Json | None = None
    restart_policy: str = ""


class PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, str] | None = None


class Pod(msgspec.Struct):
    metadata: Meta
    spec: PodSpec
    status: PodStatus | None = None

    @property
    def finished(self) -> bool:
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")

    @property
    def counts(self) -> bool:
        """Neither finished nor on its way out."""
        return not self.finished and self.metadata.deletion_timestamp is None

    @property
    def ready(self) -> bool:
        return self.counts and any(c.type == "Ready" and c.status == "True" for c in self._conditions)

    @property
    def lacks(self) -> tuple[str, ...]:
        """The extended resources for want of which it cannot be scheduled; empty when it is not for that."""
        for condition in self._conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return lacking(condition.reason, condition.message)
        return ()

    @property
    def _conditions(self) -> list[Condition]:
        return (self.status.conditions if self.status else None) or []


class PodList(msgspec.Struct):
    metadata: ListMeta
    items: list[Pod] | None = None


def lacking(reason: str, message: str) -> tuple[str, ...]:
    """The extended resources that the scheduler's message names; device claims are named as such."""
    if reason != "Unschedulable":
        return ()
    names = dict.fromkeys(_INSUFFICIENT.findall(message))
    if _CLAIMS.search(message):
        names["devices of its resource claims"] = None
    return tuple(names)


def pods_of(connection: Connection, ref: TargetRef, details: Details) -> Pods:
    """Counts from one paged list; from the object's status where there is no right or no selector."""
    if not details.selector:
        return _from_status(details)
    try:
        return count(_listed(connection, ref, details.selector))
    except PermanentError as error:
        if error.reason is Reason.FORBIDDEN:
            return _from_status(details)
        raise


def count(pods: Iterable[Pod]) -> Pods:
    """What a target's pods come to."""
    ready = total = unschedulable = 0
    nodes: set[str] = set()
    missing: dict[str, None] = {}
    for pod in pods:
        if not pod.counts:
            continue
        total += 1
        ready += pod.ready
        if pod.spec.node_name:
            nodes.add(pod.spec.node_name)
            continue
        lacks = pod.lacks
        unschedulable += bool(lacks)
        missing |= dict.fromkeys(lacks)
    return Pods(ready, total, unschedulable, ", ".join(missing), frozenset(nodes))


def placed(connection: Connection, ref: TargetRef, details: Details) -> int:
    """How many of the target's pods have a node."""
    return sum(pod.counts and bool(pod.spec.node_name) for pod in _listed(connection, ref, details.selector))


def _from_status(details: Details) -> Pods:
    total = details.pods or 0
    return Pods(ready=total if details.ready is None else details.ready, total=total)


def _listed(connection: Connection, ref: TargetRef, selector: str) -> Iterator[Pod]:
    query = {"labelSelector": selector}
    yield from paged(connection, f"/api/v1/namespaces/{ref.namespace}/pods", query, f"list the pods of {ref}")


def paged(connection: Connection, path: str, query: dict[str, str], doing: str) -> Iterator[Pod]:
    """All pods of a list, page by page."""
    more = ""
    while True:
        position = {"limit": str(_PAGE)} | ({"continue": more} if more else {})
        page = connection.get(path, PodList, doing, query=query | position)
        yield from page.items or []
        more = page.metadata.more
        if not more:
            return
