"""Records in 256 ConfigMaps by the hash of their target, changed by compare-and-set on resourceVersion.

A process that acts goes by what it has read and written itself: whoever else writes moves the resourceVersion, and
then its own write is a Conflict. All others read anew each time.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from responder.codec import encode
from responder.errors import Conflict, StoreUnavailable
from responder.model import Commit, HistoryEntry, Record
from responder.store.kubernetes.configmaps import LARGEST, PREFIX, ConfigMap, ConfigMaps
from responder.store.kubernetes.kept import (
    HISTORY,
    SHARDS,
    Glance,
    Kept,
    Line,
    bare,
    glance,
    number_at,
    numbered,
    only_repeats,
    pack,
    place_of,
    shard_of,
    taken_at,
    trimmed,
    unpack,
)

PART = "records"
REPEATS = timedelta(seconds=120)
"""That a known alert was heard of again is written at most so often; the process that acts knows it meanwhile."""
_TRIES = 50
_FEW = 16
"""So many changed shards are read one by one, more in pages."""


@dataclass(slots=True)
class _Slot:
    blob: bytes
    seen: Glance | None = None

    def glance(self) -> Glance:
        if self.seen is None:
            self.seen = glance(unpack(self.blob))
        return self.seen


@dataclass(frozen=True, slots=True)
class _Shard:
    """As read at one version; "" is one that is not there yet."""

    version: str = ""
    slots: dict[str, _Slot] = field(default_factory=dict)

    def kept(self, key: str) -> Kept:
        slot = self.slots.get(place_of(key))
        return unpack(slot.blob) if slot else Kept()

    def newest(self) -> int:
        return max((slot.glance().newest >> 8 for slot in self.slots.values()), default=0)


@dataclass(slots=True)
class _Change:
    """What a commit changes in one shard."""

    records: dict[str, tuple[Record, int]] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    history: dict[str, list[tuple[HistoryEntry, int]]] = field(default_factory=dict)

    def targets(self) -> list[str]:
        return sorted({*self.records, *self.forgotten, *self.history})


class Shards:
    """`clock` is in seconds since the epoch. `trust` says whether this process is the one that acts."""

    def __init__(
        self,
        maps: ConfigMaps,
        clock: Callable[[], float],
        *,
        rows: int = HISTORY,
        age: timedelta = timedelta(days=30),
    ) -> None:
        self._maps = maps
        self._clock = clock
        self._rows = min(rows, HISTORY)
        self._age = age
        self._locks = [threading.Lock() for _ in range(SHARDS)]
        self._known: dict[int, _Shard] = {}
        self._heard: dict[str, tuple[int, Record]] = {}
        """Records of which nothing but repeats is not written yet, with the version that they go with."""
        self._number_lock = threading.Lock()
        self._last_number = 0
        self._trusting = False

    def trust(self, trusting: bool) -> None:
        """Go by what this process knows from now on, or no more."""
        if trusting != self._trusting:
            self._heard.clear()
            self._known.clear()
        self._trusting = trusting

    # Reading

    def record(self, key: str) -> tuple[Record, int] | None:
        kept = self._shard(shard_of(key)).kept(key)
        return None if kept.record is None else self._with_repeats(key, kept.record, kept.version)

    def records(self) -> Iterator[tuple[Record, int]]:
        """All, in the order of their keys."""
        self.read_all()
        places = sorted(
            (place.replace("_", "/"), number)
            for number, shard in self._known.copy().items()
            for place, slot in shard.slots.items()
            if slot.glance().there
        )
        for key, number in places:
            slot = self._known.get(number, _Shard()).slots.get(key.replace("/", "_"))
            kept = unpack(slot.blob) if slot is not None else Kept()
            if kept.record is not None:
                yield self._with_repeats(kept.record.target.key, kept.record, kept.version)

    def slots(self) -> list[tuple[str, _Slot]]:
        """Of every target what is kept, as it is now."""
        self.read_all()
        return sorted(item for shard in self._known.copy().values() for item in shard.slots.items())

    def lines(self, number: int | None = None, target: str = "") -> Iterator[Line]:
        """History, newest first: all of it, of one target, or of the shard that has a number."""
        if target:
            yield from reversed(self._shard(shard_of(target)).kept(target).history)
            return
        if number is not None:
            slots = list(self._shard(number & (SHARDS - 1)).slots.values())
        else:
            slots = [slot for _, slot in self.slots()]
        waiting = sorted(slots, key=lambda slot: slot.glance().newest)
        # Those whose newest line is not reached yet need not be unpacked.
        heads: list[list[Line]] = []
        while waiting or heads:
            newest = max((lines[-1].n for lines in heads), default=-1)
            while waiting and waiting[-1].glance().newest >= newest:
                lines = unpack(waiting.pop().blob).history
                if lines:
                    heads.append(lines)
                    newest = max(newest, lines[-1].n)
            if not heads:
                continue
            best = max(heads, key=lambda lines: lines[-1].n)
            yield best.pop()
            if not best:
                heads.remove(best)

    def read_all(self) -> None:
        """Bring all that is known up to date, reading only what has changed."""
        there = {meta.name: meta.resource_version for meta in self._maps.versions(PART)}
        numbers = {_number(name): name for name in there}
        for number in [number for number in self._known if number not in numbers]:
            self._drop(number)
        stale = [
            number
            for number, name in numbers.items()
            if self._known.get(number, _Shard()).version != there[name]
        ]
        if len(stale) > _FEW:
            for found in self._maps.listed(PART):
                self._keep(_number(found.metadata.name), found)
            return
        for number in stale:
            self._read(number)

    def _shard(self, number: int) -> _Shard:
        known = self._known.get(number) if self._trusting else None
        return known or self._read(number)

    def _read(self, number: int) -> _Shard:
        found = self._maps.get(_name(number))
        if found is None:
            self._drop(number)
            return _Shard()
        return self._keep(number, found)

    def _keep(self, number: int, found: ConfigMap) -> _Shard:
        before = self._known.get(number, _Shard())
        slots = {}
        for place, blob in (found.binary_data or {}).items():
            slot = before.slots.get(place)
            slots[place] = slot if slot is not None and slot.blob == blob else _Slot(blob)
        shard = _Shard(found.metadata.resource_version, slots)
        # Two threads may read at once, and the older answer may come last.
        if found.metadata.order >= (int(before.version) if before.version.isdigit() else 0):
            self._known[number] = shard
        return shard

    def _drop(self, number: int) -> None:
        self._known.pop(number, None)

    def _with_repeats(self, key: str, record: Record, version: int) -> tuple[Record, int]:
        heard = self._heard.get(key)
        return (heard[1], version) if heard is not None and heard[0] == version else (record, version)

    # Writing

    def commit(self, commit: Commit) -> None:
        """Records, those forgotten and history: whole within a shard; see the module's package for more."""
        changes = self._by_shard(commit)
        for number, change in changes.items():
            shard = self._shard(number)
            try:
                _check(shard, change)
            except Conflict:
                if not self._trusting:
                    raise
                _check(self._read(number), change)
        identity = uuid.uuid4().hex
        for number in sorted(changes):
            with self._locks[number]:
                self._write(number, changes[number], identity)

    def _by_shard(self, commit: Commit) -> dict[int, _Change]:
        changes: dict[int, _Change] = {}

        def of(key: str) -> _Change:
            return changes.setdefault(shard_of(key), _Change())

        with_history = {entry.target for entry in commit.history}
        for record, version in commit.records:
            if record.target.key in with_history or not self._put_off(record, version):
                of(record.target.key).records[record.target.key] = (record, version)
        for key, version in commit.forgotten:
            of(key).forgotten[key] = version
        if commit.history:
            shards = {shard_of(entry.target) for entry in commit.history}
            for entry, number in numbered(commit.history, self._take_numbers(shards, len(commit.history))):
                of(entry.target).history.setdefault(entry.target, []).append((entry, number))
        return changes

    def _put_off(self, record: Record, version: int) -> bool:
        """Keep mere repeats in memory for a while; they are lost with the process, which the next repeat mends."""
        key = record.target.key
        shard = self._known.get(shard_of(key)) if self._trusting else None
        if shard is None or not version:
            return False
        kept = shard.kept(key)
        if kept.version != version or not only_repeats(kept.record, record, REPEATS):
            return False
        self._heard[key] = (version, record)
        return True

    def _take_numbers(self, shards: set[int], count: int) -> int:
        """The first of so many numbers: later than any in these shards, and near the time of day."""
        newest = max((self._shard(number).newest() for number in shards), default=0)
        with self._number_lock:
            first = max(number_at(self._clock()), newest + 1, self._last_number + 1)
            self._last_number = first + count - 1
            return first

    def _write(self, number: int, change: _Change, identity: str) -> None:
        for _ in range(_TRIES):
            shard = self._shard(number)
            blobs = self._apply(shard, change, identity)
            if not blobs:
                return
            _check_size(self._maps.namespace, number, shard, blobs)
            try:
                made = self._send(number, shard, blobs)
            except Conflict:
                self._read(number)
                continue
            except StoreUnavailable:
                # Nobody knows whether it landed, or will.
                self._drop(number)
                raise
            if made is None:
                self._drop(number)
                continue
            self._keep(number, made)
            return
        raise Conflict(f"shard {number:02x} of the store is being changed all the time")

    def _send(self, number: int, shard: _Shard, blobs: dict[str, bytes | None]) -> ConfigMap | None:
        name = _name(number)
        if not shard.version:
            return self._maps.create(name, PART, binary={k: v for k, v in blobs.items() if v is not None})
        return self._maps.patch(name, binary=blobs, version=shard.version)

    def _apply(self, shard: _Shard, change: _Change, identity: str) -> dict[str, bytes | None]:
        """What to write for the change; empty when an earlier try has landed. Raises Conflict."""
        oldest = datetime.fromtimestamp(self._clock(), UTC) - self._age
        blobs: dict[str, bytes | None] = {}
        for key in change.targets():
            kept = shard.kept(key)
            lines = change.history.get(key, [])
            if kept.commit == identity or (
                lines and {n for _, n in lines} <= {line.n for line in kept.history}
            ):
                continue
            history = kept.history + [Line(n, msgspec.Raw(encode(entry))) for entry, n in lines]
            after = Kept(kept.version, identity, kept.record, trimmed(history, oldest, self._rows))
            if key in change.records:
                after.record, expected = change.records[key]
                _expect(key, kept, expected)
                after.version = kept.version + 1
            elif key in change.forgotten:
                _expect(key, kept, change.forgotten[key])
                after.record, after.version = None, 0
            gone = after.record is None and not after.history
            blobs[place_of(key)] = None if gone else _packed(after)
            self._heard.pop(key, None)
        if blobs:
            # Of targets that are forgotten, history goes with time.
            for place, slot in shard.slots.items():
                if _outdated(slot.glance(), oldest):
                    blobs.setdefault(place, None)
        return blobs


def _name(number: int) -> str:
    return f"{PREFIX}-records-{number:02x}"


def _number(name: str) -> int:
    return int(name.rpartition("-")[2], 16)


def _outdated(seen: Glance, oldest: datetime) -> bool:
    return not seen.there and taken_at(seen.newest) < oldest.timestamp()


def _packed(kept: Kept) -> bytes:
    """A record of very many alerts leaves little room: then decisions go without what a replay needs."""
    blob = pack(kept)
    if len(blob) > LARGEST // 4:
        kept.history = [bare(line) for line in kept.history]
        blob = pack(kept)
    return blob


def _check(shard: _Shard, change: _Change) -> None:
    expected: Sequence[tuple[str, int]] = [
        *((key, version) for key, (_, version) in change.records.items()),
        *change.forgotten.items(),
    ]
    for key, version in expected:
        _expect(key, shard.kept(key), version)


def _expect(key: str, kept: Kept, version: int) -> None:
    found = kept.version if kept.record is not None else 0
    if found != version:
        raise Conflict(f"{key}: the record has version {found} and not {version}: somebody wrote first")


def _check_size(namespace: str, number: int, shard: _Shard, blobs: dict[str, bytes | None]) -> None:
    sizes = {place: len(slot.blob) for place, slot in shard.slots.items()}
    sizes |= {place: len(blob or b"") for place, blob in blobs.items()}
    if sum(sizes.values()) > LARGEST:
        largest = max(sizes, key=lambda place: sizes[place])
        raise StoreUnavailable(
            f"the store in namespace {namespace}: ConfigMap {_name(number)} would be larger than the API server "
            f"takes, most of it for {largest.replace('_', '/')}: let its rules fire fewer alerts, or use a database"
        )
