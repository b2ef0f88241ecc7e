"""Trouble on demand, the request log, stopping: what the kill tests rely on."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from responder.sim.auth import ADMIN, User
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer

Object = dict[str, Any]
SCALE = "/apis/apps/v1/namespaces/team/deployments/vllm/scale"


class Caller:
    """One client connection that never retries."""

    def __init__(self, server: SimServer) -> None:
        self.server = server
        self.http = urllib3.PoolManager(retries=False, maxsize=4)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "admin",
        timeout: float = 10,
        **headers: str,
    ) -> tuple[int, Any, Any]:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        data = json.dumps(body) if body is not None else None
        answer = self.http.request(
            method, self.server.url + path, body=data, headers=headers, timeout=timeout
        )
        return answer.status, json.loads(answer.data), answer.headers

    def scale(self, replicas: int, **more: Any) -> int:
        return self.send("PATCH", SCALE, {"spec": {"replicas": replicas}}, **more)[0]

    def faults(self, *rules: Object, **more: Any) -> None:
        code, answer, _ = self.send("POST", "/sim/faults", {"rules": list(rules), **more})
        assert code == 200, answer

    def replicas(self) -> int:
        entry = self.server.store.entry("deployments.apps", "team", "vllm")
        assert entry is not None
        return int(entry.obj["spec"]["replicas"])


@pytest.fixture
def server() -> Iterator[SimServer]:
    """A server with one Deployment of two replicas."""
    store = ObjectStore()
    for resource, kind, version, meta in (
        ("namespaces", "Namespace", "v1", {"name": "team"}),
        ("deployments.apps", "Deployment", "apps/v1", {"name": "vllm", "namespace": "team"}),
    ):
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "vllm"}}} if kind == "Deployment" else {}
        store.create(
            resource, {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}, manager="t"
        )
    with SimServer(store, tokens={"admin": ADMIN, "second": User("second", rules=ADMIN.rules)}) as running:
        yield running


@pytest.fixture
def caller(server: SimServer) -> Caller:
    """A client of it."""
    return Caller(server)


@pytest.mark.parametrize(
    ("fault", "code", "reason", "header"),
    [
        ({"status": 409}, 409, "Conflict", None),
        ({"status": 429, "retryAfterSeconds": 2}, 429, "TooManyRequests", "2"),
        ({"status": 500}, 500, "InternalError", None),
        ({"status": 503, "retryAfterSeconds": 1}, 503, "ServiceUnavailable", "1"),
    ],
    ids=["409", "429 with Retry-After", "500", "503 with Retry-After"],
)
def test_a_failed_write_is_not_applied(
    caller: Caller, fault: Object, code: int, reason: str, header: str | None
) -> None:
    """A status fault answers with a Status and changes nothing; once its times are used up all is well."""
    caller.faults({"methods": "writes", "path": "/scale$", "fault": "status", "times": 1, **fault})
    patch = {"spec": {"replicas": 5}}
    found, body, headers = caller.send("PATCH", SCALE, patch)
    assert (found, body["kind"], body["reason"], body["code"]) == (code, "Status", reason, code)
    assert headers.get("Retry-After") == header
    assert caller.replicas() == 2
    assert caller.server.scales() == []
    assert caller.send("GET", SCALE)[0] == 200
    assert caller.scale(5) == 200


@pytest.mark.parametrize(
    ("fault", "replicas"),
    [("reset", 2), ("applyThenReset", 5)],
    ids=["cut before applying", "applied but the answer is lost"],
)
def test_a_cut_connection(caller: Caller, fault: str, replicas: int) -> None:
    """The client sees the same either way; the log of scales knows the difference."""
    caller.faults({"methods": ["PATCH"], "script": [fault]})
    with pytest.raises(urllib3.exceptions.ProtocolError):
        caller.scale(5)
    assert caller.replicas() == replicas
    assert len(caller.server.scales()) == (replicas == 5)
    assert caller.scale(6) == 200


@pytest.mark.parametrize(("fault", "at_once"), [("hang", False), ("applyThenHang", True)])
def test_a_hang_before_or_after_applying(caller: Caller, fault: str, at_once: bool) -> None:
    """A hang of a second: the write is in place during it, or only after it."""
    caller.faults({"path": "/scale$", "fault": fault, "seconds": 1.0})
    writing = threading.Thread(target=caller.scale, args=(5,))
    began = time.monotonic()
    writing.start()
    with caller.server.store.subscribe("deployments.apps", since=caller.server.store.oldest) as changes:
        while (change := changes.get(timeout=30)) is not None and change.type != "MODIFIED":
            pass
        seen = time.monotonic() - began
    writing.join()
    took = time.monotonic() - began
    assert took >= 1.0
    assert (seen < 0.9) is at_once


def test_a_script_goes_step_by_step(caller: Caller) -> None:
    """Each matching request takes the next step; requests that do not match take none; the end is peace."""
    caller.faults({"methods": "writes", "script": ["none", {"fault": "status", "status": 503}, "none"]})
    codes = []
    for replicas in (3, 4, 5, 6):
        caller.send("GET", SCALE)
        codes.append(caller.scale(replicas))
    assert codes == [200, 503, 200, 200]
    _, told, _ = caller.send("GET", "/sim/faults")
    assert (told["rules"][0]["matched"], told["rules"][0]["struck"]) == (4, 1)


def test_chance_is_repeatable_and_users_are_told_apart(caller: Caller) -> None:
    """The same seed gives the same failures; a rule for one user leaves the other alone."""
    rule = {"fault": "status", "status": 500, "probability": 0.5, "user": "^second$"}
    runs = []
    for _ in range(2):
        caller.faults(rule, seed=7)
        runs.append([caller.scale(n, token="second") for n in range(3, 23)])
        assert {caller.scale(n) for n in range(3, 23)} == {200}
    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 500}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"fault": "explode"}, "explode"),
        ({"path": "("}, "regular expression"),
        ({"method": "writes"}, "method: unknown key"),
        ({"methods": "some"}, "some"),
    ],
    ids=["an unknown fault", "a broken pattern", "a misspelt key", "an unknown set of methods"],
)
def test_a_senseless_rule_is_refused(caller: Caller, rule: Object, told: str) -> None:
    """One sentence, and the rules in force stay."""
    caller.faults({"fault": "status", "status": 503})
    code, answer, _ = caller.send("POST", "/sim/faults", {"rules": [rule]})
    assert code == 400
    assert told in answer["error"]
    assert caller.scale(5) == 503


def test_open_connections_can_be_cut(caller: Caller, server: SimServer) -> None:
    """POST /sim/cut ends a watch that is under way; the server goes on."""
    path = "/apis/apps/v1/deployments?watch=true"
    watching = caller.http.request(
        "GET", server.url + path, headers={"Authorization": "Bearer admin"}, preload_content=False
    )
    assert watching.read1()
    server.cut()
    with pytest.raises(urllib3.exceptions.HTTPError):
        watching.read()
    assert caller.scale(5) == 200


def test_requests_and_scales_are_logged(caller: Caller) -> None:
    """Both logs need no token, are filtered, and can be emptied."""
    caller.scale(5)
    caller.scale(5)
    _, log, _ = caller.send("GET", "/sim/requests", token="nobody")
    assert [(r["method"], r["path"], r["code"]) for r in log["requests"]] == [("PATCH", SCALE, 200)] * 2
    _, scales, _ = caller.send("GET", "/sim/scales?name=vllm&namespace=team", token="nobody")
    assert [(s["from"], s["to"]) for s in scales["scales"]] == [(2, 5)]
    assert caller.send("GET", "/sim/scales?name=other")[1]["scales"] == []
    caller.send("DELETE", "/sim/scales")
    assert caller.send("GET", "/sim/scales")[1] == {"scales": [], "total": 0}


def test_a_controllers_own_writes_are_told_from_those_of_clients(server: SimServer) -> None:
    """In-process changes of a target are logged without a user; a Deployment passing its size on is not."""

    def grow(obj: Object) -> None:
        obj["spec"]["replicas"] += 1

    owner = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "vllm", "uid": "u", "controller": True}
    meta = {"name": "owned", "namespace": "team", "ownerReferences": [owner]}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"replicas": 2}}
    server.store.create("replicasets.apps", body, manager="kube-controller-manager")
    server.store.mutate("replicasets.apps", "team", "owned", grow, manager="kube-controller-manager")
    server.store.mutate("deployments.apps", "team", "vllm", grow, manager="hpa")
    assert [(s["name"], s["user"], s["manager"]) for s in server.scales()] == [("vllm", "", "hpa")]


def test_stop_leaves_nothing_behind() -> None:
    """With a watch and an idle connection open: no thread is left, and the port is free at once."""
    before = set(threading.enumerate())
    server = SimServer(ObjectStore()).start()
    caller = Caller(server)
    caller.send("GET", "/api/v1/namespaces")
    headers = {"Authorization": "Bearer admin"}
    watching = caller.http.request(
        "GET", f"{server.url}/api/v1/namespaces?watch=true", headers=headers, preload_content=False
    )
    watching.read1()
    server.stop()
    assert set(threading.enumerate()) == before
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", server.port))
    watching.close()


def test_a_taken_port_is_an_os_error() -> None:
    """Whoever starts it can say so in a sentence."""
    with SimServer(ObjectStore()) as first, pytest.raises(OSError, match="in use"):
        SimServer(ObjectStore(), port=first.port)


def test_added_routes_are_served_without_a_token(server: SimServer, caller: Caller) -> None:
    """A mounted page answers; unknown paths outside the API are the server's plain 404."""
    server.add_route("/metrics", lambda _: "gpus 8\n")
    answer = caller.http.request("GET", f"{server.url}/metrics")
    assert (answer.status, answer.data) == (200, b"gpus 8\n")


def test_ten_thousand_deployments_are_listed_quickly(server: SimServer, caller: Caller) -> None:
    """A get answers in milliseconds and a list within a second or two, with 10,000 objects in the store."""
    for number in range(10_000):
        meta = {"name": f"w{number}", "namespace": "team"}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        server.store.create("deployments.apps", body)
    began = time.perf_counter()
    _, found, _ = caller.send("GET", "/apis/apps/v1/deployments")
    assert (len(found["items"]), time.perf_counter() - began < 20) == (10_001, True)
    spent = []
    for _ in range(100):
        began = time.perf_counter()
        caller.send("GET", SCALE)
        spent.append(time.perf_counter() - began)
    # On a busy machine many wait for the processor.
    assert sorted(spent)[10] < 0.02
