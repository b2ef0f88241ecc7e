"""`gpu-responder silence`: alerts that trigger nothing until a set time, here or in Alertmanager."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.text import Text

from responder.client import times
from responder.client.connection import completing, config, with_api
from responder.client.http import Api, segment
from responder.client.overrides import author, end_options, ending, user, whole_id
from responder.client.overrides_view import ends, short_id
from responder.client.tables import Column, console, output_option, print_json, say, show, styled
from responder.matchers import Matcher, of_json, parse

PATH = "/api/v2/silences"
_COLUMNS = (
    Column("ID", give=True, middle=True),
    Column("MATCHERS", give=True, least=30),
    Column("STATE", usual="active"),
    Column("ENDS"),
    Column("AT", drop=3),
    Column("BY", give=True, drop=2),
    Column("WHY", give=True, drop=1, least=16),
)


@click.group("silence")
def silence() -> None:
    """Keep alerts from triggering anything, until a set time.

    The service keeps them as Alertmanager does: amtool silence works with it, too.
    """


@silence.command("add")
@click.argument("matchers", nargs=-1, required=True)
@end_options
@click.option(
    "--in", "place", type=click.Choice(["responder", "alertmanager"]), default="responder", show_default=True,
    help="Where it counts: for this service alone, or for everybody who is told by Alertmanager.",
)  # fmt: skip
@click.option(
    "--alertmanager-url",
    metavar="URL",
    envvar="GPU_RESPONDER_ALERTMANAGER_URL",
    help="With --in alertmanager.",
)
@output_option
@with_api
def add(
    api: Api,
    matchers: tuple[str, ...],
    for_: timedelta | None,
    until: datetime | None,
    comment: str,
    created_by: str | None,
    place: str,
    alertmanager_url: str | None,
    output: str,
) -> None:
    """Silence the alerts that all MATCHERS match.

    \b
    gpu-responder silence add GpuIdle namespace=~team-.* --for 2h --comment why

    A bare first word is an alert's name.
    """
    read = _read(matchers)
    starts = times.now()
    end = ending(for_, until)
    ends = until or starts + timedelta(seconds=end["durationSeconds"])
    if place == "alertmanager":
        identity, where = _in_alertmanager(
            alertmanager_url, read, starts, ends, created_by or user(), comment
        )
    else:
        body = {**_body(read, starts, ends, comment), **author(api, created_by)}
        identity, where = str(api.post(PATH, body)["silenceID"]), ""
    if output == "json":
        print_json({"silenceID": identity})
        return
    out = console()
    what = "{" + ", ".join(map(str, read)) + "}"
    say(out, f"Silenced {what}{where} until {times.both(ends, starts)}.")
    if where:
        say(out, f"Its id is {identity}.", style="dim")
    else:
        say(out, f"End it early with: gpu-responder silence expire {short_id(identity, out)}", style="dim")


@silence.command("list")
@click.option("--expired", is_flag=True, help="Those that have expired, too.")
@output_option
@with_api
def list_(api: Api, expired: bool, output: str) -> None:
    """Show the silences that are in force or to come."""
    found = [each for each in api.get(PATH) if expired or each["status"]["state"] != "expired"]
    if output == "json":
        print_json(found)
        return
    out, now = console(), times.now()
    if not found:
        say(
            out, "There are no silences." if expired else "No silence is in force; --expired shows past ones."
        )
        return
    show(out, _COLUMNS, [_row(each, now, out) for each in found])


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        found = _live(completing(ctx))
    except Exception:  # noqa: BLE001 - a shell that completes has no place for errors
        return []
    return [
        CompletionItem(each["id"], help=_words(each["matchers"]))
        for each in found
        if each["id"].startswith(incomplete)
    ]


@silence.command("expire")
@click.argument("id_", metavar="ID", shell_complete=_complete)
@with_api
def expire(api: Api, id_: str) -> None:
    """End a silence now. ID may be shortened to what is unique."""
    found = _live(api)
    whole = whole_id(id_, found, "silence")
    ended = next(each for each in found if each["id"] == whole)
    api.delete(f"/api/v2/silence/{segment(whole)}")
    say(console(), f"Ended the silence of {_words(ended['matchers'])} ({ended['comment']}).")


def _live(api: Api) -> list[Any]:
    return [each for each in api.get(PATH) if each["status"]["state"] != "expired"]


def _read(texts: Sequence[str]) -> tuple[Matcher, ...]:
    first, *rest = texts
    if not any(char in first for char in "=~!"):
        first = str(Matcher("alertname", "=", first))
    try:
        return tuple(parse(text) for text in (first, *rest))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _body(matchers: Sequence[Matcher], starts: datetime, ends: datetime, comment: str) -> dict[str, Any]:
    return {
        "matchers": [matcher.as_json() for matcher in matchers],
        "startsAt": times.stamp(starts),
        "endsAt": times.stamp(ends),
        "comment": comment,
    }


def _in_alertmanager(
    url: str | None, matchers: Sequence[Matcher], starts: datetime, ends: datetime, who: str, comment: str
) -> tuple[str, str]:
    from responder.alertmanager import AlertmanagerClient  # noqa: PLC0415 - seldom needed

    url = url or config().get("alertmanagerUrl")
    if not url:
        raise click.UsageError(
            "--in alertmanager needs --alertmanager-url, or GPU_RESPONDER_ALERTMANAGER_URL."
        )
    client = AlertmanagerClient(url)
    identity = client.create_silence(
        matchers, starts_at=starts, ends_at=ends, created_by=who, comment=comment
    )
    return identity, f" in Alertmanager {client.url}"


def _row(found: Any, now: datetime, out: Console) -> list[str | Text]:
    return [
        short_id(found["id"], out),
        _words(found["matchers"]),
        styled(found["status"]["state"]),
        *ends(found, now),
        found["createdBy"],
        found["comment"],
    ]


def _words(matchers: Sequence[Any]) -> str:
    return ", ".join(str(of_json(each)) for each in matchers)
