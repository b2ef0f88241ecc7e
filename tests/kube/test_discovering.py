"""Kinds are found by asking the server, not from a list."""

import pytest

from responder.errors import PermanentError, TransientError
from responder.kube import KubeCluster
from responder.kube.connection import Connection
from responder.kube.discovery import Discovery
from responder.model import Reason, TargetRef
from tests.kube.fake_api import FakeApi, discovery, recorded


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def found(api: FakeApi, tmp_path, time: Time):
    connection = Connection(api.kubeconfig(tmp_path / "k"), timeout=20, deadline=30)
    yield Discovery(connection, time)
    connection.close()


def serve(api: FakeApi, group: str, versions: list[str], preferred: str, kinds: dict[str, dict]) -> None:
    served = [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]
    api.answers[f"GET /apis/{group}"] = (
        200,
        {},
        {
            "versions": served,
            "preferredVersion": {"groupVersion": f"{group}/{preferred}", "version": preferred},
        },
    )
    for version, names in kinds.items():
        api.answers |= {
            key: answer for key, answer in discovery(group, version, names).items() if key.endswith(version)
        }


def test_recorded_groups(api: FakeApi, found: Discovery) -> None:
    """The recorded apps/v1: Deployments scale, DaemonSets do not, subresources are no kinds."""
    api.answers["GET /apis/apps/v1"] = recorded("discovery-apps")
    deployment = found.find("apps", "Deployment")
    assert deployment is not None
    assert (deployment.plural, deployment.scalable, deployment.namespaced) == ("deployments", True, True)
    assert deployment.path("rec", "vllm", "scale") == "/apis/apps/v1/namespaces/rec/deployments/vllm/scale"
    daemonset = found.find("apps", "DaemonSet")
    assert daemonset is not None
    assert not daemonset.scalable
    assert found.find("apps", "Scale") is None


def test_recorded_custom_resource(api: FakeApi, found: Discovery) -> None:
    """The recorded custom resource definition is found with its scale."""
    api.answers |= discovery("example.com", "v1", {})
    api.answers["GET /apis/example.com/v1"] = recorded("crd-discovery")
    server = found.find("example.com", "Server")
    assert server is not None
    assert server.scalable


def test_preferred_version_wins(api: FakeApi, found: Discovery) -> None:
    """Of a kind in two versions the preferred one is used; a kind that only the other has is found there."""
    serve(
        api,
        "argoproj.io",
        ["v1alpha1", "v1"],
        "v1",
        {"v1alpha1": {"rollouts": "Rollout", "old": "Old"}, "v1": {"rollouts": "Rollout"}},
    )
    rollout, old = found.find("argoproj.io", "Rollout"), found.find("argoproj.io", "Old")
    assert rollout is not None
    assert rollout.version == "v1"
    assert old is not None
    assert old.version == "v1alpha1"


def test_kind_in_lower_case(found: Discovery) -> None:
    """A kind as in a URL or a record's key, in lower case, is found too."""
    deployment = found.find("apps", "deployment")
    assert deployment is not None
    assert deployment.kind == "Deployment"


def test_asked_once(api: FakeApi, found: Discovery) -> None:
    """What is known is not asked again."""
    for _ in range(3):
        found.find("apps", "Deployment")
    assert len(api.requests) == 2


def test_installed_later(api: FakeApi, found: Discovery, time: Time) -> None:
    """A group that was not there is asked for again after half a minute, and not before."""
    assert found.find("example.com", "Server") is None
    asked = len(api.requests)
    api.answers |= discovery("example.com", "v1", {"servers": "Server"})
    time.now += 29
    assert found.find("example.com", "Server") is None
    assert len(api.requests) == asked
    time.now += 2
    assert found.find("example.com", "Server") is not None


def test_groups_that_alerts_make_up_do_not_pile_up(
    api: FakeApi, found: Discovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a label names is asked for, and is not kept for ever."""
    monkeypatch.setattr("responder.kube.discovery._MOST_GROUPS", 3)
    for number in range(10):
        assert found.find(f"g{number}.example", "Thing") is None
    assert len(found._groups) <= 3


@pytest.mark.parametrize(
    "group", ["../../api/v1/namespaces/rec/secrets", "a?b", "a/b", "..", "A.b", "a b", "%2e"]
)
def test_a_group_that_is_none_is_not_asked_for(api: FakeApi, found: Discovery, group: str) -> None:
    """Whatever an alert or an owner reference names, nothing but a group gets into a path."""
    assert found.find(group, "Secret") is None
    assert api.requests == []


def test_version_moves_on(api: FakeApi, found: Discovery, time: Time) -> None:
    """A preferred version that changes is noticed in the end."""
    found.find("apps", "Deployment")
    api.answers |= discovery("apps", "v2", {"deployments": "Deployment"})
    time.now += 601
    deployment = found.find("apps", "Deployment")
    assert deployment is not None
    assert deployment.version == "v2"


UNSCALABLE = {
    "a kind without scale": (TargetRef("rec", "DaemonSet", "x"), "a DaemonSet has no scale subresource"),
    "a kind that the group lacks": (
        TargetRef("rec", "Deploymnt", "x"),
        "group 'apps' has no kind 'Deploymnt'",
    ),
    "a group that is not there": (TargetRef("rec", "Thing", "x", "nope.example.com"), "serves no group"),
    "a kind that the core lacks": (TargetRef("rec", "Deployment", "x", ""), "the core API has no kind"),
}


@pytest.mark.parametrize(("ref", "words"), UNSCALABLE.values(), ids=UNSCALABLE)
def test_not_scalable(api: FakeApi, cluster: KubeCluster, ref: TargetRef, words: str) -> None:
    """What cannot be scaled says what is missing, for good."""
    api.answers["GET /apis/apps/v1"] = recorded("discovery-apps")
    api.answers |= discovery("", "v1", {"pods": "Pod"}, unscalable=("pods",))
    with pytest.raises(PermanentError, match=words) as caught:
        cluster.workload(ref)
    assert caught.value.reason is Reason.NOT_SCALABLE


def test_failing_discovery_is_transient(api: FakeApi, impatient: KubeCluster) -> None:
    """A server that is down for a moment does not make a kind unscalable."""
    api.answers["GET /apis/apps"] = (503, {}, {"message": "starting"})
    with pytest.raises(TransientError):
        impatient.workload(TargetRef("rec", "Deployment", "vllm"))
    impatient.connection.deadline = 30
    api.answers |= discovery("apps", "v1", {"deployments": "Deployment"})
    assert impatient.workload(TargetRef("rec", "Deployment", "vllm")).replicas == 2
