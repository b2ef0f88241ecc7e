"""Overrides: people's word on targets, with an owner, a reason and an end."""

import re
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Blueprint, Response, request

from responder.config_schema import nearest
from responder.deciding.overrides import bounds_of
from responder.matchers import Matcher, parse
from responder.model import Override, OverrideKind, Record
from responder.observe import overrides_of
from responder.policy import Policy, allowed, governing
from responder.web.answers import answer, tagged
from responder.web.app import identity, needs, services
from responder.web.audit import line, override_words
from responder.web.auth import Role
from responder.web.bodies import Form, moment
from responder.web.finding import not_known
from responder.web.known import bound_to, keys, may_see_of, meant
from responder.web.problems import BadRequest
from responder.web.queries import switch
from responder.web.views import override_view, stamp

overrides = Blueprint("overrides", __name__, url_prefix="/api/v1")

FORM = Form("override")
OF_KIND = {
    OverrideKind.PIN: {"replicas", "force"},
    OverrideKind.BOUNDS: {"minReplicas", "maxReplicas"},
}
"""The keys that go with some kinds only."""
_MATCHED = ("namespace", "kind", "name", "policy")
_CASED = {kind.lower(): kind for kind in ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")}


@overrides.post("/overrides")
@needs(Role.OPERATOR)
def create() -> Response:
    """Keep an override. It is durable with the answer, which lists what was begun before it and may still land."""
    view = keep(FORM.read())
    return answer(view, 201, {"Location": f"/api/v1/overrides/{view['id']}"})


@overrides.get("/overrides")
@needs(Role.VIEWER)
def listed() -> Response:
    """Overrides in force or to come, newest first; `ended=true` adds those that ended."""
    now, found = datetime.now(UTC), services().store.overrides(include_ended=switch("ended"))
    views = [override_view(each, now) for each in visible(found)]
    return tagged({"overrides": views})


@overrides.get("/overrides/<identifier>")
@needs(Role.VIEWER)
def one(identifier: str) -> Response:
    """An override, ended or not."""
    return answer(override_view(_find(identifier), datetime.now(UTC)))


@overrides.delete("/overrides/<identifier>")
@needs(Role.OPERATOR)
def expire(identifier: str) -> Response:
    """End an override now; one that has ended stays as it is. It remains in history."""
    return answer(override_view(end(identifier, request.args.get("comment", "")), datetime.now(UTC)))


def keep(body: dict[str, Any]) -> dict[str, Any]:
    """Keep the override that the body describes, and say what was begun before it. Raises BadRequest."""
    own, now = services(), datetime.now(UTC)
    made, warnings = _made(body, now)
    warnings += _checked(made)
    own.store.put_override(
        made, line(now, "override.create", made.id, after=override_words(made), comment=made.comment)
    )
    view = override_view(made, datetime.now(UTC))
    view["inFlight"] = in_flight(made)
    view["warning"] = "; ".join(warnings)
    return view


def end(identifier: str, comment: str) -> Override:
    """End it now, unless it has ended. Raises BadRequest."""
    before, now = _find(identifier), datetime.now(UTC)
    _check_reach(before, "end")
    if now >= before.ends_at or before.expired_at is not None:
        return before
    after = replace(before, expired_at=now)
    services().store.put_override(
        after,
        line(now, "override.expire", after.id, override_words(before), override_words(after), comment[:4096]),
    )
    return after


def visible(found: Iterable[Override]) -> list[Override]:
    """Those that who asks may see, newest first."""
    return _newest_first(each for each in found if may_see_of(_namespaces(each)))


# Below: what was asked for


def _made(body: dict[str, Any], now: datetime) -> tuple[Override, list[str]]:
    kind = OverrideKind(body["kind"])
    _check_keys(kind, body)
    starts_at, ends_at = _times(body, now)
    target, warnings = "", []
    if "target" in body:
        found = meant(body["target"])
        target = found.key
        if not found.known:
            near = not_known(target, keys()).near
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"no alert of {target} is known: the override binds once there is one{hint}")
    made = Override(
        id=str(uuid.uuid4()),
        kind=kind,
        created_by=body.get("createdBy") or identity().name,
        comment=body["comment"].strip(),
        created_at=now,
        starts_at=starts_at,
        ends_at=ends_at,
        target=target,
        matchers=tuple(_matcher(index, text) for index, text in enumerate(body.get("matchers", ()))),
        replicas=_whole(body.get("replicas")),
        force=body.get("force", False),
        min_replicas=_whole(body.get("minReplicas")),
        max_replicas=_whole(body.get("maxReplicas")),
    )
    return made, warnings


def _check_keys(kind: OverrideKind, body: dict[str, Any]) -> None:
    mine = OF_KIND.get(kind, set())
    for other, its_own in OF_KIND.items():
        for key in sorted(its_own & set(body) - mine):
            raise BadRequest(f"{key}: it goes with the kind {other} and not with {kind}; leave it out")
    if kind is OverrideKind.PIN and "replicas" not in body:
        raise BadRequest("replicas is missing; say at how many to pin")
    if kind is OverrideKind.BOUNDS:
        least, most = body.get("minReplicas"), body.get("maxReplicas")
        if least is None and most is None:
            raise BadRequest("minReplicas and maxReplicas are both missing; give one of them or both")
        if least is not None and most is not None and least > most:
            raise BadRequest(f"minReplicas: {least:g} is above maxReplicas {most:g}; lower it")
    if "target" in body and body.get("matchers"):
        raise BadRequest("target and matchers exclude each other; leave one out")
    if "target" not in body and not body.get("matchers") and kind is not OverrideKind.FREEZE:
        raise BadRequest(
            "target is missing; give it, or matchers for many: only a freeze may be for all targets"
        )


def _times(body: dict[str, Any], now: datetime) -> tuple[datetime, datetime]:
    if ("endsAt" in body) == ("durationSeconds" in body):
        raise BadRequest("an end is needed; give either endsAt or durationSeconds")
    starts_at = max(moment(body, "startsAt") or now, now)
    longest = services().override_max
    key = "endsAt" if "endsAt" in body else "durationSeconds"
    try:
        ends_at = moment(body, "endsAt") or starts_at + timedelta(seconds=body["durationSeconds"])
    except OverflowError:
        ends_at = datetime.max.replace(tzinfo=UTC)
    if ends_at <= now:
        raise BadRequest(f"{key}: {stamp(ends_at)} is past; an override ends in the future")
    if ends_at <= starts_at:
        raise BadRequest(f"{key}: the end is not after startsAt, {stamp(starts_at)}; move one of them")
    if ends_at - now > longest + timedelta(minutes=1):
        days = f"{longest / timedelta(days=1):g}"
        raise BadRequest(
            f"{key}: an override must end within {days} days; choose an earlier end "
            "(or start the service with a larger --override-max-days)",
            422,
        )
    return starts_at, ends_at


def _matcher(index: int, text: str) -> str:
    where = f"matchers[{index}]"
    try:
        read = parse(text)
    except ValueError as error:
        raise BadRequest(f"{where}: {str(error).rstrip('.')}") from None
    if read.name not in _MATCHED:
        near = nearest(read.name, list(_MATCHED))
        hint = f"did you mean {near}?" if near else f"known are {', '.join(_MATCHED)}"
        raise BadRequest(f"{where}: {read.name[:60]!r} is nothing that targets have; {hint}")
    if read.name == "kind" and read.op in ("=", "!="):
        read = Matcher(read.name, read.op, _CASED.get(read.value.lower(), read.value))
        if read.value and not re.match("[A-Z]", read.value):
            raise BadRequest(f"{where}: {read.value[:60]!r} is no kind; write it like Deployment or Rollout")
    return str(read)


def _whole(number: float | None) -> int | None:
    # 4.0 is a whole number to JSON Schema.
    return None if number is None else int(number)


# Below: what it binds


def _candidates(override: Override) -> list[Record]:
    """Records of targets that it may bind; a freeze of everything must not have to read everything."""
    store = services().store
    if override.target:
        found = store.record(override.target)
        return [found[0]] if found is not None else []
    return [record for record, _ in store.records()] if override.matchers else []


def _checked(override: Override) -> list[str]:
    """Raise BadRequest if it must not be; else what a person should know of what it binds."""
    _check_reach(override, "make")
    settings = services().source.current
    others = services().store.overrides()
    bound, warnings = 0, []
    for record in _candidates(override):
        policy = governing(settings, record)
        name = policy.name if policy else ""
        if not overrides_of((override,), record.target, name):
            continue
        bound += 1
        if policy is not None:
            _check_numbers(override, policy, record, others)
        if override.target and policy is None:
            warnings.append(f"no policy governs {override.target} now: the override binds once one does")
        if override.target and not allowed(settings, record.target.namespace):
            warnings.append(f"nothing is done in namespace {record.target.namespace}: see allowedNamespaces")
    if override.matchers and not bound:
        warnings.append("the matchers fit no target that is known now" + _meant(override))
    return warnings


def _meant(override: Override) -> str:
    """What may be misspelt in matchers that fit nothing."""
    policies = [policy.name for policy in services().source.current.policies]
    seen = [key.split("/") for key in keys()]
    known = {
        "policy": policies,
        "namespace": [namespace for namespace, _, _ in seen],
        "name": [name for _, _, name in seen],
    }
    for matcher in map(parse, override.matchers):
        there = known.get(matcher.name, [])
        near = nearest(matcher.value, there) if matcher.op == "=" and matcher.value not in there else ""
        if near:
            return f"; did you mean {matcher.name}={near}?"
    return ""


def _check_numbers(override: Override, policy: Policy, record: Record, others: tuple[Override, ...]) -> None:
    """A pin outside of the bounds, or a minimum above the maximum, would not do what it says."""
    key = record.target.key
    if override.kind is OverrideKind.BOUNDS:
        least, most = override.min_replicas, override.max_replicas
        if least is not None and most is None and least > policy.max_replicas:
            raise BadRequest(
                f"minReplicas: {least} is above maxReplicas {policy.max_replicas} of policy {policy.name} "
                f"for {key}; give maxReplicas too",
                422,
            )
    if override.replicas is None or override.force:
        return
    bounds = bounds_of(policy, overrides_of(others, record.target, policy.name), override.starts_at)
    if bounds.within(override.replicas) != override.replicas:
        raise BadRequest(
            f"replicas: {override.replicas} is outside of minReplicas {bounds.least} and maxReplicas "
            f"{bounds.most} of {key} (policy {policy.name}); choose within them, or set force",
            422,
        )


def in_flight(override: Override) -> list[dict[str, Any]]:
    """Intents that were stored before it, for what it binds: their writes may still land."""
    own, found = services(), []
    for record in own.store.intents():
        policy = governing(own.source.current, record)
        if not overrides_of((override,), record.target, policy.name if policy else ""):
            continue
        found += [
            {
                "target": record.target.key,
                "intent": intent.id,
                "from": intent.from_replicas,
                "to": intent.to_replicas,
                "decidedAt": stamp(intent.decided_at),
            }
            for intent in record.open_intents
        ]
    return found


# Below: who may


def _namespaces(override: Override) -> list[str] | None:
    """The namespaces that it cannot leave, from its target or matchers; None if it is not bound to any."""
    return [override.target.partition("/")[0]] if override.target else bound_to(override.matchers)


def _check_reach(override: Override, verb: str) -> None:
    who, within = identity(), _namespaces(override)
    if who.namespaces is None:
        return
    mine = ", ".join(who.namespaces)
    if within is None:
        raise BadRequest(
            f'this token is limited to namespaces ({mine}): to {verb} this, it needs a matcher namespace="…"',
            403,
        )
    for namespace in within:
        if not who.may_reach(namespace):
            raise BadRequest(f"this token may not reach namespace {namespace!r}, only {mine}", 403)


def _find(identifier: str) -> Override:
    for override in services().store.overrides(include_ended=True):
        if override.id == identifier and may_see_of(_namespaces(override)):
            return override
    raise BadRequest(
        f"no override {identifier[:60]!r} is known; GET /api/v1/overrides?ended=true lists them", 404
    )


def _newest_first(found: Iterable[Override]) -> list[Override]:
    return sorted(found, key=lambda each: (each.created_at, each.id), reverse=True)
