"""The whole chain as real processes: a simulated cluster, services on one database, Alertmanager-like senders."""

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from responder.sim.defaults import apply_defaults, prepare_for_create
from responder.sim.manifests import manifest
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from responder.sim.spec import read_spec
from responder.sim.view import DEPLOYMENTS
from tests.serving import ROOT, ROUTE, alive, children, free_port, slot_of, until

NAMESPACE = "inference"
FIRING_ENDS_AT = "0001-01-01T00:00:00Z"


def request(
    port: int, method: str, path: str, body: bytes | None = None, timeout: float = 10, **headers: str
) -> tuple[int, bytes]:
    """One request on a connection of its own. Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Program:
    """A program in a session of its own, so that all that it starts can be reached and is ended with it.

    What it prints goes to `output`, and to its log without one.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, module: str = "responder", output: Path | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as errors, (output or log).open("ab") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def members(self) -> list[int]:
        """The pids of all its processes, itself first; those that have just ended may be among them."""
        return [self.pid, *children(self.pid)]

    def signal_all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to every process at once."""
        self.signal_all(signal.SIGKILL)
        self.process.wait(60)

    def stop(self, seconds: float = 90) -> int:
        """SIGTERM, and its status."""
        self.signal_all(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(seconds)

    def end(self) -> None:
        """Leave nothing of it."""
        if self.process.poll() is None:
            self.signal_all(signal.SIGCONT)
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        self.signal_all(signal.SIGKILL)
        self.process.wait(60)


@dataclass
class Sim:
    """A simulated cluster in a process of its own."""

    program: Program
    port: int
    kubeconfig: Path

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask and decode. AssertionError for an answer that is no success."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": "Bearer admin", "Content-Type": "application/json", **headers}
        status, answer = request(self.port, method, path, data, **headers)
        assert status < 300, f"{method} {path}: {status} {answer[:300]!r}"
        return json.loads(answer)

    def scales(self) -> list[dict[str, Any]]:
        """Every replica change that the server took, oldest first."""
        found = self.call("GET", "/sim/scales")
        assert found["total"] < 100_000, "the simulated server keeps no more than these"
        return list(found["scales"])

    def faults(self, rules: Sequence[Mapping[str, Any]], seed: int = 0) -> None:
        self.call("POST", "/sim/faults", {"rules": list(rules), "seed": seed})

    def struck(self) -> int:
        """How many requests were met by a fault of the rules in force."""
        return sum(rule["struck"] for rule in self.call("GET", "/sim/faults")["rules"])

    def replicas(self) -> dict[str, int]:
        """`spec.replicas` of every Deployment, by name."""
        found = self.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
        return {each["metadata"]["name"]: each["spec"].get("replicas", 0) for each in found["items"]}


@contextlib.contextmanager
def simulated(folder: Path, replicas: Mapping[str, int], *, still: bool = False) -> Iterator[Sim]:
    """A cluster with these Deployments and GPUs enough, without load.

    When `still`, no controller runs in it: a thousand Deployments then cost nothing, and have no pods.
    """
    kubeconfig, port = folder / "kubeconfig", free_port()
    spec = folder / "cluster.yaml"
    workloads = [
        {"namespace": NAMESPACE, "name": name, "replicas": count, "coldStartSeconds": 0.5, "load": "none"}
        for name, count in replicas.items()
    ]
    spec.write_text(yaml.safe_dump({"nodes": 32, "gpusPerNode": 16, "workloads": workloads}))
    if still:
        arguments, module = [str(spec), str(port), str(kubeconfig)], "tests.e2e.harness"
    else:
        arguments = ["sim", "--file", str(spec), "--port", str(port), "--kubeconfig-out", str(kubeconfig)]
        module = "responder"
    program = Program(arguments, folder / "sim.log", module)
    try:
        sim = Sim(program, port, kubeconfig)
        until(lambda: _answers(port, "/sim/scales"), seconds=120, what=f"the cluster, see {program.log}")
        yield sim
    finally:
        program.end()


def still_cluster(spec: Path, port: int, kubeconfig: Path) -> None:
    """Serve the API over what the file describes, and change nothing by itself, until told to stop."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    store = ObjectStore()
    server = SimServer(store, port=port)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    create(store, "namespaces", namespace)
    for workload in read_spec(spec).workloads:
        create(store, DEPLOYMENTS, manifest(workload))
    server.kubeconfig(kubeconfig)
    with server:
        stopped.wait()


def create(store: ObjectStore, resource: str, thing: dict[str, Any]) -> None:
    """As the API server does, by somebody who is not us."""
    apply_defaults(resource, thing)
    prepare_for_create(resource, thing)
    store.create(resource, thing, manager="kubectl-create")


def _answers(port: int, path: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return request(port, "GET", path, timeout=5)[0] == 200
    return False


class Service:
    """`gpu-responder serve` on one port, started as often as it is killed."""

    def __init__(
        self, folder: Path, sim: Sim, name: str, *, workers: int = 1, threads: int = 4, store: str = ""
    ) -> None:
        self.name = name
        self.port = free_port()
        self.database = folder / "store.db"
        self.log = folder / f"serve-{name}.log"
        self.audit = folder / f"audit-{name}.log"
        self.starts = 0
        self._arguments = [
            "serve",
            *("--policy", str(folder / "policies.yaml")),
            *("--bind", f"127.0.0.1:{self.port}"),
            *("--store", store or f"sqlite:{self.database}"),
            *("--kubeconfig", str(sim.kubeconfig)),
            *("--workers", str(workers), "--threads", str(threads)),
            *("--log-format", "human"),
        ]
        self._workers = workers
        self.program: Program | None = None

    def start(self) -> None:
        self.starts += 1
        self.program = Program(self._arguments, self.log, output=self.audit)

    def kill(self) -> None:
        """SIGKILL to every process of it at once."""
        if self.program is not None:
            self.program.kill()

    def stop(self) -> int:
        assert self.program is not None
        return self.program.stop()

    def end(self) -> None:
        if self.program is not None:
            self.program.end()

    def pids(self) -> list[int]:
        """Master first, then the workers; empty while it is down."""
        return self.program.members() if self.program and self.program.process.poll() is None else []

    def workers(self) -> list[int]:
        return self.pids()[1:]

    def actor(self) -> int | None:
        """The process that acts when it holds the lease."""
        return next((pid for pid in self.workers() if slot_of(pid) == "actor"), None)

    def webs(self) -> list[int]:
        return [pid for pid in self.workers() if slot_of(pid).startswith("web-")]

    def complete(self) -> bool:
        """True when it answers and no process of it is missing."""
        return self.ready() and len(self.webs()) == self._workers and self.actor() is not None

    def complete_or_dead(self) -> bool:
        """As `complete`, but also when there is nothing to wait for."""
        return not self.pids() or self.complete()

    def ready(self) -> bool:
        return _answers(self.port, "/-/ready")

    def metrics(self) -> dict[str, float]:
        """Every sample, by its name and the values of its labels."""
        status, page = request(self.port, "GET", "/metrics")
        assert status == 200
        return {
            sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(page.decode())
            for sample in family.samples
        }


@contextlib.contextmanager
def services(
    folder: Path,
    sim: Sim,
    policies: str,
    count: int = 1,
    *,
    workers: int = 1,
    threads: int = 4,
    store: str = "",
) -> Iterator[list[Service]]:
    """So many services on one store, ready; at the end nothing is left of them, however they were killed."""
    (folder / "policies.yaml").write_text(policies)
    made = [
        Service(folder, sim, "abc"[number], workers=workers, threads=threads, store=store)
        for number in range(count)
    ]
    try:
        for service in made:
            service.start()
        for service in made:
            until(service.complete_or_dead, seconds=120, what=f"the service is ready, see {service.log}")
            assert service.pids(), f"the service ended: {service.log.read_text()[-500:]}"
        yield made
    finally:
        for service in made:
            service.end()


def send(number: int, pid: int) -> bool:
    """A signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def cpu_seconds(pid: int) -> float:
    """Processor time that the process has used so far."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int, which: str = "VmRSS") -> int:
    """Memory of the process now, or at its peak with `VmHWM`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) * 1024
    return 0


# Senders


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as an Alertmanager knows it."""

    fingerprint: str
    labels: Mapping[str, str]
    starts_at: datetime
    ends_at: datetime | None = None

    @property
    def firing(self) -> bool:
        return self.ends_at is None

    def resolved(self, at: datetime) -> "Alert":
        return replace(self, ends_at=at)

    def json(self) -> dict[str, Any]:
        return {
            "status": "firing" if self.firing else "resolved",
            "labels": dict(self.labels),
            "annotations": {},
            "startsAt": self.starts_at.isoformat(),
            "endsAt": FIRING_ENDS_AT if self.ends_at is None else self.ends_at.isoformat(),
            "generatorURL": "",
            "fingerprint": self.fingerprint,
        }


def webhook(alerts: Sequence[Alert], receiver: str = "gpu-responder", group: str = "{}") -> bytes:
    """The body that Alertmanager posts for a group."""
    return json.dumps(
        {
            "version": "4",
            "groupKey": group,
            "truncatedAlerts": 0,
            "status": "firing" if any(alert.firing for alert in alerts) else "resolved",
            "receiver": receiver,
            "groupLabels": {},
            "commonLabels": {},
            "commonAnnotations": {},
            "externalURL": "http://alertmanager",
            "alerts": [alert.json() for alert in alerts],
        }
    ).encode()


def deliver(port: int, body: bytes, timeout: float = 10) -> int:
    """The status of the answer, or 0 if there was none."""
    try:
        return request(port, "POST", ROUTE, body, timeout, **{"Content-Type": "application/json"})[0]
    except (OSError, http.client.HTTPException):
        return 0


@dataclass
class _Group:
    alerts: dict[str, Alert] = field(default_factory=dict)
    changed: bool = False


class Sender:
    """Notifies of groups as Alertmanager does: whole groups, the same again until acknowledged, now and then anew.

    A resolved alert leaves its group once that was acknowledged. `lag` is the longest wait before a notification,
    in seconds. Also sends, in a network's or a second Alertmanager's manner, what it had sent long before.
    """

    def __init__(self, name: str, ports: Sequence[int], seed: int, lag: float) -> None:
        self.name = name
        self._ports = ports
        self._lag = lag
        self._chance = random.Random(f"{seed} {name}")
        self._groups: dict[str, _Group] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.acknowledged: set[tuple[str, datetime, bool]] = set()
        """Of each alert, by fingerprint and startsAt, what was acknowledged: that it fires or that it is over."""
        self.deliveries = 0
        self.repeats = 0
        self.tries = 0
        self.statuses: dict[int, int] = {}

    def tell(self, group: str, *alerts: Alert) -> None:
        """The alerts are now so, together."""
        with self._lock:
            known = self._groups.get(group)
            if known is None:
                known = self._groups[group] = _Group()
                thread = threading.Thread(target=self._run, args=(group,), name=f"{self.name}-{group}")
                self._threads.append(thread)
                thread.start()
            known.alerts.update({alert.fingerprint: alert for alert in alerts})
            known.changed = True

    def idle(self) -> bool:
        """True when all that it was told has been acknowledged."""
        with self._lock:
            return not any(group.changed for group in self._groups.values())

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, name: str) -> None:
        chance = random.Random(f"{self._chance.random()} {name}")
        earlier: list[bytes] = []
        while not self._stop.wait(chance.uniform(0.02, self._lag)):
            with self._lock:
                group = self._groups[name]
                repeats = not group.changed
                alerts = list(group.alerts.values())
            if not alerts or (repeats and chance.random() > 0.1):
                continue
            body = webhook(alerts, group=name)
            if not self._until_acknowledged(body, chance):
                return
            with self._lock:
                self.deliveries += 1
                self.repeats += repeats
                self.acknowledged |= {(each.fingerprint, each.starts_at, each.firing) for each in alerts}
                for alert in alerts:
                    if not alert.firing and group.alerts.get(alert.fingerprint) == alert:
                        del group.alerts[alert.fingerprint]
                told = {alert.fingerprint: alert for alert in alerts}
                group.changed = any(told.get(key) != alert for key, alert in group.alerts.items())
            earlier.append(body)
            if chance.random() < 0.25:
                # Twice at once to both, or something old.
                again = body if chance.random() < 0.5 else chance.choice(earlier[-20:])
                for port in self._ports:
                    self.repeats += self._try(port, again) == 200

    def _until_acknowledged(self, body: bytes, chance: random.Random) -> bool:
        wait, first = 0.1, chance.randrange(len(self._ports))
        for number in range(10_000):
            status = self._try(self._ports[(first + number) % len(self._ports)], body)
            if status == 200:
                return True
            if self._stop.wait(wait * chance.uniform(0.5, 1.5)):
                return False
            wait = min(wait * 1.5, 1.0)
        return False

    def _try(self, port: int, body: bytes) -> int:
        status = deliver(port, body, timeout=5)
        with self._lock:
            self.tries += 1
            self.statuses[status] = self.statuses.get(status, 0) + 1
        return status


def now() -> datetime:
    return datetime.now(UTC)


def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
    """As `until`, but what it gives in the end, true or not."""
    with contextlib.suppress(AssertionError):
        return until(condition, seconds)
    return condition()


def left_of(pids: Sequence[int]) -> list[int]:
    """Those that still run."""
    return [pid for pid in pids if alive(pid)]


if __name__ == "__main__":
    still_cluster(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
