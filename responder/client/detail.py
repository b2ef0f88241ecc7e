"""One target in full: what it is at, why, until when, and what led there."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from responder.client import times
from responder.client.decisions import show_decisions
from responder.client.overrides_view import ends, short_id, what
from responder.client.tables import Column, facts, say, show, styled

_DECISIONS = 10
_ALERTS = 12
_ALERT_COLUMNS = (
    Column("ALERT", give=True),
    Column("STATE"),
    Column("TRIGGER", give=True),
    Column("STARTED"),
    Column("LAST HEARD", drop=1),
)
_CHAIN_COLUMNS = (Column("RULE"), Column("REPLICAS", right=True), Column("WHAT IT SAYS", wrap=True))
_OVERRIDE_COLUMNS = (
    Column("OVERRIDE", give=True, middle=True),
    Column("WHAT"),
    Column("STATE", usual="active"),
    Column("ENDS"),
    Column("AT", drop=3),
    Column("BY", give=True, drop=2),
    Column("WHY", wrap=True, drop=1, least=16),
)


def show_target(out: Console, view: Any, now: datetime, most: int | None = None) -> None:  # noqa: ARG001
    """Print one target as the API has it. What is beyond `most` lines is at the end, and may be cut off."""
    title = Text()
    title.append_text(styled(view["target"], "bold"))
    title.append("  ").append_text(styled(view["state"]))
    say(out, title)
    say(out, view["message"])
    out.print()
    facts(out, _facts(view, now))
    _alerts(out, view["alerts"], now)
    _overrides(out, view["overrides"], now)
    if view.get("chain"):
        _heading(out, "HOW IT CAME TO THIS")
        show_chain(out, [(step["rule"], step["replicas"], step["message"]) for step in view["chain"]])
    decisions = view.get("decisions", ())
    if decisions:
        _heading(out, "LAST DECISIONS")
        show_decisions(out, decisions[:_DECISIONS], now, target=False, indent=2)


def show_chain(out: Console, chain: Iterable[tuple[str, int, str]], indent: int = 2) -> None:
    """Print what each rule made of the number it was handed."""
    rows = [[rule, str(replicas), said] for rule, replicas, said in chain]
    show(out, _CHAIN_COLUMNS, rows, indent)


def _facts(view: Any, now: datetime) -> list[tuple[str, str | Text]]:
    told: list[tuple[str, str | Text]] = [("replicas", _replicas(view, now))]
    since = times.parse(view["decidedAt"])
    if view["reason"]:
        told.append(("reason", f"{view['reason']}, since {times.both(since, now)}"))
    if view["lookAgainAt"]:
        again = times.parse(view["lookAgainAt"])
        due = " and is due" if again is not None and again < now else ""
        told.append(("looks again", times.both(again, now) + due))
    else:
        told.append(("looks again", "when there is news"))
    told.append(("policy", view["policy"] or "none: nothing is written"))
    if view["dryRun"]:
        told.append(("dry run", "nothing is written"))
    failure, intent = view["failure"], view["intent"]
    if failure:
        since, retry = times.parse(failure["since"]), times.parse(failure["retryAt"])
        tries = f"{failure['attempts']} {'try' if failure['attempts'] == 1 else 'tries'}"
        told.append(("fails", styled(f"{failure['reason']}: {failure['message']}", "red")))
        told.append(("", f"since {times.both(since, now)}, {tries}; again {times.both(retry, now)}"))
    if intent:
        begun = times.both(times.parse(intent["decidedAt"]), now)
        told.append(("under way", f"a write from {intent['from']} to {intent['to']}, decided {begun}"))
    if view["foreignAt"]:
        told.append(("changed", f"by somebody else, seen {times.both(times.parse(view['foreignAt']), now)}"))
    return told


def _replicas(view: Any, now: datetime) -> str:
    if view["replicas"] is None:
        return "not looked at yet"
    told = f"{view['replicas']}"
    if view["ready"] is not None:
        told += f", {view['ready']} ready"
        counted = times.counted(view, now)
        told += f" (counted {counted})" if counted else ""
    if view["desired"] is not None and view["desired"] != view["replicas"]:
        told += f"; {view['desired']} wanted"
    if view["maxReplicas"] is not None:
        told += f"; {view['minReplicas']} to {view['maxReplicas']} allowed"
    return told


def _alerts(out: Console, alerts: Any, now: datetime) -> None:
    _heading(out, "ALERTS")
    if not alerts:
        say(out, "none", indent=2)
        return
    rows = [
        [
            alert["name"],
            styled(alert["state"]),
            alert["trigger"] or "-",
            times.both(times.parse(alert["startsAt"]), now),
            times.ago(times.parse(alert["lastSeenAt"]), now),
        ]
        for alert in alerts[:_ALERTS]
    ]
    show(out, _ALERT_COLUMNS, rows, indent=2)
    if len(alerts) > _ALERTS:
        say(out, f"and {len(alerts) - _ALERTS} more: see -o json", indent=2, style="dim")


def _overrides(out: Console, overrides: Any, now: datetime) -> None:
    live = [each for each in overrides if each["state"] != "ended"]
    if not live:
        return
    _heading(out, "OVERRIDES")
    rows = [
        [
            short_id(each["id"], out),
            what(each),
            styled(each["state"]),
            *ends(each, now),
            each["createdBy"],
            each["comment"] or each["source"],
        ]
        for each in live
    ]
    show(out, _OVERRIDE_COLUMNS, rows, indent=2)


def _heading(out: Console, text: str) -> None:
    out.print()
    say(out, text, style="bold")
