"""Prometheus rule files: read them, put them in order, run them in compressed time.

Pure but for `load`, which reads files. Expressions are only tokenized, never judged: promtool does that.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path

import yaml

from responder import promql
from responder.errors import ConfigError


class RuleFileError(ConfigError):
    """A rule file that cannot be used; the message names the file, the place and the mend."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One recording rule (`record`) or alerting rule (`alert`); exactly one of the two names is set."""

    expr: str
    file: str
    line: int
    """Line on which the rule begins, counted from 1."""
    group: str
    record: str | None = None
    alert: str | None = None
    for_: str | None = None
    keep_firing_for: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name that it records or alerts under."""
        return self.record or self.alert or ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that Prometheus evaluates one after the other, each seeing what those before it recorded."""

    name: str
    file: str
    line: int
    rules: tuple[Rule, ...] = ()
    interval: str | None = None
    """None: the server's `evaluation_interval`."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Further keys, such as `limit` or `query_offset`, as they stand in the file."""


# --- Reading --------------------------------------------------------------------------------------


class _Map(dict[str, object]):
    """A YAML mapping that knows its line."""

    line: int = 1


class _Loader(yaml.SafeLoader):
    """Scalars stay strings, as Prometheus reads them: `interval: 0` is a duration, `severity: 1` a label."""

    yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile("^(?:<<)$"))]}  # noqa: RUF012


def _construct_map(loader: _Loader, node: yaml.MappingNode) -> _Map:
    names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
    for name in names:
        if names.count(name) > 1:
            raise yaml.MarkedYAMLError(problem=f"key {name!r} stands twice", problem_mark=node.start_mark)
    result = _Map()
    result.update((str(key), value) for key, value in loader.construct_mapping(node, deep=True).items())
    result.line = node.start_mark.line + 1
    return result


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)

_GROUP_KEYS = (
    "name",
    "interval",
    "query_offset",
    "limit",
    "labels",
    "rules",
    "partial_response_strategy",
    "source_tenants",
)
_RULE_KEYS = ("record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations")
_OPERATOR_ONLY = ("partial_response_strategy",)
# Prometheus 3 takes any UTF-8 as a name; dots and letters are what people mean, spaces and signs are slips.
_METRIC = re.compile(r"(?!\d)[\w:.]+")
_LABEL = re.compile(r"(?!\d)[\w.]+")


def load(paths: Iterable[str | Path]) -> tuple[Group, ...]:
    """Read rule groups from plain rule files, PrometheusRule objects (also many to a file) and directories.

    Directories are searched through for *.yaml and *.yml; documents there that hold no rules are passed over.

    Raises:
        RuleFileError: a file cannot be read, is no rule file, or holds a rule that Prometheus would refuse.
    """
    groups: list[Group] = []
    for path in map(Path, paths):
        found = list(_load_directory(path) if path.is_dir() else load_text(_read(path), str(path)))
        if not found:
            raise RuleFileError(
                f"{path}: holds no rule groups; give a file with `groups:` or a PrometheusRule object"
            )
        groups.extend(found)
    return tuple(groups)


def load_text(text: str, file: str) -> tuple[Group, ...]:
    """Read the rule groups in a text of one or more YAML documents; `file` is the name that errors give it.

    Raises:
        RuleFileError: as for `load`.
    """
    try:
        documents = list(yaml.load_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise RuleFileError(f"{file}{line}: {error.problem or error.context}; mend the YAML there") from error
    except yaml.YAMLError as error:
        raise RuleFileError(f"{file}: {str(error).splitlines()[0]}; mend the YAML there") from error
    return tuple(_group(raw, file) for document in documents for raw in _raw_groups(document, file))


def alerts(groups: Iterable[Group]) -> tuple[Rule, ...]:
    """The alerting rules, in the order of the files."""
    return tuple(rule for group in groups for rule in group.rules if rule.alert is not None)


def _load_directory(path: Path) -> Iterator[Group]:
    for file in sorted(path.rglob("*")):
        if file.suffix in (".yaml", ".yml") and file.is_file():
            yield from load_text(_read(file), str(file))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RuleFileError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise RuleFileError(f"{path}: is not UTF-8 text; give a YAML rule file") from error


def _raw_groups(document: object, file: str) -> Iterator[_Map]:
    if not isinstance(document, _Map):
        return
    if "kind" in document:
        if document["kind"] == "PrometheusRule":
            spec = document.get("spec")
            if not isinstance(spec, _Map):
                raise RuleFileError(
                    f"{file}, line {document.line}: a PrometheusRule needs a `spec` with `groups`"
                )
            yield from _maps(spec, "groups", f"{file}, line {spec.line}: `spec.groups`")
        elif str(document["kind"]).endswith("List"):
            for item in _maps(document, "items", f"{file}, line {document.line}: `items`"):
                yield from _raw_groups(item, file)
        return
    if "groups" in document:
        yield from _maps(document, "groups", f"{file}, line {document.line}: `groups`")


def _maps(parent: _Map, key: str, where: str) -> list[_Map]:
    value = parent.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, _Map) for item in value):
        raise RuleFileError(f"{where} must be a list of mappings")
    return value


def _group(raw: _Map, file: str) -> Group:
    where = f"{file}, line {raw.line}: group {raw.get('name', '')!r}"
    _refuse_unknown(raw, _GROUP_KEYS, where)
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise RuleFileError(f"{file}, line {raw.line}: a group needs a `name`")
    rules = tuple(_rule(item, name, file) for item in _maps(raw, "rules", f"{where}: `rules`"))
    options = {key: raw[key] for key in raw if key not in ("name", "interval", "rules")}
    return Group(
        name=name,
        file=file,
        line=raw.line,
        rules=rules,
        interval=_duration(raw, "interval", where),
        options=options,
    )


def _rule(raw: _Map, group: str, file: str) -> Rule:
    name = str(raw.get("record") or raw.get("alert") or "")
    where = f"{file}, line {raw.line}: rule {name!r}"
    _refuse_unknown(raw, _RULE_KEYS, where)
    record, alert, expr = raw.get("record") or None, raw.get("alert") or None, raw.get("expr")
    if (record is None) == (alert is None):
        raise RuleFileError(f"{file}, line {raw.line}: a rule needs either `record` or `alert`")
    if not isinstance(expr, str) or not expr.strip():
        raise RuleFileError(f"{where} needs an `expr`")
    if record is not None and not _METRIC.fullmatch(str(record)):
        raise RuleFileError(f"{where} is no metric name; use letters, digits, `_`, `:` and `.` only")
    for key in ("for", "keep_firing_for", "annotations"):
        if record is not None and key in raw:
            raise RuleFileError(f"{where} is a recording rule and cannot have `{key}`; remove it")
    return Rule(
        expr=expr,
        file=file,
        line=raw.line,
        group=group,
        record=None if record is None else str(record),
        alert=None if alert is None else str(alert),
        for_=_duration(raw, "for", where),
        keep_firing_for=_duration(raw, "keep_firing_for", where),
        labels=_strings(raw, "labels", where),
        annotations=_strings(raw, "annotations", where),
    )


def _refuse_unknown(raw: _Map, known: Sequence[str], where: str) -> None:
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            mend = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
            raise RuleFileError(f"{where} has an unknown key `{key}`; {mend}")


def _strings(raw: _Map, key: str, where: str) -> Mapping[str, str]:
    value = raw.get(key) or {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise RuleFileError(f"{where}: `{key}` must map names to strings")
    for name in value:
        if not _LABEL.fullmatch(str(name)):
            raise RuleFileError(
                f"{where}: `{key}` holds {name!r}, which is no name; use letters, digits, `_` and `.`"
            )
    return dict(value)


def _duration(raw: _Map, key: str, where: str) -> str | None:
    value = raw.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not promql.is_duration(value):
        raise RuleFileError(f"{where}: `{key}: {value}` is no duration; write 30s, 5m or 1m30s")
    return value


# --- Compressed time --------------------------------------------------------------------------------


def compress(groups: Iterable[Group], factor: float) -> tuple[Group, ...]:
    """Rules that do in time run `factor` times as fast what these do in real time.

    Expressions as in `promql.compress`; `for`, `keep_firing_for`, `interval` and `query_offset` are divided.
    A group without an interval follows the server's, which the caller must divide likewise.

    Raises:
        RuleFileError: an expression's parentheses do not pair up.
        ValueError: `factor` is not a positive number.
    """
    if not 0 < factor < float("inf"):
        raise ValueError(f"factor must be a positive number, not {factor}")
    if factor == 1:
        return tuple(groups)
    return tuple(_compress_group(group, factor) for group in groups)


def _compress_group(group: Group, factor: float) -> Group:
    options = dict(group.options)
    if isinstance(offset := options.get("query_offset"), str):
        options["query_offset"] = promql.compress_duration(offset, factor)
    return replace(
        group,
        interval=_compress_optional(group.interval, factor),
        options=options,
        rules=tuple(_compress_rule(rule, factor) for rule in group.rules),
    )


def _compress_rule(rule: Rule, factor: float) -> Rule:
    try:
        expr = promql.compress(rule.expr, factor)
    except ValueError as error:
        raise RuleFileError(
            f"{rule.file}, line {rule.line}: rule {rule.name!r}: in `expr` {error}; pair them"
        ) from error
    return replace(
        rule,
        expr=expr,
        for_=_compress_optional(rule.for_, factor),
        keep_firing_for=_compress_optional(rule.keep_firing_for, factor),
    )


def _compress_optional(duration: str | None, factor: float) -> str | None:
    return None if duration is None else promql.compress_duration(duration, factor)


# --- Writing --------------------------------------------------------------------------------------


def export(groups: Sequence[Group]) -> str:
    """One plain rule file, groups that record a series before groups that use it, else in the given order.

    Groups evaluate side by side in Prometheus, so the order is for promtool's tests and for readers.

    Raises:
        RuleFileError: two groups share a name, which one rule file cannot hold.
    """
    seen: dict[str, Group] = {}
    for group in groups:
        if group.name in seen:
            other = seen[group.name]
            raise RuleFileError(
                f"{group.file}, line {group.line}: group {group.name!r} also stands in {other.file},"
                f" line {other.line}; rename one, since a rule file cannot hold both"
            )
        seen[group.name] = group
    document = {"groups": [_plain_group(group) for group in in_dependency_order(groups)]}
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def with_runbook_base(groups: Iterable[Group], base: str) -> tuple[Group, ...]:
    """Put `base` before each `runbook_url` that is a relative path, so that links work from a pager."""
    prefix = base.rstrip("/") + "/"

    def relink(rule: Rule) -> Rule:
        url = rule.annotations.get("runbook_url", "")
        if not url or "://" in url:
            return rule
        return replace(rule, annotations={**rule.annotations, "runbook_url": prefix + url})

    return tuple(replace(group, rules=tuple(map(relink, group.rules))) for group in groups)


def in_dependency_order(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Groups that record a series before those that use it; groups in a circle keep their order."""
    recorded: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        for rule in group.rules:
            if rule.record:
                recorded.setdefault(rule.record, []).append(index)
    needs = [
        {maker for name in _names_used(group, recorded) for maker in recorded[name]} - {index}
        for index, group in enumerate(groups)
    ]
    ordered: list[Group] = []
    users: list[list[int]] = [[] for _ in groups]
    for index, makers in enumerate(needs):
        for maker in makers:
            users[maker].append(index)
    ready = [index for index, makers in enumerate(needs) if not makers]
    waiting = dict.fromkeys(range(len(groups)))
    while waiting:
        # In a circle none is ready, and the first that waits is taken.
        chosen = heappop(ready) if ready else next(iter(waiting))
        if chosen not in waiting:
            continue
        del waiting[chosen]
        for user in users[chosen]:
            needs[user].discard(chosen)
            if not needs[user]:
                heappush(ready, user)
        ordered.append(groups[chosen])
    return tuple(ordered)


class _Dumper(yaml.SafeDumper):
    """Long expressions as blocks, as a person would write them."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _represent_str(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_str)


def _plain_group(group: Group) -> dict[str, object]:
    plain: dict[str, object] = {"name": group.name}
    if group.interval is not None:
        plain["interval"] = group.interval
    for key, value in group.options.items():
        if key not in _OPERATOR_ONLY:
            # The loader keeps scalars as strings; Prometheus wants this one as a number.
            plain[key] = int(value) if key == "limit" and isinstance(value, str) else _plain(value)
    plain["rules"] = [_plain_rule(rule) for rule in group.rules]
    return plain


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def _plain_rule(rule: Rule) -> dict[str, object]:
    values: dict[str, object] = {
        "record": rule.record,
        "alert": rule.alert,
        "expr": rule.expr,
        "for": rule.for_,
        "keep_firing_for": rule.keep_firing_for,
        "labels": dict(rule.labels),
        "annotations": dict(rule.annotations),
    }
    return {key: value for key, value in values.items() if value}


def _names_used(group: Group, recorded: Mapping[str, object]) -> set[str]:
    used: set[str] = set()
    for rule in group.rules:
        tokens = [token for token in promql.tokenize(rule.expr) if token.kind not in ("space", "comment")]
        used |= {token.text for token in tokens if token.kind == "word"} & recorded.keys()
        for before, operator, pattern in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if before.text == "__name__" and pattern.kind == "string":
                used |= _names_matching(operator.text, pattern.text[1:-1], recorded)
    return used


def _names_matching(operator: str, pattern: str, recorded: Iterable[str]) -> set[str]:
    if operator == "=":
        return {name for name in recorded if name == pattern}
    if operator != "=~":
        return set()
    try:
        regex = re.compile(pattern)
    except re.error:  # RE2 syntax that Python lacks: the order is then the files' own
        return set()
    return {name for name in recorded if regex.fullmatch(name)}
