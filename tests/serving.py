"""Starts the real service for tests: gunicorn, its processes and a database, with an actor that is simple.

Run as a program it serves; the actor drains the inbox into history, one line for each alert, so that a test can
account for every delivery that was acknowledged.
"""

import contextlib
import fcntl
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from responder import serve
from responder.errors import ResponderError, StoreUnavailable
from responder.model import Commit, HistoryEntry, Reason
from responder.serve import Options, run
from responder.settings import SettingsSource
from responder.store.holder import this_process
from responder.store.sqlite import SqliteStore

ROOT = Path(__file__).parent.parent
ROUTE = "/api/v1/webhooks/alertmanager"
POLICIES = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: all
  matchers: ['workload_type="deployment"']
  minReplicas: 1
  maxReplicas: 8
  triggers:
  - name: up
    matchers: ['action="scale_up"']
    scale: {direction: Up, type: Pods, value: 1}
"""


class DrainingActor:
    """Moves what is in the inbox to history while it holds the lease."""

    def __init__(self, store: SqliteStore, source: SettingsSource) -> None:
        self._store = store
        self._source = source

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
        while not stop.is_set():
            beat()
            try:
                if self._store.lease("actor", this_process(), timedelta(seconds=5), datetime.now(UTC)):
                    self._drain()
            except StoreUnavailable:
                time.sleep(0.1)
            self._store.wait(0.5)

    def _drain(self) -> None:
        while kept := self._store.inbox(100):
            history = tuple(
                HistoryEntry(
                    each.received_at,
                    "n/deployment/w",
                    1,
                    1,
                    Reason.NOTHING_FIRING,
                    alert.fingerprint,
                    policy=self._source.current.policies[0].name,
                )
                for _, each in kept
                for alert in each.notifications
            )
            self._store.commit(Commit(history=history, drained=tuple(identity for identity, _ in kept)))


_TAKEN: list[int] = []
"""Open files, each locked: no other test process is given their ports while this one lives."""


def free_port() -> int:
    """A port that nobody has, nor will be given before whoever it is meant for takes it.

    The system gives those from 32768 on to whoever connects or binds port 0.
    """
    locks = Path(tempfile.gettempdir()) / f"gpu-responder-test-ports-{os.getuid()}"
    locks.mkdir(exist_ok=True)
    # Not of the module's own generator, which Hypothesis seeds.
    for port in random.SystemRandom().sample(range(20_000, 32_000), 1_000):
        lock = os.open(locks / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with socket.socket() as probe, contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            probe.bind(("127.0.0.1", port))
            _TAKEN.append(lock)
            return port
        os.close(lock)
    raise AssertionError("no port is free")


def until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "") -> Any:
    """What the condition gives as soon as it is true; AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds:g} s: {what or condition}")


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]
    return []


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass
class Serving:
    """A running service."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    port: int
    log: Path

    @property
    def database(self) -> Path:
        return self.folder / "store.db"

    def workers(self) -> list[int]:
        return children(self.process.pid)

    def actor(self) -> int | None:
        """The pid of the process that acts."""
        return next((pid for pid in self.workers() if slot_of(pid) == "actor"), None)

    def webs(self) -> list[int]:
        return [pid for pid in self.workers() if slot_of(pid).startswith("web-")]

    def request(
        self, method: str, path: str, body: bytes | None = None, timeout: float = 60, **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def deliver(self, *fingerprints: str) -> int:
        """The status, or 0 if there was none."""
        try:
            status, _ = self.request(
                "POST", ROUTE, payload(*fingerprints), **{"Content-Type": "application/json"}
            )
        except (OSError, http.client.HTTPException):
            return 0
        return status

    def ready(self) -> bool:
        try:
            return self.request("GET", "/-/ready", timeout=10)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def ended(self) -> bool:
        return self.process.poll() is not None

    def shared(self) -> Path:
        """The folder that its processes share."""
        for fd in os.listdir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(OSError):
                path = Path(os.readlink(f"/proc/{self.process.pid}/fd/{fd}"))
                if path.name == "owner":
                    return path.parent
        raise AssertionError("it has no folder")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(90)

    def kill(self) -> None:
        """kill -9 of every process at once, as an outage of the machine's memory would."""
        pids = (self.process.pid, *self.workers())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)
        # They may still have the port and the database when the master is gone.
        until(lambda: not any(map(alive, pids)), seconds=60, what="all of it has ended")


def slot_of(pid: int) -> str:
    """Which of the service's slots a process has taken; empty while it has none."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = os.path.basename(os.readlink(f"/proc/{pid}/fd/{fd}"))
                # Whoever looks for a free slot has the others open for a moment, without their lock.
                if name.partition(" ")[0].endswith(".slot") and _is_locked(pid, fd):
                    return name.partition(".slot")[0]
    return ""


def _is_locked(pid: int, fd: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as info:
        return "FLOCK" in info.read()


def payload(*fingerprints: str) -> bytes:
    labels = {
        "alertname": "A",
        "namespace": "n",
        "workload": "w",
        "workload_type": "deployment",
        "action": "scale_up",
    }
    alerts = [
        {"status": "firing", "labels": labels, "startsAt": "2026-11-30T12:00:00Z", "fingerprint": each}
        for each in fingerprints
    ]
    return json.dumps({"version": "4", "alerts": alerts}).encode()


@contextlib.contextmanager
def serving(
    folder: Path, *, workers: int = 1, port: int = 0, wait: bool = True, **more: Any
) -> Iterator[Serving]:
    """The service, until the block ends; then nothing of it is left."""
    policy = folder / "policies.yaml"
    if not policy.exists():
        policy.write_text(POLICIES)
    port = port or free_port()
    options = {"policy": str(policy), "bind": f"127.0.0.1:{port}", "workers": workers, **more}
    options.setdefault("store", f"sqlite:{folder / 'store.db'}")
    log = folder / f"serve-{port}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.serving", json.dumps(options)],
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )
    service = Serving(process, folder, port, log)
    try:
        if wait:
            until(lambda: service.ended() or (service.ready() and service.actor()), what=f"ready, see {log}")
            assert not service.ended(), log.read_text()[-2000:]
        yield service
    finally:
        for pid in service.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                service.kill()


def kept(database: Path) -> list[str]:
    """The fingerprints of every alert in history or inbox."""
    store = SqliteStore(database)
    try:
        waiting = [alert.fingerprint for _, each in store.inbox(100_000) for alert in each.notifications]
        return waiting + [each.entry.message for each in store.history(limit=1_000_000)]
    finally:
        store.close()


def main(arguments: Sequence[str]) -> None:
    given = json.loads(arguments[0])
    serve.STALL_SECONDS = given.pop("stall_seconds", serve.STALL_SECONDS)
    options = Options(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    )
    try:
        run(options, lambda _options, store, source, _started_at: DrainingActor(store, source))
    except ResponderError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
