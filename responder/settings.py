"""The policy file in force: read when asked for, read again when it changes, kept when the new one is wrong."""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from responder.errors import ConfigError
from responder.policy import Settings

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between looks at the file's date; promise: a new file is noticed within 10 s."""
READ_EVERY = 5.0
"""Seconds between comparisons of its content, for a change that the date does not show."""


class SettingsSource:
    """Thread-safe. `bell` is a file that any process of the service touches to have all of them read anew.

    Raises ConfigError when made with a file that is wrong.
    """

    def __init__(self, path: str | Path, load: Callable[[str], Settings], bell: Path | None = None) -> None:
        self._path = str(path)
        self._load = load
        self._bell = bell
        self._lock = threading.Lock()
        self._error = ""
        self._generation = 0
        self._rung = self._bell_state()
        self._seen = self._file_state()
        self._look_at = time.monotonic() + LOOK_EVERY
        self._read_at = time.monotonic() + READ_EVERY
        self._digest = self._content()
        self._settings = load(self._path)

    @property
    def current(self) -> Settings:
        """The policies in force now."""
        self._refresh()
        return self._settings

    def __call__(self) -> Settings:
        """The same, for those who want a function."""
        return self.current

    @property
    def error(self) -> str:
        """Why the file as it is now is not in force; empty when it is."""
        self._refresh()
        return self._error

    @property
    def generation(self) -> int:
        """Grows when a file is put in force and at each explicit reload, changed or not."""
        self._refresh()
        return self._generation

    def reload(self) -> None:
        """Read the file now, here and in the service's other processes. Raises ConfigError if it is wrong."""
        if self._bell is not None:
            with open(self._bell, "ab") as bell:
                bell.write(b"\n")
        with self._lock:
            self._rung = self._bell_state()
            self._read_again()
            self._generation += 1
            error = self._error
        if error:
            raise ConfigError(error)

    def _refresh(self) -> None:
        now = time.monotonic()
        rung = self._bell_state()
        if rung == self._rung and now < self._look_at:
            return
        with self._lock:
            if rung != self._rung:
                self._rung = rung
                self._read_again()
                self._generation += 1
            elif now >= self._look_at:
                self._look(now)

    def _look(self, now: float) -> None:
        self._look_at = now + LOOK_EVERY
        seen = self._file_state()
        if seen == self._seen and now < self._read_at:
            return
        self._read_at = now + READ_EVERY
        digest = self._content()
        if seen != self._seen or digest != self._digest:
            generation = self._generation + (digest != self._digest)
            self._read_again()
            self._generation = generation

    def _read_again(self) -> None:
        # Its state first: what is written while it is read is seen at the next look.
        self._seen, self._digest = self._file_state(), self._content()
        try:
            settings = self._load(self._path)
        except ConfigError as error:
            if str(error) != self._error:
                log.error("the policy file is not taken, the one before stays in force: %s", error)
            self._error = str(error)
            return
        if self._error or settings != self._settings:
            log.info("a new policy file is in force", extra={"digest": settings.digest})
        self._settings = settings
        self._error = ""

    def _file_state(self) -> tuple[int, ...]:
        """A ConfigMap is swapped by a link, so another file at the same path has another inode."""
        try:
            stat = os.stat(self._path)
        except OSError:
            return ()
        return (stat.st_mtime_ns, stat.st_ino, stat.st_size)

    def _content(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                return hashlib.sha256(file.read()).digest()
        except OSError:
            return b""

    def _bell_state(self) -> int:
        if self._bell is None:
            return 0
        try:
            return self._bell.stat().st_size
        except OSError:
            return 0
