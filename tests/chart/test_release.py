"""A release's life in the simulated cluster, by Helm's engine: install, upgrade, roll back, test, remove."""

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from responder.sim.auth import User
from responder.sim.cluster import SimCluster
from tests.serving import free_port

sys.path.insert(0, str(Path(__file__).parent))
from charting import NAMESPACE, ROOT, Object, decoded

VALUES = {"targetNamespaces": ["inference"]}
FURTHER = {"name": "team-a", "role": "viewer", "sha256": "0" * 64}
MERGE = "application/merge-patch+json"


class Helm:
    """Helm against a cluster, in a process of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        command = [sys.executable, Path(__file__).with_name("release_chart.py"), kubeconfig, NAMESPACE]
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, verb: str, **asked: Any) -> Any:
        assert self.program.stdin
        assert self.program.stdout
        print(json.dumps({"verb": verb, **asked}), file=self.program.stdin, flush=True)
        answer = json.loads(self.program.stdout.readline())
        assert "error" not in answer, answer
        return answer["release"]


class Api:
    """The cluster's API, as its administrator."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": "Bearer admin", "Content-Type": kind},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: Object = json.load(answer)
        return found

    def of(self, resource: str, name: str = "") -> Object:
        """An object of the release's namespace, or a list of them."""
        base = "/apis/apps/v1" if resource == "deployments" else "/api/v1"
        return self("GET", f"{base}/namespaces/{NAMESPACE}/{resource}/{name}".rstrip("/"))

    def tokens(self) -> Object:
        data: Object = self.of("secrets", "gpu-responder-tokens")["data"]
        return data

    def hashes(self) -> list[str]:
        """The names of those whose tokens are known."""
        text = decoded(self.of("secrets", "gpu-responder-token-hashes")["data"]["tokens.yaml"])
        return [each["name"] for each in yaml.safe_load(text)["tokens"]]

    def policy(self) -> Object:
        text = self.of("configmaps", "gpu-responder-policy")["data"]["policies.yaml"]
        loaded: Object = yaml.safe_load(text)
        return loaded

    def checksum(self) -> str:
        pod = self.of("deployments", "gpu-responder")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/policy"])


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    with SimCluster() as made:
        yield made


@pytest.fixture
def helm(cluster: SimCluster, tmp_path: Path) -> Iterator[Helm]:
    made = Helm(cluster.kubeconfig(tmp_path / "admin"))
    try:
        yield made
    finally:
        made.program.stdin.close()  # type: ignore[union-attr]
        made.program.wait(20)
        made.program.stdout.close()  # type: ignore[union-attr]


def test_upgrade_and_rollback_keep_the_tokens(cluster: SimCluster, helm: Helm):
    """Tokens are made once: no upgrade and no rollback changes them, while all else is as the values say."""
    api = Api(cluster.url)
    helm("install", values=VALUES, create_namespace=True)
    tokens, before = api.tokens(), api.checksum()
    assert len(set(tokens.values())) == 3
    assert api.policy()["dryRun"] is True

    helm("upgrade", values={**VALUES, "dryRun": False, "tokens": {"entries": [FURTHER]}})
    assert api.tokens() == tokens
    assert sorted(api.hashes()) == ["alertmanager", "operator", "team-a", "viewer"]
    assert api.policy()["dryRun"] is False
    assert api.checksum() != before

    helm("upgrade", values={**VALUES, "dryRun": False})
    assert sorted(api.hashes()) == ["alertmanager", "operator", "viewer"]

    helm("rollback", version=1)
    assert api.tokens() == tokens
    assert api.policy()["dryRun"] is True
    assert api.checksum() == before


def test_what_an_upgrade_leaves_out_is_removed(cluster: SimCluster, helm: Helm):
    """A namespace that is no target any more loses its Role, and the volume of SQLite outlives the release."""
    api = Api(cluster.url)
    api("POST", "/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles/gpu-responder-targets"
    sqlite = {"replicaCount": 1, "store": {"type": "sqlite"}}
    helm("install", values={"targetNamespaces": ["inference", "team-a"], **sqlite}, create_namespace=True)
    assert api("GET", roles)
    helm("upgrade", values={**VALUES, **sqlite})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        api("GET", roles)
    helm("uninstall")
    assert api.of("secrets")["items"] == []
    assert [each["metadata"]["name"] for each in api.of("persistentvolumeclaims")["items"]] == [
        "gpu-responder-data"
    ]


def test_a_second_release_in_a_namespace_is_refused(helm: Helm):
    """Two would share one store, each with a policy of its own; the first can still be upgraded."""
    helm("install", values=VALUES, create_namespace=True)
    with pytest.raises(
        AssertionError, match="the release gpu-responder is in gpu-responder already, and two would"
    ):
        helm("install", name="other", values=VALUES)
    helm("upgrade", values=VALUES)


def test_helm_test_sends_an_alert_and_sees_a_decision(cluster: SimCluster, helm: Helm, tmp_path: Path):
    """`helm test` passes when the service runs as the Deployment says, and fails when nothing answers."""
    api = Api(cluster.url)
    helm("install", values=VALUES, create_namespace=True)
    cluster.server.grant("account", User(f"system:serviceaccount:{NAMESPACE}:gpu-responder"))
    port = free_port()
    with played(api, port), serving(api, cluster, port, tmp_path):
        helm("test", timeout=60)
    with played(api, port), pytest.raises(AssertionError, match=r"failed|Failed"):
        helm("test", timeout=60)


@contextlib.contextmanager
def serving(api: Api, cluster: SimCluster, port: int, folder: Path) -> Iterator[None]:
    """The service, with the arguments of the Deployment and what it mounts."""
    (container,) = api.of("deployments", "gpu-responder")["spec"]["template"]["spec"]["containers"]
    for kind, name, key in (
        ("policy", "gpu-responder-policy", "policies.yaml"),
        ("tokens", "gpu-responder-token-hashes", "tokens.yaml"),
    ):
        (folder / kind).mkdir()
        found = api.of("configmaps" if kind == "policy" else "secrets", name)["data"][key]
        (folder / kind / key).write_text(found if kind == "policy" else decoded(found))
    moved = {"/etc/gpu-responder": str(folder), "0.0.0.0:9099": f"127.0.0.1:{port}"}
    arguments = [
        reduce(lambda text, pair: text.replace(*pair), moved.items(), each) for each in container["args"]
    ]
    kubeconfig = cluster.server.kubeconfig(folder / "account", "account")
    with (folder / "log").open("wb") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "responder", *arguments, f"--kubeconfig={kubeconfig}"],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 30
            while program.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2).close()
                    break
                time.sleep(0.1)
            yield
        finally:
            program.terminate()
            program.wait(40)


@contextlib.contextmanager
def played(api: Api, port: int) -> Iterator[None]:
    """What a kubelet would do with the test's pod: run its container, with its environment, and tell how it ended."""
    stopping = threading.Event()
    thread = threading.Thread(target=_play, args=(api, port, stopping), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(100)


def _play(api: Api, port: int, stopping: threading.Event) -> None:
    seen = {each["metadata"]["uid"] for each in api.of("pods")["items"]}
    while not stopping.wait(0.1):
        for pod in api.of("pods")["items"]:
            if pod["metadata"]["name"] == "gpu-responder-test" and pod["metadata"]["uid"] not in seen:
                _run(api, pod, port)
                return


def _run(api: Api, pod: Object, port: int) -> None:
    (container,) = pod["spec"]["containers"]
    told = {"PATH": "/usr/bin:/bin"}
    for each in container["env"]:
        reference = each.get("valueFrom", {}).get("secretKeyRef")
        told[each["name"]] = (
            decoded(api.of("secrets", reference["name"])["data"][reference["key"]])
            if reference
            else each["value"]
        )
    told["RESPONDER_URL"] = f"http://127.0.0.1:{port}"
    script = api.of("configmaps", "gpu-responder-test")["data"]["dry_run.py"]
    done = subprocess.run([sys.executable, "-"], input=script, env=told, text=True, check=False, timeout=90)
    phase = "Failed" if done.returncode else "Succeeded"
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/gpu-responder-test/status"
    api("PATCH", path, {"status": {"phase": phase}}, MERGE)
