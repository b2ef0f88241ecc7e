"""The shape of built-in types: which fields they have, and of which type, as far as clients get them wrong."""

from typing import Any

Object = dict[str, Any]


class MismatchError(Exception):
    """A value of the wrong type, in the words of Go's encoding/json."""


def conform(data: Object, kind: str) -> list[str]:
    """Drop nulls and fields that the kind does not have, in place; returns their paths. Raises MismatchError."""
    if kind == "Scale":
        spec = data.get("spec") or {}
        unknown = [f"spec.{key}" for key in spec if key != "replicas"]
        replicas = spec.get("replicas")
        if replicas is not None and (isinstance(replicas, bool) or not isinstance(replicas, int)):
            name = {str: "string", bool: "bool", list: "array", dict: "object"}.get(
                type(replicas), f"number {replicas}"
            )
            raise MismatchError(
                f"json: cannot unmarshal {name} into Go struct field ScaleSpec.spec.replicas of type int32"
            )
        return unknown
    return []
