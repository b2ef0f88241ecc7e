"""What scrape intervals cost: `python -m bench.overhead`.

The real Prometheus with the shipped rules scrapes the simulated exporters of 8, 80 and 800 GPUs every 1, 5, 15 and
30 s. Rules run at their own intervals whatever the scrape interval. The four intervals run side by side, each in a
Prometheus of its own, so that all meet the same minute of the machine. CPU is what the process used, not its share
of the machine. Bytes are those of the chunks on disk after 120 samples, which is a full chunk, so they are told for
1 s only; they hang on how values change, hardly on the interval.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from responder.demo import settings
from responder.demo.processes import Program, find_program, free_port, start, wait_until_answers
from responder.shipped import shipped

SIZES = (8, 80, 800)
INTERVALS = (1, 5, 15, 30)
GPUS_PER_NODE = 8
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--seconds", type=float, default=125.0, help="how long each size is watched")
    parser.add_argument("--gpus", type=int, choices=SIZES, action="append", help="only these; repeatable")
    given = parser.parse_args()
    rows = []
    for gpus in given.gpus or SIZES:
        rows += measure(gpus, given.seconds)
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    at = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"overhead-{at:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps({"at": at.isoformat(), "machine": machine, "rows": rows}, indent=2) + "\n")
    print("| GPUs | every | series | samples/s | Prometheus, cores | memory | bytes/sample |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {row['gpus']} | {row['interval']} s | {row['series']:,} | {row['samplesPerSecond']:,.0f} | "
            f"{row['cores']:.3f} | {row['memoryMiB']:.0f} MiB | {row['bytesPerSample'] or ''} |"
        )
    print(f"\n{path}", file=sys.stderr)
    return 0


def measure(gpus: int, seconds: float) -> list[dict[str, Any]]:
    """One row for each interval."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with simulated(folder, gpus) as sim:
            programs = {interval: prometheus(folder, sim, interval) for interval in INTERVALS}
            try:
                for program, url in programs.values():
                    wait_until_answers(program, f"{url}/-/ready")
                # The first scrapes and the first evaluation of every rule cost more than the rest.
                time.sleep(35)
                before = {interval: own(url) for interval, (_, url) in programs.items()}
                time.sleep(seconds)
                return [
                    row(gpus, interval, before[interval], url, folder)
                    for interval, (_, url) in programs.items()
                ]
            finally:
                for program, _ in programs.values():
                    program.stop()


@contextlib.contextmanager
def simulated(folder: Path, gpus: int) -> Iterator[str]:
    port = free_port()
    nodes = max(1, gpus // GPUS_PER_NODE)
    command = [sys.executable, "-m", "responder", "sim", "--port", str(port), "--nodes", str(nodes)]
    program = start("sim", [*command, "--gpus-per-node", str(GPUS_PER_NODE)], folder)
    try:
        wait_until_answers(program, f"http://127.0.0.1:{port}/sim/truth")
        yield f"http://127.0.0.1:{port}"
    finally:
        program.stop()


def prometheus(folder: Path, sim: str, interval: int) -> tuple[Program, str]:
    """A Prometheus that scrapes so often, and its address."""
    own_folder = folder / f"every-{interval}"
    own_folder.mkdir()
    rules = own_folder / "rules.yml"
    rules.write_text(settings.compressed_rules((shipped("rules"),), 1), encoding="utf-8")
    config = settings.prometheus_config(sim, "127.0.0.1:1", "127.0.0.1:1", rules, 1)
    config["global"] |= {"scrape_interval": f"{interval}s", "scrape_timeout": f"{interval}s"}
    config["scrape_configs"] = config["scrape_configs"][:-1]
    del config["alerting"]
    port = free_port()
    file = own_folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [
        find_program(("prometheus",), "prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={own_folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-admin-api",
    ]
    return start(f"prometheus-{interval}", command, own_folder), f"http://127.0.0.1:{port}"


def own(url: str) -> dict[str, float]:
    """Prometheus' own metrics, with the time they were read."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    plain = (line.split() for line in lines if line and not line.startswith("#") and "{" not in line)
    return {"at": time.monotonic(), **{name: float(value) for name, value in plain}}


def row(gpus: int, interval: int, before: dict[str, float], url: str, folder: Path) -> dict[str, Any]:
    after = own(url)
    passed = after["at"] - before["at"]
    cpu = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    scraped = query(url, "sum(scrape_samples_scraped)")
    return {
        "gpus": gpus,
        "interval": interval,
        "series": int(after["prometheus_tsdb_head_series"]),
        "samplesPerSecond": scraped / interval,
        "cores": cpu / passed,
        "memoryMiB": after["process_resident_memory_bytes"] / 2**20,
        "bytesPerSample": bytes_per_sample(url, folder / f"every-{interval}") if interval == 1 else None,
        "missedEvaluations": query(url, "sum(prometheus_rule_group_iterations_missed_total) or vector(0)"),
    }


def query(url: str, expr: str) -> float:
    asked = urllib.parse.urlencode({"query": expr})
    with urllib.request.urlopen(f"{url}/api/v1/query?{asked}", timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return float(found[0]["value"][1]) if found else 0.0


def bytes_per_sample(url: str, folder: Path) -> float:
    """Of the chunks of a snapshot, without its index."""
    request = urllib.request.Request(f"{url}/api/v1/admin/tsdb/snapshot", method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        name = json.load(answer)["data"]["name"]
    size = samples = 0
    snapshot = folder / "data" / "snapshots" / name
    for meta in snapshot.glob("*/meta.json"):
        samples += json.loads(meta.read_text())["stats"]["numSamples"]
        size += sum(path.stat().st_size for path in (meta.parent / "chunks").glob("*"))
    shutil.rmtree(snapshot)
    return round(size / samples, 2)


if __name__ == "__main__":
    sys.exit(main())
