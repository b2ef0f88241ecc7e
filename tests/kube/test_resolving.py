"""From a pod in an alert's labels to the workload that scales it."""

import pytest

from responder.errors import TransientError
from responder.kube import KubeCluster
from responder.kube.resolve import Resolver, pod_of
from responder.model import TargetRef
from responder.policy import Rejection
from tests.kube.fake_api import RESET, FakeApi, discovery, recorded
from tests.kube.objects import found, owner, pod

VLLM = TargetRef("rec", "Deployment", "vllm")
POD = "GET /api/v1/namespaces/rec/pods/p"
SET = "GET /apis/apps/v1/namespaces/rec/replicasets/vllm-1"
DEPLOYMENT = "GET /apis/apps/v1/namespaces/rec/deployments/vllm"
EXPORTED = {"exported_pod": "p", "exported_namespace": "rec", "pod": "dcgm-exporter-x", "namespace": "gpu"}


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def resolver(api: FakeApi, cluster: KubeCluster, time: Time) -> Resolver:
    """A pod of a ReplicaSet of Deployment vllm."""
    api.answers |= discovery("", "v1", {"pods": "Pod"}, unscalable=("pods",))
    api.answers |= discovery(
        "apps",
        "v1",
        {"deployments": "Deployment", "replicasets": "ReplicaSet", "daemonsets": "DaemonSet"},
        unscalable=("daemonsets",),
    )
    api.answers |= discovery(
        "example.com", "v1", {"servers": "Server", "plans": "Plan"}, unscalable=("plans",)
    )
    api.answers |= {
        POD: (200, {}, pod("p", owner=owner("ReplicaSet", "vllm-1", "u-rs"))),
        SET: found("vllm-1", "u-rs", owner("Deployment", "vllm", "u-d")),
        DEPLOYMENT: found("vllm", "u-d"),
    }
    return Resolver(cluster.connection, cluster.discovery, time)


def why(result: TargetRef | Rejection) -> str:
    assert isinstance(result, Rejection)
    return result.message


def test_exported_pod(resolver: Resolver) -> None:
    """dcgm-exporter without honorLabels: the exported pod's Deployment, not the exporter's."""
    assert resolver.locate(EXPORTED) == VLLM


def test_pod_with_honor_labels(resolver: Resolver) -> None:
    """With honorLabels, pod and namespace are the workload's own."""
    assert resolver.locate({"pod": "p", "namespace": "rec"}) == VLLM


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (EXPORTED, ("rec", "p")),
        ({"exported_pod": "p", "namespace": "rec"}, ("rec", "p")),
        ({"exported_pod": "", "pod": "q", "namespace": "gpu"}, ("gpu", "q")),
        ({"pod": "q"}, None),
        ({"namespace": "gpu"}, None),
        ({}, None),
    ],
    ids=["both", "namespace not exported", "empty export", "no namespace", "no pod", "nothing"],
)
def test_which_pod(labels: dict[str, str], expected: tuple[str, str] | None) -> None:
    """Which pod the labels name."""
    assert pod_of(labels) == expected


EXPORTER = {
    "by its name": pod("dcgm-exporter-4xk2p"),
    "by app.kubernetes.io/name": pod("p", labels={"app.kubernetes.io/name": "dcgm-exporter"}),
    "by app": pod("p", labels={"app": "nvidia-dcgm-exporter"}),
    "kube-state-metrics": pod("p", labels={"app.kubernetes.io/name": "kube-state-metrics"}),
}


@pytest.mark.parametrize("exporter", EXPORTER.values(), ids=EXPORTER)
def test_exporter_is_never_a_target(api: FakeApi, resolver: Resolver, exporter: dict) -> None:
    """A GPU that nobody uses has no exported pod: its alert must not scale the exporter, even as a Deployment."""
    exporter["metadata"]["ownerReferences"] = [owner("ReplicaSet", "vllm-1", "u-rs")]
    api.answers[POD] = (200, {}, exporter)
    assert "is an exporter" in why(resolver.locate({"pod": "p", "namespace": "rec"}))


def test_workload_that_is_called_exporter(api: FakeApi, resolver: Resolver) -> None:
    """What the exporter itself says uses a GPU may be called as it likes."""
    api.answers[POD] = (
        200,
        {},
        pod("p", labels={"app": "video-exporter"}, owner=owner("ReplicaSet", "vllm-1", "u-rs")),
    )
    assert resolver.locate(EXPORTED) == VLLM


def test_topmost_scalable_owner(api: FakeApi, resolver: Resolver) -> None:
    """The walk goes on through kinds without a scale, and the topmost with one wins."""
    api.answers[DEPLOYMENT] = found("vllm", "u-d", owner("Plan", "p", "u-p", "example.com/v1"))
    api.answers["GET /apis/example.com/v1/namespaces/rec/plans/p"] = found(
        "p", "u-p", owner("Server", "s", "u-s", "example.com/v1")
    )
    api.answers["GET /apis/example.com/v1/namespaces/rec/servers/s"] = found("s", "u-s")
    assert resolver.locate(EXPORTED) == TargetRef("rec", "Server", "s", "example.com")


def test_owner_without_scale_on_top(api: FakeApi, resolver: Resolver) -> None:
    """A topmost owner without a scale, readable or not, leaves the Deployment below it as the target."""
    api.answers[DEPLOYMENT] = found("vllm", "u-d", owner("Plan", "p", "u-p", "example.com/v1"))
    api.answers["GET /apis/example.com/v1/namespaces/rec/plans/p"] = recorded("forbidden")
    assert resolver.locate(EXPORTED) == VLLM


UNVERIFIED = {
    "made anew under the same name": (SET, found("vllm-1", "other"), "gone or was made anew"),
    "gone": (SET, recorded("scale-get-missing"), "gone or was made anew"),
    "the top made anew": (DEPLOYMENT, found("vllm", "other"), "gone or was made anew"),
    "not to be read": (DEPLOYMENT, recorded("forbidden"), "cannot be verified"),
}


@pytest.mark.parametrize(("path", "answer", "words"), UNVERIFIED.values(), ids=UNVERIFIED)
def test_owner_that_cannot_be_verified(
    api: FakeApi, resolver: Resolver, path: str, answer: tuple, words: str
) -> None:
    """A guessed owner is never acted on."""
    api.answers[path] = answer
    assert words in why(resolver.locate(EXPORTED))


@pytest.mark.parametrize("by", [None, owner("DaemonSet", "d", "u")], ids=["bare pod", "DaemonSet"])
def test_pod_without_scalable_owner(api: FakeApi, resolver: Resolver, by: dict | None) -> None:
    """A bare pod and a DaemonSet's have nothing to scale."""
    api.answers[POD] = (200, {}, pod("p", owner=by))
    api.answers["GET /apis/apps/v1/namespaces/rec/daemonsets/d"] = found("d", "u")
    assert "has no owner with a scale" in why(resolver.locate(EXPORTED))


def test_pod_that_is_gone_is_remembered(api: FakeApi, resolver: Resolver, time: Time) -> None:
    """A pod's alerts outlive it: for an hour its target is known, if it is still the same object."""
    assert resolver.locate(EXPORTED) == VLLM
    api.answers[POD] = recorded("scale-get-missing")
    time.now += 3599
    assert resolver.locate(EXPORTED) == VLLM
    api.answers[DEPLOYMENT] = found("vllm", "made-anew")
    assert "does not exist" in why(resolver.locate(EXPORTED))
    api.answers[DEPLOYMENT] = found("vllm", "u-d")
    time.now += 2
    assert "does not exist" in why(resolver.locate(EXPORTED))


def test_pod_that_was_never_known(api: FakeApi, resolver: Resolver) -> None:
    """A pod that nobody knows leads nowhere."""
    api.answers[POD] = recorded("scale-get-missing")
    assert "not known" in why(resolver.locate(EXPORTED))


def test_resolving_is_cheap(api: FakeApi, resolver: Resolver, time: Time) -> None:
    """A repeat within a minute asks nothing; later it is verified again, for pod names come back."""
    resolver.locate(EXPORTED)
    asked = len(api.requests)
    resolver.locate(EXPORTED)
    assert len(api.requests) == asked
    time.now += 61
    api.answers[POD] = (200, {}, pod("p"))
    assert "no owner" in why(resolver.locate(EXPORTED))


def test_trouble_is_not_an_answer(api: FakeApi, resolver: Resolver, impatient: KubeCluster) -> None:
    """A server that fails for the moment raises, so that the alert is looked at again and not rejected."""
    api.answers[SET] = RESET
    with pytest.raises(TransientError):
        resolver.locate(EXPORTED)


def test_cluster_resolves(api: FakeApi, resolver: Resolver, cluster: KubeCluster) -> None:
    """The target, or the sentence why there is none."""
    assert cluster.locate(EXPORTED) == VLLM
    assert "names no pod" in why(cluster.locate({}))


ODD_NAMES = {
    "a pod that is a path": {"namespace": "rec", "pod": "../../../v1/nodes/n/proxy"},
    "a namespace that is a path": {"namespace": "../nodes/n/proxy", "pod": "vllm"},
    "a pod with a query": {"namespace": "rec", "pod": "vllm?x=y"},
    "an escaped path": {"namespace": "rec", "pod": "%2e%2e"},
    "the folder above": {"exported_namespace": "rec", "exported_pod": ".."},
}


@pytest.mark.parametrize("labels", ODD_NAMES.values(), ids=ODD_NAMES)
def test_a_name_that_is_none_is_not_asked_for(api: FakeApi, cluster: KubeCluster, labels: dict) -> None:
    """Whoever writes alerts chooses pods, and nothing else that this service may read."""
    found = cluster.locate(labels)
    assert isinstance(found, Rejection)
    assert "not a legal" in found.message
    assert not [r for r in api.requests if "proxy" in r["path"] or r["path"].startswith("/api/v1/")]


def test_an_owner_whose_name_is_a_path_is_not_asked_for(api: FakeApi, cluster: KubeCluster) -> None:
    """The API server takes any name in an owner reference."""
    body = pod("vllm-1", owner=owner("ReplicaSet", "../../../../../api/v1/nodes/n/proxy", "u"))
    api.answers |= discovery("", "v1", {"pods": "Pod"}, unscalable=("pods",))
    api.answers |= discovery("apps", "v1", {"deployments": "Deployment", "replicasets": "ReplicaSet"})
    api.answers["GET /api/v1/namespaces/rec/pods/vllm-1"] = (200, {}, body)
    found = cluster.locate({"namespace": "rec", "pod": "vllm-1"})
    assert isinstance(found, Rejection)
    assert "cannot be verified" in found.message
    assert not [r for r in api.requests if "proxy" in r["path"]]
