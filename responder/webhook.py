"""The Alertmanager webhook: bytes in, a delivery and one result per alert out.

A payload that is not one is refused whole; an alert that cannot be used is refused beside its siblings.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, NoReturn

import jsonschema
import jsonschema_rs
import msgspec

from responder.alerting.spans import fingerprint_within
from responder.errors import ResponderError
from responder.matchers import all_match, within
from responder.model import Delivery, Notification
from responder.policy import (
    Rejection,
    Settings,
    acts_on_node,
    is_test,
    ours,
    policy_of,
    stands_alone,
    target_of,
)

MAX_BYTES = 32 * 2**20
"""Of a body. Alertmanager has no limit of its own; a group of 10,000 alerts is some 10 MB."""
LARGEST_QUOTE = 80
MOST_WORDED = 50
"""Alerts of a payload whose faults are told in detail."""


class BadPayload(ResponderError):
    """The payload is refused whole, with this HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one alert: accepted, or why not. `claimed` when a policy, hold or heartbeat takes it."""

    fingerprint: str
    error: str = ""
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """A delivery of the alerts that are accepted, and a result for each alert in the order received."""

    delivery: Delivery
    results: tuple[Result, ...]
    tests: tuple[Notification, ...] = ()
    """Alerts that ask whether they arrive. They are in no delivery, so that nothing can come of them."""


def parse(
    body: bytes,
    settings: Settings,
    received_at: datetime,
    *,
    sender: str = "",
    namespaces: tuple[str, ...] | None = None,
) -> Parsed:
    """Read a payload and say for each alert whether it can be used. Raises BadPayload.

    `namespaces` are globs that limit which targets the sender may reach; None is no limit.
    """
    payload, clean = _decode(body)
    valid = clean and _whole_validator().is_valid(payload)
    if not valid:
        _check_envelope(payload)
    results: list[Result] = []
    accepted: list[Notification] = []
    tests: list[Notification] = []
    worded = 0
    for alert in payload["alerts"]:
        fault = "" if valid else _fault(alert, worded < MOST_WORDED)
        notification = Rejection(fault) if fault else _notification(alert, received_at)
        if isinstance(notification, Rejection):
            worded += 1
            results.append(Result(_fingerprint(alert), notification.message))
            continue
        if is_test(notification.labels):
            tests.append(notification)
            results.append(Result(notification.fingerprint, claimed=True))
            continue
        claimed, error = _screen(notification, settings, namespaces)
        results.append(Result(notification.fingerprint, error, claimed))
        if not error:
            accepted.append(_as_its_own(notification, settings, namespaces))
    delivery = Delivery(
        received_at=received_at,
        notifications=tuple(accepted),
        sender=sender,
        namespaces=namespaces,
        receiver=payload.get("receiver", ""),
        truncated=int(payload.get("truncatedAlerts", 0)),
    )
    return Parsed(delivery, tuple(results), tuple(tests))


def _decode(body: bytes) -> tuple[Any, bool]:
    """The JSON, and whether all of its strings are known to be text."""
    try:
        return msgspec.json.decode(body), True
    except RecursionError:
        raise BadPayload(400, "the body is not usable JSON: it is nested too deeply") from None
    except msgspec.MsgspecError:
        pass
    # What JSON allows and the fast parser does not, a number beyond any bound or half a surrogate pair,
    # spoils the alert it stands in and not its siblings.
    try:
        payload = json.loads(
            body.decode(), parse_int=_bounded_int, parse_float=_bounded_float, parse_constant=_refuse
        )
    except RecursionError:
        raise BadPayload(400, "the body is not usable JSON: it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise BadPayload(400, f"the body is not JSON: byte {error.start} is not UTF-8") from None
    except ValueError as error:
        raise BadPayload(400, f"the body is not JSON: {error}") from None
    return payload, False


def _bounded_int(text: str) -> int | None:
    return int(text) if len(text) <= 20 else None


def _bounded_float(text: str) -> float | None:
    number = float(text)
    return number if number - number == 0 else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _check_envelope(payload: Any) -> None:
    """Raise the sentence that helps if the payload is no version-4 payload; alerts are looked at singly."""
    if isinstance(payload, list):
        raise BadPayload(
            422,
            "the body is a bare list of alerts, as Prometheus itself sends it: "
            "point Prometheus at Alertmanager, and a webhook receiver of Alertmanager here",
        )
    if not isinstance(payload, dict):
        raise BadPayload(422, "the body is not a webhook payload of Alertmanager: it is no JSON object")
    version = payload.get("version")
    if version != "4":
        found = "has none" if version is None else f"has {_quote(version)}"
        raise BadPayload(
            422, f'the payload is not one of version "4": `version` {found}; send what Alertmanager sends'
        )
    error = jsonschema.exceptions.best_match(_envelope_validator().iter_errors(payload))
    if error is not None:
        raise BadPayload(422, f"the payload is not one of version 4: {_worded(error)}")
    for key in ("receiver", "groupKey"):
        if not _encodable(payload.get(key)):
            raise BadPayload(422, f"the payload is not one of version 4: `{key}` holds half a surrogate pair")


def _fault(alert: Any, in_words: bool) -> str:
    """What is wrong with the alert's form, or an empty string. Words are dear: about a millisecond each."""
    if not _encodable(alert):
        return "it holds half a surrogate pair, which is no text"
    if _alert_validator().is_valid(alert):
        return ""
    error = jsonschema.exceptions.best_match(_alert_worder().iter_errors(alert)) if in_words else None
    return _worded(error) if error is not None else "it has not the form of an alert, as others before it"


def _notification(alert: Any, received_at: datetime) -> Notification | Rejection:
    firing = alert["status"] == "firing"
    ends_at = None
    try:
        starts_at = _time(alert["startsAt"])
        if not firing:
            ends_at = _time(alert["endsAt"])
    except (ValueError, OverflowError):
        which = "startsAt" if firing or not _is_time(alert["startsAt"]) else "endsAt"
        return Rejection(f"`{which}` is {_quote(alert[which])}, and there is no such time")
    return Notification(
        fingerprint=alert["fingerprint"],
        firing=firing,
        labels=alert["labels"],
        annotations=alert.get("annotations") or {},
        starts_at=starts_at,
        ends_at=ends_at,
        received_at=received_at,
        generator_url=alert.get("generatorURL", ""),
    )


def _screen(
    notification: Notification, settings: Settings, namespaces: tuple[str, ...] | None
) -> tuple[bool, str]:
    """Whether anything in the policy file takes the alert, and why it is refused, or an empty string."""
    labels = notification.labels
    if not ours(settings, labels):
        cluster = _quote(labels.get("cluster", ""))
        return False, f"its label `cluster` is {cluster}, and this service acts on {_quote(settings.cluster)}"
    alone = stands_alone(settings, labels)
    if alone and namespaces is not None and not _may_stand(settings, labels, namespaces):
        return (
            True,
            "it is about a node, or a hold or heartbeat, and binds more namespaces than this token may reach",
        )
    policy = policy_of(settings.policies, labels)
    if policy is None:
        return alone, ""
    target = target_of(policy, labels, notification.annotations)
    if isinstance(target, Rejection):
        # A hold need not name a target of its own.
        return True, "" if alone else target.message
    if target is not None and not within(target.namespace, namespaces):
        return True, f"this token may not reach targets in namespace {_quote(target.namespace)}"
    return True, ""


def _may_stand(settings: Settings, labels: Mapping[str, str], namespaces: tuple[str, ...]) -> bool:
    """A limited sender's hold must be tied to its own namespaces; a heartbeat is for all of them."""
    heartbeat = settings.heartbeat
    if heartbeat is not None and all_match(heartbeat.matchers, labels):
        return False
    if acts_on_node(settings, labels):
        return False  # pods of any namespace may run there
    tied = all("namespace" in hold.equal for hold in settings.holds if all_match(hold.matchers, labels))
    return tied and within(labels.get("namespace", ""), namespaces)


def _as_its_own(
    notification: Notification, settings: Settings, namespaces: tuple[str, ...] | None
) -> Notification:
    """A limited sender's alert that stands alone is known apart from others'; all that stand alone are kept as one."""
    if namespaces is None or not stands_alone(settings, notification.labels):
        return notification
    own = fingerprint_within(notification.fingerprint, notification.labels.get("namespace", ""))
    return replace(notification, fingerprint=own)


def _time(text: str) -> datetime:
    """RFC 3339 in UTC; rounded to microseconds. Raises ValueError, OverflowError."""
    time: datetime = msgspec.convert(text, datetime)
    return time if time.tzinfo is UTC else time.astimezone(UTC)


def _is_time(text: str) -> bool:
    try:
        _time(text)
    except (ValueError, OverflowError):
        return False
    return True


def _fingerprint(alert: Any) -> str:
    found = alert.get("fingerprint") if isinstance(alert, dict) else None
    return found[:128] if isinstance(found, str) and _encodable(found) else ""


def _worded(error: jsonschema.ValidationError) -> str:
    """One sentence without the input in full: it comes from outside, and may be megabytes."""
    place = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in error.absolute_path)
    place = _quote(place.lstrip(".")) if place else ""
    of = f"{place} " if place else "it "
    wanted: Any = error.validator_value
    match error.validator:
        case "required":
            present: Any = error.instance
            missing = [key for key in wanted if key not in present]
            return f"{of}lacks {' and '.join(missing)}"
        case "type":
            return f"{of}is {_quote(error.instance)}, and must be of type {wanted}"
        case "enum":
            return f"{of}is {_quote(error.instance)}, and must be one of {', '.join(wanted)}"
        case "maxLength":
            return f"{of}is longer than {wanted} characters"
        case "minProperties":
            return f"{of}is empty"
        case "pattern":
            schema: Any = error.schema
            return f"{of}is {_quote(error.instance)}, and must be {schema['description']}"
    return f"{of}is {_quote(error.instance)}, and must satisfy {error.validator} {wanted}"


def _quote(value: Any) -> str:
    """The value for a sentence: escaped, on one line, and not endless."""
    if isinstance(value, str):
        text = value[: LARGEST_QUOTE + 1].encode("utf-8", "backslashreplace").decode()
    elif isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    else:
        text = str(value) if not isinstance(value, bool | None) else json.dumps(value)
        return text[:LARGEST_QUOTE]
    return repr(text if len(value) <= LARGEST_QUOTE else text[: LARGEST_QUOTE - 1] + "…")


def _encodable(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("responder").joinpath("schemas/webhook.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _alert_schema() -> dict[str, Any]:
    return {"$defs": _schema()["$defs"], "$ref": "#/$defs/alert"}


@cache
def _whole_validator() -> Any:
    return jsonschema_rs.validator_for(_schema())


@cache
def _alert_validator() -> Any:
    return jsonschema_rs.validator_for(_alert_schema())


@cache
def _alert_worder() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(_alert_schema())


@cache
def _envelope_validator() -> jsonschema.Draft202012Validator:
    properties = {**_schema()["properties"], "alerts": {"type": "array"}}
    return jsonschema.Draft202012Validator({**_schema(), "properties": properties})
