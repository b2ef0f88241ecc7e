"""Silences and alerts in the words of Alertmanager's API v2, so that amtool works against this service.

The semantics are those of its silences: a matcher or a past that cannot be changed makes a new silence.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Blueprint, Response

from responder.matchers import Matcher, of_json, parse
from responder.model import Silence
from responder.web.answers import answer, tagged
from responder.web.app import identity, needs, services
from responder.web.audit import line, silence_words
from responder.web.auth import Role
from responder.web.bodies import Form, parse_moment
from responder.web.known import bound_to, may_see_of
from responder.web.problems import BadRequest
from responder.web.queries import matchers
from responder.web.views import stamp

silences = Blueprint("silences", __name__, url_prefix="/api/v2")

FORM = Form("silence")
SHOWN_EXPIRED = timedelta(hours=120)
"""How long Alertmanager shows a silence after its end, by default."""
_ORDER = {"active": 0, "pending": 1, "expired": 2}


@silences.post("/silences")
@needs(Role.OPERATOR)
def put() -> Response:
    """Keep a silence, or change the one whose `id` is given."""
    return answer({"silenceID": keep(FORM.read())})


def keep(body: Mapping[str, Any]) -> str:
    """Keep the silence that the body describes; its id. Raises BadRequest."""
    now = datetime.now(UTC)
    asked = _asked(body, now)
    # Of all refusals of a POST, amtool shows what 400 and 404 say, and nothing else.
    _check_reach(asked, 400)
    if not asked.id:
        return _keep(_new(asked, now), "silence.create", "")
    before = _find(asked.id)
    _check_reach(before, 400)
    if _can_become(before, asked, now):
        # Its own seconds and matchers are told apart by no client; ours are the more exact.
        starts_at = before.starts_at if _state(before, now) == "active" else asked.starts_at
        return _keep(replace(asked, starts_at=starts_at), "silence.update", silence_words(before))
    if _state(before, now) != "expired":
        _expire(before, now)
    return _keep(_new(asked, now), "silence.create", "")


@silences.get("/silences")
@needs(Role.VIEWER)
def listed() -> Response:
    """Silences that may be about alerts with the labels that `filter` asks for."""
    now, wanted = datetime.now(UTC), matchers("filter")
    found = [
        each
        for each in services().store.silences(include_expired=True)
        if now - each.ends_at < SHOWN_EXPIRED
        and may_see_of(bound_to(each.matchers))
        and _fits(wanted, _named(each))
    ]
    return tagged([silence_view(each, now) for each in sorted(found, key=lambda each: _order(each, now))])


@silences.get("/silence/<identifier>")
@needs(Role.VIEWER)
def one(identifier: str) -> Response:
    """A silence, expired or not."""
    return answer(silence_view(_find(identifier), datetime.now(UTC)))


@silences.delete("/silence/<identifier>")
@needs(Role.OPERATOR)
def expire(identifier: str) -> Response:
    """End a silence now; one that has expired stays as it is."""
    end(identifier)
    return Response(status=200)


def end(identifier: str) -> None:
    """End it now, unless it has expired. Raises BadRequest."""
    now, silence = datetime.now(UTC), _find(identifier)
    _check_reach(silence, 403)
    if _state(silence, now) != "expired":
        _expire(silence, now)


def visible(found: Iterable[Silence], now: datetime) -> list[Silence]:
    """Those that who asks may see, as Alertmanager sorts them."""
    return sorted(
        (each for each in found if may_see_of(bound_to(each.matchers))), key=lambda each: _order(each, now)
    )


def silence_view(silence: Silence, now: datetime) -> dict[str, Any]:
    """A silence as Alertmanager's `gettableSilence`."""
    return {
        "id": silence.id,
        "status": {"state": _state(silence, now)},
        "matchers": [matcher.as_json() for matcher in map(parse, silence.matchers)],
        "startsAt": stamp(silence.starts_at),
        "endsAt": stamp(silence.ends_at),
        "updatedAt": stamp(silence.updated_at),
        "createdBy": silence.created_by,
        "comment": silence.comment,
    }


# Below: changes


def _asked(body: Mapping[str, Any], now: datetime) -> Silence:
    starts_at, ends_at = (parse_moment(key, body[key]) for key in ("startsAt", "endsAt"))
    if starts_at >= ends_at:
        raise BadRequest("startsAt: the start must be before the end; move one of them")
    if ends_at <= now:
        raise BadRequest("endsAt: the end cannot be past; choose one in the future")
    made = [_matcher(index, given) for index, given in enumerate(body["matchers"])]
    if all(matcher.matches({}) for matcher in made):
        raise BadRequest("matchers: at least one of them must not match an empty value; name what to silence")
    return Silence(
        id=body.get("id", ""),
        matchers=tuple(map(str, made)),
        starts_at=starts_at,
        ends_at=ends_at,
        # amtool always says whose wish it is; the audit has the name of the token beside it.
        created_by=body.get("createdBy") or identity().name,
        comment=body["comment"],
        updated_at=now,
    )


def _matcher(index: int, given: Mapping[str, Any]) -> Matcher:
    try:
        return of_json(given)
    except ValueError as error:
        raise BadRequest(f"matchers[{index}]: {str(error).rstrip('.')}") from None


def _new(asked: Silence, now: datetime) -> Silence:
    return replace(asked, id=str(uuid.uuid4()), starts_at=max(asked.starts_at, now))


def _can_become(before: Silence, after: Silence, now: datetime) -> bool:
    """Alertmanager's canUpdate: what was silenced in the past, and by which matchers, stays true."""
    if before.matchers != after.matchers:
        return False
    match _state(before, now):
        case "active":
            return int(before.starts_at.timestamp()) == int(after.starts_at.timestamp())
        case "pending":
            return after.starts_at >= now
    return False


def _expire(silence: Silence, now: datetime) -> None:
    after = replace(silence, starts_at=min(silence.starts_at, now), ends_at=now, updated_at=now)
    entry = line(now, "silence.expire", silence.id, silence_words(silence), silence_words(after))
    services().store.put_silence(after, entry)


def _keep(silence: Silence, action: str, before: str) -> str:
    entry = line(silence.updated_at, action, silence.id, before, silence_words(silence), silence.comment)
    services().store.put_silence(silence, entry)
    return silence.id


# Below: reading


def _find(identifier: str) -> Silence:
    for silence in services().store.silences(include_expired=True):
        if silence.id == identifier and may_see_of(bound_to(silence.matchers)):
            return silence
    raise BadRequest(f"silence {identifier[:60]!r} not found", 404)


def _state(silence: Silence, now: datetime) -> str:
    if now < silence.starts_at:
        return "pending"
    return "active" if silence.in_force(now) else "expired"


def _order(silence: Silence, now: datetime) -> tuple[int, float]:
    """As Alertmanager sorts: what ends next, what begins next, what ended last."""
    state = _state(silence, now)
    moment = silence.starts_at if state == "pending" else silence.ends_at
    return _ORDER[state], -moment.timestamp() if state == "expired" else moment.timestamp()


def _named(silence: Silence) -> dict[str, str]:
    return {matcher.name: matcher.value for matcher in map(parse, silence.matchers)}


def _fits(wanted: Iterable[Matcher], values: Mapping[str, str]) -> bool:
    """Alertmanager's matchFilterLabels: an empty value asks whether the silence names the label at all."""
    for matcher in wanted:
        if not matcher.value and (matcher.name in values) == (matcher.op in ("!=", "!~")):
            continue
        if not matcher.matches(values):
            return False
    return True


# Below: who may


def _check_reach(silence: Silence, status: int) -> None:
    who, within = identity(), bound_to(silence.matchers)
    if who.namespaces is None:
        return
    if within is None or not may_see_of(within):
        mine = ", ".join(who.namespaces)
        raise BadRequest(
            f'this token is limited to namespaces ({mine}): silence with a matcher namespace="…" of these',
            status,
        )
