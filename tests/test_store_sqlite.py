"""SQLite's own dangers: full, read-only, locked and damaged files, migrations, wrong databases, dead holders."""

import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from responder.errors import ConfigError, Conflict, StoreUnavailable
from responder.model import Commit, Delivery, Notification, Record, TargetRef
from responder.store import holder, schema
from responder.store import sqlite as sqlite_store
from responder.store.sqlite import SqliteStore
from responder.store.writer import Writer
from tests.serving import until

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DATA = Path(__file__).parent / "data"


def delivery(fingerprint: str = "f", size: int = 1) -> Delivery:
    return Delivery(NOW, (Notification(fingerprint, True, {"a": "x" * size}, {}, NOW, None, NOW),))


def fingerprints(store: SqliteStore) -> list[str]:
    return [each.notifications[0].fingerprint for _, each in store.inbox(10_000)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(store: SqliteStore) -> tuple[list[str], StoreUnavailable]:
    """Append until it is refused: what was acknowledged, and the refusal."""
    kept: list[str] = []
    for i in range(10_000):
        try:
            store.append(delivery(str(i), size=20_000))
        except StoreUnavailable as error:
            return kept, error
        kept.append(str(i))
    raise AssertionError("the disk never filled")


class TestFullDisk:
    def test_says_so_keeps_what_it_acknowledged_and_recovers(self, disk: Path) -> None:
        """503 with a sentence, nothing half-written, and taken in again as soon as there is room."""
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 2**20)
        store = SqliteStore(disk / "store.db")
        kept, error = fill(store)
        assert (
            str(error) == f"{disk}/store.db: the disk is full: free some space and deliveries are taken again"
        )
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            store.commit(Commit(records=((Record(TargetRef("n", "Deployment", "x" * 50_000)), 0),)))
        assert list(store.records()) == []
        assert "the disk is full" in store.ready()
        assert fingerprints(store) == kept
        ballast.unlink()
        store.append(delivery("after"))
        assert fingerprints(store) == [*kept, "after"]
        store.close()

    def test_a_limit_on_file_size_is_told_too(self, tmp_path: Path) -> None:
        """A quota is not ENOSPC to SQLite, and must end the same way."""
        script = f"""
import resource
from tests.test_store_sqlite import *
store = SqliteStore({str(tmp_path / "store.db")!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
kept, error = fill(store)
print(error)
assert fingerprints(store) == kept
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append(delivery("after"))
assert fingerprints(store) == [*kept, "after"]
store.close()
"""
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "the disk does not take or give data" in done.stdout


class TestReadOnly:
    def test_says_so_and_recovers(self, disk: Path) -> None:
        """A disk that the kernel turned read-only: reads go on, writes are refused until it is mended."""
        store = SqliteStore(disk / "store.db")
        store.append(delivery("before"))
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(StoreUnavailable, match=r"store\.db: "):
            SqliteStore(disk / "store.db")
        store = SqliteStore(disk / "store.db", start_anyway=True)
        with pytest.raises(StoreUnavailable, match=r"read-only|Read-only"):
            store.append(delivery("lost"))
        assert store.ready()
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        store.append(delivery("after"))
        assert fingerprints(store) == ["before", "after"]
        store.close()

    def test_a_database_that_may_not_be_written_is_told(self, tmp_path: Path) -> None:
        """The file's own rights; as root they do not bind, so a read-only connection stands in."""
        path = tmp_path / "store.db"
        SqliteStore(path).close()

        class ReadOnly(SqliteStore):
            def _connect(self) -> sqlite3.Connection:
                return sqlite3.connect(
                    f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
                )

        with pytest.raises(
            StoreUnavailable, match="the database is read-only: give the service write access"
        ):
            ReadOnly(path)

    def test_a_folder_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        """A typing error in --store."""
        with pytest.raises(StoreUnavailable, match="No such file or directory"):
            SqliteStore(tmp_path / "nowhere" / "store.db")


class TestLocked:
    def test_by_another_program_is_told_and_passes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody's sqlite3 shell in a transaction: refused after a while, taken in when it is over."""
        monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.2)
        store = SqliteStore(tmp_path / "store.db")
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another program holds the database locked"):
                store.append(delivery("lost"))
            assert "another program" in store.ready()
            other.execute("ROLLBACK")
        store.append(delivery("after"))
        assert fingerprints(store) == ["after"]
        store.close()

    def test_by_a_stopped_process_is_told_and_nothing_is_done_late(self, tmp_path: Path) -> None:
        """Whoever was refused must not find it done all the same when the other goes on."""
        store = SqliteStore(tmp_path / "store.db", patience=0.2)
        told = "another process has held the database for 0 s"
        with other_process_writes(tmp_path / "store.db"), pytest.raises(StoreUnavailable, match=told):
            store.append(delivery("lost"))
        store.append(delivery("after"))
        assert fingerprints(store) == ["after"]
        store.close()


@contextlib.contextmanager
def other_process_writes(path: Path) -> Iterator[None]:
    """As long as it lasts another process is within its transaction."""
    fd = os.open(f"{path}.lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def append_many(store: SqliteStore) -> None:
    for i in range(200):
        store.append(delivery(str(i), size=5000))


class TestDamaged:
    def test_a_file_that_is_no_database_is_refused(self, tmp_path: Path) -> None:
        """And left as it is."""
        path = tmp_path / "store.db"
        path.write_bytes(b"not a database, but somebody's letters\n" * 200)
        before = path.read_bytes()
        with pytest.raises(StoreUnavailable, match="is not an SQLite database: restore a backup"):
            SqliteStore(path)
        assert path.read_bytes() == before

    def test_a_damaged_database_is_told_where_it_is_damaged(self, tmp_path: Path) -> None:
        """Pages of rubbish: writing and reading are refused with a sentence, and nothing crashes."""
        path = tmp_path / "store.db"
        store = SqliteStore(path)
        append_many(store)
        store.close()
        with path.open("r+b") as file:
            for page in range(2, path.stat().st_size // 4096):
                file.seek(page * 4096)
                file.write(b"\xde\xad" * 2048)
        store = SqliteStore(path, start_anyway=True)
        with pytest.raises(StoreUnavailable, match="the database is damaged: stop the service and restore"):
            append_many(store)
        with pytest.raises(StoreUnavailable, match="damaged"):
            store.inbox(1000)
        store.close()

    def test_a_delivery_that_cannot_be_read_holds_up_no_other(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is named once and left there, for the release that wrote it."""
        store = SqliteStore(tmp_path / "store.db")
        store.append(delivery("a"))
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
            other.execute("UPDATE inbox SET body = '{}'")
        store.append(delivery("b"))
        for _ in range(2):
            assert [each for _, each in store.inbox(1)] in ([], [delivery("b")])
        assert [each for _, each in store.inbox(1)] == [delivery("b")]
        errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert len(errors) == 1
        assert errors[0].startswith("delivery 1 in the inbox of")
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as other:
            assert other.execute("SELECT count(*) FROM inbox").fetchone() == (2,)
        store.close()

    def test_a_record_that_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        """Not a traceback of a decoder."""
        store = SqliteStore(tmp_path / "store.db")
        store.commit(Commit(records=((Record(TargetRef("n", "Deployment", "w")), 0),)))
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
            other.execute("UPDATE records SET body = '{}'")
        with pytest.raises(StoreUnavailable, match="holds a Record that cannot be read"):
            store.record("n/deployment/w")
        store.close()

    def test_a_database_put_in_place_of_ours_is_used_from_then_on(self, tmp_path: Path) -> None:
        """A restored backup: nothing is acknowledged into the file that was removed."""
        path = tmp_path / "store.db"
        store = SqliteStore(path)
        store.append(delivery("old"))
        other = SqliteStore(tmp_path / "backup.db")
        other.append(delivery("backup"))
        other.close()
        for suffix in ("-wal", "-shm"):
            path.with_name(f"store.db{suffix}").unlink(missing_ok=True)
        os.replace(tmp_path / "backup.db", path)
        store.append(delivery("new"))
        assert fingerprints(store) == ["backup", "new"]
        store.close()
        again = SqliteStore(path)
        assert fingerprints(again) == ["backup", "new"]
        again.close()


class TestVersions:
    def test_an_older_releases_database_opens(self, tmp_path: Path) -> None:
        """The first release's database, as it was: what it held is there, and can be added to."""
        path = tmp_path / "store.db"
        with contextlib.closing(sqlite3.connect(path)) as old:
            old.executescript((DATA / "store-v1.sql").read_text())
        store = SqliteStore(path)
        assert fingerprints(store) == ["from-version-1"]
        [(record, version)] = store.records()
        assert (record.target.key, record.uid, version) == ("inference/deployment/vllm", "uid-1", 4)
        assert [each.entry.message for each in store.history()] == ["one more was wanted"]
        store.append(delivery("new"))
        store.commit(Commit(records=((record, version),)))
        store.close()

    def test_a_backup_is_kept_before_a_migration(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The copy opens under the release before, with all that it held."""
        path = tmp_path / "store.db"
        store = SqliteStore(path)
        store.append(delivery("kept"))
        store.close()
        released = schema.MIGRATIONS
        newer = (*released, "ALTER TABLE inbox ADD COLUMN extra TEXT; CREATE TABLE extra (x)")
        with monkeypatch.context() as patch:
            patch.setattr(schema, "MIGRATIONS", newer)
            store = SqliteStore(path)
            assert fingerprints(store) == ["kept"]
            store.close()
        with pytest.raises(ConfigError, match=rf"has version {len(newer)} and this release knows up to"):
            SqliteStore(path)
        backup = tmp_path / f"store.db.v{len(released)}.bak"
        old = SqliteStore(backup)
        assert fingerprints(old) == ["kept"]
        old.close()
        assert [
            each.name for each in tmp_path.iterdir() if each.stat().st_mode & 0o077 and each.is_file()
        ] == []

    def test_nobody_else_on_the_host_can_read_it(self, tmp_path: Path) -> None:
        """It holds who is on call, what was decided and how sessions are signed; what an owner has allowed stays."""
        before = os.umask(0o022)
        try:
            with contextlib.closing(SqliteStore(tmp_path / "store.db")) as store:
                store.append(delivery())
                made = {
                    each.name: each.stat().st_mode & 0o077 for each in tmp_path.iterdir() if each.is_file()
                }
                assert made.keys() >= {"store.db", "store.db-wal"}
                assert set(made.values()) == {0}
        finally:
            os.umask(before)
        (tmp_path / "store.db").chmod(0o640)
        SqliteStore(tmp_path / "store.db").close()
        assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o640

    def test_a_migration_that_fails_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Half a migration would be neither version."""
        path = tmp_path / "store.db"
        SqliteStore(path).close()
        with monkeypatch.context() as patch:
            patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE half (x); BROKEN"))
            with pytest.raises(StoreUnavailable):
                SqliteStore(path)
        store = SqliteStore(path)
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
        store.close()

    def test_another_programs_database_is_refused(self, tmp_path: Path) -> None:
        """Not written to, whatever it is."""
        path = tmp_path / "store.db"
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute("CREATE TABLE photos (x)")
        with pytest.raises(ConfigError, match=rf"{path}: .* another program: name another path with --store"):
            SqliteStore(path)
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert [name for (name,) in other.execute("SELECT name FROM sqlite_master")] == ["photos"]

    @pytest.mark.parametrize(
        ("first", "second", "refused"),
        [
            pytest.param("a", "b", True, id="another cluster"),
            pytest.param("a", "a", False, id="the same cluster"),
            pytest.param("", "b", False, id="a cluster that is named later"),
            pytest.param("a", "", False, id="a cluster that is not named"),
        ],
    )
    def test_another_clusters_database_is_refused(
        self, tmp_path: Path, first: str, second: str, refused: bool
    ) -> None:
        """A database copied along with a configuration must not steer the wrong cluster."""
        SqliteStore(tmp_path / "store.db", first).close()
        expected = pytest.raises(ConfigError, match="belongs to cluster 'a' and the policy file says 'b'")
        with expected if refused else contextlib.nullcontext():
            SqliteStore(tmp_path / "store.db", second).close()


class TestWriter:
    def make(self, path: Path) -> tuple[Writer, list[int]]:
        rung: list[int] = []
        SqliteStore(path).close()
        connect = lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False)  # noqa: E731
        return Writer(path, connect, lambda: rung.append(1)), rung

    def test_one_transaction_serves_all_who_wait_and_a_fault_only_its_own(self, tmp_path: Path) -> None:
        """Of a group that waits for its turn, one cannot be stored and one conflicts: the others are kept."""
        path = tmp_path / "store.db"
        writer, rung = self.make(path)
        outcomes: dict[str, str] = {}

        def insert(value: Any) -> Callable[[sqlite3.Connection], object]:
            return lambda c: c.execute("INSERT INTO inbox (body) VALUES (?)", (value,))

        def conflict(_: sqlite3.Connection) -> None:
            raise Conflict("somebody wrote first")

        works = {"a": insert(b"a"), "bad": insert(object()), "conflict": conflict, "b": insert(b"b")}

        def run(name: str) -> None:
            try:
                writer.run(works[name], rings=True)
                outcomes[name] = "kept"
            except (Conflict, StoreUnavailable) as error:
                outcomes[name] = type(error).__name__

        with other_process_writes_when_open(path, writer):
            threads = [threading.Thread(target=run, args=(name,)) for name in works]
            for thread in threads:
                thread.start()
            time.sleep(0.1)
        for thread in threads:
            thread.join(60)
        assert outcomes == {"a": "kept", "b": "kept", "bad": "StoreUnavailable", "conflict": "Conflict"}
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert {body for (body,) in other.execute("SELECT body FROM inbox")} == {b"a", b"b"}
        assert rung
        writer.close()

    def test_what_is_queued_when_it_closes_is_still_kept(self, tmp_path: Path) -> None:
        """Stopping finishes what it began."""
        path = tmp_path / "store.db"
        store = SqliteStore(path)
        done: list[str] = []

        def append(i: int) -> None:
            store.append(delivery(str(i)))
            done.append(str(i))

        begun, go = threading.Event(), threading.Event()
        busy = threading.Thread(target=store._writer.run, args=(lambda _: begun.set() or go.wait(60),))
        busy.start()
        assert begun.wait(60)
        threads = [threading.Thread(target=append, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: store._writer._queue.qsize() == 4, what="all four are queued")
        closer = threading.Thread(target=store.close)
        closer.start()
        until(lambda: store._writer._queue.qsize() == 5, what="the end is queued behind them")
        go.set()
        for thread in (busy, *threads, closer):
            thread.join(60)
        again = SqliteStore(path)
        assert sorted(fingerprints(again)) == sorted(done) == ["0", "1", "2", "3"]
        again.close()


@contextlib.contextmanager
def other_process_writes_when_open(path: Path, writer: Writer) -> Iterator[None]:
    writer.run(lambda _: None)
    with other_process_writes(path):
        yield


class TestBell:
    @pytest.mark.parametrize(
        "folder",
        [
            pytest.param("short", id="a short path"),
            pytest.param("long" * 40, id="a path that is too long for a socket's name"),
        ],
    )
    @pytest.mark.parametrize(
        "name", [pytest.param("store.db", id="short"), pytest.param("n" * 150, id="long name")]
    )
    def test_rings_whatever_the_path(self, tmp_path: Path, folder: str, name: str) -> None:
        """Sockets have short names, databases need not have."""
        (tmp_path / folder).mkdir()
        actor, web = (SqliteStore(tmp_path / folder / name) for _ in range(2))
        actor.lease("actor", "a/1/1", timedelta(seconds=15), NOW)
        web.ring()
        assert actor.wait(60)
        actor.close()
        web.close()
        assert not [left for left in os.listdir(tmp_path / folder) if left.endswith(".wake")]

    def test_a_flood_of_rings_blocks_nobody(self, tmp_path: Path) -> None:
        """An actor that does not listen for a while must not hold up intake."""
        actor, web = (SqliteStore(tmp_path / "store.db") for _ in range(2))
        actor.lease("actor", "a/1/1", timedelta(seconds=15), NOW)
        for _ in range(5000):
            web.ring()
        assert actor.wait(60)
        assert not actor.wait(0)
        actor.close()
        web.close()


class TestHolders:
    TTL = timedelta(seconds=15)

    def test_a_dead_holder_of_this_host_is_taken_over_at_once(self, tmp_path: Path) -> None:
        """After kill -9 nothing waits for the lease to run out; a stopped holder is waited for."""
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            host, _, _ = holder.this_process().split("/")
            name = f"{host}/{process.pid}/{holder._started_at(process.pid)}"
            store = SqliteStore(tmp_path / "store.db")
            assert store.lease("actor", name, self.TTL, NOW)
            assert not store.lease("actor", holder.this_process(), self.TTL, NOW)
            process.send_signal(signal.SIGSTOP)
            assert not store.lease("actor", holder.this_process(), self.TTL, NOW)
            process.kill()
            process.wait()
        assert store.lease("actor", holder.this_process(), self.TTL, NOW)
        store.close()

    @pytest.mark.parametrize(
        ("name", "dead"),
        [
            pytest.param("{host}/{pid}/1", True, id="the pid was given to another process"),
            pytest.param("{host}/999999999/1", True, id="there is no such pid"),
            pytest.param("{host}/{pid}/{start}", False, id="it lives"),
            pytest.param("elsewhere/999999999/1", False, id="another host"),
            pytest.param("anything", False, id="a name of another form"),
        ],
    )
    def test_deadness_is_known_of_this_host_only(self, name: str, dead: bool) -> None:
        """Taken over too early is worse than too late."""
        host, pid, start = holder.this_process().split("/")
        assert holder.is_dead(name.format(host=host, pid=pid, start=start)) is dead


def test_a_large_backlog_is_read_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large groups must not all be in memory at once; one that is larger than the bound still comes."""
    monkeypatch.setattr(sqlite_store, "LARGEST_INBOX_READ", 25_000)
    store = SqliteStore(tmp_path / "store.db")
    for i, size in enumerate((10_000, 10_000, 90_000, 10)):
        store.append(delivery(str(i), size=size))
    taken: list[list[str]] = []
    while kept := store.inbox(100):
        taken.append([each.notifications[0].fingerprint for _, each in kept])
        store.commit(Commit(drained=tuple(identity for identity, _ in kept)))
    assert taken == [["0", "1"], ["2"], ["3"]]
    store.close()


def test_an_unknown_sync_is_refused(tmp_path: Path) -> None:
    """A sentence that names the option."""
    with pytest.raises(ConfigError, match="--store-sync: 'fast' is none of normal, full"):
        SqliteStore(tmp_path / "store.db", sync="fast")
