"""Reading a target at one version, and what a scale write looks like on the wire."""

import json
from pathlib import Path

import pytest

from responder.errors import PermanentError, TransientError
from responder.kube import KubeCluster
from responder.kube.managers import holder, scale_path
from responder.kube.objects import Anything, ManagedFields
from responder.kube.workloads import Workloads
from responder.model import Reason, TargetRef
from tests.kube.fake_api import FakeApi, discovery, recorded

VLLM = TargetRef("rec", "Deployment", "vllm")
SERVER = TargetRef("rec", "Server", "s", "example.com")
READ = "GET /apis/apps/v1/namespaces/rec/deployments/vllm"
NAMESPACE = "GET /api/v1/namespaces/rec"
CR = "/apis/example.com/v1/namespaces/rec/servers/s"
MANAGERS = json.loads(
    (Path(__file__).parents[1] / "data" / "kubernetes-1.36-field-managers.json").read_text()
)


def changed(name: str, **metadata: object) -> tuple:
    status, headers, body = recorded(name)
    return status, headers, body | {"metadata": body["metadata"] | metadata}


@pytest.fixture
def custom(api: FakeApi) -> FakeApi:
    """The recorded custom resource, whose replicas are at spec.workers."""
    api.answers |= discovery("example.com", "v1", {"servers": "Server"})
    api.answers[f"GET {CR}"] = changed("cr-create", resourceVersion="452")
    api.answers[f"GET {CR}/scale"] = recorded("cr-scale-get")
    api.answers[f"PUT {CR}/scale"] = recorded("cr-scale-put")
    return api


def test_deployment_is_read_at_one_version(api: FakeApi, cluster: KubeCluster) -> None:
    """Object and scale of a Deployment come from one read, with who holds spec.replicas."""
    workload = cluster.workload(VLLM)
    assert (workload.replicas, workload.generation, workload.resource_version) == (2, 1, "360")
    assert workload.uid == "a093e35c-3f5b-4315-ae2f-ce552a0b7fa7"
    assert workload.manager == "python-requests"
    assert workload.annotations == {}, "those of others can be as long as the object"


def test_workload_is_never_cached(api: FakeApi, cluster: KubeCluster) -> None:
    """Two reads ask the server twice: settling must see what is there now."""
    cluster.workload(VLLM)
    api.answers[READ] = changed("deployment-get", resourceVersion="361")
    assert cluster.workload(VLLM).resource_version == "361"


def test_write_on_the_wire(api: FakeApi, cluster: KubeCluster) -> None:
    """The scale alone is written, under our field manager and against the version that was read."""
    after = cluster.scale(VLLM, cluster.workload(VLLM), 3)
    (put,) = api.sent("PUT")
    assert put["path"] == "/apis/apps/v1/namespaces/rec/deployments/vllm/scale"
    assert put["query"] == {"fieldManager": "gpu-responder"}
    assert put["body"]["spec"] == {"replicas": 3}
    assert put["body"]["metadata"] == {
        "name": "vllm",
        "namespace": "rec",
        "uid": "a093e35c-3f5b-4315-ae2f-ce552a0b7fa7",
        "resourceVersion": "360",
    }
    assert (after.replicas, after.resource_version, after.generation, after.manager) == (
        3,
        "363",
        2,
        "gpu-responder",
    )


def test_dry_run_on_the_wire(api: FakeApi, cluster: KubeCluster) -> None:
    """A dry run asks the server to validate and store nothing, and leaves version and manager alone."""
    before = cluster.workload(VLLM)
    api.answers["PUT /apis/apps/v1/namespaces/rec/deployments/vllm/scale"] = recorded("scale-put-dry-run")
    after = cluster.scale(VLLM, before, 7, dry_run=True)
    assert api.sent("PUT")[0]["query"] == {"fieldManager": "gpu-responder", "dryRun": "All"}
    assert (after.replicas, after.resource_version, after.generation, after.manager) == (
        7,
        "360",
        1,
        "python-requests",
    )


def test_scale_to_zero_omits_replicas(api: FakeApi, cluster: KubeCluster) -> None:
    """A Scale at 0 comes back without spec.replicas, and that is 0."""
    api.answers["PUT /apis/apps/v1/namespaces/rec/deployments/vllm/scale"] = recorded("scale-put-zero")
    assert cluster.scale(VLLM, cluster.workload(VLLM), 0).replicas == 0


def test_custom_resource(custom: FakeApi, cluster: KubeCluster) -> None:
    """A custom resource is read by object and scale and written through its scale."""
    workload = cluster.workload(SERVER)
    assert (workload.replicas, workload.resource_version) == (2, "452")
    assert cluster.scale(SERVER, workload, 5).replicas == 5


def test_read_again_until_versions_agree(custom: FakeApi, cluster: KubeCluster) -> None:
    """A change between the two reads is noticed: object and scale are read again."""
    custom.answers[f"GET {CR}"] = [
        changed("cr-create", resourceVersion="451"),
        changed("cr-create", resourceVersion="452"),
    ]
    assert cluster.workload(SERVER).resource_version == "452"
    assert sum(r["path"] == CR for r in custom.requests) == 2


def test_versions_that_never_agree(custom: FakeApi, cluster: KubeCluster) -> None:
    """The number of such reads is bounded; then it is transient."""
    custom.answers[f"GET {CR}"] = changed("cr-create", resourceVersion="1")
    with pytest.raises(TransientError, match="changes faster") as caught:
        cluster.workload(SERVER)
    assert caught.value.kind == "moving"
    assert sum(r["path"] == CR for r in custom.requests) == 5


def test_unset_replicas_of_a_custom_resource(custom: FakeApi, cluster: KubeCluster) -> None:
    """The 500 of an unset replicas field is permanent: it is not retried, and says which field to set."""
    custom.answers[f"GET {CR}/scale"] = recorded("cr-scale-get-unset-replicas")
    with pytest.raises(PermanentError, match=r"\.spec\.workers is not set") as caught:
        cluster.workload(SERVER)
    assert caught.value.reason is Reason.NOT_SCALABLE
    assert sum(r["path"] == f"{CR}/scale" for r in custom.requests) == 1


def test_target_being_deleted(api: FakeApi, cluster: KubeCluster) -> None:
    """An object with a deletionTimestamp is gone for us."""
    api.answers[READ] = changed("deployment-get", deletionTimestamp="2026-11-30T18:17:26Z")
    with pytest.raises(PermanentError, match="is being deleted") as caught:
        cluster.workload(VLLM)
    assert caught.value.reason is Reason.TARGET_GONE


def test_namespace_being_deleted(api: FakeApi, cluster: KubeCluster) -> None:
    """A target in a namespace that is being deleted says so, before any write is refused."""
    api.answers[NAMESPACE] = recorded("namespace-delete")
    with pytest.raises(PermanentError, match="Namespace rec is being deleted") as caught:
        cluster.workload(VLLM)
    assert caught.value.reason is Reason.NAMESPACE_TERMINATING


def test_a_namespace_is_read_anew_for_what_acts_and_once_a_minute_for_the_rest(
    api: FakeApi, cluster: KubeCluster
) -> None:
    """Looks that go by the watch cost hardly a read."""
    now = [0.0]
    workloads = Workloads(cluster.connection, cluster.discovery, lambda: now[0])
    reads = lambda: sum(r["path"] == "/api/v1/namespaces/rec" for r in api.requests)  # noqa: E731
    read = workloads.read(VLLM)
    now[0] = 59.0
    assert workloads.within("rec", read) == read
    assert reads() == 1
    workloads.read(VLLM)
    assert reads() == 2
    now[0] = 120.0
    workloads.within("rec", read)
    assert reads() == 3


def test_namespace_annotations(api: FakeApi, cluster: KubeCluster) -> None:
    """The namespace's annotations come along, as far as they can mean anything."""
    given = {"gpu-responder.io/paused-until": "x" * 200_000, "a": "b", "gpu-responder.io/b": "c"}
    api.answers[NAMESPACE] = changed("namespace-create", annotations=given)
    assert cluster.workload(VLLM).namespace_annotations == {"gpu-responder.io/paused-until": "x" * 256}


def test_namespace_that_must_not_be_read(api: FakeApi, cluster: KubeCluster) -> None:
    """Without the right to read namespaces their annotations are empty, and that is asked once a minute."""
    api.answers[NAMESPACE] = recorded("forbidden")
    assert cluster.workload(VLLM).namespace_annotations == {}
    cluster.workload(VLLM)
    assert sum(r["path"] == NAMESPACE[4:] for r in api.requests) == 1


def _deployments(step: int) -> Anything:
    import msgspec

    body = next(e["response"]["body"] for e in MANAGERS if e["name"] == f"deployment-get-{step}")
    return msgspec.convert(body, Anything)


@pytest.mark.parametrize(
    ("step", "manager"),
    [
        (1, "helm"),
        (2, "gpu-responder"),
        (3, "gpu-responder"),
        (4, "gpu-responder"),
        (5, "kubectl"),
        (6, "kubectl"),
        (7, "argocd-controller"),
    ],
    ids=[
        "created by helm",
        "scaled by us",
        "status written",
        "template edited",
        "scaled by a person",
        "same value written by us",
        "taken back by an apply",
    ],
)
def test_who_holds_replicas(step: int, manager: str) -> None:
    """managedFields of a real server name the holder of spec.replicas after each write."""
    assert holder(_deployments(step).metadata.managed_fields or []) == manager


def entry(
    manager: str, path: str, operation: str = "Update", subresource: str = "", time: str = ""
) -> ManagedFields:
    fields: dict = {}
    for name in reversed(path.split(".")):
        fields = {f"f:{name}": fields}
    return ManagedFields(manager, operation, subresource, time, fields)


def test_shared_claims() -> None:
    """Of several holders of one value ours counts, then the scale's, then an apply, then the latest update."""
    update = entry("kubectl", "spec.replicas", time="2026-01-02T00:00:00Z")
    older = entry("helm", "spec.replicas", time="2026-01-01T00:00:00Z")
    apply = entry("argocd", "spec.replicas", "Apply")
    scale = entry("keda", "spec.replicas", subresource="scale")
    ours = entry("gpu-responder", "spec.replicas", subresource="scale")
    status = entry("controller", "spec.replicas", subresource="status")
    assert holder([older, update]) == "kubectl"
    assert holder([older, update, apply]) == "argocd"
    assert holder([older, update, apply, scale]) == "keda"
    assert holder([apply, scale, ours]) == "gpu-responder"
    assert holder([status]) == ""
    assert holder([entry("x", "spec.template")]) == ""


def test_replicas_path_of_a_custom_resource() -> None:
    """A scale write's own entry says where a custom resource keeps its replicas."""
    ours = entry("gpu-responder", "spec.workers", subresource="scale")
    creator = entry("kubectl", "spec.workers")
    assert scale_path([creator]) is None
    assert scale_path([creator, ours]) == ("spec", "workers")
    assert holder([creator, ours], ("spec", "workers")) == "gpu-responder"


def test_custom_path_is_remembered(custom: FakeApi, cluster: KubeCluster) -> None:
    """Once a scale write has shown the path, the holder is known also when another has taken the field over."""
    fields = {"fieldsType": "FieldsV1", "operation": "Update", "apiVersion": "example.com/v1"}
    workers = {"fieldsV1": {"f:spec": {"f:workers": {}}}}
    scaled = fields | workers | {"manager": "gpu-responder", "subresource": "scale"}
    taken = fields | workers | {"manager": "kubectl-edit", "time": "2026-11-30T18:17:20Z"}
    custom.answers[f"GET {CR}"] = [
        changed("cr-create", resourceVersion="452", managedFields=[scaled]),
        changed("cr-create", resourceVersion="452", managedFields=[taken]),
    ]
    assert cluster.workload(SERVER).manager == "gpu-responder"
    assert cluster.workload(SERVER).manager == "kubectl-edit"
