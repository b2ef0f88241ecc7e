"""The only template forms: `{{ $labels.x }}` and `{{ $annotations.x }}`.

Nothing is evaluated: text from an alert is placed, and checked as a Kubernetes name or escaped for PromQL.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import promql_parser

_PLACEHOLDER = re.compile(r"\{\{\s*\$(labels|annotations)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_FORMS = "{{ $labels.x }} and {{ $annotations.x }} are the only template forms"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place for the value of one label or annotation; `source` is "labels" or "annotations"."""

    source: str
    name: str

    def value(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
        """What stands there; empty when the alert lacks it."""
        return (labels if self.source == "labels" else annotations).get(self.name, "")

    def __str__(self) -> str:
        return f"{self.source[:-1]} '{self.name}'"


Parts = tuple[str | Placeholder, ...]


class MissingError(ValueError):
    """An alert lacks what a template asks for: the message names the label or annotation."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Parts:
    """Split a template into text and placeholders. Raises ValueError for any other use of double braces."""
    parts: list[str | Placeholder] = []
    at = 0
    for match in _PLACEHOLDER.finditer(text):
        parts.append(text[at : match.start()])
        parts.append(Placeholder(match[1], match[2]))
        at = match.end()
    parts.append(text[at:])
    literal = [part for part in parts if isinstance(part, str)]
    if any("{{" in part or "}}" in part for part in literal):
        raise ValueError(f"{_FORMS}; write one of them or no double braces")
    return tuple(part for part in parts if part != "")


def render(text: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The template with its values in place. Raises MissingError when the alert lacks one."""
    return "".join(_fill(part, labels, annotations) for part in parse(text))


def is_namespace(name: str) -> bool:
    """True for a legal Kubernetes namespace: an RFC 1123 label of at most 63 characters."""
    return len(name) <= 63 and _DNS_LABEL.fullmatch(name) is not None


def is_object_name(name: str) -> bool:
    """True for a legal name of a Kubernetes object: an RFC 1123 subdomain of at most 253 characters."""
    return len(name) <= 253 and _DNS_SUBDOMAIN.fullmatch(name) is not None


def check_query(text: str) -> None:
    """Raise ValueError unless the template is PromQL and each placeholder is a whole `name="…"` value.

    Where a placeholder stands is read off the parsed expression, so neither comments nor strings within
    strings nor label_replace arguments can carry a value out of its place.
    """
    parts = parse(text)
    marks: dict[str, Placeholder] = {}
    pieces: list[str] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            pieces.append(part)
            continue
        mark = _mark(text, index)
        marks[mark] = part
        pieces.append(mark)
        before = parts[index - 1] if index else ""
        after = parts[index + 1] if index + 1 < len(parts) else ""
        if not (isinstance(before, str) and before.endswith('"')) or not (
            isinstance(after, str) and after.startswith('"')
        ):
            raise ValueError(_misplaced(part))
    try:
        expr = promql_parser.parse("".join(pieces))
    except ValueError as error:
        raise ValueError(f"is not PromQL: {_one_line(str(error))}") from None
    if not _gives_samples(expr):
        raise ValueError("gives a range or a string, and a value needs an instant vector of one sample")
    placed = _equalities(expr)
    for mark, part in marks.items():
        if placed.count(mark) != 1:
            raise ValueError(_misplaced(part))


def render_query(text: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The query with its values escaped for double quotes. Raises MissingError when the alert lacks one.

    An empty value is missing too: `x=""` would select the series that lack x.
    """
    return "".join(
        part if isinstance(part, str) else quote_promql(_fill(part, labels, annotations))
        for part in parse(text)
    )


def quote_promql(value: str) -> str:
    """The value as it must be written between double quotes in PromQL (Go's escapes)."""
    return "".join(_ESCAPES.get(char) or _escape(char) for char in value)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


def _escape(char: str) -> str:
    code = ord(char)
    # Prometheus's lexer takes U+FFFD for broken UTF-8; a surrogate cannot be encoded, so it becomes that.
    if 0xD800 <= code <= 0xDFFF or code == 0xFFFD:
        return "\\ufffd"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return char


def _fill(part: str | Placeholder, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    if isinstance(part, str):
        return part
    value = part.value(labels, annotations)
    if not value:
        raise MissingError(f"the alert has no {part}")
    return value


def _mark(text: str, index: int) -> str:
    """A word that the template does not contain."""
    mark = f"placeholder_{index}_"
    while mark in text:
        mark += "x"
    return mark


def _misplaced(part: Placeholder) -> str:
    return (
        f"the placeholder of {part} may stand only as the whole of a double-quoted value under =, "
        f'as in {{{part.name}="{{{{ ${part.source}.{part.name} }}}}"}}'
    )


def _gives_samples(expr: object) -> bool:
    while isinstance(expr, promql_parser.ParenExpr):
        expr = expr.expr
    return not isinstance(
        expr, promql_parser.MatrixSelector | promql_parser.SubqueryExpr | promql_parser.StringLiteral
    )


def _equalities(expr: promql_parser.Expr) -> list[str]:
    """Values of every `=` matcher in the expression."""
    values: list[str] = []

    def visit(node: object) -> None:
        # The walk goes into a range or a subquery by itself.
        if isinstance(node, promql_parser.VectorSelector):
            groups = [node.matchers.matchers, *node.matchers.or_matchers]
            values.extend(m.value for group in groups for m in group if m.op == promql_parser.MatchOp.Equal)

    promql_parser.walk(expr, visit)
    return values


def _one_line(text: str) -> str:
    return " ".join(text.split())
