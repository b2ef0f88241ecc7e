"""What the real server refuses in an object, for the kinds that matter here."""

import json
import re
from collections.abc import Iterator
from typing import Any

from responder.sim import errors
from responder.sim.resources import Resource
from responder.sim.selectors import from_label_selector

Object = dict[str, Any]
Cause = errors.Cause

MAX_DATA = 1024 * 1024
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN_TOLD = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TOLD = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and"
    " end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_TOLD = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
    " start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used"
    " for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_TOLD = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_NAMED = frozenset({"namespaces", "services"})
_PATH_NAMED = frozenset({"rbac.authorization.k8s.io"})
_NOT_NEGATIVE = "must be greater than or equal to 0"
_TEMPLATED = frozenset({"deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps"})


def check(resource: Resource, obj: Object, old: Object | None = None) -> None:
    """Raise Invalid if the real server would refuse this object (`old` None: on creation)."""
    causes = [*_metadata(resource, obj, old)]
    key = resource.key
    if key in ("configmaps", "secrets"):
        causes += _data(obj, "[]" if key == "configmaps" else "data")
    elif key == "events":
        causes += _event(obj)
    elif key in _TEMPLATED:
        causes += _templated(obj, old)
    elif key == "pods":
        causes += _pod(obj, old)
    elif key == "horizontalpodautoscalers.autoscaling":
        causes += _autoscaler(obj)
    elif key == "leases.coordination.k8s.io":
        causes += _lease(obj)
    elif key == "customresourcedefinitions.apiextensions.k8s.io":
        causes += _definition(obj)
    elif resource.custom:
        causes += structural(obj, resource.schema)
    if causes:
        raise errors.invalid(resource.group, resource.kind, obj["metadata"].get("name") or "", causes)


def check_replicas(scale: Object, name: str) -> None:
    """Raise Invalid for a Scale below zero."""
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        cause = errors.invalid_value("spec.replicas", replicas, _NOT_NEGATIVE)
        raise errors.invalid("autoscaling", "Scale", name, [cause])


def prune(value: Any, schema: Object, *, root: bool = False) -> Any:
    """A custom object without the fields that its structural schema does not know, and with its defaults."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [prune(item, items) for item in value] if items else value
    if not isinstance(value, dict):
        return value
    properties: Object = schema.get("properties") or {}
    further = schema.get("additionalProperties")
    keep_all = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or (not schema and not root)
    pruned: Object = {}
    for key, below in value.items():
        if root and key in ("apiVersion", "kind", "metadata"):
            pruned[key] = below
        elif key in properties:
            pruned[key] = prune(below, properties[key])
        elif isinstance(further, dict):
            pruned[key] = prune(below, further)
        elif keep_all or further is True or schema.get("x-kubernetes-embedded-resource"):
            pruned[key] = below
    for key, wanted in properties.items():
        if key not in pruned and "default" in wanted:
            pruned[key] = prune(json.loads(json.dumps(wanted["default"])), wanted)
    return pruned


def structural(obj: Object, schema: Object) -> Iterator[Cause]:
    """What a custom object breaks in its schema; metadata aside."""
    body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    yield from _schema(body, {**schema, "required": schema.get("required") or []}, "")


def _schema(value: Any, schema: Object, path: str) -> Iterator[Cause]:
    wanted = schema.get("type")
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield _wrong_type(value, path, "integer,string")
        return
    if wanted and not _is_type(value, wanted):
        yield _wrong_type(value, path, wanted)
        return
    if schema.get("enum") and value not in schema["enum"]:
        yield errors.unsupported(path, value, schema["enum"])
    if isinstance(value, int | float):
        yield from _bounds(value, schema, path)
    elif isinstance(value, dict):
        yield from _properties(value, schema, path)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for at, item in enumerate(value):
            yield from _schema(item, schema["items"], f"{path}[{at}]")


def _bounds(value: float, schema: Object, path: str) -> Iterator[Cause]:
    if "minimum" in schema and value < schema["minimum"]:
        told = f"{path} in body should be greater than or equal to {schema['minimum']}"
        yield errors.invalid_value(path, value, told)
    if "maximum" in schema and value > schema["maximum"]:
        told = f"{path} in body should be less than or equal to {schema['maximum']}"
        yield errors.invalid_value(path, value, told)


def _properties(value: Object, schema: Object, path: str) -> Iterator[Cause]:
    within = f"{path}." if path else ""
    for key in schema.get("required") or ():
        if key not in value:
            yield errors.required(f"{within}{key}")
    for key, below in value.items():
        inner = (schema.get("properties") or {}).get(key)
        if isinstance(inner, dict):
            yield from _schema(below, inner, f"{within}{key}")


def _is_type(value: Any, wanted: str) -> bool:
    if wanted in ("integer", "number"):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return not isinstance(value, bool) and (whole or (wanted == "number" and isinstance(value, float)))
    known = {"object": dict, "array": list, "string": str, "boolean": bool}
    return wanted not in known or isinstance(value, known[wanted])


def _wrong_type(value: Any, path: str, wanted: str) -> Cause:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    found = names.get(type(value), "null")
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return errors.field_error(path, "FieldValueTypeInvalid", message)


def _metadata(resource: Resource, obj: Object, old: Object | None) -> Iterator[Cause]:
    meta = obj["metadata"]
    name = meta.get("name") or ""
    if old is None:
        if not name:
            yield errors.required("metadata.name", "name or generateName is required")
        elif why := _bad_name(resource, name):
            yield errors.invalid_value("metadata.name", name, why)
    else:
        for field in ("name", "namespace", "uid"):
            was = old["metadata"].get(field)
            if meta.get(field) and meta[field] != was:
                yield errors.invalid_value(f"metadata.{field}", meta[field], "field is immutable")
    for key, value in (meta.get("labels") or {}).items():
        if not _is_label_key(key):
            yield errors.invalid_value("metadata.labels", key, _KEY_TOLD)
        if len(value) > 63:
            yield errors.invalid_value("metadata.labels", value, "must be no more than 63 bytes")
        elif not _LABEL_VALUE.fullmatch(value):
            yield errors.invalid_value("metadata.labels", value, _VALUE_TOLD)
    for key in meta.get("annotations") or {}:
        if not _is_label_key(key.lower()):
            yield errors.invalid_value("metadata.annotations", key, _KEY_TOLD)


def _bad_name(resource: Resource, name: str) -> str:
    if resource.group in _PATH_NAMED:
        return "may not contain '/'" if "/" in name else ""
    if resource.key in _LABEL_NAMED:
        if len(name) > 63:
            return "must be no more than 63 bytes"
        return "" if _LABEL.fullmatch(name) else _LABEL_TOLD
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_TOLD


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253):
        return False
    return len(name) <= 63 and bool(_QUALIFIED.fullmatch(name))


def _data(obj: Object, field: str) -> Iterator[Cause]:
    total = sum(len(value.encode()) for value in (obj.get("data") or {}).values())
    total += sum(len(value) * 3 // 4 for value in (obj.get("binaryData") or {}).values())
    if total > MAX_DATA:
        told = f"Too long: may not be more than {MAX_DATA} bytes"
        yield errors.field_error(field, "FieldValueTooLong", told)


def _event(obj: Object) -> Iterator[Cause]:
    namespace = obj["metadata"].get("namespace") or ""
    field = "involvedObject" if "involvedObject" in obj else "regarding"
    about = (obj.get(field) or {}).get("namespace") or ""
    if about != namespace and not (not about and namespace == "default"):
        why = "does not match event.namespace"
        yield errors.invalid_value("involvedObject.namespace", about, why)


def _templated(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    replicas = spec.get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        yield errors.invalid_value("spec.replicas", replicas, _NOT_NEGATIVE)
    template = spec.get("template") or {}
    selector = spec.get("selector")
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector:
        yield errors.required("spec.selector")
    elif not from_label_selector(selector)(labels):
        why = "`selector` does not match template `labels`"
        yield errors.invalid_value("spec.template.metadata.labels", labels, why)
    yield from _containers(template.get("spec") or {}, "spec.template.spec")
    if old is not None and old["spec"].get("selector") != selector:
        yield errors.invalid_value("spec.selector", selector, "field is immutable")


def _pod(obj: Object, old: Object | None) -> Iterator[Cause]:
    yield from _containers(obj.get("spec") or {}, "spec")
    if (
        old is not None
        and old["spec"].get("nodeName")
        and old["spec"]["nodeName"] != obj["spec"].get("nodeName")
    ):
        why = "pod updates may not change fields other than `spec.containers[*].image`"
        yield errors.field_error("spec", "FieldValueForbidden", f"Forbidden: {why}")


def _containers(spec: Object, path: str) -> Iterator[Cause]:
    containers = spec.get("containers")
    if not containers:
        yield errors.required(f"{path}.containers")
        return
    seen: set[str] = set()
    for at, container in enumerate(containers):
        name = container.get("name") or ""
        if not name:
            yield errors.required(f"{path}.containers[{at}].name")
        elif name in seen:
            told = f"Duplicate value: {json.dumps(name)}"
            yield errors.field_error(f"{path}.containers[{at}].name", "FieldValueDuplicate", told)
        elif not _LABEL.fullmatch(name):
            yield errors.invalid_value(f"{path}.containers[{at}].name", name, _LABEL_TOLD)
        seen.add(name)
        if not container.get("image"):
            yield errors.required(f"{path}.containers[{at}].image")


def _autoscaler(obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas") or 0
    if least < 1:
        yield errors.invalid_value("spec.minReplicas", least, "must be greater than or equal to 1")
    if most < 1:
        yield errors.invalid_value("spec.maxReplicas", most, "must be greater than 0")
    elif most < least:
        why = "must be greater than or equal to `minReplicas`"
        yield errors.invalid_value("spec.maxReplicas", most, why)
    target = spec.get("scaleTargetRef") or {}
    for field in ("kind", "name"):
        if not target.get(field):
            yield errors.required(f"spec.scaleTargetRef.{field}")


def _lease(obj: Object) -> Iterator[Cause]:
    seconds = (obj.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield errors.invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")


def _definition(obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    for field in ("group", "scope"):
        if not spec.get(field):
            yield errors.required(f"spec.{field}")
    for field in ("plural", "kind"):
        if not names.get(field):
            yield errors.required(f"spec.names.{field}")
    if not spec.get("versions"):
        yield errors.required("spec.versions")
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if obj["metadata"].get("name") != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        yield errors.invalid_value("metadata.name", obj["metadata"].get("name"), why)
