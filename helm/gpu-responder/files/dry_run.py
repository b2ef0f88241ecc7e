"""`helm test`: send an alert as Alertmanager would, and see that the responder decides and does not write."""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

URL = os.environ["RESPONDER_URL"].rstrip("/")
NAMESPACE, NAME = os.environ["TARGET_NAMESPACE"], os.environ["TARGET_NAME"]
PATIENCE = 60.0
CA = os.environ.get("CA_FILE", "")
TLS = ssl.create_default_context(cafile=CA if CA and Path(CA).exists() else None)


def ask(path: str, token: str, body: object = None) -> dict:
    """One request; a refusal ends the test with the service's own sentence."""
    request = urllib.request.Request(  # noqa: S310 - the URL is the release's own Service
        URL + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        context = TLS if URL.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(
            f"FAILED: {path} was answered with {error.code}: {error.read().decode(errors='replace')[:500]}"
        )
    except OSError as error:
        sys.exit(f"FAILED: {URL} cannot be reached: {error}")


def notification(run: str, started: datetime, ended: datetime | None) -> dict:
    labels = {"alertname": "GPUResponderHelmTest", "namespace": NAMESPACE, "workload": NAME, "run": run}
    status = "resolved" if ended else "firing"
    alert = {
        "status": status,
        "labels": labels,
        "annotations": {"summary": "Sent by helm test"},
        "startsAt": started.isoformat(),
        "endsAt": ended.isoformat() if ended else "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": run[:16],
    }
    return {
        "version": "4",
        "groupKey": '{}:{alertname="GPUResponderHelmTest"}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "helm-test",
        "groupLabels": {"alertname": "GPUResponderHelmTest"},
        "commonLabels": labels,
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": [alert],
    }


def deliver(run: str, started: datetime, ended: datetime | None = None) -> None:
    path, token = "/api/v1/webhooks/alertmanager", os.environ["DELIVER_TOKEN"]
    answer = ask(path, token, notification(run, started, ended))
    if answer["accepted"] != 1:
        sys.exit(f"FAILED: the alert was rejected: {json.dumps(answer)}")


def main() -> None:
    run, started = uuid.uuid4().hex, datetime.now(UTC)
    deliver(run, started)
    print(f"The alert was taken in. Waiting for a decision on {NAMESPACE}/{NAME} ...", flush=True)
    query = f"/api/v1/decisions?namespace={NAMESPACE}&name={NAME}&limit=50"
    deadline, last = time.monotonic() + PATIENCE, {}
    while time.monotonic() < deadline:
        for decision in ask(query, os.environ["VIEW_TOKEN"])["decisions"]:
            if datetime.fromisoformat(decision["at"]) < started - timedelta(seconds=1):
                continue
            last = decision
            if decision.get("dryRun") and (decision.get("desired") or 0) > (decision.get("current") or 0):
                deliver(run, started, datetime.now(UTC))
                print(f"PASSED: in dry run, {decision['message']}")
                return
        time.sleep(1)
    deliver(run, started, datetime.now(UTC))
    what = f"; the last says {last.get('reason')}: {last.get('message')}" if last else ""
    sys.exit(f"FAILED: no dry-run decision to scale up within {PATIENCE:g} s{what}")


if __name__ == "__main__":
    main()
