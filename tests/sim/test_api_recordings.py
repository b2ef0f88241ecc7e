"""The simulated API server answers as a real Kubernetes 1.36 API server did.

Every exchange of both recordings is replayed, in order. What is compared, and what is not:

- status code and content type: always. Status bodies: whole. Objects: whole, except as follows.
- uid, creationTimestamp, deletionTimestamp and the times in managedFields are generated: only their form is compared.
- resourceVersion is generated: where the recording repeats one, so must the answer, and the order must be the same.
  In the recording without controllers it must also move wherever the recorded one moved.
- The random suffix of `kube-api-access-…` volumes is generated. That volume's `openshift-service-ca.crt` source
  comes from the distribution the recording was made with, not from Kubernetes, and is left out.
- The continue token is opaque: its resourceVersion is generated, the rest of it is compared.
- `status.replicas`, conditions and the like are what the recorded cluster's controllers had written by then. Here
  `Controllers` writes the same values through the status endpoint before the exchange, so the values prove little,
  but who then holds which field, and what generation and resourceVersion do, is the server's own and is compared.
- Pods have random names: the stand-in creates them under the recorded names.
"""

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

from responder.sim.auth import ADMIN, User
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer

DATA = Path(__file__).parents[1] / "data"
TOKENS = {"admin": ADMIN, "lowly": User("lowly")}
AUTHORIZATION = {
    "admin": {"Authorization": "Bearer admin"},
    "token without rights": {"Authorization": "Bearer lowly"},
    "unknown token": {"Authorization": "Bearer nobody-knows-this"},
    "none": {},
}
GENERATED = {
    "uid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "creationTimestamp": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "deletionTimestamp": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
}
Object = dict[str, Any]


class Clock:
    """A second later at each exchange: managedFields are ordered by time."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def tick(self) -> None:
        self.now += timedelta(seconds=1)


class Client:
    """Sends what the recording's client sent, to the simulated server."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self.http = urllib3.PoolManager(retries=False)

    def send(self, request: Object, agent: str = "python-requests/2.32.3") -> tuple[int, dict[str, str], Any]:
        body = request.get("body")
        if body is not None and not isinstance(body, str):
            body = json.dumps(body)
        headers = {"User-Agent": agent, **AUTHORIZATION[request.get("authorization", "admin")]}
        if request.get("contentType"):
            headers["Content-Type"] = request["contentType"]
        answer = self.http.request(request["method"], self.url + request["path"], body=body, headers=headers)
        text = answer.data.decode()
        if answer.headers["Content-Type"] != "application/json":
            return answer.status, dict(answer.headers), text
        if "watch=true" in request["path"] and answer.status == 200:
            return answer.status, dict(answer.headers), [json.loads(line) for line in text.splitlines()]
        return answer.status, dict(answer.headers), json.loads(text)


class Controllers:
    """Writes what the recorded cluster's controllers had written by the time of an exchange."""

    AGENT = "kube-controller-manager/v1.36.2"

    def __init__(self, client: Client) -> None:
        self.client = client

    def before(self, exchange: Object) -> None:
        response, path = exchange["response"]["body"], exchange["request"]["path"]
        if exchange["name"] == "deployment-get":
            self.report(path, response)
        elif exchange["name"] == "watch-deployments":
            seen = response[0]["object"]
            self.report(f"{path.partition('?')[0]}/{seen['metadata']['name']}", seen)
        elif exchange["name"] == "pods-list-paged":
            for pod in [*response["items"], last_pod(response)]:
                self.create_pod(path.partition("?")[0], pod)
        elif response.__class__ is dict and response.get("kind") == "Scale" and "/apis/apps/" in path:
            self.patch_status(path.partition("/scale")[0], {"replicas": response["status"]["replicas"]})

    def report(self, path: str, seen: Object) -> None:
        self.patch_status(path, seen["status"], seen["metadata"].get("annotations"))

    def patch_status(self, path: str, status: Object, annotations: Object | None = None) -> None:
        patch: Object = {
            "status": {key: value for key, value in status.items() if value != 0 or key != "replicas"}
        }
        if status.get("replicas") == 0:
            patch["status"]["replicas"] = None
        if annotations:
            patch["metadata"] = {"annotations": annotations}
        self.send("PATCH", f"{path}/status", patch, "application/merge-patch+json")

    def create_pod(self, path: str, pod: Object) -> None:
        meta = {k: pod["metadata"][k] for k in ("name", "generateName", "labels", "ownerReferences")}
        container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        self.send("POST", path, {"metadata": meta, "spec": {"containers": [container]}}, "application/json")

    def send(self, method: str, path: str, body: Object, content_type: str) -> None:
        request = {"method": method, "path": path, "body": body, "contentType": content_type}
        code, _, answer = self.client.send(request, self.AGENT)
        assert code in (200, 201), answer


def last_pod(response: Object) -> Object:
    """One more pod than the recorded page shows, of the name at which the next page would start or later."""
    pod = json.loads(json.dumps(response["items"][-1]))
    pod["metadata"]["name"] += "z"
    return pod


class Replay:
    """Replays exchanges and compares, keeping which generated value stands for which recorded one."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.controllers = Controllers(client)
        self.versions: dict[str, str] = {}
        self.uids: dict[str, str] = {}

    def run(self, exchange: Object) -> list[str]:
        """What differs."""
        self.client.clock.tick()
        self.controllers.before(exchange)
        recorded = exchange["response"]
        code, headers, body = self.client.send(self.translated(exchange["request"]))
        found = []
        if code != recorded["status"]:
            found.append(f"status is {code}, recorded {recorded['status']}: {body}")
        for name, value in recorded["headers"].items():
            if headers.get(name) != value:
                found.append(f"header {name} is {headers.get(name)!r}, recorded {value!r}")
        found += self.differences(unsuffixed(expected(recorded["body"])), unsuffixed(body), "")
        return found

    def translated(self, request: Object) -> Object:
        """The request with the values of this server in place of the recorded ones."""
        request = json.loads(json.dumps(request))
        request["path"] = request["path"].replace("timeoutSeconds=2", "timeoutSeconds=0.2")
        body = request.get("body")
        if isinstance(body, dict):
            meta = body.get("metadata") or {}
            if meta.get("resourceVersion") in self.versions:
                meta["resourceVersion"] = self.versions[meta["resourceVersion"]]
            if meta.get("uid") in self.uids:
                meta["uid"] = self.uids[meta["uid"]]
            if (body.get("data") or {}).get("record") == "x * 1100000":
                body["data"]["record"] = "x" * 1_100_000
        return request

    def differences(self, want: Any, have: Any, path: str) -> list[str]:
        if isinstance(want, dict) and isinstance(have, dict):
            found = [f"{path}.{key} is missing" for key in want if key not in have]
            found += [f"{path}.{key} is too much: {have[key]!r}" for key in have if key not in want]
            for key in want:
                if key in have:
                    found += self.field(key, want[key], have[key], f"{path}.{key}")
            return found
        if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
            found = []
            for at, (one, other) in enumerate(zip(want, have, strict=True)):
                found += self.differences(one, other, f"{path}[{at}]")
            return found
        return [] if want == have and type(want) is type(have) else [f"{path} is {have!r}, recorded {want!r}"]

    def field(self, key: str, want: Any, have: Any, path: str) -> list[str]:
        if key == "resourceVersion":
            return self.version(want, have, path)
        if key == "continue":
            return self.token(want, have, path)
        if key == "uid":
            known = self.uids.setdefault(want, have)
            if known != have:
                return [f"{path} was {known} before, now {have}"]
        if key in GENERATED:
            return [] if GENERATED[key].fullmatch(have) else [f"{path} is {have!r}"]
        if path.endswith(".time") and "managedFields" in path:
            return [] if GENERATED["creationTimestamp"].fullmatch(have) else [f"{path} is {have!r}"]
        if key == "message" and "too old resource version" in want:
            want, have = (re.sub(r"\(\d+\)", "(oldest)", text) for text in (want, have))
        return self.differences(want, have, path)

    def version(self, want: str, have: str, path: str) -> list[str]:
        known = self.versions.setdefault(want, have)
        if known != have:
            return [f"{path}: recorded {want} was {known} before, now {have}"]
        for other, ours in self.versions.items():
            if (int(other) < int(want)) and int(ours) > int(have):
                return [f"{path}: recorded {other} before {want}, here {ours} after {have}"]
        return []

    def token(self, want: str, have: str, path: str) -> list[str]:
        recorded, ours = (json.loads(base64.urlsafe_b64decode(t + "=" * (-len(t) % 4))) for t in (want, have))
        recorded.pop("rv")
        ours.pop("rv")
        # The recording's next page starts after the last pod shown or at the next; both are right.
        return [] if recorded.keys() == ours.keys() and recorded["v"] == ours["v"] else [f"{path} is {ours}"]


def expected(body: Any) -> Any:
    """The recorded body without what only its distribution adds, and with random names made equal."""
    text = json.dumps(body)
    text = text.replace(
        ', {"configMap": {"name": "openshift-service-ca.crt", "items": [{"key": "service-ca.crt", "path":'
        ' "service-ca.crt"}]}}',
        "",
    )
    return json.loads(text)


def unsuffixed(value: Any) -> Any:
    """A body with the random ends of token volumes made equal."""
    return json.loads(re.sub(r"kube-api-access-\w{5}", "kube-api-access-xxxxx", json.dumps(value)))


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a server that knows the recording's two tokens."""
    clock = Clock()
    with SimServer(ObjectStore(clock=clock), tokens=TOKENS) as server:
        yield Client(server.url, clock)


@pytest.mark.parametrize(
    ("recording", "exchanges"),
    [("kubernetes-1.36.json", 80), ("kubernetes-1.36-field-managers.json", 18)],
    ids=["everything the real server was asked", "who holds which field through writes of four kinds"],
)
def test_every_recorded_exchange_is_answered_alike(client: Client, recording: str, exchanges: int) -> None:
    """All exchanges in order: status, Status bodies whole, objects as the module's docstring says."""
    recorded = json.loads((DATA / recording).read_text())
    assert len(recorded) == exchanges
    if "managers" in recording:
        # The recorder changed the replicas of this answer (2) in place for its next request.
        scale = next(e for e in recorded if e["name"] == "scale-get")["response"]["body"]
        assert scale["metadata"]["resourceVersion"] == "214"
        scale["spec"]["replicas"] = 2
    replay = Replay(client)
    wrong = {}
    for exchange in recorded:
        differences = replay.run(exchange)
        if differences:
            wrong[exchange["name"]] = differences
    assert not wrong, json.dumps(wrong, indent=1)


def test_resource_version_moves_exactly_where_the_real_one_moved(client: Client) -> None:
    """Without controllers, two recorded resourceVersions differ if and only if the simulated ones do."""
    replay = Replay(client)
    for exchange in json.loads((DATA / "kubernetes-1.36-field-managers.json").read_text()):
        replay.run(exchange)
    assert len(set(replay.versions.values())) == len(replay.versions)
