"""`gpu-responder undo`: back to the count before a decision, held there for a while."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click
from click.shell_completion import CompletionItem

from responder.client import names, times
from responder.client.connection import completing, with_api
from responder.client.http import Api
from responder.client.overrides import PATH, author
from responder.client.overrides_view import told
from responder.client.tables import console, note, output_option, print_json
from responder.errors import ResponderError

_NOT_DONE = {
    "not_applied": "was not carried out",
    "failed": "failed",
    "abandoned": "was given up before it was carried out",
    "gone": "was not carried out, because its target was gone",
    "dry_run": "was a dry run",
}
MOST = 10_000


class NothingToUndo(ResponderError):
    """The decision changed nothing."""


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        found = completing(ctx).get("/api/v1/decisions", {"limit": 50})["decisions"]
    except Exception:  # noqa: BLE001 - a shell that completes has no place for errors
        return []
    return [
        CompletionItem(each["id"], help=f"{each['target']} {each['current']} → {each['desired']}")
        for each in found
        if each["current"] != each["desired"] and str(each["id"]).startswith(incomplete)
    ]


@click.command("undo")
@click.argument("decision", type=int, shell_complete=_complete)
@click.option(
    "--for",
    "for_",
    metavar="LENGTH",
    type=times.length_option,
    default="1h",
    show_default=True,
    help="How long to hold it there.",
)
@click.option("--comment", metavar="TEXT", help="Why.  [default: what was undone]")
@click.option("--created-by", metavar="NAME", help="Who says so.  [default: the token's name, or yours]")
@click.option("--force", is_flag=True, help="Even when that count is outside minReplicas to maxReplicas.")
@output_option
@with_api
def undo(
    api: Api,
    decision: int,
    for_: timedelta,
    comment: str | None,
    created_by: str | None,
    force: bool,
    output: str,
) -> None:
    """Take a target back to the count that it had before a decision, and pin it there.

    DECISION is the ID that gpu-responder history shows. Only the pin is new: the decision stays in history, and
    when the pin ends, alerts that still fire may lead there again.
    """
    undone = _find(api, decision)
    lines = _since(api, undone)
    _check(undone, lines)
    overruled = _later(undone, lines)
    before, after, target = undone["current"], undone["desired"], undone["target"]
    now = times.now()
    made = api.post(
        PATH,
        {
            "kind": "pin",
            "target": target,
            "replicas": before,
            "durationSeconds": for_.total_seconds(),
            "comment": comment or f"Undo of decision {decision}: {undone['reason']} from {before} to {after}",
            **({"force": True} if force else {}),
            **author(api, created_by),
        },
    )
    if output == "json":
        print_json({"undone": undone, "override": made, "overruled": overruled})
        return
    at = times.both(times.parse(undone["at"]), now)
    told(
        console(),
        made,
        now,
        f"Undid decision {decision}, which scaled {target} from {before} to {after} at {at}: pinned at {before}",
    )
    if overruled:
        note(_overrules(overruled))
        return
    known = names.target(api, target)
    if known and known["replicas"] not in (None, before, after):
        note(f"Note: since that decision it had gone on to {known['replicas']}.")


def _find(api: Api, number: int) -> Any:
    found = api.get("/api/v1/decisions", {"id": number})["decisions"]
    for each in found:
        if each["id"] == number:
            return each
    raise NothingToUndo(f"there is no decision {number}: gpu-responder history shows their IDs")


def _since(api: Api, decision: Any) -> list[Any]:
    """What history has of its target from that decision on, newest first."""
    query = {key: decision[key] for key in ("namespace", "kind", "name")}
    found: list[Any] = api.get("/api/v1/decisions", {**query, "since": decision["at"], "limit": MOST})[
        "decisions"
    ]
    return found


def _later(undone: Any, lines: Sequence[Any]) -> list[Any]:
    """Later decisions that changed the count, or may have, oldest first."""
    became = {line["intent"]: line["outcome"] for line in reversed(lines) if line["outcome"]}
    changed: dict[str, Any] = {}
    for line in reversed(lines):
        # A decision and what became of it are two lines of one intent.
        key = line["intent"] or f"of no intent: {line['id']}"
        if line["id"] > undone["id"] and line["current"] != line["desired"] and not line["dryRun"]:
            changed.setdefault(key, line)
    own = undone["intent"]
    return [line for key, line in changed.items() if key != own and became.get(key) not in _NOT_DONE]


def _overrules(later: Sequence[Any]) -> str:
    last = later[-1]
    what = f"{last['id']} ({last['reason']}, from {last['current']} to {last['desired']})"
    if len(later) == 1:
        return f"Note: this also overrules the later decision {what}."
    return f"Note: this also overrules {len(later)} later decisions, the last of them {what}."


def _check(decision: Any, lines: Sequence[Any]) -> None:
    """Raise NothingToUndo if it changed nothing."""
    number, target, reason = decision["id"], decision["target"], decision["reason"]
    if decision["current"] == decision["desired"]:
        raise NothingToUndo(
            f"decision {number} changed nothing: it left {target} at {decision['current']} ({reason}), "
            "so there is nothing to undo"
        )
    outcome = "dry_run" if decision["dryRun"] else decision["outcome"] or _outcome(decision, lines)
    if outcome in _NOT_DONE:
        raise NothingToUndo(
            f"decision {number} would have taken {target} from {decision['current']} to {decision['desired']} "
            f"and {_NOT_DONE[outcome]}, so there is nothing to undo"
        )


def _outcome(decision: Any, lines: Sequence[Any]) -> str:
    """What became of the decision's intent, which stands in a line of its own."""
    if not decision["intent"]:
        return ""
    return next((e["outcome"] for e in lines if e["intent"] == decision["intent"] and e["outcome"]), "")
