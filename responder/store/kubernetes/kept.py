"""What a shard keeps of one target, and how it is packed: the record, its version, its last decisions. Pure."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

import msgspec

from responder.codec import decode, encode
from responder.errors import StoreUnavailable
from responder.model import HistoryEntry, Record
from responder.store import heard_at, reason_of

SHARDS = 256
HISTORY = 50
"""Decisions kept of each target; all of them are in the log."""
HISTORY_BYTES = 64 * 2**10
"""Of a target's history before it is compressed; older decisions lose their inputs first, which only a replay needs."""
_LEGAL = 253
"""Characters of a key in a ConfigMap."""


class Line(msgspec.Struct):
    """A line of history and the number that it is known by."""

    n: int
    body: msgspec.Raw

    def entry(self) -> HistoryEntry:
        return decode(bytes(self.body), HistoryEntry)


class Kept(msgspec.Struct):
    """`record` is None when it was forgotten, while its history is kept. `commit` made the version."""

    version: int = 0
    commit: str = ""
    record: Record | None = None
    history: list[Line] = []


class Glance(msgspec.Struct, frozen=True):
    """What can be told of a target without its record: read once for each change. No reason is not looked at yet."""

    there: bool
    pending: bool
    reason: str
    heard_at: float | None
    newest: int


_packer = msgspec.json.Encoder()
_unpacker = msgspec.json.Decoder(Kept)


def pack(kept: Kept) -> bytes:
    """As bytes for a ConfigMap."""
    return zlib.compress(_packer.encode(kept), 3)


def unpack(blob: bytes) -> Kept:
    """Raises StoreUnavailable for what `pack` has not written."""
    try:
        return _unpacker.decode(zlib.decompress(blob))
    except (msgspec.MsgspecError, zlib.error) as error:
        raise StoreUnavailable(
            f"the store holds a record that cannot be read ({error}): restore a backup of its ConfigMaps"
        ) from error


def glance(kept: Kept) -> Glance:
    record = kept.record
    newest = kept.history[-1].n if kept.history else 0
    if record is None:
        return Glance(False, False, "", None, newest)
    return Glance(True, bool(record.open_intents), reason_of(record), heard_at(record), newest)


def shard_of(key: str) -> int:
    """Which shard has the target."""
    return sha256(key.encode()).digest()[0]


def place_of(key: str) -> str:
    """A target's key as a key in a ConfigMap, which takes no slash; no Kubernetes name has an underscore."""
    place = key.replace("/", "_")
    return place if len(place) <= _LEGAL else f"sha256-{sha256(key.encode()).hexdigest()}"


def trimmed(history: Sequence[Line], oldest: datetime, most: int = HISTORY) -> list[Line]:
    """The newest lines that are not too old; beyond a size without their inputs."""
    kept: list[Line] = []
    size = 0
    for line in reversed(history):
        if len(kept) >= most:
            break
        entry = None
        if len(bytes(line.body)) + size > HISTORY_BYTES:
            entry = line.entry()
            line = bare(line, entry)  # noqa: PLW2901
        if _at(line) < oldest:
            continue
        size += len(bytes(line.body))
        kept.append(line)
    kept.reverse()
    return kept


def bare(line: Line, entry: HistoryEntry | None = None) -> Line:
    """Without what only a replay needs."""
    entry = entry or line.entry()
    return Line(line.n, msgspec.Raw(encode(replace(entry, inputs={})))) if entry.inputs else line


class _When(msgspec.Struct):
    at: datetime


def _at(line: Line) -> datetime:
    return msgspec.json.decode(bytes(line.body), type=_When).at


def only_repeats(before: Record | None, after: Record, within: timedelta) -> bool:
    """True if alerts that are known were heard of again, not long after what is kept, and nothing else is new."""
    if before is None or before.alerts.keys() != after.alerts.keys():
        return False
    alerts = {}
    for key, span in after.alerts.items():
        known = before.alerts[key]
        if not timedelta(0) <= span.last_seen_at - known.last_seen_at <= within:
            return False
        alerts[key] = replace(span, last_seen_at=known.last_seen_at)
    return replace(after, alerts=alerts) == before


def number_at(moment: float) -> int:
    """Where numbers begin at a moment, in seconds since the epoch: sixteen to the millisecond."""
    return int(moment * 1000) * 16


def taken_at(number: int) -> float:
    """About when a line got its number."""
    return (number >> 8) / 16_000


def numbered(
    entries: Iterable[HistoryEntry], first: int, shard_bits: int = 8
) -> list[tuple[HistoryEntry, int]]:
    """Numbers that rise with the order of the entries and name the shard in their last bits."""
    return [
        (entry, ((first + place) << shard_bits) | shard_of(entry.target))
        for place, entry in enumerate(entries)
    ]
