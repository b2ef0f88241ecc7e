"""What holds for every rule of the pack."""

import csv
import re
from pathlib import Path

import promql_parser
import pytest
import yaml

from responder import promql, rules

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GROUPS = rules.load([ROOT / "rules"])
RULES = [rule for group in GROUPS for rule in group.rules]
ALERTS = rules.alerts(GROUPS)
SCALING = [rule for rule in ALERTS if rule.labels.get("action") in ("scale_up", "scale_down")]
FAULTS = [rule for rule in ALERTS if "scope" in rule.labels]
TESTS = {path.name: path.read_text() for path in sorted(HERE.glob("*.test.yaml"))}
CASES = [
    case
    for text in TESTS.values()
    for test in yaml.safe_load(text)["tests"]
    for case in test.get("alert_rule_test", [])
]
# Part of the names that users write into policies, dashboards and silences.
IDENTITY = {"cluster", "vendor", "node", "gpu", "gpu_uuid", "gpu_instance", "model"}


def name(rule: rules.Rule) -> str:
    return rule.name


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_every_alert_has_a_summary_a_severity_and_a_runbook_page(rule: rules.Rule) -> None:
    """The page exists under the alert's name, with the four sections that a person on call looks for."""
    assert rule.annotations["summary"]
    assert rule.labels["severity"] in ("none", "info", "warning", "critical")
    assert rule.annotations["runbook_url"] == f"docs/runbooks/{rule.alert}.md"
    page = (ROOT / rule.annotations["runbook_url"]).read_text()
    assert page.startswith(f"# {rule.alert}\n")
    sections = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert sections == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    assert all(len(text.split()) >= 8 for text in re.split(r"^## .+$", page, flags=re.MULTILINE)[1:])


def test_every_runbook_page_has_its_alert() -> None:
    """No page is left over from an alert that was renamed."""
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert pages == {rule.alert for rule in ALERTS}


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_every_alert_is_tested_to_fire_and_to_be_silent(rule: rules.Rule) -> None:
    """promtool tests expect it somewhere, and expect silence somewhere."""
    cases = [case for case in CASES if case["alertname"] == rule.alert]
    assert any(case.get("exp_alerts") for case in cases)
    assert rule.alert == "Watchdog" or any(not case.get("exp_alerts") for case in cases)


@pytest.mark.parametrize("rule", SCALING, ids=name)
def test_scaling_alerts_carry_what_a_policy_needs(rule: rules.Rule) -> None:
    """action and signal as labels, the value as an annotation, the workload from the expression."""
    assert rule.labels["signal"]
    assert rule.annotations["value"] == "{{ $value }}"
    assert 'workload_type=~"deployment|statefulset|rollout"' in rule.expr


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_no_label_of_an_alert_holds_a_template(rule: rules.Rule) -> None:
    """A label that changes with the value would make a new alert of every evaluation."""
    assert not any("{{" in value for value in rule.labels.values())


def test_a_scale_down_is_never_kept_firing() -> None:
    """keep_firing_for would go on shrinking a service that has become busy."""
    downs = [rule for rule in SCALING if rule.labels["action"] == "scale_down"]
    assert downs
    assert all(rule.keep_firing_for is None for rule in downs)


@pytest.mark.parametrize("rule", FAULTS, ids=name)
def test_faults_say_what_to_do_and_what_they_touch(rule: rules.Rule) -> None:
    """Only an alert on a share of the fleet holds the whole cluster."""
    assert rule.labels["action"] in ("cordon", "drain", "notify", "inhibit_scale_up", "inhibit_scale_down")
    assert rule.labels["scope"] in ("workload", "node", "cluster")
    assert (rule.labels["scope"] == "cluster") == bool(rule.alert and rule.alert.endswith("Widely"))


def test_a_fault_of_a_device_never_holds_more_than_its_node() -> None:
    """A hot GPU forbids scale-up on its own node and nowhere else."""
    ups = [rule for rule in ALERTS if rule.labels.get("action") == "inhibit_scale_up"]
    assert ups
    assert {rule.labels["scope"] for rule in ups} == {"node"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.line}")
def test_joins_and_aggregations_over_clusters_name_the_cluster(rule: rules.Rule) -> None:
    """Without `cluster`, series of two clusters with the same names would be thrown together."""
    for labels in re.findall(r"\b(?:by|on) \(([^()]*)\)", rule.expr):
        assert "cluster" in [label.strip() for label in labels.split(",")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.line}")
def test_every_expression_parses(rule: rules.Rule) -> None:
    """With a parser other than promtool's."""
    promql_parser.parse(rule.expr)


def test_no_two_rules_record_the_same_series() -> None:
    """The same name is recorded twice only with different labels of the rule itself."""
    recorded = [(rule.record, tuple(sorted(rule.labels.items()))) for rule in RULES if rule.record]
    assert len(recorded) == len(set(recorded))


def test_neutral_files_use_no_vendors_series() -> None:
    """Only the vendor files and serving.yaml name what an exporter or a server exports."""
    foreign = re.compile(r"\b(DCGM_|amd_|habanalabs_|xpum_|hw_gpu|nvidia:|amd:|intel:|gaudi:)")
    for file in ("gpu", "xid", "workload", "scaling", "hardware"):
        for rule in rules.load([ROOT / "rules" / f"{file}.yaml"])[0].rules:
            assert not foreign.search(rule.expr), rule.name


def test_both_lists_of_application_xids_agree() -> None:
    """The class and the daily count speak of the same XIDs; no XID has two classes."""
    lists = [
        (rule.labels.get("xid_class"), set(re.findall(r"\d+", match)))
        for rule in RULES
        for match in re.findall(r'\{xid=~"([^"]+)"\}', rule.expr)
    ]
    by_class = {key: xids for key, xids in lists if key}
    (daily,) = [xids for key, xids in lists if key is None]
    assert daily == by_class["app"]
    assert sum(map(len, by_class.values())) == len(set().union(*by_class.values()))


def counters(file: str) -> dict[str, str]:
    """Field -> metric type, of active lines and of those to be uncommented."""
    text = (ROOT / "rules" / file).read_text()
    lines = [line.removeprefix("# ") if line.startswith("# DCGM_") else line for line in text.splitlines()]
    rows = list(csv.reader(line for line in lines if line.startswith("DCGM_")))
    assert all(len(row) == 3 for row in rows), "the exporter wants exactly three fields in each line"
    return {row[0].strip(): row[1].strip() for row in rows}


def test_counters_files_hold_exactly_what_the_rules_read() -> None:
    """For both generations; each field in the one has its successor in the other."""
    text = " ".join(rule.expr for rule in RULES)
    read = set(re.findall(r"\bDCGM_(?:FI|EXP)_[A-Z0-9_]*[A-Z]\b(?![A-Z_]*\()", text))
    old, new = counters("dcgm-counters.csv"), counters("dcgm-counters-4.9.csv")
    assert {field for field in read if "(" not in field} == old.keys() | new.keys()
    assert len(old) == len(new)
    assert set(old.values()) | set(new.values()) == {"gauge", "counter"}


def test_every_pitfall_of_the_research_has_its_test() -> None:
    """The rows of the list of pitfalls, each named in a promtool test."""
    rows = {1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 19, 20, 22, 24, 25, 26, 27, 28}
    rows |= {30, 32, 33, 34, 35, 36, 40, 42, 43, 44, 45}
    named = {int(row) for text in TESTS.values() for row in re.findall(r"\bB(\d+)\b", text)}
    assert named == rows


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_every_group_has_an_interval_that_divides_its_windows(group: rules.Group) -> None:
    """Windows are whole numbers of evaluations, so that sample counts mean what they say."""
    assert group.interval in ("15s", "30s")
    step = promql.duration_ms(group.interval)
    for rule in group.rules:
        for duration in filter(None, (rule.for_, rule.keep_firing_for)):
            assert promql.duration_ms(duration) % step == 0


def test_identity_labels_are_what_they_are_called_everywhere() -> None:
    """The neutral per-device alerts show exactly these labels to people and silences."""
    text = TESTS["hardware-temperature.test.yaml"]
    anchor = re.search(r"^x-gpu: &gpu \{(.+)\}$", text, re.MULTILINE)
    assert anchor is not None
    assert set(re.findall(r"(\w+):", anchor.group(1))) == IDENTITY - {"gpu_instance"} | {"scope"}


def test_the_documentation_names_every_file_group_alert_and_recorded_workload_series() -> None:
    """docs/rules.md does not fall behind the rules."""
    text = (ROOT / "docs" / "rules.md").read_text()
    missing = {Path(group.file).name for group in GROUPS if f"`{Path(group.file).name}`" not in text}
    missing |= {group.name for group in GROUPS if f"`{group.name}`" not in text}
    missing |= {
        rule.name
        for rule in ALERTS
        if f"`{rule.name}`" not in text and not rule.name.startswith("GPUResponder")
    }
    for rule in RULES:
        if rule.name.startswith("namespace_workload:") and not re.search(
            "(bucket|seconds):rate5m$", rule.name
        ):
            series, _, operation = rule.name.removeprefix("namespace_workload:").partition(":")
            if series not in text or f":{operation}" not in text:
                missing.add(rule.name)
    assert not missing
