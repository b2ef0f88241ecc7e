"""Nodes of the simulated cluster, and the taints that a node controller keeps on them."""

from datetime import UTC, datetime

from responder.sim.gpus import MODELS
from responder.sim.objects import Object, ObjectStore
from responder.sim.view import NODES, Ref, condition

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"


def make_node(index: int, gpus: int, gpu_model: str) -> Object:
    """A ready node with GPUs, as kubelet and GPU feature discovery would describe it."""
    name = node_name(index)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    resources = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "900Gi", "pods": "110"}
    resources["nvidia.com/gpu"] = str(gpus)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "nvidia.com/gpu.count": str(gpus),
                "nvidia.com/gpu.memory": str(MODELS[gpu_model].memory_mib),
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": gpu_model.replace(" ", "-"),
            },
        },
        "spec": {},
        "status": {
            "capacity": dict(resources),
            "allocatable": dict(resources),
            "conditions": [ready],
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{index // 250}.{index % 250 + 1}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.0",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "kernelVersion": "6.1.0-40-amd64",
                "containerRuntimeVersion": "containerd://2.1.4",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def node_name(index: int) -> str:
    """gpu-node-1, gpu-node-2, ..."""
    return f"gpu-node-{index + 1}"


def sync_taints(store: ObjectStore, ref: Ref, node: Object) -> None:
    """Keeps the NoSchedule taints for cordoned and unready nodes, as the node lifecycle controller does."""
    wanted = {
        UNSCHEDULABLE: bool((node.get("spec") or {}).get("unschedulable")),
        NOT_READY: condition(node, "Ready").get("status") != "True",
    }
    held = {taint["key"] for taint in (node.get("spec") or {}).get("taints") or ()}
    if all((key in held) == there for key, there in wanted.items()):
        return

    def change(obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        taints = [taint for taint in spec.get("taints") or () if taint["key"] not in wanted]
        taints += [{"key": key, "effect": "NoSchedule"} for key, there in wanted.items() if there]
        if taints:
            spec["taints"] = taints
        else:
            spec.pop("taints", None)

    store.mutate(NODES, "", ref.name, change, manager="kube-controller-manager")
