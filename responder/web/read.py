"""Routes that read: targets and decisions, for viewers of the namespaces they may see."""

from collections.abc import Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from flask import Blueprint, Response, request

from responder.model import Reason, Record
from responder.store import HistoryFilter
from responder.web.answers import answer, tagged
from responder.web.app import identity, needs, services
from responder.web.auth import Role
from responder.web.chain import chain_of
from responder.web.finding import not_known, spelt
from responder.web.intake import TEST_STATUS
from responder.web.known import keys, may_see, meant
from responder.web.notices import unreached
from responder.web.queries import limit, moment, number, reason, switch
from responder.web.views import decision_view, moment_view, stamp, state_of, target_view

read = Blueprint("read", __name__, url_prefix="/api/v1")

DECISIONS = 50
"""Of a target's newest, shown with it."""
MOMENTS = 300
"""Of a target's timeline."""


@read.get("/targets")
@needs(Role.VIEWER)
def targets() -> Response:
    """Every target known, with its state and why."""
    own, now = services(), datetime.now(UTC)
    settings, overrides = own.source.current, own.store.overrides()
    seen = [record for record, _ in own.store.records() if may_see(record)]
    found = [target_view(record, settings, overrides, now) for record in seen if _wanted(record)]
    found.sort(key=lambda view: str(view["target"]))
    return tagged(
        {
            "targets": found,
            "asOf": stamp(now),
            "cluster": settings.cluster,
            "dryRun": settings.dry_run,
            "freeze": settings.freeze,
            "safeMode": own.safe_mode(settings, own.store.standing(), now),
            "problems": _problems(seen),
        }
    )


@read.get("/targets/<namespace>/<kind>/<name>")
@needs(Role.VIEWER)
def target(namespace: str, kind: str, name: str) -> Response:
    """One target, with its last decisions, how it came to the last, and its timeline."""
    own, now = services(), datetime.now(UTC)
    record = _record(f"{namespace}/{kind}/{name}")
    history = own.store.history(HistoryFilter.of(record.target.key), limit=MOMENTS)
    view = target_view(record, own.source.current, own.store.overrides(), now)
    view["decisions"] = [decision_view(stored) for stored in history[:DECISIONS]]
    view["timeline"] = [moment_view(stored.entry) for stored in reversed(history)]
    last = next((stored.entry for stored in history if stored.entry.outcome is None), None)
    view["chain"] = chain_of(last, own.source.current) if last is not None else []
    return tagged(view)


@read.get("/test-alert")
@needs(Role.VIEWER)
def test_alert() -> Response:
    """The last test alert that arrived; all empty if none has."""
    said = services().store.statuses().get(TEST_STATUS)
    body = said.body if said is not None else {}
    return answer({key: body.get(key, "") for key in ("id", "receivedAt", "receiver", "sender")})


@read.get("/decisions")
@needs(Role.VIEWER)
def decisions() -> Response:
    """History, newest first. With `inputs=true` each has what it was made from, to be decided again."""
    wanted = request.args
    asked = HistoryFilter(
        namespace=wanted.get("namespace", ""),
        kind=spelt(wanted.get("kind", "")),
        name=wanted.get("name", ""),
        reason=reason("reason"),
        since=moment("since"),
        id=number("id"),
        namespaces=identity().namespaces,
    )
    entries, inputs = services().store.history(asked, limit=limit()), switch("inputs")
    return tagged({"decisions": [decision_view(entry, inputs) for entry in entries]})


def _record(text: str) -> Record:
    """The target's record. Raises BadRequest: 404 with near ones."""
    found = meant(text)
    kept = services().store.record(found.key) if found.known else None
    if kept is None:
        raise not_known(text, keys(), "")
    return kept[0]


def _problems(records: Iterable[Record]) -> list[str]:
    """What a person on call should know before reading on."""
    own = services()
    found = [f"{notice.title}: {notice.text}" for notice in unreached(datetime.now(UTC))]
    found += [problem for problem in (own.source.error, own.access.error) if problem]
    unreachable = [
        record.failure
        for record in records
        if record.failure is not None and record.failure.reason is Reason.API_UNAVAILABLE
    ]
    if unreachable:
        last = max(unreachable, key=lambda failure: failure.since)
        found.append(
            f"the Kubernetes API could not be reached for {len(unreachable)} of the targets: {last.message}"
        )
    return found


def _wanted(record: Record) -> bool:
    wanted: dict[str, Any] = request.args
    have = {
        "namespace": record.target.namespace,
        "kind": record.target.key.split("/")[1],
        "name": record.target.name,
        "state": state_of(record),
    }
    if any(not fnmatchcase(value, wanted[key]) for key, value in have.items() if wanted.get(key)):
        return False
    return str(wanted.get("q", "")) in record.target.key
