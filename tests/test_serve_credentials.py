"""What the service sends with its questions to Prometheus and Alertmanager."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from responder.sim.cluster import SimCluster
from tests.serving import ROOT, ROUTE, free_port, until

ALERT = {
    "alertname": "LLMQueueBacklog", "action": "scale_up", "signal": "queue", "workload_type": "deployment",
    "namespace": "inference", "workload": "vllm",
}  # fmt: skip


@pytest.fixture
def asked() -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """The address of a server that answers to no purpose, and the headers that each path was last asked with."""
    seen: dict[str, dict[str, str]] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen[self.path.partition("?")[0]] = dict(self.headers)
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def notification() -> bytes:
    now = datetime.now(UTC).isoformat()
    alert = {
        "status": "firing", "labels": ALERT, "annotations": {}, "startsAt": now, "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "", "fingerprint": "f",
    }  # fmt: skip
    envelope = {
        "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "r",
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "", "alerts": [alert],
    }  # fmt: skip
    return json.dumps(envelope).encode()


def test_tokens_and_headers_go_along(asked: tuple[str, dict[str, dict[str, str]]], tmp_path: Path) -> None:
    """Values, the page's chart and Alertmanager are asked with the tokens of their files, and a tenant in a header."""
    url, seen = asked
    for name in ("prometheus", "alertmanager"):
        (tmp_path / name).write_text(f"of-{name}\n")
    port = free_port()
    with SimCluster() as cluster, (tmp_path / "log").open("wb") as log:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        arguments = [
            "--policy=examples/policies.yaml", f"--bind=127.0.0.1:{port}", f"--store=sqlite:{tmp_path}/db",
            f"--kubeconfig={kubeconfig}", f"--prometheus-url={url}", f"--alertmanager-url={url}",
            f"--prometheus-token-file={tmp_path}/prometheus", "--prometheus-header=X-Scope-OrgID: gpu",
            f"--alertmanager-token-file={tmp_path}/alertmanager",
        ]  # fmt: skip
        program = subprocess.Popen(
            [sys.executable, "-m", "responder", "serve", *arguments],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        base = f"http://127.0.0.1:{port}"

        def answers(path: str, body: bytes | None = None) -> bool:
            with contextlib.suppress(OSError):
                request = urllib.request.Request(base + path, body, {"Content-Type": "application/json"})
                urllib.request.urlopen(request, timeout=5).close()
                return True
            return False

        try:
            until(lambda: answers("/-/ready"), 30, "the service is ready")
            assert answers(ROUTE, notification())
            until(
                lambda: answers("/targets/inference/deployment/vllm/utilization.svg"),
                30,
                "the target is known",
            )
            until(lambda: {"/api/v1/query", "/api/v2/status"} <= seen.keys(), 30, "both were asked")
        finally:
            program.terminate()
            program.wait(40)
    for path in ("/api/v1/query", "/api/v1/query_range"):
        assert (seen[path]["Authorization"], seen[path]["X-Scope-OrgID"]) == ("Bearer of-prometheus", "gpu")
    assert seen["/api/v2/status"]["Authorization"] == "Bearer of-alertmanager"
    assert "X-Scope-OrgID" not in seen["/api/v2/status"]


def test_a_header_without_a_value_is_wrong_usage() -> None:
    """It says how to write one."""
    done = subprocess.run(
        [sys.executable, "-m", "responder", "serve", "--policy=x", "--prometheus-header=gpu"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "write it as 'Name: value'" in done.stderr
