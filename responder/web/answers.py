"""What all answers have in common: security headers and the form of errors."""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from flask import Response, request

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Content-Security-Policy", _CONTENT_SECURITY_POLICY),
    ("Cache-Control", "no-store"),
)


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The body as JSON."""
    return Response(
        msgspec.json.encode(body), status=status, headers=dict(headers or {}), content_type="application/json"
    )


def tagged(body: Any) -> Response:
    """The body as JSON with an ETag, or 304 for one who has it. `asOf` changes always and is no news."""
    news = {key: value for key, value in body.items() if key != "asOf"} if isinstance(body, dict) else body
    tag = hashlib.sha256(msgspec.json.encode(news)).hexdigest()[:32]
    given = answer(body)
    given.set_etag(tag)
    # `no-store` is for caches; a page that is open may keep what it shows, and its tag.
    given.make_conditional(request)
    return given


def error_answer(
    path: str,
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """One sentence, in the form that the route's clients read: Alertmanager's are told by a bare string."""
    body: Any = message if path.startswith("/api/v2/") else {"error": message, **(more or {})}
    return answer(body, status, headers)


def reason_phrase(status: int) -> str:
    """The words that go with a status."""
    return HTTPStatus(status).phrase
