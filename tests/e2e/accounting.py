"""Holds what the API server saw against what history says: every change one for one, every episode once. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from responder.model import HistoryEntry, Outcome, Record
from responder.settle import MANAGER

EFFECTS = (Outcome.APPLIED, Outcome.UNCERTAIN)


@dataclass(frozen=True, slots=True)
class Told:
    """One episode as the senders told it: a trigger that fired once on a target.

    `acknowledged` when a firing notification of it was; `awaited` when it fired until its effect was seen.
    """

    target: str
    trigger: str
    step: int
    fingerprints: frozenset[str]
    starts_at: datetime
    acknowledged: bool = True
    awaited: bool = True


@dataclass(slots=True)
class Account:
    """What was counted, and every fault found, each a sentence."""

    counts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def table(self) -> str:
        width = max(map(len, self.counts), default=0)
        lines = [f"  {name.ljust(width)} {count:6}" for name, count in self.counts.items()]
        return "\n".join([*lines, *(f"  FAULT: {fault}" for fault in self.faults)])


def account(
    scales: Sequence[Mapping[str, Any]],
    history: Sequence[HistoryEntry],
    told: Sequence[Told],
    *,
    target_of: str = "{namespace}/deployment/{name}",
) -> Account:
    """`scales` and `history` oldest first."""
    found = Account()
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for scale in scales:
        seen.setdefault(target_of.format(**scale), []).append(scale)
    claims: dict[str, list[HistoryEntry]] = {}
    for entry in history:
        if entry.outcome in EFFECTS and not entry.dry_run:
            claims.setdefault(entry.target, []).append(entry)
    versions = _versions_decided_on(history)
    pairs: list[tuple[Mapping[str, Any], HistoryEntry]] = []
    for target in sorted(seen.keys() | claims.keys()):
        ours = [scale for scale in seen.get(target, ()) if scale["manager"] == MANAGER]
        matched = _match(found, target, ours, claims.get(target, []))
        _check_versions(found, target, seen.get(target, []), matched, versions)
        pairs += matched
    _check_intents(found, claims)
    _check_chain(found, seen)
    uncertain = [e for entries in claims.values() for e in entries if e.outcome is Outcome.UNCERTAIN]
    _check_episodes(found, pairs, uncertain, told)
    outcomes = Counter(entry.outcome for entry in history if entry.outcome is not None)
    found.counts = {
        "replica changes the server took": len(scales),
        "  of them ours": sum(scale["manager"] == MANAGER for scale in scales),
        "  of them a rival's": sum(scale["manager"] != MANAGER for scale in scales),
        "history: applied": outcomes[Outcome.APPLIED],
        "  found by settling": sum(
            entry.outcome is Outcome.APPLIED and entry.message.endswith(")") for entry in history
        ),
        "history: uncertain": outcomes[Outcome.UNCERTAIN],
        "history: not applied": outcomes[Outcome.NOT_APPLIED],
        "history: abandoned": outcomes[Outcome.ABANDONED],
        "matched one for one": len(pairs),
        "  whose resourceVersion history has": sum(entry.intent in versions for _, entry in pairs),
        "episodes told": len(told),
        "  fired until their effect was seen": sum(episode.awaited for episode in told),
        **found.counts,
    }
    return found


def _match(
    found: Account, target: str, ours: Sequence[Mapping[str, Any]], claims: Sequence[HistoryEntry]
) -> list[tuple[Mapping[str, Any], HistoryEntry]]:
    """In order, from and to being equal. An uncertain entry may go without a change; nothing else may."""

    def fits(scale: Mapping[str, Any], entry: HistoryEntry) -> bool:
        return (scale["from"], scale["to"]) == (entry.current, entry.desired)

    # most[i][j]: the most that can be matched of the changes from i and the entries from j on.
    most = [[0] * (len(claims) + 1) for _ in range(len(ours) + 1)]
    for i in range(len(ours) - 1, -1, -1):
        for j in range(len(claims) - 1, -1, -1):
            most[i][j] = max(most[i + 1][j], most[i][j + 1])
            if fits(ours[i], claims[j]):
                most[i][j] = max(most[i][j], 1 + most[i + 1][j + 1])
    pairs, i, j = [], 0, 0
    while i < len(ours) or j < len(claims):
        if i < len(ours) and j < len(claims) and fits(ours[i], claims[j]):
            better = most[i][j] > 1 + most[i + 1][j + 1]
            if not better:
                pairs.append((ours[i], claims[j]))
                i, j = i + 1, j + 1
                continue
        if j < len(claims) and (i == len(ours) or most[i][j] == most[i][j + 1]):
            if claims[j].outcome is Outcome.APPLIED:
                found.faults.append(
                    f"{target}: history says {claims[j].current} to {claims[j].desired} was applied "
                    f"(intent {claims[j].intent}, {claims[j].at:%H:%M:%S.%f}), and the server saw no such change"
                )
            j += 1
        else:
            found.faults.append(
                f"{target}: the server saw {ours[i]['from']} to {ours[i]['to']} at {ours[i]['time']} "
                f"(version {ours[i]['resourceVersion']}), and history does not have it"
            )
            i += 1
    return pairs


def _versions_decided_on(history: Sequence[HistoryEntry]) -> dict[str, int]:
    """The resourceVersion that an intent was decided on, for those whose decision history has."""
    versions = {}
    for entry in history:
        observed = entry.inputs.get("observed")
        if entry.outcome is None and entry.intent and isinstance(observed, Mapping):
            workload = observed["workload"]
            versions[entry.intent] = int(workload["resource_version"])
    return versions


def _check_versions(
    found: Account,
    target: str,
    seen: Sequence[Mapping[str, Any]],
    pairs: Sequence[tuple[Mapping[str, Any], HistoryEntry]],
    versions: Mapping[str, int],
) -> None:
    """A change landed on the version it was decided on: nothing was written between the two."""
    written = [int(scale["resourceVersion"]) for scale in seen]
    for scale, entry in pairs:
        base = versions.get(entry.intent)
        if base is None:
            continue
        landed = int(scale["resourceVersion"])
        between = [version for version in written if base < version < landed]
        if base >= landed or between:
            found.faults.append(
                f"{target}: intent {entry.intent} was decided on version {base} and landed as {landed}, "
                f"with {between} between"
            )


def _check_intents(found: Account, claims: Mapping[str, Sequence[HistoryEntry]]) -> None:
    times = Counter(entry.intent for entries in claims.values() for entry in entries)
    found.faults += [
        f"intent {intent} took effect {n} times by history" for intent, n in times.items() if n > 1
    ]


def _check_chain(found: Account, seen: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The log itself is whole: each change begins where the one before it ended."""
    for target, scales in seen.items():
        for before, after in pairwise(scales):
            if before["to"] != after["from"]:
                found.faults.append(f"{target}: the log goes from {before['to']} on at {after['from']}")


def _check_episodes(
    found: Account,
    pairs: Sequence[tuple[Mapping[str, Any], HistoryEntry]],
    uncertain: Sequence[HistoryEntry],
    told: Sequence[Told],
) -> None:
    """At most one effect each, of the trigger's own size; exactly one where it was waited for."""
    effects: dict[Told, list[Mapping[str, Any]]] = {episode: [] for episode in told}
    by_alert: dict[tuple[str, str], list[Told]] = {}
    for episode in sorted(told, key=lambda each: each.starts_at):
        for fingerprint in episode.fingerprints:
            by_alert.setdefault((episode.target, fingerprint), []).append(episode)
    for scale, entry in pairs:
        cause = _cause(entry, datetime.fromisoformat(scale["time"]), by_alert)
        if cause is None:
            found.faults.append(f"{entry.target}: nothing told explains {entry.message!r}")
        elif (cause.trigger, cause.step) != (entry.trigger, scale["to"] - scale["from"]):
            found.faults.append(f"{entry.target}: {cause.trigger} led to {scale['from']} to {scale['to']}")
        else:
            effects[cause].append(scale)
    doubtful = {(entry.target, alert) for entry in uncertain for alert in entry.alerts}
    for episode, changes in effects.items():
        name = f"{episode.target}: {episode.trigger} from {episode.starts_at:%H:%M:%S.%f}"
        if len(changes) > 1:
            times = ", ".join(str(change["time"]) for change in changes)
            found.faults.append(f"{name} had {len(changes)} effects: {times}")
        may_lack = any((episode.target, alert) in doubtful for alert in episode.fingerprints)
        if not changes and episode.awaited and episode.acknowledged and not may_lack:
            found.faults.append(f"{name} was acknowledged and had no effect")
        if changes and not episode.acknowledged:
            found.counts["  that took effect unacknowledged"] = (
                found.counts.get("  that took effect unacknowledged", 0) + 1
            )
    found.counts["  with one effect"] = sum(len(changes) == 1 for changes in effects.values())
    found.counts["  with none (short, or uncertain)"] = sum(not changes for changes in effects.values())
    found.counts["  with two or more"] = sum(len(changes) > 1 for changes in effects.values())


def _cause(
    entry: HistoryEntry, at: datetime, by_alert: Mapping[tuple[str, str], Sequence[Told]]
) -> Told | None:
    """The last episode of the entry's alerts that had begun when the server took the change."""
    begun = [
        episode
        for alert in entry.alerts
        for episode in by_alert.get((entry.target, alert), ())
        if episode.starts_at <= at
    ]
    return max(begun, key=lambda episode: episode.starts_at, default=None)


def check_end(
    found: Account,
    records: Sequence[Record],
    replicas: Mapping[str, int],
    last: Mapping[tuple[str, str], tuple[datetime, datetime | None]],
    bounds: tuple[int, int],
) -> None:
    """Nothing is open, what the records know is what is there, and every alert is as it was last acknowledged.

    `last` has startsAt and endsAt by target and fingerprint; `replicas` what is there, by target.
    """
    for record in records:
        key = record.target.key
        if record.intent is not None or record.outstanding is not None:
            found.faults.append(f"{key}: an intent is open: {record.intent or record.outstanding}")
        if record.replicas != replicas[key]:
            found.faults.append(
                f"{key}: the record has {record.replicas} replicas, there are {replicas[key]}"
            )
    for key, count in replicas.items():
        if not bounds[0] <= count <= bounds[1]:
            found.faults.append(f"{key}: {count} replicas are out of bounds {bounds}")
    spans = {
        (record.target.key, span.fingerprint): span for record in records for span in record.alerts.values()
    }
    for (key, fingerprint), (starts_at, ends_at) in last.items():
        span = spans.get((key, fingerprint))
        if span is None:
            found.faults.append(f"{key}: alert {fingerprint} was acknowledged and is not known")
        elif (span.starts_at, span.ends_at, span.firing) != (starts_at, ends_at, ends_at is None):
            found.faults.append(
                f"{key}: alert {fingerprint} was acknowledged as {starts_at} to {ends_at} and is known as "
                f"{span.starts_at} to {span.ends_at}, {'firing' if span.firing else 'resolved'}"
            )
    found.counts["alerts in their last acknowledged state"] = len(last)
