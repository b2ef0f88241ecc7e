"""What counts as ready, as there, and as waiting for GPUs."""

import pytest

from responder.kube import KubeCluster
from responder.kube.pods import lacking
from responder.kube.workloads import selector_words
from responder.model import Pods, TargetRef
from tests.kube.fake_api import FakeApi, discovery, recorded
from tests.kube.objects import listed, pod

VLLM = TargetRef("rec", "Deployment", "vllm")
PODS = "GET /api/v1/namespaces/rec/pods"
FULL = "0/9 nodes are available: 1 node(s) had untolerated taint {a: b}, 8 Insufficient nvidia.com/gpu. preemption: x."


def pods(cluster: KubeCluster, ref: TargetRef = VLLM) -> Pods:
    return cluster.pods(ref, cluster.workload(ref))


def test_counts(api: FakeApi, cluster: KubeCluster) -> None:
    """Ready counts Ready pods; those that finished or are being deleted count for nothing."""
    api.answers[PODS] = listed(
        pod("a", node="n1", ready=True, phase="Running"),
        pod("b", node="n2", phase="Running"),
        pod("c", node="n3", ready=True, phase="Running", deletionTimestamp="2026-11-30T18:17:26Z"),
        pod("d", node="n4", phase="Failed"),
        pod("e", node="n5", phase="Succeeded"),
        pod("f", unscheduled=FULL),
        pod("g"),
    )
    assert pods(cluster) == Pods(
        ready=1, total=4, unschedulable=1, missing="nvidia.com/gpu", nodes=frozenset({"n1", "n2"})
    )
    assert api.requests[-1]["query"] == {"labelSelector": "app=vllm", "limit": "500"}


def test_every_page_counts(api: FakeApi, cluster: KubeCluster) -> None:
    """A list in pages is followed to its end."""
    api.answers[PODS] = [
        listed(pod("a", ready=True, phase="Running"), more="next"),
        listed(pod("b", ready=True, phase="Running")),
    ]
    assert pods(cluster).ready == 2
    assert api.requests[-1]["query"]["continue"] == "next"


def test_recorded_list(api: FakeApi, cluster: KubeCluster) -> None:
    """The recorded list of a real server decodes."""
    page = recorded("pods-list-paged")
    page[2]["metadata"] = {"resourceVersion": "459"}
    api.answers[PODS] = page
    assert pods(cluster) == Pods(ready=0, total=2)


def test_without_the_right_to_list_pods(api: FakeApi, cluster: KubeCluster) -> None:
    """The object's own status then says how many are ready."""
    answer = recorded("deployment-get")
    answer[2]["status"] = {"replicas": 2, "readyReplicas": 1}
    api.answers["GET /apis/apps/v1/namespaces/rec/deployments/vllm"] = answer
    api.answers[PODS] = recorded("forbidden")
    assert pods(cluster) == Pods(ready=1, total=2)


def test_scale_without_selector(api: FakeApi, cluster: KubeCluster) -> None:
    """A custom resource that names no selector never lists all pods: its scale's status counts."""
    path = "/apis/example.com/v1/namespaces/rec/servers/s"
    api.answers |= discovery("example.com", "v1", {"servers": "Server"})
    created, scale = recorded("cr-create"), recorded("cr-scale-get")
    scale[2]["status"] = {"replicas": 4}
    created[2]["metadata"]["resourceVersion"] = scale[2]["metadata"]["resourceVersion"]
    api.answers |= {f"GET {path}": created, f"GET {path}/scale": scale}
    assert pods(cluster, TargetRef("rec", "Server", "s", "example.com")) == Pods(ready=4, total=4)
    assert not any(r["path"].endswith("/pods") for r in api.requests)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (FULL, ("nvidia.com/gpu",)),
        ("0/2 nodes are available: 2 Insufficient nvidia.com/mig-1g.5gb.", ("nvidia.com/mig-1g.5gb",)),
        (
            "0/2 nodes are available: 1 Insufficient gpu.intel.com/i915, 1 Insufficient cpu.",
            ("gpu.intel.com/i915",),
        ),
        ("0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient ephemeral-storage.", ()),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", ()),
        ("0/2 nodes are available: 2 cannot allocate all claims.", ("devices of its resource claims",)),
    ],
    ids=["GPUs", "MIG slices", "GPUs and CPU", "CPU and disk", "affinity", "resource claims"],
)
def test_what_the_scheduler_lacks(message: str, expected: tuple[str, ...]) -> None:
    """Only extended resources and device claims count as want of GPUs."""
    assert lacking("Unschedulable", message) == expected
    assert lacking("SchedulingGated", message) == ()


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (
            {
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["1", "2"]},
                    {"key": "b", "operator": "NotIn", "values": ["3"]},
                    {"key": "c", "operator": "Exists"},
                    {"key": "d", "operator": "DoesNotExist"},
                ]
            },
            "a in (1,2),b notin (3),c,!d",
        ),
        ({"app": "rc"}, "app=rc"),
        ({}, ""),
        (None, ""),
    ],
    ids=["labels", "expressions", "a replication controller's map", "empty", "none"],
)
def test_selector_as_words(selector: object, words: str) -> None:
    """Selectors as list requests take them."""
    assert selector_words(selector) == words
