"""`gpu-responder history`: what was decided, and what became of it."""

from datetime import datetime
from difflib import get_close_matches

import click
from click.shell_completion import CompletionItem

from responder.client import names, times
from responder.client.connection import with_api
from responder.client.decisions import show_decisions
from responder.client.http import Api
from responder.client.tables import console, note, output_option, print_json, say
from responder.model import Reason


def reason_option(text: str) -> str:
    """A reason of a decision, in any case."""
    known = {reason.value.lower(): reason.value for reason in Reason}
    typed = text.replace("-", "").replace("_", "").lower()
    if typed in known:
        return known[typed]
    near = [known[name] for name in get_close_matches(typed, known, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "docs/how-it-decides.md has all of them."
    raise click.BadParameter(f"{text!r} is no reason; {hint}")


def _complete_reason(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(each.value) for each in Reason if each.lower().startswith(incomplete.lower())]


@click.command("history")
@click.argument("name", required=False, shell_complete=names.complete_target)
@click.option(
    "--reason",
    metavar="REASON",
    type=reason_option,
    shell_complete=_complete_reason,
    help="Only decisions with this reason, such as Cooldown.",
)
@click.option(
    "--since", metavar="LENGTH|TIME", type=times.past_option, help="Only what came after: 2h ago, or a time."
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many."
)
@output_option
@with_api
def history(
    api: Api, name: str | None, reason: str | None, since: datetime | None, limit: int, output: str
) -> None:
    """Show what was decided and what became of it, newest first.

    NAME is namespace/kind/name, or shorter: inference/vllm, vllm.
    """
    namespace, kind, short = names.parts_of(name) if name else ("", "", "")
    query = {
        "namespace": namespace,
        "kind": kind,
        "name": short,
        "reason": reason,
        "since": times.stamp(since) if since else None,
        "limit": limit,
    }
    body = api.get("/api/v1/decisions", query)
    decisions = body["decisions"]
    if name and not decisions:
        # A target that is long gone has a past; a name that was mistyped has none.
        names.resolve(api, name)
    if output == "json":
        print_json(body)
        return
    out = console()
    if not decisions:
        say(out, "Nothing was decided" + (f" since {times.both(since, times.now())}." if since else " yet."))
        return
    show_decisions(
        out, decisions, times.now(), target=len({each["target"] for each in decisions}) > 1 or not name
    )
    if len(decisions) == limit:
        note(f"These are the last {limit}; more with --limit.")
