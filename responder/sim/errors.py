"""Failures of the simulated API server, worded as the real one words them."""

import json
from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]
Cause = dict[str, str]


class ApiError(Exception):
    """A Status of failure; `details` None leaves the key out, as some of the real answers do."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Object | None = None,
        *,
        headers: dict[str, str] | None = None,
        metadata: Object | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers or {}
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata or {},
            "status": "Failure",
            "message": message,
            "reason": reason,
        }
        if details is not None:
            self.status["details"] = details
        self.status["code"] = code


class PlainNotFoundError(Exception):
    """A path no handler knows: a 404 in plain text, not a Status."""


def details(group: str, kind: str, name: str = "", **more: Any) -> Object:
    """Status details in the real order; an empty group or name is left out."""
    found: Object = {}
    if name:
        found["name"] = name
    if group:
        found["group"] = group
    return found | {"kind": kind} | more


def qualified(group: str, name: str) -> str:
    """A resource or kind with its group: deployments.apps, pods."""
    return f"{name}.{group}" if group else name


def success(group: str, plural: str, name: str, uid: str) -> Object:
    """The Status that most deletions answer with."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details(group, plural, name, uid=uid),
    }


def not_found(group: str, plural: str, name: str) -> ApiError:
    """404 for an object."""
    message = f'{qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, details(group, plural, name))


def no_such_resource() -> ApiError:
    """404 for a resource that a known group does not have."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """409 on creation."""
    message = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str = "") -> ApiError:
    """409 on update; by default because of the resourceVersion."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details(group, plural, name))


def apply_conflict(causes: Sequence[Cause]) -> ApiError:
    """409 of a server-side apply without force."""
    count = f"{len(causes)} conflict" + ("" if len(causes) == 1 else "s")
    by_manager: dict[str, list[str]] = {}
    for cause in causes:
        by_manager.setdefault(cause["message"].removeprefix("conflict with "), []).append(cause["field"])
    if len(by_manager) == 1 and len(causes) == 1:
        told = f"conflict with {next(iter(by_manager))}: {causes[0]['field']}"
    else:
        told = "conflicts with " + "\nconflicts with ".join(
            f"{manager}:\n" + "\n".join(f"- {field}" for field in sorted(fields))
            for manager, fields in sorted(by_manager.items())
        )
    message = f"Apply failed with {count}: {told}"
    return ApiError(409, "Conflict", message, {"causes": list(causes)})


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def field_error(field: str, reason: str, message: str) -> Cause:
    """One cause of an Invalid status."""
    return {"reason": reason, "message": message, "field": field}


def invalid_value(field: str, value: object, why: str) -> Cause:
    """The cause FieldValueInvalid."""
    shown = value if isinstance(value, str) and value.startswith("0x") else _shown(value)
    return field_error(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def required(field: str, why: str = "") -> Cause:
    """The cause FieldValueRequired."""
    return field_error(field, "FieldValueRequired", "Required value" + (f": {why}" if why else ""))


def unsupported(field: str, value: object, allowed: Sequence[str]) -> Cause:
    """The cause FieldValueNotSupported."""
    supported = ", ".join(_shown(each) for each in allowed)
    message = f"Unsupported value: {_shown(value)}: supported values: {supported}"
    return field_error(field, "FieldValueNotSupported", message)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 of a validation."""
    told = [f"{cause['field']}: {cause['message']}" for cause in causes]
    listed = told[0] if len(told) == 1 else "[" + ", ".join(told) + "]"
    message = f'{qualified(group, kind)} "{name}" is invalid: {listed}'
    return ApiError(422, "Invalid", message, details(group, kind, name, causes=list(causes)))


def forbidden(group: str, plural: str, name: str, why: str, **more: Any) -> ApiError:
    """403; for a list there is no name."""
    named = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return ApiError(403, "Forbidden", f"{named} is forbidden: {why}", details(group, plural, name, **more))


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type() -> ApiError:
    """415 of a PATCH."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def internal(why: str) -> ApiError:
    """500."""
    message = f"Internal error occurred: {why}"
    return ApiError(500, "InternalError", message, {"causes": [{"message": why}]})


def expired(message: str, metadata: Object | None = None) -> ApiError:
    """410."""
    return ApiError(410, "Expired", message, metadata=metadata)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else str(value)
