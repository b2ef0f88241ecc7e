"""A request to the API server taken apart: what it asks for, and its body, with the server's complaints."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from responder.sim import errors, protobuf, types
from responder.sim.auth import Attributes
from responder.sim.resources import Resource

Object = dict[str, Any]

JSON = "application/json"
PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
MAX_BODY = 3 * 1024 * 1024
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "HEAD": "get"}


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, its query with one value per key."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def header(self, name: str) -> str:
        """A header by its lower-case name."""
        return self.headers.get(name, "")

    def flag(self, name: str) -> bool:
        """A boolean query parameter."""
        return self.query.get(name, "").lower() in ("true", "1")

    @property
    def manager(self) -> str:
        """fieldManager, or the first part of the User-Agent."""
        return (self.query.get("fieldManager") or self.header("user-agent").partition("/")[0])[
            :128
        ] or "unknown"

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.query

    @property
    def content_type(self) -> str:
        return self.header("content-type").partition(";")[0].strip()


@dataclass(frozen=True, slots=True)
class Info:
    """What a path asks for: either a resource or a bare path."""

    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self, request: Request) -> Attributes:
        """For authorization."""
        if not self.resource:
            return Attributes(verb=request.method.lower(), path=self.path)
        name = self.name
        selected = request.query.get("fieldSelector", "")
        if not name and request.method == "GET" and selected.startswith("metadata.name="):
            name = selected.removeprefix("metadata.name=")
        return Attributes(
            self.verb(request), self.group, self.resource, self.subresource, self.namespace, name
        )

    def verb(self, request: Request) -> str:
        """The verb of the Kubernetes API that a method means here."""
        if request.method == "GET":
            if request.flag("watch"):
                return "watch"
            return "get" if self.name else "list"
        if request.method == "DELETE":
            return "delete" if self.name else "deletecollection"
        return _VERBS.get(request.method, request.method.lower())


def locate(path: str) -> Info:
    """Take a path apart, whether or not what it names exists."""
    parts = [part for part in path.split("/") if part]
    if len(parts) > 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) > 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Info(path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return Info(path, group, version, namespace, rest[0], name, "/".join(rest[2:]))


def read_object(request: Request, resource: Resource) -> tuple[Object, list[str]]:
    """The object in a body, given its kind if it has none; and warnings about unknown fields."""
    data = read_plain(request, resource.kind)
    kind, version = data.get("kind") or resource.kind, data.get("apiVersion") or resource.api_version
    if version != resource.api_version:
        told = f"the API version in the data ({version}) does not match the expected API version"
        raise errors.bad_request(f"{told} ({resource.api_version})")
    if kind != resource.kind:
        short = version.rpartition("/")[2]
        raise errors.bad_request(
            f'{kind} in version "{short}" cannot be handled as a {resource.kind}: no kind "{kind}" is registered'
        )
    data = {"kind": kind, "apiVersion": version} | data
    warnings = settle(data, resource.kind, request, custom=resource.custom)
    if not isinstance(data.get("metadata"), dict):
        data["metadata"] = {}
    return data, warnings


def read_scale(request: Request) -> tuple[Object, list[str]]:
    """The Scale in a body."""
    data = read_plain(request, "Scale")
    version = data.get("apiVersion") or "autoscaling/v1"
    if version != "autoscaling/v1":
        told = f"the API version in the data ({version}) does not match the expected API version"
        raise errors.bad_request(f"{told} (autoscaling/v1)")
    data = {"kind": "Scale", "apiVersion": version} | data
    return data, settle(data, "Scale", request)


def settle(data: Object, kind: str, request: Request, *, custom: bool = False) -> list[str]:
    """Check types, drop nulls and unknown fields (or refuse them: fieldValidation); returns warnings."""
    if custom:
        return []
    version = str(data.get("apiVersion") or "").rpartition("/")[2]
    try:
        unknown = types.conform(data, kind)
    except types.MismatchError as mismatch:
        told = f'{kind} in version "{version}" cannot be handled as a {kind}: {mismatch}'
        raise errors.bad_request(told) from mismatch
    warnings = [f'unknown field "{path}"' for path in unknown]
    validation = request.query.get("fieldValidation") or "Warn"
    if warnings and validation == "Strict":
        told_all = f"strict decoding error: {', '.join(warnings)}"
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {told_all}')
    return warnings if validation == "Warn" else []


_OPTIONS = {
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}


def check_dry_run(request: Request) -> None:
    """Raise 422 for a dryRun that is not All: what was meant as a rehearsal must not be written."""
    kind, value = _OPTIONS.get(request.method), request.query.get("dryRun", "All")
    if kind and value != "All":
        raise errors.invalid("meta.k8s.io", kind, "", [errors.unsupported("dryRun", value, ["All"])])


def read_options(request: Request) -> Object:
    """DeleteOptions from body and query."""
    options: Object = {}
    if request.body.strip():
        options = read_plain(request, "DeleteOptions")
    for name in ("propagationPolicy", "gracePeriodSeconds", "orphanDependents"):
        if name in request.query:
            value: Any = request.query[name]
            options[name] = int(value) if name == "gracePeriodSeconds" else value
    if request.dry_run:
        options["dryRun"] = [request.query["dryRun"]]
    return options


def load_patch(request: Request) -> Any:
    """The patch in a body: JSON, or YAML for an apply."""
    try:
        if request.content_type == "application/apply-patch+yaml":
            return yaml.safe_load(request.body)
        return msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise errors.bad_request(f"error decoding patch: {go_json_error(request.body)}") from problem


def read_plain(request: Request, kind: str) -> Object:
    """The JSON, YAML or protobuf in a body, not looked at further."""
    if len(request.body) > MAX_BODY:
        message = f"Request entity too large: limit is {MAX_BODY}"
        raise errors.ApiError(413, "RequestEntityTooLarge", message, {})
    content_type = request.content_type or JSON
    try:
        if content_type == "application/yaml":
            found = yaml.safe_load(request.body)
        elif content_type == JSON:
            found = msgspec.json.decode(request.body)
        elif content_type == protobuf.MEDIA_TYPE:
            found = protobuf.decode(request.body)
        else:
            told = "the body of the request was in an unknown format - accepted media types include: "
            raise errors.ApiError(
                415,
                "UnsupportedMediaType",
                told + "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )
    except protobuf.ProtobufError as problem:
        shown = request.body[:30].hex()
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): {problem} ({shown})"
        ) from problem
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise _unrecognized(kind, request.body, go_json_error(request.body)) from problem
    if not isinstance(found, dict):
        name = {list: "array", str: "string", bool: "bool"}.get(type(found), "number")
        struct = _TYPE_META
        raise _unrecognized(
            kind, request.body, f"json: cannot unmarshal {name} into Go value of type {struct}"
        )
    return found


def _unrecognized(kind: str, body: bytes, why: str) -> errors.ApiError:
    if not body:
        shown = "<empty>"
    else:
        shown = body[:30].decode(errors="replace") if body[:1] == b"{" else body[:30].hex()
        shown += " ..." if len(body) > 30 else ""
    told = f"the object provided is unrecognized (must be of type {kind})"
    return errors.bad_request(f"{told}: couldn't get version/kind; json parse error: {why} ({shown})")


def go_json_error(body: bytes) -> str:
    """What Go's encoding/json says of a broken document."""
    try:
        text = body.decode()
        json.loads(text)
    except UnicodeDecodeError:
        return "invalid character in string literal"
    except json.JSONDecodeError as problem:
        at = problem.pos
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        if at >= len(text) or problem.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        told = {
            "Expecting value": "looking for beginning of value",
            "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
            "Expecting ':' delimiter": "after object key",
            "Expecting ',' delimiter": "after array element"
            if _in_array(text[:at])
            else "after object key:value pair",
            "Extra data": "after top-level value",
        }.get(problem.msg.removeprefix("Illegal trailing comma before end of object"), "in string literal")
        return f"invalid character {_go_quoted(text[at])} {told}"
    return "unexpected end of JSON input"


def _in_array(text: str) -> bool:
    stack: list[str] = []
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[{":
            stack.append(character)
        elif character in "]}" and stack:
            stack.pop()
    return bool(stack) and stack[-1] == "["


def _go_quoted(character: str) -> str:
    return {"'": "'\\''", '"': "'\"'", "\n": "'\\n'", "\t": "'\\t'"}.get(character, f"'{character}'")
