"""A cluster of which the tests know no more than its kubeconfig, and namespaces of their own in it."""

import contextlib
import http.client
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from responder.errors import Conflict, PermanentError
from responder.kube import KubeCluster
from responder.kube.connection import Call
from responder.model import Reason
from tests.e2e.harness import Alert, Service, deliver, now, request, webhook
from tests.serving import until

PREFIX = "gpu-responder-e2e"
POLICIES = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
allowedNamespaces: ["gpu-responder-e2e-*"]
policies:
- name: faults
  matchers: ['suite="node"']
  triggers:
  - name: lost
    matchers: ['node!=""']
    node: {action: Cordon, maxNodes: 1, maxPercent: 100, uncordonAfterSeconds: 1}
- name: rehearsed
  matchers: ['suite="rehearsed"']
  dryRun: true
  maxReplicas: 20
  triggers: &triggers
  - {name: up, matchers: ['step="up"'], scale: {direction: Up, type: Pods, value: 1}}
  - {name: more, matchers: ['step="more"'], scale: {direction: Up, type: Pods, value: 1}}
  - {name: climb, matchers: ['step="climb"'], scale: {direction: Up, type: Pods, value: 1}, maxStepsPerEpisode: null}
  - {name: down, matchers: ['step="down"'], scale: {direction: Down, type: Pods, value: 1}}
  behavior: &behavior
    scaleUp: {cooldownSeconds: 0, stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 9, periodSeconds: 1}]}
    scaleDown: {cooldownSeconds: 0, stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 9, periodSeconds: 1}]}
- name: gated
  matchers: ['suite="gated"']
  maxReplicas: 20
  readyTimeoutSeconds: 3600
  triggers: *triggers
  behavior: {scaleUp: {cooldownSeconds: 1}}
- name: plain
  matchers: ['suite="plain"']
  maxReplicas: 20
  readyTimeoutSeconds: 0.1
  triggers: *triggers
  behavior: *behavior
"""


@dataclass(frozen=True)
class Kubeconfig:
    """What a service is started with, as the harness's simulated cluster has it."""

    kubeconfig: Path


@dataclass
class World:
    """One namespace, and what a test does in it as a person would with kubectl."""

    cluster: KubeCluster
    namespace: str
    services: list[Service] = field(default_factory=list)

    # The cluster

    def call(
        self, method: str, path: str, body: Any = None, manager: str = "kubectl", subtype: str = "json"
    ) -> Any:
        """Raises Conflict and PermanentError as the service itself would see them."""
        data = None if body is None else msgspec.json.encode(body)
        query = {"fieldManager": manager} if method in ("POST", "PUT", "PATCH") else None
        call = Call(method, path, f"{method} {path}", query, data, f"application/{subtype}")
        return self.cluster.connection.send(call, dict)

    def get(self, path: str) -> dict[str, Any]:
        return self.cluster.connection.get(path, dict, f"read {path}")

    def patch(self, path: str, body: Any, manager: str = "kubectl") -> Any:
        return self.call("PATCH", path, body, manager, "merge-patch+json")

    def path(self, resource: str, name: str = "", group: str = "apps/v1") -> str:
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        return f"{root}/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "")

    def workload(self, name: str, replicas: int = 2, kind: str = "Deployment") -> None:
        labels = {"app": name}
        spec: dict[str, Any] = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "server", "image": "registry.invalid/none:1"}]},
            },
        }
        if kind == "StatefulSet":
            spec["serviceName"] = name
        body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.call("POST", self.path(f"{kind.lower()}s"), body)

    def replicas(self, name: str, resource: str = "deployments", group: str = "apps/v1") -> int:
        found: int = self.get(self.path(resource, name, group))["spec"].get("replicas", 0)
        return found

    def pods(self, name: str) -> list[dict[str, Any]]:
        items = self.get(self.path("pods", group="v1"))["items"]
        return [
            pod
            for pod in items
            if pod["metadata"].get("labels", {}).get("app") == name
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def make_ready(self, pod: dict[str, Any]) -> None:
        """As a kubelet would say that the pod serves."""
        conditions = [
            {"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "Initialized")
        ]
        path = self.path("pods", pod["metadata"]["name"], "v1")
        self.patch(f"{path}/status", {"status": {"phase": "Running", "conditions": conditions}}, "kubelet")

    def events(self, name: str) -> list[dict[str, Any]]:
        items = self.get(self.path("events", group="v1"))["items"]
        return [event for event in items if event["involvedObject"]["name"] == name]

    # The service

    def fire(self, *, suite: str = "plain", step: str = "up", **labels: str) -> Alert:
        """An alert that begins to fire, told to the first of the services that answers."""
        alert = Alert(
            uuid.uuid4().hex[:16], {"alertname": "A", "suite": suite, "step": step, **labels}, now()
        )
        self.tell(alert)
        return alert

    def fire_for(self, name: str, kind: str = "deployment", **more: str) -> Alert:
        return self.fire(namespace=self.namespace, workload=name, workload_type=kind, **more)

    def tell(self, *alerts: Alert) -> None:
        body = webhook(alerts)

        def taken() -> bool:
            return any(deliver(service.port, body) == 200 for service in self.services if service.pids())

        until(taken, seconds=90, what="a delivery is taken")

    def ask(self, path: str, **query: str) -> Any:
        """What the first service that answers says."""
        for service in self.services:
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, body = request(service.port, "GET", f"{path}?{urlencode(query)}" if query else path)
                if status < 500:
                    return json.loads(body)
        raise AssertionError("no service answers")

    def target(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/api/v1/targets/{self.namespace}/deployment/{name}")
        return found

    def override(self, name: str, **fields: Any) -> None:
        """As a person says it to the API, for the next minutes."""
        target = f"{self.namespace}/deployment/{name}"
        body = {"target": target, "comment": "test", "createdBy": "ana", "durationSeconds": 600, **fields}
        port = next(service.port for service in self.services if service.pids())
        told = json.dumps(body).encode()
        status, answer = request(
            port, "POST", "/api/v1/overrides", told, **{"Content-Type": "application/json"}
        )
        assert status == 201, answer

    def decisions(self, name: str, **query: str) -> list[dict[str, Any]]:
        found = self.ask("/api/v1/decisions", namespace=self.namespace, name=name, limit="200", **query)
        return list(found["decisions"])

    def awaits(self, name: str, reason: Reason, words: str = "", seconds: float = 90) -> dict[str, Any]:
        """The newest decision on the target, once it is for this reason."""

        def found() -> dict[str, Any] | None:
            newest = next((each for each in self.decisions(name)), None)
            fits = newest and newest["reason"] == reason and words in newest["message"]
            return newest if fits else None

        return until(found, seconds, f"{name} is {reason}")

    def settles_at(self, name: str, replicas: int, seconds: float = 90, **where: str) -> None:
        until(lambda: self.replicas(name, **where) == replicas, seconds, f"{name} has {replicas} replicas")


@contextlib.contextmanager
def namespace_of_its_own(cluster: KubeCluster) -> Iterator[str]:
    """A namespace that is gone afterwards, with all that is in it."""
    name = f"{PREFIX}-{uuid.uuid4().hex[:8]}"
    world = World(cluster, name)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    world.call("POST", "/api/v1/namespaces", body)
    try:
        yield name
    finally:
        world.call("DELETE", f"/api/v1/namespaces/{name}")


@contextlib.contextmanager
def deleted_afterwards(world: World, path: str) -> Iterator[None]:
    """For what is in no namespace."""
    try:
        yield
    finally:
        with contextlib.suppress(PermanentError, Conflict):
            world.call("DELETE", path)
