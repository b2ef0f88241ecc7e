"""Routes that read: targets and decisions, for viewers of the namespaces they may see."""

from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from flask import Blueprint, Response, request

from responder.model import Record
from responder.web.answers import answer
from responder.web.app import identity, needs, services
from responder.web.auth import Role
from responder.web.problems import BadRequest
from responder.web.views import decision_view, stamp, state_of, target_view

read = Blueprint("read", __name__, url_prefix="/api/v1")

MAX_LIMIT = 10_000


@read.get("/targets")
@needs(Role.VIEWER)
def targets() -> Response:
    """Every target known, with its state and why."""
    own, now = services(), datetime.now(UTC)
    settings, overrides = own.source.current, own.store.overrides()
    found = [
        target_view(record, settings, overrides, now)
        for record, _ in own.store.records()
        if _may_see(record) and _wanted(record)
    ]
    found.sort(key=lambda view: str(view["target"]))
    return answer(
        {
            "targets": found,
            "asOf": stamp(now),
            "cluster": settings.cluster,
            "dryRun": settings.dry_run,
            "freeze": settings.freeze,
            "safeMode": own.safe_mode(settings, own.store.standing(), now),
            "problems": [problem for problem in (own.source.error, own.access.error) if problem],
        }
    )


@read.get("/targets/<namespace>/<kind>/<name>")
@needs(Role.VIEWER)
def target(namespace: str, kind: str, name: str) -> Response:
    """One target, with its last decisions."""
    own, now = services(), datetime.now(UTC)
    key = f"{namespace}/{kind.lower()}/{name}"
    found = own.store.record(key)
    if found is None or not _may_see(found[0]):
        known = [record.target.key for record, _ in own.store.records() if _may_see(record)]
        near = get_close_matches(key, known, n=3)
        hint = f"; did you mean {near[0]}?" if near else ""
        return answer({"error": f"no target {key} is known{hint}", "near": near}, 404)
    view = target_view(found[0], own.source.current, own.store.overrides(), now)
    view["decisions"] = [decision_view(stored) for stored in own.store.history(target=key, limit=50)]
    return answer(view)


@read.get("/decisions")
@needs(Role.VIEWER)
def decisions() -> Response:
    """History, newest first."""
    wanted = request.args
    entries = services().store.history(
        namespace=wanted.get("namespace", ""),
        kind=wanted.get("kind", ""),
        name=wanted.get("name", ""),
        reason=wanted.get("reason", ""),
        since=_moment("since"),
        limit=_limit(),
        namespaces=identity().namespaces,
    )
    return answer({"decisions": [decision_view(entry) for entry in entries]})


def _may_see(record: Record) -> bool:
    return identity().may_reach(record.target.namespace)


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


def _limit() -> int:
    text = request.args.get("limit", "100")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_LIMIT:
        raise BadRequest(f"limit: {text[:40]!r} is no whole number from 1 to {MAX_LIMIT}")
    return int(text)


def _moment(key: str) -> datetime | None:
    text = request.args.get(key)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise BadRequest(f"{key}: {text[:40]!r} is no time; write it like 2026-01-31T09:00:00Z") from None
    if moment.tzinfo is None:
        raise BadRequest(f"{key}: {text[:40]!r} has no time zone; end it with Z for UTC")
    return moment
