"""Overrides as people read them."""

import re
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from responder.client import names, times
from responder.client.tables import Column, note, say, show, styled

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COLUMNS = (
    Column("ID", give=True, middle=True),
    Column("WHAT"),
    Column("FOR", give=True, middle=True, least=22),
    Column("STATE", usual="active"),
    Column("ENDS"),
    Column("AT", drop=3),
    Column("BY", give=True, drop=2),
    Column("WHY", give=True, drop=1, least=16),
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


def brief(override: Any) -> str:
    """The same, shorter where that is clear."""
    return names.brief(override["target"]) if override["target"] else whom(override)


def short_id(identity: str, out: Console) -> str:
    """As much of an id as people need; programs get all of it."""
    return identity[:8] if out.is_terminal and _UUID.fullmatch(identity) else identity


def show_overrides(out: Console, overrides: Any, now: datetime) -> None:
    rows: list[list[str | Text]] = [
        [
            short_id(each["id"], out),
            what(each),
            brief(each) if out.is_terminal else whom(each),
            styled(each["state"]),
            *ends(each, now),
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
    say(out, f"End it early with: gpu-responder override expire {short_id(override['id'], out)}", style="dim")
    if override.get("warning"):
        note(f"Note: {override['warning']}.")
    for write in override.get("inFlight") or ():
        note(
            f"Note: a write from {write['from']} to {write['to']} on {write['target']} was already under way "
            "and may still take effect."
        )


def ends(override: Any, now: datetime) -> tuple[str, str]:
    """How long from now, and when."""
    at = times.parse(override.get("expiredAt") or override["endsAt"])
    return times.ago(at, now), times.absolute(at, now)
