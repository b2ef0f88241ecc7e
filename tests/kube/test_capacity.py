"""How many more replicas could be placed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.errors import TransientError
from responder.kube import KubeCluster
from responder.kube.capacity import Fit, Node, fit, may_run, rooms
from responder.kube.pods import Pod, state_of
from responder.kube.quantity import milli
from responder.model import TargetRef
from tests.kube.fake_api import FakeApi, recorded
from tests.kube.objects import listed, node, pod

VLLM = TargetRef("rec", "Deployment", "vllm")
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def template(gpus: object = 1, resource: str = "nvidia.com/gpu", **spec: object) -> dict:
    return {"containers": [{"resources": {"limits": {resource: gpus}}}], **spec}


def among(nodes: list[dict], pods: list[dict] = []) -> tuple:  # noqa: B006
    return rooms(msgspec.convert(nodes, list[Node]), map(state_of, msgspec.convert(pods, list[Pod])))


def more(spec: dict, nodes: list[dict], pods: list[dict] | None = None, waiting: int = 0) -> int:
    found = fit(spec, among(nodes, pods or []), waiting)
    assert found is not None
    return found.more


def test_free_gpus() -> None:
    """8 GPUs with 3 in use hold 5 more of 1, and 2 more of 2."""
    running = [pod("a", node="n", gpus=1), pod("b", node="n", gpus=2)]
    assert more(template(1), [node("n", 8)], running) == 5  # 8 - 3
    assert more(template(2), [node("n", 8)], running) == 2  # floor((8 - 3) / 2)


def test_gpus_are_not_added_up_over_nodes() -> None:
    """Two nodes with 3 free GPUs each hold no replica that wants 4."""
    assert more(template(4), [node("a", 3), node("b", 3)]) == 0
    assert more(template(3), [node("a", 3), node("b", 3)]) == 2


def test_what_waits_goes_first() -> None:
    """Replicas that were asked for and have no node yet take their places before any more do."""
    assert more(template(1), [node("n", 8)], waiting=3) == 5
    assert more(template(1), [node("n", 2)], waiting=3) == 0


def test_finished_pods_hold_nothing_and_leaving_pods_do() -> None:
    """A pod that finished has given its GPU back; one that is being deleted has not."""
    pods = [
        pod("done", node="n", gpus=4, phase="Succeeded"),
        pod("leaving", node="n", gpus=2, deletionTimestamp="2026-11-30T18:17:26Z"),
    ]
    assert more(template(1), [node("n", 8)], pods) == 6


def test_other_resources_bound_too() -> None:
    """64 CPUs hold two replicas of 30, however many GPUs are free."""
    spec = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "30"}}}]}
    assert more(spec, [node("n", 8)]) == 2


def test_number_of_pods_bounds_too() -> None:
    """A node takes no more pods than its allocatable `pods`."""
    full = node("n", 8)
    full["status"]["allocatable"]["pods"] = "2"
    assert more(template(1), [full], [pod("a", node="n")]) == 1


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "habana.ai/gaudi", "gpu.intel.com/i915"],
)
def test_any_vendor(resource: str) -> None:
    """Extended resources count by name."""
    other = node("n", 0)
    other["status"]["allocatable"][resource] = "4"
    assert more(template(2, resource), [other]) == 2


def test_workload_without_gpus() -> None:
    """Where no extended resource is asked for, GPUs do not bound it."""
    assert fit({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}, among([node("n", 8)]), 0) is None


PLACES = {
    "any node": ({}, {}, True),
    "cordoned": ({}, {"unschedulable": True}, False),
    "tainted": ({}, {"taints": [TAINT]}, False),
    "tolerated by key": (
        {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        {"taints": [TAINT]},
        True,
    ),
    "tolerated by value": (
        {"tolerations": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        {"taints": [TAINT]},
        True,
    ),
    "another value tolerated": (
        {"tolerations": [{"key": "nvidia.com/gpu", "value": "x"}]},
        {"taints": [TAINT]},
        False,
    ),
    "another effect tolerated": (
        {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}]},
        {"taints": [TAINT]},
        False,
    ),
    "everything tolerated": ({"tolerations": [{"operator": "Exists"}]}, {"taints": [TAINT]}, True),
    "merely not preferred": ({}, {"taints": [TAINT | {"effect": "PreferNoSchedule"}]}, True),
    "selected": ({"nodeSelector": {"gpu": "h100"}}, {}, True),
    "not selected": ({"nodeSelector": {"gpu": "a100"}}, {}, False),
}


@pytest.mark.parametrize(("spec", "of_node", "expected"), PLACES.values(), ids=PLACES)
def test_which_nodes(spec: dict, of_node: dict, expected: bool) -> None:
    """Taints, tolerations and selectors, as the scheduler reads them."""
    (room,) = among([node("n", 8, labels={"gpu": "h100"}, **of_node)])
    assert may_run(template(1, **spec), room) is expected


AFFINITY = {
    "in": ({"key": "gpu", "operator": "In", "values": ["h100"]}, True),
    "not in": ({"key": "gpu", "operator": "NotIn", "values": ["h100"]}, False),
    "not in, by absence": ({"key": "zone", "operator": "NotIn", "values": ["a"]}, True),
    "exists": ({"key": "zone", "operator": "Exists"}, False),
    "does not exist": ({"key": "zone", "operator": "DoesNotExist"}, True),
    "greater": ({"key": "memory", "operator": "Gt", "values": ["40"]}, True),
    "less": ({"key": "memory", "operator": "Lt", "values": ["40"]}, False),
    "greater than what is no number": ({"key": "gpu", "operator": "Gt", "values": ["1"]}, False),
}


@pytest.mark.parametrize(("expression", "expected"), AFFINITY.values(), ids=AFFINITY)
def test_required_affinity(expression: dict, expected: bool) -> None:
    """Required node affinity, term by term."""
    (room,) = among([node("n", 8, labels={"gpu": "h100", "memory": "80"})])

    def runs(*terms: dict) -> bool:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return may_run(template(1, affinity={"nodeAffinity": required}), room)

    assert runs({"matchExpressions": [expression]}) is expected
    assert runs(
        {"matchExpressions": [expression]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
    )
    assert not runs({})


def test_requests_of_a_pod() -> None:
    """Init containers run one by one beside earlier sidecars; containers together; overhead on top."""
    spec = {
        "initContainers": [
            {"resources": {"requests": {"cpu": "4"}}},
            {"resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"},
            {"resources": {"requests": {"cpu": "2"}}},
        ],
        "containers": [
            {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "9", "nvidia.com/gpu": 1}}},
            {"resources": {"requests": {"cpu": "1"}}},
            {},
        ],
        "overhead": {"cpu": "250m"},
    }
    one = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
    # max(init: 4, 1 + 2; together: 1 + 0.5 + 1) = 4, and 0.25 of overhead; the GPU's limit is its request.
    assert state_of(one).requests == {"cpu": 4250, "nvidia.com/gpu": 1000, "pods": 1000}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1", 1000),
        (8, 8000),
        ("500m", 500),
        ("1.5", 1500),
        ("1k", 10**6),
        ("1e3", 10**6),
        ("1Ki", 1_024_000),
        ("2Gi", 2 * 1024**3 * 1000),
        ("100n", 1),
    ],
)
def test_quantities(text: str | int, expected: int) -> None:
    """Quantities in thousandths, rounded up."""
    assert milli(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1Gi2", "1.2.3", "--1"])
def test_no_quantities(text: str) -> None:
    """What is no quantity is an error and not a number."""
    with pytest.raises(ValueError):
        milli(text)


@given(
    st.lists(st.tuples(st.integers(0, 16), st.lists(st.integers(0, 4), max_size=6)), max_size=5),
    st.integers(1, 8),
)
def test_placing_that_many_really_fits(nodes: list[tuple[int, list[int]]], gpus: int) -> None:
    """As many replicas as are said to fit can be placed one by one, and not one more."""
    free = [max(0, size - sum(used)) for size, used in nodes]
    pods = [
        pod(f"p{i}-{j}", node=f"n{i}", gpus=g)
        for i, (size, used) in enumerate(nodes)
        for j, g in enumerate(used)
        if sum(used) <= size
    ]
    free = [size - sum(used) if sum(used) <= size else size for size, used in nodes]
    said = more(template(gpus), [node(f"n{i}", size) for i, (size, _) in enumerate(nodes)], pods)
    placed = 0
    while (at := next((i for i, left in enumerate(free) if left >= gpus), None)) is not None:
        free[at] -= gpus
        placed += 1
    assert said == placed


@pytest.fixture
def gpu_cluster(api: FakeApi) -> FakeApi:
    """The recorded Deployment of 2 replicas with 1 GPU each, one of which runs, on a node with 8."""
    mine = pod("a", node="n", gpus=1, phase="Running", labels={"app": "vllm"})
    api.answers |= {
        "GET /api/v1/nodes": listed(node("n", 8)),
        "GET /api/v1/pods": listed(mine, pod("other", node="n", gpus=4), pod("b", gpus=1)),
        "GET /api/v1/namespaces/rec/pods": listed(mine, pod("b", gpus=1, labels={"app": "vllm"})),
    }
    return api


def test_room_for_more_replicas(gpu_cluster: FakeApi, cluster: KubeCluster) -> None:
    """8 GPUs, 5 in use, one replica without a node yet: 2 more."""
    found = cluster.fit(VLLM, cluster.workload(VLLM))
    assert found == Fit(2, "nvidia.com/gpu")  # 8 - 5 - (2 - 1)


def test_inventory_is_shared(gpu_cluster: FakeApi, cluster: KubeCluster) -> None:
    """Many targets share one look at the nodes."""
    workload = cluster.workload(VLLM)
    for _ in range(5):
        cluster.fit(VLLM, workload)
    assert sum(r["path"] == "/api/v1/nodes" for r in gpu_cluster.requests) == 1


@pytest.mark.parametrize("path", ["GET /api/v1/nodes", "GET /api/v1/pods"])
def test_without_the_rights(gpu_cluster: FakeApi, cluster: KubeCluster, path: str) -> None:
    """Without the right to see nodes or all pods it cannot be told, and that is not asked at every look."""
    gpu_cluster.answers[path] = recorded("forbidden")
    workload = cluster.workload(VLLM)
    for _ in range(2):
        assert cluster.fit(VLLM, workload) is None
    assert sum(r["path"] == path[4:] for r in gpu_cluster.requests) == 1


def test_a_list_that_fails_fails_for_all_who_want_it(gpu_cluster: FakeApi, impatient: KubeCluster) -> None:
    """Targets that want the same list at once do not wait for its time-out one after the other."""
    workload = impatient.workload(VLLM)
    gpu_cluster.answers["GET /api/v1/nodes"] = (503, {}, "down for a while")
    asked = []
    for _ in range(2):
        with pytest.raises(TransientError, match="down for a while"):
            impatient.fit(VLLM, workload)
        asked.append(sum(r["path"] == "/api/v1/nodes" for r in gpu_cluster.requests))
    assert asked[0] == asked[1]


def test_object_without_a_pod_template(gpu_cluster: FakeApi, cluster: KubeCluster) -> None:
    """A custom resource that keeps its template elsewhere is not judged."""
    answer = recorded("deployment-get")
    del answer[2]["spec"]["template"]
    gpu_cluster.answers["GET /apis/apps/v1/namespaces/rec/deployments/vllm"] = answer
    assert cluster.fit(VLLM, cluster.workload(VLLM)) is None


GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
ODD = {
    "a quantity that is none": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "{{ gpus }}"}}}]},
    "limits in a list": {"containers": [{"resources": {"limits": ["nvidia.com/gpu"]}}]},
    "resources by name": {"containers": [{"resources": "large"}]},
    "tolerations by name": {"containers": [GPU], "tolerations": ["gpu"]},
    "a selector in a list": {"containers": [GPU], "nodeSelector": ["gpu"]},
    "an affinity by name": {"containers": [GPU], "affinity": "gpu"},
    "a term without a key": {
        "containers": [GPU],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"operator": "In"}]}]
                }
            }
        },
    },
}


@pytest.mark.parametrize("template", ODD.values(), ids=ODD)
def test_a_template_that_is_none_is_not_judged(
    gpu_cluster: FakeApi, cluster: KubeCluster, template: dict
) -> None:
    """A custom resource may have anything there, and is scaled all the same."""
    gpu_cluster.answers["GET /api/v1/nodes"] = listed(
        node("n", 8, taints=[{"key": "gpu", "effect": "NoSchedule"}] if "tolerations" in template else [])
    )
    answer = recorded("deployment-get")
    answer[2]["spec"]["template"]["spec"] = template
    gpu_cluster.answers["GET /apis/apps/v1/namespaces/rec/deployments/vllm"] = answer
    assert cluster.fit(VLLM, cluster.workload(VLLM)) is None
