"""Routes for those who run the service: health, readiness, reload, metrics."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, request

from responder import metrics
from responder.errors import ConfigError, StoreUnavailable
from responder.web.answers import answer
from responder.web.app import needs, services
from responder.web.audit import line
from responder.web.auth import Role
from responder.web.known import check_sees_all
from responder.web.notices import said_by_actor

operations = Blueprint("operations", __name__)

log = logging.getLogger(__name__)


@operations.get("/-/healthy")
@needs(None)
def healthy() -> Response:
    """The process answers."""
    return answer({"status": "healthy"})


@operations.get("/-/ready")
@needs(None)
def ready() -> Response:
    """200 when deliveries can be taken; 503 and why when not. What is amiss besides is told either way."""
    own = services()
    store = "the service is stopping" if own.draining() else own.store.ready()
    details: dict[str, Any] = {"store": store, "policy": own.source.error, "tokens": own.access.error}
    if not store:
        try:
            details["safeMode"] = own.safe_mode(own.source.current, own.store.standing(), datetime.now(UTC))
            details |= _of_the_actor(datetime.now(UTC))
        except StoreUnavailable as error:
            store = details["store"] = str(error)
    body: dict[str, Any] = {
        "status": "not ready" if store else "ready",
        "details": {name: detail for name, detail in details.items() if detail},
    }
    if store:
        body["error"] = store
    return answer(body, 503 if store else 200)


def _of_the_actor(now: datetime) -> Mapping[str, str]:
    said = said_by_actor(now)
    if said is None:
        return {
            "actor": "no process acts, so deliveries are kept and nothing is scaled: the service's log says why"
        }
    return said


@operations.post("/-/reload")
@needs(Role.OPERATOR)
def reload() -> Response:
    """Read the policy file now, in every process; 422 and why if it is wrong, and the old one stays.

    For operators of all namespaces: it also has what failed for good tried again, everywhere.
    """
    check_sees_all("the policy file is")
    own = services()
    before = own.source.current.digest
    try:
        own.source.reload()
    except ConfigError as error:
        _audit_reload(before, f"refused, digest {before} stays in force: {error}")
        raise
    own.store.ring()
    after = own.source.current.digest
    _audit_reload(before, f"digest {after}")
    return answer({"status": "reloaded", "digest": after})


def _audit_reload(before: str, result: str) -> None:
    entry = line(datetime.now(UTC), "policy.reload", "policy file", f"digest {before}", result)
    try:
        services().store.audit(entry)
    except StoreUnavailable as error:
        # The file is how a person stops everything when nothing else works: it must not wait for the store.
        log.warning("a reload by %s (%s) is not in the audit: %s", entry.who, result, error)


@operations.get("/metrics")
@needs(Role.VIEWER)
def scrape() -> Response:
    """The service's own metrics, of all its processes. For viewers of all namespaces: they name targets."""
    check_sees_all("the metrics are")
    own = services()
    page, content_type = metrics.exposition(
        request.headers.get("Accept", ""), own.store, own.source, own.safe_mode
    )
    return Response(page, content_type=content_type)
