"""What several commands take in the same way."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click


def _read_headers(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    pairs = [text.partition(":") for text in given]
    for name, colon, _value in pairs:
        if not colon or not name.strip():
            raise click.BadParameter("write it as 'Name: value', such as 'X-Scope-OrgID: gpu'.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def credential_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What Prometheus and Alertmanager ask for: tokens in files, read at each question, and headers by name."""
    for option in (
        click.option(
            "--alertmanager-token-file",
            metavar="FILE",
            default="",
            envvar="GPU_RESPONDER_ALERTMANAGER_TOKEN_FILE",
            help="Holds Alertmanager's bearer token.",
        ),
        click.option(
            "--prometheus-header",
            "prometheus_headers",
            metavar="HEADER",
            multiple=True,
            callback=_read_headers,
            help="Such as 'X-Scope-OrgID: gpu'. Repeatable.",
        ),
        click.option(
            "--prometheus-token-file",
            metavar="FILE",
            default="",
            envvar="GPU_RESPONDER_PROMETHEUS_TOKEN_FILE",
            help="Holds Prometheus's bearer token.",
        ),
    ):
        command = option(command)
    return command


def sent(headers: Mapping[str, str], token_file: str) -> Mapping[str, str]:
    """The headers with the token as it is now. One that cannot be read is not sent: who is asked says so."""
    made = dict(headers)
    if token_file:
        with contextlib.suppress(OSError):
            made["Authorization"] = f"Bearer {Path(token_file).read_text(encoding='utf-8').strip()}"
    return made
