"""The database's tables, and how an older database becomes a current one."""

import contextlib
import os
import sqlite3
from pathlib import Path

from responder.errors import ConfigError

# Each entry makes version N of version N-1. Never edit one that was released: add another.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
    CREATE TABLE records (
        key TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        pending INTEGER NOT NULL,
        reason TEXT NOT NULL,
        heard_at REAL,
        body BLOB NOT NULL
    );
    CREATE INDEX records_pending ON records (key) WHERE pending;
    CREATE INDEX records_reason ON records (reason);
    CREATE INDEX records_heard_at ON records (heard_at) WHERE heard_at IS NOT NULL;
    CREATE TABLE standing (fingerprint TEXT PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE overrides (id TEXT PRIMARY KEY, ends_at REAL NOT NULL, body BLOB NOT NULL);
    CREATE INDEX overrides_ends_at ON overrides (ends_at);
    CREATE TABLE silences (id TEXT PRIMARY KEY, ends_at REAL NOT NULL, body BLOB NOT NULL);
    CREATE INDEX silences_ends_at ON silences (ends_at);
    CREATE TABLE history (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        namespace TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        reason TEXT NOT NULL,
        outcome TEXT,
        direction TEXT,
        body BLOB NOT NULL
    );
    CREATE INDEX history_at ON history (at);
    CREATE INDEX history_target ON history (namespace, kind, name, id);
    CREATE INDEX history_kind ON history (kind, name, id);
    CREATE INDEX history_name ON history (name, id);
    CREATE INDEX history_reason ON history (reason, id);
    CREATE INDEX history_outcome ON history (direction, at) WHERE outcome IS NOT NULL;
    CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, body BLOB NOT NULL);
    CREATE TABLE lease (
        name TEXT PRIMARY KEY, holder TEXT NOT NULL, renewed_at REAL NOT NULL, ttl REAL NOT NULL
    );
    """,
    """
    CREATE TABLE status (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    """,
)


def migrate(connection: sqlite3.Connection, path: Path, cluster: str) -> None:
    """Bring the database to this release's version, with a backup copy of what was there.

    Raises ConfigError if it is newer than this release, or another cluster's. The caller holds the lock.
    """
    found = _version(connection, path)
    if found > len(MIGRATIONS):
        raise ConfigError(
            f"{path}: the database has version {found} and this release knows up to {len(MIGRATIONS)}: "
            f"run the newer release, or restore a {path.name}.v{len(MIGRATIONS)}.bak"
        )
    if found < len(MIGRATIONS):
        if found:
            _back_up(connection, path.with_name(f"{path.name}.v{found}.bak"))
        _upgrade(connection, found)
    _claim(connection, path, cluster)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The database's version; 0 when it is empty. Raises ConfigError if it is somebody else's."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    if "meta" in tables:
        row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        if row is not None:
            return int(row[0])
    raise ConfigError(f"{path}: the file is a database of another program: name another path with --store")


def _upgrade(connection: sqlite3.Connection, found: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in MIGRATIONS[found:]:
            for statement in script.split(";"):
                connection.execute(statement)
        connection.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema_version', ?)", (str(len(MIGRATIONS)),)
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def made_private(path: Path) -> Path:
    """The path, of a file that only its owner can read if it was not there; SQLite gives its other files that mode.

    Left to SQLite everybody on the host could read who is paged, what was decided, and how sessions are signed. What
    keeps the file from being made, SQLite tells itself.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return path


def _back_up(connection: sqlite3.Connection, backup: Path) -> None:
    partial = backup.with_name(backup.name + ".partial")
    partial.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(made_private(partial))) as copy:
        connection.backup(copy)
    os.replace(partial, backup)


def _claim(connection: sqlite3.Connection, path: Path, cluster: str) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'cluster'").fetchone()
    if row is None and cluster:
        connection.execute("INSERT INTO meta (key, value) VALUES ('cluster', ?)", (cluster,))
    elif row is not None and cluster and row[0] != cluster:
        raise ConfigError(
            f"{path}: the database belongs to cluster {row[0]!r} and the policy file says {cluster!r}: "
            "name another path with --store, or mend `cluster`"
        )
