"""`gpu-responder override`: a person's word on targets, with an owner, a reason and an end."""

import getpass
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from responder.client import names, times
from responder.client.connection import completing, with_api
from responder.client.http import Api, ApiError, segment
from responder.client.overrides_view import show_overrides, told, what, whom
from responder.client.tables import console, output_option, print_json, say
from responder.errors import ConfigError
from responder.matchers import parse

F = TypeVar("F", bound=Callable[..., Any])

PATH = "/api/v1/overrides"
KINDS = ("pin", "pause", "pauseScaleUp", "pauseScaleDown", "bounds")
_DID = {
    "pause": "Paused",
    "pauseScaleUp": "Paused scale-up of",
    "pauseScaleDown": "Paused scale-down of",
    "freeze": "Froze",
}


def kind_option(text: str) -> str:
    """A kind of override, written as the API has it or as `pause-scale-up`."""
    known = {kind.lower(): kind for kind in KINDS}
    typed = text.replace("-", "").lower()
    if typed in known:
        return known[typed]
    near = get_close_matches(typed, known, n=1)
    hint = f"; did you mean {known[near[0]]}?" if near else "."
    raise click.BadParameter(f"{text!r} is none of {', '.join(KINDS)}{hint}")


def _complete_kind(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(kind) for kind in KINDS if kind.lower().startswith(incomplete.lower())]


def end_options(function: F) -> F:
    """`--for` or `--until`, and why and by whom."""
    for option in (
        click.option(
            "--created-by", metavar="NAME", help="Who says so.  [default: the token's name, or yours]"
        ),
        click.option(
            "--comment", metavar="TEXT", required=True, help="Why: whoever is on call next reads it."
        ),
        click.option(
            "--until",
            metavar="TIME",
            type=times.future_option,
            help="When it ends: 18:30 (your time), 18:30Z, a date and time.",
        ),
        click.option(
            "--for",
            "for_",
            metavar="LENGTH",
            type=times.length_option,
            help="How long it holds: 30m, 2h, 3d.",
        ),
    ):
        function = option(function)
    return function


def ending(for_: timedelta | None, until: datetime | None) -> dict[str, Any]:
    """The end for the API. Raises a usage error unless there is exactly one."""
    if (for_ is None) == (until is None):
        raise click.UsageError("Say when it ends: either --for 2h or --until 18:30.")
    if for_ is not None:
        return {"durationSeconds": for_.total_seconds()}
    assert until is not None
    return {"endsAt": times.stamp(until)}


def author(api: Api, given: str | None) -> dict[str, str]:
    """Who says so: as given, else the token's name, which the service knows, else the user's."""
    if given:
        return {"createdBy": given}
    return {} if api.token_file else {"createdBy": user()}


def user() -> str:
    """The name of who runs this."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def check_matchers(matchers: Sequence[str]) -> list[str]:
    """The matchers as the API takes them. Raises a usage error."""
    try:
        return [str(parse(text)) for text in matchers]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@click.group("override")
def override() -> None:
    """Overrule the policies on a target, or on many, until a set time."""


@override.command("add")
@click.argument("kind", type=kind_option, shell_complete=_complete_kind)
@click.argument("target", required=False, shell_complete=names.complete_target)
@click.option(
    "-m", "--matcher", "matchers", multiple=True, metavar="MATCHER",
    help="All whose namespace, kind, name or policy match, like 'namespace=~\"team-.*\"'. Repeatable.",
)  # fmt: skip
@click.option("--replicas", type=click.IntRange(min=0), help="With pin: the count to hold.")
@click.option("--force", is_flag=True, help="With pin: even outside minReplicas to maxReplicas.")
@click.option("--min", "least", type=click.IntRange(min=0), help="With bounds: minReplicas meanwhile.")
@click.option("--max", "most", type=click.IntRange(min=0), help="With bounds: maxReplicas meanwhile.")
@end_options
@output_option
@with_api
def add(
    api: Api,
    kind: str,
    target: str | None,
    matchers: tuple[str, ...],
    replicas: int | None,
    force: bool,
    least: int | None,
    most: int | None,
    for_: timedelta | None,
    until: datetime | None,
    comment: str,
    created_by: str | None,
    output: str,
) -> None:
    """Pin, pause or bound a target.

    \b
    pin             hold exactly --replicas
    pause           scale neither up nor down
    pauseScaleUp    do not scale up
    pauseScaleDown  do not scale down
    bounds          other --min and --max than the policy's
    """
    _check(kind, replicas, force, least, most)
    if bool(target) == bool(matchers):
        raise click.UsageError(
            "Say for what: either a TARGET or --matcher (for everything: gpu-responder freeze)."
        )
    body: dict[str, Any] = {
        "kind": kind,
        "comment": comment,
        **ending(for_, until),
        **author(api, created_by),
    }
    if target:
        body["target"] = target
    else:
        body["matchers"] = check_matchers(matchers)
    given: dict[str, Any] = {
        "replicas": replicas,
        "force": force or None,
        "minReplicas": least,
        "maxReplicas": most,
    }
    body |= {key: value for key, value in given.items() if value is not None}
    made = api.post(PATH, body)
    if output == "json":
        print_json(made)
    else:
        told(console(), made, times.now(), did(made))


@override.command("list")
@click.option("--ended", is_flag=True, help="Those that have ended, too.")
@output_option
@with_api
def list_(api: Api, ended: bool, output: str) -> None:
    """Show the overrides that are in force or to come."""
    body = api.get(PATH, {"ended": "true" if ended else None})
    if output == "json":
        print_json(body)
        return
    out, found = console(), body["overrides"]
    if not found:
        say(out, "There are no overrides." if ended else "No override is in force; --ended shows past ones.")
        return
    show_overrides(out, found, times.now())


def complete_id(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the overrides that are in force or to come."""
    try:
        found = completing(ctx).get(PATH)["overrides"]
    except Exception:  # noqa: BLE001 - a shell that completes has no place for errors
        return []
    return [
        CompletionItem(each["id"], help=f"{what(each)}, {whom(each)}")
        for each in found
        if each["id"].startswith(incomplete)
    ]


@override.command("expire")
@click.argument("id_", metavar="ID", shell_complete=complete_id)
@click.option("--comment", metavar="TEXT", help="Why; the audit keeps it.")
@output_option
@with_api
def expire(api: Api, id_: str, comment: str | None, output: str) -> None:
    """End an override now. ID may be shortened to what is unique."""
    query = {"comment": comment}
    try:
        ended = api.delete(f"{PATH}/{segment(id_)}", query)
    except ApiError as error:
        if error.status != 404:
            raise
        whole = whole_id(id_, api.get(PATH)["overrides"], "override")
        ended = api.delete(f"{PATH}/{segment(whole)}", query)
    if output == "json":
        print_json(ended)
        return
    say(
        console(),
        f"Ended {what(ended)} of {whom(ended)} ({ended['comment']}); the next decision goes without it.",
    )


def whole_id(typed: str, known: Sequence[Any], noun: str) -> str:
    """The one id that begins so. Raises ApiError with the ids that may be meant, ConfigError without a beginning."""
    if not typed.strip():
        # Of one that is in force alone an empty variable in a script would be the beginning, too.
        raise ConfigError(f"the ID is empty: gpu-responder {noun} list shows them")
    found = [each["id"] for each in known if each["id"].startswith(typed)]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise ApiError(f"{typed} begins several ids: {', '.join(found[:5])}", 404)
    ids = [each["id"] for each in known]
    near = get_close_matches(typed, ids, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"gpu-responder {noun} list shows them"
    raise ApiError(f"no {noun} {typed} is in force or to come: {hint}", 404)


def did(made: Any) -> str:
    """What an override does, as a sentence's beginning."""
    kind, target = made["kind"], whom(made)
    if kind == "pin":
        return f"Pinned {target} at {made['replicas']}"
    if kind == "bounds":
        parts = [
            f"{name} {value}"
            for name, value in (("minReplicas", made["minReplicas"]), ("maxReplicas", made["maxReplicas"]))
            if value is not None
        ]
        return f"Set {' and '.join(parts)} for {target}"
    return f"{_DID.get(kind, kind)} {target}"


def _check(kind: str, replicas: int | None, force: bool, least: int | None, most: int | None) -> None:
    if (kind == "pin") != (replicas is not None):
        raise click.UsageError("pin needs --replicas." if kind == "pin" else "--replicas goes with pin only.")
    if force and kind != "pin":
        raise click.UsageError("--force goes with pin only.")
    bounded = least is not None or most is not None
    if (kind == "bounds") != bounded:
        raise click.UsageError(
            "bounds needs --min, --max or both."
            if kind == "bounds"
            else "--min and --max go with bounds only."
        )
    if least is not None and most is not None and least > most:
        raise click.UsageError(f"--min {least} is above --max {most}.")
