"""JSON bodies of requests: read within bounds, checked against a closed schema, and faults told in one sentence."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import msgspec
from flask import request

from responder.config_schema import Validator, nearest, worded
from responder.web.problems import BadRequest

LARGEST_BODY = 1 << 20
"""Bytes of a body, besides the webhook's. Flask refuses more by itself."""


class Body:
    """The server's stream of a body. Flask knows none of the server's own errors: they become OSError, which is 400."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        try:
            found: bytes = self._stream.read(size) if size >= 0 else self._stream.read()
        except Exception as error:
            raise OSError(f"the body could not be read: {error}") from error
        return found


def with_body(app: Callable[..., Any]) -> Callable[..., Any]:
    """The WSGI application, with such a body."""

    def call(environ: dict[str, Any], start_response: Any) -> Any:
        environ["wsgi.input"] = Body(environ["wsgi.input"])
        return app(environ, start_response)

    return call


class Form:
    """A JSON Schema that bodies are checked against. `name` is its file in responder/schemas."""

    def __init__(self, name: str) -> None:
        text = resources.files("responder").joinpath(f"schemas/{name}.json").read_text("utf-8")
        self.schema: dict[str, Any] = json.loads(text)
        self._validator = Validator(self.schema)

    def read(self) -> dict[str, Any]:
        """The request's body. Raises BadRequest with the first of its faults."""
        return self.check(json_body())

    def check(self, body: Any) -> dict[str, Any]:
        """The body, if it fits. Raises BadRequest with the first of its faults."""
        # Deepest last: that the whole lacks a key matters less than that a key is misspelt.
        faults = sorted(
            self._validator.iter_errors(body), key=lambda error: error.validator != "additionalProperties"
        )
        if faults:
            raise BadRequest(_fault(faults[0]))
        return dict(body)


def json_body() -> Any:
    """The request's JSON. Only application/json is read: no form of a page of another site can send that."""
    if request.mimetype != "application/json":
        raise BadRequest("the Content-Type must be application/json", 415)
    try:
        return msgspec.json.decode(request.get_data(cache=False))
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def moment(body: Mapping[str, Any], key: str) -> datetime | None:
    """The time under this key, in UTC; None if it is not there. Raises BadRequest."""
    if key not in body:
        return None
    return parse_moment(key, body[key])


def parse_moment(key: str, text: str) -> datetime:
    """RFC 3339 with a time zone, in UTC. Raises BadRequest."""
    try:
        read: datetime = msgspec.convert(text, datetime)
        if read.tzinfo is not None:
            return read.astimezone(UTC)
    except (ValueError, OverflowError):
        shown = repr(text if len(text) <= 40 else text[:39] + "…")
        raise BadRequest(f"{key}: {shown} is no time; write it like 2026-01-31T09:00:00Z") from None
    raise BadRequest(f"{key}: {text[:40]!r} has no time zone; end it with Z for UTC")


def _fault(error: Any) -> str:
    place = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in error.absolute_path)
    place = place.lstrip(".")
    prefix = f"{place}." if place else ""
    if error.validator == "additionalProperties":
        known = list(error.schema["properties"])
        key = min(set(error.instance) - set(known))
        near = nearest(key, known)
        shown = key if len(key) <= 60 else key[:59] + "…"
        return f"{prefix}{shown}: unknown key; " + (
            f"did you mean {near}?" if near else f"known here are {', '.join(known)}"
        )
    if error.validator == "required":
        key = next(key for key in error.validator_value if key not in error.instance)
        return f"{prefix}{key} is missing; add it"
    return f"{place or 'the body'}: {worded(error)}"
