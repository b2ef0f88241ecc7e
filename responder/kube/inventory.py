"""The cluster's nodes and what is free on them, where both may be read; a few seconds old at most."""

import threading
import time
from collections.abc import Callable, Iterator

from responder.errors import PermanentError
from responder.kube.capacity import Node, NodeList, Room, is_extended, rooms
from responder.kube.connection import Connection
from responder.kube.pods import paged

_FRESH_SECONDS = 10.0
_FORBIDDEN_SECONDS = 300.0
_PAGE = "500"


class Inventory:
    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._rooms: tuple[Room, ...] | None = None
        self._until = float("-inf")

    def rooms(self) -> tuple[Room, ...] | None:
        """What is free on each node; None without the right to list nodes and all pods."""
        with self._lock:
            if self._clock() >= self._until:
                try:
                    self._rooms = rooms(
                        self._nodes(), paged(self._connection, "/api/v1/pods", {}, "list all pods")
                    )
                    self._until = self._clock() + _FRESH_SECONDS
                except PermanentError:
                    self._rooms = None
                    self._until = self._clock() + _FORBIDDEN_SECONDS
            return self._rooms

    def totals(self) -> dict[str, tuple[int, int]] | None:
        """(free, allocatable) of each extended resource, in whole units."""
        among = self.rooms()
        if among is None:
            return None
        totals: dict[str, tuple[int, int]] = {}
        for room in among:
            for name, free in room.free.items():
                if is_extended(name):
                    before = totals.get(name, (0, 0))
                    totals[name] = (
                        before[0] + max(0, free) // 1000,
                        before[1] + room.allocatable[name] // 1000,
                    )
        return totals

    def _nodes(self) -> Iterator[Node]:
        more = ""
        while True:
            query = {"limit": _PAGE} | ({"continue": more} if more else {})
            page = self._connection.get("/api/v1/nodes", NodeList, "list the nodes", query=query)
            yield from page.items or []
            more = page.metadata.more
            if not more:
                return
