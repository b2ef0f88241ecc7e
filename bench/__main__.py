"""Measures intake, latency and the price of durability, all in one run: `python -m bench`.

Machines differ and so do minutes: what is compared is measured in turns, and the median of the turns is told.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import alerts, programs
from bench.errors import BenchError
from bench.load import Client, Run, wrk

RESULTS = Path(__file__).parent / "results"
TARGETS = 1000
LATENCY_SAMPLES = 200
PACE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `goal` says what is wanted; `met` is None where nothing is."""

    what: str
    figure: str
    goal: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    seconds: float
    turns: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each turn")
    parser.add_argument("--turns", type=int, default=3, help="turns of each measurement")
    parser.add_argument(
        "--only", choices=list(SECTIONS), action="append", help="measure only this; repeatable"
    )
    given = parser.parse_args()
    effort = Effort(given.seconds, given.turns)
    console = Console(width=110)
    rows: list[Row] = []
    details: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-responder-bench-") as folder:
            for name in given.only or SECTIONS:
                console.print(f"measuring {name} …", style="dim")
                more, detail = SECTIONS[name](Path(folder), effort)
                rows += more
                details[name] = detail
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    console.print(table(rows))
    console.print(f"written to {write(rows, details)}")
    return 0 if all(row.met is not False for row in rows) else 1


def table(rows: list[Row]) -> Table:
    made = Table(title=f"{os.cpu_count()} cores, Python {platform.python_version()}")
    for heading in ("measurement", "figure", "goal", ""):
        made.add_column(heading, justify="right" if heading == "figure" else "left")
    for row in rows:
        made.add_row(row.what, row.figure, row.goal, {True: "met", False: "MISSED", None: ""}[row.met])
    return made


def write(rows: list[Row], details: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    at = datetime.now(UTC)
    path = RESULTS / f"{at:%Y%m%dT%H%M%SZ}.json"
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    content = {
        "at": at.isoformat(),
        "machine": machine,
        "rows": [asdict(row) for row in rows],
        "details": details,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def intake(folder: Path, effort: Effort) -> tuple[list[Row], Any]:
    """Single alerts and groups of 100, in turns with Debian's webhook."""
    one, hundred = folder / "one.json", folder / "hundred.json"
    one.write_bytes(alerts.group(1, 1))
    hundred.write_bytes(alerts.group(100, 100))
    with contextlib.ExitStack() as stack:
        stack.enter_context(programs.simulated(folder, 100))
        ours = stack.enter_context(
            programs.responder(folder, name="intake", kubeconfig=folder / "kubeconfig")
        )
        other = stack.enter_context(programs.webhook(folder))
        known(ours, 100)
        runs = turns(
            effort,
            {
                "single": lambda: wrk(ours.url, one, effort.seconds),
                "webhook": lambda: wrk(other.url, one, effort.seconds),
                "hundred": lambda: wrk(ours.url, hundred, effort.seconds),
            },
        )
    single, hundreds, webhook = (middle(runs[name]) for name in ("single", "hundred", "webhook"))
    rows = [
        Row(
            "single alerts, durable, 16 connections", f"{single.rate:,.0f}/s", "1,000/s", single.rate >= 1000
        ),
        Row("  p50 and p99", f"{single.p50:.1f} and {single.p99:.1f} ms", "p99 50 ms", single.p99 < 50),
        Row("Debian's webhook running /bin/true", f"{webhook.rate:,.0f}/s"),
        Row("  p50 and p99", f"{webhook.p50:.1f} and {webhook.p99:.1f} ms"),
        Row(
            "groups of 100, durable", f"{hundreds.rate * 100:,.0f} alerts/s", "10,000/s", hundreds.rate >= 100
        ),
    ]
    return rows, {name: [asdict(run) for run in each] for name, each in runs.items()}


def storm(folder: Path, effort: Effort) -> tuple[list[Row], Any]:
    """One group of 10,000 alerts over 1,000 targets."""
    body = alerts.group(10_000, TARGETS)
    took, drained, peaks = [], [], []
    for turn in range(effort.turns):
        with (
            programs.simulated(folder, TARGETS),
            programs.responder(folder, name=f"storm-{turn}", kubeconfig=folder / "kubeconfig") as ours,
        ):
            client = Client(ours.port)
            programs.wait(lambda c=client: c.get("/-/ready"), 30, "the service is ready")
            began = time.perf_counter()
            seconds, answer = client.post(ours.path, body)
            if answer["accepted"] != 10_000:
                raise BenchError(f"of 10,000 alerts {answer['accepted']} were accepted")
            took.append(seconds)
            programs.wait(
                lambda o=ours: gauge(o, "gpu_responder_inbox_deliveries") == 0, 60, "the inbox is drained"
            )
            drained.append(time.perf_counter() - began)
            peaks.append(max(ours.peak_memory().values()))
    seconds, memory = statistics.median(took), max(peaks)
    rows = [
        Row(
            f"one group of 10,000 over 1,000 targets ({len(body) / 1e6:.0f} MB)",
            f"{seconds:.2f} s",
            "2 s",
            seconds < 2,
        ),
        Row("  folded into its targets' records after", f"{statistics.median(drained):.2f} s"),
        Row("  memory of the largest process", f"{memory / 2**20:.0f} MiB", "200 MB", memory < 200e6),
    ]
    return rows, {"seconds": took, "drained": drained, "peaks": peaks}


def latency(folder: Path, _: Effort) -> tuple[list[Row], Any]:
    """From sending one alert to the scale in the API server, with 1,000 targets known."""
    with (
        programs.simulated(folder, TARGETS) as cluster,
        programs.responder(folder, name="latency", kubeconfig=folder / "kubeconfig") as ours,
    ):
        known(ours, TARGETS)
        client, truth = Client(ours.port), Client(cluster.port)
        sent: dict[str, float] = {}
        for i in range(LATENCY_SAMPLES):
            name = f"w{i * (TARGETS // LATENCY_SAMPLES):04}"
            body = alerts.payload([alerts.alert(name, "scale_up", f"up-{i}")])
            sent[name] = time.time()
            client.post(ours.path, body)
            programs.wait(
                lambda n=name: truth.get(f"/sim/scales?name={n}")["scales"], 30, f"{name} is scaled"
            )
        scales = truth.get("/sim/scales")["scales"]
    waits = sorted(
        (datetime.fromisoformat(scale["time"]).timestamp() - sent[scale["name"]]) * 1000 for scale in scales
    )
    if len(waits) != LATENCY_SAMPLES:
        raise BenchError(f"{LATENCY_SAMPLES} alerts caused {len(waits)} scales")
    p50, p99 = statistics.median(waits), waits[int(len(waits) * 0.99) - 1]
    rows = [
        Row("webhook to scale, single alerts, 1,000 targets known", f"{p50:.1f} ms"),
        Row("  p99", f"{p99:.1f} ms", "50 ms", p99 < 50),
    ]
    return rows, {"milliseconds": waits}


def durability(folder: Path, effort: Effort) -> tuple[list[Row], Any]:
    """The same service with a store in memory, surviving process death, and surviving power loss."""
    one = folder / "one.json"
    one.write_bytes(alerts.group(1, 1))
    kinds = {
        "memory": {"in_memory": True},
        "normal": {},
        "full": {"sync": "full"},
    }
    with contextlib.ExitStack() as stack:
        ours = {
            name: stack.enter_context(programs.responder(folder, name=f"durability-{name}", **more))
            for name, more in kinds.items()
        }
        runs = turns(
            effort,
            {name: lambda p=program: wrk(p.url, one, effort.seconds) for name, program in ours.items()},
        )
    # Each turn is its own comparison: what slows the machine for a minute slows all three.
    ratios = {
        name: statistics.median(
            mine.rate / memory.rate for mine, memory in zip(runs[name], runs["memory"], strict=True)
        )
        for name in ("normal", "full")
    }
    rows = [
        Row("in memory", f"{middle(runs['memory']).rate:,.0f}/s"),
        Row(
            "survives the death of any process (normal)",
            f"{ratios['normal']:.0%} of that",
            "67%",
            ratios["normal"] >= 2 / 3,
        ),
        Row("survives power loss (full)", f"{ratios['full']:.0%} of that"),
    ]
    return rows, {name: [asdict(run) for run in each] for name, each in runs.items()}


SECTIONS: dict[str, Callable[[Path, Effort], tuple[list[Row], Any]]] = {
    "intake": intake,
    "storm": storm,
    "latency": latency,
    "durability": durability,
}


def known(ours: programs.Program, targets: int) -> None:
    """Make so many targets known by alerts that change nothing, and wait until all have been looked at."""
    client = Client(ours.port)
    programs.wait(lambda: client.get("/-/ready"), 30, "the service is ready")
    client.post(ours.path, alerts.group(targets, targets))
    programs.wait(lambda: decided(ours) >= targets, 120, f"{targets} targets are looked at")


def decided(ours: programs.Program) -> float:
    return sum(value for name, value in scrape(ours) if name.startswith("gpu_responder_decisions_total"))


def gauge(ours: programs.Program, wanted: str) -> float:
    return next((value for name, value in scrape(ours) if name == wanted), -1.0)


def scrape(ours: programs.Program) -> Iterator[tuple[str, float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{ours.port}/metrics", timeout=30) as page:
        for line in page.read().decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                yield name, float(value)


def turns(effort: Effort, runs: dict[str, Callable[[], Run]]) -> dict[str, list[Run]]:
    """Each in turn, so often. Raises BenchError if any request failed."""
    done: dict[str, list[Run]] = {name: [] for name in runs}
    for name, run in runs.items():
        run()  # warm
        del name
    for _ in range(effort.turns):
        for name, run in runs.items():
            done[name].append(run())
            if done[name][-1].failed:
                raise BenchError(f"{name}: {done[name][-1].failed} requests failed")
    return done


def middle(runs: list[Run]) -> Run:
    """The run of median rate."""
    return sorted(runs, key=lambda run: run.rate)[len(runs) // 2]


if __name__ == "__main__":
    sys.exit(main())
