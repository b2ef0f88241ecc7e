"""`gpu-responder check` as people and scripts call it."""

import ast
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from responder.check.labels import Labels
from responder.cli import cli

ROOT = Path(__file__).parents[2]
CHAINS = ROOT / "tests" / "data" / "chains"
SHIPPED = ("--policy", str(ROOT / "examples" / "policies.yaml"), "--rules", str(ROOT / "rules"))


def check(*args: str) -> Result:
    result = CliRunner().invoke(cli, ["check", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def report(*args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(check("-o", "json", *args).stdout)
    return found


@pytest.mark.parametrize("name", ["alertmanager.yml", "alertmanager-token.yml", "alertmanagerconfig.yaml"])
def test_the_shipped_files_are_clean(name: str) -> None:
    """Rules, example policies and each Alertmanager configuration: nothing but notes, and each alert has its way."""
    found = report(*SHIPPED, "--alertmanager", str(ROOT / "alertmanager" / name))
    assert [each for each in found["findings"] if each["severity"] != "note"] == []
    assert found["ok"] is True
    assert {each["receiver"] for each in found["chain"]} == {"gpu-responder"}
    assert {each["target"] for each in found["chain"]} == {"Deployment <namespace>/<workload>"}
    ways = {each["alert"]: f"{each['policy']}/{each['trigger']}" for each in found["chain"]}
    assert ways["LLMQueueBacklog"] == "inference/backlog"
    assert ways["GPUWorkloadScaleUp"] == "inference/saturated"
    assert ways["GPUWorkloadScaleDown"] == "inference/idle"


STACK = """
inhibit_rules:
- source_matchers: ['severity = critical']
  target_matchers: ['severity =~ warning|info']
  equal: [namespace, alertname]
- source_matchers: ['severity = warning']
  target_matchers: ['severity = info']
  equal: [namespace, alertname]
- source_matchers: ['alertname = InfoInhibitor']
  target_matchers: ['severity = info']
  equal: [namespace]
"""
"""What kube-prometheus-stack inhibits by default."""


def test_no_alert_that_scales_is_inhibited_by_what_most_clusters_inhibit(tmp_path: Path) -> None:
    """The stack's InfoInhibitor keeps every alert of severity info back while no warning fires beside it."""
    routes = (ROOT / "alertmanager" / "alertmanager.yml").read_text().replace("inhibit_rules: []", STACK)
    (tmp_path / "alertmanager.yml").write_text(routes)
    given = (
        "--policy",
        str(ROOT / "examples" / "policies.yaml"),
        "--alertmanager",
        str(tmp_path / "alertmanager.yml"),
    )
    found = report(*given, "--rules", str(ROOT / "rules"))["findings"]
    assert [each["code"] for each in found if each["code"] == "inhibited"] == []
    rules = (ROOT / "rules" / "scaling.yaml").read_text().replace("{severity: none, ", "{severity: info, ")
    (tmp_path / "scaling.yaml").write_text(rules)
    found = report(*given, "--rules", str(tmp_path / "scaling.yaml"))["findings"]
    assert "inhibited" in [each["code"] for each in found], "the check sees it"


def test_without_arguments_it_checks_what_stands_in_the_shipped_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a checkout `gpu-responder check` is enough; its last line sums up."""
    monkeypatch.chdir(ROOT)
    result = check()
    assert result.exit_code == 0
    assert "alerts, 10 that scale" in result.stdout.splitlines()[-1]


def test_without_anything_to_check_it_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit status 2 and what to name."""
    monkeypatch.chdir(tmp_path)
    result = check()
    assert result.exit_code == 2
    assert "Name what to check" in result.output


@pytest.mark.parametrize("content", [None, "kind: ConfigMap\ndata: {}\n"], ids=["empty", "of other things"])
def test_a_path_that_holds_nothing_to_check_is_no_success(tmp_path: Path, content: str | None) -> None:
    """A misspelt path in a pipeline must not pass."""
    if content is not None:
        (tmp_path / "other.yaml").write_text(content)
    result = check(str(tmp_path))
    assert result.exit_code == 1
    assert f"{tmp_path}" in result.stdout
    assert "This holds no rules, Alertmanager configuration or policy file." in result.stdout


def test_findings_are_printed_as_compilers_do() -> None:
    """`file:line: severity: sentence [code]`, and the mend below."""
    directory = CHAINS / "scale-down-keeps-firing"
    lines = check(str(directory)).stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "down-keeps-firing" in line)
    assert lines[at].startswith(
        f"{directory}/rules.yaml:26: error: Quiet scales down and keeps firing for 5m"
    )
    assert lines[at + 1] == "    mend: remove keep_firing_for"


def test_a_table_tells_the_way_of_each_alert() -> None:
    """Route, receiver, policy and trigger, target, delay, and what a resolve does."""
    output = check(str(CHAINS / "sound")).stdout
    row = next(line for line in output.splitlines() if line.startswith("Busy "))
    for part in ("scale_up|scale_down", "gpu-responder", "inference/busy", "Deployment inference/<workload>",
                 "episode ends, replicas stay; told within 1m", "130 s"):  # fmt: skip
        assert part in row, part


def manifest(directory: Path) -> list[dict[str, Any]]:
    """A chain as `helm template` would print it."""
    groups = yaml.safe_load((directory / "rules.yaml").read_text())
    config = yaml.safe_load((directory / "alertmanager.yml").read_text())
    hooks = config["receivers"][0]["webhook_configs"]
    matchers = {
        "Watchdog": [{"name": "alertname", "value": "Watchdog", "matchType": "="}],
        "others": [{"name": "action", "value": "scale_up|scale_down|inhibit_scale_down", "matchType": "=~"}],
    }
    route = {
        "receiver": "people", "groupBy": ["namespace", "workload"], "groupWait": "10s", "groupInterval": "1m",
        "repeatInterval": "5m",
        "routes": [{"receiver": "gpu-responder", "matchers": each} for each in matchers.values()],
    }  # fmt: skip
    return [
        {"kind": "PrometheusRule", "metadata": {"name": "r"}, "spec": groups},
        {"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": []}},
        {
            "kind": "AlertmanagerConfig",
            "metadata": {"name": "a", "namespace": "monitoring"},
            "spec": {
                "route": route,
                "receivers": [
                    {
                        "name": "gpu-responder",
                        "webhookConfigs": [{"url": hooks[0]["url"], "sendResolved": True}],
                    },
                    {"name": "people"},
                ],
            },
        },
        {
            "kind": "ConfigMap",
            "metadata": {"name": "c"},
            "data": {"policies.yaml": (directory / "policies.yaml").read_text()},
        },
    ]


class _Block(yaml.SafeDumper):
    pass


_Block.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, "|" if "\n" in text else None
    ),
)


def written(tmp_path: Path, documents: list[dict[str, Any]]) -> str:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.dump_all(documents, Dumper=_Block, sort_keys=False))
    return str(file)


def test_what_helm_template_prints_is_read_whole(tmp_path: Path) -> None:
    """Rules, routes and the policy file in a ConfigMap, all in one file, and nothing else in it disturbs."""
    found = report(written(tmp_path, manifest(CHAINS / "sound")))
    assert [each["code"] for each in found["findings"]] == ["namespace-matcher"]
    assert {each["trigger"] for each in found["chain"]} == {"busy", "quiet"}


def test_lines_within_a_configmap_are_those_of_the_file(tmp_path: Path) -> None:
    """A fault of the policy file is at the line on which it stands in the manifest."""
    file = written(tmp_path, manifest(CHAINS / "bounds-leave-no-room"))
    [fault] = [each for each in report(file)["findings"] if each["severity"] != "note"]
    assert "maxReplicas: 1" in Path(file).read_text().splitlines()[fault["line"] - 1]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("OnNamespace", {"unrouted"}), ("None", set())],
    ids=["bound to its namespace", "not bound"],
)
def test_the_namespace_trap_is_seen_when_the_alertmanager_object_is_given(
    tmp_path: Path, strategy: str, expected: set[str]
) -> None:
    """Bound to its own namespace, an AlertmanagerConfig gets neither the heartbeat nor others' scaling alerts."""
    documents = manifest(CHAINS / "sound")
    documents.append(
        {"kind": "Alertmanager", "spec": {"alertmanagerConfigMatcherStrategy": {"type": strategy}}}
    )
    found = report(written(tmp_path, documents))
    assert {each["code"] for each in found["findings"]} == expected
    if expected:
        assert "Watchdog is the heartbeat" in " ".join(each["message"] for each in found["findings"])


def test_tools_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without promtool and amtool it says so, and goes on without them."""
    monkeypatch.setenv("PATH", str(tmp_path))
    found = report(str(CHAINS / "sound"))
    assert [(each["code"], each["severity"]) for each in found["findings"]] == [("tool-absent", "note")] * 2
    assert found["tools"] == {"promtool": "", "amtool": ""}


def test_prometheus_configuration_gives_intervals_and_labels(tmp_path: Path) -> None:
    """Its scrape interval counts in the delay, and a replica label that is not dropped is a fault of its line."""
    file = tmp_path / "prometheus.yml"
    file.write_text(
        "global:\n  scrape_interval: 2m\n  external_labels:\n    replica: a\n"
        "alerting:\n  alertmanagers:\n  - static_configs: [{targets: ['x:9093']}]\n"
    )
    found = report(str(CHAINS / "sound"), "--prometheus", str(file))
    assert [(each["code"], each["line"]) for each in found["findings"]] == [("replica-label", 4)]
    [busy] = [each for each in found["chain"] if each["alert"] == "Busy"]
    assert busy["delaySeconds"] == 120 + 15 + 15 + 60 + 10


@pytest.mark.parametrize(
    ("args", "code"),
    [(("--receiver", "people"), "no-webhook"), (("--receiver", "nobody"), "unknown-receiver")],
    ids=["one without a webhook", "one that is not there"],
)
def test_a_receiver_can_be_named(args: tuple[str, ...], code: str) -> None:
    """--receiver says which is ours, when its URL does not."""
    assert code in {each["code"] for each in report(str(CHAINS / "sound"), *args)["findings"]}


def test_labels_of_an_alert_are_in_the_report() -> None:
    """For programs: the labels that an alert can have."""
    [busy] = [each for each in report(str(CHAINS / "sound"))["chain"] if each["alert"] == "Busy"]
    assert busy["labels"] == sorted(
        ["action", "alertname", "cluster", "namespace", "severity", "workload", "workload_type"]
    )
    assert Labels().possible("x") is False


JUNK = (
    None,
    1.5,
    True,
    "",
    "x",
    "{{ $labels.x }}",
    [],
    {},
    [None],
    {"a": {"b": [1]}},
    'x="y"',
    ["=~"],
    "\x01",
    "5m",
)


def _changed(value: Any, chance: random.Random) -> Any:
    """The value with something in it replaced by junk."""
    if isinstance(value, dict | list) and value and chance.random() < 0.85:
        copied = dict(value) if isinstance(value, dict) else list(value)
        key: Any = chance.choice(list(copied) if isinstance(copied, dict) else range(len(copied)))
        copied[key] = _changed(copied[key], chance)
        return copied
    return chance.choice(JUNK)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_stands_in_the_files_is_no_traceback(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with junk in any place are read as far as they go; all that comes of it are findings."""
    monkeypatch.setenv("PATH", str(tmp_path))
    chance = random.Random(seed)
    for file in [*(CHAINS / "sound").iterdir(), ROOT / "alertmanager" / "alertmanagerconfig.yaml"]:
        document = yaml.safe_load(file.read_text())
        for _ in range(chance.choice([0, 1, 1, 2])):
            document = _changed(document, chance)
        (tmp_path / file.name).write_text(yaml.safe_dump(document))
    assert report(str(tmp_path))["findings"]


@pytest.mark.parametrize(
    "text",
    ["", "\x00", "a: [", "a: &a [*a]", "- 1", "\tx: 1", "kind: List\nitems: [1, {kind: PrometheusRule}]"],
)
def test_files_that_are_none_are_no_traceback(text: str, tmp_path: Path) -> None:
    """Empty, binary, broken, circular: at most a finding each."""
    (tmp_path / "x.yaml").write_text(text)
    assert check(str(tmp_path)).exit_code in (0, 1)


def test_every_kind_of_finding_is_explained() -> None:
    """Each code that the source can give stands in docs/check.md or docs/doctor.md, and those stand in the source."""
    told = "".join((ROOT / "docs" / name).read_text() for name in ("check.md", "doctor.md"))
    explained = {
        code
        for row in re.findall(r"^\| (`[^|]*) \|", told, re.MULTILINE)
        for code in re.findall(r"`([a-z][a-z-]*)`", row)
    }
    source = "".join(path.read_text() for path in (ROOT / "responder" / "check").rglob("*.py"))
    tree = ast.parse(source.replace("from __future__", "from future"))
    given = {
        argument.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id in {"error", "warning", "note", "found", "Finding", "_nothing", "_of_message"}
        for argument in call.args
        if isinstance(argument, ast.Constant) and re.fullmatch(r"[a-z]+(-[a-z]+)*", str(argument.value))
    }
    assert given - explained == set()
    assert {code for code in explained if not re.search(rf'"{code}"', source)} == set()
