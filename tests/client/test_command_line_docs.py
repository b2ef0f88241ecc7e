"""What the pages tell people to run is there to be run."""

import re
import shlex
from pathlib import Path

import click
import pytest

from responder.cli import cli

DOCS = Path(__file__).parent.parent.parent / "docs"
RUN = re.compile(r"(?:^\$ |`|\$\()gpu-responder ([^`\n)|]+)", re.MULTILINE)


def told() -> list[tuple[str, str]]:
    return [
        (path.name, line.strip())
        for path in sorted(DOCS.glob("*.md"))
        for line in RUN.findall(path.read_text("utf-8"))
        if not line.startswith(("check", "doctor", "simulate"))
    ]


@pytest.mark.parametrize(("page", "line"), told(), ids=lambda value: value[:60])
def test_commands_and_options_on_the_pages_exist(page: str, line: str) -> None:
    """Each subcommand is found, and each option that follows is one of its own."""
    words = shlex.split(line.partition(" #")[0])
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, f"{page}: {line}"
        command = found
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in known | {"--help", "--version"}, f"{page}: {line}"


def test_every_command_is_on_its_page() -> None:
    """docs/command-line.md leaves out none of them."""
    page = (DOCS / "command-line.md").read_text("utf-8")
    for name in cli.list_commands(click.Context(cli)):
        assert re.search(rf"\b{name}\b", page), name
