"""The application over a real store, and requests to it by people of each role."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from responder import alerts, serve
from responder.model import Commit, Record, TargetRef
from responder.store.sqlite import SqliteStore
from responder.web.app import Services, create_app
from responder.web.auth import Access, Role, Tokens, hash_token
from tests.fakes import notification
from tests.web.web_fakes import FakeSource

VLLM = TargetRef("inference", "Deployment", "vllm")
TRITON = TargetRef("inference", "StatefulSet", "triton")
OTHER = TargetRef("team-a", "Deployment", "vllm-large")


@dataclass
class Api:
    """The application; without tokens unless it was made with them, when a role is its own token."""

    store: SqliteStore
    app: Any
    source: FakeSource
    token: str = ""

    def call(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> TestResponse:
        token = self.token if token is None else token
        sent = {"Host": "localhost", **({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        response: TestResponse = self.app.test_client().open(path, method=method, data=data, headers=sent)
        return response

    def get(self, path: str, **more: Any) -> TestResponse:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> TestResponse:
        return self.call("POST", path, body, **more)

    def know(self, *targets: TargetRef, **fields: Any) -> None:
        """Have a record of each target, with an alert that the policy governs it by."""
        for target in targets:
            labels = {"alertname": "Busy", "action": "scale_up", "namespace": target.namespace,
                      "workload": target.name, "workload_type": "deployment"}  # fmt: skip
            now = datetime.now(UTC)
            record = Record(target, **fields)
            record = alerts.fold(
                record, notification(labels, starts_at=now, received_at=now), self.source.current, now
            )
            self.store.commit(Commit(records=((record, 0),)))


@contextlib.contextmanager
def api(folder: Path, *tokens: dict[str, Any], **services: Any) -> Iterator[Api]:
    """The application with all of its routes; `tokens` are entries besides those of each role."""
    store, source, access = SqliteStore(folder / "store.db"), FakeSource(), Access(None)
    if tokens:
        access = Access(Tokens(write_tokens(folder / "tokens", *tokens)))
    app = create_app(Services(store=store, source=source, access=access, **services), serve.blueprints())
    try:
        yield Api(store, app, source, "operator" if tokens else "")
    finally:
        store.close()


def write_tokens(path: Path, *more: dict[str, Any]) -> str:
    """A token for each role, which is the role's name, and more."""
    entries = [{"name": role.value, "role": role.value} for role in Role]
    entries = [{**entry, "sha256": hash_token(entry["name"])} for entry in (*entries, *more)]
    path.write_text(json.dumps({"tokens": entries}))
    return str(path)


@contextlib.contextmanager
def listening(made: Api) -> Iterator[str]:
    """The application on a port of this host, for programs that speak HTTP."""
    server = make_server("127.0.0.1", 0, made.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def in_seconds(seconds: float) -> str:
    """A moment so many seconds from now, as JSON has it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
