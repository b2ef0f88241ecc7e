"""The objects that a workload of the simulated cluster starts from."""

from responder.sim.kubelet import COLD_START
from responder.sim.objects import Object
from responder.sim.spec import WorkloadSpec


def manifest(spec: WorkloadSpec) -> Object:
    """The Deployment or StatefulSet of a workload, as a person would write it."""
    labels = {"app.kubernetes.io/name": spec.name}
    container: Object = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": ["--model", spec.model],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
    }
    if spec.gpus_per_pod:
        gpus = {"nvidia.com/gpu": str(spec.gpus_per_pod)}
        container["resources"] = {"limits": dict(gpus), "requests": dict(gpus)}
    body: Object = {
        "replicas": spec.replicas,
        "selector": {"matchLabels": dict(labels)},
        "template": {
            "metadata": {
                "labels": dict(labels),
                "annotations": {COLD_START: f"{spec.cold_start_seconds:g}"},
            },
            "spec": {"containers": [container]},
        },
    }
    if spec.kind == "StatefulSet":
        body["serviceName"] = spec.name
    return {
        "apiVersion": "apps/v1",
        "kind": spec.kind,
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": dict(labels)},
        "spec": body,
    }
