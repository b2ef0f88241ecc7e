"""Lines of history: in a terminal the sentence stands below its line, elsewhere on it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from responder.client import names, times
from responder.client.tables import Column, say, show, styled, table

_COLUMNS = (
    Column("ID", right=True),
    Column("AT"),
    Column("AGO", right=True),
    Column("TARGET", give=True, middle=True, least=20),
    Column("CHANGE"),
    Column("REASON", give=True),
    Column("OUTCOME"),
)
_OUTCOMES = {"applied": "green", "dry_run": "dim", "failed": "red", "uncertain": "yellow"}


def show_decisions(
    out: Console, decisions: Sequence[Any], now: datetime, *, target: bool = True, indent: int = 0
) -> None:
    """Print decisions, with the target's name unless that is clear."""
    shown = _COLUMNS if target else tuple(column for column in _COLUMNS if column.title != "TARGET")
    if not out.is_terminal:
        rows = [[*_row(each, now, False, target), each["message"]] for each in decisions]
        show(out, (*shown, Column("WHY")), rows, indent)
        return
    rows = [_row(each, now, True, target) for each in decisions]
    made = table(shown, rows, out.width - indent)
    # One table, so that columns keep their places; each sentence goes below its own line.
    lines = out.render_lines(made, out.options.update(width=out.width - indent), pad=False)
    for number, line in enumerate(lines):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        out.print(Padding(text, (0, 0, 0, indent)))
        if number and number <= len(decisions):
            decision, newer = decisions[number - 1], decisions[number - 2] if number > 1 else None
            if newer is None or not _repeats(decision, newer):
                say(out, reason_only(decision), indent=indent + 4, style="dim")


def reason_only(decision: Any) -> str:
    """The sentence without its beginning, which the line above it has in columns."""
    sentence, target = str(decision["message"]), decision["target"]
    holding = f"Holding {target} at {decision['current']}: "
    scaling = f"Scaling {target} from {decision['current']} to {decision['desired']}: "
    return sentence.removeprefix(holding).removeprefix(scaling)


def _repeats(decision: Any, newer: Any) -> bool:
    """True of a decision whose outcome, with the same sentence, stands just above it."""
    return bool(decision["intent"]) and all(decision[key] == newer[key] for key in ("intent", "message"))


def change(decision: Any) -> str:
    """`3 → 5`, or the count that it held."""
    if decision["current"] == decision["desired"]:
        return str(decision["current"])
    return f"{decision['current']} → {decision['desired']}"


def _row(decision: Any, now: datetime, brief: bool, target: bool) -> list[str | Text]:
    at = times.parse(decision["at"])
    outcome = decision["outcome"] or ""
    style = "bold" if decision["current"] != decision["desired"] else ""
    row: list[str | Text] = [
        str(decision["id"]),
        times.absolute(at, now),
        times.ago(at, now).removesuffix(" ago"),
        names.brief(decision["target"]) if brief else decision["target"],
        styled(change(decision), style),
        decision["reason"],
        styled(outcome.replace("_", " "), _OUTCOMES.get(outcome, "")),
    ]
    if not target:
        del row[3]
    return row
