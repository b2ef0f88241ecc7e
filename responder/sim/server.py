"""The simulated API server on a port: HTTP/1.1 with keep-alive, watches as chunks, faults, and `/sim/…`."""

import contextlib
import json
import logging
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec
import yaml

from responder.sim.api import Api, Response
from responder.sim.auth import User
from responder.sim.errors import ApiError
from responder.sim.faults import Fault, FaultError, FaultKind, Faults
from responder.sim.objects import ObjectStore
from responder.sim.requests import Request

Object = dict[str, Any]
Route = Callable[[Request], Response]

_log = logging.getLogger(__name__)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_NAMESPACE_DELAY = 0.5
_AS = "/sim/as/"


class _Cut(Exception):
    """Close the connection with a reset, and answer nothing."""


class SimServer:
    """An API server over `store`. `tokens` maps bearer tokens to users; the default knows only `admin`.

    Use it in a `with`, or call start and stop. The port is bound on construction.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        port: int = 0,
        tokens: Mapping[str, User] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.store = store
        self.api = Api(store, tokens)
        self.faults = Faults()
        self.requests: deque[Object] = deque(maxlen=20_000)
        self._routes: dict[str, Route] = {}
        self._threads: list[threading.Thread] = []
        self._http = _HttpServer((host, port), self)
        self._host, self._port = host, self._http.server_address[1]
        self._add_own_routes()

    @property
    def url(self) -> str:
        """The server's address, without a slash at its end."""
        return f"http://{self._host}:{self._port}"

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._port)

    def start(self) -> Self:
        """Serve, in threads of its own."""
        for name, target in (("sim-api", self._serve), ("sim-namespaces", self._finish_namespaces)):
            thread = threading.Thread(target=target, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Cut all connections and return when no thread is left and the port is free."""
        self.api.stopping.set()
        if self._threads:
            self._http.shutdown()
        self._http.server_close()
        self._http.cut()
        for thread in self._threads:
            thread.join(timeout=5)
        self._http.join(timeout=5)
        self._threads.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add_route(self, path: str, handler: Callable[[Request], Response | bytes | str]) -> None:
        """Answer GET and POST on a path outside the API, such as /metrics; text is sent as plain text."""

        def route(request: Request) -> Response:
            answer = handler(request)
            if isinstance(answer, Response):
                return answer
            body = answer.encode() if isinstance(answer, str) else answer
            return Response(200, body, "text/plain; version=0.0.4; charset=utf-8")

        self._routes[path] = route

    def kubeconfig(self, path: str | Path, token: str = "admin") -> Path:  # noqa: S107 - a simulated cluster
        """Write a kubeconfig for this server, readable by its owner only, and return its path.

        kubectl sends no token to a plain http server, so the server's address says who asks.
        """
        path = Path(path)
        server = f"{self.url}{_AS}{quote(token, safe='')}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sim", "cluster": {"server": server}}],
            "users": [{"name": "sim", "user": {"token": token}}],
            "contexts": [
                {"name": "sim", "context": {"cluster": "sim", "user": "sim", "namespace": "default"}}
            ],
            "current-context": "sim",
        }
        path.touch(mode=0o600, exist_ok=True)
        path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        return path

    def grant(self, token: str, user: User | Mapping[str, Any]) -> None:
        """Accept a bearer token from now on: for a user, or for {"user": …, "rules": […]} as RBAC writes rules."""
        self.api.tokens[token] = user if isinstance(user, User) else User.parse(user)

    def revoke(self, token: str) -> None:
        """Accept a bearer token no more: 401."""
        self.api.tokens.pop(token, None)

    def scales(self, **wanted: str) -> list[Object]:
        """Replica changes accepted so far, oldest first, filtered by equal fields."""
        return self.api.scales.list(wanted)

    def cut(self) -> None:
        """Reset every open connection."""
        self._http.cut()

    # Inside

    def route(self, request: Request) -> Route | None:
        """The handler of a path outside the API."""
        return self._routes.get(request.path)

    def answer(self, request: Request) -> tuple[Response, Fault | None]:
        """The answer to an API request, and what is to go wrong with it; raises _Cut."""
        fault = self._fault(request)
        if fault is None:
            return self.api.handle(request), None
        if fault.kind is FaultKind.STATUS:
            failure: ApiError = fault.error
            return Response(failure.code, msgspec.json.encode(failure.status), headers=failure.headers), fault
        if fault.kind is FaultKind.RESET:
            self._note(request, 0, fault)
            raise _Cut
        if fault.kind is FaultKind.HANG:
            self.api.stopping.wait(fault.seconds)
        response = self.api.handle(request)
        if fault.kind is FaultKind.APPLY_HANG:
            self.api.stopping.wait(fault.seconds)
        if fault.kind is FaultKind.APPLY_RESET:
            self._note(request, response.code, fault)
            raise _Cut
        return response, fault

    def _fault(self, request: Request) -> Fault | None:
        try:
            user = self.api.authenticate(request).name
        except ApiError:
            user = ""
        return self.faults.pick(request.method, request.path, user, request.header("user-agent"))

    def _note(self, request: Request, code: int, fault: Fault | None) -> None:
        self.requests.append(
            {
                "time": time.time(),
                "method": request.method,
                "path": request.path,
                "query": dict(request.query),
                "code": code,
                "userAgent": request.header("user-agent"),
                "fault": fault.kind.value if fault else "",
            }
        )

    def note(self, request: Request, response: Response, fault: Fault | None) -> None:
        """Keep a request in the log that /sim/requests shows."""
        self._note(request, response.code, fault)

    def _serve(self) -> None:
        self._http.serve_forever(poll_interval=0.05)

    def _finish_namespaces(self) -> None:
        """Empty and remove namespaces that are being deleted, as the namespace controller does."""
        waiting: dict[str, float] = {}
        with self.store.subscribe("namespaces") as changes:
            for name in self.api.terminating():
                waiting[name] = time.monotonic()
            while not self.api.stopping.is_set():
                change = changes.get(0.1)
                if change is not None and "deletionTimestamp" in change.object["metadata"]:
                    waiting.setdefault(change.object["metadata"]["name"], time.monotonic())
                for name, since in list(waiting.items()):
                    if time.monotonic() - since >= _NAMESPACE_DELAY and self.api.finish_namespace(name):
                        del waiting[name]

    def _add_own_routes(self) -> None:
        self._routes |= {
            "/sim/scales": self._scales_route,
            "/sim/faults": self._faults_route,
            "/sim/requests": self._requests_route,
            "/sim/cut": self._cut_route,
        }

    def _scales_route(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.api.scales.clear()
        found = self.api.scales.list(request.query)
        return _json({"scales": found, "total": self.api.scales.total})

    def _faults_route(self, request: Request) -> Response:
        try:
            if request.method == "DELETE":
                self.faults.clear()
            elif request.method == "POST":
                body = json.loads(request.body or b"{}")
                self.faults.set(body.get("rules") or [], body.get("seed"))
        except (FaultError, ValueError, TypeError, AttributeError, KeyError) as problem:
            return _json({"error": str(problem)}, 400)
        return _json({"rules": self.faults.describe()})

    def _requests_route(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.requests.clear()
        return _json({"requests": list(self.requests)})

    def _cut_route(self, request: Request) -> Response:
        if request.method != "POST":
            return _json({"error": "POST here to reset every open connection"}, 405)
        self.cut()
        return _json({})


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], sim: SimServer) -> None:
        self.sim = sim
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking DNS for the host's name, as the base class would."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open[request] = threading.current_thread()
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._open.pop(request, None)

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no news; anything else is a defect of the simulator."""
        _log.debug("a connection failed", exc_info=True)

    def cut(self) -> None:
        """Reset every open connection."""
        with self._guard:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                connection.shutdown(socket.SHUT_RDWR)

    def join(self, timeout: float) -> None:
        """Wait for the threads of connections to end."""
        with self._guard:
            threads = list(self._open.values())
        for thread in threads:
            thread.join(timeout)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024
    server: _HttpServer

    def _handle(self) -> None:
        sim = self.server.sim
        split = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        path, headers = split.path, {name.lower(): value for name, value in self.headers.items()}
        if path.startswith(_AS):
            token, _, path = path.removeprefix(_AS).partition("/")
            headers.setdefault("authorization", f"Bearer {unquote(token)}")
            path = f"/{path}"
        request = Request(
            self.command,
            unquote(path),
            dict(parse_qsl(split.query, keep_blank_values=True)),
            headers,
            self._chunks() if self.headers.get("Transfer-Encoding") == "chunked" else self.rfile.read(length),
        )
        try:
            route = sim.route(request)
            if route is not None:
                self._send(route(request))
                return
            response, fault = sim.answer(request)
            sim.note(request, response, fault)
            if response.stream is None:
                self._send(response)
            else:
                self._stream(response)
        except _Cut:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.close_connection = True
            self.connection.close()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _handle  # noqa: N815

    def _send(self, response: Response) -> None:
        self._head(response)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        self.wfile.flush()

    def _stream(self, response: Response) -> None:
        assert response.stream is not None
        self._head(response)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        with contextlib.closing(response.stream) as chunks:  # type: ignore[type-var]
            for chunk in chunks:
                if chunk:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                elif self._gone():
                    self.close_connection = True
                    return
        if self.server.sim.api.stopping.is_set():
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _gone(self) -> bool:
        """Whether the client has closed a connection on which it has nothing to say."""
        try:
            self.connection.setblocking(False)
            said: bytes = self.connection.recv(1, socket.MSG_PEEK)
            return said == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            with contextlib.suppress(OSError):
                self.connection.setblocking(True)

    def _head(self, response: Response) -> None:
        self.send_response(response.code)
        self.send_header("Content-Type", response.content_type)
        for name, value in response.headers.items():
            self.send_header(name, value)

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Requests are kept in /sim/requests instead."""

    def version_string(self) -> str:
        return "gpu-responder-sim"


def _json(value: Any, code: int = 200) -> Response:
    return Response(code, msgspec.json.encode(value))
