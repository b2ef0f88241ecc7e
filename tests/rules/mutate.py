"""Breaks the shipped rules on purpose, one fault at a time, and counts how many faults the promtool tests see.

    python tests/rules/mutate.py                 # 200 faults, drawn with a fixed seed
    python tests/rules/mutate.py --sample 0      # all of them: hours
    python tests/rules/mutate.py --rule GPUDeviceLost --sample 0

Not part of the test run. Exit status 1 when a fault went unseen; each is printed with the rule it was put into.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from responder import promql, rules

HERE = Path(__file__).parent
PACK = HERE.parents[1] / "rules"
SWAPPED = {
    ">": "<=", "<": ">=", ">=": "<", "<=": ">", "==": "!=", "!=": "==", "=~": "!~", "!~": "=~", "=": "!=",
    "and": "or", "or": "and", "unless": "and", "+": "-", "-": "+", "*": "+", "/": "*",
    "max": "min", "min": "max", "sum": "min", "avg": "max", "count": "sum", "max_over_time": "min_over_time",
    "avg_over_time": "min_over_time", "increase": "rate", "group_left": "group_right",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One rule made wrong."""

    what: str
    before: rules.Rule
    after: rules.Rule


def faults(rule: rules.Rule) -> Iterator[Fault]:
    """Every fault of the kinds that people make: thresholds, operators, matchers, label lists, times, labels."""
    for what, expr in expressions(rule.expr):
        yield Fault(what, rule, replace(rule, expr=expr))
    for name in ("for_", "keep_firing_for"):
        duration = getattr(rule, name)
        if duration:
            for factor in (0.5, 2):
                changed = promql.compress_duration(duration, factor)
                yield Fault(f"{name} {duration} -> {changed}", rule, replace(rule, **{name: changed}))
            yield Fault(f"{name} dropped", rule, replace(rule, **{name: None}))
    for label in rule.labels:
        changed_labels = {**rule.labels, label: "mutant"}
        yield Fault(f"label {label} changed", rule, replace(rule, labels=changed_labels))


def expressions(expr: str) -> Iterator[tuple[str, str]]:
    tokens = promql.tokenize(expr)
    for index, token in enumerate(tokens):
        for what, text in replacements(tokens, index):
            mutant = (
                "".join(t.text for t in tokens[:index]) + text + "".join(t.text for t in tokens[index + 1 :])
            )
            yield (
                f"at {sum(t.text.count(chr(10)) for t in tokens[:index]) + 1}: {token.text} -> {what}",
                mutant,
            )
    yield from dropped(expr, r"\{[^{}]*\}", "matcher")
    yield from dropped(expr, r"(?:by|on) \([^()]*\)", "label")


def replacements(tokens: Sequence[promql.Token], index: int) -> Iterator[tuple[str, str]]:
    token = tokens[index]
    if token.kind == "number":
        value = float(token.text)
        for changed in (value * 1.3, value * 0.7) if value else (1.0,):
            yield f"{changed:g}", f"{changed:g}"
    elif token.kind == "range":
        for factor in (2, 0.5):
            parts = re.split(r"(\w+)", token.text)
            changed_range = "".join(
                promql.compress_duration(part, factor) if part.isalnum() else part for part in parts
            )
            yield changed_range, changed_range
    elif token.kind == "duration":
        yield "halved", promql.compress_duration(token.text, 2)
    elif token.text in SWAPPED:
        yield SWAPPED[token.text], SWAPPED[token.text]


def dropped(expr: str, pattern: str, kind: str) -> Iterator[tuple[str, str]]:
    """One element left out of each comma-separated list."""
    for match in re.finditer(pattern, expr):
        opening = re.match(r"[^({]*[({]", match.group())
        assert opening is not None
        inner = match.group()[opening.end() : -1]
        parts = re.findall(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+', inner)
        for index, part in enumerate(parts):
            rest = ",".join(parts[:index] + parts[index + 1 :])
            if kind == "matcher" and not rest.strip() and expr[: match.start()].rstrip()[-1:] in "(,":
                continue  # a selector without a name and without matchers is no selector
            mutant = expr[: match.start()] + opening.group() + rest + match.group()[-1] + expr[match.end() :]
            yield f"{kind} {part.strip()} dropped", mutant


def tests_of(file: str) -> list[Path]:
    """The tests that load this file of the pack, quickest first (few files, little text)."""
    found = []
    for path in sorted(HERE.glob("*.test.yaml")):
        loaded = yaml.safe_load(path.read_text())["rule_files"]
        if Path(file).name in loaded:
            found.append((len(loaded), path.stat().st_size, path))
    if not found:
        raise SystemExit(f"no test loads {file}")
    return [path for _, _, path in sorted(found)]


def seen(fault: Fault, pack: Sequence[rules.Group]) -> str:
    """The test that failed, `invalid` when promtool refuses the rule, or nothing."""
    for test_file in tests_of(fault.before.file):
        test = {k: v for k, v in yaml.safe_load(test_file.read_text()).items() if k[:2] != "x-"}
        chosen = [group for group in pack if Path(group.file).name in test["rule_files"]]
        ordered = rules.in_dependency_order(chosen)
        broken = [
            replace(group, rules=tuple(fault.after if r is fault.before else r for r in group.rules))
            for group in ordered
        ]
        test |= {"rule_files": ["rules.yml"], "group_eval_order": [group.name for group in ordered]}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rules.yml").write_text(rules.export(broken))
            (Path(folder) / "test.yml").write_text(yaml.safe_dump(test, width=10_000))
            if promtool(folder, "check", "rules", "rules.yml"):
                return "invalid"
            if promtool(folder, "test", "rules", "test.yml"):
                return test_file.name
    return ""


def promtool(folder: str, *arguments: str) -> int:
    command = ["promtool", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=300).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=200, help="how many faults to try; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule", help="only rules whose name or file contains this")
    options = parser.parse_args()
    pack = rules.load([PACK])
    chosen = [
        rule
        for group in pack
        for rule in group.rules
        if (options.rule or "") in rule.name + Path(rule.file).name
    ]
    possible = [fault for rule in chosen for fault in faults(rule)]
    if options.sample and options.sample < len(possible):
        possible = random.Random(options.seed).sample(possible, options.sample)
    valid = noticed = 0
    for fault in possible:
        by = seen(fault, pack)
        if by == "invalid":
            continue
        valid += 1
        noticed += bool(by)
        if not by:
            place = f"{Path(fault.before.file).name}:{fault.before.line}"
            print(f"UNSEEN {place} {fault.before.name} {dict(fault.before.labels)}: {fault.what}", flush=True)
    print(f"{noticed} of {valid} faults seen ({len(possible) - valid} more were refused by promtool)")
    return 0 if noticed == valid else 1


if __name__ == "__main__":
    sys.exit(main())
