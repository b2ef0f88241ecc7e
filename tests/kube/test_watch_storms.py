"""Servers whose watches or definitions do not last: they are asked seldom, and what they have is found again."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from responder.kube import KubeCluster
from responder.kube.mirror import Mirror
from responder.kube.mirrors import Mirrors
from responder.kube.news import Nobody
from responder.kube.pace import Pace
from responder.kube.pods import Pod
from responder.kube.views import PodView
from responder.model import Ownership, TargetRef
from tests.kube.fake_api import RESET, FakeApi, discovery, recorded, watched
from tests.kube.objects import listed

PODS = "/api/v1/pods"
SERVER = TargetRef("rec", "Server", "s", "example.com")
LIST = listed()
GONE = {"kind": "Status", "code": 410, "message": "too old", "reason": "Expired"}


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


@contextmanager
def mirrored(cluster: KubeCluster) -> Iterator[Mirror[Pod]]:
    mirror = Mirror(cluster.connection, lambda: PODS, Pod, PodView(Nobody()), "all pods")
    mirror.start()
    try:
        yield mirror
    finally:
        mirror.stop()


SHORT = {
    "ends at once": (200, {}, b""),
    "says one thing and ends": (
        200,
        {},
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}}\n',
    ),
    "names no version": (200, {}, b'{"type":"BOOKMARK","object":{"metadata":{}}}\n'),
    "is too old each time": (410, {}, GONE),
    "says that it is too old": (200, {}, b'{"type":"ERROR","object":{"code":410}}\n'),
    "is garbage": (200, {}, b"<html>\n"),
    "is turned away": (429, {"Retry-After": "1"}, {}),
    "fails": (500, {}, {}),
    "is reset": RESET,
}


@pytest.mark.parametrize("answer", SHORT.values(), ids=SHORT)
def test_a_watch_that_does_not_last_is_no_storm(api: FakeApi, cluster: KubeCluster, answer: object) -> None:
    """Whatever ends it: lists and watches come seldom, and nothing is believed while there is none."""
    api.answers[f"GET {PODS}"] = lambda request: answer if "watch" in request["query"] else LIST
    with mirrored(cluster) as mirror:
        until(lambda: len(api.requests) >= 2)
        time.sleep(1.2)
        assert len(api.requests) <= 8
        until(lambda: not mirror.current)


def test_a_list_without_a_version_is_no_storm(api: FakeApi, cluster: KubeCluster) -> None:
    """There is nothing to go on from, and nothing is believed."""
    api.answers[f"GET {PODS}"] = (200, {}, {"metadata": {}, "items": []})
    with mirrored(cluster) as mirror:
        until(lambda: api.requests)
        time.sleep(1.2)
        assert len(api.requests) <= 4
        assert not mirror.current


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_until_a_watch_lasts() -> None:
    """A watch that has lasted begins again at once when the server ends it, soon when it broke off."""
    clock = Time()
    pace = Pace(1.0, 8.0, clock)
    for most in (1, 2, 4, 8, 8):
        pace.begin()
        assert most / 2 <= pace.ended() <= most
    assert pace.failed(told=30) == 8.0, "as long as the server asks, within reason"
    pace.begin()
    clock.now += 20
    assert pace.ended() == 0.0
    pace.begin()
    clock.now += 20
    assert pace.failed() <= 1.0
    assert pace.failed() <= 2.0, "what does not come about has not lasted"


def test_a_kind_in_another_version_is_watched_again(api: FakeApi, cluster: KubeCluster) -> None:
    """A definition that is replaced is not taken for a want of rights: the watch follows it within seconds."""
    api.answers |= discovery("example.com", "v1", {"servers": "Server"})
    api.answers["GET /apis/example.com/v1/servers"] = watched(LIST)
    mirrors = Mirrors(cluster.connection, cluster.discovery, Nobody())
    mirrors.target(SERVER)
    (kind,) = mirrors._kinds.values()
    until(lambda: kind.scoped.view("rec") is not None)
    api.answers = {key: answer for key, answer in api.answers.items() if "example.com" not in key}
    api.end_watches()
    api.answers |= discovery("example.com", "v2", {"servers": "Server"})
    api.answers["GET /apis/example.com/v2/servers"] = watched(LIST)
    until(lambda: any(r["path"] == "/apis/example.com/v2/servers" for r in api.requests), 5)
    until(lambda: kind.scoped.view("rec") is not None)
    mirrors.stop()


def test_a_look_follows_a_definition_that_was_replaced(api: FakeApi, cluster: KubeCluster) -> None:
    """An upgrade to another version costs no failed look, which would not be made again for five minutes."""
    vllm = TargetRef("rec", "Deployment", "vllm")
    read = cluster.workload(vllm)
    api.answers["GET /apis/apps/v2/namespaces/rec/deployments/vllm"] = recorded("deployment-get")
    api.answers["PUT /apis/apps/v2/namespaces/rec/deployments/vllm/scale"] = recorded("scale-put")
    del api.answers["GET /apis/apps/v1/namespaces/rec/deployments/vllm"]
    del api.answers["PUT /apis/apps/v1/namespaces/rec/deployments/vllm/scale"]
    api.answers |= discovery("apps", "v2", {"deployments": "Deployment"})
    assert cluster.scale(vllm, read, 3).replicas == 3
    assert cluster.workload(vllm).replicas == 2


@pytest.mark.parametrize("current", [False, True], ids=["read", "watched"])
def test_keda_that_is_uninstalled_owns_nothing(api: FakeApi, tmp_path: Path, current: bool) -> None:
    """Its definitions are gone while discovery still knows them: the targets are free, and none fails for it."""
    vllm = TargetRef("rec", "Deployment", "vllm")
    api.answers |= discovery("keda.sh", "v1alpha1", {"scaledobjects": "ScaledObject"})
    so = listed(
        {"metadata": {"name": "so", "namespace": "rec"}, "spec": {"scaleTargetRef": {"name": "vllm"}}}
    )
    for scope in ("", "namespaces/rec/"):
        api.answers[f"GET /apis/keda.sh/v1alpha1/{scope}scaledobjects"] = watched(so)
        api.answers[f"GET /apis/autoscaling/v2/{scope}horizontalpodautoscalers"] = watched(LIST)
    with closing(KubeCluster(api.kubeconfig(tmp_path / "k"), timeout=2, deadline=3)) as cluster:
        if current:
            cluster.keep_current()
        read = cluster.workload(vllm)
        assert cluster.ownership(vllm, read).owner == "ScaledObject rec/so"
        cluster._owners._listed.clear()
        api.answers = {key: answer for key, answer in api.answers.items() if "keda.sh" not in key}
        api.end_watches()
        until(lambda: cluster.ownership(vllm, read) == Ownership(known=True), 5)
