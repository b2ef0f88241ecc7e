"""The action budget over all targets (promise 17): at most so many changes of one direction per period.

Those who wait are served in the order in which they began to.
"""

import heapq
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from responder.model import Budget, Direction
from responder.policy import ActionBudget


class BudgetBook:
    """Counts actions and keeps the queue of those who found none left. Thread-safe; times count from decisions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: Mapping[Direction, ActionBudget] = {}
        self._taken: dict[Direction, list[datetime]] = {direction: [] for direction in Direction}
        self._waiting: dict[Direction, dict[str, datetime]] = {direction: {} for direction in Direction}

    def limit(self, limits: Mapping[Direction, ActionBudget]) -> None:
        """The limits of the policy file in force."""
        with self._lock:
            self._limits = limits

    def restore(self, direction: Direction, taken: Iterable[datetime]) -> None:
        """What was done before this process began to count."""
        with self._lock:
            self._taken[direction] = sorted(taken)

    def offer(self, key: str, now: datetime) -> Budget:
        """What is left for this target, those who have waited longer served first."""
        with self._lock:
            up, up_until = self._left(key, Direction.UP, now)
            down, down_until = self._left(key, Direction.DOWN, now)
            return Budget(up, down, up_until, down_until)

    def take(self, key: str, direction: Direction, now: datetime) -> bool:
        """Spend one action, unless none is left for this target."""
        with self._lock:
            left, _ = self._left(key, direction, now)
            if left is not None and left <= 0:
                return False
            self._taken[direction].append(now)
            self._leave(key)
            return True

    def give_back(self, direction: Direction, taken_at: datetime) -> None:
        """An action that was taken did not happen."""
        with self._lock:
            taken = self._taken[direction]
            # A look that had begun a moment earlier may have set its time back to its own.
            taken_at = max((at for at in taken if at <= taken_at), default=taken_at)
            if taken_at in taken:
                taken.remove(taken_at)

    def wait(self, key: str, direction: Direction, since: datetime) -> None:
        """Queue for a direction."""
        with self._lock:
            self._waiting[direction].setdefault(key, since)

    def leave(self, key: str) -> None:
        """It does not want an action any more."""
        with self._lock:
            self._leave(key)

    def next_served(self, now: datetime) -> list[str]:
        """Those who wait and would be served now, longest waiting first."""
        with self._lock:
            keys: list[str] = []
            for direction in Direction:
                free, _ = self._free(direction, now)
                waiting = self._waiting[direction]
                count = len(waiting) if free is None else max(free, 0)
                keys += heapq.nsmallest(count, waiting, key=lambda key: (waiting[key], key))
            return keys

    def _leave(self, key: str) -> None:
        for waiting in self._waiting.values():
            waiting.pop(key, None)

    def _left(self, key: str, direction: Direction, now: datetime) -> tuple[int | None, datetime | None]:
        free, until = self._free(direction, now)
        if free is None:
            return None, None
        waiting = self._waiting[direction]
        mine = waiting.get(key)
        ahead = len(waiting)
        if mine is not None:
            ahead = sum(1 for other, since in waiting.items() if (since, other) < (mine, key))
        return max(free - ahead, 0), until

    def _free(self, direction: Direction, now: datetime) -> tuple[int | None, datetime | None]:
        limit = self._limits.get(direction)
        if limit is None:
            return None, None
        # A time later than now, left by a clock that was set back, counts as now.
        start = now - limit.period
        taken = sorted(min(at, now) for at in self._taken[direction] if at > start)
        self._taken[direction] = taken
        free = limit.max_actions - len(taken)
        if free > 0:
            return free, None
        until = taken[-limit.max_actions] + limit.period if limit.max_actions else now + timedelta(hours=1)
        return free, until
