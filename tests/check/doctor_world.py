"""Servers that answer as Prometheus, Alertmanager and the service do, or as they do when something is wrong."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from responder import promql, rules
from responder.policy import TEST_LABEL

SOUND = Path(__file__).parents[1] / "data" / "chains" / "sound"
Answer = Any
"""JSON, text, a status, or a function of the query and the body that gives one of these."""


@dataclass
class Canned:
    """One server: answers by path, and how far its clock is ahead."""

    answers: dict[str, Answer]
    ahead: float = 0.0
    posted: list[tuple[str, Any]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def served(canned: Canned) -> Iterator[Canned]:
    """The server on a port of this host."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            canned.posted.append((urlsplit(self.path).path, body))
            self.answer(body)

        def answer(self, body: Any) -> None:
            parts = urlsplit(self.path)
            if "Authorization" in self.headers:
                canned.authorizations.append(self.headers["Authorization"])
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            found = canned.answers.get(parts.path, 404)
            found = found(query, body) if callable(found) else found
            status = found if isinstance(found, int) else 200
            if isinstance(found, dict) and "http" in found:
                status, found = found["http"], found["body"]
            text = "" if isinstance(found, int) else found if isinstance(found, str) else json.dumps(found)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(datetime.now(UTC).timestamp() + canned.ahead, usegmt=True)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    canned.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield canned
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- Healthy ones -----------------------------------------------------------------------------------


def vector(*samples: tuple[dict[str, str], float]) -> dict[str, Any]:
    result = [{"metric": labels, "value": [0, str(value)]} for labels, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def queries(special: dict[str, Any] | None = None) -> Callable[[dict[str, str], Any], Any]:
    """Answers to queries: fresh series without gaps, unless a part of the query is among the special ones."""

    def answer(query: dict[str, str], _: Any) -> Any:
        for part, found in (special or {}).items():
            if part in query["query"]:
                return found
        if query["query"] == "vector(1)" or query["query"].startswith("time() - max(timestamp("):
            return vector(({}, 1.0))
        return vector()

    return answer


def _seconds(text: str | None) -> float:
    return promql.duration_ms(text) / 1000 if text else 0


def loaded_rules(**changed: Any) -> dict[str, Any]:
    """/api/v1/rules of a server that has loaded the sound chain; `changed` is put on the alert Busy."""
    groups = []
    for group in rules.load([SOUND / "rules.yaml"]):
        made = [
            {
                "name": rule.name,
                "type": "alerting" if rule.alert else "recording",
                "query": f" ( {rule.expr} ) " if rule.record else rule.expr,
                "duration": _seconds(rule.for_),
                "labels": dict(rule.labels),
                **(
                    {"keepFiringFor": _seconds(rule.keep_firing_for), "annotations": dict(rule.annotations)}
                    if rule.alert
                    else {}
                ),
                "health": "ok",
                "lastEvaluation": datetime.now(UTC).isoformat(),
                **(changed if rule.name == "Busy" else {}),
            }
            for rule in group.rules
        ]
        for each in made:
            each["query"] = each["query"].strip().removeprefix("( ").removesuffix(" )")
        groups.append({"name": group.name, "interval": _seconds(group.interval), "rules": made})
    return {"status": "success", "data": {"groups": groups}}


def prometheus(**answers: Any) -> Canned:
    """A healthy Prometheus; keyword arguments replace answers: `rules`, `query`, `alertmanagers`, `config`."""
    alertmanagers = {
        "activeAlertmanagers": [{"url": "http://am:9093/api/v2/alerts"}],
        "droppedAlertmanagers": [],
    }
    return Canned(
        {
            "/api/v1/query": answers.get("query", queries()),
            "/api/v1/rules": answers.get("rules", loaded_rules()),
            "/api/v1/alertmanagers": answers.get("alertmanagers", {"data": alertmanagers}),
            "/api/v1/status/config": {"data": {"yaml": answers.get("config", "global: {}\n")}},
        }
    )


def alertmanager(service: Canned | None = None, **answers: Any) -> Canned:
    """A healthy Alertmanager, which tells the service at once of what it is sent."""
    config = (SOUND / "alertmanager.yml").read_text()
    for old, new in answers.get("changed", ()):
        assert old in config
        config = config.replace(old, new)

    def take(query: dict[str, str], body: Any) -> Any:
        if body is None:
            return [{"labels": {}}]
        if service is not None:
            service.answers["/api/v1/test-alert"] = {
                "id": body[0]["labels"][TEST_LABEL],
                "receivedAt": datetime.now(UTC).isoformat(),
                "receiver": "gpu-responder",
                "sender": "",
            }
        return {}

    page = (
        'alertmanager_notifications_total{integration="webhook"} 1000\n'
        'alertmanager_notifications_total{integration="email"} 10\n'
        'alertmanager_notifications_failed_total{integration="email"} 10\n'
    )
    status = {
        "cluster": {"status": "ready"},
        "config": {"original": config},
        "uptime": "2026-01-01T00:00:00Z",
    }
    return Canned(
        {
            "/api/v2/status": answers.get("status", status),
            "/api/v2/alerts": answers.get("alerts", take),
            "/api/v2/silences": answers.get("silences", []),
            "/metrics": answers.get("metrics", page),
        }
    )


def service(**answers: Any) -> Canned:
    """The service, ready, with no test alert yet."""
    none = {"id": "", "receivedAt": "", "receiver": "", "sender": ""}
    return Canned(
        {
            "/-/ready": answers.get("ready", {"status": "ready", "details": {}}),
            "/api/v1/test-alert": answers.get("test", none),
        }
    )
