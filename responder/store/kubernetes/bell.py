"""What wakes the actor: a watch on deliveries and on what people say, whichever replica took them in."""

import logging
import threading

import msgspec

from responder.errors import PermanentError, ResponderError, StoreUnavailable, TransientError
from responder.kube.connection import Connection
from responder.kube.errors import ExpiredError
from responder.kube.pace import Pace
from responder.store.kubernetes.configmaps import METADATA, PART, ConfigMaps, Named

_WATCH_SECONDS = 25
_SILENCE_SECONDS = 30.0
_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_PARTS = "inbox,people,bell"

log = logging.getLogger(__name__)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


class Bell:
    """Heard by this process always, and from others while it listens."""

    def __init__(self, connection: Connection, maps: ConfigMaps) -> None:
        self._connection = connection
        self._maps = maps
        self._rung = threading.Event()
        self._closed = False
        self._listening: threading.Event | None = None
        """Set when the watch of this time of listening is to end."""

    def ring(self) -> None:
        """Wake this process."""
        self._rung.set()

    def wait(self, timeout: float) -> bool:
        """True as soon as it is rung, False after `timeout` seconds. Raises StoreUnavailable when closed."""
        if self._closed:
            raise StoreUnavailable("the store is closed: the service is stopping")
        rung = self._rung.wait(max(timeout, 0))
        if rung:
            # It may be rung again just before: who is woken looks after this, so nothing is slept through.
            self._rung.clear()
        return rung

    def listen(self) -> None:
        """Hear other processes from now on; what came before this call must be looked for."""
        if self._listening is not None:
            return
        version = self._maps.moment()
        self._listening = over = threading.Event()
        thread = threading.Thread(target=self._follow, args=(version, over), name="store-bell", daemon=True)
        thread.start()

    def deafen(self) -> None:
        """Hear only this process."""
        if self._listening is not None:
            self._listening.set()
            self._listening = None

    def close(self) -> None:
        self.deafen()
        self._closed = True
        self._rung.set()

    def _follow(self, version: str, over: threading.Event) -> None:
        pace = Pace(_SHORTEST_PAUSE, _LONGEST_PAUSE)
        while not over.is_set():
            try:
                if not version:
                    version = self._maps.moment()
                    self._hear(over)
                pace.begin()
                version = self._watch(version, over)
                over.wait(pace.ended())
            except ExpiredError:
                version = ""
                over.wait(pace.failed())
            except (TransientError, PermanentError, StoreUnavailable) as error:
                if not over.is_set():
                    log.info("%s", error)
                over.wait(pace.failed())
            except Exception:
                log.exception("the watch on the inbox begins anew")
                version = ""
                over.wait(_LONGEST_PAUSE)

    def _watch(self, version: str, over: threading.Event) -> str:
        doing = f"watch the store's inbox in {self._maps.namespace}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
            "labelSelector": f"{PART} in ({_PARTS})",
            "resourceVersion": version,
        }
        lines = self._connection.watch(self._maps.path, doing, query, _SILENCE_SECONDS, METADATA)
        for line in lines:
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                raise _error(msgspec.json.decode(event.object, type=_Failure), doing)
            version = msgspec.json.decode(event.object, type=Named).metadata.resource_version
            if over.is_set():
                break
            if event.type in ("ADDED", "MODIFIED"):
                self._hear(over)
        return version

    def _hear(self, over: threading.Event) -> None:
        if not over.is_set():
            self._rung.set()


def _error(failure: _Failure, doing: str) -> ResponderError:
    if failure.code == 410:
        return ExpiredError(f"Cannot {doing}: {failure.message}.", kind="expired")
    return TransientError(f"Cannot {doing}: {failure.message}.", kind="server")
