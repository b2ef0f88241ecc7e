"""How long to wait before a watch begins again, so that a server that ends each at once meets no storm."""

import random
import time
from collections.abc import Callable

_STEADY_SECONDS = 5.0
"""A watch that has lasted so long was in order, however it came to its end."""


class Pace:
    """Pauses that double from `shortest` to `longest` seconds until a watch lasts; with jitter. For one thread."""

    def __init__(self, shortest: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._shortest = shortest
        self._longest = longest
        self._clock = clock
        self._pause = shortest
        self._began: float | None = None

    def begin(self) -> None:
        """A watch begins."""
        self._began = self._clock()

    def ended(self) -> float:
        """The server has ended the watch: at its time there is nothing to wait for."""
        if not self._lasted():
            return self.failed()
        self._began, self._pause = None, self._shortest
        return 0.0

    def failed(self, told: float | None = None) -> float:
        """It broke off or did not come about. `told` is what the server asked to wait."""
        if self._lasted():
            self._pause = self._shortest
        self._began = None
        wait = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - to spread them, no secret
        self._pause = min(self._pause * 2, self._longest)
        return max(wait, min(told or 0.0, self._longest))

    def _lasted(self) -> bool:
        return self._began is not None and self._clock() - self._began >= _STEADY_SECONDS
