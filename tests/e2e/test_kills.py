"""Killed, stopped, lied to and hammered: afterwards history accounts for every change that the server saw.

GPU_RESPONDER_KILLS sets how many whole services are killed (30), GPU_RESPONDER_SEED makes other choices.
"""

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from responder.codec import decode
from responder.model import HistoryEntry, Outcome, Reason
from responder.settle import MANAGER
from responder.store.sqlite import SqliteStore
from tests.e2e.accounting import Account, Told, account, check_end
from tests.e2e.harness import (
    NAMESPACE,
    Alert,
    Sender,
    Service,
    Sim,
    left_of,
    now,
    send,
    services,
    simulated,
    wait_for,
)
from tests.serving import until

KILLS = int(os.environ.get("GPU_RESPONDER_KILLS", "30"))
SEED = int(os.environ.get("GPU_RESPONDER_SEED") or 1)
TARGETS = tuple(f"t{number:02}" for number in range(12))
BOUNDS = (1, 40)
CALM = (4, 16)
"""The senders turn round here, so that no limit keeps a step from being taken whole."""
STEPS = {"up1": 1, "up2": 2, "up3": 3, "down1": -1, "down2": -2, "down3": -3}
POLICIES = (
    f"""
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: all
  matchers: ['workload_type="deployment"']
  minReplicas: {BOUNDS[0]}
  maxReplicas: {BOUNDS[1]}
  readyTimeoutSeconds: 1
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    namespace: '{{{{ $labels.namespace }}}}'
    name: '{{{{ $labels.workload }}}}'
  triggers:
"""
    + "".join(
        f"""
  - name: {name}
    matchers: ['step="{name}"']
    scale: {{direction: {"Up" if step > 0 else "Down"}, type: Pods, value: {abs(step)}}}
    maxStepsPerEpisode: 1
"""
        for name, step in STEPS.items()
    )
    + """
  behavior:
    scaleUp:
      cooldownSeconds: 0
      stabilizationWindowSeconds: 0
      policies: [{type: Pods, value: 1000, periodSeconds: 1}]
    scaleDown:
      cooldownSeconds: 0
      stabilizationWindowSeconds: 0
      policies: [{type: Pods, value: 1000, periodSeconds: 1}]
"""
)
LONGEST_HANG = 12.0
"""Longer than the service waits for an answer: such a write may land after it was given up."""
FAULTS = [
    {"methods": ["PUT"], "path": "/scale$", "userAgent": MANAGER, **fault}
    for fault in (
        {"probability": 0.06, "fault": "status", "status": 409},
        {"probability": 0.05, "fault": "status", "status": 429, "retryAfterSeconds": 1},
        {"probability": 0.05, "fault": "status", "status": 500},
        {"probability": 0.06, "fault": "reset"},
        {"probability": 0.12, "fault": "applyThenReset"},
        {"probability": 0.15, "fault": "hang", "seconds": 0.4},
        {"probability": 0.15, "fault": "applyThenHang", "seconds": 0.4},
        {"probability": 0.06, "fault": "hang", "seconds": 2},
        {"probability": 0.06, "fault": "applyThenHang", "seconds": 2},
        {"probability": 0.02, "fault": "hang", "seconds": LONGEST_HANG},
        {"probability": 0.02, "fault": "applyThenHang", "seconds": LONGEST_HANG},
    )
] + [
    {"methods": "reads", "path": "^/api", "userAgent": MANAGER, **fault}
    for fault in (
        {"probability": 0.02, "fault": "status", "status": 429, "retryAfterSeconds": 1},
        {"probability": 0.02, "fault": "status", "status": 500},
        {"probability": 0.02, "fault": "reset"},
        {"probability": 0.02, "fault": "hang", "seconds": 1},
    )
]  # fmt: skip


@dataclass(slots=True)
class Doing:
    """An episode under way on one target."""

    told: Told
    alerts: tuple[Alert, ...]
    seen_from: int
    resolve_at: float
    seen: bool = False
    """Its effect."""
    resolving: bool = False


class Script:
    """Lets triggers fire and resolve, each target for itself, and notes what was told."""

    def __init__(
        self,
        sim: Sim,
        senders: Sequence[Sender],
        uncertain: Callable[[], set[tuple[str, str]]],
        seed: int,
    ) -> None:
        self._sim = sim
        self._senders = senders
        self._uncertain_now = uncertain
        self._chance = random.Random(f"{seed} script")
        self._doing: dict[str, Doing] = {}
        self._next_at = dict.fromkeys(TARGETS, 0.0)
        self._last_steps: dict[str, tuple[str, ...]] = dict.fromkeys(TARGETS, ())
        self._short = dict.fromkeys(TARGETS, False)
        self._uses: dict[tuple[str, str], int] = {}
        self._uncertain: set[tuple[str, str]] = set()
        self.told: list[Told] = []
        self.last: dict[tuple[str, str], Alert] = {}
        self.scales: list[dict[str, Any]] = []

    def step(self, begin: bool = True, awaited: bool = False) -> None:
        """One look at all targets: begin, go on, end. `awaited` begins no short episodes."""
        self.scales = self._sim.scales()
        self._uncertain |= self._uncertain_now()
        moment = time.monotonic()
        for target in TARGETS:
            doing = self._doing.get(target)
            if doing is not None:
                self._go_on(target, doing, moment)
            elif begin and moment >= self._next_at[target]:
                self._begin(target, awaited)

    def over(self) -> bool:
        return not self._doing

    def _begin(self, target: str, awaited: bool) -> None:
        chance = self._chance
        seen = [scale for scale in self.scales if scale["name"] == target]
        current = seen[-1]["to"] if seen else 8
        low, high = min(CALM[0], current), max(CALM[1], current)
        fitting = [name for name, step in STEPS.items() if low <= current + step <= high]
        # An effect is told by its size, so the last two are not taken again.
        trigger = chance.choice([name for name in fitting if name not in self._last_steps[target]])
        # Two short ones never follow each other: between two episodes of one alert a write has landed.
        self._short[target] = not awaited and not self._short[target] and chance.random() < 0.3
        self._last_steps[target] = (trigger, *self._last_steps[target])[:2]
        self._uses[target, trigger] = self._uses.get((target, trigger), 0) + 1
        number = self._uses[target, trigger]
        # The same alert fires again, or one of another pod; sometimes two are one episode.
        names = [number % 4] if chance.random() < 0.7 else [number % 4, 10 + number % 4]
        starts_at = now()
        alerts = tuple(
            Alert(
                f"{target}-{trigger}-{name}",
                {
                    "alertname": "A",
                    "namespace": NAMESPACE,
                    "workload": target,
                    "workload_type": "deployment",
                    "step": trigger,
                    "pod": f"p{name}",
                },
                starts_at,
            )
            for name in names
        )
        told = Told(
            key_of(target),
            trigger,
            STEPS[trigger],
            frozenset(alert.fingerprint for alert in alerts),
            starts_at,
            awaited=not self._short[target],
        )
        wait = chance.uniform(0, 2) if self._short[target] else 0.0
        self._doing[target] = Doing(told, alerts, len(seen), time.monotonic() + wait)
        self.told.append(told)
        self._tell(target, alerts)

    def _go_on(self, target: str, doing: Doing, moment: float) -> None:
        if not doing.resolving:
            if not doing.seen and doing.told.awaited and self._took_effect(target, doing):
                # Many go on firing: an effect that is taken for lost must not be repeated then.
                doing.seen = True
                doing.resolve_at = moment + (self._chance.uniform(2, 7) if self._chance.random() < 0.5 else 0)
            if moment >= doing.resolve_at and (doing.seen or not doing.told.awaited):
                doing.resolving = True
                doing.alerts = tuple(alert.resolved(now()) for alert in doing.alerts)
                self._tell(target, doing.alerts)
            return
        key = {(alert.fingerprint, alert.starts_at, False) for alert in doing.alerts}
        if any(key <= sender.acknowledged for sender in self._senders):
            del self._doing[target]
            self._next_at[target] = moment + self._chance.uniform(0, 0.5)

    def _took_effect(self, target: str, doing: Doing) -> bool:
        if any((key_of(target), name) in self._uncertain for name in doing.told.fingerprints):
            return True
        seen = [scale for scale in self.scales if scale["name"] == target]
        return any(
            scale["manager"] == MANAGER and scale["to"] - scale["from"] == doing.told.step
            for scale in seen[doing.seen_from :]
        )

    def _tell(self, target: str, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            self.last[key_of(target), alert.fingerprint] = alert
        for sender in self._senders:
            sender.tell(f"group-{TARGETS.index(target) // 2}", *alerts)


def key_of(target: str) -> str:
    return f"{NAMESPACE}/deployment/{target}"


def uncertain_of(database: Path) -> set[tuple[str, str]]:
    """Of which target and alert history says that an effect is uncertain."""
    with (
        suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as found,
    ):
        rows = found.execute("SELECT body FROM history WHERE outcome = 'uncertain'").fetchall()
        entries = [decode(body, HistoryEntry) for (body,) in rows]
        return {(entry.target, alert) for entry in entries for alert in entry.alerts}
    return set()


class Chaos:
    """Kills and stops processes at random moments, and lets go of those that it stopped."""

    def __init__(self, services: Sequence[Service], seed: int) -> None:
        self._services = services
        self._chance = random.Random(f"{seed} chaos")
        self._stopped: dict[int, float] = {}
        self._long_until = 0.0
        self.counts = {
            "services killed": 0,
            "  told to stop shortly before": 0,
            "web workers killed": 0,
            "actors killed": 0,
            "processes stopped": 0,
            "actors stopped past their lease": 0,
            "services stopped whole": 0,
        }

    def run(self, kills: int) -> None:
        """Until so many whole services were killed and started again."""
        while self.counts["services killed"] < kills:
            for _ in range(self._chance.randrange(1, 4)):
                self._small()
                self._pass(self._chance.uniform(0.05, 0.7))
            self._kill_services()
        self.let_go()

    def let_go(self) -> None:
        for pid in list(self._stopped):
            send(signal.SIGCONT, pid)
        self._stopped.clear()

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for pid, until_ in list(self._stopped.items()):
                if time.monotonic() >= until_:
                    send(signal.SIGCONT, pid)
                    del self._stopped[pid]
            time.sleep(0.02)

    def _stop(self, pid: int | None, seconds: float) -> bool:
        if pid is None or not send(signal.SIGSTOP, pid):
            return False
        self._stopped[pid] = max(self._stopped.get(pid, 0.0), time.monotonic() + seconds)
        return True

    def _small(self) -> None:
        chance, service = self._chance, self._chance.choice(self._services)
        what = chance.random()
        if what < 0.25:
            webs = service.webs()
            if webs and send(signal.SIGKILL, chance.choice(webs)):
                self.counts["web workers killed"] += 1
        elif what < 0.45:
            actor = service.actor()
            if actor is not None and send(signal.SIGKILL, actor):
                self.counts["actors killed"] += 1
        elif what < 0.55:
            pids = service.pids()
            seconds = chance.uniform(0.1, 2)
            for pid in pids:
                self._stop(pid, seconds)
            self.counts["services stopped whole"] += bool(pids)
        elif what < 0.65 and time.monotonic() > self._long_until:
            # Longer than its lease lasts, shorter than its master's patience.
            seconds = chance.uniform(10.5, 13)
            if self._stop(service.actor(), seconds):
                self._long_until = time.monotonic() + 20
                self.counts["actors stopped past their lease"] += 1
        else:
            actor, pids = service.actor(), service.pids()
            pid = actor if actor is not None and chance.random() < 0.5 else pids and chance.choice(pids)
            if pid and self._stop(pid, chance.expovariate(2)):
                self.counts["processes stopped"] += 1

    def _kill_services(self) -> None:
        """One of them; now and then both at once; not always waiting until it is up again."""
        chance = self._chance
        both = chance.random() < 0.2
        victims = self._services if both else [chance.choice(self._services)]
        for victim in victims:
            for pid in victim.pids():
                self._stopped.pop(pid, None)
            if chance.random() < 0.2 and victim.program is not None:
                # As a rolling update by somebody impatient.
                victim.program.process.terminate()
                self._pass(chance.uniform(0, 2))
                self.counts["  told to stop shortly before"] += 1
            victim.kill()
            self.counts["services killed"] += 1
        self._pass(chance.choice((0, 0, 0.3, 1)))
        for victim in victims:
            victim.start()
        if chance.random() < 0.7:
            end = time.monotonic() + 6
            while time.monotonic() < end and not victims[0].ready():
                self._pass(0.1)
        else:
            self._pass(chance.uniform(0, 1.5))


class Rival:
    """A person with kubectl and a tool that writes templates: changes that are not ours."""

    def __init__(self, sim: Sim, script: Script, seed: int) -> None:
        self._sim = sim
        self._script = script
        self._chance = random.Random(f"{seed} rival")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rival")
        self.counts = {"replicas written by the rival": 0, "specs written by the rival": 0}

    def __enter__(self) -> "Rival":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(self._chance.uniform(0.2, 1.5)):
            target = self._chance.choice(TARGETS)
            path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{target}"
            patch = {"Content-Type": "application/merge-patch+json", "User-Agent": "kubectl"}
            if self._chance.random() < 0.5:
                limit = self._chance.randrange(1, 1000)
                body: Any = {"spec": {"revisionHistoryLimit": limit}}
                self._sim.call("PATCH", f"{path}?fieldManager=helm", body, **patch)
                self.counts["specs written by the rival"] += 1
                continue
            # A number that ours have not replaced lately: putting one back would be a revert, which holds.
            ours = [scale["from"] for scale in self._script.scales if scale["name"] == target][-12:]
            free = [count for count in range(CALM[0], CALM[1] + 8) if count not in ours]
            body = {"spec": {"replicas": self._chance.choice(free)}}
            self._sim.call("PATCH", f"{path}/scale?fieldManager=kubectl", body, **patch)
            self.counts["replicas written by the rival"] += 1


def run(tmp_path: Path, kills: int, seed: int, *, rivals: bool) -> Account:
    """The whole of it; faults found are in what is returned."""
    began = time.monotonic()
    print(f"\nGPU_RESPONDER_SEED={seed} GPU_RESPONDER_KILLS={kills}")
    with (
        simulated(tmp_path, dict.fromkeys(TARGETS, 8)) as sim,
        services(tmp_path, sim, POLICIES, 2, workers=4, threads=4) as both,
    ):
        sim.faults(FAULTS, seed)
        ports = [service.port for service in both]
        senders = [Sender("am-0", ports, seed, 0.2), Sender("am-1", ports, seed, 1.0)]
        script = Script(sim, senders, lambda: uncertain_of(both[0].database), seed)
        chaos = Chaos(both, seed)
        killing = threading.Thread(target=chaos.run, args=(kills,), name="chaos")
        rival = Rival(sim, script, seed)
        try:
            killing.start()
            with rival if rivals else nullcontext():
                while killing.is_alive():
                    script.step()
                    time.sleep(0.2)
                struck = sim.struck()
            sim.faults([])
            script_ends(script, senders, both)
        finally:
            for sender in senders:
                sender.stop()
            killing.join(60)
            chaos.let_go()
        samples = [service.metrics() for service in both]
        pids = [pid for service in both for pid in service.pids()]
        stopped = [service.stop() for service in both]
        with closing(SqliteStore(both[0].database)) as store:
            history = [stored.entry for stored in reversed(store.history(limit=1_000_000))]
            found = settle_accounts(store, history, sim, script, senders)
    found.counts |= {"requests met by a fault": struck, **chaos.counts, **(rival.counts if rivals else {})}
    for sample in samples:
        check_metrics(found, sample)
    if stopped != [0, 0]:
        found.faults.append(f"stopping ended with {stopped}")
    if left_of(pids):
        found.faults.append("processes were left")
    for service in both:
        log = service.log.read_text()
        if "Traceback" in log:
            found.faults.append(f"a traceback is in {service.log}")
    found.counts["seconds"] = round(time.monotonic() - began)
    print(found.table())
    return found


def script_ends(script: Script, senders: Sequence[Sender], both: Sequence[Service]) -> None:
    """Let what is under way end, then one more change each, so that nothing is left that might still land."""
    began = time.monotonic()
    for service in both:
        until(service.complete, seconds=180, what=f"all is up again, see {service.log}")

    def all_over() -> bool:
        script.step(begin=False)
        return script.over() and all(sender.idle() for sender in senders)

    until(all_over, seconds=300, what="every episode that fires takes effect")
    # Since then no write hangs any more, and those that did have landed.
    time.sleep(max(0.0, began + LONGEST_HANG + 2 - time.monotonic()))
    script.step(awaited=True)
    until(all_over, seconds=180, what="every target takes one step more")

    def quiet() -> bool:
        sample = both[0].metrics()
        return not sample["gpu_responder_inbox_deliveries"] and not sample["gpu_responder_pending_intents"]

    wait_for(quiet, 90)


def settle_accounts(
    store: Any, history: Sequence[HistoryEntry], sim: Sim, script: Script, senders: Sequence[Sender]
) -> Account:
    """`history` oldest first."""
    acknowledged = set().union(*(sender.acknowledged for sender in senders))
    told = [
        replace(
            episode,
            acknowledged=any(
                (name, episode.starts_at, True) in acknowledged for name in episode.fingerprints
            ),
        )
        for episode in script.told
    ]
    found = account(sim.scales(), history, told)
    last = {
        key: (alert.starts_at, alert.ends_at)
        for key, alert in script.last.items()
        if (alert.fingerprint, alert.starts_at, True) in acknowledged
    }
    records = [record for record, _ in store.records()]
    replicas = {key_of(name): count for name, count in sim.replicas().items()}
    check_end(found, records, replicas, last, BOUNDS)
    if store.inbox(1):
        found.faults.append("the inbox is not empty")
    statuses = {status for sender in senders for status in sender.statuses}
    if not statuses <= {200, 503, 0}:
        found.faults.append(f"a delivery was answered with {statuses}")
    found.counts |= {
        "deliveries acknowledged": sum(sender.deliveries for sender in senders),
        "  and repeated or reordered": sum(sender.repeats for sender in senders),
        "  tries without an answer": sum(sender.statuses.get(0, 0) for sender in senders),
        "  tries answered with 503": sum(sender.statuses.get(503, 0) for sender in senders),
    }
    return found


def check_metrics(found: Account, sample: dict[str, float]) -> None:
    """The gauges say what the store does, whichever service is asked."""
    wanted = {
        "gpu_responder_inbox_deliveries": 0,
        "gpu_responder_pending_intents": 0,
        "gpu_responder_pending_intent_age_seconds": 0,
        "gpu_responder_targets": len(TARGETS),
        "gpu_responder_unknown_alerts": 0,
        "gpu_responder_store_up": 1,
        "gpu_responder_policy_valid": 1,
    }
    found.faults += [
        f"/metrics says {name} is {sample.get(name)} and not {value}"
        for name, value in wanted.items()
        if sample.get(name) != value
    ]


@pytest.mark.timeout(900 + 16 * KILLS)
class TestKilled:
    def test_every_change_has_one_line_and_every_episode_one_effect(self, tmp_path: Path) -> None:
        """30 kills of whole services, many of workers, with an API server that lies: accounts are exact."""
        found = run(tmp_path, KILLS, SEED, rivals=False)
        assert not found.faults, found.table()
        assert found.counts["matched one for one"] > KILLS
        assert found.counts["requests met by a fault"] > KILLS

    def test_with_rival_writers_no_episode_has_two_effects(self, tmp_path: Path) -> None:
        """The same while others write replicas and templates: what cannot be known is said to be uncertain."""
        found = run(tmp_path, max(KILLS // 5, 6), SEED + 1, rivals=True)
        assert not found.faults, found.table()
        assert found.counts["  of them a rival's"] > 0


# The accounting itself


AT = now().replace(microsecond=0)


def scale_of(number: int, before: int, after: int, manager: str = MANAGER) -> dict[str, Any]:
    return {
        "time": (AT + timedelta(seconds=10 * number + 1)).isoformat(),
        "namespace": NAMESPACE,
        "name": "t0",
        "from": before,
        "to": after,
        "manager": manager,
        "resourceVersion": str(100 + 10 * number),
    }


def entry_of(
    number: int, before: int, after: int, outcome: Outcome = Outcome.APPLIED, **more: Any
) -> HistoryEntry:
    name = f"{'up' if after > before else 'down'}{abs(after - before)}"
    entry = HistoryEntry(
        AT + timedelta(seconds=10 * number + 2), key_of("t0"), before, after, Reason.SCALED_UP, name,
        trigger=name, alerts=(f"f{number}",), intent=f"i{number}", outcome=outcome,
    )  # fmt: skip
    return replace(entry, **more)


def told_of(number: int, step: int, **more: Any) -> Told:
    name = f"{'up' if step > 0 else 'down'}{abs(step)}"
    starts_at = AT + timedelta(seconds=10 * number)
    return replace(Told(key_of("t0"), name, step, frozenset({f"f{number}"}), starts_at), **more)


TRUE = (
    [scale_of(0, 8, 9), scale_of(1, 9, 11), scale_of(2, 11, 10)],
    [entry_of(0, 8, 9), entry_of(1, 9, 11), entry_of(2, 11, 10)],
    [told_of(0, 1), told_of(1, 2), told_of(2, -1)],
)


def doctored() -> Iterator[Any]:
    scales, history, told = TRUE
    yield "history lacks a change", scales, history[1:], told, "history does not have it"
    yield "a change in the middle lacks", scales, [history[0], history[2]], told, "history does not have it"
    yield "history has one too many", scales, [*history, entry_of(3, 10, 11)], told, "saw no such change"
    yield (
        "another number", scales, [entry_of(0, 8, 10, alerts=("f0",)), *history[1:]], told,
        "history does not have it",
    )  # fmt: skip
    yield "an intent counted twice", scales, [*history, history[2]], told, "took effect 2 times"
    twice = [*scales, scale_of(3, 10, 9)]
    again = entry_of(3, 10, 9, alerts=("f2",))
    yield "one episode, two effects", twice, [*history, again], told, "had 2 effects"
    yield "an episode lost", scales[:2], history[:2], told, "had no effect"
    yield "nobody told it", scales, history, told[:2], "nothing told explains"
    yield "its order reversed", scales, [history[1], history[0], history[2]], told, "does not have it"
    decided = replace(
        entry_of(1, 9, 11), outcome=None, inputs={"observed": {"workload": {"resource_version": "99"}}}
    )
    yield "decided on an older version", scales, [*history, decided], told, "with [100] between"
    yield "the log has a gap", [scales[0], *scales[2:]], history, told, "the log goes from"
    foreign = [*scales[:2], scale_of(2, 11, 10, "kubectl")]
    yield "a rival's change claimed", foreign, history, told, "saw no such change"


class TestAccounting:
    def test_finds_nothing_in_true_books(self) -> None:
        """Also with a rival's change, a change that is uncertain, and a short episode without effect."""
        scales, history, told = TRUE
        assert account(*TRUE).faults == []
        scales = [*scales, scale_of(3, 10, 20, "kubectl")]
        history = [*history, entry_of(4, 20, 21, Outcome.UNCERTAIN), entry_of(5, 20, 21, Outcome.NOT_APPLIED)]
        told = [*told, told_of(4, 1), told_of(5, 1, awaited=False)]
        assert account(scales, history, told).faults == []

    @pytest.mark.parametrize(
        ("scales", "history", "told", "sentence"),
        [pytest.param(*case, id=name) for name, *case in doctored()],
    )
    def test_finds_what_was_doctored(self, scales: Any, history: Any, told: Any, sentence: str) -> None:
        """Each way of cooking the books is a fault, in words that say which."""
        faults = account(scales, history, told).faults
        assert any(sentence in fault for fault in faults), faults
