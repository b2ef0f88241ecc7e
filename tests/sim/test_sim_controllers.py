"""Controllers, scheduler and kubelet on a real object store, in hand-moved time."""

from collections.abc import Callable
from typing import Any

import pytest

from responder.sim.clock import SimClock
from responder.sim.gpus import DEFAULT_MODEL
from responder.sim.kubelet import COLD_START
from responder.sim.loop import ControlLoop
from responder.sim.nodes import make_node
from responder.sim.objects import ObjectStore


class World:
    """A store, its control loop and a clock moved by hand."""

    def __init__(self, nodes: int = 4, gpus: int = 4, *, kubelet: bool = True) -> None:
        self.seconds = 0.0
        self.store = ObjectStore()
        for index in range(nodes):
            self.store.create("nodes", make_node(index, gpus, DEFAULT_MODEL))
        self.loop = ControlLoop(self.store, SimClock(1, lambda: self.seconds), kubelet=kubelet)

    def run(self, seconds: float = 0.0) -> None:
        self.seconds += seconds
        self.loop.step()

    def create(self, kind: str = "Deployment", name: str = "vllm", replicas: int = 1, **pod: Any) -> None:
        resources = {"limits": {"nvidia.com/gpu": str(pod.pop("gpus", 1))}}
        annotations = {COLD_START: str(pod.pop("cold_start"))} if "cold_start" in pod else {}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **pod},
            },
        }
        metadata = {"namespace": "ml", "name": name}
        obj = {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}
        self.store.create(f"{kind.lower()}s.apps", obj, manager="tester")
        self.run()

    def scale(self, replicas: int, resource: str = "deployments.apps", name: str = "vllm") -> None:
        def change(obj: dict[str, Any]) -> None:
            obj["spec"]["replicas"] = replicas

        self.store.mutate(resource, "ml", name, change, manager="tester", subresource="scale")
        self.run()

    def get(self, resource: str = "deployments.apps", name: str = "vllm") -> dict[str, Any]:
        obj = self.store.get(resource, "ml", name)
        assert obj is not None
        return obj

    def pods(self) -> list[dict[str, Any]]:
        return self.store.list("pods")

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}


@pytest.fixture
def world() -> World:
    return World()


def conditions(obj: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in obj["status"].get("conditions", ())}


def test_a_deployment_owns_a_replicaset_that_owns_pods_and_its_status_follows(world: World) -> None:
    """The chain that rules and responder join on, before and after the cold start."""
    world.create(replicas=2)
    (replicaset,) = world.store.list("replicasets.apps")
    digest = replicaset["metadata"]["labels"]["pod-template-hash"]
    assert replicaset["metadata"]["name"] == f"vllm-{digest}"
    (owner,) = replicaset["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Deployment", "vllm", True)
    assert owner["uid"] == world.get()["metadata"]["uid"]
    for pod in world.pods():
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("ReplicaSet", replicaset["metadata"]["uid"])
        assert pod["metadata"]["labels"]["pod-template-hash"] == digest
        assert pod["spec"]["nodeName"].startswith("gpu-node-")
    assert "readyReplicas" not in world.get()["status"]
    world.run(59)
    assert "readyReplicas" not in world.get()["status"]
    assert {pod["status"]["phase"] for pod in world.pods()} == {"Running"}
    world.run(1)
    status = world.get()["status"]
    assert {k: status[k] for k in ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")} == {
        "replicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "updatedReplicas": 2,
    }
    assert status["observedGeneration"] == world.get()["metadata"]["generation"]
    assert conditions(world.get()) == {"Available": "True", "Progressing": "True"}


def test_controllers_write_status_only_under_their_own_name(world: World) -> None:
    """generation moves with the spec alone, and nobody but the tester owns spec.replicas."""
    world.create(replicas=1)
    world.run(100)
    meta = world.get()["metadata"]
    assert meta["generation"] == 1
    managers = {(m["manager"], m.get("subresource", "")) for m in meta["managedFields"]}
    assert managers == {("tester", ""), ("kube-controller-manager", "status")}


def test_a_settled_cluster_is_left_alone(world: World) -> None:
    """Looking again at everything writes nothing."""
    world.create(replicas=3)
    world.create(kind="StatefulSet", name="db", replicas=2)
    world.run(100)
    world.run(100)
    world.run(100)
    before = world.store.version
    world.loop.resync()
    world.run()
    assert world.store.version == before


def test_scaling_down_takes_the_unscheduled_then_the_unready_then_the_cheap_then_the_newest() -> None:
    """The order in which the real ReplicaSet controller deletes."""
    world = World(nodes=1, gpus=5)
    world.create(replicas=3)
    world.run(60)
    old = sorted(world.names(), key=lambda name: world.get("pods", name)["metadata"]["resourceVersion"])
    cheap, *kept = old

    def mark(pod: dict[str, Any]) -> None:
        pod["metadata"].setdefault("annotations", {})["controller.kubernetes.io/pod-deletion-cost"] = "-5"

    world.store.mutate("pods", "ml", cheap, mark)
    world.scale(7)
    world.run(10)
    pending = {p["metadata"]["name"] for p in world.pods() if not p["spec"].get("nodeName")}
    unready = world.names() - set(old) - pending
    assert (len(pending), len(unready)) == (2, 2)
    world.scale(5)
    assert world.names() == set(old) | unready
    world.scale(3)
    assert world.names() == set(old)
    world.scale(2)
    assert world.names() == set(kept)
    world.scale(4)
    world.run(60)
    assert world.get()["status"]["readyReplicas"] == 4
    world.scale(2)
    assert world.names() == set(kept), "the newest go first"


def test_a_pod_without_a_gpu_says_why_in_the_schedulers_words_and_starts_when_one_is_freed() -> None:
    """Pending is told from starting."""
    world = World(nodes=4, gpus=1)
    world.create(replicas=5)
    (pending,) = [p for p in world.pods() if not p["spec"].get("nodeName")]
    (said,) = pending["status"]["conditions"]
    assert pending["status"]["phase"] == "Pending"
    assert (said["type"], said["status"], said["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert said["message"] == (
        "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: "
        "4 No preemption victims found for incoming pod."
    )
    world.run(60)
    assert world.get()["status"]["readyReplicas"] == 4
    world.store.create("nodes", make_node(9, 1, DEFAULT_MODEL))
    world.run()
    world.run(60)
    assert world.get()["status"]["readyReplicas"] == 5


def test_pods_go_where_most_room_is() -> None:
    """Replicas are spread over nodes."""
    world = World(nodes=3, gpus=3)
    world.create(replicas=3)
    assert len({pod["spec"]["nodeName"] for pod in world.pods()}) == 3


def test_of_equal_pods_one_of_a_crowded_node_goes_first() -> None:
    """Scaling down spreads, even if the newest pod stands alone."""
    world = World(nodes=2, gpus=4)

    def cordon(obj: dict[str, Any], value: bool = True) -> None:
        obj["spec"]["unschedulable"] = value

    world.store.mutate("nodes", "", "gpu-node-2", cordon)
    world.create(replicas=2)
    world.store.mutate("nodes", "", "gpu-node-2", lambda obj: cordon(obj, False))
    world.scale(3)
    world.run(60)
    assert [p["spec"]["nodeName"] for p in world.pods()].count("gpu-node-1") == 2
    world.scale(2)
    assert {p["spec"]["nodeName"] for p in world.pods()} == {"gpu-node-1", "gpu-node-2"}


def test_a_pod_made_unready_stays_so(world: World) -> None:
    """Kubelet makes a pod Ready once; what a test says after that holds."""
    world.create(replicas=1)
    world.run(60)
    (name,) = world.names()
    world.loop.set_ready("ml", name, False)
    world.run(1000)
    assert "readyReplicas" not in world.get()["status"]


def test_nodes_are_never_overcommitted() -> None:
    """Two-GPU pods on three-GPU nodes: one each, the rest wait."""
    world = World(nodes=3, gpus=3)
    world.create(replicas=5, gpus=2)
    placed = [p["spec"]["nodeName"] for p in world.pods() if p["spec"].get("nodeName")]
    assert sorted(placed) == ["gpu-node-1", "gpu-node-2", "gpu-node-3"]


@pytest.mark.parametrize(
    ("node", "pod", "reason"),
    [
        pytest.param(
            {"spec": {"unschedulable": True}}, {}, "1 node(s) were unschedulable", id="a cordoned node"
        ),
        pytest.param(
            {"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}},
            {},
            "1 node(s) had untolerated taint {team: a}",
            id="a taint",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"zone": "b"}},
            "1 node(s) didn't match Pod's node affinity/selector",
            id="a node selector",
        ),
    ],
)
def test_a_node_that_is_not_for_this_pod_is_passed_over(
    node: dict[str, Any], pod: dict[str, Any], reason: str
) -> None:
    """With the reason, and evicting others would not help."""
    world = World(nodes=1)

    def change(obj: dict[str, Any]) -> None:
        obj["spec"].update(node.get("spec", {}))

    world.store.mutate("nodes", "", "gpu-node-1", change)
    world.create(**pod)
    (waiting,) = world.pods()
    assert waiting["status"]["conditions"][0]["message"] == (
        f"0/1 nodes are available: {reason}. preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )


def test_a_toleration_lets_a_pod_onto_a_tainted_node() -> None:
    """GPU nodes are tainted more often than not."""
    world = World(nodes=1)

    def taint(obj: dict[str, Any]) -> None:
        obj["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]

    world.store.mutate("nodes", "", "gpu-node-1", taint)
    world.create(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}])
    assert world.pods()[0]["spec"]["nodeName"] == "gpu-node-1"


def test_a_cordoned_node_is_tainted_and_uncordoning_lets_pods_on_again() -> None:
    """As the node lifecycle controller and the scheduler do together."""
    world = World(nodes=1)

    def cordon(obj: dict[str, Any], value: bool = True) -> None:
        obj["spec"]["unschedulable"] = value

    world.store.mutate("nodes", "", "gpu-node-1", cordon)
    world.create()
    assert "nodeName" not in world.pods()[0]["spec"]
    node = world.store.get("nodes", "", "gpu-node-1")
    assert node is not None
    assert [t["key"] for t in node["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]
    world.store.mutate("nodes", "", "gpu-node-1", lambda obj: cordon(obj, False))
    world.run()
    assert world.pods()[0]["spec"]["nodeName"] == "gpu-node-1"


def test_cold_start_is_per_workload(world: World) -> None:
    """An annotation on the pod template."""
    world.create(name="quick", cold_start=5)
    world.create(name="slow", cold_start=300)
    world.run(5)
    assert world.get(name="quick")["status"].get("readyReplicas") == 1
    world.run(294)
    assert "readyReplicas" not in world.get(name="slow")["status"]
    world.run(1)
    assert world.get(name="slow")["status"].get("readyReplicas") == 1


def test_without_a_kubelet_pods_become_ready_only_when_told() -> None:
    """Tests decide; and a pod made unready stays so."""
    world = World(kubelet=False)
    world.create()
    world.run(10_000)
    (name,) = world.names()
    assert "readyReplicas" not in world.get()["status"]
    assert world.loop.set_ready("ml", name)
    world.run()
    assert world.get()["status"]["readyReplicas"] == 1
    world.scale(2)
    (other,) = world.names() - {name}
    assert world.loop.set_ready("ml", other), "even before its container runs"
    world.run()
    assert world.get("pods", other)["status"]["phase"] == "Running"
    assert world.get()["status"]["readyReplicas"] == 2
    world.scale(1)
    (name,) = world.names()
    world.loop.set_ready("ml", name, False)
    world.run(1000)
    assert "readyReplicas" not in world.get()["status"]
    assert not world.loop.set_ready("ml", "no-such-pod")


def test_deleting_a_deployment_takes_its_replicasets_and_pods_along(world: World) -> None:
    """The garbage collector's part."""
    world.create(replicas=3)
    world.store.delete("deployments.apps", "ml", "vllm")
    world.run()
    assert world.store.list("replicasets.apps") == []
    assert world.pods() == []


def test_foreground_deletion_takes_dependents_first(world: World) -> None:
    """The owner stays, with its finalizer, until they are gone."""
    world.create(replicas=2)
    seen = []
    world.store.on_change(lambda change: seen.append((change.type, change.resource)))

    def dying(obj: dict[str, Any]) -> None:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        obj["metadata"]["finalizers"] = ["foregroundDeletion"]

    world.store.mutate("deployments.apps", "ml", "vllm", dying)
    world.run()
    gone = [resource for type_, resource in seen if type_ == "DELETED"]
    assert gone.index("replicasets.apps") < gone.index("deployments.apps")
    assert world.pods() == []


def test_a_deleted_pod_is_replaced_under_another_name(world: World) -> None:
    """Self-healing."""
    world.create(replicas=2)
    gone = min(world.names())
    world.store.delete("pods", "ml", gone)
    world.run()
    assert len(world.names()) == 2
    assert gone not in world.names()


def test_a_new_template_rolls_over_without_losing_availability(world: World) -> None:
    """New ReplicaSet up, old one down, never fewer ready than allowed."""
    world.create(replicas=4)
    world.run(60)
    before = world.names()

    def change(obj: dict[str, Any]) -> None:
        obj["spec"]["template"]["spec"]["containers"][0]["image"] = "new"

    world.store.mutate("deployments.apps", "ml", "vllm", change, manager="tester")
    for _ in range(60):
        world.run(10)
        assert world.get()["status"]["readyReplicas"] >= 3
        assert len(world.names()) <= 5
    assert len(world.names()) == 4
    assert not world.names() & before
    old, new = sorted(
        world.store.list("replicasets.apps"),
        key=lambda r: r["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
    )
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 4)
    assert world.get()["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


def test_going_back_to_an_old_template_reuses_its_replicaset_as_the_newest_revision(world: World) -> None:
    """What `kubectl rollout undo` relies on."""
    world.create(replicas=1)

    def image(name: str) -> Callable[[dict[str, Any]], None]:
        def change(obj: dict[str, Any]) -> None:
            obj["spec"]["template"]["spec"]["containers"][0]["image"] = name

        return change

    for name in ("new", "i"):
        world.store.mutate("deployments.apps", "ml", "vllm", image(name), manager="tester")
        for _ in range(4):
            world.run(60)
    sets = world.store.list("replicasets.apps")
    revisions = {r["spec"]["replicas"]: r["metadata"]["annotations"] for r in sets}
    assert len(sets) == 2
    assert revisions[1]["deployment.kubernetes.io/revision"] == "3"
    assert world.get()["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"


def test_a_statefulset_starts_in_order_and_ends_from_the_highest(world: World) -> None:
    """One at a time, each ready before the next."""
    world.create(kind="StatefulSet", name="db", replicas=3)
    seen = []
    for _ in range(4):
        seen.append(sorted(world.names()))
        world.run(60)
    assert seen == [["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"], ["db-0", "db-1", "db-2"]]
    status = world.get("statefulsets.apps", "db")["status"]
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (3, 3, 3)
    assert status["currentRevision"] == status["updateRevision"]
    gone = []
    world.store.on_change(lambda c: gone.append(c.entry.key[1]) if c.type == "DELETED" else None)
    world.scale(1, "statefulsets.apps", "db")
    assert world.names() == {"db-0"}
    assert gone == ["db-2", "db-1"]


def test_a_thousand_deployments_settle_quickly_and_stay_cheap() -> None:
    """Sizes to keep in mind: 1,000 known targets with 0 or 1 replicas."""
    world = World(nodes=20, gpus=8)
    for index in range(1000):
        spec = {
            "replicas": index % 2,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}},
        }
        meta = {"namespace": "ml", "name": f"d{index}"}
        world.store.create(
            "deployments.apps",
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec},
        )
    world.run()
    world.run(60)
    ready = [d for d in world.store.list("deployments.apps") if d["status"].get("readyReplicas") == 1]
    assert len(ready) == 500
