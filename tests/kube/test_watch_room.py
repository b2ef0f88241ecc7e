"""Watches and what is known by them stay few, however many targets and namespaces come and go."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from responder.errors import TransientError
from responder.kube import KubeCluster, mirrors
from responder.kube.interest import Interest
from responder.kube.mirrors import Mirrors
from responder.kube.news import Nobody
from responder.model import TargetRef
from tests.kube.fake_api import FakeApi, recorded, watched
from tests.kube.objects import listed

PODS = "/api/v1/pods"
FORBIDDEN = recorded("forbidden")


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def ref(namespace: str) -> TargetRef:
    return TargetRef(namespace, "Deployment", "vllm")


@pytest.fixture
def within(api: FakeApi, cluster: KubeCluster) -> Mirrors:
    """Mirrors of who may list pods in namespaces only."""
    for number in range(10):
        api.answers[f"GET /api/v1/namespaces/n{number}/pods"] = watched(listed())
    api.answers[f"GET {PODS}"] = FORBIDDEN
    made = Mirrors(cluster.connection, cluster.discovery, Nobody())
    until(lambda: made._pods._all.mirror.refused)
    return made


def is_watched(within: Mirrors, namespace: str) -> bool:
    return within.pods(ref(namespace), "a=b") is not None


def test_namespaces_that_are_gone_make_room(within: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many at once; one that nobody asks for any more does not keep a newer one from being watched."""
    monkeypatch.setattr(mirrors, "_MOST_NAMESPACES", 3)
    for number in range(3):
        until(lambda number=number: is_watched(within, f"n{number}"))
    assert not is_watched(within, "n3")
    monkeypatch.setattr(mirrors, "_IDLE_SECONDS", 0.1)
    time.sleep(0.2)
    assert is_watched(within, "n1")
    assert is_watched(within, "n2")
    until(lambda: is_watched(within, "n3"))
    assert set(within._pods._namespaces) == {"n1", "n2", "n3"}
    within.stop()


def test_the_whole_cluster_takes_the_place_of_namespaces(
    api: FakeApi, within: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the right is given, nothing is watched twice."""
    until(lambda: is_watched(within, "n0"))
    kept = within._pods._namespaces["n0"]
    api.answers[f"GET {PODS}"] = watched(listed())
    within._pods._all.mirror.stop()  # it would try again in five minutes
    monkeypatch.setattr(within._pods, "_all", within._pods._make(""))
    within._pods._all.mirror.start()
    until(lambda: within._pods.view("n0") is within._pods._all.view)
    assert within._pods._namespaces == {}
    assert kept.mirror._stop.is_set()
    within.stop()


def test_interest_in_pods_is_bounded() -> None:
    """Targets that are made anew under other names for years leave nothing; who still asks is told."""
    interest = Interest(most=3)
    for number in range(100):
        interest.note(ref("kept"), "app=kept")
        interest.note(ref(f"n{number}"), f"app=a{number}")
        interest.note(ref(f"n{number}"), f"app=b{number}")
    assert interest.of("kept", {"app": "kept"}) == {ref("kept")}
    assert interest.of("n99", {"app": "b99"}) == {ref("n99")}
    assert interest.of("n99", {"app": "a99"}) == set()
    assert len(interest._selectors) == len(interest._targets) == 3


def test_a_watch_that_opens_while_all_is_closed_ends(
    api: FakeApi, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not among those that were ended, and would wait for its next news."""
    api.answers[f"GET {PODS}"] = listed()
    open_ = cluster.connection._open

    def opening(*given: object) -> object:
        response = open_(*given)
        cluster.connection.close()
        return response

    monkeypatch.setattr(cluster.connection, "_open", opening)
    with pytest.raises(TransientError, match="stopping"):
        next(iter(cluster.connection.watch(PODS, "watch", {}, 30.0)))


def test_a_watch_that_is_asked_for_after_the_end_leaves_no_thread(api: FakeApi, tmp_path: Path) -> None:
    """A look that still runs may ask for a kind that nobody has asked for before."""
    cluster = KubeCluster(api.kubeconfig(tmp_path / "k"), timeout=2, deadline=3)
    cluster.keep_current()
    cluster.discovery.find("apps", "Deployment")
    cluster.close()
    cluster.seen(ref("rec"))
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("mirror")], 3)
