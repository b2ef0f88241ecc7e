"""Kubernetes Events on targets: what `kubectl describe` shows of our decisions.

Best effort: recording never blocks and never fails the caller. A repeat counts up the Event that is there, as
Kubernetes's own recorders do, so that a target has few Events however often it is looked at.
"""

import logging
import queue
import threading
import time
import uuid
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from responder.errors import PermanentError, ResponderError
from responder.kube.connection import Call, Connection
from responder.kube.discovery import Discovery
from responder.kube.objects import Anything
from responder.model import Reason, TargetRef

COMPONENT = "gpu-responder"
_WAITING = 1000
_KEPT = 4096
_AGGREGATE_SECONDS = 600.0
_FORBIDDEN_SECONDS = 300.0
_TOLD_SECONDS = 60.0
_LONGEST_MESSAGE = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Note:
    ref: TargetRef
    uid: str
    reason: str
    message: str
    kind: str
    at: datetime

    @property
    def key(self) -> tuple[str, ...]:
        return self.ref.key, self.uid, self.reason, self.message, self.kind


@dataclass(frozen=True, slots=True)
class _Written:
    name: str
    count: int
    last: float


class Recorder:
    """Writes Events from one background thread; what is too much for it is dropped, which the log says now and then."""

    def __init__(self, connection: Connection, discovery: Discovery) -> None:
        self._connection = connection
        self._discovery = discovery
        self._queue: queue.Queue[_Note | None] = queue.Queue(_WAITING)
        self._written: OrderedDict[tuple[str, ...], _Written] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._forbidden_until: dict[str, float] = {}
        self._told_until = 0.0

    def record(self, ref: TargetRef, uid: str, reason: str, message: str, kind: str) -> None:
        """Queue an Event. `kind` is Normal or Warning."""
        self._start()
        note = _Note(ref, uid, reason, message[:_LONGEST_MESSAGE], kind, datetime.now(UTC))
        try:
            self._queue.put_nowait(note)
        except queue.Full:
            if time.monotonic() >= self._told_until:
                _log.warning("Events are dropped: %d wait for the API server to take them.", _WAITING)
                self._told_until = time.monotonic() + _TOLD_SECONDS

    def close(self, timeout: float = 2.0) -> None:
        """Write what waits, for at most `timeout` seconds."""
        thread = self._thread
        if thread is None:
            return
        while True:
            try:
                self._queue.put_nowait(None)
                break
            except queue.Full:
                with suppress(queue.Empty):
                    self._queue.get_nowait()
        thread.join(timeout)

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (note := self._queue.get()) is not None:
            try:
                self._write(note)
            except PermanentError as error:
                if error.reason is Reason.TARGET_GONE:
                    continue  # nothing to record it on
                if error.reason is Reason.FORBIDDEN:
                    self._forbidden_until[note.ref.namespace] = time.monotonic() + _FORBIDDEN_SECONDS
                _log.warning("No Event for %s: %s", note.ref, error)
            except ResponderError as error:
                _log.warning("No Event for %s: %s", note.ref, error)

    def _write(self, note: _Note) -> None:
        now = time.monotonic()
        if now < self._forbidden_until.get(note.ref.namespace, 0.0):
            return
        known = self._written.get(note.key)
        if known is not None and now - known.last < _AGGREGATE_SECONDS:
            counted = _Written(known.name, known.count + 1, now)
            if self._count(note, counted):
                self._keep(note, counted)
                return
        self._keep(note, self._create(note, now))

    def _count(self, note: _Note, counted: _Written) -> bool:
        """Count a repeat on the Event that is there; False when the server has dropped it."""
        body = {"count": counted.count, "lastTimestamp": _stamp(note.at)}
        call = Call(
            "PATCH",
            f"/api/v1/namespaces/{note.ref.namespace}/events/{counted.name}",
            f"count an Event on {note.ref}",
            data=msgspec.json.encode(body),
            content_type="application/merge-patch+json",
        )
        try:
            self._connection.send(call, msgspec.Raw)
        except PermanentError as error:
            if error.reason is Reason.TARGET_GONE:
                return False
            raise
        return True

    def _create(self, note: _Note, now: float) -> _Written:
        resource = self._discovery.find(note.ref.group, note.ref.kind)
        version = resource.version if resource else "v1"
        name = f"{note.ref.name[:200]}.{uuid.uuid4().hex[:16]}"
        # `kubectl describe` finds an object's Events by its uid.
        uid = note.uid
        if not uid and resource is not None:
            path = resource.path(note.ref.namespace, note.ref.name)
            uid = self._connection.get(path, Anything, f"read {note.ref} for an Event on it").metadata.uid
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": note.ref.namespace},
            "involvedObject": {
                "apiVersion": f"{note.ref.group}/{version}" if note.ref.group else version,
                "kind": resource.kind if resource else note.ref.kind,
                "namespace": note.ref.namespace,
                "name": note.ref.name,
                "uid": uid,
            },
            "reason": note.reason,
            "message": note.message,
            "type": note.kind,
            "count": 1,
            "firstTimestamp": _stamp(note.at),
            "lastTimestamp": _stamp(note.at),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
        }
        call = Call(
            "POST",
            f"/api/v1/namespaces/{note.ref.namespace}/events",
            f"record an Event on {note.ref}",
            data=msgspec.json.encode(body),
        )
        self._connection.send(call, msgspec.Raw)
        return _Written(name, 1, now)

    def _keep(self, note: _Note, written: _Written) -> None:
        self._written[note.key] = written
        self._written.move_to_end(note.key)
        while len(self._written) > _KEPT:
            self._written.popitem(last=False)


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
