"""Demand meeting replicas, for every workload of the cluster, as simulated time goes by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from responder.sim.load import Curve, day_curve, fitted, steady_curve
from responder.sim.queueing import Queue
from responder.sim.spec import WorkloadSpec
from responder.sim.view import Ref, Workload


@dataclass(slots=True)
class Served:
    """One workload's demand, queue and the requests each of its pods has finished."""

    spec: WorkloadSpec
    curve: Curve
    queue: Queue
    forced_rate: float | None = None
    ready: tuple[Ref, ...] = ()
    finished: dict[Ref, float] = field(default_factory=dict)

    def rate(self) -> Callable[[float], float]:
        """Requests per second as a function of seconds of load."""
        forced = self.forced_rate
        return self.curve.rate if forced is None else lambda _: forced

    def advance(self, start: float, end: float) -> None:
        """Lives from `start` to `end` seconds of load."""
        before = self.queue.served
        self.queue.advance(start, end, self.rate(), len(self.ready))
        if self.ready:
            each = (self.queue.served - before) / len(self.ready)
            self.finished = {ref: self.finished.get(ref, 0.0) + each for ref in self.ready}


class Demand:
    """All workloads that receive requests. Not thread-safe: its owner holds a lock."""

    def __init__(self, specs: Sequence[WorkloadSpec], trace: Curve | None = None) -> None:
        shape = trace or day_curve()
        self.shape = shape
        self.served = {spec.workload: _served(spec, shape) for spec in specs if spec.load != "none"}
        self._until = 0.0

    def advance(self, now: float | None, ready: Mapping[Workload, tuple[Ref, ...]]) -> None:
        """Lives until `now` seconds of load (None: it has not begun), with these pods ready."""
        until = self._until if now is None else max(self._until, now)
        for workload, served in self.served.items():
            served.ready = ready.get(workload, ())
            served.advance(self._until, until)
        self._until = until


def _served(spec: WorkloadSpec, shape: Curve) -> Served:
    per_replica = spec.service.target_requests_per_second
    if spec.load == "steady":
        curve = steady_curve(spec.peak_replicas * per_replica)
    else:
        curve = fitted(shape, replicas=spec.peak_replicas, requests_per_second=per_replica)
    return Served(spec, curve, Queue(spec.service))
