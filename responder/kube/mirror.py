"""Keeping a resource current by list and watch, in a thread of its own.

The client's informer has no backoff, no paging and no way to tell whether it is in sync. Nothing is lost here:
a watch that drops goes on from the last version seen, and one that is too old lists again. While the mirror is
not current, whoever asks it reads from the server instead.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

from responder.errors import PermanentError, ResponderError, TransientError
from responder.kube.connection import Connection
from responder.kube.errors import ExpiredError, NotServedError, broken
from responder.kube.objects import ListMeta
from responder.kube.pace import Pace

T = TypeVar("T")
S = TypeVar("S", contravariant=True)  # noqa: PLC0105

_log = logging.getLogger(__name__)
_WATCH_SECONDS = 25
"""A watch is renewed so often. It bounds how long a connection that died in silence hides changes."""
_SILENCE_SECONDS = 30.0
_CURRENT_SECONDS = 40.0
"""Without a sign of the server for so long, what is here may be out of date."""
_REFUSED_SECONDS = 300.0
_ABSENT_SECONDS = 20.0
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


class Sink(Protocol[S]):
    """Where a mirror puts what it sees. Called from the mirror's thread alone."""

    def replace(self, items: Iterable[S]) -> None:
        """Keep these and no others. The items may raise before they end: then keep what there was."""

    def put(self, item: S) -> None: ...

    def drop(self, item: S) -> None: ...


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct):
    metadata: ListMeta


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


class Mirror(Generic[T]):
    """`where` gives the path of the collection, or None while the server has no such resource.

    `unserved` is called when it says so of a path that `where` gave.
    """

    def __init__(
        self,
        connection: Connection,
        where: Callable[[], str | None],
        shape: type[T],
        sink: Sink[T],
        words: str,
        unserved: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = connection
        self._where = where
        self._unserved = unserved
        self._shape = shape
        self._sink = sink
        self._words = words
        self._stop = threading.Event()
        self._version = ""
        self._seen = float("-inf")
        self._pace = Pace(_SHORTEST_PAUSE, _LONGEST_PAUSE)
        self._thread = threading.Thread(target=self._run, name=f"mirror {words}", daemon=True)
        self.refused = False
        """Whether the server does not let this service list the resource."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to stop; it does when its watch next says something, or ends."""
        self._stop.set()

    @property
    def current(self) -> bool:
        """Whether what is in the sink is what the server has, give or take a moment."""
        return time.monotonic() - self._seen < _CURRENT_SECONDS

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self._turn())

    def _turn(self) -> float:
        """List if need be, and watch until that ends; the seconds to wait before the next turn."""
        try:
            path = self._where()
            if path is None:
                self._sink.replace(())
                self._hear()
                self._version = ""
                return _ABSENT_SECONDS
            if not self._version:
                self._list(path)
            self._watch(path)
        except ExpiredError:
            self._version = ""
            return self._failed()
        except NotServedError as error:
            # A definition that was deleted, or is served in another version now.
            self._unserved()
            self._version = ""
            _log.info("%s", error)
            return self._failed()
        except PermanentError as error:
            self._lose(error)
            return _REFUSED_SECONDS
        except TransientError as error:
            if error.kind == "stopping":
                self._stop.set()  # also of a mirror that was begun while all the others were being stopped
                return 0.0
            _log.info("%s", error)
            return self._failed(error.retry_after)
        except ResponderError as error:
            _log.info("%s", error)
            return self._failed()
        except Exception:  # noqa: BLE001 - whatever it is, the thread must live to list again
            _log.exception("The mirror of %s lists again.", self._words)
            self._version = ""
            return self._failed()
        return self._until_next(self._pace.ended())

    def _failed(self, told: float | None = None) -> float:
        return self._until_next(self._pace.failed(told))

    def _until_next(self, wait: float) -> float:
        """Until the next watch has begun, nobody tells of what changes meanwhile."""
        if wait:
            self._seen = float("-inf")
        return wait

    def _list(self, path: str) -> None:
        version = ""

        def items() -> Iterator[T]:
            nonlocal version
            for page in self._connection.pages(path, self._shape, f"list {self._words}"):
                version = page.metadata.resource_version
                yield from page.items or ()

        self._sink.replace(items())
        if not version:
            raise TransientError(
                f"Cannot list {self._words}: the list has no version to go on from.", kind="body"
            )
        self._version = version
        self.refused = False
        self._hear()

    def _watch(self, path: str) -> None:
        """Follow changes until the server ends the watch; an error leaves the version to go on from."""
        doing = f"watch {self._words}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
            "resourceVersion": self._version,
        }
        self._pace.begin()
        lines = self._connection.watch(path, doing, query, _SILENCE_SECONDS, opened=self._hear)
        try:
            for line in lines:
                self._version = self._take(line, doing) or self._version
                self._hear()
                if self._stop.is_set():
                    break
        except msgspec.DecodeError as error:
            self._version = ""  # going on would meet the same line again
            raise broken(error, doing) from error
        self._hear()

    def _hear(self) -> None:
        self._seen = time.monotonic()

    def _take(self, line: bytes, doing: str) -> str:
        event = msgspec.json.decode(line, type=_Event)
        if event.type == "ERROR":
            failure = msgspec.json.decode(event.object, type=_Failure)
            if failure.code == 410:
                raise ExpiredError(f"Cannot {doing}: {failure.message}.")
            raise TransientError(f"Cannot {doing}: {failure.message}.", kind="server")
        if event.type != "BOOKMARK":
            item = msgspec.json.decode(event.object, type=self._shape)
            (self._sink.drop if event.type == "DELETED" else self._sink.put)(item)
        return msgspec.json.decode(event.object, type=_Version).metadata.resource_version

    def _lose(self, error: PermanentError) -> None:
        if not self.refused:
            _log.info("%s Reads take the place of watches.", error)
        self.refused = True
        self._version = ""
        self._seen = float("-inf")
