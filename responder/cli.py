"""One command, `gpu-responder`. Each subcommand is loaded when it is asked for, so that none pays for another.

Exit status: 0 fine, 1 a problem found, 2 wrong usage.
"""

import importlib
import sys
from typing import NoReturn

import click

from responder.errors import ResponderError

_COMMANDS = {
    "serve": "responder.serve:serve",
    "demo": "responder.demo.command:demo",
    "sim": "responder.sim.command:command",
    "rules": "responder.rules_command:rules_command",
}


class _Lazy(click.Group):
    """A group that imports a subcommand's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="gpu-responder", prog_name="gpu-responder")
def cli() -> None:
    """Scales Kubernetes workloads up and down in response to GPU alerts: once for each cause, and says why."""


def main() -> NoReturn:
    """The console script: errors are one sentence, never a traceback."""
    try:
        status = cli.main(prog_name="gpu-responder", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        sys.exit(130)
    except ResponderError as error:
        click.echo(f"gpu-responder: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(status if isinstance(status, int) else 0)
