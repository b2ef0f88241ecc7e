"""What a payload would lead to: where each alert goes, what would be decided, on what suppositions."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from responder import config
from responder.explain.offline import Explanation, Given, explain
from responder.model import Reason
from responder.policy import TEST_LABEL
from responder.webhook import BadPayload

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
POLICIES = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
allowedNamespaces: [inference, "team-*"]
heartbeat: {matchers: ['alertname="Watchdog"']}
holds:
- {name: hot, matchers: ['action="hold"'], forbid: Down, equal: [namespace, workload]}
policies:
- name: inference
  matchers: ['team!="other"']
  minReplicas: 2
  maxReplicas: 8
  triggers:
  - name: backlog
    matchers: ['action="scale_up"', 'signal="queue"']
    scale:
      direction: Up
      type: AverageValue
      target: 8
      valueFrom: {query: 'sum(inflight{workload="{{ $labels.workload }}"})'}
  - name: measured
    matchers: ['action="scale_up"', 'signal="annotation"']
    scale: {direction: Up, type: AverageValue, target: 8, valueFrom: {annotation: value}}
  - name: up
    matchers: ['action="scale_up"']
    scale: {direction: Up, type: Pods, value: 1}
  - name: down
    matchers: ['action="scale_down"']
    scale: {direction: Down, type: Pods, value: 1}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 0}
"""
SETTINGS = config.loads(POLICIES)


def alert(name: str = "Busy", firing: bool = True, annotations: Any = None, **labels: str) -> dict[str, Any]:
    given = {
        "namespace": "inference",
        "workload": "vllm",
        "workload_type": "deployment",
        "action": "scale_up",
    }
    return {
        "status": "firing" if firing else "resolved",
        "labels": {"alertname": name, **given, **labels},
        "annotations": annotations or {},
        "startsAt": "2026-11-30T11:55:00Z",
        "endsAt": "0001-01-01T00:00:00Z" if firing else "2026-11-30T11:59:00Z",
        "fingerprint": f"{name}-{abs(hash(json.dumps(labels, sort_keys=True))):x}"[:40],
    }


def explained(*alerts: Any, **given: Any) -> Explanation:
    body = json.dumps({"version": "4", "receiver": "r", "groupKey": "g", "alerts": alerts}).encode()
    return explain(body, SETTINGS, Given(**given), NOW)


def test_a_decision_with_its_chain_and_what_was_supposed() -> None:
    """From three replicas one more, rule by rule, and nothing is left unsaid that was made up."""
    found = explained(alert(), replicas=3)
    (fate,), (decided,) = found.fates, found.decisions
    assert (fate.policy, fate.trigger, fate.target) == ("inference", "up", "inference/deployment/vllm")
    decision = decided.decision
    assert (decision.current, decision.desired, decision.reason) == (3, 4, Reason.SCALED_UP)
    assert [step.rule for step in decision.chain][:3] == ["current", "owner", "triggers"]
    assert decided.assumed == ("all of them are ready (say otherwise with --ready)", "the heartbeat is fresh")


def test_without_a_count_the_minimum_is_supposed() -> None:
    """And said, since the decision hangs on it."""
    (decided,) = explained(alert()).decisions
    assert decided.decision.current == 2
    assert decided.assumed[0] == "2 replicas are there (minReplicas; say otherwise with --replicas)"


@pytest.mark.parametrize("name", ["vllm", "inference/vllm", "inference/deployment/vllm"])
def test_counts_may_be_given_for_one_target(name: str) -> None:
    """By any of its names; the others keep what is given for all."""
    found = explained(alert(), alert(workload="other"), replicas=3, replicas_of={name: 6}, ready=1)
    counts = {each.target: each.decision.current for each in found.decisions}
    assert counts == {"inference/deployment/vllm": 6, "inference/deployment/other": 3}


def test_a_value_is_used_and_its_lack_is_told() -> None:
    """The query is not asked: its answer is given, or the sentence says how to give it."""
    queue = alert(signal="queue")
    (with_value,) = explained(queue, replicas=3, values={"backlog": 40}).decisions
    assert (with_value.decision.desired, with_value.decision.reason) == (5, Reason.SCALED_UP)
    (without,) = explained(queue, replicas=3).decisions
    assert without.decision.reason is Reason.VALUE_MISSING
    assert "say it with --value backlog=…" in without.decision.message


def test_a_value_in_an_annotation_is_in_the_payload() -> None:
    """As the service reads it; what is no number is missing."""
    (decided,) = explained(alert(signal="annotation", annotations={"value": "40"}), replicas=3).decisions
    assert decided.decision.desired == 5
    (decided,) = explained(alert(signal="annotation", annotations={"value": "much"}), replicas=3).decisions
    assert decided.decision.reason is Reason.VALUE_MISSING


def test_holds_of_the_payload_hold() -> None:
    """One alert of it wants down and another forbids it."""
    found = explained(alert("Idle", action="scale_down"), alert("Hot", action="hold"), replicas=5)
    (decided,) = found.decisions
    assert decided.decision.reason is Reason.HELD
    assert found.fates[1].note == "it is a hold or the heartbeat"
    (decided,) = explained(alert("Idle", action="scale_down"), replicas=5).decisions
    assert decided.decision.reason is Reason.SCALED_DOWN


def test_the_files_freeze_counts() -> None:
    """An explanation is of the file as it is."""
    frozen = config.loads(POLICIES + "freeze: moving racks\n")
    body = json.dumps({"version": "4", "receiver": "r", "groupKey": "g", "alerts": [alert()]}).encode()
    (decided,) = explain(body, frozen, Given(replicas=3), NOW).decisions
    assert decided.decision.reason is Reason.FROZEN


@pytest.mark.parametrize(
    ("made", "note"),
    [
        (alert(team="other"), "no policy takes it"),
        (alert(action="none"), "no trigger takes it"),
        (alert("Watchdog"), "it is a hold or the heartbeat"),
        (alert(workload="", pod="vllm-0"), "its target is looked up in the cluster: say it with --target"),
    ],
    ids=["another team's", "no trigger's", "the heartbeat", "one that names a pod"],
)
def test_alerts_that_lead_nowhere_say_why(made: dict[str, Any], note: str) -> None:
    """None of them is silently dropped."""
    assert explained(made).fates[0].note == note


def test_rejected_alerts_are_told_beside_their_siblings() -> None:
    """By their name and the sentence that Alertmanager would be told."""
    broken = alert("Broken")
    broken["startsAt"] = "yesterday"
    found = explained(broken, alert(), 7)
    assert found.fates[0].name == "Broken"
    assert "startsAt" in found.fates[0].rejected
    assert found.fates[2].rejected
    assert found.fates[1].target == "inference/deployment/vllm"


def test_a_target_can_be_given_for_alerts_that_name_none() -> None:
    """Its kind as people write it."""
    made = alert(workload="", pod="vllm-0")
    found = explained(made, target=("inference", "statefulset", "vllm"), replicas=3)
    assert found.fates[0].target == "inference/statefulset/vllm"
    assert found.decisions[0].decision.desired == 4


def test_a_namespace_that_is_not_allowed_is_told() -> None:
    """The decision is to do nothing, for that reason."""
    (decided,) = explained(alert(namespace="prod"), replicas=3).decisions
    assert decided.decision.reason is Reason.NOT_ALLOWED


def test_a_resolve_of_an_unknown_alert_does_nothing() -> None:
    """A service that knows nothing makes nothing of it."""
    (decided,) = explained(alert(firing=False), replicas=3).decisions
    assert not decided.decision.acts
    assert decided.decision.message == "nothing fires that is known of it"


def test_a_test_alert_leads_nowhere_and_takes_nobodys_place() -> None:
    """As in the service, where nothing acts on it; the alerts after it are explained as ever."""
    found = explained(alert("GPUResponderTest", **{TEST_LABEL: "t1"}), alert(), replicas=3)
    assert [(fate.name, fate.target) for fate in found.fates] == [
        ("GPUResponderTest", ""),
        ("Busy", "inference/deployment/vllm"),
    ]
    assert "only asks whether alerts arrive" in found.fates[0].note
    assert [each.decision.desired for each in found.decisions] == [4]


def test_what_is_no_payload_is_refused() -> None:
    """In the words of the webhook."""
    with pytest.raises(BadPayload, match="point Prometheus at Alertmanager"):
        explain(b"[]", SETTINGS, Given(), NOW)
