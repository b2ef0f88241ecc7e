"""The rest of Alertmanager's API v2 that amtool asks for: status and alerts."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, request

from responder.alerting.spans import Condition, condition, fingerprint_of
from responder.deciding.claims import silenced_by
from responder.matchers import Matcher, all_match
from responder.model import Silence, Span
from responder.web.answers import answer
from responder.web.app import identity, needs, services
from responder.web.auth import Role
from responder.web.problems import BadRequest
from responder.web.queries import matchers, switch
from responder.web.views import is_link, stamp

alertmanager = Blueprint("alertmanager", __name__, url_prefix="/api/v2")

RECEIVER = "gpu-responder"
_CONFIG = f"""# This is gpu-responder and no Alertmanager; it has policies in place of routes.
route: {{receiver: {RECEIVER}}}
receivers: [{{name: {RECEIVER}}}]
"""


@alertmanager.get("/status")
@needs(Role.VIEWER)
def status() -> Response:
    """What amtool asks for before anything else. Without versionInfo, which it would compare with its own."""
    return answer(
        {
            "cluster": {"name": services().source.current.cluster, "status": "disabled", "peers": []},
            "config": {"original": _CONFIG},
            "uptime": stamp(services().started_at),
        }
    )


@alertmanager.get("/alerts")
@needs(Role.VIEWER)
def alerts() -> Response:
    """Alerts that are known and not over, with the silences that are about them."""
    own, now = services(), datetime.now(UTC)
    wanted, receiver = matchers("filter"), _receiver()
    states = {
        state
        for state, key in (("active", "active"), ("suppressed", "silenced"))
        if switch(key, default=True)
    }
    silences = [silence for silence in own.store.silences() if silence.in_force(now)]
    views = [
        _view(span, silences)
        for span in _spans(now)
        if all_match(wanted, span.labels) and (receiver is None or receiver.matches({"r": RECEIVER}))
    ]
    found = [view for view in views if view["status"]["state"] in states]
    return answer(sorted(found, key=lambda view: (view["startsAt"], view["fingerprint"])))


def _receiver() -> Matcher | None:
    pattern = request.args.get("receiver")
    if not pattern:
        return None
    try:
        return Matcher("r", "=~", pattern)
    except ValueError as error:
        raise BadRequest(f"receiver: {str(error).rstrip('.')}") from None


def _spans(now: datetime) -> Iterator[Span]:
    """Of targets that may be seen, and those that stand alone, once each."""
    own, who = services(), identity()
    timing, seen = own.source.current.timing, set()
    known = [span for record, _ in own.store.records() if who.may_reach(record.target.namespace)
             for span in record.alerts.values()]  # fmt: skip
    standing = [span for span in own.store.standing() if who.may_reach(span.labels.get("namespace", ""))]
    for span in (*known, *standing):
        if span.fingerprint not in seen and condition(span, timing, now) not in (
            Condition.RESOLVED,
            Condition.FORGOTTEN,
        ):
            seen.add(span.fingerprint)
            yield span


def _view(span: Span, silences: Sequence[Silence]) -> dict[str, Any]:
    by = [silence.id for silence in silences if silenced_by(silence, span.labels)]
    # The webhook does not tell until when an alert holds: for Alertmanager that is its resolve_timeout.
    timeout = services().source.current.timing.alert_timeout
    return {
        "fingerprint": fingerprint_of(span.fingerprint),
        "labels": dict(span.labels),
        "annotations": dict(span.annotations),
        "startsAt": stamp(span.starts_at),
        "endsAt": stamp(span.last_seen_at + timeout),
        "updatedAt": stamp(span.last_seen_at),
        "generatorURL": span.generator_url if is_link(span.generator_url) else "",
        "receivers": [{"name": RECEIVER}],
        "status": {
            "state": "suppressed" if by or span.suppressed else "active",
            "silencedBy": by,
            "inhibitedBy": [],
        },
    }
