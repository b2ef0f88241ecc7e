"""The pages that Prometheus scrapes, the lists by which it finds them, and the faults that tests ask for."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from responder.sim import dcgm, kube_state, vllm
from responder.sim.clock import SimClock
from responder.sim.demand import Demand
from responder.sim.gpus import Gpu
from responder.sim.loop import ControlLoop
from responder.sim.queueing import share
from responder.sim.scheduler import Devices
from responder.sim.spec import ClusterSpec
from responder.sim.view import PODS, Ref, Workload, internal_ip, is_active, is_ready, requests_of

log = logging.getLogger(__name__)

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREALLOCATED = 0.90
"""Share of GPU memory that a server takes when it starts, busy or not (vLLM's default)."""

JOBS = ("nvidia-dcgm-exporter", "vllm", "kube-state-metrics")
_PROMPT_TOKENS, _GENERATION_TOKENS = 600, 250
_FAULT_KEYS = ("node", "gpu", "temperatureCelsius", "xid", "lost", "exporterDown", "absent", "clear")


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP answer."""

    body: str
    status: int = 200
    content_type: str = METRICS_TYPE


def json_page(value: object, status: int = 200) -> Page:
    """An answer in JSON."""
    return Page(json.dumps(value), status, "application/json")


class FaultError(ValueError):
    """A fault that cannot be set; the message is one sentence."""


class Telemetry:
    """Lets demand meet the pods that are ready, and shows what exporters would.

    `advance` is called often, by the cluster's own thread and by every scrape.
    """

    def __init__(self, spec: ClusterSpec, clock: SimClock, loop: ControlLoop, demand: Demand) -> None:
        self.demand = demand
        self.lock = threading.RLock()
        self._spec = spec
        self._clock = clock
        self._loop = loop
        self._view = loop.view
        self._devices = Devices(loop.view)
        self._kube_state = kube_state.KubeState(loop.view)
        self._gpus: dict[str, list[Gpu]] = {}
        self._down: set[str] = set()
        self._absent: frozenset[str] = frozenset()
        self._seen = -1
        self._ready: dict[Workload, tuple[Ref, ...]] = {}
        self._workload_of: dict[Ref, Workload] = {}

    def advance(self) -> None:
        """Brings demand up to now."""
        with self._loop.lock, self.lock:
            self._look()
            self.demand.advance(self._clock.load_now(), self._ready)

    def _look(self) -> None:
        """Which pods serve which workload, if pods changed since the last look."""
        if self._seen == self._view.placement_version:
            return
        self._seen = self._view.placement_version
        ready: dict[Workload, list[Ref]] = {}
        self._workload_of = {}
        for entry in self._view.pods():
            workload = self._view.workload_of(entry.obj)
            if workload is None or not is_active(entry.obj):
                continue
            ref = Ref(PODS, *entry.key)
            self._workload_of[ref] = workload
            if is_ready(entry.obj):
                ready.setdefault(workload, []).append(ref)
        self._ready = {workload: tuple(sorted(refs)) for workload, refs in ready.items()}

    # Pages

    def dcgm(self, node: str) -> Page:
        """The exporter of one node."""
        self.advance()
        with self._loop.lock, self.lock:
            if node in self._down or ("", node) not in self._view.entries["nodes"]:
                return Page("no such exporter\n", 503 if node in self._down else 404, "text/plain")
            now = self._clock.now()
            gpus = self._observed(node, now)
            holders = (*self._devices.on(node), *[None] * len(gpus))[: len(gpus)]
            containers = [self._container(holder) for holder in holders]
            return Page(
                dcgm.render(
                    gpus, holders, containers, self._spec.dcgm_generation, now=now, absent=self._absent
                )
            )

    def _observed(self, node: str, now: float) -> list[Gpu]:
        holders = self._devices.on(node)
        gpus = self._gpus_of(node)
        for gpu, holder in zip(gpus, holders, strict=False):
            utilization = memory = 0.0
            entry = self._view.get(holder) if holder else None
            if holder and entry and entry.obj["status"].get("phase") == "Running":
                memory = PREALLOCATED
                served = self.demand.served.get(self._workload_of.get(holder, Workload("", "", "")))
                if served and holder in served.ready:
                    utilization = served.queue.utilization
            gpu.observe(now, utilization, memory)
        return gpus

    def _gpus_of(self, node: str) -> list[Gpu]:
        gpus = self._gpus.setdefault(node, [])
        count = len(self._devices.on(node))
        gpus.extend(Gpu(node, i, self._spec.gpu_model) for i in range(len(gpus), count))
        return gpus[:count]

    def _container(self, holder: Ref | None) -> str:
        entry = self._view.get(holder) if holder else None
        if entry is None:
            return ""
        for container in entry.obj["spec"].get("containers") or ():
            if requests_of({"spec": {"containers": [container]}}):
                return str(container["name"])
        return ""

    def vllm(self, namespace: str, name: str) -> Page:
        """The server in one pod: it answers once the model is loaded."""
        self.advance()
        ref = Ref(PODS, namespace, name)
        with self._loop.lock, self.lock:
            served = self._server(ref)
            if served is None:
                return Page("no such server\n", 404, "text/plain")
            if ref not in served.ready:
                return Page("loading\n", 503, "text/plain")
            index, count = served.ready.index(ref), len(served.ready)
            running = share(served.queue.running, index, count)
            finished = int(served.finished.get(ref, 0.0))
            reading = vllm.Reading(
                running=running,
                waiting=share(served.queue.waiting, index, count),
                kv_cache_ratio=0.9 * served.queue.utilization,
                finished=finished,
                prompt_tokens=finished * _PROMPT_TOKENS,
                generation_tokens=finished * _GENERATION_TOKENS,
            )
            old = self._spec.dcgm_generation is dcgm.Generation.V3_3
            page = vllm.render(reading, served.spec.model, old_cache_name=old)
        return Page(_without(page, self._absent))

    def _server(self, ref: Ref) -> Any:
        workload = self._workload_of.get(ref)
        return self.demand.served.get(workload) if workload else None

    def kube_state(self) -> Page:
        """kube-state-metrics."""
        with self._loop.lock:
            return Page(self._kube_state.render(self._absent))

    def targets(self, job: str, address: str) -> Page:
        """Prometheus's http_sd for one job: its targets, labelled as a monitor of the operator would."""
        finders: Mapping[str, Callable[[str], list[dict[str, Any]]]] = {
            "nvidia-dcgm-exporter": self._exporters,
            "vllm": self._servers,
            "kube-state-metrics": self._kube_state_target,
        }
        if job not in finders:
            return json_page({"error": f"no job {job!r}; there are {', '.join(JOBS)}."}, 404)
        self.advance()
        with self._loop.lock, self.lock:
            return json_page(finders[job](address))

    def _exporters(self, address: str) -> list[dict[str, Any]]:
        found = []
        for entry in self._view.nodes():
            node = entry.key[1]
            if self._devices.on(node):
                labels = {
                    "__metrics_path__": f"/metrics/dcgm/{node}",
                    "__meta_kubernetes_pod_node_name": node,
                    "instance": f"{internal_ip(entry.obj)}:{dcgm.EXPORTER_PORT}",
                    "namespace": dcgm.NAMESPACE,
                    "pod": f"nvidia-dcgm-exporter-{_tag(entry.obj)}",
                    "container": "nvidia-dcgm-exporter",
                    "service": "nvidia-dcgm-exporter",
                    "endpoint": "gpu-metrics",
                    "node": node,
                }
                found.append({"targets": [address], "labels": labels})
        return found

    def _servers(self, address: str) -> list[dict[str, Any]]:
        found = []
        for ref in sorted(self._workload_of):
            entry = self._view.get(ref)
            ip = entry.obj["status"].get("podIP") if entry else None
            if entry and ip and self._server(ref) is not None:
                labels = {
                    "__metrics_path__": f"/metrics/vllm/{ref.namespace}/{ref.name}",
                    "__meta_kubernetes_pod_node_name": entry.obj["spec"]["nodeName"],
                    "instance": f"{ip}:{vllm.PORT}",
                    "namespace": ref.namespace,
                    "pod": ref.name,
                    "container": entry.obj["spec"]["containers"][0]["name"],
                    "endpoint": "http",
                }
                found.append({"targets": [address], "labels": labels})
        return found

    def _kube_state_target(self, address: str) -> list[dict[str, Any]]:
        # kube-prometheus drops pod, service, endpoint and namespace of this target, so that they cannot be
        # mistaken for those of the objects.
        labels = {
            "__metrics_path__": "/metrics/kube-state-metrics",
            "instance": f"10.0.0.2:{kube_state.PORT}",
            "container": "kube-state-metrics",
        }
        return [{"targets": [address], "labels": labels}]

    # Faults

    def inject(self, fault: Mapping[str, Any]) -> None:
        """Sets one fault (see docs/simulator.md); raises FaultError when it makes no sense."""
        unknown = sorted(set(fault) - set(_FAULT_KEYS))
        if unknown or not fault:
            said = f"unknown key {unknown[0]!r}; " if unknown else "nothing to do; "
            raise FaultError(f"{said}keys are {', '.join(_FAULT_KEYS)}.")
        with self._loop.lock, self.lock:
            if fault.get("clear"):
                self._clear()
            if "absent" in fault:
                self._absent = _names(fault["absent"])
            if "exporterDown" in fault:
                node = self._node(fault)
                (self._down.add if fault["exporterDown"] else self._down.discard)(node)
            if {"temperatureCelsius", "xid", "lost"} & set(fault):
                self._break(self._gpu(fault), fault)

    def _clear(self) -> None:
        self._down.clear()
        self._absent = frozenset()
        for gpus in self._gpus.values():
            for gpu in gpus:
                gpu.forced_celsius, gpu.lost = None, False
                gpu.raise_xid(0.0, 0)

    def _break(self, gpu: Gpu, fault: Mapping[str, Any]) -> None:
        celsius = fault.get("temperatureCelsius")
        if celsius is not None and not _is_number(celsius):
            raise FaultError("temperatureCelsius is not a number; write one, or null to end the fault.")
        xid = fault.get("xid", 0)
        if not isinstance(xid, int) or isinstance(xid, bool) or xid < 0:
            raise FaultError("xid is not a whole number; write one, or 0 to end the fault.")
        if "temperatureCelsius" in fault:
            gpu.forced_celsius = celsius
        if "xid" in fault:
            gpu.raise_xid(self._clock.now(), xid)
        if "lost" in fault:
            gpu.lost = bool(fault["lost"])

    def _node(self, fault: Mapping[str, Any]) -> str:
        node = fault.get("node")
        if not isinstance(node, str) or ("", node) not in self._view.entries["nodes"]:
            raise FaultError(f"node is {node!r}; name a node of the cluster.")
        return node

    def _gpu(self, fault: Mapping[str, Any]) -> Gpu:
        gpus = self._gpus_of(self._node(fault))
        index = fault.get("gpu")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(gpus):
            raise FaultError(f"gpu is {index!r}; write an index from 0 to {len(gpus) - 1}.")
        return gpus[index]


def route(telemetry: Telemetry, path: str, address: str) -> Page:
    """The page at a path under /metrics or /sim/http_sd."""
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["metrics", "dcgm", node]:
            return telemetry.dcgm(node)
        case ["metrics", "vllm", namespace, pod]:
            return telemetry.vllm(namespace, pod)
        case ["metrics", "kube-state-metrics"]:
            return telemetry.kube_state()
        case ["sim", "http_sd", job]:
            return telemetry.targets(job, address)
    return json_page({"error": f"no page {path!r}."}, 404)


def _names(value: object) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise FaultError("absent is not a list of metric names; write e.g. [DCGM_FI_DEV_GPU_TEMP].")
    return frozenset(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _without(page: str, absent: frozenset[str]) -> str:
    if not absent:
        return page
    kept = []
    for line in page.splitlines():
        words = line.split(" ", 3)
        name = words[2] if line.startswith("#") else line.split("{", 1)[0]
        if name not in absent:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _tag(node: Mapping[str, Any]) -> str:
    return str(node["metadata"]["uid"]).replace("-", "")[:5]
