"""The policy file in force: noticed when it changes, however it is written, and kept when the new one is wrong."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from responder import settings as module
from responder.errors import ConfigError
from responder.policy import Settings
from responder.settings import SettingsSource


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def load(path: str) -> Settings:
    """A policy file whose text is the cluster's name, and wrong if that is `wrong`."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if "wrong" in text:
        raise ConfigError(f"{path}: it is wrong")
    return Settings(policies=(), cluster=text, digest=text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "policies.yaml"
    path.write_text("one")
    return path


def replace(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


def swap_mount(path: Path, text: str) -> None:
    """As Kubernetes swaps a mounted ConfigMap: a link to a folder is replaced; date and size stay."""
    stat = path.stat()
    folder = path.parent / f"data-{text}"
    folder.mkdir()
    (folder / path.name).write_text(text)
    os.utime(folder / path.name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    link = path.parent / "swap"
    link.symlink_to(folder / path.name)
    os.replace(link, path)


def write_in_place(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(1, 1))


def write_with_the_same_date(path: Path, text: str) -> None:
    stat = path.stat()
    path.write_text(text)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("change", [replace, swap_mount, write_in_place, write_with_the_same_date])
def test_a_new_file_is_noticed_within_ten_seconds(path: Path, clock: Clock, change: object) -> None:
    """However it came there."""
    source = SettingsSource(path, load)
    assert source.current.cluster == "one"
    change(path, "two")  # type: ignore[operator]
    clock.now += 9
    assert (source.current.cluster, source.error) == ("two", "")
    assert source.generation == 1


def test_an_unchanged_file_is_not_read_again(path: Path, clock: Clock) -> None:
    """Parsing policies costs; a second's worth of requests must not pay it."""
    reads: list[str] = []

    def counting(name: str) -> Settings:
        reads.append(name)
        return load(name)

    source = SettingsSource(path, counting)
    for _ in range(200):
        clock.now += 0.1
        source.current  # noqa: B018 - reading it is the point
    assert (len(reads), source.generation) == (1, 0)


@pytest.mark.parametrize("broken", ["wrong", None], ids=["is wrong", "is gone"])
def test_a_file_that_cannot_be_taken_leaves_the_old_one(
    path: Path, clock: Clock, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once in the log and as long as it lasts in `error`; a good file ends that."""
    source = SettingsSource(path, load)
    if broken:
        replace(path, broken)
    else:
        path.unlink()
    for _ in range(30):
        clock.now += 2
        assert source.current.cluster == "one"
        assert str(path) in source.error
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    replace(path, "two")
    clock.now += 2
    assert (source.current.cluster, source.error) == ("two", "")


def test_a_file_that_is_wrong_at_the_start_is_an_error(path: Path) -> None:
    """There is no old one to keep."""
    path.write_text("wrong")
    with pytest.raises(ConfigError, match="it is wrong"):
        SettingsSource(path, load)


def test_reload_is_at_once_and_in_every_process(path: Path, clock: Clock, tmp_path: Path) -> None:
    """No time passes, and another process's source has it too; the generation grows though nothing changed."""
    bell = tmp_path / "reload"
    here, there = (SettingsSource(path, load, bell) for _ in range(2))
    replace(path, "two")
    here.reload()
    assert (here.current.cluster, there.current.cluster) == ("two", "two")
    assert (here.generation, there.generation) == (1, 1)
    there.reload()
    assert (here.generation, there.generation) == (2, 2)


def test_reload_says_what_is_wrong(path: Path, clock: Clock, tmp_path: Path) -> None:
    """To the one who asked for it; everybody keeps the old one."""
    bell = tmp_path / "reload"
    here, there = (SettingsSource(path, load, bell) for _ in range(2))
    path.write_text("wrong")
    with pytest.raises(ConfigError, match="it is wrong"):
        here.reload()
    assert (here.current.cluster, there.current.cluster) == ("one", "one")
    assert there.error


def test_it_can_be_called_for_its_settings(path: Path) -> None:
    """As the actor does."""
    source = SettingsSource(path, load)
    assert source() is source.current
