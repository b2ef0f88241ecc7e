"""Three replicas on one API server that also keeps their state: killed, paused and cut off, and accounted for.

GPU_RESPONDER_REPLICA_KILLS sets how many whole replicas are killed (8), GPU_RESPONDER_SEED makes other choices.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from responder.errors import StoreUnavailable
from responder.model import HistoryEntry, Outcome
from responder.settle import MANAGER
from responder.store.kubernetes import KubernetesStore
from tests.e2e.harness import Sender, Sim, left_of, services, simulated
from tests.e2e.test_kills import (
    FAULTS,
    POLICIES,
    SEED,
    TARGETS,
    Chaos,
    Script,
    check_metrics,
    script_ends,
    settle_accounts,
)

KILLS = int(os.environ.get("GPU_RESPONDER_REPLICA_KILLS", "8"))
STORE = "gpu-responder"
STORE_FAULTS = [
    {"methods": methods, "path": path, "userAgent": MANAGER, **fault}
    for methods, path in (
        (["POST", "PATCH", "DELETE"], "/configmaps"),
        (["POST", "PUT"], "/leases"),
    )
    for fault in (
        {"probability": 0.02, "fault": "status", "status": 500},
        {"probability": 0.02, "fault": "status", "status": 409},
        {"probability": 0.01, "fault": "status", "status": 429, "retryAfterSeconds": 1},
        {"probability": 0.02, "fault": "reset"},
        {"probability": 0.04, "fault": "applyThenReset"},
        {"probability": 0.02, "fault": "hang", "seconds": 1},
        {"probability": 0.01, "fault": "applyThenHang", "seconds": 4},
    )
]


class Books:
    """Reads history all the time, since a store in ConfigMaps keeps a target's last decisions only."""

    def __init__(self, store: KubernetesStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._lines: dict[int, HistoryEntry] = {}

    def read(self) -> None:
        for _ in range(100):
            with suppress(StoreUnavailable):
                found = {line.id: line.entry for line in self._store.history(limit=100_000)}
                with self._lock:
                    self._lines |= found
                return
            time.sleep(0.05)
        raise AssertionError("history cannot be read")

    def entries(self) -> list[HistoryEntry]:
        """All, oldest first."""
        with self._lock:
            return [self._lines[number] for number in sorted(self._lines)]

    def uncertain(self) -> set[tuple[str, str]]:
        self.read()
        return {
            (entry.target, alert)
            for entry in self.entries()
            if entry.outcome is Outcome.UNCERTAIN
            for alert in entry.alerts
        }


@contextmanager
def cutting(sim: Sim, seed: int) -> Iterator[list[int]]:
    """Resets every connection to the API server now and then."""
    chance, stop, cuts = random.Random(f"{seed} cuts"), threading.Event(), [0]

    def run() -> None:
        while not stop.wait(chance.uniform(1, 5)):
            with suppress(OSError):
                sim.call("POST", "/sim/cut")
            cuts[0] += 1

    thread = threading.Thread(target=run, name="cuts")
    thread.start()
    try:
        yield cuts
    finally:
        stop.set()
        thread.join(20)


@pytest.mark.timeout(900 + 20 * KILLS)
def test_every_scale_is_accounted_for_one_for_one(tmp_path: Path) -> None:
    """No change without its line, no line without its change, no episode with two effects; and all go on after."""
    began = time.monotonic()
    print(f"\nGPU_RESPONDER_SEED={SEED} GPU_RESPONDER_REPLICA_KILLS={KILLS}")
    with simulated(tmp_path, dict.fromkeys(TARGETS, 8)) as sim:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STORE}}
        sim.call("POST", "/api/v1/namespaces", namespace)
        with (
            services(tmp_path, sim, POLICIES, 3, workers=1, store=f"kubernetes:{STORE}") as three,
            closing(KubernetesStore(STORE, str(sim.kubeconfig))) as store,
        ):
            sim.faults(FAULTS + STORE_FAULTS, SEED)
            ports = [service.port for service in three]
            senders = [Sender("am-0", ports, SEED, 0.3), Sender("am-1", ports, SEED, 1.0)]
            books = Books(store)
            script = Script(sim, senders, books.uncertain, SEED)
            chaos = Chaos(three, SEED)
            killing = threading.Thread(target=chaos.run, args=(KILLS,), name="chaos")
            try:
                killing.start()
                with cutting(sim, SEED) as cuts:
                    while killing.is_alive():
                        script.step()
                        time.sleep(0.3)
                struck = sim.struck()
                sim.faults([])
                script_ends(script, senders, three)
            finally:
                for sender in senders:
                    sender.stop()
                killing.join(60)
                chaos.let_go()
            books.read()
            samples = [service.metrics() for service in three]
            pids = [pid for service in three for pid in service.pids()]
            stopped = [service.stop() for service in three]
            books.read()
            found = settle_accounts(store, books.entries(), sim, script, senders)
    found.counts |= {"requests met by a fault": struck, "cuts": cuts[0], **chaos.counts}
    for sample in samples:
        check_metrics(found, sample)
    if stopped != [0, 0, 0]:
        found.faults.append(f"stopping ended with {stopped}")
    if left_of(pids):
        found.faults.append("processes were left")
    found.faults += [
        f"a traceback is in {service.log}" for service in three if "Traceback" in service.log.read_text()
    ]
    found.counts["seconds"] = round(time.monotonic() - began)
    print(found.table())
    assert not found.faults, found.table()
    assert found.counts["matched one for one"] > KILLS
    assert found.counts["requests met by a fault"] > KILLS
