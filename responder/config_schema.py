"""The policy file's JSON Schema: faults worded for people, defaults, and a table of every key."""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jsonschema

from responder.config_yaml import Document, Path

Schema = dict[str, Any]
# The library types its errors' fields as unions with Unset, which none of those it raises has.
_Error = Any

SCHEMA: Schema = json.loads(resources.files("responder").joinpath("schemas/policy.json").read_text("utf-8"))


def _pattern(_: object, pattern: str, instance: object, __: object) -> Iterator[jsonschema.ValidationError]:
    """In JSON Schema's regular expressions `$` is the end; in Python's it lets a newline follow."""
    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield jsonschema.ValidationError("does not match")


_extend: Any = jsonschema.validators.extend  # Its stub has no types.
Validator: Any = _extend(jsonschema.Draft202012Validator, {"pattern": _pattern})
"""Of JSON Schema 2020-12, for schemas whose faults are told by `worded`."""
_VALIDATOR = Validator(SCHEMA)
# Defaults that hold for some types of trigger only.
STEP_DEFAULTS: Mapping[str, Any] = {"maxStepsPerEpisode": 1}
SIZED_DEFAULTS: Mapping[str, Any] = {"evaluationSeconds": 30}
_TYPES = {
    "object": "a mapping of keys",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the policy file, for the documentation. `path` has `[]` where a list stands."""

    path: str
    type: str
    required: bool
    default: Any
    description: str


def check_schema(document: Document) -> None:
    """Add a fault for everything that the schema does not allow."""
    unread = {fault.path for fault in document.faults}
    error: _Error
    for error in _VALIDATOR.iter_errors(document.value):
        path: Path = tuple(error.absolute_path)
        if path in unread:
            continue
        if error.validator == "additionalProperties":
            for key in sorted(set(error.instance) - set(error.schema["properties"])):
                document.fault((*path, key), _unknown(key, error.schema))
            continue
        if error.validator == "required":
            missing = [key for key in error.validator_value if key not in error.instance]
            # The validator reports each missing key by itself, and names it only in its message.
            key = next(key for key in missing if error.message.startswith(repr(key)))
            document.fault(path, f"key {key} is missing; add it")
            continue
        document.fault(path, worded(error))


def worded(error: _Error) -> str:
    """What is wrong with a value and what to write, to follow the key. Not for missing and unknown keys."""
    return _WORDS.get(str(error.validator), _unworded)(error)


def with_defaults(value: Mapping[str, Any]) -> dict[str, Any]:
    """The file's content with every default in place; the content itself is not changed."""
    filled: dict[str, Any] = _fill(SCHEMA, deepcopy(dict(value)))
    for policy in filled.get("policies", ()):
        for trigger in policy.get("triggers", ()):
            kind = trigger.get("scale", {}).get("type")
            if kind in ("Utilization", "AverageValue"):
                trigger.update({**SIZED_DEFAULTS, **trigger})
            elif kind in ("Pods", "Percent"):
                trigger.update({**STEP_DEFAULTS, **trigger})
    return filled


def keys() -> Iterator[Key]:
    """Every key of the policy file in the schema's order."""
    yield from _keys(SCHEMA, "")


def nearest(word: str, known: list[str]) -> str:
    """The known word that was probably meant; empty when none is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[near[0]] if near else ""


def _unknown(key: str, schema: Schema) -> str:
    near = nearest(key, list(schema["properties"]))
    if near:
        return f"unknown key; did you mean {near}?"
    places = [known.path for known in keys() if known.path.rpartition(".")[2].removesuffix("[]") == key]
    if places:
        return f"unknown key here; it belongs at {' or '.join(places)}"
    return f"unknown key; known here are {', '.join(schema['properties'])}"


def _shown(value: Any, limit: int = 60) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _type(error: _Error) -> str:
    names = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    wanted = " or ".join(_TYPES[name] for name in names)
    if error.instance is None:
        return f"has no value; write {wanted} or leave the key out"
    hint = ""
    if isinstance(error.instance, str) and {"number", "integer"} & set(names):
        key = error.absolute_path[-1]
        if error.instance.isdecimal():
            hint = "; remove the quotes"
        elif isinstance(key, str) and key.endswith("Seconds"):
            hint = "; durations are numbers of seconds"
    return f"{_shown(error.instance)} is not {wanted}{hint}"


def _enum(error: _Error) -> str:
    known = [str(name) for name in error.validator_value]
    near = nearest(error.instance, known) if isinstance(error.instance, str) else ""
    meant = f"; did you mean {near}?" if near else ""
    return f"{_shown(error.instance)} is not one of {', '.join(known)}{meant}"


def _must(error: _Error) -> str:
    return f"{_shown(error.instance)} must {error.schema.get('x-must', 'have another form')}"


def _empty(error: _Error) -> str:
    return f"is empty; {error.schema.get('x-empty', 'write at least one')}"


def _unworded(error: _Error) -> str:
    return " ".join(error.message.split())


_WORDS: dict[str, Callable[[_Error], str]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda e: f"{_shown(e.instance)} is not {e.validator_value}; write {e.validator_value}",
    "pattern": _must,
    "minItems": _empty,
    "minLength": lambda _: "is empty; write something or leave the key out",
    "maxLength": lambda e: f"is longer than {e.validator_value} characters; shorten it",
    "uniqueItems": lambda _: "has an item twice; keep one of them",
    "minimum": lambda e: f"{_shown(e.instance)} is below {e.validator_value}; raise it",
    "exclusiveMinimum": lambda e: f"{_shown(e.instance)} is not above {e.validator_value}; raise it",
    "maximum": lambda e: f"{_shown(e.instance)} is above {e.validator_value}; lower it",
    "exclusiveMaximum": lambda e: f"{_shown(e.instance)} is not below {e.validator_value}; lower it",
}


def _resolve(schema: Schema) -> Schema:
    """A schema with its `$ref` followed; what stands beside the reference wins."""
    if "$ref" not in schema:
        return schema
    return {**SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], **schema}


def _fill(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        for key, raw in schema.get("properties", {}).items():
            sub = _resolve(raw)
            if key not in value and "default" in sub and key not in {*STEP_DEFAULTS, *SIZED_DEFAULTS}:
                value[key] = deepcopy(sub["default"])
            if key in value:
                value[key] = _fill(sub, value[key])
    elif isinstance(value, list) and "items" in schema:
        return [_fill(_resolve(schema["items"]), item) for item in value]
    return value


def _keys(schema: Schema, prefix: str) -> Iterator[Key]:
    for name, raw in schema.get("properties", {}).items():
        sub = _resolve(raw)
        items = _resolve(sub["items"]) if "items" in sub else None
        path = prefix + name + ("[]" if items and "properties" in items else "")
        required = name in schema.get("required", ())
        yield Key(path, _kind(sub), required, sub.get("default"), sub["description"])
        yield from _keys(items or sub, f"{path}.")


def _kind(schema: Schema) -> str:
    """The type in words of one or two."""
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    words = {"object": "mapping", "array": "list", "string": "text", "integer": "whole number"}
    names: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(words.get(name, name) for name in names)
