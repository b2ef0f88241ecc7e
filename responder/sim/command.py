"""`gpu-responder sim`: the simulated cluster alone, for testing other things with it."""

import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import click

from responder.sim.clock import SimClock
from responder.sim.cluster import SimCluster
from responder.sim.dcgm import Generation
from responder.sim.load import read_trace
from responder.sim.spec import ClusterSpec, WorkloadSpec, parse_workload, read_spec
from responder.sim.telemetry import JOBS


@click.command("sim")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; 0 picks a free one."
)
@click.option(
    "--kubeconfig-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a kubeconfig for the cluster here.",
)
@click.option("--file", "file", type=click.Path(path_type=Path), help="Cluster description in YAML.")
@click.option("--nodes", type=click.IntRange(0, 1000), help="Number of nodes.  [default: 4]")
@click.option("--gpus-per-node", type=click.IntRange(0, 16), help="GPUs on each.  [default: 4]")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="NS/KIND/NAME=REPLICAS",
    help="A served workload, instead of the default ones. Repeatable.",
)
@click.option(
    "--speed", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
    help="Simulated seconds per second.",
)  # fmt: skip
@click.option("--trace", type=click.Path(path_type=Path), help="Demand as CSV, instead of the built-in day.")
@click.option(
    "--dcgm-generation",
    type=click.Choice([str(g) for g in Generation]),
    help="Dialect of dcgm-exporter.  [default: 4.8]",
)
@click.option("--hold-load", is_flag=True, help="No requests until somebody posts to /sim/load.")
def command(
    port: int,
    kubeconfig_out: Path | None,
    file: Path | None,
    nodes: int | None,
    gpus_per_node: int | None,
    workloads: tuple[str, ...],
    speed: float,
    trace: Path | None,
    dcgm_generation: str | None,
    hold_load: bool,
) -> None:
    """Serve a simulated GPU cluster: a Kubernetes API, GPU exporters and workloads under load."""
    try:
        spec = read_spec(file) if file else ClusterSpec()
        spec = replace(
            spec,
            nodes=spec.nodes if nodes is None else nodes,
            gpus_per_node=spec.gpus_per_node if gpus_per_node is None else gpus_per_node,
            dcgm_generation=Generation(dcgm_generation) if dcgm_generation else spec.dcgm_generation,
            workloads=tuple(map(parse_workload, workloads)) or spec.workloads,
        )
        curve = read_trace(trace) if trace else None
        clock = SimClock(speed)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        cluster = SimCluster(spec, clock=clock, trace=curve, port=port)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on port {port} ({error.strerror}); choose another with --port."
        ) from None
    if kubeconfig_out:
        # Before it answers: who waits for the first answer goes on to read this.
        _write_kubeconfig(cluster, kubeconfig_out)
    with cluster:
        _serve(cluster, kubeconfig_out, hold_load)


def _write_kubeconfig(cluster: SimCluster, path: Path) -> None:
    try:
        cluster.kubeconfig(path)
    except OSError as error:
        cluster.stop()
        raise click.ClickException(
            f"--kubeconfig-out {path} cannot be written ({error.strerror}); choose another path."
        ) from None


def _serve(cluster: SimCluster, kubeconfig_out: Path | None, hold_load: bool) -> None:
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    if not hold_load:
        cluster.start_load()
    for line in _greeting(cluster, kubeconfig_out):
        click.echo(line)
    sys.stdout.flush()
    stopped.wait()


def _greeting(cluster: SimCluster, kubeconfig: Path | None) -> list[str]:
    spec, url = cluster.spec, cluster.url
    lines = [
        f"Kubernetes API     {url}",
        f"ground truth       {url}/sim/truth",
        f"accepted scales    {url}/sim/scales",
        *(f"scrape targets     {url}/sim/http_sd/{job}" for job in JOBS),
        f"nodes              {spec.nodes} with {spec.gpus_per_node} GPUs each ({spec.gpu_model})",
        *(f"workload           {_described(workload)}" for workload in spec.workloads),
        f"speed              {cluster.clock.speed:g} simulated seconds per second",
    ]
    if kubeconfig:
        lines.append(f"try                kubectl --kubeconfig {kubeconfig} get pods -A -w")
    lines.append("Stop with Ctrl-C.")
    return lines


def _described(workload: WorkloadSpec) -> str:
    return f"{workload.namespace}/{workload.kind.lower()}/{workload.name}, {workload.replicas} replica(s)"
