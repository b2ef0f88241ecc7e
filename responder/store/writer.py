"""The one thread of a process that writes to SQLite: many waiting writers, one transaction.

SQLite's own waiting for a lock sleeps in steps, which ruins tail latency as soon as two processes write.
So processes queue on a `flock` around each transaction, and threads queue for the next group.
"""

import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from responder.errors import ResponderError, StoreUnavailable

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], Any]

LARGEST_GROUP = 100
GATHER_SECONDS = 0.0003
"""A crowd is waited for so long before a transaction: fewer and larger ones cost everybody less."""
PATIENCE = 8.0
"""Seconds after which a writer that has not begun is given up: Alertmanager's own limit is 10 s or more."""


class _Work:
    """What somebody waits for: an operation, or a row for the inbox. `done` is held until it is over."""

    __slots__ = ("cancelled", "done", "error", "operation", "result", "rings", "row", "started")

    def __init__(self, operation: Operation | None, row: bytes, rings: bool) -> None:
        self.operation = operation
        self.row = row
        self.rings = rings
        self.done = threading.Lock()
        self.done.acquire()
        self.result: Any = None
        self.error: Exception | None = None
        self.started = False
        self.cancelled = False

    def finish(self, error: Exception | None = None) -> None:
        self.error = error
        self.done.release()


class Writer:
    """Runs operations in order, several to a transaction. An operation checks before it writes.

    One that raises a ResponderError must have written nothing; its neighbours in the group are not harmed.
    """

    def __init__(
        self,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        committed: Callable[[], None],
        patience: float = PATIENCE,
    ) -> None:
        self._path = path
        self._connect = connect
        self._committed = committed
        self._patience = patience
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._lock_fd = -1
        self._closed = False
        self._crowded = False
        self._thread = threading.Thread(target=self._loop, name="store-writer", daemon=True)
        self._thread.start()

    def run(self, operation: Callable[[sqlite3.Connection], T], rings: bool = False) -> T:
        """Return what the operation returns once its transaction is committed.

        Raises what it raised, or StoreUnavailable. After a wait in vain the operation is not run, unless it
        had begun: then the wait goes on once more as long, and what became of it is not known after that.
        """
        result: T = self._wait(_Work(operation, b"", rings))
        return result

    def append(self, row: bytes) -> None:
        """Add a row to the inbox and ring, as `run` would: the one operation that has to be fast."""
        self._wait(_Work(None, row, True))

    def _wait(self, work: _Work) -> Any:
        if self._closed:
            raise StoreUnavailable("the store is closed: the service is stopping")
        self._queue.put(work)
        if not work.done.acquire(timeout=self._patience):
            # Order matters: the thread sets `started` before it reads `cancelled`.
            work.cancelled = True
            if not work.started or not work.done.acquire(timeout=self._patience):
                raise StoreUnavailable(
                    f"{self._path}: another process has held the database for {self._patience:.0f} s: "
                    "see who has it open"
                )
        if work.error is not None:
            raise work.error
        return work.result

    def close(self) -> None:
        """Finish what is queued and close the connection."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join(timeout=self._patience)

    def _loop(self) -> None:
        while True:
            group, last = self._next_group()
            if group:
                self._write(group)
            if last:
                self._disconnect()
                if self._lock_fd >= 0:
                    os.close(self._lock_fd)
                return

    def _next_group(self) -> tuple[list[_Work], bool]:
        """Those who wait, and whether they are the last. Where several came at once, a few more will."""
        first = self._queue.get()
        if first is None:
            return [], True
        if self._crowded:
            time.sleep(GATHER_SECONDS)
        group = [first]
        while len(group) < LARGEST_GROUP:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                break
            if work is None:
                return group, True
            group.append(work)
        self._crowded = len(group) > 1
        return group, False

    def _write(self, group: list[_Work]) -> None:
        try:
            with self._turn():
                for work in group:
                    work.started = True
                self._transact_or_isolate([work for work in group if not work.cancelled])
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            self._after_failure(error)
            for work in group:
                if work.done.locked():
                    work.finish(unavailable(error, self._path))
            return
        for work in group:
            if work.done.locked():
                work.finish(work.error)
        if any(work.rings and work.error is None for work in group):
            self._committed()

    def _transact_or_isolate(self, group: list[_Work]) -> None:
        try:
            self._transact(group)
        except (sqlite3.OperationalError, OSError):
            raise
        except Exception:  # noqa: BLE001
            # One of them cannot be stored as it is (too big, say): find out which, and spare the others.
            for work in group:
                try:
                    self._transact([work])
                except sqlite3.OperationalError:
                    raise
                except Exception as error:  # noqa: BLE001 - told to the one whose it is
                    work.error = unavailable(error, self._path)

    def _transact(self, group: list[_Work]) -> None:
        connection = self._connected()
        rows = [work.row for work in group if work.operation is None]
        if len(rows) == len(group):
            # Every call into SQLite gives up the interpreter's lock and waits for it again, which is most of
            # what a transaction costs under load. A single statement is a transaction by itself.
            if rows:
                connection.execute(_inserts(len(rows)), rows)
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            if rows:
                connection.execute(_inserts(len(rows)), rows)
            for work in group:
                if work.operation is not None:
                    self._operate(work, work.operation, connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise

    def _operate(self, work: _Work, operation: Operation, connection: sqlite3.Connection) -> None:
        try:
            work.error = None
            work.result = operation(connection)
        except ResponderError as error:
            work.error = error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if self._lock_fd < 0:
            self._lock_fd = _open_lock(self._path)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _connected(self) -> sqlite3.Connection:
        # A file that was replaced under us (a restored backup) would take what nobody reads again.
        if self._connection is not None and inode(self._path) != self._inode:
            self._disconnect()
        if self._connection is None:
            self._connection = self._connect()
            self._inode = inode(self._path)
        return self._connection

    def _after_failure(self, error: Exception) -> None:
        if not _full_or_busy(error):
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _open_lock(path: Path) -> int:
    """Open the file beside the database that processes queue on. Raises OSError."""
    return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@cache
def _inserts(count: int) -> str:
    places = ", ".join(["(?)"] * count)
    return f"INSERT INTO inbox (body) VALUES {places}"  # noqa: S608 - places for values and nothing else


def inode(path: Path) -> int:
    """The inode of the file, 0 when there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _error_name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _full_or_busy(error: Exception) -> bool:
    return _error_name(error).startswith(("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED"))


_SENTENCES = (
    ("SQLITE_FULL", "the disk is full: free some space and deliveries are taken again"),
    (
        "SQLITE_READONLY",
        "the database is read-only: give the service write access to the file and its folder",
    ),
    ("SQLITE_BUSY", "another program holds the database locked: see who has it open"),
    ("SQLITE_LOCKED", "another program holds the database locked: see who has it open"),
    (
        "SQLITE_CORRUPT",
        "the database is damaged: stop the service and restore a backup, or move the file away",
    ),
    ("SQLITE_NOTADB", "the file is not an SQLite database: restore a backup, or move the file away"),
    ("SQLITE_CANTOPEN", "the database cannot be opened: see that its folder exists and may be written to"),
    ("SQLITE_PERM", "the database cannot be opened: see that its folder exists and may be written to"),
    ("SQLITE_IOERR", "the disk does not take or give data: see the kernel's log and the space left"),
    ("SQLITE_TOOBIG", "that is too large for the database: send fewer alerts at a time"),
)


def unavailable(error: Exception, path: Path) -> ResponderError:
    """The error as one sentence about this database."""
    if isinstance(error, ResponderError):
        return error
    name = _error_name(error)
    for prefix, sentence in _SENTENCES:
        if name.startswith(prefix):
            return StoreUnavailable(f"{path}: {sentence}")
    if isinstance(error, OSError):
        return StoreUnavailable(f"{path}: {error.strerror or error}: the store cannot be used")
    return StoreUnavailable(f"{path}: {error}: the store cannot be used")
