"""A client-side rate limit, so that a storm of alerts does not become a storm on the API server."""

import threading
import time
from collections.abc import Callable


class RateLimit:
    """A token bucket: `qps` per second, `burst` at once. Callers wait their turn, in order."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._clock = clock
        self._at = clock()
        self._lock = threading.Lock()

    def reserve(self, longest: float) -> float | None:
        """Take a token; the seconds to wait for it, or None, and none taken, if more than `longest`."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps)
            self._at = now
            wait = max(0.0, (1.0 - self._tokens) / self._qps)
            if wait > longest:
                return None
            self._tokens -= 1.0
            return wait
