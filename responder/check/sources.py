"""Reading what is to be checked: policy file, rules and Alertmanager's configuration, wherever they stand."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from responder import config, rules
from responder.check import routes
from responder.check.findings import Finding, error, warning
from responder.check.located import Located, read
from responder.errors import ConfigError
from responder.policy import Settings
from responder.rules import Group, RuleFileError

_POLICY = "ResponderPolicy"
_IN_MESSAGE = re.compile(r"(?P<file>.*?)(?:, line |:)(?P<line>\d+): (?P<rest>.*)", re.DOTALL)


@dataclass(slots=True)
class Sources:
    """All that was given, read; what could not be read is among the findings."""

    settings: Settings | None = None
    policy: Located | None = None
    """The policy file's own document, for its lines."""
    groups: list[Group] = field(default_factory=list)
    routings: list[routes.Routing] = field(default_factory=list)
    plain_alertmanagers: list[str] = field(default_factory=list)
    """Files that amtool can read."""
    prometheus: Located | None = None
    operated: list[Located] = field(default_factory=list)
    """Alertmanager objects, which say how prometheus-operator takes AlertmanagerConfigs."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """The lines of each file."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def taken(self) -> int:
        """How many things have been read that can be checked."""
        return len(self.groups) + len(self.routings) + (self.policy is not None)

    @property
    def whole(self) -> bool:
        """Whether all files were read, so that what is not there is not there."""
        return not any(found.code in ("yaml", "unreadable", "rule-file") for found in self.findings)

    def line_of(self, file: str, line: int, key: str, beyond: int = 60) -> int:
        """The line from `line` on, within the rule that begins there, on which a key stands."""
        lines = self.texts.get(file, [])
        wanted = re.compile(rf"(?:^|[\s{{,-]){re.escape(key)}\s*:")
        for number in range(line, min(line + beyond, len(lines)) + 1):
            text = lines[number - 1]
            if number > line and re.match(r"\s*-\s+(alert|record|name):", text):
                break
            if wanted.search(text):
                return number
        return line


def gather(
    paths: Iterable[Path] = (),
    *,
    policy: Path | None = None,
    rule_paths: Iterable[Path] = (),
    alertmanagers: Iterable[Path] = (),
    prometheus: Path | None = None,
) -> Sources:
    """Read everything. `paths` hold anything; the others what their names say."""
    sources, loose = Sources(), list(paths)
    for path in [*loose, *rule_paths, *alertmanagers]:
        taken = sources.taken
        for file in _files(path):
            _take_file(sources, file)
        if path in loose and sources.taken == taken and not sources.findings:
            wanted = "rules, Alertmanager configuration or policy file"
            sources.findings.append(_nothing(path, wanted, "a path that does"))
    if policy is not None:
        text = _text(sources, policy)
        if text is not None:
            _take_policy(sources, text, str(policy), 1)
    if prometheus is not None:
        text = _text(sources, prometheus)
        documents, wrong = read(text or "", str(prometheus))
        sources.findings += wrong
        sources.prometheus = documents[0] if documents else None
    for path in rule_paths:
        if not any(_within(group.file, path) for group in sources.groups) and not sources.findings:
            sources.findings.append(
                _nothing(path, "rule groups", "a file with `groups:` or a PrometheusRule")
            )
    for path in alertmanagers:
        if not any(_within(routing.file, path) for routing in sources.routings) and not sources.findings:
            wanted = "alertmanager.yml with `route:` or an AlertmanagerConfig"
            sources.findings.append(_nothing(path, "Alertmanager configuration", wanted))
    return sources


def _nothing(path: Path, what: str, wanted: str) -> Finding:
    return error(str(path), 0, "nothing-there", f"This holds no {what}.", f"give {wanted}")


def _within(file: str, path: Path) -> bool:
    return Path(file) == path or path in Path(file).parents


def _files(path: Path) -> Sequence[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in (".yaml", ".yml") and file.is_file())
    return [path]


def _text(sources: Sources, path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        said = f"This cannot be read ({problem.strerror})."
        sources.findings.append(error(str(path), 0, "unreadable", said, "check the path and its mode"))
        return None
    except UnicodeDecodeError:
        sources.findings.append(error(str(path), 0, "unreadable", "This is not UTF-8.", "save it as UTF-8"))
        return None
    sources.texts[str(path)] = text.splitlines()
    return text


def _take_file(sources: Sources, path: Path) -> None:
    text = _text(sources, path)
    if text is None:
        return
    documents, wrong = read(text, str(path))
    sources.findings += wrong
    if wrong:
        return
    if any(_has_rules(document) for document in documents):
        _take_rules(sources, text, str(path))
    for document in documents:
        _take(sources, document, text, alone=len(documents) == 1)


def _has_rules(document: Located) -> bool:
    kind = document.text("kind")
    if kind.endswith("List"):
        return any(_has_rules(item) for item in document.items("items"))
    return kind == "PrometheusRule" or (not kind and document.at("groups").value is not None)


def _take_rules(sources: Sources, text: str, file: str) -> None:
    try:
        sources.groups += rules.load_text(text, file)
    except RuleFileError as problem:
        sources.findings.append(_of_message(str(problem), file, "rule-file"))


def _take(sources: Sources, document: Located, text: str, *, alone: bool) -> None:
    kind = document.text("kind")
    if kind.endswith("List"):
        for item in document.items("items"):
            _take(sources, item, "", alone=False)
    elif kind == _POLICY and alone:
        _take_policy(sources, text, document.file, 1)
    elif kind == "AlertmanagerConfig" or routes.is_alertmanager(document):
        _take_routing(sources, document)
        if kind != "AlertmanagerConfig" and alone:
            sources.plain_alertmanagers.append(document.file)
    elif kind == "Alertmanager":
        sources.operated.append(document)
    elif kind in ("ConfigMap", "Secret"):
        _take_carried(sources, document)
    elif not kind and document.text("alertmanager_config"):
        _take_text(sources, document.at("alertmanager_config"))  # Mimir's, by tenant


def _take_routing(sources: Sources, document: Located) -> None:
    routing, wrong = routes.read(document)
    sources.routings.append(routing)
    sources.findings += wrong


def _take_carried(sources: Sources, document: Located) -> None:
    """What a ConfigMap or Secret carries: a policy file, or Alertmanager's configuration."""
    for key in ("data", "stringData"):
        carried = document.at(key)
        for name in carried.value if isinstance(carried.value, dict) else ():
            place = carried.at(str(name))
            text = place.text()
            if key == "data" and document.text("kind") == "Secret":
                text = _decoded(text)
            if "kind: ResponderPolicy" in text:
                _take_policy(sources, text, document.file, place.line + 1)
            elif "alertmanager" in str(name) and "route:" in text:
                _take_text(sources, place, text)
            elif document.text("kind") == "ConfigMap" and re.search(r"^groups:", text, re.MULTILINE):
                _take_carried_rules(sources, place)


def _take_text(sources: Sources, place: Located, text: str = "") -> None:
    """Alertmanager's configuration as a text within a document; `text` is given where it had to be decoded."""
    documents, wrong = read(text or place.text(), place.file, place.line + 1)
    lines = sources.texts.get(place.file, [])
    block = place.line <= len(lines) and re.search(r"[|>][-+\d]*\s*(#.*)?$", lines[place.line - 1])
    if not block or text not in ("", place.text()):
        # Its lines are not lines of the file.
        documents = [Located(document.value, place.file, {(): place.line}) for document in documents]
        wrong = [replace(found, line=place.line) for found in wrong]
    sources.findings += wrong
    for document in filter(routes.is_alertmanager, documents):
        _take_routing(sources, document)


def _take_carried_rules(sources: Sources, place: Located) -> None:
    """Rules in a ConfigMap, as where no operator is."""
    # As many empty lines ahead as make each line's number that of the file.
    _take_rules(sources, "\n" * place.line + place.text(), place.file)


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def _take_policy(sources: Sources, text: str, file: str, first_line: int) -> None:
    if sources.settings is not None:
        sources.findings.append(
            warning(file, first_line, "policy-twice", "A second policy file is left out.", "give one only")
        )
        return
    try:
        sources.settings = config.loads(text, file)
    except ConfigError as problem:
        for line in str(problem).splitlines():
            found = _of_message(line, file, "policy-file")
            moved = found.line + first_line - 1 if found.line else 0
            sources.findings.append(error(file, moved, found.code, found.message, found.mend))
        return
    documents, _ = read(text, file, first_line)
    sources.policy = documents[0]


def _of_message(text: str, file: str, code: str) -> Finding:
    """A finding of a sentence that begins with its file and line."""
    match = _IN_MESSAGE.fullmatch(text)
    line, rest = (int(match["line"]), match["rest"]) if match else (0, text.removeprefix(f"{file}: "))
    message, _, mend = rest.partition("; ")
    said = f"{message[:1].upper()}{message[1:].rstrip('.')}."
    return error(file, line, code, said, mend or "mend it there")
