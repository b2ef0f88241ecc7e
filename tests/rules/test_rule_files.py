"""Reading, ordering and writing rule files."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from responder import rules
from responder.cli import cli
from responder.rules_command import rules_command

PACK = Path(__file__).parents[2] / "rules"

PLAIN = """\
groups:
  - name: one
    interval: 30s
    limit: 10
    rules:
      - {record: a:b, expr: 1, labels: {n: 1}}
      - alert: A
        expr: a:b > 0
        for: 1m
"""
OPERATOR = """\
apiVersion: v1
kind: ConfigMap
data: {groups: no rules}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: x}
spec:
  groups:
    - name: two
      partial_response_strategy: abort
      rules:
        - alert: B
          expr: up == 0
"""


def load_text(text: str) -> tuple[rules.Group, ...]:
    return rules.load_text(text, "f.yaml")


def plain(text: str) -> str:
    return f"groups:\n  - name: g\n    rules:\n      - {text}\n"


def test_plain_files_objects_and_many_documents_are_read(tmp_path: Path) -> None:
    """A plain file, a PrometheusRule among other documents, and a directory of both give the same groups."""
    (tmp_path / "one.yaml").write_text(PLAIN)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "two.yml").write_text(OPERATOR)
    (tmp_path / "notes.yaml").write_text("rule_files: []\n")
    by_file = rules.load([tmp_path / "one.yaml", tmp_path / "sub" / "two.yml"])
    assert rules.load([tmp_path]) == by_file
    assert [group.name for group in by_file] == ["one", "two"]


def test_lines_files_and_groups_are_known() -> None:
    """Each rule knows where it stands, for a finding to point there."""
    first, second = load_text(PLAIN)[0].rules
    assert (first.name, first.file, first.line, first.group) == ("a:b", "f.yaml", 6, "one")
    assert (second.name, second.line, second.for_) == ("A", 7, "1m")
    assert load_text(OPERATOR)[0].line == 10


def test_scalars_are_strings_as_in_prometheus() -> None:
    """A number as an expression or a label value is text."""
    rule = load_text(PLAIN)[0].rules[0]
    assert (rule.expr, dict(rule.labels)) == ("1", {"n": "1"})


def test_a_list_of_objects_is_read() -> None:
    """`kubectl get prometheusrules -o yaml` gives a List."""
    item = yaml.safe_load(OPERATOR.split("---\n")[1])
    groups = load_text(yaml.safe_dump({"kind": "List", "items": [item]}))
    assert [group.name for group in groups] == ["two"]


def test_alerts_are_the_alerting_rules() -> None:
    """Records are left out."""
    assert [rule.alert for rule in rules.alerts(load_text(PLAIN + "---\n" + OPERATOR))] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("groups: [", "f.yaml, line 1: ", id="broken YAML names the line"),
        pytest.param(plain("{alert: A, expr: up, fro: 1m}"), "did you mean `for`?", id="misspelt key"),
        pytest.param(plain("{alert: A, expr: up, for: 0.5s}"), "write 30s, 5m or 1m30s", id="fraction"),
        pytest.param(plain("{alert: A, expr: up, for: 30s1m}"), "is no duration", id="units out of order"),
        pytest.param(plain("{alert: A}"), "rule 'A' needs an `expr`", id="no expression"),
        pytest.param(plain("{expr: up}"), "needs either `record` or `alert`", id="neither name"),
        pytest.param(plain("{alert: A, record: b, expr: up}"), "either `record` or `alert`", id="both names"),
        pytest.param(plain("{record: a-b, expr: up}"), "is no metric name", id="bad metric name"),
        pytest.param(plain("{record: b, expr: up, for: 1m}"), "cannot have `for`", id="record with for"),
        pytest.param(plain("{alert: A, expr: up, labels: [x]}"), "must map names", id="labels as list"),
        pytest.param(plain("{alert: A, expr: up, labels: {a-b: x}}"), "'a-b'", id="bad label name"),
        pytest.param(plain("{alert: A, alert: B, expr: up}"), "'alert' stands twice", id="key twice"),
        pytest.param("groups: {name: g}", "must be a list", id="groups as mapping"),
        pytest.param("groups: [{rules: []}]", "a group needs a `name`", id="group without name"),
        pytest.param("groups: [{name: g, interval: often}]", "is no duration", id="bad interval"),
        pytest.param("kind: PrometheusRule", "needs a `spec`", id="object without spec"),
    ],
)
def test_a_faulty_file_is_named_in_one_sentence(text: str, sentence: str) -> None:
    """The error names the file, the place and the mend."""
    with pytest.raises(rules.RuleFileError) as caught:
        load_text(text)
    message = str(caught.value)
    assert message.startswith("f.yaml")
    assert sentence in message
    assert "\n" not in message


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, one that is not text, and one without rules."""
    with pytest.raises(rules.RuleFileError, match=r"gone\.yaml: cannot be read \(No such file"):
        rules.load([tmp_path / "gone.yaml"])
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(rules.RuleFileError, match="is not UTF-8 text"):
        rules.load([tmp_path / "b.yaml"])
    (tmp_path / "c.yaml").write_text("kind: ConfigMap\n")
    with pytest.raises(rules.RuleFileError, match="holds no rule groups"):
        rules.load([tmp_path / "c.yaml"])


CHAIN = """\
groups:
  - {name: alerts, rules: [{alert: A, expr: 'c:d > 1 and sum({__name__=~"e:.+"})'}]}
  - {name: last, rules: [{record: 'c:d', expr: 'a:b * 2'}]}
  - {name: first, rules: [{record: 'a:b', expr: 'up{x="c:d"} # c:d'}]}
  - {name: named, rules: [{record: 'e:f', expr: 'sum({__name__="a:b"})'}]}
"""


def test_export_puts_records_before_their_users() -> None:
    """Names in expressions count, also by __name__; names in strings and comments do not."""
    order = [group.name for group in load_text(rules.export(load_text(CHAIN)))]
    assert order == ["first", "last", "named", "alerts"]


def test_a_circle_keeps_the_order_of_the_files() -> None:
    """Two groups that need each other are both still there."""
    text = (
        "groups:\n- {name: x, rules: [{record: 'a:b', expr: 'c:d'}]}\n"
        "- {name: y, rules: [{record: 'c:d', expr: 'a:b'}]}"
    )
    assert [group.name for group in rules.in_dependency_order(load_text(text))] == ["x", "y"]


def test_export_keeps_all_that_prometheus_reads() -> None:
    """Exported and read again, only places differ; what only the operator knows is dropped."""
    exported = yaml.safe_load(rules.export(load_text(PLAIN + "---\n" + OPERATOR)))
    assert exported == {
        "groups": [
            {
                "name": "one",
                "interval": "30s",
                "limit": 10,
                "rules": [
                    {"record": "a:b", "expr": "1", "labels": {"n": "1"}},
                    {"alert": "A", "expr": "a:b > 0", "for": "1m"},
                ],
            },
            {"name": "two", "rules": [{"alert": "B", "expr": "up == 0"}]},
        ]
    }


def test_two_groups_of_one_name_cannot_be_exported() -> None:
    """A plain rule file holds a group name once; the error names both places."""
    with pytest.raises(rules.RuleFileError, match=r"also stands in f\.yaml, line 2; rename one"):
        rules.export(load_text(PLAIN + "---\n" + PLAIN))


def test_runbook_base_is_put_before_relative_links_only() -> None:
    """A link that is whole already stays."""
    text = plain("{alert: A, expr: up, annotations: {runbook_url: docs/A.md}}")
    other = plain("{alert: A, expr: up, annotations: {runbook_url: 'https://x.example/A'}}")
    (first,) = rules.alerts(rules.with_runbook_base(load_text(text), "https://h.example/blob/main/"))
    (second,) = rules.alerts(rules.with_runbook_base(load_text(other), "https://h.example"))
    assert first.annotations["runbook_url"] == "https://h.example/blob/main/docs/A.md"
    assert second.annotations["runbook_url"] == "https://x.example/A"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "arguments", [[], ["--compress", "60"], ["--compress", "1234.5"], ["--compress", "0.5"]]
)
def test_export_command_prints_a_file_that_promtool_takes(arguments: list[str], tmp_path: Path) -> None:
    """The shipped pack, as it is and in compressed time."""
    result = CliRunner().invoke(rules_command, ["export", str(PACK), *arguments])
    assert result.exit_code == 0, result.output
    (tmp_path / "all.yml").write_text(result.stdout)
    check = ["promtool", "check", "rules", "--lint-fatal", "all.yml"]
    run = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_export_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    """Exit status 1 for a fault, 2 for wrong usage, never a traceback."""
    (tmp_path / "x.yaml").write_text(plain("{alert: A}"))
    result = CliRunner().invoke(cli, ["rules", "export", str(tmp_path / "x.yaml")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"gpu-responder: {tmp_path}/x.yaml, line 4: rule 'A' needs an `expr`\n"
    assert CliRunner().invoke(rules_command, ["export", str(PACK), "--compress", "0"]).exit_code == 2


def test_export_command_sets_the_runbook_base() -> None:
    """Every link of the shipped pack becomes whole."""
    result = CliRunner().invoke(rules_command, ["export", str(PACK), "--runbook-base", "https://h.example/r"])
    found = rules.alerts(load_text(result.stdout))
    assert found
    assert all(
        rule.annotations["runbook_url"] == f"https://h.example/r/docs/runbooks/{rule.alert}.md"
        for rule in found
    )


def test_thousands_of_groups_are_ordered_at_once() -> None:
    """Each of 4,000 groups stands on the one after it, which is as much work as there can be."""
    text = "groups:\n" + "".join(
        f"- {{name: g{n}, rules: [{{record: 'a:{n}', expr: 'a:{n + 1}'}}]}}\n" for n in range(4000)
    )
    groups = rules.load_text(text, "r.yaml")
    started = time.process_time()
    ordered = rules.in_dependency_order(groups)
    assert ordered == tuple(reversed(groups))
    assert time.process_time() - started < 5
