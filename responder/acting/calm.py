"""How soon news of a target is looked at: at once as a rule, now and then where it never ends."""

import threading
from datetime import datetime, timedelta


class Calm:
    """`at_once` looks at a target as they are asked for, after them one in `every`. Thread-safe."""

    def __init__(self, at_once: int, every: timedelta) -> None:
        self._burst = every * at_once
        self._every = every
        self._lock = threading.Lock()
        self._known: dict[str, tuple[datetime, datetime]] = {}
        """When a target's next look is, and until when those that it has had are counted."""

    def when(self, key: str, now: datetime) -> datetime:
        """The moment for a look because of news of now; further news until then is for the same look."""
        with self._lock:
            at, spent = self._known.get(key, (now, now))
            if at > now:
                return at
            spent = max(spent, now) + self._every
            at = max(now, spent - self._burst)
            self._known[key] = at, spent
            return at

    def forget(self, key: str) -> None:
        """The target is nobody's business any more."""
        with self._lock:
            self._known.pop(key, None)

    def clear(self) -> None:
        """The clock was set, or the looks are another's now."""
        with self._lock:
            self._known.clear()
