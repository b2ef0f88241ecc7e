"""What is due when: one place per target, earliest first, never two at once for one target."""

import heapq
import itertools
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

_LONGEST_WAIT = timedelta(seconds=0.5)
"""A wait is cut short so often, so that a clock that was set is noticed."""


class Schedule:
    """Targets and the moments to look at them again. Thread-safe.

    A target that is woken while it is being looked at is due again when that ends: the newest state counts, and
    a backlog never holds more than one entry per target.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._finished = threading.Condition(lock)
        self._due: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, int, str]] = []
        self._order = itertools.count()
        self._running: set[str] = set()
        self._closed = False

    def wake(self, key: str, at: datetime) -> None:
        """Look at the target at `at`, or when it is due already if that is earlier."""
        with self._changed:
            known = self._due.get(key)
            if known is None or at < known:
                self._put(key, at)

    def take(self) -> str | None:
        """Wait for a target to be due and take it; None when closed. `done` must follow."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                key = self._pop(now)
                if key is not None:
                    self._running.add(key)
                    return key
                wait = _LONGEST_WAIT
                if self._heap:
                    wait = min(wait, max(self._heap[0][0] - now, timedelta(milliseconds=1)))
                self._changed.wait(wait.total_seconds())
            return None

    def done(self, key: str, look_again_at: datetime | None) -> None:
        """The look is over. What was asked for meanwhile stands; else look again then, or not at all."""
        with self._changed:
            self._running.discard(key)
            asked = self._due.get(key)
            if asked is not None:
                self._put(key, asked if look_again_at is None else min(asked, look_again_at))
            elif look_again_at is not None:
                self._put(key, look_again_at)
            self._finished.notify_all()

    def forget(self) -> None:
        """Drop all that is due; what runs goes on."""
        with self._changed:
            self._due.clear()
            self._heap.clear()

    def close(self) -> None:
        """Let every `take` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def idle(self, timeout: float) -> bool:
        """Wait until nothing runs. False when the time is up first."""
        with self._changed:
            return self._finished.wait_for(lambda: not self._running, timeout)

    def running(self) -> int:
        with self._changed:
            return len(self._running)

    def __len__(self) -> int:
        with self._changed:
            return len(self._due)

    def _put(self, key: str, at: datetime) -> None:
        self._due[key] = at
        if key in self._running:
            return
        heapq.heappush(self._heap, (at, next(self._order), key))
        self._changed.notify()

    def _pop(self, now: datetime) -> str | None:
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            # An entry that was put off, taken or overtaken by an earlier one is not what `_due` says any more.
            if key not in self._running and self._due.get(key) == at:
                del self._due[key]
                return key
        return None
