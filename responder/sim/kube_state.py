"""The series of kube-state-metrics that rules join on, for the objects in the view."""

import re
from collections import defaultdict
from collections.abc import Iterator

from responder.sim.objects import Object
from responder.sim.view import (
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Ref,
    View,
    condition,
    controller_of,
    requests_of,
)

PORT = 8080
NAMESPACE = "monitoring"

_GENERATION = "Sequence number representing a specific generation of the desired state."

# Family -> help, in the order in which they are written.
HELP = {
    "kube_deployment_metadata_generation": _GENERATION,
    "kube_deployment_spec_replicas": "Number of desired pods for a deployment.",
    "kube_deployment_status_observed_generation": "The generation observed by the deployment controller.",
    "kube_deployment_status_replicas": "The number of replicas per deployment.",
    "kube_deployment_status_replicas_available": "The number of available replicas per deployment.",
    "kube_deployment_status_replicas_ready": "The number of ready replicas per deployment.",
    "kube_deployment_status_replicas_unavailable": "The number of unavailable replicas per deployment.",
    "kube_deployment_status_replicas_updated": "The number of updated replicas per deployment.",
    "kube_node_info": "Information about a cluster node.",
    "kube_node_spec_unschedulable": "Whether a node can schedule new pods.",
    "kube_node_status_allocatable": "The allocatable for different resources of a node that are available for"
    " scheduling.",
    "kube_node_status_capacity": "The capacity for different resources of a node.",
    "kube_pod_container_resource_requests": "The number of requested request resource by a container.",
    "kube_pod_info": "Information about pod.",
    "kube_pod_owner": "Information about the Pod's owner.",
    "kube_pod_status_phase": "The pods current phase.",
    "kube_pod_status_ready": "Describes whether the pod is ready to serve requests.",
    "kube_pod_status_scheduled": "Describes the status of the scheduling process for the pod.",
    "kube_pod_status_unschedulable": "Describes the unschedulable status for the pod.",
    "kube_replicaset_owner": "Information about the ReplicaSet's owner.",
    "kube_replicaset_spec_replicas": "Number of desired pods for a ReplicaSet.",
    "kube_replicaset_status_ready_replicas": "The number of ready replicas per ReplicaSet.",
    "kube_replicaset_status_replicas": "The number of replicas per ReplicaSet.",
    "kube_statefulset_metadata_generation": _GENERATION,
    "kube_statefulset_replicas": "Number of desired pods for a StatefulSet.",
    "kube_statefulset_status_observed_generation": "The generation observed by the StatefulSet controller.",
    "kube_statefulset_status_replicas": "The number of replicas per StatefulSet.",
    "kube_statefulset_status_replicas_available": "The number of available replicas per StatefulSet.",
    "kube_statefulset_status_replicas_ready": "The number of ready replicas per StatefulSet.",
    "kube_statefulset_status_replicas_updated": "The number of updated replicas per StatefulSet.",
}
_PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
_UNITS = {"cpu": "core", "memory": "byte", "ephemeral_storage": "byte", "pods": "integer"}
_SUFFIX = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4}

Sample = tuple[str, str]
"""Family and the rest of the line, labels and value."""


class KubeState:
    """Renders the view; what has not changed since the last page is not rendered again."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._cache: dict[Ref, tuple[int, tuple[Sample, ...]]] = {}

    def render(self, absent: frozenset[str] = frozenset()) -> str:
        """The page, without the families named in `absent`."""
        lines: dict[str, list[str]] = defaultdict(list)
        fresh: dict[Ref, tuple[int, tuple[Sample, ...]]] = {}
        for resource, samples_of in _SAMPLES.items():
            for key, entry in self._view.entries[resource].items():
                ref = Ref(resource, *key)
                cached = self._cache.get(ref)
                if cached is None or cached[0] != entry.version:
                    cached = (entry.version, tuple(samples_of(entry.obj)))
                fresh[ref] = cached
                for family, rest in cached[1]:
                    lines[family].append(family + rest)
        self._cache = fresh
        page: list[str] = []
        for family, text in HELP.items():
            if family not in absent:
                stability = "" if family in _EXPERIMENTAL else "[STABLE] "
                page += [f"# HELP {family} {stability}{text}", f"# TYPE {family} gauge", *lines[family]]
        return "\n".join(page) + "\n"


_EXPERIMENTAL = ("kube_statefulset_status_replicas_available", "kube_deployment_status_replicas_ready")


def _line(value: float, **labels: str) -> str:
    inside = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
    return f"{{{inside}}} {value:g}" if value < 1e6 else f"{{{inside}}} {value:.9e}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _deployment(obj: Object) -> Iterator[Sample]:
    where = {"namespace": obj["metadata"]["namespace"], "deployment": obj["metadata"]["name"]}
    status, prefix = obj.get("status") or {}, "kube_deployment_"
    yield prefix + "metadata_generation", _line(obj["metadata"].get("generation", 0), **where)
    yield prefix + "spec_replicas", _line(obj["spec"].get("replicas", 1), **where)
    yield prefix + "status_observed_generation", _line(status.get("observedGeneration", 0), **where)
    yield prefix + "status_replicas", _line(status.get("replicas", 0), **where)
    for name in ("available", "ready", "unavailable", "updated"):
        yield f"{prefix}status_replicas_{name}", _line(status.get(f"{name}Replicas", 0), **where)


def _statefulset(obj: Object) -> Iterator[Sample]:
    where = {"namespace": obj["metadata"]["namespace"], "statefulset": obj["metadata"]["name"]}
    status, prefix = obj.get("status") or {}, "kube_statefulset_"
    yield prefix + "metadata_generation", _line(obj["metadata"].get("generation", 0), **where)
    yield prefix + "replicas", _line(obj["spec"].get("replicas", 1), **where)
    yield prefix + "status_observed_generation", _line(status.get("observedGeneration", 0), **where)
    yield prefix + "status_replicas", _line(status.get("replicas", 0), **where)
    for name in ("available", "ready", "updated"):
        yield f"{prefix}status_replicas_{name}", _line(status.get(f"{name}Replicas", 0), **where)


def _replicaset(obj: Object) -> Iterator[Sample]:
    where = {"namespace": obj["metadata"]["namespace"], "replicaset": obj["metadata"]["name"]}
    status = obj.get("status") or {}
    yield "kube_replicaset_owner", _line(1, **where, **_owner(obj))
    yield "kube_replicaset_spec_replicas", _line(obj["spec"].get("replicas", 1), **where)
    yield "kube_replicaset_status_ready_replicas", _line(status.get("readyReplicas", 0), **where)
    yield "kube_replicaset_status_replicas", _line(status.get("replicas", 0), **where)


def _pod(obj: Object) -> Iterator[Sample]:
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    where = {"namespace": meta["namespace"], "pod": meta["name"], "uid": meta["uid"]}
    owner, node = _owner(obj), spec.get("nodeName", "")
    yield "kube_pod_owner", _line(1, **where, **owner)
    yield (
        "kube_pod_info",
        _line(
            1,
            **where,
            host_ip=status.get("hostIP", ""),
            pod_ip=status.get("podIP", ""),
            node=node,
            created_by_kind=owner["owner_kind"],
            created_by_name=owner["owner_name"],
            priority_class=spec.get("priorityClassName", ""),
            host_network="false",
        ),
    )
    for phase in _PHASES:
        yield "kube_pod_status_phase", _line(status.get("phase") == phase, **where, phase=phase)
    for family, type_ in (("kube_pod_status_ready", "Ready"), ("kube_pod_status_scheduled", "PodScheduled")):
        said = condition(obj, type_)
        for value in ("true", "false", "unknown") if said else ():
            yield family, _line(str(said.get("status", "")).lower() == value, **where, condition=value)
    if condition(obj, "PodScheduled").get("reason") == "Unschedulable":
        yield "kube_pod_status_unschedulable", _line(1, **where)
    for container in spec.get("containers") or ():
        for name, amount in _requests(container).items():
            labels = {"container": container["name"], "node": node, **_resource(name)}
            yield "kube_pod_container_resource_requests", _line(amount, **where, **labels)


def _node(obj: Object) -> Iterator[Sample]:
    name, status = obj["metadata"]["name"], obj.get("status") or {}
    info = status.get("nodeInfo") or {}
    yield "kube_node_info", _line(1, node=name, kubelet_version=info.get("kubeletVersion", ""))
    cordoned = bool((obj.get("spec") or {}).get("unschedulable"))
    yield "kube_node_spec_unschedulable", _line(cordoned, node=name)
    for family, key in (
        ("kube_node_status_allocatable", "allocatable"),
        ("kube_node_status_capacity", "capacity"),
    ):
        for resource, quantity in (status.get(key) or {}).items():
            yield family, _line(quantity_of(str(quantity)), node=name, **_resource(resource))


_SAMPLES = {
    DEPLOYMENTS: _deployment,
    STATEFULSETS: _statefulset,
    REPLICASETS: _replicaset,
    PODS: _pod,
    NODES: _node,
}


def _owner(obj: Object) -> dict[str, str]:
    owner = controller_of(obj)
    if owner is None:
        return {"owner_kind": "", "owner_name": "", "owner_is_controller": ""}
    return {"owner_kind": owner["kind"], "owner_name": owner["name"], "owner_is_controller": "true"}


def _requests(container: Object) -> dict[str, float]:
    extended = requests_of({"spec": {"containers": [container]}})
    asked = (container.get("resources") or {}).get("requests") or {}
    plain = {name: quantity_of(str(value)) for name, value in asked.items() if "/" not in name}
    return {**plain, **extended}


def _resource(name: str) -> dict[str, str]:
    label = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return {"resource": label, "unit": _UNITS.get(label, "integer")}


def quantity_of(text: str) -> float:
    """A Kubernetes quantity as a number: 500m, 4, 16Gi."""
    for suffix, factor in _SUFFIX.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * factor
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
