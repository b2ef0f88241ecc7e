"""People's word against a real service and the simulated API server: at once, over restarts, ending to the second."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from responder.sim.cluster import SimCluster
from responder.sim.spec import ClusterSpec, WorkloadSpec
from tests.served import Served
from tests.serving import until

KEY = "inference/deployment/vllm"
POLICY = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: inference
  matchers: ['namespace="inference"']
  minReplicas: 1
  maxReplicas: 8
  triggers:
  - {name: six, matchers: ['action="six"'], scale: {direction: Up, type: Replicas, value: 6}}
  - {name: eight, matchers: ['action="eight"'], scale: {direction: Up, type: Replicas, value: 8}}
  behavior: &at_once
    scaleUp: {cooldownSeconds: 0, policies: [{type: Pods, value: 100, periodSeconds: 1}]}
"""


SOON = 10.0
"""Seconds that what is done at once may take on a busy machine: by itself a target is looked at after half a minute."""


class Service(Served):
    """The service, and the API as a person's program uses it."""

    _followed = 0
    """The decision that was found last."""

    def override(self, kind: str, seconds: float, **more: Any) -> Any:
        body = {"kind": kind, "target": KEY, "comment": "test", "durationSeconds": seconds, **more}
        return self.call("POST", "/api/v1/overrides", body)

    def decided(self, reason: str, desired: int) -> Any:
        """The first such decision after the one that was found before, once there is one."""

        def look() -> Any:
            later = [each for each in self.decisions() if each["id"] > self._followed]
            fitting = [each for each in later if (each["reason"], each["desired"]) == (reason, desired)]
            return fitting[-1] if fitting else None

        found = until(look, what=f"{reason} at {desired}; last were {self.decisions()[:3]}")
        self._followed = found["id"]
        return found

    def decisions(self) -> list[Any]:
        found: list[Any] = self.call("GET", "/api/v1/decisions?limit=20")["decisions"]
        return [each for each in found if each["outcome"] is None]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    spec = ClusterSpec(workloads=(WorkloadSpec(replicas=2, cold_start_seconds=0.1),))
    with SimCluster(spec, speed=20) as cluster:
        yield Service(tmp_path, cluster, POLICY)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_pin_acts_at_once_survives_a_restart_and_ends_to_the_second(service: Service) -> None:
    """Of several words the newest is followed while it is in force, and then the one that it was above."""
    with service.running():
        pause = service.override("pause", 600)
        assert "no alert of" in pause["warning"]
        service.fire("six", "vllm")
        service.decided("Paused", 2)
        assert service.scales("vllm") == []

        pin = service.override("pin", 600, replicas=4)
        service.decided("Pinned", 4)
        until(lambda: service.scales("vllm") == [4], what="the pin is written")
        assert (datetime.now(UTC) - moment(pin["createdAt"])).total_seconds() < SOON
    with service.running():
        found = service.call("GET", "/api/v1/overrides")["overrides"]
        assert [each["id"] for each in found] == [pin["id"], pause["id"]]
        assert any(lateness_of_an_end(service) < 1 for _ in range(3)), "three times a second late"
        until(lambda: service.scales("vllm")[-2:] == [5, 4], what="the pin before it is written again")

        service.call("DELETE", f"/api/v1/overrides/{pin['id']}")
        service.decided("Paused", 4)
        service.call("DELETE", f"/api/v1/overrides/{pause['id']}")
        service.decided("ScaledUp", 6)
        until(lambda: service.scales("vllm")[-3:] == [5, 4, 6], what="what the alert asks for is written")
        assert service.scales("vllm")[:3] == [4, 5, 4]


def lateness_of_an_end(service: Service) -> float:
    """How many seconds after the end of a pin at 5 the one before it, at 4, is followed again."""
    short = service.override("pin", 2.5, replicas=5)
    service.decided("Pinned", 5)
    late = moment(service.decided("Pinned", 4)["at"]) - moment(short["endsAt"])
    assert late >= timedelta(0)
    return late.total_seconds()


def test_a_silence_ends_and_a_pin_begins_when_they_say(service: Service) -> None:
    """A silenced alert acts once it is not; a freeze stops all but what is narrower, from the moment it begins."""
    with service.running():
        now = datetime.now(UTC)
        silence = {
            "matchers": [{"name": "alertname", "value": "Alert-six", "isRegex": False}],
            "startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "ana", "comment": "test",
        }  # fmt: skip
        identity = service.call("POST", "/api/v2/silences", silence)["silenceID"]
        service.fire("six", "vllm")
        service.decided("Silenced", 2)
        assert service.scales("vllm") == []
        service.call("DELETE", f"/api/v2/silence/{identity}")
        said = datetime.now(UTC)
        assert (moment(service.decided("ScaledUp", 6)["at"]) - said).total_seconds() < SOON
        until(lambda: service.scales("vllm") == [6], what="6 are written")

        everything = {"kind": "freeze", "comment": "test", "durationSeconds": 600}
        service.call("POST", "/api/v1/overrides", everything)
        service.fire("eight", "vllm")
        assert "frozen by local until" in service.decided("Frozen", 6)["message"]
        assert service.scales("vllm") == [6]
        starts_at = datetime.now(UTC) + timedelta(seconds=1.5)
        pin = service.override("pin", 600, replicas=3, startsAt=starts_at.isoformat())
        begun = moment(service.decided("Pinned", 3)["at"]) - moment(pin["startsAt"])
        assert 0 <= begun.total_seconds() < SOON
        until(lambda: service.scales("vllm") == [6, 3], what="3 are written")
