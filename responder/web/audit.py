"""The audit of what people change: who, when, from where, what before, what after, why."""

from datetime import datetime

from flask import Blueprint, Response, request

from responder.model import AuditEntry, Override, Silence
from responder.web.answers import answer
from responder.web.app import identity, needs, services
from responder.web.auth import Role
from responder.web.known import check_sees_all
from responder.web.queries import limit
from responder.web.views import stamp

audit = Blueprint("audit", __name__, url_prefix="/api/v1")


@audit.get("/audit")
@needs(Role.OPERATOR)
def trail() -> Response:
    """The newest changes, newest first. For operators of all namespaces: a line may be of any of them."""
    check_sees_all("the audit is")
    entries = services().store.audits(limit())
    return answer(
        {
            "audit": [
                {
                    "at": stamp(entry.at),
                    "who": entry.who,
                    "address": entry.address,
                    "action": entry.action,
                    "subject": entry.subject,
                    "before": entry.before,
                    "after": entry.after,
                    "comment": entry.comment,
                }
                for entry in entries
            ]
        }
    )


def line(
    at: datetime, action: str, subject: str, before: str = "", after: str = "", comment: str = ""
) -> AuditEntry:
    """A line of the audit for what the request changes."""
    return AuditEntry(at, identity().name, request.remote_addr or "", action, subject, before, after, comment)


def override_words(override: Override) -> str:
    """All that an override says but its id and comment: `pin inference/deployment/vllm at 4 from … to … by ana`."""
    bounds = {"minReplicas": override.min_replicas, "maxReplicas": override.max_replicas}
    parts = [
        override.kind.value,
        override.target or _braced(override.matchers) or "all targets",
        *([f"at {override.replicas}"] if override.replicas is not None else []),
        *(f"{name} {value}" for name, value in bounds.items() if value is not None),
        *(["forced"] if override.force else []),
        f"from {stamp(override.starts_at)} to {stamp(override.end)} by {override.created_by}",
    ]
    return " ".join(parts)


def silence_words(silence: Silence) -> str:
    """All that a silence says but its id and comment."""
    return (
        f"{_braced(silence.matchers)} from {stamp(silence.starts_at)} to {stamp(silence.ends_at)} "
        f"by {silence.created_by}"
    )


def _braced(matchers: tuple[str, ...]) -> str:
    return "{" + ", ".join(matchers) + "}" if matchers else ""
