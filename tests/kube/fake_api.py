"""A small HTTP server that answers from a table, also what no API server gives on wish."""

import copy
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

RECORDINGS = json.loads((Path(__file__).parents[1] / "data" / "kubernetes-1.36.json").read_text())
HANG, RESET, TRUNCATED, TRICKLE, WATCH = "hang", "reset", "truncated", "trickle", "watch"
_CUT_SHORT = (TRUNCATED, TRICKLE, WATCH)
HANG_SECONDS = 10.0
"""After so long even what hangs comes to an end."""


def recorded(name: str):
    """(status, headers, body) of one recorded answer; the caller's own."""
    response = copy.deepcopy(next(e["response"] for e in RECORDINGS if e["name"] == name))
    return response["status"], response["headers"], response["body"]


class FakeApi:
    """`answers` maps "METHOD /path" to an answer, a list used up in order, or a function of it.

    An answer is (status, headers, body) or HANG, RESET, TRUNCATED, TRICKLE, or WATCH for one without news.
    `requests` keeps every request.
    """

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}
        self.otherwise: object = (404, {"Content-Type": "text/plain"}, "404 page not found\n")
        self.requests: list[dict] = []
        self.released = threading.Event()
        self.watches_ended = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def handle_any(self) -> None:
                fake.serve(self)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def end_watches(self) -> None:
        """End those that are open, as a server does at their time."""
        open_, self.watches_ended = self.watches_ended, threading.Event()
        open_.set()

    def close(self) -> None:
        self.released.set()
        self.watches_ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def kubeconfig(self, path: Path, **user: str) -> str:
        """Write a kubeconfig for this server and return its name."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                    "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
                    "users": [{"name": "fake", "user": user or {"token": "good"}}],
                }
            )
        )
        return str(path)

    def sent(self, method: str) -> list[dict]:
        return [r for r in self.requests if r["method"] == method]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        request = {
            "method": handler.command,
            "path": url.path,
            "query": {k: v[0] for k, v in parse_qs(url.query).items()},
            "headers": dict(handler.headers),
            "body": _content(body, handler.headers.get("Content-Type", "")),
        }
        self.requests.append(request)
        answer = self.answers.get(f"{handler.command} {url.path}", self.otherwise)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Callable):
            answer = answer(request)
        self.reply(handler, answer)

    def reply(self, handler: BaseHTTPRequestHandler, answer: object) -> None:
        if self.released.is_set():
            answer = RESET  # closed: connections that were kept alive are of no use any more
        if answer == HANG:
            self.released.wait(HANG_SECONDS)
        if answer in (HANG, RESET):
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            handler.connection.close()
            handler.close_connection = True
            return
        if answer == TRUNCATED:
            status, headers, data = 200, {}, b'{"kind": "Deploy'
        elif answer in (TRICKLE, WATCH):
            status, headers, data = 200, {}, b""
        else:
            status, headers, content = answer
            data = (
                content
                if isinstance(content, bytes)
                else content.encode()
                if isinstance(content, str)
                else json.dumps(content).encode()
            )
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(data) + (100_000 if answer in _CUT_SHORT else 0)))
        handler.end_headers()
        handler.wfile.write(data)
        if answer in (TRICKLE, WATCH):
            ended = self.watches_ended if answer == WATCH else self.released
            with suppress(OSError):
                while not ended.wait(0.02):
                    handler.wfile.write(b" ")
                    handler.wfile.flush()
        handler.close_connection = answer in _CUT_SHORT


def watched(listed: object) -> Callable[[dict], object]:
    """A list that can be watched, and has no news."""
    return lambda request: WATCH if "watch" in request["query"] else listed


def _content(body: bytes, content_type: str) -> object:
    if "form" in content_type:
        return {k: v[0] for k, v in parse_qs(body.decode()).items()}
    return json.loads(body) if body else None


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    api = FakeApi()
    try:
        yield api
    finally:
        api.close()


def discovery(group: str, version: str, kinds: dict[str, str], *, unscalable: tuple[str, ...] = ()) -> dict:
    """Answers by which a group serves kinds, given by their plural."""
    entries = []
    for plural, kind in kinds.items():
        entries.append({"name": plural, "kind": kind, "namespaced": True})
        if plural not in unscalable:
            entries.append({"name": f"{plural}/scale", "kind": "Scale", "namespaced": True})
    if not group:
        return {f"GET /api/{version}": (200, {}, {"kind": "APIResourceList", "resources": entries})}
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {
        f"GET /apis/{group}": (200, {}, {"name": group, "versions": [served], "preferredVersion": served}),
        f"GET /apis/{group}/{version}": (200, {}, {"kind": "APIResourceList", "resources": entries}),
    }
