"""Explanations and replays as people and programs read them."""

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from responder.client import times
from responder.client.detail import show_chain
from responder.client.tables import Column, say, show, styled
from responder.explain.offline import Explained, Explanation, Fate
from responder.explain.replay import Difference, Replayed
from responder.model import Decision

_ALERTS = (
    Column("ALERT", give=True),
    Column("STATE"),
    Column("POLICY", give=True, drop=1),
    Column("TRIGGER", give=True),
    Column("LEADS TO", give=True, wrap=True),
)
_MOST = 20


def show_explanation(out: Console, explanation: Explanation) -> None:
    """Print it."""
    fates = explanation.fates
    say(out, "ALERTS", style="bold")
    show(out, _ALERTS, [_row(fate) for fate in fates[:_MOST]], indent=2)
    if len(fates) > _MOST:
        say(out, f"and {len(fates) - _MOST} more: see -o json", indent=2, style="dim")
    if not explanation.decisions:
        out.print()
        say(out, "Nothing would be decided: no alert of it leads to a target.")
    for explained in explanation.decisions:
        out.print()
        _show_decision(out, explained, explanation.at)


def _show_decision(out: Console, explained: Explained, at: datetime) -> None:
    decision = explained.decision
    title = Text()
    title.append_text(styled(explained.target, "bold"))
    title.append("  ").append_text(styled(_change(decision), "bold cyan" if decision.acts else "yellow"))
    title.append(f"  {decision.reason}")
    if decision.dry_run:
        title.append("  (dry run: not written)")
    say(out, title)
    say(out, decision.message, indent=2)
    if decision.chain:
        out.print()
        show_chain(out, [(step.rule, step.replicas, step.message) for step in decision.chain])
        out.print()
    again = decision.look_again_at
    say(out, f"It would look again {_when(again, at) if again else 'when there is news'}.", indent=2)
    if explained.assumed:
        say(out, f"Supposing that {'; '.join(explained.assumed)}.", indent=2, style="dim")


def _when(moment: datetime, at: datetime) -> str:
    return f"at {times.absolute(moment, at)}, {times.short(moment - at)} later"


def _row(fate: Fate) -> list[str | Text]:
    leads: str | Text = fate.target or fate.note
    if fate.rejected:
        leads = styled(f"rejected: {fate.rejected}", "red")
    elif fate.target and fate.note:
        leads = f"{fate.target}; {fate.note}"
    state = "firing" if fate.firing else "resolved"
    return [fate.name, styled("" if fate.rejected else state), fate.policy or "-", fate.trigger or "-", leads]


def _change(decision: Decision) -> str:
    return f"{decision.current} → {decision.desired}" if decision.acts else f"stays at {decision.current}"


def show_replay(out: Console, found: Replayed, now: datetime, policy: str) -> None:
    """Print where it differs, and what it was compared with."""
    for difference in found.differences:
        _show_difference(out, difference, now)
    otherwise = sum(each.acts_otherwise for each in found.differences)
    if not found.compared:
        say(out, "There is no recorded decision to compare with.")
        return
    if not found.differences:
        say(out, f"All {found.compared} decisions would be the same under {policy}.")
    else:
        say(
            out,
            f"{len(found.differences)} of {found.compared} decisions would differ under {policy}: "
            f"{otherwise} in the count, {len(found.differences) - otherwise} in the reason only.",
        )
    say(
        out,
        "Each was decided again for itself, from what was recorded then; what would have followed is not played on.",
        style="dim",
    )


def _show_difference(out: Console, difference: Difference, now: datetime) -> None:
    entry, decision = difference.entry, difference.decision
    title = Text()
    title.append_text(styled(f"{difference.id}", "bold"))
    title.append(f"  {times.both(entry.at, now)}  ").append_text(styled(entry.target, "bold"))
    say(out, title)
    was = (
        f"{entry.current} → {entry.desired}"
        if entry.current != entry.desired
        else f"stayed at {entry.current}"
    )
    style = "yellow" if difference.acts_otherwise else ""
    rows: list[list[str | Text]] = [
        ["was", was, entry.reason.value, entry.message],
        ["would be", styled(_change(decision), style), decision.reason.value, decision.message],
    ]
    columns = (Column(""), Column(""), Column(""), Column("", wrap=True))
    show(out, columns, rows, indent=2, title=False)
    if difference.unrecorded:
        names = ", ".join(difference.unrecorded)
        say(
            out,
            f"The value of {names} was not asked for then, so it counts as missing.",
            indent=2,
            style="dim",
        )
    out.print()


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Keys as the API has them."""
    return {
        "at": times.stamp(explanation.at),
        "alerts": [
            {
                "fingerprint": fate.fingerprint,
                "name": fate.name,
                "state": "firing" if fate.firing else "resolved",
                "accepted": not fate.rejected,
                "error": fate.rejected,
                "policy": fate.policy,
                "trigger": fate.trigger,
                "target": fate.target,
                "note": fate.note,
            }
            for fate in explanation.fates
        ],
        "decisions": [
            {"target": each.target, **_decision_json(each.decision), "assumed": list(each.assumed)}
            for each in explanation.decisions
        ],
    }


def replay_json(found: Replayed) -> dict[str, Any]:
    """Keys as the API has them."""
    return {
        "compared": found.compared,
        "skipped": found.skipped,
        "differences": [
            {
                "id": each.id,
                "at": times.stamp(each.entry.at),
                "target": each.entry.target,
                "was": {
                    "current": each.entry.current,
                    "desired": each.entry.desired,
                    "reason": each.entry.reason.value,
                    "message": each.entry.message,
                    "policy": each.entry.policy,
                },
                "wouldBe": _decision_json(each.decision),
                "unrecordedValues": list(each.unrecorded),
            }
            for each in found.differences
        ],
    }


def _decision_json(decision: Decision) -> dict[str, Any]:
    again = decision.look_again_at
    return {
        "current": decision.current,
        "desired": decision.desired,
        "reason": decision.reason.value,
        "message": decision.message,
        "policy": decision.policy,
        "trigger": decision.trigger,
        "dryRun": decision.dry_run,
        "lookAgainAt": times.stamp(again) if again else None,
        "chain": [
            {"rule": step.rule, "replicas": step.replicas, "message": step.message} for step in decision.chain
        ],
    }
