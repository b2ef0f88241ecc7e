"""The programs that are measured: the responder, its simulated cluster, Debian's webhook."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.alerts import NAMESPACE
from bench.errors import BenchError

ROOT = Path(__file__).parent.parent
ROUTE = "/api/v1/webhooks/alertmanager"


@dataclass(frozen=True, slots=True)
class Program:
    """A running program and its port."""

    process: "subprocess.Popen[bytes]"
    port: int
    path: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def peak_memory(self) -> dict[int, int]:
        """Bytes of resident memory at most so far, by process."""
        pids = [self.process.pid, *_children(self.process.pid)]
        return {pid: _peak(pid) for pid in pids}


@contextlib.contextmanager
def running(command: list[str], port: int, path: str, log: Path) -> Iterator[Program]:
    """The program, listening, until the block ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        wait(lambda: _listens(port) or process.poll() is not None, 60, f"{command[0]} listens, see {log}")
        if process.poll() is not None:
            raise BenchError(f"{command[0]} ended at once: {log.read_text()[-500:]}")
        yield Program(process, port, path)
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def responder(
    folder: Path, *, name: str, kubeconfig: Path | None = None, in_memory: bool = False, sync: str = "normal"
) -> contextlib.AbstractContextManager[Program]:
    """The service; without a kubeconfig its actor does nothing."""
    port = free_port()
    database = f"sqlite:{folder / name}.db"
    policy = Path(__file__).parent / "policies.yaml"
    given = {"policy": str(policy), "bind": f"127.0.0.1:{port}", "store": database, "store_sync": sync}
    if kubeconfig is None:
        command = [sys.executable, "-m", "bench.memory", json.dumps({**given, "in_memory": in_memory})]
    else:
        options = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        command = [sys.executable, "-m", "responder", "serve", *options, f"--kubeconfig={kubeconfig}"]
    return running(command, port, ROUTE, folder / f"{name}.log")


@contextlib.contextmanager
def simulated(folder: Path, targets: int) -> Iterator[Program]:
    """A simulated cluster with so many deployments, settled; its kubeconfig is in the folder."""
    workloads = [
        {"namespace": NAMESPACE, "kind": "Deployment", "name": f"w{i:04}", "replicas": 1, "load": "none"}
        for i in range(targets)
    ]
    spec = {"nodes": 250, "gpusPerNode": 8, "workloads": workloads}
    (folder / "sim.yaml").write_text(yaml.safe_dump(spec))
    port = free_port()
    command = [sys.executable, "-m", "responder", "sim", "--file", str(folder / "sim.yaml"), "--hold-load"]
    kubeconfig = folder / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    command += ["--port", str(port), "--kubeconfig-out", str(kubeconfig)]
    with running(command, port, "/", folder / "sim.log") as program:
        wait(kubeconfig.exists, 60, "the simulated cluster is ready")
        time.sleep(targets / 200)  # its pods start
        yield program


def webhook(folder: Path) -> contextlib.AbstractContextManager[Program]:
    """Debian's webhook, which runs /bin/true for each request and waits for it."""
    hook = {
        "id": "true",
        "execute-command": "/bin/true",
        "include-command-output-in-response": True,
        "http-methods": ["POST"],
    }
    (folder / "hooks.json").write_text(json.dumps([hook]))
    port = free_port()
    command = ["webhook", "-hooks", str(folder / "hooks.json"), "-ip", "127.0.0.1", "-port", str(port)]
    return running(command, port, "/hooks/true", folder / "webhook.log")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Until the condition is true. Raises BenchError when it is not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0
