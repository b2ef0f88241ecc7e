"""Events on targets, rights, readiness, and the rate limit."""

import time
from collections.abc import Callable

import pytest

from responder.kube import Access, KubeCluster, Right
from responder.kube.ratelimit import RateLimit
from responder.model import TargetRef
from tests.kube.fake_api import HANG, FakeApi, recorded

VLLM = TargetRef("rec", "Deployment", "vllm")
UID = "a093"
EVENTS = "/api/v1/namespaces/rec/events"
REVIEWS = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)


@pytest.fixture
def events(api: FakeApi) -> FakeApi:
    api.answers[f"POST {EVENTS}"] = recorded("event-create-v1")

    def patch(request: dict) -> object:
        if request["method"] == "PATCH" and request["path"].startswith(EVENTS):
            return 200, {}, {}
        return 404, {}, "404 page not found\n"

    api.otherwise = patch
    return api


def test_event_on_the_wire(events: FakeApi, cluster: KubeCluster) -> None:
    """An Event names the object by uid, as `kubectl describe` looks for it."""
    cluster.tell(VLLM, UID, "ScaledUp", "2 to 3, for GpuBusy")
    until(lambda: bool(events.sent("POST")))
    body = events.sent("POST")[0]["body"]
    assert body["involvedObject"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "rec",
        "name": "vllm",
        "uid": UID,
    }
    assert (body["reason"], body["message"], body["type"], body["count"]) == (
        "ScaledUp",
        "2 to 3, for GpuBusy",
        "Normal",
        1,
    )
    assert body["source"] == {"component": "gpu-responder"}


def test_an_event_of_who_knows_no_uid(events: FakeApi, cluster: KubeCluster) -> None:
    """The object is asked for its own, and its kind is spelt as the server does; one that is gone gets none."""
    found = recorded("deployment-get")[2]["metadata"]["uid"]
    cluster.tell(TargetRef("rec", "deployment", "vllm"), "", "Held", "held")
    until(lambda: bool(events.sent("POST")))
    involved = events.sent("POST")[0]["body"]["involvedObject"]
    assert (involved["uid"], involved["kind"]) == (found, "Deployment")
    events.answers["GET /apis/apps/v1/namespaces/rec/deployments/gone"] = recorded("configmap-delete-missing")
    cluster.tell(TargetRef("rec", "deployment", "gone"), "", "Held", "held")
    cluster.close()
    assert len(events.sent("POST")) == 1


def test_repeats_are_counted(events: FakeApi, cluster: KubeCluster) -> None:
    """The same again counts up the Event that is there; another message makes another."""
    for message in ("held", "held", "held", "done"):
        cluster.tell(VLLM, UID, "Held", message)
    until(lambda: len(events.sent("POST")) == 2)
    created = events.sent("POST")[0]["body"]["metadata"]["name"]
    patches = events.sent("PATCH")
    assert [p["body"]["count"] for p in patches] == [2, 3]
    assert {p["path"] for p in patches} == {f"{EVENTS}/{created}"}
    assert patches[0]["headers"]["Content-Type"] == "application/merge-patch+json"


def test_event_that_the_server_dropped(events: FakeApi, cluster: KubeCluster) -> None:
    """An Event that expired is made anew."""
    events.otherwise = lambda request: recorded("configmap-delete-missing")
    for _ in range(2):
        cluster.tell(VLLM, UID, "Held", "held")
    until(lambda: len(events.sent("POST")) == 2)


def test_without_the_right(events: FakeApi, cluster: KubeCluster) -> None:
    """Without the right nobody is disturbed, and it is not tried at every look."""
    events.answers[f"POST {EVENTS}"] = recorded("forbidden")
    for message in "abc":
        cluster.tell(VLLM, UID, "Held", message)
    cluster.close()
    assert len(events.sent("POST")) == 1


def test_recording_never_blocks(
    events: FakeApi, cluster: KubeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """With a server that hangs, recording returns at once, keeps a bounded number and says once that it drops."""
    events.answers[f"POST {EVENTS}"] = HANG
    began = time.monotonic()
    for number in range(2000):
        cluster.tell(VLLM, UID, "Held", str(number))
    assert time.monotonic() - began < 8.0
    assert [each for each in caplog.messages if "dropped" in each] == [
        "Events are dropped: 1000 wait for the API server to take them."
    ]
    cluster.connection.close()


def test_rights(api: FakeApi, cluster: KubeCluster) -> None:
    """Each right is asked for by a review that names verb, group, resource and subresource."""
    rights = [
        Right("update", "apps", "deployments", "scale", "rec"),
        Right("list", "", "pods", namespace="rec"),
    ]
    api.answers[REVIEWS] = [
        recorded("selfsubjectaccessreview-allowed"),
        recorded("selfsubjectaccessreview-denied"),
    ]
    first, second = cluster.access(rights)
    assert first.allowed
    assert second == Access(rights[1], False, second.reason)
    assert [r["body"]["spec"]["resourceAttributes"] for r in api.sent("POST")] == [
        {
            "verb": "update",
            "group": "apps",
            "resource": "deployments",
            "subresource": "scale",
            "namespace": "rec",
        },
        {"verb": "list", "resource": "pods", "namespace": "rec"},
    ]
    assert [str(right) for right in rights] == [
        "update deployments/scale.apps in rec",
        "list pods in rec",
    ]


def test_readiness(api: FakeApi, cluster: KubeCluster) -> None:
    """A server that answers is ready; the answer is kept for a few seconds."""
    api.answers["GET /version"] = recorded("version")
    assert cluster.check() == ""
    assert cluster.check() == ""
    assert len(api.requests) == 1


def test_not_ready(api: FakeApi, cluster: KubeCluster) -> None:
    """One that refuses us says so in a sentence."""
    api.answers["GET /version"] = recorded("unauthenticated-bad-token")
    assert "does not accept this service's credentials" in cluster.check()


def test_rate_limit() -> None:
    """A burst goes at once, then one each 1/qps; who would wait too long takes no token."""
    now = [0.0]
    limit = RateLimit(10, 2, lambda: now[0])
    assert [limit.reserve(9) for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])
    assert limit.reserve(0.25) is None
    assert limit.reserve(0.35) == pytest.approx(0.3)
    now[0] = 100.0
    assert [limit.reserve(9) for _ in range(3)] == pytest.approx([0, 0, 0.1])
