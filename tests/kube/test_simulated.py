"""The same calls against the simulated API server, which keeps state: effects, rivals and lost answers."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from responder.errors import Conflict, PermanentError, TransientError
from responder.kube import KubeCluster, Right
from responder.kube.connection import Call
from responder.model import Reason, TargetRef
from responder.sim.auth import ADMIN, Rule, User
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from tests.kube.fake_api import RECORDINGS

VLLM = TargetRef("rec", "Deployment", "vllm")
SERVER = TargetRef("rec", "Server", "s", "example.com")
DEPLOYMENTS = "/apis/apps/v1/namespaces/rec/deployments"
SCALE = f"{DEPLOYMENTS}/vllm/scale"
READER = User("reader", rules=(Rule(("get", "list"), ("*",), ("*",)),))


def recorded(name: str) -> dict:
    return next(e["request"]["body"] for e in RECORDINGS if e["name"] == name)


@pytest.fixture
def server() -> Iterator[SimServer]:
    with SimServer(ObjectStore(), tokens={"admin": ADMIN, "reader": READER}) as started:
        yield started


@pytest.fixture
def cluster(server: SimServer, tmp_path: Path) -> Iterator[KubeCluster]:
    made = KubeCluster(str(server.kubeconfig(tmp_path / "admin")), timeout=20, deadline=30)
    post(made, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rec"}})
    post(made, f"{DEPLOYMENTS}?fieldManager=helm", recorded("deployment-create"))
    yield made
    made.close()


def post(cluster: KubeCluster, path: str, body: dict, method: str = "POST") -> None:
    path, _, query = path.partition("?")
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    fields = dict(part.split("=") for part in query.split("&") if part)
    call = Call(method, path, f"{method} {path}", fields, msgspec.json.encode(body), content_type)
    cluster.connection.send(call, msgspec.Raw)


def test_what_scale_returns_is_what_is_read(cluster: KubeCluster) -> None:
    """After a write the caller knows version, generation and manager as the server has them."""
    before = cluster.workload(VLLM)
    assert before.manager == "helm"
    assert cluster.scale(VLLM, before, 5) == cluster.workload(VLLM)


def test_same_value_moves_nothing(cluster: KubeCluster) -> None:
    """A write of the value that is there leaves version and manager alone, and so says the result."""
    before = cluster.workload(VLLM)
    assert cluster.scale(VLLM, before, before.replicas) == before == cluster.workload(VLLM)


def test_dry_run_changes_nothing(server: SimServer, cluster: KubeCluster) -> None:
    """A dry run leaves the server as it was."""
    before = cluster.workload(VLLM)
    assert cluster.scale(VLLM, before, 7, dry_run=True).replicas == 7
    assert cluster.workload(VLLM) == before
    assert server.scales() == []


RIVALS = {
    "another scale": (f"{SCALE}?fieldManager=kubectl", {"spec": {"replicas": 4}}),
    "an edit of the template": (
        f"{DEPLOYMENTS}/vllm?fieldManager=kubectl-edit",
        {"spec": {"minReadySeconds": 5}},
    ),
    "a status write": (f"{DEPLOYMENTS}/vllm/status?fieldManager=controller", {"status": {"replicas": 2}}),
}


@pytest.mark.parametrize(("path", "body"), RIVALS.values(), ids=RIVALS)
def test_rival_write_between_read_and_write(
    server: SimServer, cluster: KubeCluster, path: str, body: dict
) -> None:
    """Whatever moved the version since it was read, our write does not land."""
    before = cluster.workload(VLLM)
    post(cluster, path, body, "PATCH")
    with pytest.raises(Conflict):
        cluster.scale(VLLM, before, 9)
    assert cluster.workload(VLLM).replicas != 9


def test_lost_answer_has_one_effect(server: SimServer, cluster: KubeCluster) -> None:
    """A write whose answer is lost took effect once; what is read tells that it did."""
    before = cluster.workload(VLLM)
    server.faults.set([{"methods": ["PUT"], "fault": "applyThenReset"}])
    with pytest.raises(TransientError):
        cluster.scale(VLLM, before, 5)
    after = cluster.workload(VLLM)
    assert (after.replicas, after.generation, after.manager) == (5, before.generation + 1, "gpu-responder")
    assert len(server.scales()) == 1


def test_late_answer_has_one_effect(server: SimServer, cluster: KubeCluster) -> None:
    """A write that is answered too late is given up, and is not sent again."""
    before = cluster.workload(VLLM)
    server.faults.set([{"methods": ["PUT"], "fault": "applyThenHang", "seconds": 5}])
    cluster.connection.timeout = 1.0
    with pytest.raises(TransientError) as caught:
        cluster.scale(VLLM, before, 5)
    assert caught.value.kind == "timeout"
    assert cluster.workload(VLLM).replicas == 5
    assert len(server.scales()) == 1


def test_reads_survive_trouble(server: SimServer, cluster: KubeCluster) -> None:
    """With half of all reads failing in every way, a read still comes to its answer."""
    server.faults.set(
        [
            {"methods": "reads", "probability": 0.25, "fault": "reset"},
            {"methods": "reads", "probability": 0.25, "fault": "status", "status": 503},
        ],
        seed=7,
    )
    assert [cluster.workload(VLLM).replicas for _ in range(8)] == [2] * 8


def test_custom_resource_definition(server: SimServer, cluster: KubeCluster) -> None:
    """A kind that a definition brings is found, read and scaled, with its replicas at spec.workers."""
    with pytest.raises(PermanentError, match="serves no group"):
        cluster.workload(SERVER)
    post(cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", recorded("crd-create"))
    cluster.discovery.forget("example.com")  # as half a minute does
    path = "/apis/example.com/v1/namespaces/rec/servers"
    end = time.monotonic() + 30
    while True:
        try:
            post(cluster, f"{path}?fieldManager=kubectl", recorded("cr-create"))
            break
        except PermanentError:
            assert time.monotonic() < end
            time.sleep(0.05)
    before = cluster.workload(SERVER)
    assert before.replicas == 2
    after = cluster.scale(SERVER, before, 5)
    assert after == cluster.workload(SERVER)
    assert after.manager == "gpu-responder"
    post(cluster, path, recorded("cr-without-workers-create"))
    with pytest.raises(PermanentError, match=r"\.spec\.workers is not set") as caught:
        cluster.workload(TargetRef("rec", "Server", "t", "example.com"))
    assert caught.value.reason is Reason.NOT_SCALABLE


def test_rights_that_are_missing(server: SimServer, cluster: KubeCluster, tmp_path: Path) -> None:
    """Who may read and not scale is told so by the review, by a dry run and by the write."""
    reader = KubeCluster(str(server.kubeconfig(tmp_path / "reader", "reader")), timeout=20, deadline=20)
    workload = reader.workload(VLLM)
    right = Right("update", "apps", "deployments", "scale", "rec")
    assert [access.allowed for access in reader.access([right])] == [False]
    assert [access.allowed for access in cluster.access([right])] == [True]
    for dry_run in (True, False):
        with pytest.raises(PermanentError, match="deployments/scale") as caught:
            reader.scale(VLLM, workload, 3, dry_run=dry_run)
        assert caught.value.reason is Reason.FORBIDDEN
    reader.close()


def test_target_that_goes(cluster: KubeCluster) -> None:
    """A target that is deleted is gone; one made anew under its name has another uid."""
    before = cluster.workload(VLLM)
    post(cluster, f"{DEPLOYMENTS}/vllm", {"propagationPolicy": "Background"}, "DELETE")
    with pytest.raises(PermanentError) as caught:
        cluster.workload(VLLM)
    assert caught.value.reason is Reason.TARGET_GONE
    post(cluster, DEPLOYMENTS, recorded("deployment-create"))
    assert cluster.workload(VLLM).uid != before.uid
    with pytest.raises(Conflict):
        cluster.scale(VLLM, before, 5)


def test_events_are_counted(cluster: KubeCluster) -> None:
    """One Event per decision, counted up by repeats, on a server that keeps them."""
    workload = cluster.workload(VLLM)
    for _ in range(3):
        cluster.tell(VLLM, workload.uid, "Held", "too hot", "Warning")
    cluster._recorder.close()
    (event,) = cluster.connection.items("/api/v1/namespaces/rec/events", dict, "list events")
    assert (event["count"], event["type"], event["message"]) == (3, "Warning", "too hot")
    assert event["involvedObject"]["uid"] == workload.uid


def test_reading_is_fast(cluster: KubeCluster) -> None:
    """A look at a target costs milliseconds, also with server and client in one process."""
    cluster.workload(VLLM)
    best = min(timed(cluster) for _ in range(50))
    assert best < 0.02


def timed(cluster: KubeCluster) -> float:
    began = time.perf_counter()
    cluster.workload(VLLM)
    return time.perf_counter() - began
