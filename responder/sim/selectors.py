"""Label and field selectors, in the syntax of the Kubernetes API."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Labels = Mapping[str, str]
Requirement = Callable[[Labels], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^()]*)\)$")
_NAME = re.compile(
    r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")


class SelectorError(ValueError):
    """The text is not a selector."""


def parse_labels(text: str) -> Callable[[Labels], bool]:
    """A predicate over labels; raises SelectorError."""
    requirements = [_label_requirement(part) for part in _split(text)]
    return lambda labels: all(holds(labels) for holds in requirements)


def from_label_selector(selector: Mapping[str, Any] | None) -> Callable[[Labels], bool]:
    """A predicate from a LabelSelector object; an empty selector matches all, None nothing."""
    if selector is None:
        return lambda _: False
    requirements = [_equals(key, value) for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], frozenset(term.get("values") or ())
        requirements.append(_operator(key, term["operator"], values))
    return lambda labels: all(holds(labels) for holds in requirements)


def format_label_selector(selector: Mapping[str, Any] | None) -> str:
    """The text form of a LabelSelector, as the scale subresource reports it."""
    if not selector:
        return ""
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }[term["operator"]]
        parts.append((key, text))
    return ",".join(text for _, text in sorted(parts))


def parse_fields(text: str) -> list[tuple[str, str, bool]]:
    """Terms of a field selector: (path, value, whether it must be equal); raises SelectorError."""
    terms = []
    for part in filter(None, text.split(",")):
        for operator, equal in (("!=", False), ("==", True), ("=", True)):
            path, found, value = part.partition(operator)
            if found:
                terms.append((path.strip(), value.strip(), equal))
                break
        else:
            raise SelectorError(f"invalid selector: '{part}'; can't understand '{part}'")
    return terms


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _label_requirement(part: str) -> Requirement:
    found = _SET.match(part)
    if found:
        key, word, inside = found.groups()
        values = frozenset(value.strip() for value in inside.split(","))
        return _operator(_key(key), "In" if word == "in" else "NotIn", values)
    if "!=" in part:
        key, value = (side.strip() for side in part.split("!=", 1))
        return _operator(_key(key), "NotIn", frozenset([_value(value)]))
    if "=" in part:
        key, value = (side.strip() for side in re.split("==?", part, maxsplit=1))
        return _equals(_key(key), _value(value))
    if part.startswith("!"):
        return _operator(_key(part[1:].strip()), "DoesNotExist", frozenset())
    return _operator(_key(part), "Exists", frozenset())


def _key(text: str) -> str:
    if not _NAME.match(text):
        raise SelectorError(f"unable to parse requirement: invalid label key {text!r}")
    return text


def _value(text: str) -> str:
    if not _VALUE.match(text):
        raise SelectorError(f"unable to parse requirement: invalid label value {text!r}")
    return text


def _equals(key: str, value: str) -> Requirement:
    return lambda labels: labels.get(key) == value


def _operator(key: str, operator: str, values: frozenset[str]) -> Requirement:
    if operator == "In":
        return lambda labels: labels.get(key) in values
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    if operator == "Exists":
        return lambda labels: key in labels
    if operator == "DoesNotExist":
        return lambda labels: key not in labels
    raise SelectorError(f"{operator!r} is not a valid label selector operator")
