"""The cluster's nodes and what is free on them, where both may be read; a few seconds old at most."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from responder.errors import PermanentError, TransientError
from responder.kube.capacity import Node, Room, rooms
from responder.kube.connection import Connection
from responder.kube.pods import Pod, PodState, state_of

_FRESH_SECONDS = 10.0
_FORBIDDEN_SECONDS = 300.0
_FAILED_SECONDS = 5.0


class Mirrored(Protocol):
    """Nodes and pods that are kept current by watches."""

    def inventory(self) -> tuple[list[Node], list[PodState]] | None:
        """All of them; None while that is not known."""


class Inventory:
    """One read for all who want to know: who comes while it is under way waits for it, and shares its failure."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._rooms: tuple[Room, ...] | None = None
        self._failure: TransientError | None = None
        self._until = float("-inf")
        self.mirrors: Mirrored | None = None

    def rooms(self) -> tuple[Room, ...] | None:
        """What is free on each node; None without the right to list nodes and all pods."""
        with self._lock:
            if self._clock() >= self._until:
                self._until = self._read_again() + self._clock()
            if self._failure is not None:
                raise self._failure
            return self._rooms

    def _read_again(self) -> float:
        """Read, and tell for how many seconds that will do."""
        self._rooms = self._failure = None
        try:
            nodes, pods = (self.mirrors.inventory() if self.mirrors else None) or self._read()
            self._rooms = rooms(nodes, pods)
        except PermanentError:
            return _FORBIDDEN_SECONDS
        except TransientError as error:
            self._failure = error
            return _FAILED_SECONDS
        return _FRESH_SECONDS

    def _read(self) -> tuple[list[Node], list[PodState]]:
        nodes = list(self._connection.items("/api/v1/nodes", Node, "list the nodes"))
        pods = self._connection.items("/api/v1/pods", Pod, "list all pods")
        return nodes, [state_of(pod) for pod in pods]
