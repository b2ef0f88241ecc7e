"""What the service does on a cluster, whichever it is: pods become Ready only where a test makes them so."""

import time
import uuid

from responder.errors import PermanentError
from responder.model import Reason
from tests.e2e.cluster.world import World, deleted_afterwards
from tests.serving import until

SOON = 20.0
"""Far below the minute after which a target is looked at anyway."""


def test_an_alert_scales_once(world: World) -> None:
    """One effect, by our manager, with an Event and a line of history, however often it is told."""
    world.workload("vllm")
    alert = world.fire_for("vllm")
    world.settles_at("vllm", 3)
    for _ in range(5):
        world.tell(alert)
    # What is told later is done later.
    world.workload("other")
    world.fire_for("other")
    world.settles_at("other", 3)
    found = world.get(world.path("deployments", "vllm"))
    assert found["spec"]["replicas"] == 3
    holders = [
        entry["manager"]
        for entry in found["metadata"]["managedFields"]
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    assert holders == ["gpu-responder"]
    outcomes = [line for line in world.decisions("vllm") if line["outcome"]]
    assert [(line["outcome"], line["current"], line["desired"]) for line in outcomes] == [("applied", 2, 3)]
    until(
        lambda: any(event["reason"] == Reason.SCALED_UP for event in world.events("vllm")),
        what="an Event on the target",
    )


def test_the_end_of_an_alert_and_its_return(world: World) -> None:
    """A resolved alert changes nothing; when it fires again it is another episode."""
    world.workload("vllm")
    alert = world.fire_for("vllm")
    world.settles_at("vllm", 3)
    time.sleep(0.01)
    over = alert.resolved(alert.starts_at)
    world.tell(over)
    world.awaits("vllm", Reason.NOTHING_FIRING)
    world.fire_for("vllm", step="down")
    world.settles_at("vllm", 2)


def test_the_next_step_waits_until_pods_are_ready(world: World) -> None:
    """Steps are not piled up on pods that do not serve yet."""
    world.workload("vllm", replicas=1)
    until(lambda: world.pods("vllm"), what="a pod")
    world.fire_for("vllm", suite="gated", step="climb")
    world.settles_at("vllm", 2)
    world.awaits("vllm", Reason.WAITING_FOR_READY)
    until(lambda: len(world.pods("vllm")) == 2, what="two pods")
    assert world.replicas("vllm") == 2
    for pod in world.pods("vllm"):
        world.make_ready(pod)
    world.settles_at("vllm", 3, seconds=90)


def test_a_pod_leads_to_its_workload(world: World) -> None:
    """dcgm-exporter without honorLabels: exported_pod is the one that counts."""
    world.workload("vllm")
    [pod, *_] = until(lambda: world.pods("vllm"), what="a pod")
    world.fire(
        namespace="monitoring",
        pod="dcgm-exporter-x",
        exported_namespace=world.namespace,
        exported_pod=pod["metadata"]["name"],
    )
    world.settles_at("vllm", 3)


def test_a_statefulset(world: World) -> None:
    """Any kind with a scale."""
    world.workload("db", kind="StatefulSet")
    world.fire_for("db", kind="statefulset")
    world.settles_at("db", 3, resource="statefulsets")


def test_another_owner(world: World) -> None:
    """An autoscaler that appears decides from then on: it is noticed by itself, and the service stands aside."""
    world.workload("vllm")
    world.fire_for("vllm")
    world.settles_at("vllm", 3)
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "vllm"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllm"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                }
            ],
        },
    }
    world.call("POST", world.path("horizontalpodautoscalers", group="autoscaling/v2"), autoscaler)
    told = world.awaits("vllm", Reason.OTHER_OWNER, seconds=SOON)
    assert "vllm" in told["message"]
    world.fire_for("vllm", step="more")
    world.workload("other")
    world.fire_for("other")
    world.settles_at("other", 3)
    assert world.replicas("vllm") == 3


def test_a_person_scales_too(world: World) -> None:
    """Somebody else's number is noticed by itself, respected and built upon."""
    world.workload("vllm")
    world.fire_for("vllm")
    world.settles_at("vllm", 3)
    world.patch(world.path("deployments", "vllm") + "/scale", {"spec": {"replicas": 7}})
    until(
        lambda: any(line["reason"] == Reason.FOREIGN_CHANGE for line in world.decisions("vllm")),
        SOON,
        "it is noticed",
    )
    world.fire_for("vllm", step="more")
    world.settles_at("vllm", 8)


def test_a_person_annotates(world: World) -> None:
    """A pin for those who live in kubectl: it is in force in a moment, and so is its end, with no alert in between."""
    world.workload("vllm")
    world.fire_for("vllm")
    world.settles_at("vllm", 3)
    path = world.path("deployments", "vllm")
    world.patch(path, {"metadata": {"annotations": {"gpu-responder.io/pinned-replicas": "5"}}})
    world.settles_at("vllm", 5, seconds=SOON)
    world.patch(path, {"metadata": {"annotations": {"gpu-responder.io/pinned-replicas": None}}})
    until(lambda: not world.target("vllm")["overrides"], SOON, "the pin is over")


def test_what_is_done_and_decided_is_on_standard_output(world: World) -> None:
    """The ConfigMaps keep the newest of it; all of it, and what people changed, is printed, and nothing else is."""
    world.workload("vllm")
    world.fire_for("vllm")
    world.settles_at("vllm", 3)
    world.override("vllm", kind="pin", replicas=4)
    world.settles_at("vllm", 4)

    def applied() -> list[str]:
        return [line["message"] for line in world.decisions("vllm") if line["outcome"] == "applied"]

    told = until(lambda: applied()[1:] and applied(), what="both are in history")
    printed = "".join(service.audit.read_text() for service in world.services)
    assert all(message in printed for message in told)
    assert "override" in printed
    assert all(" responder.audit." in line for line in printed.splitlines())


def test_a_dry_run(world: World) -> None:
    """The server validates what would be written, and nothing changes."""
    world.workload("vllm")
    before = world.get(world.path("deployments", "vllm"))["metadata"]["generation"]
    world.fire_for("vllm", suite="rehearsed")
    until(
        lambda: any(line["outcome"] == "dry_run" for line in world.decisions("vllm")),
        what="a rehearsal in history",
    )
    assert world.get(world.path("deployments", "vllm"))["metadata"]["generation"] == before


def test_a_target_that_is_not_there(world: World) -> None:
    """Said in history, and no harm to others."""
    world.fire_for("nowhere")
    world.workload("vllm")
    world.fire_for("vllm")
    world.awaits("nowhere", Reason.TARGET_GONE)
    world.settles_at("vllm", 3)


def test_a_custom_resource(world: World) -> None:
    """Found by discovery, scaled like others; one whose replicas field is unset is said to have no scale."""
    group = f"{uuid.uuid4().hex[:8]}.e2e.gpu-responder.io"
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        },
    }
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with deleted_afterwards(world, f"{definitions}/widgets.{group}"):
        world.call("POST", definitions, definition)
        until(
            lambda: world.cluster.discovery.serves(group) or world.cluster.discovery.forget(group), what=group
        )
        widgets = world.path("widgets", group=f"{group}/v1")

        def make(name: str, spec: dict[str, int]) -> bool:
            body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
            try:
                world.call("POST", widgets, body)
            except PermanentError:
                return False  # it is not served everywhere yet
            return True

        until(lambda: make("a", {"replicas": 2}), what="a widget")
        until(lambda: make("unset", {}), what="a widget without replicas")
        world.fire_for("a", kind=f"Widget.{group}")
        world.settles_at("a", 3, resource="widgets", group=f"{group}/v1")
        world.fire_for("unset", kind=f"Widget.{group}")
        world.awaits("unset", Reason.NOT_SCALABLE, "is not set")


def test_a_faulty_node(world: World) -> None:
    """Cordoned with a note, and given back when the fault has been over for long enough."""
    name = f"gpu-responder-e2e-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    with deleted_afterwards(world, f"/api/v1/nodes/{name}"):
        world.call("POST", "/api/v1/nodes", body)
        gpus = {"nvidia.com/gpu": "8"}
        world.patch(
            f"/api/v1/nodes/{name}/status", {"status": {"capacity": gpus, "allocatable": gpus}}, "kubelet"
        )
        alert = world.fire(suite="node", node=name)

        def node() -> dict[str, object]:
            return world.get(f"/api/v1/nodes/{name}")

        until(lambda: node()["spec"].get("unschedulable"), 90, f"node {name} is cordoned")  # type: ignore[attr-defined]
        assert "gpu-responder" in node()["metadata"]["annotations"]["gpu-responder.io/cordoned"]  # type: ignore[index]
        world.tell(alert.resolved(alert.starts_at))
        until(lambda: not node()["spec"].get("unschedulable"), 90, f"node {name} is given back")  # type: ignore[attr-defined]


def test_a_replica_dies(world: World) -> None:
    """Either may be killed: the other acts, and what was acknowledged is done once."""
    world.workload("vllm")
    expected = 2
    for service in world.services:
        service.kill()
        world.fire_for("vllm", step="up" if expected == 2 else "more")
        expected += 1
        world.settles_at("vllm", expected, seconds=120)
        service.start()
        until(service.complete, seconds=120, what=f"{service.name} is back")
    applied = [line for line in world.decisions("vllm") if line["outcome"] == "applied"]
    assert sorted((line["current"], line["desired"]) for line in applied) == [(2, 3), (3, 4)]
