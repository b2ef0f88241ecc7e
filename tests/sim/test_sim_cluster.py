"""The assembled cluster over HTTP, and the command that serves it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from responder.sim.cluster import SimCluster
from responder.sim.load import parse_trace
from responder.sim.spec import ClusterSpec, WorkloadSpec
from responder.sim.view import Workload

VLLM = Workload("inference", "Deployment", "vllm")


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `condition` returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


def get(url: str) -> Any:
    """A page's JSON."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def post(url: str, body: object) -> tuple[int, Any]:
    """Status and JSON of a POST."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    with SimCluster(speed=600) as running:
        yield running


@pytest.fixture
def apps(cluster: SimCluster, tmp_path: Path) -> Iterator[client.AppsV1Api]:
    path = cluster.kubeconfig(tmp_path / "kubeconfig")
    with config.new_client_from_config(str(path)) as api:
        yield client.AppsV1Api(api)


def of_vllm(cluster: SimCluster) -> dict[str, Any]:
    """The truth about the first workload."""
    found: dict[str, Any] = next(w for w in cluster.truth()["workloads"] if w["name"] == "vllm")
    return found


def test_a_cluster_starts_with_its_workloads_ready_and_no_requests(cluster: SimCluster) -> None:
    """As if it had been running all along."""
    truth = cluster.truth()
    assert truth["loadSeconds"] is None
    assert truth["gpus"] == {"total": 16, "held": 2}
    for workload in truth["workloads"]:
        assert (workload["replicasWanted"], workload["ready"], workload["arrived"]) == (1, 1, 0)


def test_scaling_through_the_official_client_makes_pods_that_take_their_share(
    cluster: SimCluster, apps: client.AppsV1Api
) -> None:
    """Scale, pods, readiness, utilization: the loop that the responder closes."""
    cluster.set_rate(VLLM, 2.4)
    cluster.start_load()
    until(lambda: of_vllm(cluster)["utilization"] == 1 and of_vllm(cluster)["waiting"] > 10)
    apps.patch_namespaced_deployment_scale("vllm", "inference", {"spec": {"replicas": 3}})
    until(lambda: of_vllm(cluster)["ready"] == 3)
    assert apps.read_namespaced_deployment_status("vllm", "inference").spec.replicas == 3
    until(lambda: 0.78 < of_vllm(cluster)["utilization"] < 0.82)
    assert of_vllm(cluster)["waiting"] == 0
    assert of_vllm(cluster)["minutesSaturated"] > 0
    until(lambda: apps.read_namespaced_deployment_status("vllm", "inference").status.ready_replicas == 3)
    (scale,) = get(f"{cluster.url}/sim/scales")["scales"]
    assert (scale["namespace"], scale["name"], scale["from"], scale["to"]) == ("inference", "vllm", 1, 3)


def test_more_than_there_are_gpus_for_stays_pending(cluster: SimCluster, apps: client.AppsV1Api) -> None:
    """16 GPUs, one of them the other workload's."""
    apps.patch_namespaced_deployment_scale("vllm", "inference", {"spec": {"replicas": 20}})
    until(lambda: of_vllm(cluster)["ready"] == 15)
    truth = of_vllm(cluster)
    assert (truth["replicasWanted"], truth["pods"], truth["pending"]) == (20, 20, 5)


def test_truth_and_faults_are_served_over_http(cluster: SimCluster) -> None:
    """For a demo or a test in another process."""
    assert get(f"{cluster.url}/sim/truth")["loadSeconds"] is None
    assert post(f"{cluster.url}/sim/load", {"start": True})[0] == 200
    assert get(f"{cluster.url}/sim/truth")["loadSeconds"] >= 0
    rate = {"namespace": "inference", "kind": "Deployment", "name": "vllm", "requestsPerSecond": 0.7}
    assert post(f"{cluster.url}/sim/load", rate)[0] == 200
    until(lambda: of_vllm(cluster)["requestsPerSecond"] == 0.7)
    hot = {"node": "gpu-node-1", "gpu": 0, "temperatureCelsius": 95}
    assert post(f"{cluster.url}/sim/telemetry", hot)[0] == 200
    with urllib.request.urlopen(f"{cluster.url}/metrics/dcgm/gpu-node-1", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert re.search(rb'^DCGM_FI_DEV_GPU_TEMP\{gpu="0".*\} 95$', answer.read(), re.MULTILINE)


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        pytest.param("/sim/load", [], "object", id="a list"),
        pytest.param("/sim/load", {"requestsPerSecond": -1}, "at least 0", id="a negative rate"),
        pytest.param(
            "/sim/load", {"requestsPerSecond": 1, "name": "x"}, "no workload", id="an unknown workload"
        ),
        pytest.param("/sim/telemetry", {"hot": 1}, "unknown key", id="an unknown fault"),
    ],
)
def test_a_request_that_makes_no_sense_gets_a_sentence(
    cluster: SimCluster, path: str, body: object, word: str
) -> None:
    """400, and why."""
    status, answer = post(cluster.url + path, body)
    assert status == 400
    assert word in answer["error"]


def test_a_trace_replaces_the_day_and_is_scaled_to_the_cluster() -> None:
    """Whatever its own level, its peak needs peakReplicas."""
    trace = parse_trace("t_seconds,requests_per_second\n0,500\n100000,500\n")
    spec = ClusterSpec(workloads=(WorkloadSpec(peak_replicas=3),))
    with SimCluster(spec, speed=600, trace=trace) as cluster:
        cluster.start_load()
        assert until(lambda: of_vllm(cluster)["requestsPerSecond"]) == pytest.approx(2.4)


def test_without_a_kubelet_readiness_is_the_tests_business() -> None:
    """Nothing becomes ready until told."""
    with SimCluster(speed=600, kubelet=False) as cluster:
        (pod,) = cluster.store.list("pods", "inference", "app.kubernetes.io/name=vllm")
        assert of_vllm(cluster)["ready"] == 0
        assert cluster.set_ready("inference", pod["metadata"]["name"])
        until(lambda: of_vllm(cluster)["ready"] == 1)


def run_sim(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    code = "from responder.sim.command import command; command()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_the_command_prints_addresses_serves_and_ends_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    """And leaves no port behind."""
    kubeconfig = tmp_path / "kubeconfig"
    process = run_sim(
        "--kubeconfig-out", str(kubeconfig), "--workload", "ml/statefulset/db=2", "--speed", "60"
    )
    assert process.stdout is not None
    lines = []
    with process:
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        url = next(word for word in lines[0].split() if word.startswith("http://"))
        (workload,) = get(f"{url}/sim/truth")["workloads"]
        assert (workload["namespace"], workload["name"], workload["ready"]) == ("ml", "db", 2)
        assert kubeconfig.stat().st_mode & 0o077 == 0
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with pytest.raises(OSError, match="refused"):
        get(f"{url}/sim/truth")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        pytest.param(["--workload", "x"], 2, "namespace/kind/name=replicas", id="a bad workload"),
        pytest.param(["--trace", "/no/such.csv"], 2, "/no/such.csv: no such file", id="a missing trace"),
        pytest.param(["--file", "/no/such.yaml"], 2, "/no/such.yaml: no such file", id="a missing file"),
        pytest.param(["--speed", "0"], 2, "--speed", id="no speed"),
        pytest.param(["--speed", "nan"], 2, "speed is nan", id="a speed that is no number"),
        pytest.param(["--kubeconfig-out", "/no/such/dir/x"], 1, "cannot be written", id="nowhere to write"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], status: int, words: str) -> None:
    """Never a traceback."""
    process = run_sim(*arguments)
    _, said = process.communicate(timeout=20)
    assert process.returncode == status
    assert words in said
    assert "Traceback" not in said


def test_a_taken_port_is_one_sentence(cluster: SimCluster) -> None:
    """It names the port and the way out."""
    port = cluster.url.rpartition(":")[2]
    process = run_sim("--port", port)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said.strip() == (
        f"Error: cannot listen on port {port} (Address already in use); choose another with --port."
    )
