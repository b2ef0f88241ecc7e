"""The demo as a person runs it: real Prometheus, real Alertmanager, real service, and nothing left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.serving import free_port

DEMO = [sys.executable, "-m", "responder", "demo"]


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **(env or {})},
        check=False,
    )


def logs_of(output: str) -> Path:
    found = re.search(r"logs\s+(\S+)", output)
    assert found, output
    return Path(found[1])


def left_behind(directory: Path) -> list[str]:
    """Command lines of processes that belong to the run with this directory."""
    return [
        " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline"])
        if any(str(directory) in word for word in process.info["cmdline"] or ())
    ]


@pytest.mark.timeout(1200)
def test_the_loop_closes() -> None:
    """Real alerts scale a workload up under load and down after, once each, and every delivery is taken."""
    done = run("--speed", "60")
    if "this machine is too slow for --speed 60; try half of it" in done.stdout:
        done = run("--speed", "30")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert re.search(r"scale-ups\s+[1-9]", done.stdout)
    assert re.search(r"scale-downs\s+[1-9]", done.stdout)
    assert re.search(r"replicas\s+1 → .*→ 1\n", done.stdout)
    assert "ScaledUp: Scaling inference/deployment/vllm from 1 to" in done.stdout
    assert "PROBLEM" not in done.stdout
    assert left_behind(logs_of(done.stdout)) == []


@pytest.mark.parametrize(
    "sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "SIGTERM", "a closed terminal"]
)
def test_stopping_it_leaves_nothing_behind(sign: signal.Signals) -> None:
    """All programs are gone and the responder's port is free when the demo has been told to stop."""
    port = free_port()
    demo = subprocess.Popen(
        [*DEMO, "--port", str(port)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert demo.stdout is not None
    text = ""
    deadline = time.monotonic() + 180
    while "req/s" not in text:
        line = demo.stdout.readline()
        assert line, text
        assert time.monotonic() < deadline, text
        text += line
    demo.send_signal(sign)
    rest, _ = demo.communicate(timeout=120)
    assert demo.returncode == 130
    assert "Ended by you" in rest
    assert "Traceback" not in text + rest
    assert left_behind(logs_of(rest)) == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_a_taken_port_is_one_sentence() -> None:
    """The port and what to do about it, and no traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("--port", str(port))
    assert done.returncode == 1
    assert f"Port {port} cannot be used" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_program_is_one_sentence(tmp_path: Path) -> None:
    """Which one, and how to get it."""
    done = run(env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "prometheus is not on PATH; install it" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_broken_trace_is_one_sentence(tmp_path: Path) -> None:
    """The file, the column and the mend, before anything is started."""
    trace = tmp_path / "trace.csv"
    trace.write_text("t_seconds,requests\n0,1\n")
    done = run("--trace", str(trace))
    assert done.returncode == 1
    assert f"{trace}: line 1: column requests_per_second is missing" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
