"""The simulated cluster, assembled: store, API server, controllers, demand and telemetry in one process."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from responder.sim.api import Response
from responder.sim.clock import SimClock
from responder.sim.defaults import apply_defaults, prepare_for_create
from responder.sim.demand import Demand, Served
from responder.sim.kubelet import DEFAULT_COLD_START_SECONDS
from responder.sim.load import Curve
from responder.sim.loop import ControlLoop
from responder.sim.manifests import manifest
from responder.sim.nodes import make_node
from responder.sim.objects import Object, ObjectStore
from responder.sim.requests import Request
from responder.sim.server import SimServer
from responder.sim.spec import ClusterSpec
from responder.sim.telemetry import FaultError, Page, Telemetry, json_page, route
from responder.sim.view import DEPLOYMENTS, NODES, STATEFULSETS, Ref, Workload

log = logging.getLogger(__name__)

_TICK_SIMULATED_SECONDS = 5.0
_CREATOR = "kubectl-create"
# Not /metrics itself: that one is the API server's, where only those with rights may look.
_PREFIXES = ("/metrics/dcgm/", "/metrics/vllm/", "/metrics/kube-state-metrics", "/sim/")


class _Server(SimServer):
    """The API server with the exporters' pages and `/sim/...` beside it."""

    def __init__(self, store: ObjectStore, page: Callable[[Request], Response], *, port: int) -> None:
        super().__init__(store, port=port)
        self._page = page

    def route(self, request: Request) -> Callable[[Request], Response] | None:
        """The server's own routes first, then ours; None for the Kubernetes API."""
        own = super().route(request)
        return self._page if own is None and request.path.startswith(_PREFIXES) else own


class SimCluster:
    """A cluster to talk to over HTTP. Use `start` and `stop`, or `with`.

    Its first pods are Ready from the start. `trace` replaces the built-in day. With `kubelet` False no pod
    becomes Ready until `set_ready`. Making one binds the port: OSError when it is taken.
    """

    def __init__(
        self,
        spec: ClusterSpec | None = None,
        *,
        speed: float = 1.0,
        trace: Curve | None = None,
        port: int = 0,
        kubelet: bool = True,
        clock: SimClock | None = None,
    ) -> None:
        self.spec = spec or ClusterSpec()
        self.clock = clock or SimClock(speed)
        self.store = ObjectStore()
        self.server = _Server(self.store, self._answer, port=port)
        self._populate()
        self.loop = ControlLoop(
            self.store, self.clock, cold_start=DEFAULT_COLD_START_SECONDS, kubelet=kubelet
        )
        self.loop.warm_up()
        self.demand = Demand(self.spec.workloads, trace)
        self.telemetry = Telemetry(self.spec, self.clock, self.loop, self.demand)
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="sim-demand", daemon=True)

    # Life

    def start(self) -> None:
        """Serves, and lets controllers and time run."""
        self.server.start()
        self.loop.start()
        self._ticker.start()

    def stop(self) -> None:
        """Stops everything and waits."""
        self._stopping.set()
        if self._ticker.is_alive():
            self._ticker.join()
        self.loop.stop()
        self.server.stop()

    def __enter__(self) -> "SimCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self.server.url

    def kubeconfig(self, path: Path) -> Path:
        """Writes a kubeconfig for the cluster's administrator."""
        self.server.kubeconfig(path)
        return path

    def start_load(self) -> None:
        """Lets demand begin; until then there are no requests."""
        self.clock.start_load()

    # Tests and demo

    def set_ready(self, namespace: str, name: str, ready: bool = True) -> bool:
        """Makes a pod Ready or not; whether there is such a pod."""
        return self.loop.set_ready(namespace, name, ready)

    def set_rate(self, workload: Workload, requests_per_second: float | None) -> None:
        """Fixes one workload's demand; None returns it to its curve. Raises KeyError if it is not served."""
        self.telemetry.advance()
        with self.telemetry.lock:
            self.demand.served[workload].forced_rate = requests_per_second

    def truth(self) -> dict[str, Any]:
        """What is really going on, in every workload: the figures that alerts and scaling are judged by."""
        self.telemetry.advance()
        load_now = self.clock.load_now()
        with self.loop.lock, self.telemetry.lock:
            return {
                "simulatedSeconds": round(self.clock.now(), 3),
                "loadSeconds": None if load_now is None else round(load_now, 3),
                "loadDurationSeconds": self.demand.shape.duration,
                "load": self.demand.shape.description,
                "speed": self.clock.speed,
                "gpus": self._gpus(),
                "workloads": [self._truth_of(served) for served in self.demand.served.values()],
            }

    def _gpus(self) -> dict[str, int]:
        nodes = [entry.key[1] for entry in self.loop.view.nodes()]
        total = sum(
            int((e.obj["status"].get("allocatable") or {}).get("nvidia.com/gpu", 0))
            for e in self.loop.view.nodes()
        )
        return {"total": total, "held": sum(self.loop.view.used[name]["nvidia.com/gpu"] for name in nodes)}

    def _truth_of(self, served: Served) -> dict[str, Any]:
        workload, queue = served.spec.workload, served.queue
        wanted, pods, pending = self._replicas(workload)
        return {
            "namespace": workload.namespace,
            "kind": workload.kind,
            "name": workload.name,
            "requestsPerSecond": round(queue.rate, 3),
            "utilization": round(queue.utilization, 4),
            "running": round(queue.running, 2),
            "waiting": round(queue.waiting, 2),
            "inFlight": round(queue.in_flight, 2),
            "replicasWanted": wanted,
            "pods": pods,
            "pending": pending,
            "ready": len(served.ready),
            "arrived": round(queue.arrived, 1),
            "served": round(queue.served, 1),
            "abandoned": round(queue.abandoned, 1),
            "minutesSaturated": round(queue.saturated_seconds / 60, 2),
            "peakUtilization": round(queue.peak_utilization, 4),
            "meanUtilization": round(queue.mean_utilization, 4),
            "peakReady": queue.peak_ready,
            "peakWaiting": round(queue.peak_waiting, 1),
            "replicaHours": round(queue.replica_seconds / 3600, 3),
        }

    def _replicas(self, workload: Workload) -> tuple[int | None, int, int]:
        resource = DEPLOYMENTS if workload.kind == "Deployment" else STATEFULSETS
        entry = self.loop.view.get(Ref(resource, workload.namespace, workload.name))
        wanted = None if entry is None else int(entry.obj["spec"].get("replicas") or 0)
        pods = [e.obj for e in self.loop.view.pods() if self.loop.view.workload_of(e.obj) == workload]
        return wanted, len(pods), sum(pod["status"].get("phase") == "Pending" for pod in pods)

    # Inside

    def _tick(self) -> None:
        pause = min(0.5, max(0.02, self.clock.real_seconds(_TICK_SIMULATED_SECONDS)))
        while not self._stopping.wait(pause):
            self.telemetry.advance()

    def _populate(self) -> None:
        for index in range(self.spec.nodes):
            node = make_node(index, self.spec.gpus_per_node, self.spec.gpu_model)
            self.store.create(NODES, node, manager="kubelet")
        namespaces = {"default", "kube-system", *(w.namespace for w in self.spec.workloads)}
        for name in sorted(namespaces):
            self._create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for workload in self.spec.workloads:
            resource = DEPLOYMENTS if workload.kind == "Deployment" else STATEFULSETS
            self._create(resource, manifest(workload))

    def _create(self, resource: str, obj: Object) -> None:
        namespace = obj["metadata"].get("namespace") or ""
        if self.store.get(resource, namespace, obj["metadata"]["name"]) is None:
            apply_defaults(resource, obj)
            prepare_for_create(resource, obj)
            self.store.create(resource, obj, manager=_CREATOR)

    def _answer(self, request: Request) -> Response:
        path, method = request.path, request.method
        if path == "/sim/truth" and method == "GET":
            page = json_page(self.truth())
        elif path == "/sim/load" and method == "POST":
            page = self._post_load(request.body)
        elif path == "/sim/telemetry" and method == "POST":
            page = self._post_fault(request.body)
        elif method in ("GET", "HEAD"):
            page = route(self.telemetry, path, self.url.removeprefix("http://"))
        else:
            page = json_page({"error": f"{method} is not for {path}."}, 405)
        return Response(page.status, page.body.encode(), page.content_type)

    def _post_fault(self, body: bytes) -> Page:
        try:
            self.telemetry.inject(_object(body))
        except FaultError as error:
            return json_page({"error": str(error)}, 400)
        return json_page({})

    def _post_load(self, body: bytes) -> Page:
        try:
            table = _object(body)
            if table.get("start"):
                self.start_load()
            if "requestsPerSecond" in table:
                self._force_rate(table)
        except FaultError as error:
            return json_page({"error": str(error)}, 400)
        return json_page({"loadSeconds": self.clock.load_now()})

    def _force_rate(self, table: Mapping[str, Any]) -> None:
        rate = table["requestsPerSecond"]
        if rate is not None and not (isinstance(rate, int | float) and 0 <= rate < float("inf")):
            raise FaultError(f"requestsPerSecond is {rate!r}; write a number of at least 0, or null.")
        workload = Workload(*(str(table.get(key, "")) for key in ("namespace", "kind", "name")))
        if workload not in self.demand.served:
            raise FaultError(f"no workload {'/'.join(workload)} is served here; give namespace, kind, name.")
        self.set_rate(workload, rate)


def _object(body: bytes) -> dict[str, Any]:
    try:
        table = json.loads(body or b"{}")
    except ValueError:
        raise FaultError("the body is not JSON; write an object.") from None
    if not isinstance(table, dict):
        raise FaultError("the body is not a JSON object; write one.")
    return table
