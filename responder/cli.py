"""One command, `gpu-responder`. Each subcommand is loaded when it is asked for, so that none pays for another.

Exit status: 0 fine, 1 a problem found, 2 wrong usage.
"""

import importlib
import sys
from difflib import get_close_matches
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from responder.errors import ResponderError

# What it is called, where it is, and its first line of help, which is wanted without loading it.
_COMMANDS = {
    "serve": (
        "responder.serve:serve",
        "Take alerts from Alertmanager and scale workloads, until told to stop.",
    ),
    "targets": ("responder.client.targets:targets", "Show every target, or explain one."),
    "history": (
        "responder.client.history:history",
        "Show what was decided and what became of it, newest first.",
    ),
    "override": (
        "responder.client.overrides:override",
        "Overrule the policies on a target, or on many, until a set time.",
    ),
    "freeze": ("responder.client.freeze:freeze", "Stop all action at once: nothing is scaled until it ends."),
    "undo": (
        "responder.client.undo:undo",
        "Take a target back to the count that it had before a decision, and pin it there.",
    ),
    "silence": (
        "responder.client.silences:silence",
        "Keep alerts from triggering anything, until a set time.",
    ),
    "explain": ("responder.explain.command:explain", "Say what would be decided, without acting."),
    "check": (
        "responder.check.command:check",
        "Verify the chain from rules to targets, without a cluster.",
    ),
    "doctor": (
        "responder.check.doctor.command:doctor",
        "Verify the running chain, without changing anything: Prometheus, Alertmanager, the service, Kubernetes.",
    ),
    "token": ("responder.client.token:token", "Make tokens for people, Alertmanager and programs."),
    "rules": ("responder.rules_command:rules_command", "Work with the Prometheus rules."),
    "demo": (
        "responder.demo.command:demo",
        "Run the whole loop here: simulated GPUs, real Prometheus and Alertmanager, the service itself.",
    ),
    "sim": (
        "responder.sim.command:command",
        "Serve a simulated GPU cluster: a Kubernetes API, GPU exporters and workloads under load.",
    ),
    "completion": (
        "responder.client.completion:completion",
        "Print a script that lets SHELL complete commands, options and targets.",
    ),
}


class _Problem(click.ClickException):
    """A problem found, as one sentence."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        from responder.client.tables import fitted  # noqa: PLC0415 - not every command needs it

        click.echo(fitted(f"gpu-responder: {self.message}"), file=file, err=file is None)


class _Lazy(click.Group):
    """A group that imports a subcommand's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: object = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = get_close_matches(args[0], _COMMANDS, n=1)
            if not near:
                raise
        raise click.UsageError(f"No such command {args[0]!r}; did you mean {near[0]}?", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=told)
            for name, (_, told) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ResponderError as error:
            raise _Problem(str(error)) from error


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
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ResponderError as error:
        click.echo(f"gpu-responder: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(status if isinstance(status, int) else 0)
