"""The policy file is read strictly, and every fault is said at once with its line and its mend."""

import json
import os
import re
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from responder import config
from responder.config import load, loads, scale_durations
from responder.config_schema import SCHEMA, keys, nearest, with_defaults
from responder.errors import ConfigError
from responder.matchers import Matcher, parse
from responder.model import Direction, ScaleType
from responder.policy import (
    ActionBudget,
    Capacity,
    Fallback,
    Heartbeat,
    Hold,
    NodeAction,
    RatePolicy,
    Rules,
    Scale,
    SelectPolicy,
    TargetTemplate,
    Timing,
    ValueFrom,
    trigger_of,
)

ROOT = Path(__file__).parent.parent
FAULTY = sorted((Path(__file__).parent / "data" / "policies").glob("*.yaml"))
EXAMPLE = ROOT / "examples" / "policies.yaml"

SMALL = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: p
  matchers: []
  maxReplicas: 8
  triggers:
  - {name: up, matchers: ['a=b'], scale: {direction: Up, type: Pods, value: 2}}
"""

FULL = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
cluster: prod-eu
dryRun: true
freeze: Maintenance until noon.
allowedNamespaces: [inference, "team-*"]
actionBudget: {scaleUp: {maxActions: 9, periodSeconds: 10}, scaleDown: {maxActions: 3, periodSeconds: 2.5}}
heartbeat: {matchers: ['alertname="Beat"'], timeoutSeconds: 61}
alertTimeoutSeconds: 62
staleAfterSeconds: 63
forgetAfterSeconds: 64
holds:
- {name: hot, matchers: ['a="b"'], forbid: Up, equal: [node]}
policies:
- name: full
  matchers: ['namespace="inference"']
  scaleTargetRef: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, namespace: inference, name: 'x-{{ $labels.w }}'}
  minReplicas: 2
  maxReplicas: 8
  dryRun: true
  wakeFromZero: true
  readyTimeoutSeconds: 65
  capacity: Clip
  triggers:
  - name: pods
    matchers: ['t="pods"']
    scale: {direction: Up, type: Pods, value: 2}
    maxStepsPerEpisode: 3
  - name: cordon
    matchers: ['t="node"']
    node: {action: Cordon, maxNodes: 2, maxPercent: 5.5, uncordonAfterSeconds: 66}
  - name: percent
    matchers: ['t="percent"']
    scale: {direction: Down, type: Percent, value: 12.5}
    maxStepsPerEpisode: null
  - name: replicas
    matchers: ['t="replicas"']
    scale: {direction: Up, type: Replicas, value: 4}
  - name: utilization
    matchers: ['t="utilization"']
    evaluationSeconds: 0.5
    scale: {direction: Down, type: Utilization, target: 0.6, valueFrom: {annotation: v}}
  - name: average
    matchers: ['t="average"']
    scale:
      direction: Up
      type: AverageValue
      target: 8
      valueFrom: {query: 'x{w="{{ $labels.w }}"}'}
      fallback: {type: Pods, value: 1, afterSeconds: 67}
  behavior:
    scaleUp:
      cooldownSeconds: 1
      stabilizationWindowSeconds: 2
      selectPolicy: Min
      policies: [{type: Percent, value: 50, periodSeconds: 3}]
      tolerance: 0.2
    scaleDown: {selectPolicy: Disabled}
"""


def seconds(value):
    return timedelta(seconds=value)


def test_every_key_reaches_the_settings():
    """A file with every key gives what it says, in the core's nouns."""
    settings = loads(FULL, "full.yaml")
    assert settings.cluster == "prod-eu"
    assert settings.dry_run
    assert settings.freeze == "Maintenance until noon."
    assert settings.allowed_namespaces == ("inference", "team-*")
    assert settings.budgets == {
        Direction.UP: ActionBudget(9, seconds(10)),
        Direction.DOWN: ActionBudget(3, seconds(2.5)),
    }
    assert settings.heartbeat == Heartbeat((Matcher("alertname", "=", "Beat"),), seconds(61))
    assert settings.timing == Timing(seconds(62), seconds(63), seconds(64))
    assert settings.holds == (Hold("hot", (Matcher("a", "=", "b"),), Direction.UP, ("node",)),)
    assert settings.source == "full.yaml"
    (policy,) = settings.policies
    assert (policy.name, policy.min_replicas, policy.max_replicas) == ("full", 2, 8)
    assert policy.target == TargetTemplate(
        "argoproj.io/v1alpha1", "Rollout", "inference", "x-{{ $labels.w }}"
    )
    assert policy.dry_run
    assert policy.wake_from_zero
    assert policy.ready_timeout == seconds(65)
    assert policy.capacity is Capacity.CLIP
    assert policy.timing == settings.timing
    assert policy.scale_up == Rules(
        seconds(1), seconds(2), (RatePolicy(ScaleType.PERCENT, 50, seconds(3)),), SelectPolicy.MIN, 0.2
    )
    assert policy.scale_down.select_policy is SelectPolicy.DISABLED
    by_name = {trigger.name: trigger for trigger in policy.triggers}
    assert list(by_name) == ["pods", "percent", "replicas", "utilization", "average"]
    assert by_name["pods"].scale == Scale(Direction.UP, ScaleType.PODS, value=2)
    assert by_name["pods"].max_steps == 3
    assert by_name["percent"].scale == Scale(Direction.DOWN, ScaleType.PERCENT, value=12.5)
    assert by_name["percent"].max_steps is None
    assert by_name["replicas"].scale == Scale(Direction.UP, ScaleType.REPLICAS, value=4)
    assert by_name["utilization"].evaluation == seconds(0.5)
    assert by_name["utilization"].scale == Scale(
        Direction.DOWN, ScaleType.UTILIZATION, target=0.6, value_from=ValueFrom(annotation="v")
    )
    assert by_name["average"].scale == Scale(
        Direction.UP,
        ScaleType.AVERAGE_VALUE,
        target=8,
        value_from=ValueFrom(query='x{w="{{ $labels.w }}"}'),
        fallback=Fallback(ScaleType.PODS, 1, seconds(67)),
    )
    (node,) = policy.node_triggers
    assert (node.name, node.before) == ("cordon", 1)
    assert node.node == NodeAction("Cordon", 2, 5.5, seconds(66))


def test_defaults_are_those_of_autoscaling_v2_and_the_design():
    """A file that says little gets the HorizontalPodAutoscaler's behavior, and cooldowns of 60 and 300 s."""
    settings = loads(SMALL)
    assert (settings.cluster, settings.freeze, settings.allowed_namespaces) == ("", "", ())
    assert settings.heartbeat is None
    assert settings.holds == ()
    assert not settings.dry_run
    assert settings.budgets == {Direction.DOWN: ActionBudget(20, seconds(60))}
    assert settings.timing == Timing(seconds(900), seconds(600), seconds(21600))
    (policy,) = settings.policies
    assert policy.scale_up == Rules(
        seconds(60),
        seconds(0),
        (RatePolicy(ScaleType.PERCENT, 100, seconds(15)), RatePolicy(ScaleType.PODS, 4, seconds(15))),
        SelectPolicy.MAX,
        0.1,
    )
    assert policy.scale_down == Rules(
        seconds(300), seconds(300), (RatePolicy(ScaleType.PERCENT, 100, seconds(15)),), SelectPolicy.MAX, 0.1
    )
    assert (policy.min_replicas, policy.target, policy.dry_run, policy.wake_from_zero) == (
        1,
        None,
        False,
        False,
    )
    assert policy.ready_timeout == seconds(600)
    assert policy.capacity is Capacity.IGNORE
    assert policy.triggers[0].max_steps == 1


def test_the_heartbeat_is_watchdog_unless_said():
    """`heartbeat: {}` waits for Watchdog for ten minutes."""
    settings = loads(SMALL + "heartbeat: {}\n")
    assert settings.heartbeat == Heartbeat((parse('alertname="Watchdog"'),), seconds(600))


def test_dry_run_at_the_top_holds_for_every_policy():
    """A policy cannot write while the file says dryRun."""
    assert loads(SMALL + "dryRun: true\n").policies[0].dry_run


@pytest.mark.parametrize(
    ("line", "words"),
    [("freeze: true", "p.yaml says freeze: true."), ("freeze: false", ""), ("freeze: ' Why. '", "Why.")],
)
def test_freeze_is_true_or_a_sentence(line, words):
    """True says where it stands; false is as if the key were not there."""
    assert loads(SMALL + line, "p.yaml").freeze == words


def test_a_policy_may_act_on_nodes_only():
    """Then it needs no maxReplicas."""
    text = SMALL.replace("  maxReplicas: 8\n", "").replace(
        "scale: {direction: Up, type: Pods, value: 2}", "node: {action: Cordon}"
    )
    (policy,) = loads(text).policies
    assert policy.triggers == ()
    assert policy.node_triggers[0].node == NodeAction("Cordon", 1, 10, None)


def test_aliases_are_fine():
    """A value can be written once and used twice."""
    text = (
        SMALL.replace("['a=b']", "&m ['a=b']") + "holds: [{name: h, matchers: *m, forbid: Down, equal: []}]"
    )
    assert loads(text).holds[0].matchers == loads(text).policies[0].triggers[0].matchers


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_a_faulty_file_is_refused_with_the_sentence_that_it_expects(path):
    """Each file in data/policies opens with the lines that its one fault must give."""
    expected = re.findall(r"^# expect: (.*)$", path.read_text(), re.MULTILINE)
    with pytest.raises(ConfigError) as caught:
        load(path)
    said = [line.removeprefix(f"{path}:").strip() for line in str(caught.value).split("\n")]
    assert said == expected


def test_all_faults_are_said_at_once_in_the_files_order():
    """Schema faults do not hide cross-checks elsewhere."""
    text = SMALL.replace("maxReplicas: 8", "maxReplicas: 8\n  minReplicas: 9\n  colour: red") + (
        "cluster: 3\nholds: [{name: h, matchers: ['a'], forbid: Down, equal: []}]\n"
    )
    with pytest.raises(ConfigError) as caught:
        loads(text, "p.yaml")
    places = [line.split(": ")[:2] for line in str(caught.value).split("\n")]
    assert places == [
        ["p.yaml:8", "policies[0].minReplicas"],
        ["p.yaml:9", "policies[0].colour"],
        ["p.yaml:12", "cluster"],
        ["p.yaml:13", "holds[0].matchers[0]"],
    ]


def test_odd_keys_and_names_stay_on_their_line():
    """A newline in a key or at the end of a name neither breaks the report nor slips past a pattern."""
    text = SMALL.replace("name: p", 'name: "p\\n"') + '"odd\\nkey": 1\n'
    with pytest.raises(ConfigError) as caught:
        loads(text, "p.yaml")
    first, second = str(caught.value).split("\n")
    assert first.startswith("p.yaml:5: policies[0].name: 'p\\n' must ")
    assert second.startswith("p.yaml:10: 'odd\\nkey': unknown key")


def test_a_flood_of_faults_is_cut():
    """A terminal is not flooded; the rest is counted."""
    text = SMALL + "".join(f"key{n}: 1\n" for n in range(200))
    with pytest.raises(ConfigError) as caught:
        loads(text)
    lines = str(caught.value).split("\n")
    assert len(lines) == 51
    assert lines[-1].endswith("and 150 more faults")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"null", "is empty", id="null"),
        pytest.param(b"# only this\n\n", "is empty", id="only a comment"),
        pytest.param(b"a: 1\nb: \xff\xfe\n", ":2: is not UTF-8", id="not UTF-8"),
        pytest.param("a: 1".encode("utf-16"), "is not UTF-8", id="UTF-16"),
        pytest.param(b"a: 1\nb: \x00\n", ":2: has a character", id="NUL"),
        pytest.param(b"#" * (config.MAX_BYTES + 1), "larger than 4 MiB", id="huge"),
        pytest.param(b"[" * 50_000, "nest", id="deep"),
        pytest.param(b"[" * 900 + b"]" * 900, "nested too deeply", id="deep and closed"),
    ],
)
def test_what_is_no_text_of_yaml_is_a_sentence(tmp_path, content, words):
    """Files of other kinds are refused by name and, where there is one, line."""
    path = tmp_path / "policies.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_fault(tmp_path):
    """Editors of other systems write one."""
    path = tmp_path / "policies.yaml"
    path.write_text(SMALL.replace("\n", "\r\n"), "utf-8-sig")
    assert load(path).policies[0].name == "p"


def test_what_cannot_be_opened_is_a_sentence(tmp_path):
    """Absent files, directories and odd names are refused by name."""
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load("a\0b")
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "loop")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_rights_is_a_sentence(tmp_path):
    """The sentence names rights and not absence."""
    path = tmp_path / "policies.yaml"
    path.write_text(SMALL)
    path.chmod(0)
    with pytest.raises(ConfigError, match="may not be read"):
        load(path)


def _paths(value, path=()):
    yield path
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from _paths(child, (*path, key))


def _replaced(value, path, new):
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


FULL_DOCUMENT = yaml.safe_load(FULL)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just("{{ $labels.x }}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(list(_paths(FULL_DOCUMENT))), JSON)
def test_any_value_at_any_key_is_accepted_or_refused_in_sentences(path, value):
    """No content makes another error than ConfigError, whatever stands where."""
    text = yaml.safe_dump(_replaced(FULL_DOCUMENT, path, value), allow_unicode=True)
    try:
        loads(text, "p.yaml")
    except ConfigError as error:
        lines = str(error).split("\n")
        assert all(line.startswith("p.yaml:") for line in lines), lines


def test_durations_are_scaled_wherever_they_stand_and_defaults_too():
    """The demo's file at 60 times the speed has every duration a sixtieth, and nothing else changed."""
    document = yaml.safe_load(SMALL + "heartbeat: {}\n")
    before = json.dumps(document)
    scaled = loads(yaml.safe_dump(scale_durations(document, 60)))
    assert json.dumps(document) == before
    assert scaled.timing == Timing(seconds(15), seconds(10), seconds(360))
    assert scaled.heartbeat.timeout == seconds(10)
    assert scaled.budgets[Direction.DOWN] == ActionBudget(20, seconds(1))
    policy = scaled.policies[0]
    assert policy.ready_timeout == seconds(10)
    assert (policy.scale_up.cooldown, policy.scale_down.cooldown) == (seconds(1), seconds(5))
    assert policy.scale_down.stabilization_window == seconds(5)
    assert {rate.period for rate in policy.scale_up.policies} == {seconds(0.25)}
    assert [rate.value for rate in policy.scale_up.policies] == [100, 4]
    assert policy.max_replicas == 8


def test_scaling_covers_every_duration_of_a_full_file():
    """Scaled by 2 and read back, each duration is a half."""

    def durations(value, path=()):
        for at in _paths(value):
            if at and isinstance(at[-1], str) and at[-1].endswith("Seconds"):
                found = value
                for part in at:
                    found = found[part]
                yield at, found

    full = with_defaults(FULL_DOCUMENT)
    scaled = scale_durations(FULL_DOCUMENT, 2)
    assert dict(durations(scaled)) == {at: value / 2 for at, value in durations(full)}
    assert sum(1 for _ in durations(full)) >= 17
    assert loads(yaml.safe_dump(scaled)).policies[0].triggers[4].scale.fallback.after == seconds(33.5)


def test_the_digest_follows_the_text():
    """A changed file is noticed by it."""
    assert loads(SMALL).digest == loads(SMALL).digest
    assert loads(SMALL).digest != loads(SMALL + "# x").digest


def test_the_schema_is_a_legal_one_and_closed():
    """JSON Schema 2020-12, no object open, each key described, defaults legal."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    objects = [SCHEMA, *SCHEMA["$defs"].values()]
    for schema in objects:
        objects.extend(sub for sub in schema["properties"].values() if "properties" in sub)
        assert schema["additionalProperties"] is False
    for key in keys():
        assert key.description.endswith("."), key
    jsonschema.validate(with_defaults(FULL_DOCUMENT), SCHEMA)


def test_the_example_is_the_one_that_docs_and_demo_tell_of():
    """It loads, sizes both ways by one demand, and its file is not the full default."""
    settings = load(EXAMPLE)
    (policy,) = settings.policies
    query = (
        'namespace_workload:llm_requests_inflight:sum{namespace="{{ $labels.namespace }}",'
        'workload="{{ $labels.workload }}"}'
    )
    assert {trigger.scale.type for trigger in policy.triggers} == {ScaleType.AVERAGE_VALUE}
    assert {trigger.scale.value_from.query for trigger in policy.triggers} == {query}
    assert {trigger.scale.direction for trigger in policy.triggers} == set(Direction)
    assert settings.heartbeat is not None
    assert [hold.name for hold in settings.holds] == ["hot", "blind", "dark", "throttled"]


def test_the_page_on_the_policy_file_has_every_key_as_the_schema_has_it():
    """docs/policy.md shows each key with its type, default and description, and no key that is not there."""
    _, page = (ROOT / "docs" / "policy.md").read_text().split("## Every key")
    rows = [f"| `{key.path}` | {key.type} | {_default(key)} | {key.description} |" for key in keys()]
    missing = [row for row in rows if row not in page]
    assert missing == []
    assert page.count("\n| `") == len(rows)


def _default(key):
    if key.required:
        return "required"
    return "" if key.default is None else f"`{json.dumps(key.default)}`"


@pytest.mark.parametrize(
    ("word", "expected"),
    [("maxReplica", "maxReplicas"), ("maxreplicas", "maxReplicas"), ("zzz", ""), ("colour", "")],
)
def test_the_near_word_is_near(word, expected):
    """Only what was probably meant is suggested."""
    assert nearest(word, ["minReplicas", "maxReplicas", "cluster"]) == expected


def test_the_page_shows_a_file_that_loads_and_faults_as_they_are_said():
    """What docs/policy.md has people copy works, and its sentences are the real ones."""
    page = (ROOT / "docs" / "policy.md").read_text()
    small = next(
        block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "apiVersion" in block
    )
    assert [trigger.max_steps for trigger in loads(small).policies[0].triggers] == [3, None]
    shown = re.findall(r"^policies.yaml:\d+: (.*)$", page, re.MULTILINE)
    said = "\n".join(path.read_text() for path in FAULTY)
    assert len(shown) == 2
    assert [line for line in shown if line not in said] == []


def test_the_examples_policy_for_nodes_works_once_its_comment_marks_are_gone():
    """What stands there to be switched on is not a broken promise."""
    text = EXAMPLE.read_text()
    switched = re.sub(r"^# ((- |  ).*)$", r"\1", text, flags=re.MULTILINE)
    assert [policy.name for policy in loads(switched).policies] == ["inference", "faults"]


def test_every_shipped_scaling_alert_has_a_trigger_of_its_direction_in_the_example():
    """No alert of rules/scaling.yaml that asks for scaling is left without an answer."""
    (policy,) = load(EXAMPLE).policies
    directions = {"scale_up": Direction.UP, "scale_down": Direction.DOWN}
    rules = [
        rule
        for group in _groups(ROOT / "rules" / "scaling.yaml")
        for rule in group["rules"]
        if "alert" in rule
    ]
    asking = [rule["labels"] for rule in rules if rule["labels"].get("action") in directions]
    assert asking
    for labels in asking:
        trigger = trigger_of(policy, labels)
        assert trigger is not None, labels
        assert trigger.scale.direction is directions[labels["action"]], labels


def _groups(path):
    document = yaml.safe_load(path.read_text())
    return document.get("spec", document)["groups"]
