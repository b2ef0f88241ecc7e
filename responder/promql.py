"""Just enough of PromQL's lexer to find durations and calls, with everything else left as it stands."""

import re
from dataclasses import dataclass

_UNIT_MS = {
    "y": 365 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
# Each unit at most once and the larger first, as Prometheus's own ParseDuration has it.
_DURATION = re.compile(r"(?=\d)(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m(?!s))?(\d+s)?(\d+ms)?")
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>\#[^\n]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    | (?P<range>\[[^\]]*\])
    | (?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![\w.]))
    | (?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<operator>=~|!~|==|!=|<=|>=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_RANGE = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_PER_SECOND = frozenset({"rate", "irate", "deriv"})


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression; the texts of all pieces, joined, are the expression."""

    kind: str
    text: str


def tokenize(expr: str) -> list[Token]:
    """Split an expression. A range with its brackets, such as `[5m:30s]`, is one token."""
    return [Token(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(expr)]


def is_duration(text: str) -> bool:
    """Whether Prometheus would take this as a duration: `1m30s`, `500ms`, `0`; not `0.5s`, not `30s1m`."""
    return text == "0" or _DURATION.fullmatch(text) is not None


def duration_ms(text: str) -> int:
    """Milliseconds of a Prometheus duration."""
    return sum(int(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))


def format_duration(milliseconds: int) -> str:
    """A legal Prometheus duration: 90500 is `1m30s500ms`."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, _UNIT_MS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def compress_duration(text: str, factor: float) -> str:
    """A duration divided by `factor`, to the millisecond; at least 1 ms, since a range of 0 is refused."""
    milliseconds = duration_ms(text)
    return text if milliseconds == 0 else format_duration(max(1, round(milliseconds / factor)))


def compress(expr: str, factor: float) -> str:
    """An expression that means in time run `factor` times as fast what `expr` means in real time.

    Durations shrink, so does predict_linear's second argument; what counts per second of the server's clock
    (rate, irate, deriv) is divided, for it to count per second of the fast time. Thresholds against `time()`
    or against series that hold seconds stay, since only their writer knows whose seconds they are.

    Raises:
        ValueError: parentheses do not pair up.
    """
    tokens = tokenize(expr)
    return _compress(tokens, 0, len(tokens), _closing(tokens), factor)


def _closing(tokens: list[Token]) -> dict[int, int]:
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.text == "(" and token.kind == "operator":
            opened.append(index)
        elif token.text == ")" and token.kind == "operator":
            if not opened:
                raise ValueError("a `)` has no `(`")
            pairs[opened.pop()] = index
    if opened:
        raise ValueError("a `(` has no `)`")
    return pairs


def _compress(tokens: list[Token], start: int, end: int, closing: dict[int, int], factor: float) -> str:
    out = []
    index = start
    while index < end:
        token = tokens[index]
        opening = _call(tokens, index, end)
        if opening is not None and token.text in _PER_SECOND:
            inner = _compress(tokens, opening + 1, closing[opening], closing, factor)
            out.append(f"({token.text}({inner}) / {_number(factor)})")
            index = closing[opening]
        elif opening is not None and token.text == "predict_linear":
            out.append(_predict_linear(tokens, opening, closing, factor))
            index = closing[opening]
        elif token.kind == "duration":
            out.append(compress_duration(token.text, factor))
        elif token.kind == "range":
            out.append(_IN_RANGE.sub(lambda match: compress_duration(match.group(), factor), token.text))
        else:
            out.append(token.text)
        index += 1
    return "".join(out)


def _call(tokens: list[Token], index: int, end: int) -> int | None:
    """Where the parenthesis opens, if the token is a function's name."""
    if tokens[index].kind != "word":
        return None
    index += 1
    while index < end and tokens[index].kind in ("space", "comment"):
        index += 1
    return index if index < end and tokens[index].text == "(" else None


def _predict_linear(tokens: list[Token], opening: int, closing: dict[int, int], factor: float) -> str:
    end = closing[opening]
    comma, index = None, opening + 1
    while index < end:
        if tokens[index].text == "," and tokens[index].kind == "operator":
            comma = index
        # Commas in a selector's braces come before the one that parts the arguments, so the last one is it.
        index = closing[index] + 1 if index in closing else index + 1
    if comma is None:
        return "predict_linear(" + _compress(tokens, opening + 1, end, closing, factor) + ")"
    series = _compress(tokens, opening + 1, comma, closing, factor)
    ahead = "".join(token.text for token in tokens[comma + 1 : end]).strip()
    if any(token.kind == "duration" for token in tokens[comma + 1 : end]):
        ahead = _compress(tokens, comma + 1, end, closing, factor).strip()
    elif [token.kind for token in tokenize(ahead)] == ["number"] and "x" not in ahead.lower():
        ahead = _number(float(ahead) / factor)
    else:
        ahead = f"({ahead}) / {_number(factor)}"
    return f"predict_linear({series}, {ahead})"


def _number(value: float) -> str:
    return format(value, ".15g")
