"""`gpu-responder targets`: all of them in a table, or one with everything that explains it."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from responder.client import names, times, watch
from responder.client.connection import with_api
from responder.client.detail import show_target
from responder.client.http import Api
from responder.client.tables import Column, console, output_option, print_json, say, show, styled
from responder.web.board import STATES

COLUMNS = (
    Column("TARGET", give=True, middle=True, least=20),
    Column("STATE"),
    Column("READY", right=True),
    Column("COUNTED", usual="-"),
    Column("WANTS", right=True),
    Column("ALLOWED", right=True, drop=2),
    Column("REASON", give=True),
    Column("SINCE", drop=1),
    Column("WHY", give=True, drop=3, least=24),
)


@click.command("targets")
@click.argument("name", required=False, shell_complete=names.complete_target)
@click.option("-n", "--namespace", metavar="GLOB", help="Only targets in these namespaces.")
@click.option("--kind", metavar="GLOB", help="Only targets of this kind, such as deployment.")
@click.option("--state", type=click.Choice(STATES), help="Only targets in this state.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Keep the output up to date until Ctrl-C.")
@output_option
@with_api
def targets(
    api: Api,
    name: str | None,
    namespace: str | None,
    kind: str | None,
    state: str | None,
    watching: bool,
    output: str,
) -> None:
    """Show every target, or explain one.

    NAME is namespace/kind/name, or shorter where that is enough: inference/vllm, vllm. A name with * in it lists
    the targets that match.
    """
    if name and not _is_glob(name):
        path, query = names.path_of(names.resolve(api, name)), {}
        draw: watch.Draw = show_target
    else:
        path, query = (
            "/api/v1/targets",
            {"namespace": namespace, "kind": kind, "state": state, **_globs(name)},
        )
        draw = partial(show_all, narrowed=any(query.values()))
    if watching:
        watch.watch(api, path, query, draw, as_json=output == "json")
        return
    body = api.get(path, query)
    if output == "json":
        print_json(body)
    else:
        draw(console(), body, times.now(), None)


def show_all(
    out: Console, body: Any, now: datetime, most: int | None = None, *, narrowed: bool = False
) -> None:
    """The table of all targets, in `most` lines, with what concerns all of them above it."""
    banners = _banners(body)
    for line, style in banners:
        say(out, line, style=style)
    found: Sequence[Any] = sorted(body["targets"], key=_urgency)
    if not found:
        none = "No target is known: one is known once an alert for it has arrived."
        say(
            out, "No target fits: gpu-responder targets alone lists all that are known." if narrowed else none
        )
        return
    shown = found
    if most is not None and len(found) > most - len(banners) - 2:
        shown = found[: max(most - len(banners) - 3, 1)]
    show(out, COLUMNS, [_row(view, out.is_terminal, now) for view in shown])
    if len(shown) < len(found):
        more = len(found) - len(shown)
        say(out, f"… and {more} more: narrow it with --namespace or --state", style="dim")
    if out.is_terminal:
        states = [view["state"] for view in found]
        told = ", ".join(f"{states.count(each)} {each}" for each in STATES if each in states)
        say(out, f"{len(found)} {'target' if len(found) == 1 else 'targets'}: {told}", style="dim")


def _row(view: Any, brief: bool, now: datetime) -> list[str | Text]:
    least, most = view["minReplicas"], view["maxReplicas"]
    wants = view["desired"]
    return [
        names.brief(view["target"]) if brief else view["target"],
        styled(view["state"]),
        f"{_number(view['ready'])}/{_number(view['replicas'])}",
        times.counted(view, now) or "-",
        styled(_number(wants), "bold" if wants is not None and wants != view["replicas"] else ""),
        "-" if most is None else f"{least}..{most}",
        (view["reason"] or "-") + (" (dry run)" if view["dryRun"] else ""),
        times.ago(times.parse(view["decidedAt"]), now).removesuffix(" ago"),
        _why(view),
    ]


def _urgency(view: Any) -> tuple[int, str]:
    state = view["state"]
    return STATES.index(state) if state in STATES else len(STATES), view["target"]


def _why(view: Any) -> str:
    """The sentence without the target's name, which stands beside it."""
    sentence: str = (view["failure"] or {}).get("message") or view["message"] or ""
    for head in (f"Holding {view['target']} at ", f"Scaling {view['target']} from "):
        if sentence.startswith(head):
            return sentence.partition(": ")[2] or sentence
    return sentence


def _banners(body: Any) -> list[tuple[str, str]]:
    told = []
    if body.get("freeze"):
        told.append((f"FROZEN by the policy file: {body['freeze']}", "bold red"))
    if body.get("safeMode"):
        told.append((f"SAFE MODE: {body['safeMode']}; scale-down is held", "bold yellow"))
    if body.get("dryRun"):
        told.append(("DRY RUN: nothing is written", "bold yellow"))
    return [*told, *((f"PROBLEM: {problem}", "bold red") for problem in body.get("problems", ()))]


def _number(value: Any) -> str:
    return "-" if value is None else str(value)


def _is_glob(name: str) -> bool:
    return any(char in name for char in "*?[")


def _globs(name: str | None) -> dict[str, str]:
    if not name:
        return {}
    namespace, kind, short = names.parts_of(name)
    given = {"namespace": namespace, "kind": kind, "name": short}
    return {key: value for key, value in given.items() if value}
