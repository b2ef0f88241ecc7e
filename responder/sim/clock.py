"""Scaled time for the simulated cluster: everything that happens in it is measured in simulated seconds."""

import threading
import time
from collections.abc import Callable


class SimClock:
    """Simulated seconds since the clock was made; `speed` of them pass per real second.

    The load has its own zero, set once by `start_load`: a demand curve should begin when somebody is
    watching, not while Prometheus is still starting.
    """

    def __init__(self, speed: float = 1.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        if not 0 < speed < float("inf"):
            raise ValueError(f"speed is {speed}; write a positive number.")
        self.speed = speed
        self._monotonic = monotonic
        self._began = monotonic()
        self._load_began: float | None = None
        self._lock = threading.Lock()

    def now(self) -> float:
        """Simulated seconds since start."""
        return (self._monotonic() - self._began) * self.speed

    def start_load(self) -> None:
        """Lets the load's time begin now. A second call changes nothing."""
        with self._lock:
            if self._load_began is None:
                self._load_began = self.now()

    @property
    def load_began(self) -> float | None:
        """Simulated second at which the load's time began, or None while it has not."""
        return self._load_began

    def load_now(self) -> float | None:
        """Simulated seconds of load so far, or None before `start_load`."""
        began = self._load_began
        return None if began is None else self.now() - began

    def real_seconds(self, simulated: float) -> float:
        """How long a simulated duration takes."""
        return simulated / self.speed
