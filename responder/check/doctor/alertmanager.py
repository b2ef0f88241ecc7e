"""Alertmanager: reachable, routing to us, and delivering."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from responder.check import chain, located, routes, routes_checks
from responder.check.chain import Alert, Chain, Timings
from responder.check.doctor.servers import Server, Unanswered, unreachable
from responder.check.findings import Finding, Severity, error, note, warning
from responder.check.labels import Truth, truth
from responder.check.routes import Routing
from responder.check.sources import Sources
from responder.matchers import Matcher, of_json

_COUNTER = re.compile(r"^alertmanager_(notifications(?:_failed)?_total)\{([^}]*)\}\s+(\S+)", re.MULTILINE)
_SOME = 0.01
"""Share of failed notifications above which it is no accident."""


def reach(server: Server) -> tuple[Routing | None, list[Finding]]:
    """Its configuration as it runs, and what is wrong with reaching it."""
    try:
        status = server.json("/api/v2/status")
        original = status["config"]["original"]
        peers = status.get("cluster", {}).get("status", "")
    except Unanswered as problem:
        return None, [unreachable(server, problem)]
    except (KeyError, TypeError):
        said = f"{server.name} does not answer /api/v2/status as Alertmanager does."
        return None, [error(server.place, 0, "unreachable", said, "check the URL, and any prefix in it")]
    found: list[Finding] = []
    if peers == "settling":
        said = f"{server.name} still looks for its peers, and may notify twice."
        found.append(note(server.place, 0, "settling", said, "wait a minute"))
    documents, wrong = located.read(str(original), server.place)
    running = next(filter(routes.is_alertmanager, documents), None)
    if running is None:
        return None, [*found, *wrong]
    routing, faults = routes.read(running)
    return routing, [*found, *faults]


def routing(
    server: Server, running: Routing, sources: Sources, receivers: Sequence[str], timings: Timings
) -> tuple[Chain, list[Finding]]:
    """The chain by way of the configuration that runs, and what `check` finds wrong with it."""
    live = replace(sources, routings=[running], findings=[], operated=[], plain_alertmanagers=[])
    built = chain.build(live, receivers, timings)
    found = [_there(server, each) for each in routes_checks.check(built)]
    return built, found


def _there(server: Server, found: Finding) -> Finding:
    """A route's fault as one of the running configuration, whose lines no file of the reader's has."""
    if found.file != server.place:
        return found
    return replace(found, line=0, mend=f"{found.mend} in its configuration, and reload it")


def deliveries(server: Server) -> Iterator[Finding]:
    """Whether its notifications by webhook fail."""
    try:
        page = server.text("/metrics").decode("utf-8", "replace")
    except Unanswered as problem:
        said = f"Notifications that failed are not known: {server.name} {problem}."
        yield note(server.place, 0, "metrics-unknown", said, "let /metrics be read from here")
        return
    sent, failed, reasons = 0.0, 0.0, set()
    for name, labels, value in _COUNTER.findall(page):
        if 'integration="webhook"' not in labels:
            continue
        if name == "notifications_total":
            sent += float(value)
        elif float(value):
            failed += float(value)
            reasons |= set(re.findall(r'reason="([^"]*)"', labels))
    if not failed:
        return
    why = f" ({', '.join(sorted(reasons))})" if reasons else ""
    said = f"Of {sent:.0f} notifications by webhook {failed:.0f} have failed since it started{why}."
    mend = "read its log for the last error, and check the URL, token and CA in its receiver"
    severity = Severity.WARNING if sent and failed / sent > _SOME else Severity.NOTE
    yield Finding(server.place, 0, severity, "deliveries-failing", said, mend)


def silences(server: Server, built: Chain) -> Iterator[Finding]:
    """Silences in Alertmanager that keep scaling alerts from the service, unseen by it."""
    try:
        found = server.json("/api/v2/silences")
        active = [each for each in found if each["status"]["state"] == "active"]
    except (Unanswered, KeyError, TypeError):
        return
    for each in active:
        try:
            wanted = [of_json({"isRegex": False, **matcher}) for matcher in each["matchers"]]
        except (KeyError, TypeError, ValueError):
            continue
        kept = [alert.name for alert in built.scaling if _silences(wanted, alert)]
        if kept:
            about = kept[0] if len(kept) < 2 else f"{kept[0]} and {len(kept) - 1} more"
            who, why = each.get("createdBy") or "nobody named", each.get("comment", "")
            said = f"A silence by {who} keeps {about} away: {why}."
            mend = "end it when it is over, or silence in the responder, which then can say so"
            yield warning(server.place, 0, "silenced", said, mend)


def _silences(matchers: Sequence[Matcher], alert: Alert) -> bool:
    """Whether a silence takes the alert, or some of those that it gives: by labels that it is known to have."""
    known = all(matcher.name in alert.labels.known for matcher in matchers if not matcher.matches({}))
    return known and truth(matchers, alert.labels) is not Truth.NO
