"""The threads that look at targets: a few, and more while some of them wait for an answer that does not come."""

import threading
import time
from collections.abc import Callable
from datetime import datetime

from responder.acting.schedule import Schedule

SLOW_SECONDS = 2.0
"""A look that has lasted so long waits for somebody: it is not to keep others from being looked at."""
MOST_THREADS = 128


class Pool:
    """`threads` looks at once, besides those that are slow: a group of targets that hang takes nobody's turn.

    `look` returns when to look again, and does not raise.
    """

    def __init__(
        self,
        schedule: Schedule,
        look: Callable[[str], datetime | None],
        threads: int,
        most: int = MOST_THREADS,
    ) -> None:
        self._schedule = schedule
        self._look = look
        self._threads = threads
        self._most = most
        self._lock = threading.Lock()
        self._alive = 0
        self._made = 0
        self._since: dict[str, float] = {}

    def widen(self) -> None:
        """Start the threads that are missing. To be called at the start, and now and then."""
        with self._lock:
            while self._alive < min(self._threads + self._slow(), self._most):
                self._alive += 1
                self._made += 1
                threading.Thread(target=self._work, name=f"looks-{self._made}", daemon=True).start()

    def _slow(self) -> int:
        before = time.monotonic() - SLOW_SECONDS
        return sum(since < before for since in self._since.values())

    def _work(self) -> None:
        while (key := self._schedule.take()) is not None:
            look_again_at = None
            with self._lock:
                self._since[key] = time.monotonic()
            try:
                look_again_at = self._look(key)
            finally:
                with self._lock:
                    del self._since[key]
                self._schedule.done(key, look_again_at)
            if self._too_many():
                return

    def _too_many(self) -> bool:
        with self._lock:
            too_many = self._alive > self._threads + self._slow()
            self._alive -= too_many
            return too_many
