"""YAML with line numbers: plain values, and the line on which each stands."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

_MAX_VALUES = 200_000
_MAX_DEPTH = 60
_PREFIX = "tag:yaml.org,2002:"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something wrong in the file. `where` is the key in words, empty for the file as a whole."""

    line: int
    where: str
    message: str
    path: Path = field(default=(), compare=False)

    def text(self, name: str) -> str:
        """`file:line: key: message`."""
        place = f"{name}:{self.line}" if self.line else name
        return f"{place}: {self.where}: {self.message}" if self.where else f"{place}: {self.message}"


@dataclass(slots=True)
class Document:
    """What the file says. `value` is None when it cannot be read at all."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """The line of a key; of the nearest key above it that is there when it is not."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def fault(self, path: Path, message: str) -> None:
        self.faults.append(Fault(self.line(path), where(path), message, path))


def where(path: Path) -> str:
    """A path as people write it: `policies[0].behavior.scaleUp`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path)
    return text.removeprefix(".")


def _key(key: str, limit: int = 60) -> str:
    """A key as it is; one that nobody would write on purpose is quoted and cut, to stay on the line."""
    if key.isascii() and key.isprintable() and 0 < len(key) <= limit:
        return key
    return repr(key if len(key) <= limit else key[: limit - 1] + "…")


def read(text: str) -> Document:
    """Read one YAML document. Never raises for what a file can hold: all is in `faults`."""
    document = Document()
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        document.faults.append(_syntax_fault(text, error))
        return document
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 0
        document.faults.append(Fault(line, "", "has a character that YAML does not allow; remove it"))
        return document
    except UnicodeEncodeError:
        document.faults.append(Fault(0, "", "has half a character in it; save the file as UTF-8"))
        return document
    except RecursionError:
        document.faults.append(Fault(0, "", "is nested too deeply to be a policy file"))
        return document
    if node is not None:
        _Builder(document).start(node)
    if document.value is None and not document.faults:
        document.faults.append(Fault(0, "", "is empty; start from examples/policies.yaml"))
    return document


def _syntax_fault(text: str, error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    lines = text.splitlines()
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())]:
        return Fault(line, "", "is indented with a tab, which YAML does not allow; use spaces")
    problem = (error.problem or "cannot be read").replace("\n", " ")
    if "single document" in f"{error.context} {problem}":
        return Fault(line, "", "starts a second YAML document; keep one policy file to a file")
    context = f" {error.context}" if error.context else ""
    return Fault(line, "", f"is not YAML: {problem}{context}")


class _TooMuch(Exception):
    """Ends the reading; it never leaves this module."""


class _Builder:
    """Builds plain values from nodes, so that duplicate keys and odd tags are seen and lines are kept."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._constructor = yaml.constructor.SafeConstructor()
        self._count = 0
        self._open: list[yaml.Node] = []
        self._builders: dict[str, Callable[[yaml.ScalarNode], Any]] = {
            "str": lambda node: node.value,
            "null": lambda _: None,
            "bool": self._constructor.construct_yaml_bool,
            "int": self._constructor.construct_yaml_int,
            "float": self._constructor.construct_yaml_float,
            # A date is no value of any key here: as text it gets the schema's sentence.
            "timestamp": lambda node: node.value,
            "value": lambda node: node.value,
        }

    def start(self, root: yaml.Node) -> None:
        try:
            self._document.value = self._build(root, ())
        except _TooMuch as error:
            self._document.value = None
            self._document.faults.append(Fault(0, "", str(error)))

    def _build(self, node: yaml.Node, path: Path) -> Any:
        self._count += 1
        if self._count > _MAX_VALUES:
            raise _TooMuch(f"expands to more than {_MAX_VALUES} values; write less by way of aliases")
        if len(path) > _MAX_DEPTH:
            raise _TooMuch("is nested too deeply to be a policy file")
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        tag = node.tag.removeprefix(_PREFIX)
        if tag not in ("seq", "map"):
            self._document.fault(path, f"has the tag {tag}; remove it")
        if any(node is above for above in self._open):
            raise _TooMuch(f"has an alias at {where(path)} that contains itself; write the value out")
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self._build(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag == f"{_PREFIX}merge":
                what = "a merge key (<<)" if key is not None else "a list or mapping as a key"
                message = f"has {what} on line {line}, which this file does not know; write the keys out"
                self._document.fault(path, message)
                continue
            at = (*path, key)
            if key in out:
                message = f"is given again, first on line {self._document.lines[at]}; keep one of them"
                self._document.faults.append(Fault(line, where(at), message, at))
                continue
            self._document.lines[at] = line
            out[key] = self._build(value_node, at)
        return out

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        build = self._builders.get(node.tag.removeprefix(_PREFIX))
        if build is None:
            self._document.fault(path, f"has the tag {node.tag.removeprefix(_PREFIX)}; remove it")
            return node.value
        try:
            value = build(node)
        except (ValueError, OverflowError, yaml.YAMLError, KeyError, IndexError):
            self._document.fault(path, "is not a number that can be read; write it in digits")
            return 0
        if isinstance(value, float) and not math.isfinite(value):
            self._document.fault(path, "is not a finite number; write one in digits")
            return 0
        return value
