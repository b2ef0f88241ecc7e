"""Watches keep pods, autoscalers and nodes current, lose nothing, and give way to reads while they are not."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.kube import KubeCluster, mirror, selectors
from responder.kube.capacity import Node
from responder.kube.connection import Call
from responder.kube.news import Nobody
from responder.kube.pods import Pod, state_of
from responder.kube.targets import Sighting, is_news
from responder.kube.views import AutoscalerView, NodeView, PodView
from responder.model import Ownership, TargetRef, Workload
from responder.sim.auth import ADMIN, Rule, User
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from tests.kube.fake_api import RECORDINGS
from tests.kube.objects import node, pod

VLLM = TargetRef("rec", "Deployment", "vllm")
SERVER = TargetRef("rec", "Server", "s", "example.com")
PODS = "/api/v1/namespaces/rec/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/rec/deployments"
SERVERS = "/apis/example.com/v1/namespaces/rec/servers"
HPAS = "/apis/autoscaling/v2/namespaces/rec/horizontalpodautoscalers"
DEPLOYMENT = next(e["request"]["body"] for e in RECORDINGS if e["name"] == "deployment-create")
HPA = next(e["request"]["body"] for e in RECORDINGS if e["name"] == "hpa-create")
DEFINITION, CUSTOM = (
    next(e["request"]["body"] for e in RECORDINGS if e["name"] == name)
    for name in ("crd-create", "cr-create")
)
WITHIN = User(
    "within",
    rules=(
        Rule(("get",), ("apps",), ("deployments",), namespaces=("rec",)),
        Rule(
            ("list", "watch"),
            ("", "autoscaling"),
            ("pods", "horizontalpodautoscalers"),
            namespaces=("rec",),
        ),
    ),
)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


class World:
    """A simulated API server with the recorded Deployment, changed by an administrator."""

    def __init__(self, server: SimServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.admin = self.cluster("admin")
        self.post("/api/v1/namespaces", {"metadata": {"name": "rec"}}, "v1", "Namespace")
        self.post(DEPLOYMENTS, DEPLOYMENT)

    def cluster(self, token: str) -> KubeCluster:
        return KubeCluster(str(self.server.kubeconfig(self.folder / token, token)), timeout=2, deadline=4)

    def post(self, path: str, body: dict, api_version: str = "", kind: str = "") -> None:
        whole = {"apiVersion": api_version, "kind": kind, **body}
        self.send("POST", path, whole)

    def send(self, method: str, path: str, body: object) -> None:
        patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = msgspec.json.encode(body) if body is not None else None
        self.admin.connection.send(
            Call(method, path, f"{method} {path}", {"fieldManager": "kubectl"}, data, patch), msgspec.Raw
        )

    def add_pod(self, name: str, *, ready: bool = True, gpus: int = 0, on: str = "n") -> None:
        body = pod(name, labels={"app": "vllm"}, gpus=gpus, node=on)
        status = body.pop("status")
        del body["metadata"]["uid"]
        body["spec"]["containers"][0]["image"] = "x"
        self.post(PODS, body, "v1", "Pod")
        if ready:
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.send("PATCH", f"{PODS}/{name}/status", {"status": status})

    def reads(self, path: str) -> int:
        """How often a path was listed, watches not counted."""
        return sum(
            r["path"] == path and r["method"] == "GET" and "watch" not in r["query"]
            for r in tuple(self.server.requests)
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = ObjectStore(history=30)
    with SimServer(store, tokens={"admin": ADMIN, "within": WITHIN}) as server:
        made = World(server, tmp_path)
        yield made
        made.admin.close()


@pytest.fixture
def live(world: World) -> Iterator[KubeCluster]:
    """A cluster that keeps itself current, and is."""
    cluster = world.cluster("admin")
    cluster.keep_current()
    until(lambda: current(cluster))
    yield cluster
    cluster.close()


@dataclass
class Heard:
    """What the actor would have been told."""

    targets: list[TargetRef] = field(default_factory=list)
    owners: list[TargetRef] = field(default_factory=list)
    lifted: int = 0

    def changed(self, target: TargetRef) -> None:
        self.targets.append(target)

    def pods_changed(self, target: TargetRef) -> None:
        self.owners.append(target)

    def cordon_lifted(self) -> None:
        self.lifted += 1


@contextlib.contextmanager
def watching(world: World, ref: TargetRef = VLLM) -> Iterator[tuple[KubeCluster, list[TargetRef]]]:
    """A cluster that watches the target's kind, and what it tells from now on."""
    told: list[TargetRef] = []
    cluster = world.cluster("admin")
    cluster.keep_current(Heard(targets=told))
    with contextlib.closing(cluster):
        cluster.workload(ref)
        cluster.seen(ref)
        assert cluster._mirrors is not None
        kinds = cluster._mirrors._kinds.values()
        until(lambda: all(kind.scoped.view(ref.namespace) is not None for kind in kinds))
        told.clear()  # of what was read before it was watched
        yield cluster, told


def current(cluster: KubeCluster, namespace: str = "") -> bool:
    assert cluster._mirrors is not None
    scopes = (cluster._mirrors._pods, cluster._mirrors._nodes, *cluster._mirrors._autoscalers.values())
    return all(scope.view(namespace) is not None for scope in scopes)


def ready(cluster: KubeCluster) -> int:
    return cluster.pods(VLLM, cluster.workload(VLLM)).ready


def owner(cluster: KubeCluster) -> Ownership:
    return cluster.ownership(VLLM, cluster.workload(VLLM))


def test_pods_follow_without_reads(world: World, live: KubeCluster) -> None:
    """Pods that come, become ready and go are seen, and nobody lists them."""
    world.add_pod("a")
    world.add_pod("b", ready=False)
    until(lambda: ready(live) == 1)
    world.send("PATCH", f"{PODS}/b/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    until(lambda: ready(live) == 2)
    world.send("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
    until(lambda: ready(live) == 1)
    assert world.reads(PODS) == 0


def test_pods_that_become_ready_are_news_of_their_target(world: World) -> None:
    """And that are so no more; not those that have come, or say something else, or that nobody has asked for."""
    told: list[TargetRef] = []
    cluster = world.cluster("admin")
    cluster.keep_current(Heard(owners=told))
    until(lambda: current(cluster))
    world.add_pod("before")
    assert told == []
    until(lambda: ready(cluster) == 1)
    told.clear()
    world.add_pod("a", ready=False)
    for text in ("True", "True", "False"):
        condition = {"type": "Ready", "status": text, "message": str(len(told))}
        world.send("PATCH", f"{PODS}/a/status", {"status": {"conditions": [condition]}})
    until(lambda: told == [VLLM] * 2)
    world.send("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
    world.send("DELETE", f"{PODS}/before", {"gracePeriodSeconds": 0})
    until(lambda: told == [VLLM] * 3)
    cluster.close()


def test_pods_that_changed_while_nothing_was_watched_are_news() -> None:
    """Of those targets whose pods did, and of no others."""
    told: list[TargetRef] = []
    view = PodView(Heard(owners=told))
    a, b, c = (TargetRef("rec", "Deployment", name) for name in "abc")

    def made(name: str, app: str, **status: object) -> Pod:
        body = pod(name, labels={"app": app})
        return msgspec.convert(body | {"status": body["status"] | status}, Pod)

    ready_ = {"conditions": [{"type": "Ready", "status": "True"}]}
    view.replace([made("1", "a", **ready_), made("2", "b"), made("3", "c", **ready_), made("4", "a")])
    for target, selector in ((a, "app=a"), (b, "app in (b)"), (c, "app!=a,app!=b")):
        assert view.select(target, selector)
    view.replace([made("1", "a", **ready_), made("2", "b", **ready_)])
    assert sorted(told, key=str) == [b, c]
    told.clear()
    view.put(made("1", "b", **ready_))
    assert sorted(told, key=str) == [a, b], "it has changed hands"


def test_hpa_that_appears_and_goes(world: World, live: KubeCluster) -> None:
    """An HPA is noticed as soon as it is there, and as soon as it is not."""
    assert owner(live) == Ownership()
    world.post(HPAS, HPA)
    until(lambda: owner(live).owner == "HorizontalPodAutoscaler rec/vllm", 2)
    world.send("DELETE", f"{HPAS}/vllm", None)
    until(lambda: owner(live) == Ownership(), 2)
    assert world.reads(HPAS) == 0


def test_an_hpa_that_appears_while_a_watch_is_interrupted(world: World, live: KubeCluster) -> None:
    """What was listed before is not taken for what is there: it is read, until a watch has begun again."""
    assert owner(live) == Ownership()
    world.server.faults.set(
        [{"path": "^/apis/autoscaling/v2/horizontalpodautoscalers", "fault": "status", "status": 500}]
    )
    world.server.cut()
    until(lambda: not current(live))
    world.post(HPAS, HPA)
    assert owner(live).owner == "HorizontalPodAutoscaler rec/vllm"
    world.server.faults.clear()
    until(lambda: current(live))
    listed = world.reads(HPAS)
    assert owner(live).owner == "HorizontalPodAutoscaler rec/vllm"
    assert world.reads(HPAS) == listed


def test_capacity_from_the_mirror(world: World, live: KubeCluster) -> None:
    """Free GPUs are counted from what is known already."""
    body = node("n", 8)
    world.post("/api/v1/nodes", body, "v1", "Node")
    world.send("PATCH", "/api/v1/nodes/n/status", {"status": body["status"]})
    world.add_pod("a", gpus=3)
    until(lambda: ready(live) == 1 and live._mirrors is not None and live._mirrors.inventory()[0])
    (room,) = live._inventory.rooms() or ()
    assert room.free["nvidia.com/gpu"] == 5000
    assert world.reads("/api/v1/nodes") == 1, "the mirror's own"


def test_cut_connections_lose_nothing(world: World, live: KubeCluster) -> None:
    """A watch that is cut goes on from where it was: no second list, no missed change."""
    world.add_pod("a")
    until(lambda: ready(live) == 1)
    listed = world.reads("/api/v1/pods")
    for name in ("b", "c", "d"):
        world.server.cut()
        world.add_pod(name)
    until(lambda: current(live) and ready(live) == 4)
    assert world.reads("/api/v1/pods") == listed
    watches = [
        int(r["query"]["resourceVersion"])
        for r in tuple(world.server.requests)
        if r["path"] == "/api/v1/pods" and "watch" in r["query"]
    ]
    assert watches[-1] > watches[0], "goes on from the last change seen, not from the list"


def test_a_watched_target_is_seen_without_reads(world: World, live: KubeCluster) -> None:
    """What the watch shows is what a read answers; status moves it on, and other tools' annotations are left out."""
    live.workload(VLLM)
    until(lambda: live.seen(VLLM))
    reads = world.reads(f"{DEPLOYMENTS}/vllm")
    world.send(
        "PATCH",
        f"{DEPLOYMENTS}/vllm",
        {"metadata": {"annotations": {"gpu-responder.io/paused": "yes", "a": "b"}}},
    )
    until(lambda: (seen := live.seen(VLLM)) and seen.annotations)
    seen = live.seen(VLLM)
    assert seen is not None
    live.ownership(VLLM, seen)
    live.pods(VLLM, seen)
    assert world.reads(f"{DEPLOYMENTS}/vllm") == reads
    assert world.reads("/api/v1/namespaces/rec") == 1
    read = live.workload(VLLM)
    assert seen.annotations == {"gpu-responder.io/paused": "yes"}
    assert read == seen


NEWS = {
    "an annotation for us": {"metadata": {"annotations": {"gpu-responder.io/paused": "yes"}}},
    "a scale by hand": {"spec": {"replicas": 7}},
    "another template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
}


@pytest.mark.parametrize("change", NEWS.values(), ids=NEWS.keys())
def test_what_people_change_is_news(world: World, change: dict) -> None:
    """The actor learns of it within a moment, and of exactly the target that it was done to."""
    with watching(world) as (cluster, told):
        world.send("PATCH", f"{DEPLOYMENTS}/vllm", change)
        until(lambda: told == [VLLM])
        read, seen = cluster.workload(VLLM), cluster.seen(VLLM)
        assert seen is not None
        assert (seen.replicas, seen.resource_version) == (read.replicas, read.resource_version)


def test_what_goes_and_comes_back_is_news(world: World) -> None:
    """A target that is deleted, and one that is made anew."""
    with watching(world) as (cluster, told):
        world.send("DELETE", f"{DEPLOYMENTS}/vllm", None)
        until(lambda: VLLM in told)
        until(lambda: cluster.seen(VLLM) is None)
        told.clear()
        world.post(DEPLOYMENTS, DEPLOYMENT)
        until(lambda: VLLM in told)


def test_what_nobody_has_to_look_at_is_no_news(world: World) -> None:
    """Neither status, nor a scale write of our own; nor is the watch's word for anything else lost by them."""
    with watching(world) as (cluster, told):
        world.send("PATCH", f"{DEPLOYMENTS}/vllm/status", {"status": {"readyReplicas": 1}})
        cluster.scale(VLLM, cluster.workload(VLLM), 5)
        until(lambda: (seen := cluster.seen(VLLM)) and seen.replicas == 5)
        assert told == []
        world.send("PATCH", f"{DEPLOYMENTS}/vllm", {"spec": {"replicas": 4}})
        until(lambda: told == [VLLM])


def test_what_was_changed_before_a_scale_of_ours_is_news() -> None:
    """While nothing was watched, somebody else's change may lie under it."""
    ours = Workload("u", 3, "7", 4, manager="gpu-responder")
    before = Sighting(replace(ours, generation=2, replicas=3), leaving=False, details=None)
    assert not is_news(before, Sighting(ours, leaving=False, details=None))
    assert is_news(before, Sighting(replace(ours, generation=4), leaving=False, details=None))
    assert not is_news(before, replace(before, workload=replace(before.workload, resource_version="9")))


def test_a_cordon_that_was_lifted_while_nothing_was_watched_is_news() -> None:
    """The list tells of it as the watch would have."""
    heard = Heard()
    view = NodeView(heard)
    view.replace([msgspec.convert(node("a", 8), Node)])
    cordoned = node("b", 8, labels={"gpu-responder.io/cordoned": "true"}, unschedulable=True)
    view.replace([msgspec.convert(cordoned, Node)])
    assert heard.lifted == 0
    cordoned["spec"] = {}
    view.replace([msgspec.convert(cordoned, Node)])
    assert heard.lifted == 1


def test_what_changed_while_nothing_was_watched_is_news(world: World) -> None:
    """Between a read and the first list, and while the connection was cut so long that all is listed again."""
    told: list[TargetRef] = []
    cluster = world.cluster("admin")
    world.server.faults.set([{"path": "^/apis/apps/v1/deployments", "fault": "reset"}])
    cluster.keep_current(Heard(targets=told))
    cluster.workload(VLLM)
    assert cluster.seen(VLLM) is None
    assert told == []
    world.server.faults.clear()
    until(lambda: told == [VLLM])
    world.server.faults.set([{"path": "^/apis/apps/v1/deployments", "fault": "reset"}])
    told.clear()
    world.server.cut()
    world.send("PATCH", f"{DEPLOYMENTS}/vllm", {"spec": {"replicas": 7}})
    for number in range(40):  # more changes than the server remembers
        world.post("/api/v1/namespaces", {"metadata": {"name": f"n{number}"}}, "v1", "Namespace")
    world.server.faults.clear()
    until(lambda: told == [VLLM])
    cluster.close()


def test_a_custom_kind_is_watched_for_news_and_read_for_its_scale(world: World) -> None:
    """Its object does not say where its replicas are, so only its scale does."""
    world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    world.post(SERVERS, CUSTOM)
    with watching(world, SERVER) as (cluster, told):
        assert cluster.seen(SERVER) is None
        world.send("PATCH", f"{SERVERS}/s", {"spec": {"workers": 3}})
        until(lambda: told == [SERVER])
        assert cluster.seen(SERVER) is None
        assert cluster.workload(SERVER).replicas == 3


def test_targets_that_must_not_be_listed_are_read(world: World) -> None:
    """Without the right to list them nobody is told of anything: looks come when they are due."""
    told: list[TargetRef] = []
    cluster = world.cluster("within")
    cluster.keep_current(Heard(targets=told))
    until(lambda: cluster.seen(VLLM) is None and world.reads(DEPLOYMENTS))  # refused, here as everywhere
    assert cluster.seen(VLLM) is None
    assert cluster.workload(VLLM).replicas == 2
    world.send("PATCH", f"{DEPLOYMENTS}/vllm", {"spec": {"replicas": 7}})
    assert cluster.workload(VLLM).replicas == 7
    assert told == []
    cluster.close()


def test_version_too_old_lists_again(world: World, live: KubeCluster) -> None:
    """When the server no longer has the changes since (410), everything is listed again and nothing is lost."""
    world.add_pod("a")
    until(lambda: ready(live) == 1)
    listed = world.reads("/api/v1/pods")
    world.server.faults.set([{"path": "^/api/v1/pods", "fault": "reset"}])
    world.server.cut()
    world.send("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
    for number in range(20):  # more changes than the server remembers
        world.add_pod(f"p{number}")
    world.server.faults.clear()
    until(lambda: current(live) and ready(live) == 20)
    assert world.reads("/api/v1/pods") > listed


def test_reads_while_it_is_not_current(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that hears nothing is not believed: pods are read, and are right."""
    monkeypatch.setattr(mirror, "_CURRENT_SECONDS", 0.0)
    cluster = world.cluster("admin")
    cluster.keep_current()
    world.add_pod("a")
    assert ready(cluster) == 1
    assert world.reads(PODS) == 1
    cluster.close()


def test_rights_within_a_namespace(world: World) -> None:
    """With rights in one namespace only, that one is watched; nodes stay unknown."""
    cluster = world.cluster("within")
    cluster.keep_current()
    assert ready(cluster) == 0
    world.add_pod("a")
    until(lambda: cluster._mirrors is not None and cluster._mirrors.pods(VLLM, "app=vllm"))
    listed = world.reads(PODS)
    world.add_pod("b")
    until(lambda: ready(cluster) == 2)
    assert world.reads(PODS) == listed
    until(lambda: owner(cluster) == Ownership())
    world.post(HPAS, HPA)
    until(lambda: owner(cluster).owner == "HorizontalPodAutoscaler rec/vllm", 15)
    assert cluster._inventory.rooms() is None
    cluster.close()


def test_close_leaves_no_thread(world: World) -> None:
    """Closing ends the watches at once, though they wait for news."""
    cluster = world.cluster("admin")
    cluster.keep_current()
    until(lambda: current(cluster))
    time.sleep(0.2)  # so that the watches are open, not only the lists done
    cluster.close()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("mirror")], 3)


def test_watch_with_a_token_that_rotated(world: World, tmp_path: Path) -> None:
    """A watch that is refused reads the credentials again, too."""
    token = tmp_path / "token"
    token.write_text("old")
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": world.server.url}}],
        "users": [{"name": "a", "user": {"tokenFile": str(token)}}],
    }
    (tmp_path / "rotating").write_bytes(msgspec.json.encode(config))
    cluster = KubeCluster(str(tmp_path / "rotating"), timeout=2, deadline=4)
    token.write_text("admin")
    query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "1"}
    lines = cluster.connection.watch("/api/v1/namespaces", "watch namespaces", query, 5.0)
    assert b"ADDED" in next(iter(lines))
    lines.close()
    cluster.close()


SELECTORS = {
    "equal": ("a=1", {"a": "1"}, {"a": "2"}),
    "equal, twice the sign": ("a==1,b=2", {"a": "1", "b": "2"}, {"a": "1"}),
    "unequal": ("a!=1", {}, {"a": "1"}),
    "one of": ("a in (1, 2),b", {"a": "2", "b": ""}, {"a": "3", "b": ""}),
    "none of": ("a notin (1,2)", {"a": "3"}, {"a": "1"}),
    "there": ("app.kubernetes.io/name", {"app.kubernetes.io/name": "x"}, {}),
    "not there": ("!a", {"b": "1"}, {"a": "1"}),
    "empty value": ("a=", {"a": ""}, {"a": "1"}),
    "words as keys": ("in=1,notin", {"in": "1", "notin": ""}, {"in": "2", "notin": ""}),
}


@pytest.mark.parametrize(("text", "holds", "fails"), SELECTORS.values(), ids=SELECTORS)
def test_selectors(text: str, holds: dict, fails: dict) -> None:
    """Selectors mean here what they mean to the server."""
    terms = selectors.parse(text)
    assert all(term.holds(holds) for term in terms)
    assert not all(term.holds(fails) for term in terms)


@pytest.mark.parametrize("text", ["", ",", "a=1,,b", "a in", "a in 1", "=1", "a=1 b=2", "!", "a>1"])
def test_no_selectors(text: str) -> None:
    """What is not understood is left to the server, and "" never selects everything."""
    with pytest.raises(ValueError):
        selectors.parse(text)


def made(name: str, labels: dict[str, str], namespace: str = "rec") -> Pod:
    return msgspec.convert(
        pod(name, labels=labels)
        | {"spec": {}}
        | {"metadata": {"name": name, "namespace": namespace, "labels": labels}},
        Pod,
    )


LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"))
STEP = st.tuples(st.sampled_from(["put", "drop"]), st.sampled_from("pqr"), LABELS)
QUERY = st.sampled_from(["a=1", "b=2", "a=1,b=1", "a in (1,2),b=2", "a!=1", "!a", "a"])


@given(st.lists(st.one_of(STEP, QUERY), max_size=30))
def test_index_agrees_with_looking_at_each(steps: list) -> None:
    """However pods come, change labels and go, a selector selects what a scan of all would."""
    view = PodView(Nobody())
    view.replace([made("p", {"a": "1"}), made("p", {"a": "1"}, "other")])
    truth = {"p": made("p", {"a": "1"})}
    for step in steps:
        if isinstance(step, str):
            terms = selectors.parse(step)
            expected = {
                name for name, it in truth.items() if all(t.holds(state_of(it).labels) for t in terms)
            }
            assert {found.name for found in view.select(VLLM, step)} == expected
        elif step[0] == "put":
            truth[step[1]] = made(step[1], step[2])
            view.put(truth[step[1]])
        else:
            view.drop(made(step[1], {}))
            truth.pop(step[1], None)


def test_autoscalers_change_their_target() -> None:
    """An autoscaler that is pointed elsewhere owns the new target and leaves the old one."""
    from responder.kube.ownership import Autoscaler

    def scaler(name: str, target: str) -> Autoscaler:
        ref = {"scaleTargetRef": {"name": target}}
        return msgspec.convert({"metadata": {"name": name, "namespace": "rec"}, "spec": ref}, Autoscaler)

    told: list[TargetRef] = []

    def news() -> list[str]:
        names, told[:] = sorted(ref.name for ref in told), []
        return names

    view = AutoscalerView(Heard(targets=told))
    view.replace([scaler("h", "a"), scaler("g", "a")])
    assert view.of("rec", ("apps", "Deployment", "a")) == "g"
    assert news() == [], "what is listed first is no news"
    view.put(scaler("g", "b"))
    assert view.of("rec", ("apps", "Deployment", "a")) == "h"
    assert view.of("rec", ("apps", "Deployment", "b")) == "g"
    assert news() == ["a", "b"]
    view.put(scaler("g", "b"))
    assert news() == [], "its status is no news"
    view.drop(scaler("h", "a"))
    assert view.of("rec", ("apps", "Deployment", "a")) == ""
    assert view.of("other", ("apps", "Deployment", "b")) == ""
    assert news() == ["a"]
    view.replace([scaler("g", "c")])
    assert news() == ["b", "c"], "what changed while nobody watched"
