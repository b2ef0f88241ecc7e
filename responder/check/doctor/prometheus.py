"""Prometheus, or what speaks like it: reachable, with the rules of the files, and an Alertmanager to tell."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import promql_parser as pp

from responder import promql
from responder.check import located, prometheus_checks
from responder.check.doctor.servers import Server, Unanswered, unreachable
from responder.check.findings import Finding, error, note, warning
from responder.rules import Group, Rule

_FOR_PEOPLE = ("summary", "description", "message", "runbook_url", "dashboard", "dashboard_url")
_LATE = 3
"""Intervals after which a group that has not been evaluated is late."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer."""

    labels: Mapping[str, str]
    value: float


def query(server: Server, expr: str) -> list[Sample]:
    """The series of an instant query. Raises Unanswered."""
    answer = server.json("/api/v1/query", {"query": expr})
    try:
        if answer["status"] != "success":
            raise Unanswered(f"cannot evaluate {expr}: {str(answer.get('error', ''))[:200]}")
        # Of Prometheus's own, those are about the query.
        warned = [str(each) for each in answer.get("warnings") or () if not str(each).startswith("PromQL")]
        server.partial.update(dict.fromkeys(warned))
        result = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [Sample({}, float(result[1]))]
        return [Sample(each.get("metric", {}), float(each["value"][1])) for each in result]
    except (KeyError, TypeError, ValueError, IndexError):
        raise Unanswered("does not answer /api/v1/query as Prometheus does") from None


def reach(server: Server) -> list[Finding]:
    """Nothing if it answers a query."""
    try:
        query(server, "vector(1)")
    except Unanswered as problem:
        return [unreachable(server, problem)]
    return []


def partial(server: Server) -> Iterator[Finding]:
    """That answers lacked a part, so that what seems missing may be there."""
    if server.partial:
        said = f"{server.name} answers in part only: {'; '.join(list(server.partial)[:3])[:300].rstrip('.')}."
        mend = "bring back what it could not ask, and then look again at what is said to be missing"
        yield warning(server.place, 0, "answers-partial", said, mend)


# --- Rules ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loaded:
    """A rule that the server has."""

    group: str
    file: str
    interval: float
    name: str
    alert: bool
    expr: str
    for_: float
    keep_firing_for: float | None
    """None: it does not say, as before 2.42."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str] | None
    health: str
    last_error: str
    evaluated_at: datetime | None


def loaded(server: Server) -> list[Loaded]:
    """Its rules. Raises Unanswered."""
    answer = server.json("/api/v1/rules")
    try:
        return [
            Loaded(
                group=group["name"],
                file=group.get("file", ""),
                interval=float(group.get("interval", 0)),
                name=rule["name"],
                alert=rule["type"] == "alerting",
                expr=rule["query"],
                for_=float(rule.get("duration", 0)),
                keep_firing_for=float(rule["keepFiringFor"]) if "keepFiringFor" in rule else None,
                labels=rule.get("labels") or {},
                annotations=rule.get("annotations"),
                health=rule.get("health", ""),
                last_error=rule.get("lastError", ""),
                evaluated_at=_time(rule.get("lastEvaluation", "")),
            )
            for group in answer["data"]["groups"] or ()
            for rule in group["rules"] or ()
        ]
    except (KeyError, TypeError, ValueError):
        raise Unanswered("does not answer /api/v1/rules as Prometheus does") from None


def rules(server: Server, groups: Sequence[Group], now: datetime) -> Iterator[Finding]:
    """Whether the rules of the files are the rules in force, and healthy. `now` is by the server's clock."""
    try:
        found = loaded(server)
    except Unanswered as problem:
        mend = "give the ruler's URL with --ruler-url (Thanos Ruler, Mimir, vmalert)"
        yield warning(server.place, 0, "rules-unknown", f"{server.name} {problem}.", mend)
        return
    yield from _health(server, found, now)
    if not groups:
        return
    for group in groups:
        mine = _same_group(group, found)
        if not mine:
            said = f"Group {group.name} is not loaded in {server.name}."
            yield error(
                group.file, group.line, "rule-not-loaded", said, "load the file, and reload the server"
            )
            continue
        there = mine[0].interval
        if group.interval and there and there != _seconds(group.interval):
            said = f"{server.name} evaluates group {group.name} every {there:g} s, and the file says {group.interval}."
            mend = "load the file as it is, and reload the server"
            yield warning(group.file, group.line, "rule-differs", said, mend)
        yield from _compared(server, group, mine)


def _same_group(group: Group, found: Sequence[Loaded]) -> list[Loaded]:
    """The rules of the group of that name; if several files have one, of that with the most rules in common."""
    by_file: dict[str, list[Loaded]] = {}
    for rule in found:
        if rule.group == group.name:
            by_file.setdefault(rule.file, []).append(rule)
    names = {rule.name for rule in group.rules}
    return max(by_file.values(), key=lambda those: len(names & {rule.name for rule in those}), default=[])


def _health(server: Server, found: Sequence[Loaded], now: datetime) -> Iterator[Finding]:
    for rule in found:
        if rule.health == "err":
            said = f"Rule {rule.name} of group {rule.group} cannot be evaluated: {rule.last_error[:300]}."
            yield error(server.place, 0, "rule-failing", said, "mend the rule or the series that it needs")
    late: dict[str, float] = {}
    for rule in found:
        if rule.evaluated_at is None or not rule.interval or rule.health == "unknown":
            continue
        age = (now - rule.evaluated_at).total_seconds()
        if age > _LATE * rule.interval + 5:
            late[rule.group] = max(late.get(rule.group, 0), age)
    for name, age in late.items():
        said = f"Group {name} was last evaluated {age:.0f} s ago, much longer than its interval."
        yield warning(server.place, 0, "rules-late", said, "look for a slow query, or an overloaded server")


def _compared(server: Server, group: Group, mine: Sequence[Loaded]) -> Iterator[Finding]:
    left = list(mine)
    for rule in group.rules:
        same_name = [each for each in left if each.name == rule.name and each.alert == bool(rule.alert)]
        best = min(same_name, key=lambda each: len(_differences(rule, each)), default=None)
        if best is None:
            said = f"{rule.name} of group {group.name} is not loaded in {server.name}."
            yield error(
                rule.file, rule.line, "rule-not-loaded", said, "load the file as it is, and reload the server"
            )
            continue
        left.remove(best)
        differences = _differences(rule, best)
        if differences:
            said = f"{rule.name} in {server.name} differs from the file in {' and '.join(differences)}."
            yield warning(
                rule.file, rule.line, "rule-differs", said, "load the file as it is, and reload the server"
            )
    for each in left:
        said = f"{server.name} has {each.name} in group {group.name}, which the file has not."
        yield warning(
            group.file, group.line, "rule-differs", said, "load the file as it is, and reload the server"
        )


def _differences(rule: Rule, there: Loaded) -> list[str]:
    found = []
    if normal(rule.expr) != normal(there.expr):
        found.append("its expression")
    if _seconds(rule.for_) != there.for_:
        found.append(f"`for` ({there.for_:g} s there)")
    if there.keep_firing_for is not None and _seconds(rule.keep_firing_for) != there.keep_firing_for:
        found.append(f"keep_firing_for ({there.keep_firing_for:g} s there)")
    wanted = {key: value for key, value in rule.labels.items() if value}
    if wanted != {key: there.labels.get(key, "") for key in wanted}:
        found.append("its labels")
    if there.annotations is not None and _sized_by(rule.annotations) != _sized_by(there.annotations):
        found.append("its annotations")
    return found


def _sized_by(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that a policy may go by: words are for people, and links differ from place to place."""
    return {name: text for name, text in annotations.items() if name not in _FOR_PEOPLE}


def normal(expr: str) -> str:
    """An expression without what does not matter: spaces, comments, the order of matchers."""
    try:
        return _sorted_matchers(str(pp.parse(expr).prettify()))
    except ValueError:
        return " ".join(expr.split())


def _sorted_matchers(text: str) -> str:
    out, depth, part = [], 0, ""
    for char in " ".join(text.split()):
        if char == "{":
            depth += 1
        if depth:
            part += char
        else:
            out.append(char)
        if char == "}":
            depth -= 1
            if not depth:
                out.append("{" + ",".join(sorted(part[1:-1].split(","))) + "}")
                part = ""
    return "".join(out) + part


def _seconds(duration: str | None) -> float:
    return promql.duration_ms(duration) / 1000 if duration else 0.0


def _time(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.year > 1 and at.tzinfo is not None else None


# --- The way to Alertmanager -------------------------------------------------------------------------


def onward(server: Server, alertmanagers: Sequence[str]) -> Iterator[Finding]:
    """Whether it knows an Alertmanager, and parts one alert into two by a label of its own."""
    try:
        active = server.json("/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    except (Unanswered, KeyError, TypeError):
        said = f"{server.name} does not say to which Alertmanager it sends alerts."
        yield note(server.place, 0, "alertmanagers-unknown", said, "ask the ruler, with --ruler-url")
        return
    if not active:
        said = f"{server.name} sends its alerts to no Alertmanager."
        yield error(
            server.place, 0, "no-alertmanager", said, "add alerting.alertmanagers to its configuration"
        )
    yield from _dropped(server)
    yield from _labels(server)
    if active and alertmanagers and len(active) != len(alertmanagers):
        said = f"{server.name} sends alerts to {len(active)} Alertmanagers, and {len(alertmanagers)} were given here."
        yield note(server.place, 0, "alertmanagers-differ", said, "give each with --alertmanager-url")


def _dropped(server: Server) -> Iterator[Finding]:
    try:
        lost = sum(
            each.value for each in query(server, "increase(prometheus_notifications_dropped_total[15m]) > 0")
        )
    except Unanswered:
        return
    if lost >= 1:
        said = f"{server.name} has dropped {lost:.0f} alerts within 15 minutes, because Alertmanager did not take them."
        yield error(
            server.place, 0, "alerts-dropped", said, "look at Alertmanager and the network between the two"
        )


def _labels(server: Server) -> Iterator[Finding]:
    try:
        text = server.json("/api/v1/status/config")["data"]["yaml"]
    except (Unanswered, KeyError, TypeError):
        return
    documents, _ = located.read(str(text), server.place)
    for document in documents[:1]:
        for found in prometheus_checks.replica_labels(document):
            yield replace(found, line=0)  # of a text that the reader has not before them


def server_time(server: Server, now: datetime) -> datetime:
    """Our `now` by the server's clock."""
    return now + timedelta(seconds=server.clock.ahead if server.clock else 0)
