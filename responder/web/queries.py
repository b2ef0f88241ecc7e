"""Parameters of a request's query, read strictly. All raise BadRequest."""

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches

from flask import request

from responder.config_schema import nearest
from responder.matchers import Matcher, parse
from responder.model import Reason
from responder.web.bodies import parse_moment
from responder.web.problems import BadRequest

MAX_LIMIT = 10_000


def refuse_unknown(known: Sequence[str]) -> None:
    """Only these are taken: whoever misspells a filter would be shown everything, and believe it filtered."""
    for key in request.args:
        if key not in known:
            near = nearest(key, list(known))
            meant = f", perhaps for {near}" if near else ""
            all_known = f"known here are {', '.join(known)}" if known else "none are known here"
            raise BadRequest(f"{key[:40]!r} is an unknown parameter{meant}; {all_known}")


def limit(default: int = 100) -> int:
    """`limit`, from 1 to MAX_LIMIT."""
    text = request.args.get("limit", str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MAX_LIMIT:
        raise BadRequest(f"limit: {text[:40]!r} is no whole number from 1 to {MAX_LIMIT}")
    return int(text)


def reason(key: str) -> str:
    """A Reason, spelt as it is; "" if it is not given. An unknown one would find nothing and say nothing."""
    text = request.args.get(key, "")
    if text and text not in {each.value for each in Reason}:
        near = get_close_matches(text, [each.value for each in Reason], n=1)
        hint = f"; did you mean {near[0]}?" if near else "; docs/how-it-decides.md lists them"
        raise BadRequest(f"{key}: {text[:40]!r} is no reason{hint}")
    return text


def number(key: str) -> int | None:
    """A whole number that something is known by; None if it is not given."""
    text = request.args.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"{key}: {text[:40]!r} is no whole number")
    return int(text)


def moment(key: str) -> datetime | None:
    """A time; None if it is not given."""
    text = request.args.get(key)
    # A plus sign that was not escaped has become a space.
    return parse_moment(key, text.replace(" ", "+")) if text else None


def switch(key: str, default: bool = False) -> bool:
    """`true` or `false`."""
    text = request.args.get(key)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise BadRequest(f"{key}: {text[:40]!r} is neither true nor false")
    return text == "true"


def matchers(key: str) -> tuple[Matcher, ...]:
    """Matchers, one to a parameter, which may be repeated."""
    try:
        return tuple(parse(text) for text in request.args.getlist(key))
    except ValueError as error:
        raise BadRequest(f"{key}: {str(error).rstrip('.')}") from None
