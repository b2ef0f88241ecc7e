"""The service with a store that only remembers: what durability is measured against.

Run as a program; it takes the options of `serve` as JSON.
"""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from responder import serve
from responder.model import Delivery
from responder.store.sqlite import SqliteStore

KEPT = 1000
"""Deliveries, so that memory does not grow; nobody reads them."""


class MemoryStore(SqliteStore):
    """Answers as soon as a delivery is in a list of this process."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._kept: deque[Delivery] = deque(maxlen=KEPT)

    def append(self, delivery: Delivery) -> None:
        self._kept.append(delivery)


class Idle:
    """An actor with nothing to do."""

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
        while not stop.wait(1):
            beat()


def main() -> None:
    given = json.loads(sys.argv[1])
    if given.pop("in_memory"):
        serve.SqliteStore = MemoryStore  # type: ignore[misc]
    serve.run(serve.Options(**given), lambda *_: Idle())


if __name__ == "__main__":
    main()
