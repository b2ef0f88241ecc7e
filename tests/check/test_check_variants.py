"""A sound chain with one thing changed: what is sound still is found so, and what is not is found."""

import base64
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from responder.cli import cli

SOUND = Path(__file__).parents[1] / "data" / "chains" / "sound"
UP = 'namespace_workload:busy_ratio:avg{workload_type="deployment"} > 0.85'
VALUE = "value: '{{ $value }}'"
ALERTMANAGER = (SOUND / "alertmanager.yml").read_text()
RULES = (SOUND / "rules.yaml").read_text()
OBJECT = """apiVersion: monitoring.coreos.com/v1beta1
kind: AlertmanagerConfig
metadata: {name: gpu, namespace: monitoring}
spec:
  route:
    receiver: gpu-responder
    groupBy: [cluster, namespace, workload, action]
    groupInterval: 1m
    repeatInterval: 2m
  receivers:
  - name: gpu-responder
    webhookConfigs: [{urlSecret: {name: gpu-responder, key: url}}]
---
apiVersion: monitoring.coreos.com/v1
kind: Alertmanager
metadata: {name: main, namespace: monitoring}
spec: SPEC
"""
Write = Callable[..., Path]


@pytest.fixture
def chain(tmp_path: Path) -> Write:
    """Writes the sound chain with texts replaced, and whole files besides; its directory."""

    def write(*changes: tuple[str, str], **files: str) -> Path:
        for file in SOUND.iterdir():
            text = file.read_text()
            for old, new in changes:
                text = text.replace(old, new)
            (tmp_path / file.name).write_text(text)
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return tmp_path

    return write


def check(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, args)])


def codes(*args: str | Path) -> set[str]:
    """Those of errors and warnings."""
    lines = check(*args).output.splitlines()
    return {
        line.rpartition("[")[2].rstrip("]") for line in lines if ": error: " in line or ": warning: " in line
    }


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ('{{ printf "%.2f" $value }}', set()),
        ('{{ $value | printf "%.0f" }}', set()),
        ("{{ .Value }}", set()),
        ('{{ with query "sum(a)" }}{{ . | first | value }}{{ end }}', set()),
        ("{{ $v := $value }}{{ $v }}", set()),
        ('{{ printf "%.0f%%" $value }}', {"value-missing"}),
        ("{{ $value | humanize }}", {"value-missing"}),
        ("{{ $value }} requests", {"value-missing"}),
        ("{{ $labels.workload }}", {"value-missing"}),
    ],
)
def test_an_annotation_to_size_by_is_a_bare_number(chain: Write, annotation: str, expected: set[str]) -> None:
    """However the template says it; and words are none."""
    sized = (
        "type: Percent\n      value: 50",
        "type: Utilization\n      target: 0.7\n      valueFrom: {annotation: value}",
    )
    assert codes(chain(sized, (VALUE, f"value: '{annotation}'"))) == expected


@pytest.mark.parametrize(
    "template", ["{{ $value }}", '{{ printf "%.0f" $value }}', '{{ query "a" | first | value }}']
)
def test_no_value_of_a_query_may_be_in_a_label(chain: Write, template: str) -> None:
    """Neither the alert's own nor that of another query: each change of it is a new alert."""
    assert codes(chain(("action: scale_up", f"action: scale_up\n      level: '{template}'"))) == {
        "value-in-label"
    }


def test_an_alert_that_compares_with_bool_always_fires(chain: Write) -> None:
    """0 is a value too."""
    assert codes(chain((UP, UP.replace("> ", "> bool ")))) == {"always-fires"}


def test_thresholds_cross_also_where_the_number_stands_ahead(chain: Write) -> None:
    """`0.2 < a` and `0.3 > a` overlap."""
    series = UP.removesuffix(" > 0.85")
    assert codes(chain((UP, f"0.2 < {series}"))) == {"no-hysteresis"}


def outside(label: str) -> str:
    return (
        f"global: {{external_labels: {{{label}}}}}\n"
        "alerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:9093']}]}]}\n"
    )


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (None, set()),
        ("cluster: prod-eu", set()),
        ("cluster: '${CLUSTER}'", set()),
        ("cluster: prod-us", {"unrouted", "no-policy", "policy-unreached"}),
        ("zone: a", {"unrouted", "no-policy", "policy-unreached"}),
    ],
    ids=["nobody says which", "the same", "from the environment", "another", "others alone"],
)
def test_prometheus_adds_its_own_labels_to_alerts(
    chain: Write, label: str | None, expected: set[str]
) -> None:
    """Where the rules leave no cluster, external_labels give one, and routes and policies go by it."""
    directory = chain(
        ("by (cluster, ", "by ("),
        ("['namespace=\"inference\"']", "['cluster=\"prod-eu\"']"),
        ("['action=~\"scale_up|", "['cluster=\"prod-eu\"', 'action=~\"scale_up|"),
    )
    more: tuple[str | Path, ...] = ()
    if label is not None:
        (directory / "prometheus.conf").write_text(outside(label))
        more = ("--prometheus", directory / "prometheus.conf")
    assert codes(directory, *more) == expected


def test_a_route_whose_matchers_contradict_each_other_takes_nothing(chain: Write) -> None:
    """Two values of one label cannot be, though nobody knows which values there are."""
    both = """['team="a"', 'team="b"', 'action=~"scale_up|"""
    assert codes(chain(("""['action=~"scale_up|""", both))) == {"unrouted"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{replicas: 3}", {"unrouted"}),
        ("{alertmanagerConfigMatcherStrategy: {type: OnNamespace}}", {"unrouted"}),
        ("{alertmanagerConfigMatcherStrategy: {type: None}}", set()),
        ("{alertmanagerConfigMatcherStrategy: {type: OnNamespaceExceptForAlertmanagerNamespace}}", set()),
        ("{alertmanagerConfiguration: {name: gpu}}", set()),
        ("{alertmanagerConfiguration: {name: other}}", {"unrouted"}),
    ],
)
def test_the_operator_binds_an_alertmanagerconfig_or_does_not(
    chain: Write, spec: str, expected: set[str]
) -> None:
    """Each way out of the namespace trap that docs/alertmanager.md names is one."""
    directory = chain(amc__yaml=OBJECT.replace("SPEC", spec))
    (directory / "alertmanager.yml").unlink()
    assert codes(directory) == expected


@pytest.mark.parametrize(
    "document",
    [
        "template_files: {}\nalertmanager_config: |\n",
        "kind: ConfigMap\ndata:\n  alertmanager.yml: |\n",
        "kind: Secret\nstringData:\n  alertmanager.yaml: |-\n",
    ],
    ids=["Mimir", "ConfigMap", "Secret"],
)
def test_a_configuration_within_a_document_has_the_lines_of_the_file(chain: Write, document: str) -> None:
    """What is wrong with it is told, and where: also that it is no YAML."""
    indented = "".join(f"    {line}" for line in ALERTMANAGER.splitlines(True))
    directory = chain(alertmanager__yml=document + indented)
    assert codes(directory) == set()
    ahead = len(document.splitlines())
    for old, new, code in (("4h", "4 h", "duration"), ("action]", "action", "yaml")):
        directory = chain(alertmanager__yml=document + indented.replace(old, new))
        number = ahead + next(n for n, line in enumerate(ALERTMANAGER.splitlines(), 1) if old in line)
        number += code == "yaml"  # YAML misses the bracket on the line after
        assert f"alertmanager.yml:{number}: error: " in check(directory).output, check(directory).output
        assert code in codes(directory)


@pytest.mark.parametrize("key", ["stringData", "data"])
def test_a_configuration_on_one_line_is_told_of_at_that_line(chain: Write, key: str) -> None:
    """Its own lines are none of the file's."""
    text = ALERTMANAGER.replace("4h", "4 h")
    carried = json.dumps(text) if key == "stringData" else base64.b64encode(text.encode()).decode()
    directory = chain(alertmanager__yml=f"kind: Secret\n{key}:\n  alertmanager.yaml: {carried}\n")
    assert "alertmanager.yml:3: error: '4 h' is no duration." in check(directory).output


def test_rules_in_a_configmap_are_read(chain: Write) -> None:
    """As the chart of Prometheus without the operator has them; a fault stands at the line of the file."""

    def wrapped(rules: str) -> str:
        return "kind: ConfigMap\ndata:\n  gpu.rules: |\n" + "".join(
            f"    {line}" for line in rules.splitlines(True)
        )

    assert codes(chain(rules__yaml=wrapped(RULES))) == set()
    directory = chain(rules__yaml=wrapped(RULES.replace("0.85", "0.85 >")))
    number = next(n for n, line in enumerate(RULES.splitlines(), 4) if "0.85" in line)
    assert f"rules.yaml:{number}: error: The expression of Busy is not PromQL" in check(directory).output


def test_a_file_that_cannot_be_read_leaves_what_it_might_hold_unjudged(chain: Write) -> None:
    """No policy is unreachable, and no heartbeat unknown, for want of rules that nobody could read."""
    assert codes(chain(("for: 1m", "fore: 1m"))) == {"rule-file"}
    assert codes(chain(("severity: none}", "severity: none"))) == {"yaml"}


SEVERE = """
inhibit_rules:
- source_matchers: ['alertname = InfoInhibitor']
  target_matchers: ['severity = info']
  equal: [namespace]
"""


def test_an_alert_without_severity_is_not_inhibited_for_one(chain: Write) -> None:
    """A raw metric might have any label, but severity is what rules say."""
    plain = ("severity: info", "team: a")
    watchdog = RULES.replace(*plain).replace(
        "max by (cluster, node) (gpu_temperature_celsius)", "gpu_temperature_celsius"
    )
    assert codes(chain(rules__yaml=watchdog, alertmanager__yml=ALERTMANAGER + SEVERE)) == set()
    assert codes(chain(rules__yaml=RULES, alertmanager__yml=ALERTMANAGER + SEVERE)) == {"inhibited"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("url: http://127.0.0.1:9099/api/v1/webhooks/alertmanager", "url_file: /etc/url"), "url_file"),
        (("['action=~", """['"größe.x"!="a"', 'action=~"""), "größe.x"),
        (("- name: alerts\n", "- name: alerts\n  query_offset: 30s\n"), "query_offset"),
        (("- name: alerts\n", "- name: alerts\n  labels: {team: a}\n"), "labels"),
        (("(gateway_busy_ratio)", "({\"gateway.busy\"})"), "in label matching"),
        (("severity: warning", "severity: warning\n      k8s.cluster: a"), "k8s.cluster"),
    ],
)  # fmt: skip
def test_what_is_newer_than_the_tool_is_no_fault(chain: Write, change: tuple[str, str], line: str) -> None:
    """promtool and amtool of an older release refuse what a newer server takes: a note, with their version."""
    result = check(chain(change))
    assert result.exit_code == 0, result.output
    if " note: " in result.output:  # newer tools have nothing to say
        assert line in result.output
        assert "install the " in result.output


def test_a_rule_for_some_tenants_is_no_fault(chain: Write) -> None:
    """Mimir's key, which promtool does not know."""
    assert codes(chain(("- name: alerts\n", "- name: alerts\n  source_tenants: [a, b]\n"))) == set()


def test_what_promtool_alone_refuses_is_told(chain: Write) -> None:
    """And so is what it says in words that nobody foresaw."""
    output = check(chain(("value: '{{ $value }}'", "value: '{{ $value '"))).output
    assert re.search("promtool says: .*unclosed action", output)


def test_rules_that_are_none_are_told_with_a_mend(chain: Write) -> None:
    """Though there is no more to say than that they are none."""
    output = check(chain(more__yaml="groups:\n- name: a\n  rules:\n  - null\n")).output
    assert "`rules` must be a list of mappings. [rule-file]\n    mend: mend it there\n" in output


def test_an_expression_of_a_thousand_terms_is_read(chain: Write) -> None:
    """As programs write them: in a moment, and whatever is wrong with the rest is still found."""
    terms = " or ".join(f"namespace_workload:busy_ratio:avg{{workload='w{n}'}} > 0.85" for n in range(1000))
    directory = chain((UP, terms), ("< 0.3", "< 0.9"))
    started = time.process_time()
    assert codes(directory) == set()
    assert time.process_time() - started < 10
