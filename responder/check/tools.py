"""What promtool and amtool say: the makers' own checks, when they are installed."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from responder import rules
from responder.check.findings import Finding, error, note
from responder.check.sources import Sources
from responder.rules import Group, RuleFileError

_TIMEOUT = 60
_NEWER_RULES = {"query_offset": "2.53", "labels": "3.0"}
"""Keys of a rule group, and the Prometheus that brought them."""
_NEWER_PROMQL = re.compile(
    r'unknown function|unexpected string .* in (?:label matching|grouping)|unexpected identifier "or" in label matching'
    r"|invalid (?:recording rule|label) name"
)
"""Complaints of a promtool that is older than an expression which our own parser reads, or than UTF-8 names."""
_NEWER_ALERTMANAGER = frozenset(
    (
        "url_file", "timeout", "http_headers", "no_proxy", "proxy_from_environment", "proxy_connect_header",
        "max_version", "min_version", "jira_configs", "jira_api_url", "msteams_configs", "msteamsv2_configs",
        "rocketchat_configs", "incidentio_configs", "mattermost_configs", "bot_token_file", "routing_key_file",
        "service_key_file", "smtp_auth_password_file", "smtp_tls_config", "force_implicit_tls", "sources", "tracing",
    )
)  # fmt: skip
"""Keys that Alertmanager learned after 0.25, the amtool of which is still about."""
_SAID_ALREADY = ("unknown-receiver", "matcher", "duration")
"""Of our own findings: those that amtool would say again, without a line."""
_RULE = re.compile(
    r'(?P<file>\S+\.yml): (?:\d+:\d+: )?(?:group "(?P<group>[^"]*)", rule (?P<rule>\d+), )?(?P<said>.*)'
)


def check(sources: Sources) -> tuple[list[Finding], dict[str, str]]:
    """Their findings, and of each tool what it was: its version, or that it is not there."""
    found: list[Finding] = []
    used: dict[str, str] = {}
    if sources.groups:
        used["promtool"] = _version("promtool")
        found += (
            _promtool(sources, used["promtool"]) if used["promtool"] else [_absent("promtool", "rule files")]
        )
    if sources.plain_alertmanagers:
        used["amtool"] = _version("amtool")
        found += (
            _amtool(sources, used["amtool"])
            if used["amtool"]
            else [_absent("amtool", "Alertmanager configuration")]
        )
    return found, used


def _absent(tool: str, what: str) -> Finding:
    said = f"{tool} is not installed, so its own check of the {what} is left out."
    return note("", 0, "tool-absent", said, f"install it and run this again ({tool} comes with its server)")


def _version(tool: str) -> str:
    """The first line of its version; empty when it is not there."""
    if shutil.which(tool) is None:
        return ""
    try:
        done = _run([tool, "--version"])
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0].partition(" (")[0] if text else tool


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)


def _named(used: str) -> str:
    return used.replace(", version", "")


def _older(used: str, since: str) -> bool:
    numbers = re.search(r"(\d+)\.(\d+)", used)
    return numbers is not None and tuple(map(int, numbers.groups())) < tuple(map(int, since.split(".")))


def _promtool(sources: Sources, used: str) -> Iterator[Finding]:
    """Rules are written out plain for it, since it does not read PrometheusRule objects."""
    by_file: dict[str, list[Group]] = {}
    for group in sources.groups:
        known = {key: value for key, value in group.options.items() if key != "source_tenants"}  # Mimir's
        for key, since in _NEWER_RULES.items():
            if key in known and _older(used, since):
                known.pop(key)
                said = f"{_named(used)} does not know {key}, which Prometheus does from {since} on."
                line = sources.line_of(group.file, group.line, key)
                yield note(group.file, line, "promtool", said, "install the promtool of your Prometheus")
        by_file.setdefault(group.file, []).append(replace(group, options=known))
    with tempfile.TemporaryDirectory(prefix="gpu-responder-check-") as directory:
        written: dict[str, list[Group]] = {}
        for number, groups in enumerate(by_file.values()):
            path = Path(directory) / f"{number}.yml"
            try:
                path.write_text(rules.export(groups), encoding="utf-8")
            except RuleFileError:
                continue  # two groups of one name: found already
            # Its order is the export's.
            written[str(path)] = list(rules.in_dependency_order(groups))
        if not written:
            return
        try:
            done = _run(["promtool", "check", "rules", "--lint=none", *written])
        except (OSError, subprocess.TimeoutExpired) as problem:
            yield note("", 0, "tool-absent", f"promtool could not be run: {problem}.", "run it by hand")
            return
        if done.returncode:
            output = done.stdout + done.stderr
            if not _RULE.search(output):
                said = " ".join(output.split())
                yield error(next(iter(by_file)), 0, "promtool", f"promtool says: {said}", "mend the rules")
            yield from _complaints(output, written, sources, used)


def _complaints(
    output: str, written: dict[str, list[Group]], sources: Sources, used: str
) -> Iterator[Finding]:
    # What goes on on lines that are indented further is one sentence.
    for line in re.sub(r"\n {4,}", " ", output.replace("errors:\n  line", "errors:    line")).splitlines():
        match = _RULE.search(line)
        groups = written.get(match["file"]) if match else None
        if match is None or not groups:
            continue
        file, at = groups[0].file, 0
        for group in groups:
            if group.name == match["group"] and int(match["rule"]) <= len(group.rules):
                rule = group.rules[int(match["rule"]) - 1]
                at = sources.line_of(file, rule.line, "expr" if "expression" in match["said"] else "alert")
        if any(
            found.line == at and found.file == file and found.code == "promql" for found in sources.findings
        ):
            continue
        said = " ".join(match["said"].split())
        if _NEWER_PROMQL.search(said):
            mend = "install the promtool of your Prometheus; if that is no newer, mend the rule"
            yield note(
                file, at, "promtool", f"{_named(used)}, older than this rule may need, says: {said}", mend
            )
        else:
            yield error(file, at, "promtool", f"promtool says: {said}", "mend the rule")


def _amtool(sources: Sources, used: str) -> Iterator[Finding]:
    for file in sources.plain_alertmanagers:
        try:
            done = _run(["amtool", "check-config", file])
        except (OSError, subprocess.TimeoutExpired) as problem:
            yield note("", 0, "tool-absent", f"amtool could not be run: {problem}.", "run it by hand")
            return
        if not done.returncode:
            continue
        text = f"{done.stdout}\n{done.stderr}"
        said = re.search(r"FAILED: (.*?)(?:\n\n|\namtool:|\Z)", text, re.DOTALL)
        words = " ".join((said[1] if said else text).split())
        if any(found.file == file and found.code in _SAID_ALREADY for found in sources.findings):
            continue
        line = re.search(r"line (\d+)", words)
        newer = _newer(words)
        if newer:
            yield note(
                file,
                int(line[1]) if line else 0,
                "amtool",
                f"{_named(used)} does not know {newer}, which later ones do, and checks no further.",
                "install the amtool of your Alertmanager",
            )
            continue
        yield error(
            file, int(line[1]) if line else 0, "amtool", f"amtool says: {words}", "mend the configuration"
        )


def _newer(words: str) -> str:
    """What an amtool does not know that is newer than it; empty when its complaint is another."""
    unknown = re.findall(r"field (\w+) not found", words)
    if unknown and len(unknown) == words.count("line ") and _NEWER_ALERTMANAGER.issuperset(unknown):
        return ", ".join(unknown)
    # A matcher that our own reader takes, as Alertmanager does from 0.27 on.
    matcher = re.fullmatch(r"bad matcher format: (.*)", words)
    return f"matchers such as {matcher[1]}" if matcher else ""
