"""Reads the protobuf bodies that kubectl sends for built-in kinds; answers are always JSON.

Go writes zero values that JSON would leave out; types.conform drops them afterwards.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from responder.sim import types

Object = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


class ProtobufError(ValueError):
    """The bytes are no Kubernetes protobuf of a known type."""


def decode(body: bytes) -> Object:
    """The object in an enveloped protobuf body; raises ProtobufError."""
    if not body.startswith(_MAGIC):
        raise ProtobufError("no Kubernetes protobuf envelope")
    try:
        envelope = dict(_wire(body[len(_MAGIC) :]))
        meta = dict(_wire(envelope.get(1, b"")))
        version, kind = meta.get(1, b"").decode(), meta.get(2, b"").decode()
        name = types.name_of(version, kind)
        if name is None and kind == "DeleteOptions":
            name = "meta/v1.DeleteOptions"
        if name is None:
            raise ProtobufError(f'no kind "{kind}" is registered for version "{version}"')
        return {"kind": kind, "apiVersion": version} | _message(envelope.get(2, b""), name)
    except (IndexError, UnicodeDecodeError, AttributeError, TypeError) as problem:
        raise ProtobufError(str(problem)) from problem


def _message(data: bytes, name: str) -> Object:
    known = types.raw_fields(name)
    found: Object = {}
    for number, value in _wire(data):
        field, kind = known.get(number, ("", ""))
        if not field:
            continue
        if field.startswith("*"):
            found |= _message(value, kind)
        elif kind.startswith("[]"):
            found.setdefault(field, []).append(_value(value, kind[2:]))
        elif kind.startswith("{}"):
            pair = dict(_wire(value))
            found.setdefault(field, {})[pair.get(1, b"").decode()] = _value(pair.get(2, b""), kind[2:])
        else:
            found[field] = _value(value, kind)
    return found


def _value(value: Any, kind: str) -> Any:
    if isinstance(value, int):
        return bool(value) if kind == "bool" else value
    if kind == "string":
        return value.decode()
    if kind == "bytes":
        return msgspec.json.decode(msgspec.json.encode(value))
    if kind in ("Time", "MicroTime"):
        return _time(dict(_wire(value)), kind)
    if kind == "Quantity":
        return dict(_wire(value)).get(1, b"").decode()
    if kind == "IntOrString":
        parts = dict(_wire(value))
        return parts.get(3, b"").decode() if parts.get(1) else parts.get(2, 0)
    if kind in ("FieldsV1", "RawExtension"):
        raw = dict(_wire(value)).get(1, b"")
        return msgspec.json.decode(raw) if raw else None
    if kind in types.WRAPPERS:
        return [item.decode() for _, item in _wire(value)]
    return _message(value, kind)


def _time(parts: dict[int, Any], kind: str) -> str | None:
    if not parts:
        return None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        seconds=_signed(parts.get(1, 0)), microseconds=parts.get(2, 0) // 1000
    )
    if kind == "Time":
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _wire(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, at = _varint(data, at)
            yield number, _signed(value)
        elif form == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ProtobufError("unexpected EOF")
            yield number, data[at : at + length]
            at += length
        elif form in (1, 5):
            at += 8 if form == 1 else 4
        else:
            raise ProtobufError(f"illegal wire type {form}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
