"""Which labels PromQL leaves, what an alert stands on, and how long recording takes."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from responder import rules
from responder.check.chain import parseable
from responder.check.expressions import Comparison, Records, always, comparisons, parse

RULES = """
groups:
- name: first
  interval: 15s
  rules:
  - {record: 'ns:a:sum', expr: 'sum by (namespace, pod) (a)'}
  - {record: 'ns:a:sum', expr: 'sum by (namespace, job) (a2)', labels: {kind: two}}
  - {record: 'circle:a', expr: 'circle:b'}
  - {record: 'circle:b', expr: 'circle:a'}
- name: second
  interval: 1m
  rules:
  - {record: 'ns:a:max5m', expr: 'max_over_time(ns:a:one[5m])'}
  - {record: 'ns:a:one', expr: 'avg by (namespace) (ns:a:sum)'}
  - {record: 'ns:gpu', expr: 'avg by (namespace) (DCGM_FI_DEV_GPU_UTIL)'}
  - {record: 'ns:queue', expr: 'sum by (namespace) (gateway_queue) or ns:gpu'}
"""
RECORDS = Records.of(rules.load_text(RULES, "r.yaml"))
WITH = ("namespace", "pod", "job", "kind", "le", "x", "y", "z")

CASES = {
    "a raw metric can have any": ("a", WITH),
    "a record has its own only": ("ns:a:one", ("namespace",)),
    "one recorded twice has those of both": ("ns:a:sum", ("namespace", "pod", "job", "kind")),
    "a matcher on emptiness removes": ('ns:a:sum{pod=""}', ("namespace", "job", "kind")),
    "records in a circle end": ("circle:a", WITH),
    "by keeps what is there": ("sum by (namespace, x) (ns:a:sum)", ("namespace",)),
    "by keeps of a raw metric what it says": ("sum by (namespace, x) (a)", ("namespace", "x")),
    "without drops": ("max without (pod, kind) (ns:a:sum)", ("namespace", "job")),
    "neither leaves none": ("sum(ns:a:sum)", ()),
    "topk keeps all": ("topk by (namespace) (1, ns:a:one)", ("namespace",)),
    "count_values adds": ('count_values("x", ns:a:one)', ("x",)),
    "on keeps only its labels": ("ns:a:sum * on (namespace) ns:a:one", ("namespace",)),
    "ignoring drops its labels": ("ns:a:sum / ignoring (pod) ns:a:one", ("namespace", "job", "kind")),
    "group_left brings": (
        "ns:a:sum * on (namespace) group_left (x) max by (namespace, x) (b)",
        ("namespace", "pod", "job", "kind", "x"),
    ),
    "group_left cannot bring what is not there": ("ns:a:one * on () group_left (x) ns:a:sum", ("namespace",)),
    "group_right keeps the right side's": ("ns:a:one * on (namespace) group_right () max by (namespace, x) (b)",
                                           ("namespace", "x")),
    "and keeps the left": ("ns:a:one and on (namespace) ns:a:sum", ("namespace",)),
    "unless keeps the left": ("ns:a:one unless on (namespace) ns:a:sum", ("namespace",)),
    "or has both": ("ns:a:one or max by (x) (b)", ("namespace", "x")),
    "a number changes nothing": ("1 - ns:a:one > 0.5", ("namespace",)),
    "label_replace copies": ('label_replace(ns:a:one, "x", "$1", "namespace", "(.*)")', ("namespace", "x")),
    "label_replace leaves what it does not match": (
        'label_replace(ns:a:one, "namespace", "$1", "y", "(.+)")', ("namespace",)),
    "label_replace of nothing can match nothing": (
        'label_replace(ns:a:one, "x", "of-$1", "y", "(.*)")', ("namespace", "x")),
    "label_replace erases by what is not there": (
        'label_replace(ns:a:one, "namespace", "$1", "y", "(.*)")', ()),
    "a parameter that is a scalar is no series": ("quantile_over_time(scalar(b), ns:a:one[5m])", ("namespace",)),
    "a pattern may pick raw metrics too": ('{__name__=~"ns:.+|a"}', WITH),
    "and where it does not say": ('{__name__!="up",namespace="x"}', WITH),
    "listed names are these": ('{__name__=~"ns:a:one|ns:gpu"}', ("namespace",)),
    "label_replace of nothing gives nothing": ('label_replace(ns:a:one, "x", "$1", "y", "(.+)")', ("namespace",)),
    "label_replace with a constant": ('label_replace(ns:a:one, "x", "c", "", "")', ("namespace", "x")),
    "label_join joins": ('label_join(ns:a:one, "x", "/", "y", "namespace")', ("namespace", "x")),
    "label_join of nothing gives nothing": ('label_join(ns:a:one, "x", "", "y", "z")', ("namespace",)),
    "label_join of nothing leaves the separator": (
        'label_join(ns:a:one, "x", "/", "y", "z")',
        ("namespace", "x"),
    ),
    "absent has its equalities": ('absent(a{x="1", y=~"2"})', ("x",)),
    "a quantile has no le": ("histogram_quantile(0.9, sum by (namespace, le) (rate(a[5m])))", ("namespace",)),
    "windows keep": ("max_over_time(ns:a:one[5m:1m])", ("namespace",)),
    "vector has none": ("vector(1)", ()),
    "a metric by a pattern of records": ('{__name__=~"ns:a:(one|sum)"}', ("namespace", "pod", "job", "kind")),
}  # fmt: skip


@pytest.mark.parametrize(("expr", "expected"), CASES.values(), ids=CASES.keys())
def test_labels_that_an_expression_can_have(expr: str, expected: tuple[str, ...]) -> None:
    """Each operator and function, as Prometheus keeps, drops and brings labels."""
    found = RECORDS.labels(parse(expr))
    assert tuple(name for name in WITH if found.possible(name)) == expected


def test_prometheus_leaves_no_label_that_is_said_to_be_impossible(tmp_path: Path) -> None:
    """promtool evaluates every case over real series: a label that it gives is one that was said to be possible."""
    tests, plain = [], tmp_path / "rules.yml"
    plain.write_text(RULES.replace("  - {record: 'circle:a', expr: 'circle:b'}\n", ""))
    series = [
        {"series": 'a{namespace="n",pod="p",job="j",x="1",y="2"}', "values": "1x20"},
        {"series": 'b{namespace="n",x="1"}', "values": "1x20"},
    ]
    for expr, expected in CASES.values():
        wanted = {"expr": expr, "eval_time": "5m", "exp_samples": [{"labels": "wrong", "value": -12345}]}
        tests.append(
            (expr, expected, {"interval": "15s", "input_series": series, "promql_expr_test": [wanted]})
        )
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(plain)], "tests": [each[2] for each in tests]}))
    said = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    output = said.stdout + said.stderr
    seen = 0
    for expr, expected, _ in tests:
        for line in output.split(f"expr: {json.dumps(expr)}")[1:]:
            got = line.partition("got:")[2].partition("\n")[0]
            names = {name for name in WITH if f"{name}=" in got.replace("__name__=", "")}
            seen += bool(got.strip())
            assert names <= set(expected), (expr, got)
    assert seen >= 15, output[:2000]


def test_the_longest_way_of_recording_counts_each_group_once() -> None:
    """Rules of one group see one another at once; those of another wait for its next evaluation."""
    groups = rules.load_text(
        RULES + "- {name: third, interval: 30s, rules: [{alert: A, expr: 'ns:a:max5m > 1'}]}\n", "r.yaml"
    )
    records = Records.of(groups)
    way = records.behind(groups[-1], groups[-1].rules[0])
    assert [rule.name for _, rule in way] == ["ns:a:sum", "ns:a:one", "ns:a:max5m", "A"]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("ns:a:one > 0.8", [Comparison("ns:a:one", True, 0.8)]),
        ("ns:a:max5m >= 0.8", [Comparison("ns:a:one", True, 0.8)]),
        ("avg_over_time(ns:a:one[1m]) < 1 and on (x) b > 2",
         [Comparison("ns:a:one", False, 1), Comparison("b", True, 2)]),
        ("ns:a:one < 1 unless ns:a:one > 3", [Comparison("ns:a:one", False, 1)]),
        ("ns:a:one / 2 > 1", []),
        ("0.8 < ns:a:one", [Comparison("ns:a:one", True, 0.8)]),
        ("clamp(ns:a:one, 0, scalar(b)) > 0.8", [Comparison("ns:a:one", True, 0.8)]),
    ],
    ids=["plain", "behind a window that is recorded", "two at once", "what `unless` takes away", "arithmetic",
         "the number ahead", "bounded by a scalar"],
)  # fmt: skip
def test_what_an_alert_compares(expr: str, expected: list[Comparison]) -> None:
    """The series below windows and records, and the number that it must pass."""
    assert comparisons(parse(expr), RECORDS) == expected


@pytest.mark.parametrize(
    ("expr", "survives"),
    [
        ("ns:gpu > 0", False),
        ("ns:queue > 0", True),
        ("gateway_queue > 5 and on (namespace) ns:gpu", False),
        ("gateway_queue > 5 unless on (namespace) ns:gpu", True),
        ("absent(DCGM_FI_DEV_GPU_UTIL)", True),
        ("sum by (namespace) (vllm:num_requests_waiting) > 0", False),
        ("kube_deployment_spec_replicas == 0", True),
    ],
)
def test_which_alerts_can_fire_without_pods(expr: str, survives: bool) -> None:
    """What pods and their GPUs measure is gone with them; a gateway's queue is not."""
    assert RECORDS.survives_zero(parse(expr)) is survives


def test_a_default_for_a_label_leaves_what_stands_there() -> None:
    """`label_replace` with an empty pattern sets the label only where it is absent."""
    expr = 'label_replace(sum by (x) (a), "x", "none", "x", "")'
    assert RECORDS.labels(parse(expr)).get("x").values is None
    expr = 'label_replace(sum by (y) (a), "x", "none", "x", "")'
    assert RECORDS.labels(parse(expr)).sure("x") == "none"


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("a > bool 1", True),
        ("(a > bool 1) and a < bool 3", True),
        ("a > 1 or b > bool 1", True),
        ("a > bool 1 and b > 1", False),
        ("(a > bool 1) == 1", False),
        ("a > 1", False),
        ("vector(1)", False),
    ],
)
def test_which_expressions_have_a_value_whatever_they_compare(expr: str, expected: bool) -> None:
    """A comparison with `bool` gives 0 instead of nothing, and an alert of it fires for ever."""
    assert always(parse(expr)) is expected


def test_many_ways_through_records_take_no_time() -> None:
    """Each rule is followed once: 60 steps of two records that stand on two have 2^60 ways."""
    steps = [
        f"  - {{record: 'l:{step}:{name}', expr: 'DCGM_{step} + l:{step - 1}:a + l:{step - 1}:b'}}"
        for step in range(1, 61)
        for name in "ab"
    ]
    text = "groups:\n- name: g\n  rules:\n" + "\n".join(steps) + "\n  - {alert: Up, expr: 'l:60:a > 1'}\n"
    (group,) = rules.load_text(text, "r.yaml")
    records = Records.of([group])
    assert len(records.behind(group, group.rules[-1])) == 61
    assert not records.survives_zero(parse(group.rules[-1].expr))


@pytest.mark.parametrize("place", ["{{ $labels.ns }}", "{{$labels.ns}}", "{{  $labels.ns}}"])
def test_a_template_is_read_however_its_places_are_written(place: str) -> None:
    """A policy file may have any spaces there, and a query that cannot be read would be passed over unseen."""
    assert parseable(f'sum(a{{namespace="{place}"}})') == 'sum(a{namespace="x"})'
