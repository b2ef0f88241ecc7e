"""What 10,000 targets cost the store in ConfigMaps: `python -m bench.many`.

A simulated API server in this process holds them, two alerts each; another process opens the store as one does that
begins to act, reads them all, and then changes one at a time.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from bench import alerts, programs
from bench.errors import BenchError
from responder.kube import KubeCluster
from responder.model import Commit, Record, Span, TargetRef
from responder.sim.defaults import apply_defaults, prepare_for_create
from responder.sim.manifests import manifest
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from responder.sim.spec import WorkloadSpec
from responder.sim.view import DEPLOYMENTS
from responder.store.kubernetes import KubernetesStore

NAMESPACE = "gpu-responder"
TARGETS = 10_000
AT_ONCE = 500
COMMITS = 200
PAGES = 50
NAME = "w{:05}"
MEBI = 2**20


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--targets", type=int, default=TARGETS)
    options.add_argument("--kubeconfig", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.kubeconfig:
        measure(chosen.kubeconfig)
        return 0
    objects = ObjectStore()
    with tempfile.TemporaryDirectory() as folder, SimServer(objects) as server:
        for name in (NAMESPACE, alerts.NAMESPACE):
            objects.create("namespaces", {"metadata": {"name": name}}, manager="bench")
        kubeconfig = str(server.kubeconfig(Path(folder) / "kubeconfig"))
        store = KubernetesStore(NAMESPACE, kubeconfig)
        made = list(records(chosen.targets))
        for first in range(0, len(made), AT_ONCE):
            store.commit(Commit(records=tuple((record, 0) for record in made[first : first + AT_ONCE])))
        store.close()
        for record in made:
            deployment = manifest(WorkloadSpec(name=record.target.name))
            apply_defaults(DEPLOYMENTS, deployment)
            prepare_for_create(DEPLOYMENTS, deployment)
            objects.create(DEPLOYMENTS, deployment, manager="bench")
        print("| what | figure |\n| --- | --- |")
        print(f"| ConfigMaps of {chosen.targets:,} targets | {size(objects) / MEBI:.1f} MiB |", flush=True)
        subprocess.run([sys.executable, "-m", "bench.many", "--kubeconfig", kubeconfig], check=True)
        page(Path(folder), kubeconfig)
    return 0


def records(count: int) -> Iterator[Record]:
    """Targets with two alerts each, as they are after a delivery."""
    now = datetime.now(UTC)
    for number in range(count):
        name = NAME.format(number)
        spans = {}
        for action in ("scale_up", "watch"):
            told = alerts.alert(name, action, f"{number:015x}{action[0]}")
            key = told["fingerprint"]
            spans[key] = Span(key, told["labels"], told["annotations"], True, now, now, now)
        yield Record(TargetRef(alerts.NAMESPACE, "Deployment", name), alerts=spans)


def size(objects: ObjectStore) -> int:
    """Bytes of all ConfigMaps, as they are stored: data is base64 there."""
    maps = [entry.obj for entry in objects.entries("configmaps", NAMESPACE)]
    return sum(
        len(text) for each in maps for part in ("data", "binaryData") for text in each.get(part, {}).values()
    )


def measure(kubeconfig: str) -> None:
    """In a process of its own: what one takes that begins to act."""
    process = psutil.Process()
    before, began = process.memory_info().rss, time.perf_counter()
    store = KubernetesStore(NAMESPACE, kubeconfig)
    now = datetime.now(UTC)
    store.lease("actor", "bench/1/1", timedelta(seconds=600), now)
    unseen = len(store.unseen())
    took = time.perf_counter() - began
    grown = process.memory_info().rss - before
    print(f"| a process that begins to act has all {unseen:,} | after {took:.1f} s |")
    print(
        f"| memory of that process | {process.memory_info().rss / MEBI:.0f} MiB, of it {grown / MEBI:.0f} for them |"
    )
    times = []
    for record, version in list(store.records())[:COMMITS]:
        began = time.perf_counter()
        store.commit(Commit(records=((replace(record, uid="seen"), version),)))
        times.append(time.perf_counter() - began)
    print(f"| one commit | {1000 * statistics.median(times):.1f} ms |", flush=True)
    store.close()
    watch(kubeconfig, process)


def page(folder: Path, kubeconfig: str) -> None:
    """What the list of targets takes in a service that knows them all and does not act yet."""
    port = programs.free_port()
    command = [
        sys.executable, "-m", "responder", "serve", "--policy", "examples/policies.yaml", "--bind", f"127.0.0.1:{port}",
        "--store", f"kubernetes:{NAMESPACE}", "--kubeconfig", kubeconfig,
    ]  # fmt: skip
    times = []
    with programs.running(command, port, "/", folder / "log") as ours:
        for _ in range(PAGES):
            began = time.perf_counter()
            with urllib.request.urlopen(ours.url, timeout=60) as answer:
                answer.read()
            times.append(time.perf_counter() - began)
    print(
        f"| a page of the list of targets, the median of {PAGES} | {1000 * statistics.median(times):.0f} ms |"
    )


def watch(kubeconfig: str, process: psutil.Process) -> None:
    """What keeping every Deployment current takes beside it."""
    cluster = KubeCluster(kubeconfig)
    last = TargetRef(alerts.NAMESPACE, "Deployment", NAME.format(0))
    before, began = process.memory_info().rss, time.perf_counter()
    cluster.keep_current()
    while cluster.seen(last) is None:
        if time.perf_counter() - began > 120:
            raise BenchError("the Deployments are not watched after two minutes")
        time.sleep(0.05)
    took, grown = time.perf_counter() - began, process.memory_info().rss - before
    print(f"| watching as many Deployments | after {took:.1f} s, {grown / MEBI:.0f} MiB more |")
    cluster.close()


if __name__ == "__main__":
    sys.exit(main())
