"""The command line against the application over a real store, and against servers that answer as told."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from responder.cli import cli
from responder.model import Commit, HistoryEntry, Outcome, Reason, TargetRef, Verdict
from tests.web.people import VLLM, Api, api, listening

NOTHING = {
    "GPU_RESPONDER_URL": None,
    "GPU_RESPONDER_TOKEN_FILE": None,
    "GPU_RESPONDER_CA_FILE": None,
    "GPU_RESPONDER_CONFIG": None,
    "GPU_RESPONDER_POLICY": None,
    "GPU_RESPONDER_ALERTMANAGER_URL": None,
    "NO_COLOR": None,
    "FORCE_COLOR": None,
    "COLUMNS": None,
}
"""What may be set around the tests and must not matter."""


@dataclass
class Shell:
    """Runs the command as a person whose home is this folder would."""

    home: Path
    url: str = ""

    def run(
        self, *arguments: str, status: int | None = 0, env: dict[str, str] | None = None, **more: Any
    ) -> Result:
        """The command's result; with another exit status than this one the test fails."""
        home = {"XDG_CONFIG_HOME": str(self.home), "HOME": str(self.home), "LOGNAME": "ana"}
        given = {**NOTHING, **home, "GPU_RESPONDER_URL": self.url or None, **(env or {})}
        result = CliRunner().invoke(cli, arguments, env=given, prog_name="gpu-responder", **more)
        shown = f"{result.stdout}\n{result.stderr}\n{result.exception!r}"
        assert result.exception is None or isinstance(result.exception, SystemExit), shown
        assert status is None or result.exit_code == status, shown
        return result

    def json(self, *arguments: str, **more: Any) -> Any:
        return json.loads(self.run(*arguments, "-o", "json", **more).stdout)

    def fails(self, *arguments: str, status: int = 1, **more: Any) -> str:
        """What is said on standard error of what fails; nothing is on standard output."""
        result = self.run(*arguments, status=status, **more)
        assert not result.stdout
        assert "Traceback" not in result.stderr
        return result.stderr.removeprefix("gpu-responder: ").rstrip()


@dataclass
class World:
    """The service and a shell that knows where it is."""

    made: Api
    shell: Shell

    def decided(
        self, target: TargetRef = VLLM, current: int = 3, desired: int = 5, ago: float = 60, **fields: Any
    ) -> int:
        """Add a line to history, and return its id."""
        reason = fields.pop("reason", Reason.SCALED_UP if desired > current else Reason.COOLDOWN)
        verb = f"Scaling {target} from {current} to" if desired != current else f"Holding {target} at"
        entry = HistoryEntry(
            datetime.now(UTC) - timedelta(seconds=ago), target.key, current, desired, reason,
            f"{verb} {desired}: Busy fires.", **fields,
        )  # fmt: skip
        self.made.store.commit(Commit(history=(entry,)))
        return self.made.store.history(limit=1)[0].id


@contextlib.contextmanager
def world(folder: Path, *tokens: dict[str, Any], **services: Any) -> Iterator[World]:
    with api(folder, *tokens, **services) as made, listening(made) as url:
        yield World(made, Shell(folder, url))


def verdict(
    replicas: int, desired: int, reason: Reason, message: str = "Busy fires.", ago: float = 240
) -> Verdict:
    now = datetime.now(UTC)
    return Verdict(
        now - timedelta(seconds=ago),
        replicas,
        desired,
        reason,
        message,
        "inference",
        now + timedelta(seconds=45),
    )


@dataclass
class Scripted:
    """A server that answers with the first script whose path fits, and keeps what it was asked."""

    answers: dict[str, Callable[[Any], tuple[int, dict[str, str], bytes]]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def always(self, status: int, body: Any, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[""] = lambda _: (
            status,
            {name.replace("_", "-"): value for name, value in headers.items()},
            raw,
        )


@contextlib.contextmanager
def scripted() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.asked.append((self.command, self.path, dict(self.headers)))
            answer = next(make for path, make in script.answers.items() if self.path.startswith(path))
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(body if status != 304 else b"")

        do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def applied(**fields: Any) -> dict[str, Any]:
    return {"outcome": Outcome.APPLIED, "intent": "i1", **fields}
