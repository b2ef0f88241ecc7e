"""From demand to replicas: `python -m bench.reaction`.

The demo's whole chain (simulated GPUs, real Prometheus, Alertmanager and service, shipped rules and routes), its
clock made `--speed` times faster. Demand is low and steady, then rises at one moment; told is the simulated time from
there until the API server has the first scale. Of two rises: one that queues at once,
and one that only keeps GPUs busy.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from responder.demo.processes import HTTP
from responder.demo.run import TARGET, Demo, Options, running

CALM = 0.3
"""Requests per second; one replica works off 1.0."""
CASES = {
    "a queue: four times what a replica works off": 4.0,
    "busy GPUs, nothing waits: 0.93 of what it works off": 0.93,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reaction", description=__doc__)
    parser.add_argument("--speed", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    print(f"| demand rises to | until scaled, of {given.turns} |\n| --- | --- |")
    for what, rate in CASES.items():
        taken = sorted(once(given.speed, rate) for _ in range(given.turns))
        print(f"| {what} | {', '.join(f'{seconds:.0f} s' for seconds in taken)} |", flush=True)
    return 0


def once(speed: float, rate: float) -> float:
    """Simulated seconds from the rise to the first scale-up."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Options(speed=speed), Path(folder), lambda _: None) as demo,
    ):
        demand(demo, CALM)
        # Until five minutes of calm have been seen.
        time.sleep(400 / speed)
        before = len(scales(demo))
        began = time.monotonic()
        demand(demo, rate)
        while len(scales(demo)) == before:
            if time.monotonic() - began > 1800 / speed:
                raise SystemExit(f"nothing was scaled in half an hour; see {folder}")
            time.sleep(0.02)
        return (time.monotonic() - began) * speed


def demand(demo: Demo, rate: float) -> None:
    namespace, _, name = TARGET
    body = {"namespace": namespace, "kind": "Deployment", "name": name, "requestsPerSecond": rate}
    answer = HTTP.request("POST", f"{demo.addresses.sim}/sim/load", body=json.dumps(body).encode())
    if answer.status != 200:
        raise SystemExit(f"/sim/load was answered with {answer.status}: {answer.data!r}")


def scales(demo: Demo) -> list[object]:
    found = json.loads(HTTP.request("GET", f"{demo.addresses.sim}/sim/scales").data)
    made: list[object] = found["scales"] if isinstance(found, dict) else found
    return made


if __name__ == "__main__":
    sys.exit(main())
