"""The lease that elects the one actor, and the fence that a holder checks before it acts.

It spares work and nothing more: safety rests on compare-and-set, so that a holder that was paused past its
lease does no harm. The fence goes by the monotonic clock, which no operator sets back.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from responder.errors import ResponderError

NAME = "actor"
TTL = timedelta(seconds=10)

log = logging.getLogger(__name__)


class Leases(Protocol):
    def lease(self, name: str, holder: str, ttl: timedelta, now: datetime) -> bool: ...

    def release(self, name: str, holder: str) -> None: ...


class Lease:
    """Acquires and renews in a thread of its own, so that no amount of work delays a renewal."""

    def __init__(
        self,
        store: Leases,
        holder: str,
        clock: Callable[[], datetime],
        ttl: timedelta = TTL,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._ttl = ttl
        self._monotonic = monotonic
        self._until = 0.0
        self._trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def held(self) -> bool:
        """The fence: True while no other can have the lease, by the time that has passed here."""
        return self._monotonic() < self._until

    def try_hold(self) -> bool:
        """Acquire or renew once. The fence counts from before the store was asked."""
        asked = self._monotonic()
        try:
            held = self._store.lease(NAME, self._holder, self._ttl, self._clock())
        except ResponderError as error:
            # Tried again every few seconds, and told once.
            if str(error) != self._trouble:
                log.warning("cannot renew the actor's lease: %s", error)
            self._trouble = str(error)
            return False
        self._trouble = ""
        self._until = asked + self._ttl.total_seconds() * 0.9 if held else 0.0
        return held

    def stop(self) -> None:
        """Stop renewing and give the lease back."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._ttl.total_seconds())
        self._until = 0.0
        with contextlib.suppress(ResponderError):
            self._store.release(NAME, self._holder)

    def _renew(self) -> None:
        while not self._stop.is_set():
            self.try_hold()
            self._stop.wait(self._ttl.total_seconds() / 3)
