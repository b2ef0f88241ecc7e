"""Who else decides the replicas."""

import pytest

from responder.kube import KubeCluster
from responder.kube.connection import Connection
from responder.kube.discovery import Discovery
from responder.kube.ownership import Owners
from responder.kube.workloads import Workloads
from responder.model import Ownership, TargetRef
from tests.kube.fake_api import FakeApi, discovery, recorded
from tests.kube.objects import found, listed, owner

VLLM = TargetRef("rec", "Deployment", "vllm")
HPAS = "GET /apis/autoscaling/v2/namespaces/rec/horizontalpodautoscalers"
SCALED = "GET /apis/keda.sh/v1alpha1/namespaces/rec/scaledobjects"
READ = "GET /apis/apps/v1/namespaces/rec/deployments/vllm"


def hpa(name: str, kind: str = "Deployment", api_version: str = "apps/v1") -> dict:
    return {
        "metadata": {"name": f"hpa-{name}"},
        "spec": {"scaleTargetRef": {"kind": kind, "name": name, "apiVersion": api_version}},
    }


def ownership(cluster: KubeCluster) -> Ownership:
    return cluster.ownership(VLLM, cluster.workload(VLLM))


@pytest.fixture(autouse=True)
def no_autoscalers(api: FakeApi) -> None:
    api.answers[HPAS] = listed()


def test_nobody(cluster: KubeCluster) -> None:
    """Without rivals the replicas are ours to decide."""
    assert ownership(cluster) == Ownership(known=True, owner="")


def test_recorded_hpa(api: FakeApi, cluster: KubeCluster) -> None:
    """The recorded HPA is on this Deployment."""
    api.answers[HPAS] = recorded("hpa-list")
    assert ownership(cluster) == Ownership(owner="HorizontalPodAutoscaler rec/vllm")


def test_kind_in_lower_case(api: FakeApi, cluster: KubeCluster) -> None:
    """A policy that says "deployment" is not blind to the HPA on the Deployment."""
    api.answers[HPAS] = recorded("hpa-list")
    ref = TargetRef("rec", "deployment", "vllm")
    assert cluster.ownership(ref, cluster.workload(ref)).owner == "HorizontalPodAutoscaler rec/vllm"


OTHERS = {
    "another name": hpa("other"),
    "another kind of that name": hpa("vllm", "StatefulSet"),
    "the kind of another group": hpa("vllm", api_version="example.com/v1"),
    "an HPA that names nothing": {"metadata": {"name": "x"}, "spec": {}},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_hpa_of_others(api: FakeApi, cluster: KubeCluster, other: dict) -> None:
    """An HPA of something else is no rival."""
    api.answers[HPAS] = listed(other)
    assert ownership(cluster).owner == ""


def test_hpa_of_an_older_version(api: FakeApi, cluster: KubeCluster) -> None:
    """Group and kind decide, not the version; "extensions" is where Deployments once were."""
    for version in ("apps/v1beta2", "extensions/v1beta1"):
        api.answers[HPAS] = listed(hpa("vllm", api_version=version))
        other = KubeCluster(cluster.connection._load.args[0])
        assert ownership(other).owner == "HorizontalPodAutoscaler rec/hpa-vllm"
        other.close()


def test_hpa_on_the_second_page(api: FakeApi, cluster: KubeCluster) -> None:
    """All pages are read."""
    api.answers[HPAS] = [listed(hpa("a"), more="next"), listed(hpa("vllm"))]
    assert ownership(cluster).owner == "HorizontalPodAutoscaler rec/hpa-vllm"


def test_hpas_that_must_not_be_read(api: FakeApi, cluster: KubeCluster) -> None:
    """Without the right, whether there is a rival is not known."""
    api.answers[HPAS] = recorded("forbidden")
    assert ownership(cluster).known is False


def test_scaled_object(api: FakeApi, cluster: KubeCluster) -> None:
    """A ScaledObject that leaves kind and apiVersion out is on a Deployment."""
    api.answers |= discovery("keda.sh", "v1alpha1", {"scaledobjects": "ScaledObject"})
    api.answers[SCALED] = listed({"metadata": {"name": "so"}, "spec": {"scaleTargetRef": {"name": "vllm"}}})
    assert ownership(cluster) == Ownership(owner="ScaledObject rec/so")


def test_without_keda(api: FakeApi, cluster: KubeCluster) -> None:
    """Where KEDA is not installed its objects are not asked for: that would be a 403 and look like a want of rights."""
    api.answers[SCALED] = recorded("forbidden")
    assert ownership(cluster) == Ownership(known=True)


def test_scaled_objects_that_must_not_be_read(api: FakeApi, cluster: KubeCluster) -> None:
    """Where KEDA is there and may not be read, whether there is a rival is not known."""
    api.answers |= discovery("keda.sh", "v1alpha1", {"scaledobjects": "ScaledObject"})
    api.answers[SCALED] = recorded("forbidden")
    assert ownership(cluster).known is False


def owned(api: FakeApi, by: dict) -> None:
    answer = recorded("deployment-get")
    answer[2]["metadata"]["ownerReferences"] = [by]
    api.answers[READ] = answer


def test_controller_that_scales(api: FakeApi, cluster: KubeCluster) -> None:
    """A controller with a scale of its own decides; one without does not, but its own controller may."""
    api.answers |= discovery(
        "example.com", "v1", {"servers": "Server", "plans": "Plan"}, unscalable=("plans",)
    )
    owned(api, owner("Server", "s", "u1", "example.com/v1"))
    assert ownership(cluster).owner == "Server rec/s"
    owned(api, owner("Plan", "p", "u2", "example.com/v1") | {"uid": "u2"})
    api.answers["GET /apis/example.com/v1/namespaces/rec/plans/p"] = found(
        "p", "u2", owner("Server", "top", "u3", "example.com/v1")
    )
    api.answers[READ][2]["metadata"]["resourceVersion"] = "361"
    assert ownership(cluster).owner == "Server rec/top"


def test_owner_that_is_no_controller(api: FakeApi, cluster: KubeCluster) -> None:
    """An owner reference that only serves garbage collection is no rival; nor is a kind without scale."""
    api.answers |= discovery("example.com", "v1", {"servers": "Server"})
    owned(api, owner("Server", "s", "u1", "example.com/v1") | {"controller": False})
    assert ownership(cluster).owner == ""
    owned(api, owner("Gone", "s", "u1", "nope.example.com/v1"))
    assert ownership(cluster).owner == ""


def test_many_targets_one_list(api: FakeApi, cluster: KubeCluster) -> None:
    """Targets of one namespace share one list, and a later HPA is noticed when that is renewed."""

    class Time:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    time = Time()
    connection: Connection = cluster.connection
    found_kinds = Discovery(connection)
    workloads = Workloads(connection, found_kinds)
    owners = Owners(connection, found_kinds, time)
    details = workloads.details(VLLM, workloads.read(VLLM))
    for _ in range(100):
        assert owners.of(VLLM, details).owner == ""
    assert sum(r["path"] == HPAS[4:] for r in api.requests) == 1
    api.answers[HPAS] = recorded("hpa-list")
    time.now += 10
    assert owners.of(VLLM, details).owner == "HorizontalPodAutoscaler rec/vllm"
