"""The one command: its help, its statuses, its completion."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from responder import cli as cli_module
from responder.cli import cli, main
from responder.client import names
from responder.errors import ConfigError
from tests.client.client_world import NOTHING, Shell, world
from tests.serving import until
from tests.web.people import OTHER, TRITON, VLLM

COMMANDS = sorted(cli_module._COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_its_help_says_what_each_command_says(name: str) -> None:
    """The list is shown without loading the commands, and must not drift from them."""
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    assert cli_module._COMMANDS[name][1] == (command.help or "").strip().split("\n\n")[0].replace("\n", " ")
    assert command.name == name


def walk(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    return [
        found
        for name in command.list_commands(context)
        for found in walk(command.get_command(context, name) or command, (*path, name))
    ]


@pytest.mark.parametrize("path", walk(cli), ids=" ".join)
def test_every_command_has_help_that_fits_80_columns(path: tuple[str, ...], tmp_path: Path) -> None:
    """Also of its options, which all say what they are for."""
    shown = Shell(tmp_path).run(*path, "--help").stdout
    assert shown.startswith(f"Usage: gpu-responder {' '.join(path)}")
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_help_loads_no_command() -> None:
    """It is shown at once: a shell that completes waits for it, too."""
    program = (
        "import sys; from responder.cli import cli; cli.main(['--help'], standalone_mode=False); "
        "print([name for name in sys.modules if name.startswith(('responder.c', 'kubernetes', 'flask', 'rich'))])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.splitlines()[-1] == "['responder.cli']"


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ConfigError("policies.yaml:3: mend it"), 1, "gpu-responder: policies.yaml:3: mend it\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (BrokenPipeError(), 0, ""),
        (click.UsageError("say more"), 2, "Error: say more\n"),
    ],
    ids=["a problem", "Ctrl-C", "head has gone", "wrong usage"],
)
def test_how_it_ends(
    error: BaseException,
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By its status, with a sentence where one helps, and never with a traceback."""

    @click.command("broken")
    def broken() -> None:
        raise error

    monkeypatch.setattr(cli, "get_command", lambda *_: broken)
    monkeypatch.setattr(sys, "argv", ["gpu-responder", "broken"])
    monkeypatch.setattr(sys.stderr, "close", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    shown = capsys.readouterr().err
    # Of wrong usage, click shows how it is used before.
    assert shown.endswith(told) if status == 2 else shown == told


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_scripts_are_printed(self, shell: str, tmp_path: Path) -> None:
        """For each shell that is supported, from click itself."""
        shown = Shell(tmp_path).run("completion", shell).stdout
        assert f"_GPU_RESPONDER_COMPLETE={shell}_complete" in shown

    def complete(self, shell: Shell, *words: str) -> list[str]:
        """What bash would be offered for the last word."""
        kept = {name: value for name, value in os.environ.items() if name not in NOTHING}
        env = {
            **kept, "_GPU_RESPONDER_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["gpu-responder", *words]),
            "COMP_CWORD": str(len(words)), "GPU_RESPONDER_URL": shell.url, "HOME": str(shell.home),
            "XDG_CONFIG_HOME": str(shell.home),
        }  # fmt: skip
        program = [sys.executable, "-m", "responder"]
        shown = subprocess.run(program, env=env, capture_output=True, text=True, check=True, timeout=60)
        assert not shown.stderr
        return [line.partition(",")[2] for line in shown.stdout.splitlines()]

    def test_bash_is_offered_commands_kinds_and_targets(self, tmp_path: Path) -> None:
        """Targets in their short form, from the service, also by the last part alone."""
        with world(tmp_path) as at:
            at.made.know(VLLM, TRITON, OTHER)
            assert self.complete(at.shell, "hi") == ["history"]
            assert self.complete(at.shell, "override", "add", "pauseS") == [
                "pauseScaleUp",
                "pauseScaleDown",
            ]
            for words, offered in (
                (("targets", "inference/v"), ["inference/vllm"]),
                (("targets", "vll"), ["inference/vllm", "team-a/vllm-large"]),
                (("history", "inference/statefulset/"), [TRITON.key]),
            ):
                # On a busy machine the answer may come too late for a shell, and whoever types asks again.
                until(lambda words=words, offered=offered: self.complete(at.shell, *words) == offered)

    def test_is_silent_when_the_service_is_not_there(self) -> None:
        """A shell has no place for errors."""
        command = cli.get_command(click.Context(cli), "targets")
        assert command is not None
        context = click.Context(command)
        context.params = {"url": "http://127.0.0.1:1", "token_file": None, "ca_file": None}
        assert names.complete_target(context, command.params[0], "in") == []
