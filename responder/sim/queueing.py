"""The model of a served workload: requests in, a queue, replicas that are busy or not. Pure.

A replica works on up to `concurrency` requests at once, each for `service_seconds`, so it completes at most
concurrency / service_seconds per second. What does not fit waits, and gives up after `patience_seconds` on
average. Requests are a fluid: no randomness, so two runs of one demand agree.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

SATURATION_RATIO = 0.85
"""Utilization above which a workload counts as saturated: the threshold of the shipped scale-up rule."""

MAX_STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Service:
    """What one replica can do. Durations in simulated seconds."""

    concurrency: float = 10.0
    service_seconds: float = 10.0
    patience_seconds: float = 30.0
    target_in_flight: float = 8.0

    @property
    def requests_per_second(self) -> float:
        """What one replica completes when busy throughout."""
        return self.concurrency / self.service_seconds

    @property
    def target_requests_per_second(self) -> float:
        """The demand that keeps `target_in_flight` requests in a replica (Little's law)."""
        return self.target_in_flight / self.service_seconds


@dataclass(slots=True)
class Queue:
    """State and ground truth of one workload. `advance` moves it; the rest reads it."""

    service: Service
    in_flight: float = 0.0
    ready: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    arrived: float = 0.0
    served: float = 0.0
    abandoned: float = 0.0
    saturated_seconds: float = 0.0
    busy_seconds: float = 0.0
    replica_seconds: float = 0.0
    peak_utilization: float = 0.0
    peak_ready: int = 0
    peak_waiting: float = 0.0

    @property
    def running(self) -> float:
        """Requests being worked on."""
        return min(self.in_flight, self.service.concurrency * self.ready)

    @property
    def waiting(self) -> float:
        """Requests that no replica has room for."""
        return self.in_flight - self.running

    @property
    def utilization(self) -> float:
        """Busy share of the ready replicas, at most 1; 0 without any."""
        room = self.service.concurrency * self.ready
        return self.running / room if room else 0.0

    @property
    def mean_utilization(self) -> float:
        """Over all replica-seconds so far."""
        return self.busy_seconds / self.replica_seconds if self.replica_seconds else 0.0

    def advance(self, start: float, end: float, rate: Callable[[float], float], ready: int) -> None:
        """Lives from `start` to `end` seconds of load with `ready` replicas."""
        self.ready = ready
        span = end - start
        if span <= 0:
            return
        steps = max(1, math.ceil(span / MAX_STEP_SECONDS))
        dt = span / steps
        for i in range(steps):
            self._step(rate(start + (i + 0.5) * dt), dt)

    def _step(self, rate: float, dt: float) -> None:
        self.rate = rate
        running, waiting = self.running, self.waiting
        served = running * min(1.0, dt / self.service.service_seconds)
        abandoned = waiting * min(1.0, dt / self.service.patience_seconds)
        self.in_flight = max(0.0, self.in_flight + rate * dt - served - abandoned)
        self.seconds += dt
        self.arrived += rate * dt
        self.served += served
        self.abandoned += abandoned
        utilization = self.utilization
        self.busy_seconds += utilization * self.ready * dt
        self.replica_seconds += self.ready * dt
        if utilization > SATURATION_RATIO or (self.ready == 0 and self.in_flight >= 1):
            self.saturated_seconds += dt
        self.peak_utilization = max(self.peak_utilization, utilization)
        self.peak_ready = max(self.peak_ready, self.ready)
        self.peak_waiting = max(self.peak_waiting, self.waiting)


def share(total: float, index: int, count: int) -> int:
    """The `index`-th of `count` even shares of a rounded total; the shares add up to it."""
    whole = round(total)
    return whole // count + (1 if index < whole % count else 0)
