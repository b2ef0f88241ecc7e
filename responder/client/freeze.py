"""`gpu-responder freeze`: stop all action at once."""

import re
from datetime import datetime, timedelta
from typing import Any

import click

from responder.client import times
from responder.client.connection import with_api
from responder.client.http import Api, ApiError, Unreachable
from responder.client.overrides import PATH, author, did, end_options, ending
from responder.client.overrides_view import told
from responder.client.tables import console, output_option, print_json
from responder.errors import ResponderError
from responder.matchers import Matcher

BY_FILE = (
    "to stop everything without it, put the line `freeze: <why>` at the top level of the policy file, "
    "which takes effect within 10 s"
)

_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")


class NotFrozen(ResponderError):
    """It could not be frozen; says what else to do."""


@click.command("freeze")
@click.option("--all", "everything", is_flag=True, help="Every target.")
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, metavar="GLOB", help="Targets in it. Repeatable."
)
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="Targets that it governs. Repeatable."
)
@end_options
@output_option
@with_api
def freeze(
    api: Api,
    everything: bool,
    namespaces: tuple[str, ...],
    policies: tuple[str, ...],
    for_: timedelta | None,
    until: datetime | None,
    comment: str,
    created_by: str | None,
    output: str,
) -> None:
    """Stop all action at once: nothing is scaled until it ends.

    Alerts are still taken in and decisions still made, so that it goes on from there. gpu-responder override
    expire ends it early. When the service cannot be reached, the policy file's key `freeze` does the same.
    """
    if [everything, bool(namespaces), bool(policies)].count(True) != 1:
        raise click.UsageError("Say what to freeze: one of --all, --namespace or --policy.")
    body: dict[str, Any] = {"kind": "freeze", "comment": comment}
    body |= {**ending(for_, until), **author(api, created_by)}
    if not everything:
        body["matchers"] = [_one_of("namespace", namespaces) if namespaces else _one_of("policy", policies)]
    try:
        made = api.post(PATH, body)
    except (Unreachable, ApiError) as error:
        if isinstance(error, ApiError) and error.status < 500:
            raise
        raise NotFrozen(f"nothing is frozen: {error}; {BY_FILE}") from None
    if output == "json":
        print_json(made)
    else:
        told(console(), made, times.now(), did(made))


def _one_of(label: str, values: tuple[str, ...]) -> str:
    if not all(value.strip() for value in values):
        raise click.UsageError(f"--{label} is empty: name one, or freeze everything with --all.")
    # No namespace has such characters in its name; a policy may have any.
    globs = label == "namespace" and any(char in value for value in values for char in "*?")
    if len(values) == 1 and not globs:
        return str(Matcher(label, "=", values[0]))
    patterns = [_SPECIAL.sub(r"\\\1", value) for value in values]
    if globs:
        patterns = [each.replace(r"\*", ".*").replace(r"\?", ".") for each in patterns]
    return str(Matcher(label, "=~", "|".join(patterns)))
