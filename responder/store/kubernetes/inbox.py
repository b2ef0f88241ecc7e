"""Deliveries as ConfigMaps: durable when the API server has them all, deleted when they are folded in.

Those that come while others are being written share ConfigMaps, so that a storm costs few writes.
"""

import logging
import queue
import re
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from responder.codec import encode
from responder.errors import Conflict, ResponderError, StoreUnavailable
from responder.model import Delivery
from responder.store.kubernetes.configmaps import PATIENCE, PREFIX, ConfigMap, ConfigMaps, Meta

PART = "inbox"
LARGEST_PIECE = 512 * 2**10
"""Bytes of one ConfigMap; a larger batch is split."""
LARGEST_BATCH = 8 * 2**20
"""Bytes of deliveries, before they are compressed, that are written together."""
WRITERS = 2
PAGE = 50
LARGEST_READ = 16 * 2**20
FORSAKEN_SECONDS = 600.0
"""Pieces whose others never came were not acknowledged, and go after so long."""
_NAME = re.compile(rf"{PREFIX}-inbox-(?P<batch>[0-9a-z-]+)-(?P<piece>\d+)-of-(?P<pieces>\d+)")

log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(tuple[Delivery, ...])


class _Work:
    """What an appending thread waits for."""

    __slots__ = ("body", "done", "error")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.done = threading.Event()
        self.error: ResponderError | None = None


@dataclass(slots=True)
class _Batch:
    """A batch in the inbox. `order` is that of its last piece, which made it whole."""

    pieces: int
    names: dict[int, str] = field(default_factory=dict)
    order: int = 0

    @property
    def whole(self) -> bool:
        return len(self.names) == self.pieces


class Inbox:
    """Ids are `batch/place`. A batch is deleted when all of it is drained."""

    def __init__(self, maps: ConfigMaps) -> None:
        self._maps = maps
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._drained: dict[str, set[int]] = {}
        self._read: dict[str, tuple[Delivery, ...]] = {}
        """Batches that were read and are not drained yet."""
        self._names: dict[str, tuple[str, ...]] = {}
        self._forsaken: dict[str, float] = {}
        self._unreadable: set[str] = set()
        self.more = False
        """Whether the last reading left some."""

    # Taking in

    def append(self, delivery: Delivery) -> None:
        """Durable on return. Raises StoreUnavailable."""
        if self._maps.closed:
            raise StoreUnavailable("the store is closed: the service is stopping")
        self._start()
        work = _Work(encode(delivery))
        self._queue.put(work)
        if not work.done.wait(PATIENCE + 1):
            raise StoreUnavailable(
                f"the store in namespace {self._maps.namespace}: the API server has not taken it in time"
            )
        if work.error is not None:
            raise work.error

    def close(self) -> None:
        """Finish what was begun."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(PATIENCE)

    def _start(self) -> None:
        with self._lock:
            while len(self._threads) < WRITERS:
                thread = threading.Thread(target=self._write_all, name="store-inbox", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _write_all(self) -> None:
        last = False
        while not last:
            first = self._queue.get()
            if first is None:
                return
            group, size = [first], len(first.body)
            while size < LARGEST_BATCH:
                try:
                    work = self._queue.get_nowait()
                except queue.Empty:
                    break
                if work is None:
                    last = True
                    break
                group.append(work)
                size += len(work.body)
            self._write(group)

    def _write(self, group: Sequence[_Work]) -> None:
        error: ResponderError | None = None
        try:
            self._create(b"[" + b",".join(work.body for work in group) + b"]")
        except ResponderError as problem:
            error = problem
        except Exception as problem:
            log.exception("a delivery cannot be written")
            error = StoreUnavailable(f"the store cannot take a delivery: {problem}")
        for work in group:
            work.error = error
            work.done.set()

    def _create(self, body: bytes) -> None:
        body = zlib.compress(body, 1)
        pieces = [body[at : at + LARGEST_PIECE] for at in range(0, len(body), LARGEST_PIECE)]
        batch = f"{int(time.time() * 1000):013d}-{uuid.uuid4().hex[:12]}"
        for number, piece in enumerate(pieces):
            name = f"{PREFIX}-inbox-{batch}-{number}-of-{len(pieces)}"
            try:
                self._maps.create(name, PART, binary={"deliveries": piece})
            except Conflict:
                continue  # the answer to an earlier try was lost

    # Reading

    def oldest(self, limit: int) -> list[tuple[str, Delivery]]:
        """The oldest deliveries that are not drained; fewer when they are large."""
        found, more = self._maps.page(PART, PAGE)
        batches = self._batches([item.metadata for item in found] if not more else self._maps.versions(PART))
        bodies = {item.metadata.name: item for item in found}
        deliveries: list[tuple[str, Delivery]] = []
        size, self.more = 0, False
        self._unreadable &= batches.keys()
        readable = batches.keys() - self._unreadable
        for name in sorted(readable, key=lambda name: (batches[name].order, name)):
            if len(deliveries) >= limit or size > LARGEST_READ:
                self.more = True
                break
            whole = self._read.get(name)
            if whole is None:
                body = self._body(batches[name], bodies)
                if body is None:
                    continue  # drained by another meanwhile
                size += len(body)
                whole = self._deliveries(body, batches[name])
                if whole is None:
                    self._unreadable.add(name)
                    continue
                self._read[name] = whole
            self._names[name] = tuple(batches[name].names.values())
            drained = self._drained.get(name, set())
            deliveries += [(f"{name}/{n}", each) for n, each in enumerate(whole) if n not in drained]
            if len(drained) == len(whole):
                self._delete(name)  # its deletion failed before
        for name in [name for name in self._read if name not in batches]:
            self._forget(name)
        self.more = self.more or len(deliveries) > limit
        return deliveries[:limit]

    def count(self) -> int:
        """Of batches that wait, which is of deliveries when there is no storm."""
        return len(self._maps.versions(PART))

    def drain(self, identities: Iterable[str]) -> None:
        """These are folded in."""
        touched = set()
        for identity in identities:
            name, _, place = identity.rpartition("/")
            self._drained.setdefault(name, set()).add(int(place))
            touched.add(name)
        for name in sorted(touched):
            if len(self._drained[name]) == len(self._read.get(name, ())) and name in self._names:
                self._delete(name)

    def _batches(self, metas: Iterable[Meta]) -> dict[str, _Batch]:
        batches: dict[str, _Batch] = {}
        for meta in metas:
            found = _NAME.fullmatch(meta.name)
            if found is None:
                continue
            batch = batches.setdefault(found["batch"], _Batch(int(found["pieces"])))
            batch.names[int(found["piece"])] = meta.name
            batch.order = max(batch.order, meta.order)
        self._clear_forsaken({name: batch for name, batch in batches.items() if not batch.whole})
        return {name: batch for name, batch in batches.items() if batch.whole}

    def _clear_forsaken(self, partial: dict[str, _Batch]) -> None:
        now = time.monotonic()
        self._forsaken = {name: self._forsaken.get(name, now) for name in partial}
        for name, since in list(self._forsaken.items()):
            if now - since > FORSAKEN_SECONDS:
                for piece in partial[name].names.values():
                    self._maps.delete(piece)

    def _body(self, batch: _Batch, bodies: dict[str, ConfigMap]) -> bytes | None:
        parts = []
        for number in range(batch.pieces):
            name = batch.names[number]
            found = bodies.get(name) or self._maps.get(name)
            if found is None:
                return None
            parts.append((found.binary_data or {}).get("deliveries", b""))
        return b"".join(parts)

    def _deliveries(self, body: bytes, batch: _Batch) -> tuple[Delivery, ...] | None:
        """None for what cannot be read: it stays, for the release that wrote it, and holds up no other."""
        try:
            return _decoder.decode(zlib.decompress(body))
        except (msgspec.MsgspecError, zlib.error) as error:
            names = ", ".join(f"{self._maps.namespace}/{name}" for _, name in sorted(batch.names.items()))
            log.error(
                "ConfigMap %s holds a delivery that cannot be read and is left there: %s; let the release that wrote"
                " it read it, or delete it",
                names,
                error,
            )
            return None

    def _delete(self, name: str) -> None:
        for piece in self._names.get(name, ()):
            self._maps.delete(piece)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._read.pop(name, None)
        self._drained.pop(name, None)
        self._names.pop(name, None)
