"""What is delivered: alerts of the size that Alertmanager sends, for targets that exist."""

import json
from datetime import UTC, datetime
from typing import Any

NAMESPACE = "inference"


def alert(target: str, action: str, fingerprint: str, padding: int = 0) -> dict[str, Any]:
    """One firing alert, of some 900 bytes."""
    return {
        "status": "firing",
        "labels": {
            "action": action,
            "alertname": "GPUWorkloadScaleUp",
            "cluster": "bench",
            "namespace": NAMESPACE,
            "prometheus": "monitoring/k8s",
            "service": "model-serving",
            "severity": "warning",
            "signal": "utilization",
            "workload": target,
            "workload_type": "deployment",
        },
        "annotations": {
            "description": "GPU utilization has been above the saturation threshold for two minutes. "
            + "x" * padding,
            "runbook_url": "https://example.org/runbooks/GPUWorkloadScaleUp",
            "summary": f"GPUs of {NAMESPACE}/{target} are saturated",
            "value": "0.97",
        },
        "startsAt": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus:9090/graph?g0.expr=namespace_workload%3Agpu_utilization_ratio&g0.tab=1",
        "fingerprint": fingerprint,
    }


def payload(alerts: list[dict[str, Any]]) -> bytes:
    """A delivery of Alertmanager."""
    return json.dumps(
        {
            "receiver": "gpu-responder",
            "status": "firing",
            "alerts": alerts,
            "groupLabels": {"namespace": NAMESPACE},
            "commonLabels": {"namespace": NAMESPACE},
            "commonAnnotations": {},
            "externalURL": "http://alertmanager:9093",
            "version": "4",
            "groupKey": '{}:{namespace="inference"}',
            "truncatedAlerts": 0,
        }
    ).encode()


def group(size: int, targets: int, action: str = "watch") -> bytes:
    """A group of so many alerts over so many targets."""
    alerts = [alert(f"w{i % targets:04}", action, f"{i:016x}") for i in range(size)]
    return payload(alerts)
