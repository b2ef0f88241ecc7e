"""The shape of built-in types: which fields they have, and of which type.

`kubernetes-types.json` says it for each type as {field: [protobuf number, type]}: a scalar, a leaf such as
Quantity, or another type; `[]` before it makes a list, `{}` a map by string, and `*` before a field says that JSON
has the fields of that type in its place. A third value, 1, says that JSON leaves out the field's zero value.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

Object = dict[str, Any]
Fields = dict[str, tuple[int, str, bool]]

_Table = dict[str, dict[str, list[Any]]]

WRAPPERS = frozenset(
    {"authentication/v1.ExtraValue", "authorization/v1.ExtraValue", "core/v1.DownwardAPIProjection"}
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_RANGES = {"int32": 2**31, "int64": 2**63}
_GO_LEAVES = {
    "string": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "bytes": "[]uint8",
    "double": "float64",
}


class MismatchError(Exception):
    """A value of the wrong type, in the words of Go's encoding/json."""


def name_of(api_version: str, kind: str) -> str | None:
    """The type of an object; None if its shape is not known."""
    group, _, version = api_version.rpartition("/")
    short = {"": "core", "events.k8s.io": "events", "coordination.k8s.io": "coordination"}.get(
        group, group.partition(".")[0]
    )
    found = f"{short}/{version}.{kind}"
    return found if found in _table() else None


@cache
def fields(name: str) -> Fields:
    """The fields of a type as JSON has them."""
    found: Fields = {}
    for field, (number, kind, *omitted) in _table()[name].items():
        if field.startswith("*"):
            found |= fields(kind)
        else:
            found[field] = (number, kind, bool(omitted))
    return found


@cache
def raw_fields(name: str) -> dict[int, tuple[str, str]]:
    """The fields of a type by their protobuf numbers, embedded types as such."""
    return {number: (field, kind) for field, (number, kind, *_) in _table()[name].items()}


def conform(data: Object, kind: str) -> list[str]:
    """Drop nulls, unknown fields and omitted zeros in place; returns the unknown. Raises MismatchError."""
    version = str(data.get("apiVersion") or "")
    name = name_of(version, kind)
    if name is None:
        return []
    unknown: list[str] = []
    _conform(data, name, "", unknown, top=True)
    return unknown


def is_zero(value: Any) -> bool:
    """Whether Go's JSON leaves this out where it leaves out zero values."""
    return value in ("", 0, [], {})  # False is 0.


def _conform(data: Object, name: str, path: str, unknown: list[str], *, top: bool = False) -> None:
    known = fields(name)
    for field in list(data):
        if top and field in ("apiVersion", "kind"):
            continue
        at = f"{path}.{field}" if path else field
        if field not in known:
            unknown.append(at)
            del data[field]
            continue
        if data[field] is None:
            del data[field]
            continue
        _, kind, omitted = known[field]
        value = _value(data[field], kind, at, name, unknown)
        if omitted and is_zero(value):
            del data[field]
        else:
            data[field] = value


def _value(value: Any, kind: str, path: str, owner: str, unknown: list[str]) -> Any:
    if kind.startswith("[]"):
        if not isinstance(value, list):
            raise _mismatch(value, path, owner, kind)
        inner = kind[2:]
        return [_value(item, inner, f"{path}[{at}]", owner, unknown) for at, item in enumerate(value)]
    if kind.startswith("{}"):
        if not isinstance(value, dict):
            raise _mismatch(value, path, owner, kind)
        return {k: _value(v, kind[2:], path, owner, unknown) for k, v in value.items() if v is not None}
    if kind in _table() and kind not in WRAPPERS:
        if not isinstance(value, dict):
            raise _mismatch(value, path, owner, kind)
        _conform(value, kind, path, unknown)
        return value
    return _leaf(value, kind, path, owner)


def _leaf(value: Any, kind: str, path: str, owner: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "Quantity" and number:
        return str(value)
    good = {
        "string": isinstance(value, str),
        "bytes": isinstance(value, str),
        "bool": isinstance(value, bool),
        "double": number,
        "Quantity": isinstance(value, str),
        "IntOrString": isinstance(value, str) or (number and float(value).is_integer()),
        "Time": isinstance(value, str),
        "MicroTime": isinstance(value, str),
    }
    if kind in _RANGES:
        if not number or not float(value).is_integer() or not -_RANGES[kind] <= value < _RANGES[kind]:
            raise _mismatch(value, path, owner, kind)
        return int(value)
    if not good.get(kind, True):
        raise _mismatch(value, path, owner, kind)
    if kind in ("Time", "MicroTime") and not _TIME.fullmatch(value):
        layout = "2006-01-02T15:04:05Z07:00" if kind == "Time" else "2006-01-02T15:04:05.000000Z07:00"
        raise MismatchError(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
    return value


def _mismatch(value: Any, path: str, owner: str, kind: str) -> MismatchError:
    told = {str: "string", bool: "bool", list: "array", dict: "object"}.get(type(value), "number")
    go = _go(kind)
    if told == "number" and kind in _RANGES:
        told = f"number {value:g}" if isinstance(value, float) else f"number {value}"
    struct = owner.rpartition(".")[2]
    at = re.sub(r"\[\d+\]", "", path)
    return MismatchError(f"json: cannot unmarshal {told} into Go struct field {struct}.{at} of type {go}")


def _go(kind: str) -> str:
    if kind.startswith("[]"):
        return f"[]{_go(kind[2:])}"
    if kind.startswith("{}"):
        return f"map[string]{_go(kind[2:])}"
    return _GO_LEAVES.get(kind) or f"v1.{kind.rpartition('.')[2]}"


@cache
def _table() -> _Table:
    data = files("responder.sim").joinpath("kubernetes-types.json").read_bytes()
    table: _Table = msgspec.json.decode(data)
    return table
