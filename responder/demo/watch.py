"""What the demo's programs say of themselves while they run, read over HTTP as anybody could."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import urllib3

from responder.demo.processes import HTTP, DemoError
from responder.demo.summary import ScaleSeen, counter


@dataclass(frozen=True, slots=True)
class Addresses:
    sim: str
    prometheus: str
    alertmanager: str
    responder: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The responder's last word on a target."""

    at: datetime
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at everything."""

    truth: dict[str, Any]
    firing: tuple[str, ...]
    verdict: Verdict | None
    changes: tuple[Verdict, ...]
    """Those that changed replicas, newest first."""


def get(url: str, fields: dict[str, str] | None = None) -> Any:
    """The JSON at a URL. Raises DemoError when it cannot be had."""
    return json.loads(text(url, fields))


def text(url: str, fields: dict[str, str] | None = None) -> str:
    try:
        answer = HTTP.request("GET", url, fields=fields)
    except urllib3.exceptions.HTTPError as error:
        raise DemoError(f"{url} did not answer ({type(error).__name__}).") from None
    if answer.status != 200:
        raise DemoError(f"{url} answered {answer.status}: {answer.data[:200].decode(errors='replace')}")
    return answer.data.decode()


def prometheus_value(prometheus: str, query: str) -> float | None:
    """The sum of an instant query's samples; None when there is none."""
    result = get(f"{prometheus}/api/v1/query", {"query": f"sum({query})"})["data"]["result"]
    return float(result[0]["value"][1]) if result else None


def firing_alerts(prometheus: str) -> tuple[str, ...]:
    """Names of the scaling alerts that fire or are pending, as Prometheus has them."""
    alerts = get(f"{prometheus}/api/v1/alerts")["data"]["alerts"]
    named = {
        f"{alert['labels']['alertname']} ({alert['state']})"
        for alert in alerts
        if "action" in alert["labels"]
    }
    return tuple(sorted(named))


def last_verdicts(
    responder: str, namespace: str, kind: str, name: str
) -> tuple[Verdict | None, tuple[Verdict, ...]]:
    """The newest line of the responder's history on one target, and those that changed replicas."""
    decisions = get(
        f"{responder}/api/v1/decisions", {"namespace": namespace, "kind": kind, "name": name, "limit": "50"}
    )["decisions"]
    newest = next((_verdict(decision) for decision in decisions), None)
    return newest, tuple(_verdict(each) for each in decisions if each["outcome"] == "applied")


def _verdict(decision: dict[str, Any]) -> Verdict:
    return Verdict(parse_time(decision["at"]), decision["reason"], decision["message"])


def scales(sim: str, target: Sequence[str]) -> tuple[ScaleSeen, ...]:
    """Every replica change that the API server accepted for one target, oldest first."""
    namespace, _, name = target
    return tuple(
        ScaleSeen(
            at=parse_time(entry["time"]),
            target=f"{entry['namespace']}/{entry['name']}",
            from_replicas=entry["from"],
            to_replicas=entry["to"],
            who=entry["manager"],
        )
        for entry in get(f"{sim}/sim/scales")["scales"]
        if (entry["namespace"], entry["name"]) == (namespace, name)
    )


def latencies(responder: str, namespace: str, kind: str, name: str, up: bool) -> tuple[float, ...]:
    """Seconds from the start of the alert that caused it to each scale of a direction that took effect."""
    decisions = get(
        f"{responder}/api/v1/decisions", {"namespace": namespace, "kind": kind, "name": name, "limit": "1000"}
    )["decisions"]
    return tuple(
        decision["alertToScaleSeconds"]
        for decision in decisions
        if decision["outcome"] == "applied"
        and decision["alertToScaleSeconds"] is not None
        and (decision["desired"] > decision["current"]) is up
    )


def notifications(alertmanager: str) -> tuple[int, int]:
    """Notifications that Alertmanager sent to webhooks, and those that failed."""
    metrics = text(f"{alertmanager}/metrics")
    webhook = {"integration": "webhook"}
    return (
        round(counter(metrics, "alertmanager_notifications_total", webhook)),
        round(counter(metrics, "alertmanager_notifications_failed_total", webhook)),
    )


def deliveries_taken(responder: str) -> int:
    """Deliveries that the responder acknowledged."""
    return round(
        counter(text(f"{responder}/metrics"), "gpu_responder_deliveries_total", {"result": "accepted"})
    )


def parse_time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)
