"""Each answer of an API server, as recorded, and each way of getting none, has its class and its sentence."""

import time

import pytest

from responder.errors import Conflict, PermanentError, TransientError
from responder.kube import KubeCluster
from responder.model import Reason, TargetRef, Workload
from tests.kube.fake_api import HANG, HANG_SECONDS, RESET, TRICKLE, TRUNCATED, FakeApi, recorded

VLLM = TargetRef("rec", "Deployment", "vllm")
READ = "GET /apis/apps/v1/namespaces/rec/deployments/vllm"
WRITE = "PUT /apis/apps/v1/namespaces/rec/deployments/vllm/scale"
AS_READ = Workload(uid="a093", generation=1, resource_version="360", replicas=2)
BUSY = (503, {}, {"kind": "Status", "message": "the server is currently unable to handle the request"})

PERMANENT = {
    "403 without the right": ("forbidden-put", Reason.FORBIDDEN, 'User "lowly" cannot update'),
    "403 as nobody": ("anonymous", Reason.FORBIDDEN, "system:anonymous"),
    "403 in a dying namespace": (
        "create-in-terminating-namespace",
        Reason.NAMESPACE_TERMINATING,
        "being terminated",
    ),
    "404 of the object": ("scale-get-missing", Reason.TARGET_GONE, '"nope" not found'),
    "404 of its namespace": ("scale-get-no-such-namespace", Reason.TARGET_GONE, "not found"),
    "404 of the subresource": (
        "daemonset-scale-does-not-exist",
        Reason.NOT_SCALABLE,
        "serves no such resource",
    ),
    "404 of the group, in plain text": ("unknown-api-group", Reason.NOT_SCALABLE, "serves no such resource"),
    "405": ("method-not-allowed", Reason.NOT_SCALABLE, "does not allow this method"),
    "415": ("scale-patch-unknown-media-type", Reason.INVALID, "Unsupported Media Type"),
    "422 of a negative number": ("scale-put-negative", Reason.INVALID, "greater than or equal to 0"),
    "400 of a wrong name": ("scale-put-wrong-name", Reason.INVALID, "does not match the name on the URL"),
    "400 of a wrong type": ("scale-put-string-replicas", Reason.INVALID, "cannot unmarshal string"),
    "400 of broken JSON": ("scale-put-malformed-json", Reason.INVALID, "unexpected end of JSON input"),
    "500 of unset replicas": ("cr-scale-get-unset-replicas", Reason.NOT_SCALABLE, ".spec.workers is not set"),
}


@pytest.mark.parametrize(("name", "reason", "words"), PERMANENT.values(), ids=PERMANENT)
def test_refused_for_good(api: FakeApi, cluster: KubeCluster, name: str, reason: Reason, words: str) -> None:
    """A refusal that no retry mends is sent once and becomes a PermanentError in one sentence."""
    api.answers[WRITE] = recorded(name)
    with pytest.raises(PermanentError) as caught:
        cluster.scale(VLLM, AS_READ, 3)
    assert caught.value.reason is reason
    assert words in str(caught.value)
    assert str(caught.value).startswith("Cannot scale rec/deployment/vllm from 2 to 3: ")
    assert "\n" not in str(caught.value)
    assert len(api.sent("PUT")) == 1


@pytest.mark.parametrize("name", ["scale-put-stale-resource-version", "cr-scale-put-stale"])
def test_conflict(api: FakeApi, cluster: KubeCluster, name: str) -> None:
    """409 is a Conflict, for the caller to settle: it is not tried again here."""
    api.answers[WRITE] = recorded(name)
    with pytest.raises(Conflict, match="the object has been modified"):
        cluster.scale(VLLM, AS_READ, 3)
    assert len(api.sent("PUT")) == 1


NEVER_WHOLE = (HANG, TRICKLE)
UNKNOWN_OUTCOME = {
    "the connection is reset": (RESET, "connection"),
    "no answer comes": (HANG, "timeout"),
    "the answer trickles": (TRICKLE, "timeout"),
    "the answer is cut off": (TRUNCATED, "connection"),
    "the answer is a page": ((200, {"Content-Type": "text/html"}, "<html>"), "body"),
    "the answer is another JSON": ((200, {}, [1, 2]), "body"),
    "500": ((500, {}, {"kind": "Status", "message": "etcdserver: request timed out"}), "server"),
    "503": (BUSY, "server"),
    "504": ((504, {}, "<html>gateway"), "timeout"),
}


@pytest.mark.parametrize(("answer", "kind"), UNKNOWN_OUTCOME.values(), ids=UNKNOWN_OUTCOME)
def test_write_is_never_repeated(api: FakeApi, cluster: KubeCluster, answer: object, kind: str) -> None:
    """When a write may have taken effect, it is not sent again: the caller settles it."""
    api.answers[WRITE] = answer
    if answer in NEVER_WHOLE:
        cluster.connection.timeout = 0.3
    began = time.monotonic()
    with pytest.raises(TransientError) as caught:
        cluster.scale(VLLM, AS_READ, 3)
    assert caught.value.kind == kind
    assert len(api.sent("PUT")) == 1
    assert time.monotonic() - began < HANG_SECONDS


@pytest.mark.parametrize(("answer", "kind"), UNKNOWN_OUTCOME.values(), ids=UNKNOWN_OUTCOME)
def test_read_is_repeated(api: FakeApi, cluster: KubeCluster, answer: object, kind: str) -> None:
    """A read that failed for the moment is tried again and succeeds within its deadline."""
    api.answers[READ] = [answer, recorded("deployment-get")]
    if answer in NEVER_WHOLE:
        cluster.connection.timeout = 1.5  # the second answer is to be had in it, on a busy machine too
    assert cluster.workload(VLLM).resource_version == "360"
    assert sum(r["path"].endswith("/vllm") for r in api.sent("GET")) == 2


def test_read_gives_up_at_its_deadline(api: FakeApi, impatient: KubeCluster) -> None:
    """A server that stays down costs a caller the deadline and no more."""
    api.answers[READ] = BUSY
    began = time.monotonic()
    with pytest.raises(TransientError, match="unable to handle the request"):
        impatient.workload(VLLM)
    assert time.monotonic() - began < HANG_SECONDS
    assert sum(each["path"].endswith("/vllm") for each in api.sent("GET")) > 1


def test_write_turned_away_unread_is_repeated(api: FakeApi, cluster: KubeCluster) -> None:
    """429 means that nothing was done, so a write may be sent again."""
    busy = (429, {"Retry-After": "0"}, {"kind": "Status", "message": "too many requests"})
    api.answers[WRITE] = [busy, busy, recorded("scale-put")]
    assert cluster.scale(VLLM, AS_READ, 3).replicas == 3
    assert len(api.sent("PUT")) == 3


def test_retry_after_beyond_the_deadline_is_left_to_the_caller(api: FakeApi, impatient: KubeCluster) -> None:
    """A Retry-After of 10 s does not block a call of 1 s: it is handed on at once."""
    api.answers[WRITE] = recorded("eviction-blocked-by-pdb")
    began = time.monotonic()
    with pytest.raises(TransientError) as caught:
        impatient.scale(VLLM, AS_READ, 3)
    assert (caught.value.kind, caught.value.retry_after) == ("throttled", 10.0)
    assert time.monotonic() - began < HANG_SECONDS
    assert len(api.sent("PUT")) == 1


def test_retry_after_is_honoured(api: FakeApi, cluster: KubeCluster) -> None:
    """A read that is told to come back in 1 s does not come back earlier."""
    api.answers[READ] = [(429, {"Retry-After": "1"}, {}), recorded("deployment-get")]
    began = time.monotonic()
    cluster.connection.get(READ[4:], dict, "read", deadline=30.0)
    assert 1.0 <= time.monotonic() - began < HANG_SECONDS


def test_nobody_listens(api: FakeApi, impatient: KubeCluster) -> None:
    """A write that cannot even connect is tried until the deadline; the sentence says why it failed."""
    impatient.scale(VLLM, AS_READ, 3)
    api.close()
    with pytest.raises(TransientError):
        impatient.scale(VLLM, AS_READ, 3)  # on the connection that was kept
    with pytest.raises(TransientError, match=r"cannot be reached \(connection refused\)") as caught:
        impatient.scale(VLLM, AS_READ, 3)
    assert caught.value.kind == "connection"


def test_redirects_are_not_followed(api: FakeApi, cluster: KubeCluster) -> None:
    """A login page's redirect is an error that names it, and no credentials go there."""
    api.answers[WRITE] = (302, {"Location": "https://login.example/"}, "")
    with pytest.raises(PermanentError, match=r"redirects to https://login\.example/"):
        cluster.scale(VLLM, AS_READ, 3)


def test_closing_ends_waits(api: FakeApi, cluster: KubeCluster) -> None:
    """After close nothing is sent, and nobody waits."""
    cluster.close()
    with pytest.raises(TransientError, match="stopping"):
        cluster.workload(VLLM)
    assert api.requests == []


def test_calls_are_reported(api: FakeApi, tmp_path) -> None:
    """Each request is reported with its method and the kind of its error, for metrics."""
    seen = []
    made = KubeCluster(
        api.kubeconfig(tmp_path / "k"),
        on_call=lambda method, kind, seconds: seen.append((method, kind, 0 < seconds < 10)),
    )
    api.answers[WRITE] = [RESET, recorded("forbidden-put"), recorded("scale-put-stale-resource-version")]
    for expected in (TransientError, PermanentError, Conflict):
        with pytest.raises(expected):
            made.scale(VLLM, AS_READ, 3)
    made.close()
    assert [call for call in seen if call[0] == "PUT"] == [
        ("PUT", "connection", True),
        ("PUT", "Forbidden", True),
        ("PUT", "conflict", True),
    ]
