"""What a run came to, and whether it proved what it should. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ScaleSeen:
    """One replica change that the API server accepted: the ground truth."""

    at: datetime
    target: str
    from_replicas: int
    to_replicas: int
    who: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What was measured in one run. Times of latencies are real seconds; minutes are simulated."""

    scales: tuple[ScaleSeen, ...]
    min_replicas: int
    max_replicas: int
    peak_utilization: float
    mean_utilization: float
    minutes_saturated: float
    minutes: float
    latencies: tuple[float, ...]
    """From an alert's startsAt to the accepted scale, one for each scale-up."""
    latencies_down: tuple[float, ...]
    """The same for scale-downs, which wait for cooldown and stabilization window by design."""
    deliveries_sent: int
    deliveries_failed: int
    deliveries_taken: int
    evaluations_missed: int
    evaluation_failures: int
    speed: float
    faults: tuple[str, ...] = field(default=())
    """Sentences about programs that ended early, and the like."""

    @property
    def ups(self) -> int:
        return sum(scale.to_replicas > scale.from_replicas for scale in self.scales)

    @property
    def downs(self) -> int:
        return sum(scale.to_replicas < scale.from_replicas for scale in self.scales)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile; None of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def problems(facts: Facts, started_at_replicas: int) -> tuple[str, ...]:
    """Why the run did not prove the loop, one sentence each; empty when it did."""
    found = list(facts.faults)
    if not facts.ups:
        found.append("It never scaled up under load.")
    if facts.ups and not facts.downs:
        found.append("It never came down after the load had gone.")
    elif facts.downs and facts.scales[-1].to_replicas > started_at_replicas:
        found.append(
            f"It ended at {facts.scales[-1].to_replicas} replicas, above the {started_at_replicas} it began with."
        )
    found.extend(
        f"{scale.target} was scaled to {scale.to_replicas}, outside {facts.min_replicas}..{facts.max_replicas}."
        for scale in facts.scales
        if not facts.min_replicas <= scale.to_replicas <= facts.max_replicas
    )
    if facts.deliveries_failed:
        found.append(f"Alertmanager counts {facts.deliveries_failed} failed notifications.")
    if facts.deliveries_taken < facts.deliveries_sent - facts.deliveries_failed:
        found.append(
            f"Alertmanager sent {facts.deliveries_sent} notifications and the responder took {facts.deliveries_taken}."
        )
    if facts.evaluations_missed:
        found.append(
            f"Prometheus missed {facts.evaluations_missed} rule evaluations: this machine is too slow for "
            f"--speed {facts.speed:g}; try half of it."
        )
    if facts.evaluation_failures:
        found.append(f"Prometheus counts {facts.evaluation_failures} failed rule evaluations.")
    return tuple(found)


def lines(facts: Facts, found: Sequence[str]) -> tuple[str, ...]:
    """The summary, for a person."""

    def latency(value: float | None, note: str = "") -> str:
        if value is None:
            return "none"
        return f"{value * 1000:.0f} ms ({value * facts.speed:.0f} s of simulated time){note}"

    told = [
        f"{facts.minutes:.0f} simulated minutes at {facts.speed:g}x",
        f"scale-ups            {facts.ups}",
        f"scale-downs          {facts.downs}",
        f"replicas             {_path(facts)}",
        f"peak utilization     {facts.peak_utilization:.0%}",
        f"mean utilization     {facts.mean_utilization:.0%}",
        f"above saturation     {facts.minutes_saturated:.1f} simulated minutes",
        f"alert to scale-up    p50 {latency(percentile(facts.latencies, 0.5))}",
        f"                     p99 {latency(percentile(facts.latencies, 0.99))}",
        f"alert to scale-down  p50 {latency(percentile(facts.latencies_down, 0.5), ', window and cooldown included')}",
        f"deliveries           {facts.deliveries_taken} taken of {facts.deliveries_sent} sent",
        f"rule evaluations     {facts.evaluations_missed} missed, {facts.evaluation_failures} failed",
    ]
    return (*told, *(f"PROBLEM: {problem}" for problem in found))


def _path(facts: Facts) -> str:
    if not facts.scales:
        return "never changed"
    return " → ".join(str(n) for n in (facts.scales[0].from_replicas, *(s.to_replicas for s in facts.scales)))


def counter(metrics: str, name: str, labels: Mapping[str, str] | None = None) -> float:
    """The sum of a counter in Prometheus's text format, over the series that carry `labels`."""
    total = 0.0
    for line in metrics.splitlines():
        if not line.startswith(name) or line[len(name) : len(name) + 1] not in ("{", " "):
            continue
        if all(f'{key}="{value}"' in line for key, value in (labels or {}).items()):
            total += float(line.rsplit(" ", 1)[1])
    return total
