"""`gpu-responder demo`."""

import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from responder.demo.processes import DemoError
from responder.demo.run import Cycle, Demo, Interrupted, Options, interruptible, running
from responder.demo.summary import Facts, lines, problems
from responder.demo.table import Lines, panel
from responder.sim.load import TraceError, read_trace

LOOK_SECONDS = 0.5


@click.command("demo")
@click.option("--once/--keep", default=True, help="End after one cycle up and down, or run until Ctrl-C.")
@click.option(
    "--duration", type=click.FloatRange(min=1), help="End after so many seconds, whatever happened."
)
@click.option(
    "--speed", type=click.FloatRange(min=1, max=600), default=60.0, show_default=True,
    help="Simulated seconds per second.",
)  # fmt: skip
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Demand as CSV: columns t_seconds, requests_per_second."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The responder's port; 0 picks a free one."
)
@click.option("--dcgm-generation", type=click.Choice(["4.8", "4.9"]), default="4.8", show_default=True)
def demo(
    once: bool, duration: float | None, speed: float, trace: Path | None, port: int, dcgm_generation: str
) -> None:
    """Run the whole loop here: simulated GPUs, real Prometheus and Alertmanager, the service itself.

    Exit status 0 only if it scaled up under load, came down after, never left min..max, and no delivery was lost.
    """
    console = Console()
    if trace is not None:
        _check(trace)
    options = Options(
        speed=speed, trace=trace, port=port, keep=not once, duration=duration, dcgm_generation=dcgm_generation
    )
    directory = Path(tempfile.mkdtemp(prefix="gpu-responder-demo-"))
    facts, interrupted = None, False
    try:
        with (
            interruptible(),
            running(options, directory, lambda line: console.print(line, style="dim")) as parts,
        ):
            try:
                _watch(parts, console)
            except Interrupted:
                interrupted = True
            facts = (parts.facts(), parts.started_at_replicas)
    except Interrupted:
        console.print("Interrupted before it began; everything is stopped.")
        sys.exit(130)
    sys.exit(_conclude(console, *facts, interrupted=interrupted, directory=directory))


def _check(trace: Path) -> None:
    """Read it before anything is started. Raises DemoError."""
    try:
        read_trace(trace)
    except TraceError as error:
        raise DemoError(str(error)) from None


def _watch(parts: Demo, console: Console) -> None:
    """Show the run until it is over. Raises DemoError when a part has ended, Interrupted when asked to end."""
    began = time.monotonic()
    cycle = Cycle(parts.started_at_replicas)
    told = Lines(console)
    addresses = parts.addresses
    if not console.is_terminal:
        console.print(
            f"Prometheus {addresses.prometheus}  Alertmanager {addresses.alertmanager}  "
            f"responder {addresses.responder}  logs {parts.directory}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            try:
                snapshot = parts.look()
            except DemoError as error:
                parts.faults.append(str(error))
                for program in parts.programs:
                    program.check()
                raise
            if console.is_terminal:
                live.update(panel(parts, snapshot), refresh=True)
            else:
                told.show(snapshot)
            elapsed = time.monotonic() - began
            if parts.options.duration is not None and elapsed >= parts.options.duration:
                return
            if cycle.over(snapshot.truth) and not parts.options.keep and parts.options.duration is None:
                return
            time.sleep(LOOK_SECONDS)


def _conclude(console: Console, facts: Facts, started_at: int, *, interrupted: bool, directory: Path) -> int:
    found = problems(facts, started_at)
    console.print()
    for line in lines(facts, found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"logs                 {directory}", highlight=False, soft_wrap=True)
    if interrupted:
        console.print("Ended by you before the cycle was over." if found else "Ended by you.")
        return 130 if found else 0
    return 1 if found else 0
