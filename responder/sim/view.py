"""The controllers' cache of the cluster: pods, owners and nodes, indexed as they are asked for."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from responder.sim.objects import Change, Entry, Object

DEPLOYMENTS = "deployments.apps"
REPLICASETS = "replicasets.apps"
STATEFULSETS = "statefulsets.apps"
PODS = "pods"
NODES = "nodes"
BUDGETS = "poddisruptionbudgets.policy"
WATCHED = (NODES, DEPLOYMENTS, STATEFULSETS, REPLICASETS, PODS, BUDGETS)

_RESOURCE_OF_KIND = {"Deployment": DEPLOYMENTS, "ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS}


class Ref(NamedTuple):
    """An object by name."""

    resource: str
    namespace: str
    name: str


class Workload(NamedTuple):
    """What a person scales, by kind, namespace and name."""

    namespace: str
    kind: str
    name: str


def controller_of(obj: Object) -> Object | None:
    """The owner reference with controller: true."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is True."""
    return condition(pod, "Ready").get("status") == "True"


def condition(obj: Object, type_: str) -> Object:
    """A status condition by type; empty when there is none."""
    for found in obj.get("status", {}).get("conditions") or ():
        if found["type"] == type_:
            return dict(found)
    return {}


def is_active(pod: Object) -> bool:
    """Whether a pod still counts: not finished and not being deleted."""
    phase = pod.get("status", {}).get("phase")
    return phase not in ("Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp")


def placed_on(pod: Object) -> str | None:
    """The node whose resources a pod holds."""
    node: str | None = pod["spec"].get("nodeName")
    return node if is_active(pod) else None


def requests_of(pod: Object) -> dict[str, int]:
    """Extended resources (names with a slash) that a pod asks for, summed over its containers."""
    total: dict[str, int] = defaultdict(int)
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, quantity in asked.items():
            if "/" in name:
                total[name] += int(quantity)
    return dict(total)


def internal_ip(node: Object) -> str:
    """A node's address inside the cluster, or its name."""
    for address in node.get("status", {}).get("addresses") or ():
        if address["type"] == "InternalIP":
            return str(address["address"])
    return str(node["metadata"]["name"])


class View:
    """Follows the store change by change. One thread applies; readers hold the loop's lock."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[tuple[str, str], Entry]] = {resource: {} for resource in WATCHED}
        self.created: dict[str, int] = {}
        self.on_node: dict[str, set[Ref]] = defaultdict(set)
        self.used: dict[str, Counter[str]] = defaultdict(Counter)
        self.budgets: dict[str, set[Ref]] = {}
        self.placement_version = 0
        self._owned: dict[str, set[Ref]] = defaultdict(set)

    def apply(self, change: Change) -> None:
        """Takes one change in."""
        entry, key = change.entry, change.entry.key
        meta = entry.obj["metadata"]
        ref = Ref(change.resource, *key)
        owner = controller_of(entry.obj)
        if change.type == "DELETED":
            self.entries[change.resource].pop(key, None)
            self.created.pop(meta["uid"], None)
            if owner:
                self._owned[owner["uid"]].discard(ref)
        else:
            self.entries[change.resource][key] = entry
            self.created.setdefault(meta["uid"], change.version)
            if owner:
                self._owned[owner["uid"]].add(ref)
        if change.resource in (PODS, NODES):
            self.placement_version += 1
        if change.resource == PODS:
            self._place(ref, change)
        elif change.resource == BUDGETS:
            self._budget(ref, change)

    def _place(self, ref: Ref, change: Change) -> None:
        before = placed_on(change.old.obj) if change.old else None
        after = placed_on(change.object) if change.type != "DELETED" else None
        if before == after:
            return
        if change.old and before:
            self.on_node[before].discard(ref)
            self.used[before].subtract(requests_of(change.old.obj))
        if after:
            self.on_node[after].add(ref)
            self.used[after].update(requests_of(change.object))

    def _budget(self, ref: Ref, change: Change) -> None:
        # No namespace stays here without one: every change of a pod asks.
        there = self.budgets.setdefault(ref.namespace, set())
        if change.type == "DELETED":
            there.discard(ref)
        else:
            there.add(ref)
        if not there:
            del self.budgets[ref.namespace]

    def get(self, ref: Ref) -> Entry | None:
        """The latest version seen."""
        return self.entries[ref.resource].get((ref.namespace, ref.name))

    def owned(self, uid: str, resource: str) -> list[Entry]:
        """Objects whose controller is `uid`, oldest first."""
        found = (self.get(ref) for ref in self._owned.get(uid, ()) if ref.resource == resource)
        entries = [entry for entry in found if entry is not None]
        entries.sort(key=lambda entry: self.created[entry.obj["metadata"]["uid"]])
        return entries

    def orphans(self, uid: str) -> list[Ref]:
        """Objects left behind by an owner that is gone."""
        return sorted(self._owned.pop(uid, ()))

    def owner_ref(self, obj: Object) -> Ref | None:
        """Where the controller of an object is kept; None if it has none that we know."""
        owner = controller_of(obj)
        resource = _RESOURCE_OF_KIND.get(owner["kind"]) if owner else None
        if owner is None or resource is None:
            return None
        return Ref(resource, obj["metadata"].get("namespace") or "", owner["name"])

    def workload_of(self, pod: Object) -> Workload | None:
        """The Deployment or StatefulSet that a pod belongs to (or a ReplicaSet that nothing owns)."""
        namespace = pod["metadata"].get("namespace") or ""
        owner = controller_of(pod)
        if owner is None:
            return None
        if owner["kind"] == "ReplicaSet":
            replicaset = self.get(Ref(REPLICASETS, namespace, owner["name"]))
            above = controller_of(replicaset.obj) if replicaset else None
            owner = above or owner
        return Workload(namespace, owner["kind"], owner["name"])

    def pods(self) -> Iterator[Entry]:
        """Every pod."""
        yield from list(self.entries[PODS].values())

    def nodes(self) -> list[Entry]:
        """Every node, by name."""
        return sorted(self.entries[NODES].values(), key=lambda entry: entry.key)
