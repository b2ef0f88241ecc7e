"""gunicorn's worker processes: one of them acts, the others answer HTTP. Each process is only ever one."""

import contextlib
import fcntl
import json
import logging
import math
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from gunicorn import glogging, util
from gunicorn.http import errors
from gunicorn.workers.gthread import _DEFER, TConn, ThreadWorker

from responder.errors import ResponderError

log = logging.getLogger(__name__)

ACTOR = "actor"
NOT_HTTP = (
    (errors.LimitRequestLine, 414, "the address is too long"),
    (errors.LimitRequestHeaders, 431, "the headers are too many or too long"),
    (errors.ExpectationFailed, 417, "what Expect asks for is not known here"),
    (errors.UnsupportedTransferCoding, 501, "this Transfer-Encoding is not known here"),
    (errors.InvalidResponseHeader, 500, ""),
    (errors.InvalidResponseHeaderName, 500, ""),
    (errors.ParseException, 400, "the request is not HTTP/1.1 as it is written down"),
    (ssl.SSLError, 400, "the connection is not TLS as it is spoken here"),
)
"""What is wrong with a request that cannot be read; the first that it is."""
LINGER_SECONDS = 0.02
"""How long a thread stays with a connection after an answer: most clients ask again at once."""
SOCKET_SECONDS = 5
"""A client that neither sends nor reads for so long loses its connection, and gives a thread back."""
HEADER_SECONDS = 10
HURRIED_SECONDS = 2
"""For a header or a small body while others wait for a thread: enough of those who trickle would keep them so."""
SMALL = 64 * 1024
"""Bytes. What anybody may send without a token is far smaller."""
BODY_SECONDS = 30
"""A client that sends a byte now and then must come to an end too: so long after it may begin, reading is over."""
SPARE_THREADS = 4
RETRY_SECONDS = 2.0


class Actor(Protocol):
    """What acts. `beat` is to be called every few seconds; when `stop` is set, finish and return."""

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None: ...


class Roles(Protocol):
    """What the worker processes of a service are made of, each after its fork."""

    def web(self, draining: Callable[[], bool]) -> Any: ...
    def actor(self) -> tuple[Actor, Callable[[], None]]:
        """The actor, and what wakes it."""
        ...

    def close(self) -> None: ...


class ResponderWorker(ThreadWorker):  # type: ignore[misc]
    """Takes the first free slot of the service; the first of all is the actor's.

    The kernel frees a slot with its process, however that ended, and the next process takes it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slot = ""
        self._lingering = 0
        self._waiting = 0
        self._refuses = False
        self._read_by: dict[TConn, float] = {}
        self._small_since: dict[TConn, float] = {}

    def load_wsgi(self) -> None:
        while not self.slot:
            if not self.alive or self.ppid != os.getppid():
                sys.exit(0)
            self.slot, self._slot_fd = take_slot(self.app.folder, self.cfg.workers)
            self.notify()
        self.roles: Roles = self.app.roles(self.slot)
        if self.slot != ACTOR:
            self.wsgi = self.roles.web(lambda: not self.alive)

    def run(self) -> None:
        try:
            if self.slot == ACTOR:
                self._act()
            else:
                super().run()
        finally:
            self.roles.close()

    # The actor

    def _act(self) -> None:
        for listener in self.sockets:
            listener.close()
        made = self._make_actor()
        if made is None:
            return
        actor, wake = made
        stop = threading.Event()
        thread = threading.Thread(target=self._run_actor, args=(actor, stop), name="actor", daemon=True)
        self.failed = False
        thread.start()
        while self.alive and thread.is_alive() and self.ppid == os.getppid():
            self._signalled(1.0)
        stop.set()
        wake()
        thread.join(self.cfg.graceful_timeout)
        if self.failed:
            # Not to start anew without end and without pause.
            time.sleep(1)
            sys.exit(1)

    def _make_actor(self) -> tuple[Actor, Callable[[], None]] | None:
        """The actor, as soon as what it needs is there; None when told to stop first.

        Intake does without it: a kubeconfig that is wrong must not keep deliveries out.
        """
        told = ""
        while self.alive and self.ppid == os.getppid():
            self.notify()
            try:
                return self.roles.actor()
            except ResponderError as error:
                if str(error) != told:
                    log.error("nothing is scaled, for the actor cannot start: %s", error)
                told = str(error)
            self._signalled(RETRY_SECONDS)
        return None

    def _signalled(self, seconds: float) -> None:
        """Wait so long, or until a signal: each writes to this pipe."""
        if select.select([self.PIPE[0]], [], [], seconds)[0]:
            os.read(self.PIPE[0], 4096)

    def _run_actor(self, actor: Actor, stop: threading.Event) -> None:
        try:
            self.notify()
            actor.run(stop, self.notify)
        except Exception:
            log.exception("the actor failed and is started again")
            self.failed = True

    # The web

    def get_thread_pool(self) -> Any:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        return ThreadPoolExecutor(max_workers=self.cfg.threads + SPARE_THREADS)

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.slot == ACTOR:
            self.alive = False
        else:
            super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: Any) -> None:
        # An interrupt from the keyboard reaches every process: what was begun is finished just the same.
        self.handle_exit(sig, frame)

    def set_accept_enabled(self, enabled: bool) -> None:
        """A process that stops answers those who are in its queue, and lets nobody else join it."""
        # Read once: a signal may come at any line, also before the process has begun to accept.
        alive = self.alive
        super().set_accept_enabled(enabled and alive)
        if not alive and not self._refuses:
            self._refuses = True
            for listener in self.sockets:
                self._accept_all(listener)
                listener.close()

    def _accept_all(self, listener: socket.socket) -> None:
        before = -1
        while before != self.nr_conns:
            before = self.nr_conns
            self.accept(listener)

    def enqueue_req(self, conn: TConn) -> None:
        self._waiting += 1
        super().enqueue_req(conn)

    def handle(self, conn: TConn) -> Any:
        """Answer requests of the connection as long as the next comes at once and nobody else waits.

        Handing a connection back to the main thread between two requests costs more than the request.
        """
        self._waiting -= 1
        # Who connects and says nothing is waited for by the main thread, which waits for any number.
        if self.alive and not conn.initialized and not conn.wait_for_data(LINGER_SECONDS):
            return _DEFER
        _limit_waiting(conn.sock)
        try:
            while True:
                self._small_since[conn] = time.monotonic()
                self._read_by[conn] = time.monotonic() + HEADER_SECONDS
                kept = super().handle(conn)
                if kept is not True or not self.alive or not self._next_comes(conn):
                    return kept
        finally:
            self._read_by.pop(conn, None)
            self._small_since.pop(conn, None)

    def handle_request(self, req: Any, conn: TConn) -> Any:
        if _is_large(req):
            self._small_since.pop(conn, None)
        else:
            self._small_since[conn] = time.monotonic()
        self._read_by[conn] = time.monotonic() + BODY_SECONDS
        return super().handle_request(req, conn)

    def murder_keepalived(self, force: bool = False) -> None:
        """Called every second: what has expired loses its connection, and who trickles is read no further."""
        super().murder_keepalived(force)
        now = time.monotonic()
        hurried = now - HURRIED_SECONDS if self._waiting > 0 else -math.inf
        for conn, deadline in list(self._read_by.items()):
            if now > deadline or self._small_since.get(conn, now) < hurried:
                with contextlib.suppress(OSError):
                    # An answer may still be under way, so only reading ends; TLS has a shutdown of its own.
                    socket.socket.shutdown(conn.sock, socket.SHUT_RD)

    def _cap_keepalive(self, deadline: float) -> None:
        """A process that stops waits no longer for those who have said nothing yet than for those who were answered."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what could not be read as all else is answered. Nothing of it is told: it may hold a token."""
        status, said = next(
            ((status, said) for kind, status, said in NOT_HTTP if isinstance(exc, kind)), (500, "")
        )
        if said:
            log.warning("a request could not be read: %s", said, extra={"address": addr[0] if addr else ""})
        else:
            log.error(
                "a request could not be handled", exc_info=exc, extra={"path": getattr(req, "path", "")}
            )
        body = json.dumps({"error": said or "a fault of this service; its log says more"})
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nConnection: close\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nContent-Type: application/json\r\n"
        )
        with contextlib.suppress(Exception):
            util.write_nonblock(client, f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def _next_comes(self, conn: TConn) -> bool:
        if conn.parser.unreader.buf.getvalue():
            return True
        if self._waiting > 0 or self._lingering >= self.cfg.threads:
            return False
        self._lingering += 1
        try:
            pending = getattr(conn.sock, "pending", None)
            if pending is not None and pending():
                return True
            poll = select.poll()
            poll.register(conn.sock, select.POLLIN)
            return bool(poll.poll(LINGER_SECONDS * 1000))
        finally:
            self._lingering -= 1


def _is_large(req: Any) -> bool:
    """True if the body may take its time: it is long, or does not say how long it is."""
    declared = dict(req.headers).get("CONTENT-LENGTH", "")
    coded = "TRANSFER-ENCODING" in dict(req.headers)
    return coded or (declared.isdecimal() and int(declared) > SMALL)


def _limit_waiting(sock: socket.socket) -> None:
    limit = struct.pack("ll", SOCKET_SECONDS, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def take_slot(folder: Path, count: int) -> tuple[str, int]:
    """The first free of the service's slots, and the descriptor that holds it while it is open.

    Empty when none is free: a process that was told to stop may still be finishing.
    """
    for name in (ACTOR, *(f"web-{number}" for number in range(1, count))):
        fd = os.open(folder / f"{name}.slot", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            continue
        return name, fd
    time.sleep(0.05)
    return "", -1


class GunicornLog(glogging.Logger):  # type: ignore[misc]
    """gunicorn's log in the service's own form, through the root logger."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self.loglevel = logging.INFO
        for own in (self.error_log, self.access_log):
            own.handlers[:] = []
            own.propagate = True
            own.setLevel(logging.NOTSET)
        # Its every start, stop and signal is of interest to who debugs it.
        self.error_log.setLevel(logging.WARNING)
        self.access_log.setLevel(logging.CRITICAL)
        self._access_log_enabled = False

    def exception(self, msg: str, *args: Any, **kwargs: Any) -> None:
        # A client that went silent is no fault of ours.
        if not isinstance(sys.exc_info()[1], BlockingIOError):
            super().exception(msg, *args, **kwargs)

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        """Deliveries are counted, not logged."""
