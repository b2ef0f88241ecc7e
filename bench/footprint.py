"""What the service takes of memory and CPU at rest: `python -m bench.footprint`.

All its processes together, with SQLite, against the simulated cluster, when nothing is known and when 1,000 targets
are. Memory is proportional: what processes share counts once. Then what the database takes for each decision that it
keeps, with the targets' records and all else: history is most of it.
"""

import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench import programs
from bench.__main__ import TARGETS, known

REST_SECONDS = 20


def main() -> int:
    print("| targets known | memory | CPU at rest |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            programs.simulated(folder, TARGETS),
            programs.responder(folder, name="footprint", kubeconfig=folder / "kubeconfig") as ours,
        ):
            programs.wait(lambda: psutil.Process(ours.process.pid).children(), 30, "its processes are there")
            time.sleep(5)
            tell(0, ours)
            known(ours, TARGETS)
            tell(TARGETS, ours)
        database = sqlite3.connect(folder / "footprint.db")
        (decisions,) = database.execute("SELECT count(*) FROM history").fetchone()
        database.close()
        size = (folder / "footprint.db").stat().st_size
        print(
            f"\n{size / 2**20:.1f} MiB of database for {decisions:,} decisions, {size / decisions / 1024:.1f} KiB each"
        )
    return 0


def tell(targets: int, ours: programs.Program) -> None:
    before = cpu(ours)
    time.sleep(REST_SECONDS)
    cores = (cpu(ours) - before) / REST_SECONDS
    memory = sum(process.memory_full_info().pss for process in processes(ours))
    print(f"| {targets:,} | {memory / 2**20:.0f} MiB | {cores:.3f} cores |", flush=True)


def processes(ours: programs.Program) -> list[psutil.Process]:
    first = psutil.Process(ours.process.pid)
    return [first, *first.children(recursive=True)]


def cpu(ours: programs.Program) -> float:
    """Seconds used so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes(ours))


if __name__ == "__main__":
    sys.exit(main())
