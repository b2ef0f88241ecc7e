"""The cluster's nodes and what is free on them, where both may be read; a few seconds old at most."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from responder.errors import PermanentError
from responder.kube.capacity import Node, Room, rooms
from responder.kube.connection import Connection
from responder.kube.pods import Pod, PodState, state_of

_FRESH_SECONDS = 10.0
_FORBIDDEN_SECONDS = 300.0


class Mirrored(Protocol):
    """Nodes and pods that are kept current by watches."""

    def inventory(self) -> tuple[list[Node], list[PodState]] | None:
        """All of them; None while that is not known."""


class Inventory:
    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._rooms: tuple[Room, ...] | None = None
        self._until = float("-inf")
        self.mirrors: Mirrored | None = None

    def rooms(self) -> tuple[Room, ...] | None:
        """What is free on each node; None without the right to list nodes and all pods."""
        with self._lock:
            if self._clock() >= self._until:
                try:
                    nodes, pods = (self.mirrors.inventory() if self.mirrors else None) or self._read()
                    self._rooms = rooms(nodes, pods)
                    self._until = self._clock() + _FRESH_SECONDS
                except PermanentError:
                    self._rooms = None
                    self._until = self._clock() + _FORBIDDEN_SECONDS
            return self._rooms

    def _read(self) -> tuple[list[Node], list[PodState]]:
        nodes = list(self._connection.items("/api/v1/nodes", Node, "list the nodes"))
        pods = self._connection.items("/api/v1/pods", Pod, "list all pods")
        return nodes, [state_of(pod) for pod in pods]
