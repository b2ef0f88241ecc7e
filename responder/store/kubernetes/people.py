"""What people have said, and the alerts that stand for themselves: one value of a ConfigMap each.

They are read anew each time, since an override binds from its acknowledgement. Threads that ask at once share a
read, but never one that began before they asked.
"""

import logging
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Generic, TypeVar, cast

from responder.codec import decode, encode
from responder.errors import Conflict, ResponderError, StoreUnavailable
from responder.model import AuditEntry, Span
from responder.store import Status
from responder.store.kubernetes.configmaps import LARGEST, PREFIX, ConfigMaps

T = TypeVar("T")

PART = "people"
AUDIT_PART = "audit"
STANDING_PART = "standing"
STATUS_PART = "status"
STANDING_SHARDS = 16
KEPT_ENDED = timedelta(days=90)
KEPT_AUDIT = 200
REPEATS = timedelta(seconds=30)
"""That a standing alert was heard of again is written at most so often; the process that acts knows it meanwhile."""
_LEGAL = re.compile(r"[-._A-Za-z0-9]{1,253}")
_TRIES = 10

log = logging.getLogger("responder.audit.people")


class Shared(Generic[T]):
    """One read for all who ask while another is under way."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._condition = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._busy = False
        self._result: T | ResponderError | None = None

    def get(self) -> T:
        """What a read gives that began after this was called. Raises what it raised."""
        with self._condition:
            wanted = self._begun + 1
            while self._ended < wanted:
                if not self._busy:
                    self._busy = True
                    self._begun += 1
                    break
                self._condition.wait()
            else:
                return self._given(self._result)
        result: T | ResponderError | None = StoreUnavailable("the store could not be read")
        try:
            result = self._read()
        except ResponderError as error:
            result = error
        finally:
            with self._condition:
                self._busy = False
                self._ended = self._begun
                self._result = result
                self._condition.notify_all()
        return self._given(result)

    def _given(self, result: T | ResponderError | None) -> T:
        if isinstance(result, ResponderError):
            raise result
        return cast("T", result)


class Ending(Generic[T]):
    """Overrides or silences: nouns with an end, by id, each as JSON that a person can read with kubectl."""

    def __init__(
        self,
        maps: ConfigMaps,
        name: str,
        noun: type[T],
        ends: Callable[[T], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._maps = maps
        self._name = f"{PREFIX}-{name}"
        self._noun = noun
        self._ends = ends
        self._clock = clock
        self._shared: Shared[Mapping[str, str]] = Shared(lambda: maps.data(self._name))

    def all(self, ended_too: bool) -> tuple[T, ...]:
        """By id; those that have ended only if asked for."""
        found = sorted(self._shared.get().items())
        nouns = [decode(body.encode(), self._noun) for _, body in found]
        return tuple(noun for noun in nouns if ended_too or self._ends(noun).timestamp() > self._clock())

    def put(self, identity: str, noun: T) -> None:
        """Keep it in place of the one with its id; those that ended long ago go."""
        key = identity if _LEGAL.fullmatch(identity) else sha256(identity.encode()).hexdigest()
        changes: dict[str, str | None] = dict.fromkeys(self._outdated(), None)
        changes[key] = encode(noun).decode()
        _set(self._maps, self._name, PART, changes)

    def _outdated(self) -> list[str]:
        """Those that ended 90 days ago, and the first to end of the others when there is no more room."""
        found = self._shared.get()
        ends = {key: self._ends(decode(body.encode(), self._noun)).timestamp() for key, body in found.items()}
        now, size = self._clock(), sum(len(body) for body in found.values())
        gone: list[str] = []
        for key in sorted(ends, key=lambda key: ends[key]):
            full = size > LARGEST * 3 // 4 and ends[key] < now
            if ends[key] < now - KEPT_ENDED.total_seconds() or full:
                gone.append(key)
                size -= len(found[key])
        return gone


class Audit:
    """The newest lines in a ConfigMap; every line is logged, and whoever collects the logs keeps them all."""

    def __init__(self, maps: ConfigMaps, clock: Callable[[], float]) -> None:
        self._maps = maps
        self._clock = clock
        self._name = f"{PREFIX}-audit"
        self._lock = threading.Lock()
        self._last = 0

    def add(self, entry: AuditEntry) -> None:
        log.info(
            "%s %s",
            entry.action,
            entry.subject,
            extra={
                "audit": True,
                "who": entry.who,
                "address": entry.address,
                "before": entry.before,
                "after": entry.after,
                "comment": entry.comment,
            },
        )
        with self._lock:
            self._last = max(int(self._clock() * 1_000_000), self._last + 1)
            key = f"{self._last:016d}-{sha256(encode(entry)).hexdigest()[:8]}"
            old = sorted(self._maps.data(self._name))
            changes: dict[str, str | None] = dict.fromkeys(old[: max(0, len(old) + 1 - KEPT_AUDIT)], None)
            changes[key] = encode(entry).decode()
            _set(self._maps, self._name, AUDIT_PART, changes)

    def newest(self, limit: int) -> list[AuditEntry]:
        lines = sorted(self._maps.data(self._name).items(), reverse=True)
        return [decode(body.encode(), AuditEntry) for _, body in lines[: max(limit, 0)]]


class Standing:
    """Alerts that stand for themselves, by fingerprint.

    Only the process that acts changes them, so it goes by what it has read and written itself.
    """

    def __init__(self, maps: ConfigMaps) -> None:
        self._maps = maps
        self._shared: Shared[tuple[Span, ...]] = Shared(self._read)
        self._lock = threading.Lock()
        self._trusting = False
        self._changes = 0
        self._known: dict[str, Span] | None = None
        """All of them, while this process acts."""
        self._written: dict[str, Span] = {}
        """Of those that were heard of again since, what is written."""

    def trust(self, trusting: bool) -> None:
        """Go by what this process knows from now on, or no more."""
        with self._lock:
            if trusting != self._trusting:
                self._known = None
                self._written.clear()
                self._changes += 1
            self._trusting = trusting

    def all(self) -> tuple[Span, ...]:
        with self._lock:
            if self._known is not None:
                return tuple(self._known[key] for key in sorted(self._known))
            changes = self._changes
        found = self._shared.get()
        with self._lock:
            if self._trusting and changes == self._changes:
                self._known = {span.fingerprint: span for span in found}
        return found

    def change(self, spans: Iterable[Span], gone: Iterable[str]) -> None:
        gone = tuple(gone)
        new = [span for span in spans if not self._put_off(span)]
        changes: dict[int, dict[str, bytes | None]] = {}
        for span in new:
            blob = zlib.compress(encode(span), 3)
            changes.setdefault(_standing_shard(span.fingerprint), {})[_place(span.fingerprint)] = blob
        for fingerprint in gone:
            changes.setdefault(_standing_shard(fingerprint), {})[_place(fingerprint)] = None
        known, mine = self._begin()
        done = False
        try:
            for number in sorted(changes):
                name = f"{PREFIX}-standing-{number:x}"
                _set(self._maps, name, STANDING_PART, binary=changes[number])
            done = True
        finally:
            with self._lock:
                for fingerprint in (*(span.fingerprint for span in new), *gone):
                    self._written.pop(fingerprint, None)
                alone = mine == self._changes and self._trusting
                self._known = None
                if done and alone and known is not None:
                    kept = {key: span for key, span in known.items() if key not in gone}
                    self._known = kept | {span.fingerprint: span for span in new}
                self._changes += 1

    def _begin(self) -> tuple[dict[str, Span] | None, int]:
        """What is known before a change. What is read while it is written is not gone by afterwards."""
        with self._lock:
            known, self._known = self._known, None
            self._changes += 1
            return known, self._changes

    def _put_off(self, span: Span) -> bool:
        """Keep a mere repeat in memory if one was written not long ago."""
        if self._trusting:
            self.all()
        with self._lock:
            known = None if self._known is None else self._known.get(span.fingerprint)
            if known is None or self._known is None:
                return False
            written = self._written.get(span.fingerprint, known)
            if not timedelta(0) <= span.last_seen_at - written.last_seen_at <= REPEATS:
                return False
            if replace(span, last_seen_at=written.last_seen_at) != written:
                return False
            self._written[span.fingerprint] = written
            self._known[span.fingerprint] = span
            return True

    def _read(self) -> tuple[Span, ...]:
        spans: list[Span] = []
        for found in self._maps.listed(STANDING_PART):
            try:
                blobs = (found.binary_data or {}).values()
                spans += [decode(zlib.decompress(blob), Span) for blob in blobs]
            except (zlib.error, StoreUnavailable) as error:
                raise StoreUnavailable(
                    f"ConfigMap {self._maps.namespace}/{found.metadata.name} holds an alert that cannot be read "
                    f"({error}): delete it, and its alerts come again"
                ) from error
        return tuple(sorted(spans, key=lambda span: span.fingerprint))


def _standing_shard(fingerprint: str) -> int:
    return sha256(fingerprint.encode()).digest()[0] % STANDING_SHARDS


def _place(fingerprint: str) -> str:
    return fingerprint if _LEGAL.fullmatch(fingerprint) else sha256(fingerprint.encode()).hexdigest()


class Statuses:
    """Small documents that processes leave for one another, each a value by its name."""

    def __init__(self, maps: ConfigMaps, clock: Callable[[], float]) -> None:
        self._maps = maps
        self._clock = clock
        self._name = f"{PREFIX}-{STATUS_PART}"
        self._shared: Shared[Mapping[str, str]] = Shared(lambda: maps.data(self._name))

    def put(self, name: str, body: Mapping[str, str]) -> None:
        """Leave a document in place of the one of that name."""
        status = Status(datetime.fromtimestamp(self._clock(), UTC), body)
        _set(self._maps, self._name, STATUS_PART, {name: encode(status).decode()})

    def all(self) -> dict[str, Status]:
        """What was left last, by name."""
        return {name: decode(body.encode(), Status) for name, body in self._shared.get().items()}


def _set(
    maps: ConfigMaps,
    name: str,
    part: str,
    data: Mapping[str, str | None] | None = None,
    binary: Mapping[str, bytes | None] | None = None,
) -> None:
    """Set and remove values, whoever else does at the same time: each value stands for itself."""
    for _ in range(_TRIES):
        if maps.patch(name, data=data, binary=binary) is not None:
            return
        try:
            maps.create(
                name,
                part,
                data={key: value for key, value in (data or {}).items() if value is not None},
                binary={key: value for key, value in (binary or {}).items() if value is not None},
            )
            return
        except Conflict:
            continue  # another was first
    raise StoreUnavailable(f"ConfigMap {name} is made and deleted all the time: see who does")
