"""Overrides as people read them."""

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from responder.client import times
from responder.client.tables import Column, note, say, show, styled

_COLUMNS = (
    Column("ID", give=True, middle=True),
    Column("WHAT"),
    Column("FOR", give=True, middle=True),
    Column("STATE"),
    Column("ENDS"),
    Column("BY", give=True, drop=1),
    Column("WHY", give=True, drop=2),
)
_WORDS = {
    "pause": "pause",
    "pauseScaleUp": "pause up",
    "pauseScaleDown": "pause down",
    "freeze": "freeze",
}


def what(override: Any) -> str:
    """`pin at 3`, `pause`, `bounds 2..6`."""
    kind = override["kind"]
    if kind == "pin":
        return f"pin at {override['replicas']}" + (" (forced)" if override["force"] else "")
    if kind == "bounds":
        least, most = override["minReplicas"], override["maxReplicas"]
        return f"bounds {'' if least is None else least}..{'' if most is None else most}"
    return _WORDS.get(kind, str(kind))


def whom(override: Any) -> str:
    """The target, the matchers, or everything."""
    return str(override["target"]) or ", ".join(override["matchers"]) or "everything"


def show_overrides(out: Console, overrides: Any, now: datetime) -> None:
    rows: list[list[str | Text]] = [
        [
            each["id"],
            what(each),
            whom(each),
            styled(each["state"]),
            _end(each, now),
            each["createdBy"],
            each["comment"],
        ]
        for each in overrides
    ]
    show(out, _COLUMNS, rows)


def told(out: Console, override: Any, now: datetime, did: str) -> None:
    """Say what was done, until when, and how to end it early."""
    starts, ends = times.parse(override["startsAt"]), times.parse(override["endsAt"])
    start = f" from {times.both(starts, now)}" if starts and override["state"] == "pending" else ""
    say(out, f"{did}{start} until {times.both(ends, now)}.")
    say(out, f"End it early with: gpu-responder override expire {override['id']}", style="dim")
    if override.get("warning"):
        note(f"Note: {override['warning']}.")
    for write in override.get("inFlight") or ():
        note(
            f"Note: a write from {write['from']} to {write['to']} on {write['target']} was already under way "
            "and may still take effect."
        )


def _end(override: Any, now: datetime) -> str:
    expired = times.parse(override["expiredAt"])
    return times.both(expired or times.parse(override["endsAt"]), now)
