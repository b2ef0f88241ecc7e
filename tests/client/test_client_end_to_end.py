"""The command as a process, in a terminal and in a pipe, against the service as processes."""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from responder import alerts, config
from responder.model import Commit, HistoryEntry, Outcome, Reason, Record, TargetRef
from responder.store.sqlite import SqliteStore
from tests.client.client_world import NOTHING, verdict
from tests.fakes import notification
from tests.serving import POLICIES, Serving, serving, until
from tests.test_serve_process import make_certificates

LONG = TargetRef("inference", "Deployment", "llama-3-70b-instruct-long-context-batch-a")
SHORT = TargetRef("team-vision", "Deployment", "detector")
COMMAND = [sys.executable, "-m", "responder"]
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def seed(database: Path) -> None:
    """Two targets with a past, as the actor would have left them."""
    store, now = SqliteStore(database), datetime.now(UTC)
    for ref in (LONG, SHORT):
        message = f"Holding {ref} at 3: Busy fires and asks for 5 (+50 %), and scale-up waits 60 s after the last one."
        record = Record(ref, uid="u", replicas=3, ready=2, verdict=verdict(3, 3, Reason.COOLDOWN, message))
        labels = {"alertname": "Busy", "action": "scale_up", "namespace": ref.namespace, "workload": ref.name,
                  "workload_type": "deployment"}  # fmt: skip
        seen = notification(labels, starts_at=now, received_at=now)
        record = alerts.fold(record, seen, config.loads(POLICIES), now)
        line = HistoryEntry(now, ref.key, 2, 3, Reason.SCALED_UP, f"Scaling {ref} from 2 to 3: Busy fires.", "all",
                            intent="i", outcome=Outcome.APPLIED)  # fmt: skip
        store.commit(Commit(records=((record, 0),), history=(line,)))
    store.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    seed(folder / "store.db")
    with serving(folder) as running:
        yield running


def environment(service: Serving, home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in NOTHING}
    url = f"http://127.0.0.1:{service.port}"
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "GPU_RESPONDER_URL": url, **more}


def told(arguments: list[str], env: dict[str, str], status: int | None = 0) -> str:
    """All that the command says in a pipe."""
    made = subprocess.run([*COMMAND, *arguments], env=env, capture_output=True, text=True, check=False)
    assert status in (None, made.returncode), made.stdout + made.stderr
    assert "Traceback" not in made.stderr
    return made.stdout + made.stderr


class Terminal:
    """A process in a terminal of a size, with all that it showed."""

    def __init__(self, arguments: list[str], env: dict[str, str], columns: int, rows: int = 30) -> None:
        self._main, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {**env, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=child, stdout=child, stderr=child, env=env, start_new_session=True
        )
        os.close(child)
        os.set_blocking(self._main, False)
        # What is read may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError, OSError):
            while chunk := os.read(self._main, 65536):
                self.shown += self._decoder.decode(chunk)
        return self.shown

    def finish(self) -> int:
        try:
            until(lambda: (self.read(), self.process.poll() is not None)[1], what="the command ends")
        finally:
            self.process.kill()
            self.process.wait(60)
        self.read()
        os.close(self._main)
        return self.process.returncode


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ["targets"],
        ["targets", "detector"],
        ["targets", LONG.name],
        ["history"],
        ["override", "list"],
        ["targets", "x"],
    ],
    ids=" ".join,
)
def test_nothing_is_wider_than_the_terminal(
    service: Serving, tmp_path: Path, arguments: list[str], columns: int
) -> None:
    """No line is wrapped by the terminal itself, which tears words and tables apart."""
    terminal = Terminal(arguments, environment(service, tmp_path), columns)
    terminal.finish()
    lines = ANSI.sub("", terminal.shown).replace("\r", "").split("\n")
    assert len("".join(lines)) > 20
    assert max(map(len, lines)) <= columns
    assert "Traceback" not in terminal.shown


def test_colour_is_for_terminals_that_want_it(service: Serving, tmp_path: Path) -> None:
    """Coloured in a terminal, without colour under NO_COLOR, and without any escape in a pipe."""
    coloured = Terminal(["targets"], environment(service, tmp_path), 80)
    coloured.finish()
    assert "\x1b[33mlimited" in coloured.shown
    plain = Terminal(["targets"], environment(service, tmp_path, NO_COLOR="1"), 80)
    plain.finish()
    assert "limited" in plain.shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain.shown)
    piped = told(["targets"], environment(service, tmp_path))
    assert "\x1b" not in piped
    assert f"\n{LONG.key}  limited" in piped


def test_ctrl_c_ends_a_watch_at_once(service: Serving, tmp_path: Path) -> None:
    """Status 130, the screen as it was, and not a word on it."""
    terminal = Terminal(["targets", "--watch"], environment(service, tmp_path), 80, rows=12)
    until(lambda: "Ctrl-C ends" in terminal.read(), what="the first picture")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.finish() == 130
    assert terminal.shown.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    assert "Traceback" not in terminal.shown


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_watch_in_a_pipe_tells_changes_only(service: Serving, tmp_path: Path, output: str) -> None:
    """Each picture once, until somebody has heard enough."""
    process = subprocess.Popen(
        [*COMMAND, "targets", "--watch", "-o", output],
        env=environment(service, tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert len(json.loads(first)["targets"]) == 2 if output == "json" else first.startswith("As of ")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()
    assert rest.count("As of ") == rest.count("asOf") == 0
    assert process.returncode == 130


def test_a_reader_that_has_gone_is_no_error(service: Serving, tmp_path: Path) -> None:
    """`gpu-responder history | head -1` is silent."""
    shell = f"{sys.executable} -m responder history | head -1"
    shown = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell],
        check=False,
        env=environment(service, tmp_path),
        capture_output=True,
        text=True,
    )
    assert (shown.stderr, shown.stdout.count("\n")) == ("", 1)


def test_a_night_on_call(tmp_path: Path) -> None:
    """Make a token, find out why, pause, undo, silence, and end it all; a rotated token is told at once."""
    seed(tmp_path / "store.db")
    hashes, token = tmp_path / "hashes.yaml", tmp_path / "token"
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    told(
        [
            "token",
            "create",
            "--role",
            "operator",
            "--name",
            "ana",
            "--write-token",
            str(token),
            "--add-to",
            str(hashes),
        ],
        env,
    )
    with serving(tmp_path, token_hashes_file=str(hashes)) as service:
        env = environment(service, tmp_path)
        assert "needs a token: give --token-file" in told(["targets"], env, status=1)
        env["GPU_RESPONDER_TOKEN_FILE"] = str(token)
        assert "Busy fires and asks for 5 (+50 %)" in told(["targets", "detector"], env)
        paused = told(
            ["override", "add", "pause", "detector", "--for", "2h", "--comment", "driver update"], env
        )
        assert paused.startswith("Paused team-vision/deployment/detector until ")
        undone = told(["undo", "2"], env)
        assert undone.startswith(
            "Undid decision 2, which scaled team-vision/deployment/detector from 2 to 3 at "
        )
        listed = told(["override", "list"], env)
        assert "pin at 2" in listed
        assert "ana" in listed
        for line in listed.splitlines()[1:]:
            told(["override", "expire", line.split()[0]], env)
        assert "No override is in force" in told(["override", "list"], env)
        told(["silence", "add", "Busy", "--for", "1h", "--comment", "known"], env)
        assert 'alertname="Busy"' in told(["silence", "list"], env)
        hashes.unlink()
        told(["token", "create", "--role", "viewer", "--add-to", str(hashes)], env)
        until(
            lambda: "does not know the token in" in told(["targets"], env, None),
            what="the old token is refused",
        )


def test_a_certificate_is_trusted_by_its_ca_file(tmp_path: Path) -> None:
    """Without it the sentence names the option; with it, in the config file too, all is well."""
    make_certificates(tmp_path)
    options = {name: str(tmp_path / f"{name}.pem") for name in ("certfile", "keyfile")}
    with serving(tmp_path, wait=False, **options) as service:
        url = f"https://localhost:{service.port}"
        env = environment(service, tmp_path, GPU_RESPONDER_URL=url)
        until(lambda: "give its CA with --ca-file" in told(["targets"], env, None), what="it answers")
        (tmp_path / "gpu-responder").mkdir()
        (tmp_path / "gpu-responder" / "config.yaml").write_text(f"caFile: {tmp_path}/ca.pem\n")
        assert "No target is known" in told(["targets"], env)
        env["GPU_RESPONDER_URL"] = url.replace("localhost", "127.0.0.1")
        assert "use a name that it is made for" in told(["targets"], env, 1)
