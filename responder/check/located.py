"""YAML documents whose keys know their lines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from responder.check.findings import Finding, error

Path = tuple[str | int, ...]
_DEEPEST = 60


@dataclass(frozen=True, slots=True)
class Located:
    """A value in a file, and where it stands; `at` goes down into it."""

    value: Any
    file: str
    lines: Mapping[Path, int] = field(default_factory=dict)
    path: Path = ()

    @property
    def line(self) -> int:
        """The line of the value, or of what it stands in when it is not there."""
        path = self.path
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def at(self, *path: str | int) -> "Located":
        """What stands under these keys; its value is None when nothing does."""
        value = self.value
        for part in path:
            if isinstance(part, int):
                value = value[part] if isinstance(value, list) and part < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return Located(value, self.file, self.lines, (*self.path, *path))

    def items(self, *path: str | int) -> Iterator["Located"]:
        """The items of the list under these keys."""
        found = self.at(*path)
        if isinstance(found.value, list):
            for index in range(len(found.value)):
                yield found.at(index)

    def text(self, *path: str | int) -> str:
        """What stands under these keys as text; empty when it is nothing or no scalar."""
        value = self.at(*path).value
        return "" if value is None or isinstance(value, dict | list) else str(value)


def read(text: str, file: str, first_line: int = 1) -> tuple[list[Located], list[Finding]]:
    """The documents of a text that begins on `first_line` of the file, up to the first that is not YAML."""
    found: list[Located] = []
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            lines: dict[Path, int] = {}
            _note_lines(node, (), lines, first_line, set())
            found.append(Located(loader.construct_document(node), file, lines))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = mark.line + first_line if mark else 0
        said = (problem.problem or problem.context or "cannot be read").replace("\n", " ")
        return found, [error(file, line, "yaml", f"This is not YAML: {said}.", "mend the YAML there")]
    except (yaml.YAMLError, ValueError) as problem:
        said = str(problem).splitlines()[0]
        return found, [error(file, 0, "yaml", f"This is not YAML: {said}.", "save the file as UTF-8 YAML")]
    return found, []


def _note_lines(node: yaml.Node, path: Path, lines: dict[Path, int], first: int, seen: set[int]) -> None:
    lines.setdefault(path, node.start_mark.line + first)
    # What an alias stands for has its lines where it was written; it may even contain itself.
    if id(node) in seen or len(path) > _DEEPEST:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_lines(item, (*path, index), lines, first, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                lines.setdefault((*path, key.value), key.start_mark.line + first)
                _note_lines(value, (*path, key.value), lines, first, seen)
