"""A test alert through the real chain, and how long each hop took.

It carries the label gpu_responder_test, by which the service knows that it must never act on it.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from responder.check import routes
from responder.check.chain import Chain
from responder.check.doctor.servers import Server, Unanswered
from responder.check.findings import Finding, error
from responder.check.labels import fixed
from responder.policy import TEST_LABEL, Settings

NAME = "GPUResponderTest"
_POLL_SECONDS = 0.2
_LIVES = timedelta(minutes=5)
_PATIENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Hop:
    """Seconds from the sending to a moment on the way."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a test: hops as far as it got, and why no further."""

    hops: tuple[Hop, ...]
    findings: tuple[Finding, ...] = ()


def labels_of(settings: Settings | None, identity: str) -> dict[str, str]:
    """Labels such as scaling alerts have, so that it takes their route."""
    allowed = settings.allowed_namespaces if settings else ()
    namespace = next((each for each in allowed if not set(each) & set("*?[")), "default")
    return {
        "alertname": NAME,
        TEST_LABEL: identity,
        "action": "scale_up",
        "severity": "info",
        "namespace": namespace,
        "workload": "gpu-responder-test",
        "workload_type": "deployment",
        **({"cluster": settings.cluster} if settings and settings.cluster else {}),
    }


def send(
    alertmanager: Server, service: Server, built: Chain | None, settings: Settings | None, timeout: float
) -> Sent:
    """Post a test alert to Alertmanager and wait until the service tells of it. Resolves it in the end."""
    identity = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    labels = labels_of(settings, identity)
    wait = 30.0
    if built is not None:
        taken = [
            each
            for routing, receiver in built.ours
            for each in routes.match(routing.root, fixed(labels))
            if each.route.receiver == receiver.name
        ]
        if not taken:
            said = (
                "A test alert would not come to the service: no route to a receiver of it takes its labels."
            )
            mend = "mend the routes, so that alerts with action=scale_up come to the service"
            return Sent((), (error(alertmanager.place, 0, "test-unrouted", said, mend),))
        wait = max(each.route.group_wait for each in taken) / 1000
    try:
        return _run(alertmanager, service, labels, timeout or wait + _PATIENCE_SECONDS)
    finally:
        _resolve(alertmanager, labels)


def _run(alertmanager: Server, service: Server, labels: dict[str, str], patience: float) -> Sent:
    began, began_at = time.monotonic(), datetime.now(UTC)
    hops: list[Hop] = []
    try:
        alertmanager.post("/api/v2/alerts", [_alert(labels, began_at, began_at + _LIVES)])
    except Unanswered as problem:
        said = f"The test alert was not taken: {alertmanager.name} {problem}."
        return Sent((), (error(alertmanager.place, 0, "test-lost", said, "look at its log"),))
    hops.append(Hop("Alertmanager took it", time.monotonic() - began))
    for found in _watch(alertmanager, service, labels[TEST_LABEL], began, patience):
        if isinstance(found, Finding):
            return Sent(tuple(hops), (found,))
        if isinstance(found, Hop):
            hops.append(found)
            continue
        received = datetime.fromisoformat(found["receivedAt"])
        skew = (
            service.clock.ahead
            if service.clock and abs(service.clock.ahead) > service.clock.within + 1
            else 0.0
        )
        hops.append(Hop("the service received it", (received - began_at).total_seconds() - skew))
        hops.append(Hop("the service told of it", time.monotonic() - began))
        return Sent(tuple(hops))
    return Sent(tuple(hops), (_late(alertmanager, service, patience, hops),))


def _watch(
    alertmanager: Server, service: Server, identity: str, began: float, patience: float
) -> Iterator[Hop | Finding | dict[str, str]]:
    listed = False
    while time.monotonic() - began < patience:
        if not listed and _listed(alertmanager, identity):
            listed = True
            yield Hop("Alertmanager lists it", time.monotonic() - began)
        try:
            told: Any = service.json("/api/v1/test-alert")
        except Unanswered as problem:
            said = f"Whether the test alert arrived is not known: {service.name} {problem}."
            mend = (
                "give a token of role viewer with --token-file"
                if problem.status in (401, 403)
                else "check --url"
            )
            yield error(service.place, 0, "test-unknown", said, mend)
            return
        if isinstance(told, dict) and told.get("id") == identity:
            yield told
            return
        time.sleep(_POLL_SECONDS)


def _late(alertmanager: Server, service: Server, patience: float, hops: list[Hop]) -> Finding:
    last = hops[-1].name if hops else "it was not sent"
    said = f"The test alert has not arrived within {patience:g} s; the last that is known: {last}."
    mend = (
        "read Alertmanager's log for its last error, check the receiver's URL, token and CA, and that it is"
        f" {service.url} that it delivers to"
    )
    return error(alertmanager.place, 0, "test-lost", said, mend)


def _listed(alertmanager: Server, identity: str) -> bool:
    query = {"filter": f'{TEST_LABEL}="{identity}"'}
    try:
        return bool(alertmanager.json("/api/v2/alerts", query))
    except Unanswered:
        return False


def _resolve(alertmanager: Server, labels: dict[str, str]) -> None:
    now = datetime.now(UTC)
    try:
        alertmanager.post("/api/v2/alerts", [_alert(labels, now - _LIVES, now)])
    except Unanswered:
        return  # it ends by itself


def _alert(labels: dict[str, str], starts_at: datetime, ends_at: datetime) -> dict[str, Any]:
    return {
        "labels": labels,
        "annotations": {
            "summary": "A test of the way from Alertmanager to gpu-responder; nothing acts on it."
        },
        "startsAt": starts_at.isoformat(),
        "endsAt": ends_at.isoformat(),
    }
