"""Which policy, trigger and target an alert falls under."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from responder.matchers import parse_all
from responder.model import Direction, Record, ScaleType, Span, TargetRef
from responder.policy import (
    Heartbeat,
    Hold,
    NodeAction,
    NodeTrigger,
    Policy,
    Rejection,
    Rules,
    Scale,
    Settings,
    TargetTemplate,
    Trigger,
    ValueFrom,
    allowed,
    governing,
    node_trigger_of,
    ours,
    policy_of,
    stands_alone,
    target_of,
    trigger_of,
    value_query,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Rules(timedelta(seconds=60), timedelta(0))


def trigger(name, matchers, direction=Direction.UP, **scale):
    return Trigger(name, parse_all(matchers), Scale(direction, ScaleType.PODS, value=1, **scale))


def policy(name="p", matchers="", triggers=(), **more):
    return Policy(name, parse_all(matchers), 1, 8, tuple(triggers), RULES, RULES, **more)


def span(fingerprint, **labels):
    return Span(fingerprint, labels, {}, True, NOW, NOW, NOW)


TEMPLATE = TargetTemplate("apps/v1", "Deployment", "{{ $labels.namespace }}", "{{ $labels.app }}-server")


def test_first_policy_and_trigger_in_file_order_win():
    """Both match the alert; the earlier takes it, and no match is None."""
    up, any_ = trigger("up", 'action="scale_up"'), trigger("any", "")
    first, second = policy("a", 'ns="x"', [up, any_]), policy("b", "", [up])
    assert policy_of([first, second], {"ns": "x"}) is first
    assert policy_of([first, second], {"ns": "y"}) is second
    assert policy_of([first], {"ns": "y"}) is None
    assert trigger_of(first, {"action": "scale_up"}) is up
    assert trigger_of(first, {"action": "other"}) is any_
    assert trigger_of(second, {"action": "other"}) is None


@pytest.mark.parametrize(
    ("before", "takes_node"),
    [
        pytest.param(0, True, id="the node trigger stands first"),
        pytest.param(1, False, id="the node trigger stands last"),
    ],
)
def test_node_and_scale_triggers_share_one_order(before, takes_node):
    """One alert has one trigger, whether that acts on a workload or on a node."""
    node = NodeTrigger("cordon", parse_all('action="node"'), NodeAction(), before)
    scale = trigger("up", 'action=~".+"')
    both = policy(triggers=[scale], node_triggers=(node,))
    assert node_trigger_of(both, {"action": "node"}) is (node if takes_node else None)
    assert trigger_of(both, {"action": "node"}) is (None if takes_node else scale)
    assert trigger_of(both, {"action": "up"}) is scale
    assert node_trigger_of(both, {"action": "up"}) is None


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(
            {"namespace": "n", "app": "x"}, TargetRef("n", "Deployment", "x-server"), id="values in place"
        ),
        pytest.param({"namespace": "n"}, "no label 'app'", id="an absent label"),
        pytest.param({"namespace": "n", "app": "X"}, "not a legal name", id="upper case"),
        pytest.param({"namespace": "a.b", "app": "x"}, "not a legal Kubernetes namespace", id="dots"),
        pytest.param({"namespace": "n", "app": "../../x"}, "not a legal name", id="a path"),
        pytest.param({"namespace": "n", "app": "a\nb" * 9999}, "not a legal name", id="long and broken"),
    ],
)
def test_target_from_the_policys_template(labels, expected):
    """A template gives a legal target or a sentence; workload labels do not matter then."""
    found = target_of(policy(target=TEMPLATE), {**labels, "workload": "w", "workload_type": "job"}, {})
    if isinstance(expected, TargetRef):
        assert found == expected
    else:
        assert isinstance(found, Rejection)
        assert expected in found.message
        assert "\n" not in found.message
        assert len(found.message) < 300


def test_target_template_of_another_group():
    """The group comes from apiVersion; the core API's is empty."""
    for version, group in (("argoproj.io/v1alpha1", "argoproj.io"), ("v1", "")):
        template = TargetTemplate(version, "Rollout", "n", "{{ $annotations.x }}")
        assert target_of(policy(target=template), {}, {"x": "r"}) == TargetRef("n", "Rollout", "r", group)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(
            {"workload": "w", "workload_type": "deployment"},
            TargetRef("n", "Deployment", "w"),
            id="deployment",
        ),
        pytest.param(
            {"workload": "w", "workload_type": "statefulset"},
            TargetRef("n", "StatefulSet", "w"),
            id="statefulset",
        ),
        pytest.param(
            {"workload": "w", "workload_type": "replicaset"},
            TargetRef("n", "ReplicaSet", "w"),
            id="replicaset",
        ),
        pytest.param(
            {"workload": "w", "workload_type": "LeaderWorkerSet"},
            TargetRef("n", "LeaderWorkerSet", "w", "leaderworkerset.x-k8s.io"),
            id="a custom kind that is known",
        ),
        pytest.param(
            {"workload": "w", "workload_type": "Thing.example.org"},
            TargetRef("n", "Thing", "w", "example.org"),
            id="a custom kind with its group",
        ),
        pytest.param(
            {"workload": "w", "workload_type": "Thing.Example.ORG"},
            TargetRef("n", "Thing", "w", "example.org"),
            id="a group in other letters, which no API group has",
        ),
        pytest.param(
            {"workload": "w", "workload_type": "a/b.example.org"}, "no kind", id="a kind that is a path"
        ),
        pytest.param({"workload": "w", "workload_type": ".example.org"}, "no kind", id="a group alone"),
        pytest.param(
            {"workload": "w", "workload_type": "Thing.../../api/v1"}, "no kind", id="a group that is a path"
        ),
        pytest.param({"workload": "w", "workload_type": "Thing.a?b=c"}, "no kind", id="a group with a query"),
        pytest.param({"workload": "w", "workload_type": "Thing"}, None, id="a custom kind without its group"),
        pytest.param({"workload": "w", "workload_type": "daemonset"}, "cannot be scaled", id="daemonset"),
        pytest.param({"workload": "w", "workload_type": "job"}, "cannot be scaled", id="job"),
        pytest.param({"workload": "w", "workload_type": "barepod"}, "no scale", id="a pod of its own"),
        pytest.param({"workload": "w", "workload_type": "staticpod"}, "no scale", id="a static pod"),
        pytest.param(
            {"workload": "W!", "workload_type": "deployment"}, "not a legal name", id="illegal name"
        ),
        pytest.param({"deployment": "d"}, TargetRef("n", "Deployment", "d"), id="label deployment"),
        pytest.param({"statefulset": "s"}, TargetRef("n", "StatefulSet", "s"), id="label statefulset"),
        pytest.param({"daemonset": "d"}, "cannot be scaled", id="label daemonset"),
        pytest.param({"job_name": "j"}, "cannot be scaled", id="label job_name"),
        pytest.param({"job": "dcgm-exporter"}, None, id="job is the scrape job and not a Job"),
        pytest.param({"deployment": "d", "statefulset": "s"}, "only one", id="two kinds"),
        pytest.param(
            {"deployment": "d", "workload": "w", "workload_type": "statefulset"},
            TargetRef("n", "StatefulSet", "w"),
            id="workload before deployment",
        ),
        pytest.param(
            {"deployment": "d", "exported_namespace": "mine"},
            TargetRef("mine", "Deployment", "d"),
            id="exported_namespace before namespace",
        ),
        pytest.param({"workload": "w"}, None, id="a workload of unknown type"),
        pytest.param({"workload_type": "deployment"}, None, id="a type without workload"),
        pytest.param({"pod": "w-1"}, None, id="a pod is looked up later"),
    ],
)
def test_target_from_labels(labels, expected):
    """Without scaleTargetRef the labels name the target, in the order that people expect."""
    found = target_of(policy(), {"namespace": "n", **labels}, {})
    if isinstance(expected, str):
        assert isinstance(found, Rejection)
        assert expected in found.message
    else:
        assert found == expected


def test_target_needs_a_namespace():
    """A workload without a namespace is nobody's."""
    found = target_of(policy(), {"deployment": "d"}, {})
    assert isinstance(found, Rejection)
    assert "namespace" in found.message


def test_governing_policy_is_the_first_in_the_file_and_not_the_first_alerts():
    """The order of policies decides; alerts under none do not count."""
    first, second = policy("a", 'x="1"'), policy("b", 'x=~"1|2"')
    settings = Settings((first, second))
    record = Record(TargetRef("n", "Deployment", "d"), alerts={"1": span("1", x="2"), "2": span("2", x="1")})
    assert governing(settings, record) is first
    assert governing(settings, Record(record.target, alerts={"1": span("1", x="2")})) is second
    assert governing(settings, Record(record.target, alerts={"1": span("1", x="3")})) is None
    assert governing(settings, Record(record.target)) is None


@pytest.mark.parametrize(
    ("globs", "namespace", "expected"),
    [
        ((), "any", True),
        (("inference", "team-*"), "inference", True),
        (("inference", "team-*"), "team-a", True),
        (("inference", "team-*"), "inference-2", False),
        (("inference", "team-*"), "my-team-a", False),
    ],
)
def test_allowed_namespaces_are_globs(globs, namespace, expected):
    """A glob covers the whole name; none allows all."""
    assert allowed(Settings((), allowed_namespaces=globs), namespace) is expected


@pytest.mark.parametrize(
    ("cluster", "labels", "expected"),
    [
        ("", {"cluster": "b"}, True),
        ("a", {"cluster": "a"}, True),
        ("a", {"cluster": "b"}, False),
        ("a", {}, True),
        ("a", {"cluster": ""}, True),
    ],
)
def test_alerts_of_another_cluster_are_not_ours(cluster, labels, expected):
    """Only a label that says otherwise makes an alert another cluster's."""
    assert ours(Settings((), cluster=cluster), labels) is expected


def test_holds_and_heartbeat_stand_alone():
    """They are kept whatever target they have; other alerts are not."""
    hold = Hold("h", parse_all('action="inhibit_scale_down"'), Direction.DOWN, ("node",))
    beat = Heartbeat(parse_all('alertname="Watchdog"'), timedelta(seconds=600))
    settings = Settings((), holds=(hold,), heartbeat=beat)
    assert stands_alone(settings, {"action": "inhibit_scale_down"})
    assert stands_alone(settings, {"alertname": "Watchdog"})
    assert not stands_alone(settings, {"alertname": "Other"})
    assert not stands_alone(Settings(()), {"alertname": "Watchdog"})


def test_value_query_is_rendered_for_the_alert():
    """Values are escaped, an absent one is said, and a trigger without a query has none."""
    source = ValueFrom(query='x{a="{{ $labels.a }}"}')
    sized = trigger("t", "", value_from=source)
    assert value_query(sized, {"a": 'b"c'}, {}) == 'x{a="b\\"c"}'
    missing = value_query(sized, {}, {})
    assert isinstance(missing, Rejection)
    assert "no label 'a'" in missing.message
    assert value_query(trigger("t", ""), {}, {}) is None
    assert value_query(trigger("t", "", value_from=ValueFrom(annotation="a")), {}, {}) is None


def test_ten_thousand_alerts_find_their_targets_quickly():
    """A storm's alerts each pass policy, trigger and target in under 50 µs."""
    triggers = [trigger("q", 'action="scale_up",signal="queue"'), trigger("d", 'action=~"scale_down|idle"')]
    policies = [
        policy(f"p{n}", f'namespace="ns-{n}",workload_type="deployment"', triggers) for n in range(10)
    ]
    alerts = [
        {
            "alertname": "GPUWorkloadScaleDown", "action": "scale_down", "signal": "utilization",
            "namespace": "ns-9", "workload": f"w-{n}", "workload_type": "deployment",
        }
        for n in range(10_000)
    ]  # fmt: skip
    best = min(_pass_all(policies, alerts) for _ in range(3))
    assert best < 0.5


def _pass_all(policies, alerts):
    started = time.process_time()
    for labels in alerts:
        found = policy_of(policies, labels)
        assert trigger_of(found, labels).name == "d"
        assert target_of(found, labels, {}).kind == "Deployment"
    return time.process_time() - started
