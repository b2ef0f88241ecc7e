"""The page's forms: overrides and silences, made and ended. Each is checked as the API checks it."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from flask import Response, redirect, request

from responder.matchers import parse
from responder.web import overrides, silences
from responder.web.app import identity, needs, services
from responder.web.auth import Refused, Role
from responder.web.page import board, page, show_overview, show_target
from responder.web.problems import BadRequest
from responder.web.session import check_form
from responder.web.views import stamp

__all__ = ["page"]

_NUMBERS = ("replicas", "minReplicas", "maxReplicas")


@page.before_request
def _check() -> None:
    """A form changes something only for an operator, and only when this page has made it."""
    if request.method != "POST" or request.endpoint == "page.signed_in":
        return
    check_form()
    if request.endpoint != "page.signed_out" and not identity().may(Role.OPERATOR):
        raise Refused(403, f"token {identity().name!r} may read; to change something needs the role operator")


@page.post("/overrides")
@needs(None)
def override() -> Response:
    """Make an override."""
    given = _given()
    try:
        made = overrides.keep(overrides.FORM.check(_override(given)))
    except BadRequest as error:
        return _again(error, given)
    return _done("override", made["id"], made["target"])


@page.post("/overrides/<identifier>/end")
@needs(None)
def end_override(identifier: str) -> Response:
    """End an override now."""
    ended = overrides.end(identifier, request.form.get("comment", ""))
    return _done("ended", ended.id, _given().get("from", ""))


@page.post("/silences")
@needs(None)
def silence() -> Response:
    """Make a silence."""
    given = _given()
    try:
        made = silences.keep(silences.FORM.check(_silence(given)))
    except BadRequest as error:
        return _again(error, given)
    return _done("silenced", made, given.get("from", ""))


@page.post("/silences/<identifier>/end")
@needs(None)
def end_silence(identifier: str) -> Response:
    """End a silence now."""
    silences.end(identifier)
    return _done("ended", identifier, _given().get("from", ""))


def _given() -> dict[str, str]:
    return {key: value.strip() for key, value in request.form.items() if key != "csrf" and value.strip()}


def _override(given: dict[str, str]) -> dict[str, Any]:
    """What the form says, as the API has it."""
    body: dict[str, Any] = {
        key: given[key] for key in ("kind", "target", "comment", "createdBy") if key in given
    }
    body |= {key: _number(given[key]) for key in _NUMBERS if key in given}
    if "force" in given:
        body["force"] = True
    if "matchers" in given:
        body["matchers"] = _lines(given["matchers"])
    return body | _end(given)


def _silence(given: dict[str, str]) -> dict[str, Any]:
    now = datetime.now(UTC)
    end = _end(given)
    seconds = end.get("durationSeconds", 0)
    if not isinstance(seconds, int):
        raise BadRequest("an end is needed; choose for how long, or until when")
    until = end.get("endsAt") or stamp(now + timedelta(seconds=seconds))
    try:
        matchers = [parse(line) for line in _lines(given.get("matchers", ""))]
    except ValueError as error:
        raise BadRequest(f"matchers: {str(error).rstrip('.')}") from None
    body = {
        "matchers": [each.as_json() for each in matchers],
        "startsAt": stamp(now),
        "endsAt": until,
    }
    return body | {key: given[key] for key in ("createdBy", "comment") if key in given}


def _end(given: dict[str, str]) -> dict[str, Any]:
    """A moment if one is given, else a length of time. Raises BadRequest."""
    if "until" in given:
        try:
            end = datetime.fromisoformat(given["until"])
        except ValueError:
            raise BadRequest("until: this is no time; write it like 2026-01-31T09:00") from None
        # What a browser's field for date and time gives has no zone: the page says that it is UTC.
        return {"endsAt": stamp(end if end.tzinfo else end.replace(tzinfo=UTC))}
    if "for" not in given:
        raise BadRequest("an end is needed; choose for how long, or until when")
    return {"durationSeconds": _number(given["for"])}


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _again(error: BadRequest, given: dict[str, str]) -> Response:
    """The page that has the form, with what is wrong and what was in it."""
    target = given.get("target") or given.get("from", "")
    if target and services().store.record(target) is not None:
        return show_target(target, str(error), given, error.status)
    return show_overview(str(error), given, error.status)


def _done(what: str, identifier: str, target: str) -> Response:
    board().forget()
    known = target and services().store.record(target) is not None
    where = f"/targets/{target}" if known else "/"
    return cast("Response", redirect(f"{where}?{what}={identifier}", 303))
