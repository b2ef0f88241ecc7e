"""A storm: 10,000 alerts at once, a target that hangs, news that overtakes work, a stop in the middle of it."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from responder.store.sqlite import SqliteStore
from tests.e2e.accounting import Told, account, check_end
from tests.e2e.harness import (
    NAMESPACE,
    Alert,
    Service,
    Sim,
    cpu_seconds,
    deliver,
    now,
    rss_bytes,
    services,
    simulated,
    webhook,
)
from tests.serving import until

pytestmark = pytest.mark.timeout(900)
TARGETS = tuple(f"t{number:04}" for number in range(1000))
PER_TARGET = 10
MIB = 2**20
POLICIES = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: all
  matchers: ['workload_type="deployment"']
  minReplicas: 0
  maxReplicas: 8
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    namespace: '{{ $labels.namespace }}'
    name: '{{ $labels.workload }}'
  triggers:
  - name: up
    matchers: ['action="scale_up"']
    scale: {direction: Up, type: Pods, value: 1}
  behavior:
    scaleUp: {cooldownSeconds: 0, stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 8, periodSeconds: 1}]}
"""


def alerts_of(targets: Sequence[str], per_target: int = PER_TARGET) -> list[Alert]:
    """So many alerts of each target, as of pods, in an order that leaves no target together."""
    starts_at = now()
    return [
        Alert(
            f"{target}-{pod}",
            {
                "alertname": "Saturated",
                "namespace": NAMESPACE,
                "workload": target,
                "workload_type": "deployment",
                "action": "scale_up",
                "pod": f"{target}-{pod}",
                "severity": "warning",
            },
            starts_at,
        )
        for pod in range(per_target)
        for target in targets
    ]


def told_of(target: str, alerts: Sequence[Alert], *, awaited: bool = True) -> Told:
    mine = [alert for alert in alerts if alert.labels["workload"] == target]
    names = frozenset(alert.fingerprint for alert in mine)
    return Told(key_of(target), "up", 1, names, mine[0].starts_at, awaited=awaited)


def key_of(target: str) -> str:
    return f"{NAMESPACE}/deployment/{target}"


def done(sim: Sim) -> set[str]:
    """The targets that were scaled."""
    return {scale["name"] for scale in sim.scales()}


@pytest.fixture(scope="module")
def storm_sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """A cluster with 1,000 Deployments that nothing changes but scaling."""
    with simulated(tmp_path_factory.mktemp("storm"), dict.fromkeys(TARGETS, 1), still=True) as sim:
        yield sim


@pytest.fixture
def sim(storm_sim: Sim) -> Iterator[Sim]:
    """The same, its log of changes empty and without faults."""
    storm_sim.call("DELETE", "/sim/scales")
    storm_sim.faults([])
    yield storm_sim
    storm_sim.faults([])


def accounts(database: Path, sim: Sim, told: Sequence[Told], alerts: Sequence[Alert]) -> dict[str, int]:
    """Exact, as after kills; gives the counts."""
    store = SqliteStore(database)
    try:
        history = [stored.entry for stored in reversed(store.history(limit=1_000_000))]
        found = account(sim.scales(), history, told)
        last = {
            (key_of(alert.labels["workload"]), alert.fingerprint): (alert.starts_at, alert.ends_at)
            for alert in alerts
        }
        records = [record for record, _ in store.records()]
        replicas = {key_of(name): count for name, count in sim.replicas().items()}
        check_end(found, records, replicas, last, (0, 8))
        assert not store.inbox(1)
    finally:
        store.close()
    print(f"\n{found.table()}")
    assert not found.faults, found.table()
    return found.counts


def processes_of(service: Service) -> dict[str, int]:
    """Peak memory of each process, in MiB."""
    names = ["master", *(f"worker-{number}" for number in range(len(service.workers())))]
    return {name: rss_bytes(pid, "VmHWM") // MIB for name, pid in zip(names, service.pids(), strict=True)}


def test_ten_thousand_alerts_become_one_effect_for_each_of_a_thousand_targets(
    tmp_path: Path, sim: Sim
) -> None:
    """In one group, and as a repeat; targets that hang hold up no other; memory is bounded; then it rests."""
    # More than the actor has threads for looks.
    hung = set(TARGETS[::40])
    sim.faults([{"path": f"/deployments/({'|'.join(hung)})(/|$)", "fault": "hang", "seconds": 60}])
    alerts = alerts_of(TARGETS)
    body = webhook(alerts)
    with services(tmp_path, sim, POLICIES, workers=2) as [service]:
        began = time.monotonic()
        assert deliver(service.port, body, timeout=60) == 200
        taken = time.monotonic() - began
        assert deliver(service.port, body, timeout=60) == 200
        until(lambda: done(sim) >= set(TARGETS) - hung, seconds=200, what="all others are scaled")
        acted = time.monotonic() - began
        assert not done(sim) & hung
        sim.faults([])
        until(lambda: done(sim) >= hung, seconds=120, what="those that hung are scaled in the end")
        until(lambda: is_settled(service), seconds=90)
        peaks = processes_of(service)
        seconds = cpu_seconds(service.actor() or 0)
        # Events on the targets are written behind, and slowly.
        until(lambda: sum(used(service, 1).values()) < 0.04, seconds=60, what="nothing is left to do")
        idle = used(service, 5)
        assert service.stop() == 0
    print(
        f"\ntaken in {taken:.2f} s (budget 2 s), acted on in {acted:.1f} s, {seconds:.1f} s of CPU in the actor"
    )
    print(f"peak memory in MiB: {peaks}; CPU seconds in 5 s of rest: {idle}")
    assert sum(idle.values()) < 0.25, "it does not rest while nothing is due"
    counts = accounts(
        tmp_path / "store.db", sim, [told_of(name, alerts[i::1000]) for i, name in enumerate(TARGETS)], alerts
    )
    assert counts["  of them ours"] == len(TARGETS)
    assert counts["  with one effect"] == len(TARGETS)
    # 10,000 alerts of 10 MB are held at once by the one that takes them in, and their spans by the one that acts.
    assert max(peaks.values()) < 256


def is_settled(service: Service) -> bool:
    sample = service.metrics()
    return not sample["gpu_responder_inbox_deliveries"] and not sample["gpu_responder_pending_intents"]


def test_the_newest_state_wins_over_a_backlog(tmp_path: Path, sim: Sim) -> None:
    """An alert that resolves while its target waits its turn scales nothing, however late the turn comes."""
    targets = TARGETS[:400]
    late = targets[200:]
    sim.faults([{"methods": "reads", "path": "/deployments/t", "fault": "hang", "seconds": 0.6}])
    alerts = alerts_of(targets, 1)
    with services(tmp_path, sim, POLICIES) as [service]:
        assert deliver(service.port, webhook(alerts)) == 200
        until(lambda: len(done(sim)) > 20, seconds=60, what="some are scaled")
        at = now()
        over = [alert.resolved(at) if alert.labels["workload"] in late else alert for alert in alerts]
        assert deliver(service.port, webhook(over)) == 200
        acknowledged = now()
        until(
            lambda: done(sim) >= set(targets) - set(late),
            seconds=120,
            what="those that still fire are scaled",
        )
        until(lambda: is_settled(service), seconds=90)
        assert service.stop() == 0
    told = [told_of(name, alerts, awaited=name not in late) for name in targets]
    counts = accounts(tmp_path / "store.db", sim, told, over)
    # A look that had begun goes on to its write.
    begun = acknowledged + timedelta(seconds=5)
    after = [s for s in sim.scales() if s["name"] in late and datetime.fromisoformat(s["time"]) > begun]
    assert not after
    assert counts["  with none (short, or uncertain)"] > 0, "no target was waiting: this shows nothing"


def test_a_stop_in_the_middle_loses_nothing(tmp_path: Path, sim: Sim) -> None:
    """SIGTERM with hundreds of targets waiting: it ends in time, and the next start does what is left, once."""
    targets = TARGETS[:400]
    sim.faults([{"methods": "reads", "path": "/deployments/t", "fault": "hang", "seconds": 0.6}])
    alerts = alerts_of(targets, 1)
    with services(tmp_path, sim, POLICIES) as [service]:
        assert deliver(service.port, webhook(alerts)) == 200
        until(lambda: len(done(sim)) > 20, seconds=60, what="some are scaled")
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < 30
        before = done(sim)
        assert len(before) < len(targets), "nothing was left to do: this shows nothing"
        service.start()
        sim.faults([])
        until(lambda: done(sim) == set(targets), seconds=120, what="the rest is scaled")
        until(lambda: is_settled(service), seconds=90)
        assert service.stop() == 0
    told = [told_of(name, alerts) for name in targets]
    counts = accounts(tmp_path / "store.db", sim, told, alerts)
    assert counts["  of them ours"] == counts["  with one effect"] == len(targets)


def used(service: Service, seconds: float) -> dict[int, float]:
    """Processor time of each process in so many seconds from now."""
    before = {pid: cpu_seconds(pid) for pid in service.pids()}
    time.sleep(seconds)
    return {pid: cpu_seconds(pid) - already for pid, already in before.items()}
