"""The API described in OpenAPI 3.1: one row per operation, beside the schemas of `shapes`."""

from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

from flask import Blueprint, Response, request

from responder.model import Reason
from responder.web.answers import answer
from responder.web.app import needs
from responder.web.auth import Role
from responder.web.queries import MAX_LIMIT, refuse_unknown
from responder.web.shapes import FLAG, TEXT, TIME, Schema, many, ref, schemas

openapi = Blueprint("openapi", __name__, url_prefix="/api/v1")

_STATUSES = {
    200: "As asked for.",
    201: "It is kept.",
    304: "As what If-None-Match names.",
    400: "The request is wrong; the sentence says how.",
    401: "No valid token was sent.",
    403: "The token, the host or the page that sent this may not.",
    404: "There is none.",
    405: "This path does not take that method.",
    409: "It may be several; `near` lists them.",
    413: "The body is too large.",
    415: "The Content-Type is not application/json.",
    422: "It is understood and refused; the sentence says why.",
    429: "Too many failed attempts from this address; a valid token passes.",
    503: "It cannot be kept or read now.",
}


def query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": {**TEXT, "minLength": 1}}


_LIMIT = query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100}, "At most.")
_FILTER = {**query("filter", many(TEXT), 'A matcher, as in name="value".'), "explode": True}
_HAVE = {
    "name": "If-None-Match",
    "in": "header",
    "schema": TEXT,
    "description": "The ETag of an answer that is there already.",
}
_TARGET = (path("namespace"), path("kind"), path("name"))
_READS = {403: "Error", 503: "Error"}
_TAKES = {400: "Error", 403: "Error", 413: "Error", 415: "Error", 422: "Error", 503: "Error"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `answers` are schemas' names by status; a role of None is open to all."""

    method: str
    path: str
    summary: str
    role: Role | None
    answers: dict[int, Any]
    parameters: tuple[Schema, ...] = ()
    body: str = ""
    media: str = "application/json"
    tag: str = field(default="responder")


def _flag(name: str, description: str, default: bool = False) -> Schema:
    return query(name, {**FLAG, "default": default}, description)


OPERATIONS = (
    Operation(
        "post", "/api/v1/webhooks/alertmanager", "Deliver alerts: Alertmanager's webhook, payload version 4.",
        Role.ALERTMANAGER, {200: "WebhookAnswer", **_TAKES}, body="Webhook",
    ),
    Operation(
        "get", "/api/v1/targets", "Every target known, with its state and why.", Role.VIEWER,
        {200: "Targets", 304: None, **_READS},
        (
            query("namespace", TEXT, "A glob."),
            query("kind", TEXT, "A glob."),
            query("name", TEXT, "A glob."),
            query("state", TEXT, "A glob."),
            query("q", TEXT, "A part of namespace/kind/name."),
            _HAVE,
        ),
    ),
    Operation(
        "get", "/api/v1/targets/{namespace}/{kind}/{name}",
        "One target with its last decisions, its timeline and the chain of reasons of the last decision.",
        Role.VIEWER, {200: "TargetInFull", 304: None, 400: "Error", 404: "NotFound", 409: "NotFound", **_READS},
        (*_TARGET, _HAVE),
    ),
    Operation(
        "get", "/api/v1/test-alert", "The last alert that arrived and only asks whether alerts arrive.", Role.VIEWER,
        {200: "TestAlert", **_READS},
    ),
    Operation(
        "get", "/api/v1/decisions", "History, newest first.", Role.VIEWER,
        {200: "Decisions", 304: None, 400: "Error", **_READS},
        (
            query("namespace", TEXT, "Exactly."),
            query("kind", TEXT, "Exactly."),
            query("name", TEXT, "Exactly."),
            query("reason", {"type": "string", "enum": ["", *(each.value for each in Reason)]}, "Exactly."),
            query("since", TIME, "Not before."),
            query("id", {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "The one of this number."),
            _LIMIT,
            _flag("inputs", "With what each was decided from."),
            _HAVE,
        ),
    ),
    Operation(
        "get", "/api/v1/overrides", "Overrides in force or to come, newest first.", Role.VIEWER,
        {200: "Overrides", 304: None, 400: "Error", **_READS}, (_flag("ended", "Also those that ended."), _HAVE),
    ),
    Operation(
        "post", "/api/v1/overrides", "Overrule the policies, with an owner, a reason and an end.", Role.OPERATOR,
        {201: "CreatedOverride", 404: "NotFound", 409: "NotFound", **_TAKES}, body="NewOverride",
    ),
    Operation(
        "get", "/api/v1/overrides/{identifier}", "An override, ended or not.", Role.VIEWER,
        {200: "Override", 404: "Error", **_READS}, (path("identifier"),),
    ),
    Operation(
        "delete", "/api/v1/overrides/{identifier}",
        "End an override now. One that has ended stays as it is, and the answer is the same.", Role.OPERATOR,
        {200: "Override", 404: "Error", **_READS}, (path("identifier"), query("comment", TEXT, "Why.")),
    ),
    Operation(
        "get", "/api/v1/audit", "What people changed, newest first.", Role.OPERATOR,
        {200: "Audit", 400: "Error", **_READS}, (_LIMIT,),
    ),
    Operation("get", "/api/v1/openapi.json", "This description.", None, {200: {"type": "object"}, 403: "Error"}),
    Operation(
        "get", "/api/v2/status", "What amtool asks for first.", Role.VIEWER, {200: "AlertmanagerStatus", **_READS}
    ),
    Operation(
        "get", "/api/v2/silences", "Silences, those that expired lately too.", Role.VIEWER,
        {200: many(ref("Silence")), 304: None, 400: "Error", **_READS}, (_FILTER, _HAVE),
    ),
    Operation(
        "post", "/api/v2/silences", "Make a silence, or change the one whose id is given.", Role.OPERATOR,
        {200: "SilenceId", 404: "Error", **_TAKES}, body="NewSilence",
    ),
    Operation(
        "get", "/api/v2/silence/{identifier}", "A silence, expired or not.", Role.VIEWER,
        {200: "Silence", 404: "Error", **_READS}, (path("identifier"),),
    ),
    Operation(
        "delete", "/api/v2/silence/{identifier}",
        "End a silence now. One that has expired stays as it is.", Role.OPERATOR,
        {200: None, 404: "Error", **_READS}, (path("identifier"),),
    ),
    Operation(
        "get", "/api/v2/alerts", "Alerts that are known and not over.", Role.VIEWER,
        {200: many(ref("AlertmanagerAlert")), 400: "Error", **_READS},
        (
            _FILTER,
            _flag("active", "Those that are not silenced.", True),
            _flag("silenced", "Those that are.", True),
            _flag("inhibited", "Has no effect: what is inhibited is not delivered.", True),
            _flag("unprocessed", "Has no effect.", True),
            query("receiver", TEXT, "A regular expression."),
        ),
    ),
    Operation("get", "/-/healthy", "The process answers.", None, {200: "Health", 403: "Error"}, tag="operations"),
    Operation(
        "get", "/-/ready", "Whether deliveries can be taken in, and what is amiss besides.", None,
        {200: "Readiness", 403: "Error", 503: "Readiness"}, tag="operations",
    ),
    Operation(
        "post", "/-/reload", "Read the policy file now.", Role.OPERATOR,
        {200: "Reloaded", 422: "Error", **_READS}, tag="operations",
    ),
    Operation(
        "get", "/metrics", "The service's own metrics, for Prometheus.", Role.VIEWER,
        {200: TEXT, **_READS}, media="text/plain", tag="operations",
    ),
)  # fmt: skip


_OURS = "/api/v1/"
"""Here a parameter that is not described is refused; Alertmanager's clients may send what they like."""


def refuse_undescribed() -> None:
    """Refuse the request's parameters that its operation does not have. Raises BadRequest."""
    rule = request.url_rule
    if rule is None or not rule.rule.startswith(_OURS):
        return
    asked = rule.rule.replace("<", "{").replace(">", "}")
    method = {"HEAD": "get"}.get(request.method, request.method.lower())
    operation = next((each for each in OPERATIONS if (each.method, each.path) == (method, asked)), None)
    if operation is not None:
        refuse_unknown([each["name"] for each in operation.parameters if each["in"] == "query"])


@openapi.get("/openapi.json")
@needs(None)
def described() -> Response:
    """The API described. It holds nothing of this service's state, so it is open."""
    return answer(description())


@cache
def description() -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpu-responder",
            "version": metadata.version("gpu-responder"),
            "summary": "Turns GPU alerts into idempotent, explained scaling of Kubernetes workloads.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic", "description": "The token is the password."},
            },
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    role = operation.role
    statuses = dict(operation.answers) if role is None else {**operation.answers, 401: "Error", 429: "Error"}
    if operation.path.startswith(_OURS):
        statuses[400] = "Error"
    security: list[Schema] = [] if role is None else [{"bearer": []}, {"basic": []}]
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method} {operation.path}",
        "tags": [operation.tag],
        "security": security,
        "x-role": role.value if role else "",
        "responses": {
            str(status): _response(operation, status, statuses[status]) for status in sorted(statuses)
        },
    }
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body:
        content = {"application/json": {"schema": ref(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _response(operation: Operation, status: int, schema: Any) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _STATUSES[status]}
    if schema is None:
        return response
    if schema == "Error" and operation.path.startswith("/api/v2/"):
        schema = "AlertmanagerError"
    media = operation.media if status < 300 else "application/json"
    response["content"] = {media: {"schema": ref(schema) if isinstance(schema, str) else schema}}
    return response
