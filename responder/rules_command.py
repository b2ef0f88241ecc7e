"""`gpu-responder rules`: what Prometheus itself loads, made of the files that people edit."""

from pathlib import Path

import click

from responder import rules


@click.group("rules")
def rules_command() -> None:
    """Work with the Prometheus rules."""


@rules_command.command("export")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--compress",
    "factor",
    metavar="FACTOR",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Divide all durations by FACTOR, for a time that runs FACTOR times as fast.",
)
@click.option(
    "--runbook-base",
    metavar="URL",
    help="Put URL before each runbook_url, which the shipped files give as docs/runbooks/<Alert>.md.",
)
def export_command(paths: tuple[Path, ...], factor: float, runbook_base: str | None) -> None:
    """Print one plain rule file made of PATH..., records before those that use them.

    PATH is a PrometheusRule object, a plain rule file, or a directory of them.
    """
    groups = rules.compress(rules.load(paths), factor)
    if runbook_base:
        groups = rules.with_runbook_base(groups, runbook_base)
    click.echo(rules.export(groups), nl=False)
