"""The store in one SQLite file: for one host, any number of processes and threads."""

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from responder.codec import decode, encode
from responder.errors import ConfigError, Conflict, StoreUnavailable
from responder.matchers import within
from responder.model import (
    AuditEntry,
    Commit,
    Delivery,
    Direction,
    HistoryEntry,
    Outcome,
    Override,
    Record,
    Silence,
    Span,
)
from responder.store import (
    ALL_HISTORY,
    NOT_HELD,
    HistoryFilter,
    Status,
    StoredEntry,
    Summary,
    pending_of,
    unknown_alerts,
)
from responder.store.bell import Bell
from responder.store.holder import is_dead
from responder.store.rows import INSERT_HISTORY, history_query, history_row, record_row
from responder.store.schema import made_private, migrate
from responder.store.writer import Writer, inode, unavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

BUSY_SECONDS = 2.0
LARGEST_INBOX_READ = 16 * 2**20
"""Bytes of deliveries read at once, so that a backlog of large groups does not fill the memory."""
TRIED = 32 * 2**10
"""Bytes that readiness tries to write: a disk with room for less is as good as full."""
PAGE = 500
KEPT_ENDED = timedelta(days=90)
"""How long overrides and silences are kept after their end."""
PRUNE_EVERY = 1000
"""Entries of history between two looks at its bounds."""
SYNC = {"normal": "NORMAL", "full": "FULL"}


class SqliteStore:
    """See the module. To be opened after a fork, never before one.

    `sync` "normal" survives the death of any process, "full" that of the host. History is bounded by
    `history_rows` and `history_age`. Raises ConfigError if the database is not this service's or cluster's,
    and StoreUnavailable if it cannot be opened, unless `start_anyway`: then it is tried again when used.
    """

    def __init__(
        self,
        path: str | Path,
        cluster: str = "",
        sync: str = "normal",
        *,
        history_rows: int = 200_000,
        history_age: timedelta = timedelta(days=30),
        patience: float = 8.0,
        clock: Callable[[], float] = time.time,
        start_anyway: bool = False,
    ) -> None:
        if sync not in SYNC:
            raise ConfigError(f"--store-sync: {sync!r} is none of {', '.join(SYNC)}")
        self.path = Path(path).absolute()
        self._sync = SYNC[sync]
        self.history_rows = history_rows
        self._history_age = history_age
        self._since_prune = PRUNE_EVERY
        self._unreadable: set[int] = set()
        self._clock = clock
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        self._ready_lock = threading.Lock()
        self._ready_until = 0.0
        self._not_ready = ""
        self._cluster = cluster
        self._bell = Bell(self.path)
        self._writer = Writer(self.path, self._connect, self._bell.ring, patience)
        try:
            self._writer.run(_try)
        except StoreUnavailable:
            if not start_anyway:
                self.close()
                raise
        except BaseException:
            self.close()
            raise

    # Deliveries

    def append(self, delivery: Delivery) -> None:
        """Keep a delivery; durable on return. Wakes the actor. Raises StoreUnavailable."""
        self._writer.append(encode(delivery))

    def inbox(self, limit: int) -> list[tuple[str, Delivery]]:
        """The oldest deliveries and their ids: at most `limit`, and fewer when they are large."""
        known = len(self._unreadable)
        sizes = self._read("SELECT id, length(body) FROM inbox ORDER BY id LIMIT ?", (limit + known,))
        last, total = 0, 0
        for identity, size in sizes:
            if identity in self._unreadable:
                continue
            if total and total + size > LARGEST_INBOX_READ:
                break
            last, total = identity, total + size
        rows = self._read(
            "SELECT id, body FROM inbox WHERE id <= ? ORDER BY id LIMIT ?", (last, limit + known)
        )
        return [
            (str(identity), delivery)
            for identity, body in rows
            if identity not in self._unreadable and (delivery := self._delivery(identity, body)) is not None
        ]

    def _delivery(self, identity: int, body: bytes) -> Delivery | None:
        """None for what cannot be read: it stays, for the release that wrote it, and holds up no other."""
        try:
            return decode(body, Delivery)
        except StoreUnavailable as error:
            self._unreadable.add(identity)
            log.error(
                "delivery %d in the inbox of %s is left there: %s; let the release that wrote it read it, or delete it",
                identity,
                self.path,
                error,
            )
            return None

    def wait(self, timeout: float) -> bool:
        """Wait, at most so many seconds, until something is to be looked at. True if so.

        Other processes wake the one that took the lease last; `ring` of this process wakes it always.
        """
        return self._bell.wait(timeout)

    def ring(self) -> None:
        """Wake the actor, whichever process it is in."""
        self._bell.ring()

    # Records

    def record(self, key: str) -> tuple[Record, int] | None:
        """A target's record and its version."""
        rows = self._read("SELECT body, version FROM records WHERE key = ?", (key,))
        return (decode(rows[0][0], Record), rows[0][1]) if rows else None

    def records(self) -> Iterator[tuple[Record, int]]:
        """All records in the order of their keys, a page at a time."""
        last = ""
        while True:
            rows = self._read(
                "SELECT key, body, version FROM records WHERE key > ? ORDER BY key LIMIT ?", (last, PAGE)
            )
            for key, body, version in rows:
                last = key
                yield decode(body, Record), version
            if len(rows) < PAGE:
                return

    def intents(self) -> list[Record]:
        """Records with an intent that is pending or outstanding."""
        return [
            decode(body, Record)
            for (body,) in self._read("SELECT body FROM records WHERE pending ORDER BY key", ())
        ]

    def unseen(self) -> list[str]:
        """The keys of records that have yet to be looked at: new ones, and those with news."""
        return [key for (key,) in self._read("SELECT key FROM records WHERE reason = '' ORDER BY key", ())]

    def commit(self, commit: Commit) -> None:
        """Make all of the changes or none; the version of a record that was changed is one more.

        Raises Conflict, with nothing written, if any version is not the one in the store.
        """
        records = [(record, version, encode(record)) for record, version in commit.records]
        history = [history_row(entry) for entry in commit.history]
        standing = [(span.fingerprint, encode(span)) for span in commit.standing]
        drained = [(int(identity),) for identity in commit.drained]

        def apply(c: sqlite3.Connection) -> None:
            for record, version, _ in records:
                _expect(c, record.target.key, version)
            for key, version in commit.forgotten:
                _expect(c, key, version)
            c.executemany(
                "INSERT OR REPLACE INTO records (key, version, pending, reason, heard_at, body)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [record_row(record, version + 1, body) for record, version, body in records],
            )
            c.executemany("DELETE FROM records WHERE key = ?", [(key,) for key, _ in commit.forgotten])
            c.executemany("INSERT OR REPLACE INTO standing (fingerprint, body) VALUES (?, ?)", standing)
            c.executemany(
                "DELETE FROM standing WHERE fingerprint = ?", [(gone,) for gone in commit.standing_gone]
            )
            c.executemany(INSERT_HISTORY, history)
            c.executemany("DELETE FROM inbox WHERE id = ?", drained)
            self._prune(c, len(history))

        self._writer.run(apply)

    def standing(self) -> tuple[Span, ...]:
        """Alerts that stand for themselves: holds and heartbeats."""
        rows = self._read("SELECT body FROM standing ORDER BY fingerprint", ())
        return tuple(decode(body, Span) for (body,) in rows)

    def summary(self, now: datetime, alert_timeout: timedelta) -> Summary:
        """What the metrics tell of all records, read without reading them all."""
        late = now - alert_timeout
        unheard = self._read("SELECT body FROM records WHERE heard_at < ?", (late.timestamp(),))
        pending = [each for record in self.intents() for each in pending_of(record)]
        calm = ("", *NOT_HELD)
        marks = ", ".join("?" * len(calm))
        sql = f"SELECT key, reason FROM records WHERE reason NOT IN ({marks}) ORDER BY key"  # noqa: S608 - marks
        held = self._read(sql, calm)
        counts = self._read("SELECT (SELECT count(*) FROM inbox), (SELECT count(*) FROM records)", ())
        return Summary(
            inbox=counts[0][0],
            records=counts[0][1],
            pending=tuple(pending),
            held=tuple(held),
            unknown_alerts=sum(unknown_alerts(decode(body, Record), late) for (body,) in unheard),
        )

    # People

    def overrides(self, include_ended: bool = False) -> tuple[Override, ...]:
        """Overrides in force or to come, by id; with those that ended, if asked."""
        return self._ending("overrides", Override, include_ended)

    def put_override(self, override: Override, audit: AuditEntry | None = None) -> None:
        """Keep an override, in place of the one with its id, with its line of the audit, and wake the actor."""
        self._put_ending("overrides", override.id, override.end, encode(override), audit)

    def silences(self, include_expired: bool = False) -> tuple[Silence, ...]:
        """Silences in force or to come, by id; with those that expired, if asked."""
        return self._ending("silences", Silence, include_expired)

    def put_silence(self, silence: Silence, audit: AuditEntry | None = None) -> None:
        """Keep a silence, in place of the one with its id, with its line of the audit, and wake the actor."""
        self._put_ending("silences", silence.id, silence.ends_at, encode(silence), audit)

    def audit(self, entry: AuditEntry) -> None:
        """Add a line to the audit; there is no way to change one."""
        self._writer.run(lambda c: _insert_audit(c, entry))

    def audits(self, limit: int) -> list[AuditEntry]:
        """The newest lines of the audit, newest first."""
        rows = self._read("SELECT body FROM audit ORDER BY id DESC LIMIT ?", (limit,))
        return [decode(body, AuditEntry) for (body,) in rows]

    # What processes tell one another

    def put_status(self, name: str, body: Mapping[str, str]) -> None:
        """Leave a document in place of the one of that name. Wakes nobody."""
        kept = encode(Status(datetime.fromtimestamp(self._clock(), UTC), body))
        statement = "INSERT OR REPLACE INTO status (name, body) VALUES (?, ?)"
        self._writer.run(lambda c: _insert(c, statement, (name, kept)))

    def statuses(self) -> dict[str, Status]:
        """What was left last, by name."""
        return {name: decode(body, Status) for name, body in self._read("SELECT name, body FROM status", ())}

    # History

    def history(self, wanted: HistoryFilter = ALL_HISTORY, *, limit: int = 100) -> list[StoredEntry]:
        """Entries that are wanted, newest first."""
        reached = self._reached(wanted.namespaces) if wanted.namespaces is not None else None
        query, values = history_query(wanted, reached)
        rows = self._read(query, (*values, max(limit, 0)))
        return [StoredEntry(identity, decode(body, HistoryEntry)) for identity, body in rows]

    def _reached(self, globs: tuple[str, ...]) -> list[str]:
        """Namespaces in history that the globs fit. SQLite's own GLOB reads `[!a]` otherwise."""
        rows = self._read("SELECT DISTINCT namespace FROM history", ())
        return [namespace for (namespace,) in rows if within(namespace, globs)]

    def actions_since(self, direction: Direction, since: datetime) -> list[datetime]:
        """When changes of ours took effect, or may have, oldest first."""
        rows = self._read(
            "SELECT at FROM history WHERE outcome IS NOT NULL AND direction = ? AND at >= ?"
            " AND outcome IN (?, ?) ORDER BY at",
            (direction.value, since.timestamp(), Outcome.APPLIED.value, Outcome.UNCERTAIN.value),
        )
        return [datetime.fromtimestamp(at, UTC) for (at,) in rows]

    # The actor's lease

    def lease(self, name: str, holder: str, ttl: timedelta, now: datetime) -> bool:
        """Acquire or renew; True if it is the holder's now. Who holds the lease hears the bell.

        `holder` is best `holder.this_process()`: the lease of a process of this host that died is free.
        """

        def take(c: sqlite3.Connection) -> bool:
            at = now.timestamp()
            row = c.execute("SELECT holder, renewed_at, ttl FROM lease WHERE name = ?", (name,)).fetchone()
            if row is not None and row[0] != holder:
                if at < row[1]:
                    # The clock went back: that it was renewed later than now cannot be waited for.
                    c.execute("UPDATE lease SET renewed_at = ? WHERE name = ?", (at, name))
                if at < row[1] + row[2] and not is_dead(row[0]):
                    return False
            c.execute(
                "INSERT OR REPLACE INTO lease (name, holder, renewed_at, ttl) VALUES (?, ?, ?, ?)",
                (name, holder, at, ttl.total_seconds()),
            )
            return True

        held = self._writer.run(take)
        if held:
            # Two that bind at once disturb each other, and the next renewal mends it.
            with contextlib.suppress(OSError):
                self._bell.hold()
        return held

    def release(self, name: str, holder: str) -> None:
        """Give a lease back, if it is the holder's."""
        self._writer.run(
            lambda c: _insert(c, "DELETE FROM lease WHERE name = ? AND holder = ?", (name, holder))
        )

    # The service

    def ready(self) -> str:
        """Why deliveries cannot be taken, as one sentence; empty when they can. Tried by writing."""
        with self._ready_lock:
            if time.monotonic() >= self._ready_until:
                try:
                    self._writer.run(_try)
                    self._not_ready = ""
                except StoreUnavailable as error:
                    self._not_ready = str(error)
                self._ready_until = time.monotonic() + 1.0
            return self._not_ready

    def close(self) -> None:
        """Finish what was begun and close; what is asked after that is StoreUnavailable."""
        # The writer's connection is the last to close: it can put the log back into the database.
        while self._idle:
            self._idle.pop()[1].close()
        self._writer.close()
        self._bell.close()

    def _connect(self) -> sqlite3.Connection:
        """A connection to write by, the database being current. The writer's thread has the lock."""
        connection = sqlite3.connect(
            made_private(self.path), timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._sync}")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            migrate(connection, self.path, self._cluster)
        except BaseException:
            connection.close()
            raise
        return connection

    def _read(self, query: str, values: Sequence[Any]) -> list[Any]:
        try:
            found = inode(self.path)
            opened, connection = self._reader(found)
            try:
                rows = connection.execute(query, values).fetchall()
            except BaseException:
                connection.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise unavailable(error, self.path) from error
        self._idle.append((opened, connection))
        return rows

    def _reader(self, found: int) -> tuple[int, sqlite3.Connection]:
        while self._idle:
            with contextlib.suppress(IndexError):
                opened, connection = self._idle.pop()
                if opened == found:
                    return opened, connection
                connection.close()
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        return found, connection

    def _ending(self, table: str, noun: type[T], ended_too: bool) -> tuple[T, ...]:
        after = 0.0 if ended_too else self._clock()
        query = f"SELECT body FROM {table} WHERE ends_at > ? ORDER BY id"  # noqa: S608 - our own table
        rows = self._read(query, (after,))
        return tuple(decode(body, noun) for (body,) in rows)

    def _put_ending(
        self, table: str, identity: str, ends_at: datetime, body: bytes, audit: AuditEntry | None
    ) -> None:
        insert = f"INSERT OR REPLACE INTO {table} (id, ends_at, body) VALUES (?, ?, ?)"  # noqa: S608
        prune = f"DELETE FROM {table} WHERE ends_at < ? AND id != ?"  # noqa: S608 - our own table

        def put(c: sqlite3.Connection) -> None:
            c.execute(insert, (identity, ends_at.timestamp(), body))
            if audit is not None:
                _insert_audit(c, audit)
            c.execute(prune, (self._clock() - KEPT_ENDED.total_seconds(), identity))

        self._writer.run(put, rings=True)

    def _prune(self, connection: sqlite3.Connection, added: int) -> None:
        self._since_prune += added
        if not added or self._since_prune < min(PRUNE_EVERY, self.history_rows):
            return
        self._since_prune = 0
        oldest = self._clock() - self._history_age.total_seconds()
        connection.execute("DELETE FROM history WHERE at < ?", (oldest,))
        connection.execute(
            "DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", (self.history_rows,)
        )


def _insert(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> None:
    connection.execute(statement, values)


def _insert_audit(connection: sqlite3.Connection, entry: AuditEntry) -> None:
    connection.execute("INSERT INTO audit (at, body) VALUES (?, ?)", (entry.at.timestamp(), encode(entry)))


def _try(connection: sqlite3.Connection) -> None:
    """Write as much as a delivery of a few dozen alerts, over what was tried before."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('tried', ?)", ("x" * TRIED,))


def _expect(connection: sqlite3.Connection, key: str, version: int) -> None:
    row = connection.execute("SELECT version FROM records WHERE key = ?", (key,)).fetchone()
    found = 0 if row is None else row[0]
    if found != version:
        raise Conflict(f"{key}: the record has version {found} and not {version}: somebody wrote first")
