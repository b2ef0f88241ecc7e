"""Test alerts: they are taken in and told of, and nothing can come of them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from responder import config, webhook
from responder.policy import TEST_LABEL, ours
from tests.web.people import api

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
LABELS = {
    "alertname": "GPUResponderTest",
    "action": "scale_up",
    "namespace": "inference",
    "workload": "chat",
    "workload_type": "deployment",
}
SETTINGS = config.load(Path(__file__).parents[2] / "examples" / "policies.yaml")


def payload(*labels: dict[str, str], status: str = "firing") -> bytes:
    alerts = [
        {
            "status": status,
            "labels": each,
            "annotations": {},
            "startsAt": "2026-05-04T11:59:00Z",
            "endsAt": "2026-05-04T11:59:30Z",
            "generatorURL": "",
            "fingerprint": f"{number:016x}",
        }
        for number, each in enumerate(labels)
    ]
    body = {
        "version": "4", "groupKey": "{}", "truncatedAlerts": 0, "status": status, "receiver": "gpu-responder",
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "", "alerts": alerts,
    }  # fmt: skip
    return json.dumps(body).encode()


def test_a_test_alert_is_accepted_and_is_in_no_delivery() -> None:
    """Its sibling is delivered; the test, though its labels would scale, is only told of."""
    parsed = webhook.parse(payload({**LABELS, TEST_LABEL: "t1"}, LABELS), SETTINGS, NOW)
    assert [result.error for result in parsed.results] == ["", ""]
    assert [each.labels for each in parsed.delivery.notifications] == [LABELS]
    assert [each.labels[TEST_LABEL] for each in parsed.tests] == ["t1"]


@pytest.mark.parametrize(("value", "is_ours"), [("t1", False), ("", True)], ids=["a test", "an empty label"])
def test_healing_from_alertmanager_leaves_tests_alone(value: str, is_ours: bool) -> None:
    """What is read from Alertmanager passes the same gate, so that a test cannot come in by that way."""
    assert ours(SETTINGS, {**LABELS, TEST_LABEL: value}) is is_ours


def test_the_service_tells_of_the_last_test_that_arrived(tmp_path: Path) -> None:
    """By its id, with when and by which receiver; a resolve changes nothing, and no target is known by it."""
    with api(tmp_path) as served:
        where = "/api/v1/webhooks/alertmanager"
        assert served.get("/api/v1/test-alert").json["id"] == ""
        first, resolved = ({**LABELS, TEST_LABEL: name} for name in ("t1", "t0"))
        assert served.post(where, payload(first)).status_code == 200
        assert served.post(where, payload(resolved, status="resolved")).status_code == 200
        told = served.get("/api/v1/test-alert").json
        assert (told["id"], told["receiver"]) == ("t1", "gpu-responder")
        assert datetime.fromisoformat(told["receivedAt"]).tzinfo is not None
        assert served.store.inbox(10) == []
