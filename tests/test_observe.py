"""What a decision looks at: the cluster's free devices are asked for only where the policy wants them."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from responder.model import Budget, Ownership, Pods, Record, TargetRef, Workload
from responder.observe import observe
from responder.policy import Capacity, Policy, Rules, Settings

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TARGET = TargetRef("inference", "Deployment", "vllm")
WORKLOAD = Workload("u", 1, "7", 2)


@dataclass(frozen=True)
class Fit:
    more: int
    limit: str


class Cluster:
    def __init__(self, found: Fit | None) -> None:
        self.found, self.asked = found, 0

    def pods(self, ref: TargetRef, workload: Workload) -> Pods:
        return Pods(2, 2)

    def ownership(self, ref: TargetRef, workload: Workload) -> Ownership:
        return Ownership()

    def fit(self, ref: TargetRef, workload: Workload) -> Fit | None:
        self.asked += 1
        return self.found


class People:
    def overrides(self) -> tuple[()]:
        return ()

    silences = standing = overrides


@pytest.mark.parametrize(
    ("capacity", "found", "asked", "seen"),
    [
        pytest.param(Capacity.IGNORE, Fit(1, "x"), 0, (None, ""), id="Ignore does not ask"),
        pytest.param(Capacity.REPORT, Fit(3, "nvidia.com/gpu"), 1, (3, "nvidia.com/gpu"), id="Report asks"),
        pytest.param(Capacity.CLIP, Fit(0, "amd.com/gpu"), 1, (0, "amd.com/gpu"), id="Clip asks"),
        pytest.param(Capacity.CLIP, None, 1, (None, ""), id="what cannot be told bounds nothing"),
    ],
)
def test_free_devices(capacity: Capacity, found: Any, asked: int, seen: tuple[int | None, str]) -> None:
    """How many more fit, and for want of what no more."""
    rules = Rules(cooldown=NOW - NOW, stabilization_window=NOW - NOW)
    policy = replace(Policy("p", (), 1, 9, (), rules, rules), capacity=capacity)
    cluster = Cluster(found)
    observed = observe(
        Settings((policy,)),
        policy,
        Record(TARGET),
        WORKLOAD,
        cluster=cluster,  # type: ignore[arg-type]
        values=None,  # type: ignore[arg-type]
        people=People(),
        budget=Budget(),
        started_at=NOW,
        now=NOW,
    )
    assert (observed.schedulable, observed.scarce) == seen
    assert cluster.asked == asked
