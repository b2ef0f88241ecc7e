"""Alertmanager's matchers: `name="value"` with = != =~ !~, on RE2, anchored. And globs, by which namespaces are named.

Both of Alertmanager's grammars are read, as it does itself since 0.27: the classic one first, and the UTF-8
one (any label name, quoted) for what the classic one does not know.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import re2

_OPS = ("=", "!=", "=~", "!~")
_IN_JSON = {(False, True): "=", (False, False): "!=", (True, True): "=~", (True, False): "!~"}
"""By `isRegex` and `isEqual`, as Alertmanager's API v2 says the same."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_CLASSIC = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)
_QUOTED = r'"((?:[^"\\\n]|\\.)*)"'
_UTF8 = re.compile(
    rf"""\s*(?:{_QUOTED}|([^\s{{}}!=~,\\"'`]+))\s*(=~|!~|!=|=)\s*(?:{_QUOTED}|([^\s{{}}!=~,\\"'`]+))\s*""",
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.DOTALL)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"',
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label. Making one with a pattern that RE2 cannot read raises ValueError."""

    name: str
    op: str
    value: str

    def __post_init__(self) -> None:
        if self.op not in _OPS:
            raise ValueError(f"'{self.op}' is not one of = != =~ !~.")
        if self.op in ("=~", "!~"):
            _regex(self.value)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if the label satisfies it; an absent label is the empty string."""
        actual = labels.get(self.name, "")
        if self.op == "=":
            return actual == self.value
        if self.op == "!=":
            return actual != self.value
        # Bytes, because the library maps offsets back to characters for str. A lone surrogate, which JSON
        # can smuggle in, becomes "?" and not an error.
        found = _regex(self.value).fullmatch(actual.encode("utf-8", "replace")) is not None
        return found == (self.op == "=~")

    def as_json(self) -> dict[str, str | bool]:
        """As Alertmanager's API v2 has it."""
        regex, equal = next(said for said, op in _IN_JSON.items() if op == self.op)
        return {"name": self.name, "value": self.value, "isRegex": regex, "isEqual": equal}

    def __str__(self) -> str:
        name = self.name if _NAME.fullmatch(self.name) else _quote(self.name)
        return f"{name}{self.op}{_quote(self.value)}"


@lru_cache(maxsize=4096)
def parse(text: str) -> Matcher:
    """Read one matcher as Alertmanager does. Raises ValueError with a sentence."""
    classic = _CLASSIC.fullmatch(text)
    value = _classic_value(classic[3]) if classic else None
    if classic and value is not None:
        return Matcher(classic[1], classic[2], value)
    modern = _UTF8.fullmatch(text)
    if modern is None:
        raise ValueError(_complaint(text, classic is not None))
    quoted_name, bare_name, op, quoted_value, bare_value = modern.groups()
    name = bare_name if quoted_name is None else _unquote(quoted_name, text)
    if not name:
        raise ValueError(f"Matcher {quoted(text)} has an empty label name.")
    return Matcher(name, op, bare_value if quoted_value is None else _unquote(quoted_value, text))


def parse_all(text: str) -> tuple[Matcher, ...]:
    """Read matchers as `{a="b", c=~"d.*"}`; braces and a last comma may be left out."""
    body = text.strip()
    if body.startswith("{") != body.endswith("}"):
        raise ValueError(f"Matchers {quoted(text)} open or close a brace without the other.")
    if body.startswith("{"):
        body = body[1:-1]
    parts = _split(body)
    if parts and not parts[-1].strip():
        parts.pop()
    return tuple(parse(part) for part in parts)


def of_json(given: Mapping[str, Any]) -> Matcher:
    """Read one as Alertmanager's API v2 has it, where `isEqual` may be left out. Raises ValueError."""
    return Matcher(given["name"], _IN_JSON[given["isRegex"], given.get("isEqual", True)], given["value"])


def within(namespace: str, globs: Sequence[str] | None) -> bool:
    """True if one of the globs fits; None is no limit."""
    return globs is None or any(fnmatchcase(namespace, glob) for glob in globs)


def all_match(matchers: tuple[Matcher, ...], labels: Mapping[str, str]) -> bool:
    """True if every matcher holds."""
    # A plain loop: groups of 10,000 alerts go through here, and a generator costs twice as much.
    for matcher in matchers:  # noqa: SIM110
        if not matcher.matches(labels):
            return False
    return True


def quoted(text: str, limit: int = 80) -> str:
    """The text for a sentence, in quotes, on one line and not endless: it comes from outside."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        # One compiled from str also takes bytes, and reads both as UTF-8.
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        cause = error.args[0] if isinstance(error, re2.error) else "it is not valid Unicode"
        cause = cause.decode("utf-8", "replace") if isinstance(cause, bytes) else cause
        raise ValueError(f"Regular expression {quoted(pattern)} is not RE2 syntax: {cause}.") from None


def _classic_value(raw: str) -> str | None:
    """The value, escapes undone and an unknown one standing for itself; None if quotes do not pair."""
    quoted = raw.startswith('"')
    body = raw[1:] if quoted else raw
    out: list[str] = []
    at = 0
    while at < len(body):
        char = body[at]
        if char == "\\" and at + 1 < len(body):
            at += 1
            out.append({"n": "\n", '"': '"', "\\": "\\"}.get(body[at], "\\" + body[at]))
        elif char == '"':
            return "".join(out) if quoted and at == len(body) - 1 else None
        else:
            out.append(char)
        at += 1
    return None if quoted else "".join(out)


def _unquote(body: str, text: str) -> str:
    """As Go's strconv.Unquote, which Alertmanager uses: an unknown escape is an error."""

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "uU" and len(code) > 1:
            return _chr(int(code[1:], 16))
        # Byte escapes are kept as surrogates until the bytes of a character are together.
        if code[0] == "x" and len(code) > 1:
            return _byte(int(code[1:], 16))
        if len(code) == 3:
            return _byte(int(code, 8))
        return _SIMPLE_ESCAPES[code]

    try:
        joined = _ESCAPE.sub(replace, body)
        return joined.encode("utf-8", "surrogateescape").decode("utf-8")
    except (KeyError, ValueError):
        raise ValueError(f"Matcher {quoted(text)} has an escape that double quotes do not know.") from None


def _chr(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:
        raise ValueError(code)
    return chr(code)


def _byte(code: int) -> str:
    if code > 0xFF:
        raise ValueError(code)
    return chr(code) if code < 0x80 else chr(0xDC00 + code)


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _split(body: str) -> list[str]:
    """Split at commas outside double quotes."""
    parts: list[str] = []
    start, at, quoted = 0, 0, False
    while at < len(body):
        if quoted and body[at] == "\\":
            at += 1
        elif body[at] == '"':
            quoted = not quoted
        elif body[at] == "," and not quoted:
            parts.append(body[start:at])
            start = at + 1
        at += 1
    parts.append(body[start:])
    return parts


def _complaint(text: str, named: bool) -> str:
    if not text.strip():
        return 'A matcher is empty; write it as name="value", with =, !=, =~ or !~.'
    if named:
        return f'Matcher {quoted(text)} has a double quote that is not closed or not escaped as \\".'
    return f'{quoted(text)} is not a matcher; write it as name="value", with =, !=, =~ or !~.'
