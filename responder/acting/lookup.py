"""Looking up the targets of alerts that name only a pod, beside the inbox and never in its way."""

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from responder.errors import PermanentError, ResponderError, TransientError
from responder.model import TargetRef
from responder.policy import Rejection

THREADS = 4
KNOWN = 20_000
TRIES = 8
LONGEST_PAUSE = 60.0
TOLD_SECONDS = 3600.0
"""Why an alert leads to no target is logged again after so long."""

log = logging.getLogger(__name__)

Labels = frozenset[tuple[str, str]]


class Resolver(Protocol):
    def locate(self, labels: Mapping[str, str]) -> TargetRef | Rejection:
        """The pod's topmost owner that has a scale, or why there is none. TransientError, PermanentError."""


class PodLookup:
    """Remembers what it found; `ring` is called when something new is known."""

    def __init__(self, resolver: Resolver, ring: Callable[[], None]) -> None:
        self._resolver = resolver
        self._ring = ring
        self._lock = threading.Lock()
        self._known: OrderedDict[Labels, TargetRef | Rejection] = OrderedDict()
        self._asked: set[Labels] = set()
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._queue: queue.SimpleQueue[Labels | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def find(self, labels: Mapping[str, str]) -> TargetRef | Rejection | None:
        key = frozenset(labels.items())
        with self._lock:
            known = self._known.get(key)
            if isinstance(known, Rejection):
                del self._known[key]  # told once: another time it may be found
            if known is None and key not in self._asked:
                self._asked.add(key)
                self._queue.put(key)
                self._start()
            return known

    def close(self) -> None:
        self._stop.set()
        for _ in self._threads:
            self._queue.put(None)

    def _start(self) -> None:
        if len(self._threads) < THREADS:
            thread = threading.Thread(target=self._work, name="lookup", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (key := self._queue.get()) is not None:
            found = self._look(dict(key))
            if self._stop.is_set():
                return
            if isinstance(found, Rejection):
                self._tell(dict(key), found.message)
            with self._lock:
                self._asked.discard(key)
                self._known[key] = found
                while len(self._known) > KNOWN:
                    self._known.popitem(last=False)
            self._ring()

    def _tell(self, labels: Mapping[str, str], why: str) -> None:
        """Log why an alert leads nowhere; the same again only after a while: alerts are repeated."""
        alert, now = labels.get("alertname", ""), time.monotonic()
        with self._lock:
            if now - self._told.get((alert, why), -TOLD_SECONDS) < TOLD_SECONDS:
                return
            self._told[alert, why] = now
            while len(self._told) > KNOWN:
                self._told.popitem(last=False)
        log.warning("an alert leads to no target: %s", why, extra={"alert": alert})

    def _look(self, labels: Mapping[str, str]) -> TargetRef | Rejection:
        pause = 1.0
        error: ResponderError | None = None
        for _ in range(TRIES):
            try:
                found = self._resolver.locate(labels)
            except TransientError as transient:
                error = transient
                if self._stop.wait(max(pause, min(transient.retry_after or 0, LONGEST_PAUSE))):
                    break
                pause = min(pause * 2, LONGEST_PAUSE)
            except PermanentError as permanent:
                return Rejection(str(permanent))
            except Exception:
                log.exception("cannot look up the target of an alert")
                return Rejection("its target cannot be looked up")
            else:
                return found
        return Rejection(str(error))
