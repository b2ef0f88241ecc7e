"""Programs that the demo runs: each with its own log file, all gone when it ends."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from responder.errors import ResponderError

_PORTS = range(10_000, 20_000)
"""Below those that Linux gives to whoever connects or asks for any, since its program takes one only seconds later."""
STOP_SECONDS = 10.0
"""How long a program may take to stop before it is killed."""


class DemoError(ResponderError):
    """The demo cannot go on; the message is one sentence with the mend."""


def find_program(names: Sequence[str], package: str) -> str:
    """The first of `names` on PATH. Raises DemoError that says how to get it."""
    for name in names:
        if found := shutil.which(name):
            return found
    wanted = " or ".join(names)
    raise DemoError(
        f"{wanted} is not on PATH; install it (on Debian: apt-get install --no-install-recommends {package})."
    )


def free_port(wanted: int = 0) -> int:
    """A port on loopback that nothing listens on. Raises DemoError when `wanted` is taken."""
    for port in (wanted,) if wanted else (*random.SystemRandom().sample(_PORTS, 100), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if wanted:
                    raise DemoError(
                        f"Port {wanted} cannot be used ({error.strerror}); give another with --port, or 0 for any."
                    ) from None
                continue
            return int(probe.getsockname()[1])
    raise DemoError("No port of this host is free; end something that listens and run this again.")


@dataclass(slots=True)
class Program:
    """A running child in a session of its own, so that a Ctrl-C reaches the demo alone."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self, lines: int = 3) -> str:
        text = self.log.read_text(errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in text[-lines:])

    def check(self) -> None:
        """Raises DemoError if it has ended by itself."""
        status = self.process.poll()
        if status is not None:
            raise DemoError(f"{self.name} ended with status {status}: {self.tail()} (log: {self.log})")

    def stop(self) -> None:
        """Asks the whole group to stop, then makes it."""
        for sign, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
            if not self._group_lives():
                return

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def start(
    name: str, command: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
) -> Program:
    """Start a program with its output in `<directory>/<name>.log`."""
    log = directory / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
    return Program(name, process, log)


HTTP = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=1.0, read=3.0))


def wait_until_answers(program: Program, url: str, seconds: float = 30.0) -> None:
    """Wait until `url` answers 200. Raises DemoError when it does not in time, or the program has ended."""
    deadline = time.monotonic() + seconds
    while True:
        program.check()
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            if HTTP.request("GET", url).status == 200:
                return
        if time.monotonic() > deadline:
            raise DemoError(
                f"{program.name} did not answer at {url} in {seconds:.0f} s: {program.tail()} (log: {program.log})"
            )
        time.sleep(0.05)
