"""Routing as Alertmanager does it: against amtool, and what is said of alerts of which not all is known."""

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from responder import matchers
from responder.check import labels, located, routes
from responder.check.labels import ABSENT, ANYTHING, Label, Labels, Truth
from responder.matchers import Matcher

NAMES = ("action", "namespace", "severity")
VALUES = ("up", "down", "")
PATTERNS = ("up|down", "u.+", ".*", "down", "")


def a_route(chance: random.Random, depth: int, count: list[int]) -> dict[str, Any]:
    count[0] += 1
    found: dict[str, Any] = {"receiver": f"r{count[0]}"}
    if depth:
        op = chance.choice(["=", "!=", "=~", "!~"])
        value = chance.choice(PATTERNS if "~" in op else VALUES)
        found["matchers"] = [f'{chance.choice(NAMES)}{op}"{value}"']
        if chance.random() < 0.3:
            found["matchers"].append(f'{chance.choice(NAMES)}!="{chance.choice(VALUES)}"')
        found["continue"] = chance.random() < 0.4
    if depth < 3:
        found["routes"] = [a_route(chance, depth + 1, count) for _ in range(chance.randint(0, 3))]
    return found


def a_config(seed: int) -> dict[str, Any]:
    count = [0]
    root = a_route(random.Random(seed), 0, count)
    return {"route": root, "receivers": [{"name": f"r{number + 1}"} for number in range(count[0])]}


def read(config: dict[str, Any]) -> routes.Routing:
    documents, wrong = located.read(yaml.safe_dump(config), "alertmanager.yml")
    found, faults = routes.read(documents[0])
    assert not wrong
    assert not faults
    return found


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
@pytest.mark.parametrize("seed", range(25))
def test_routes_are_amtools(seed: int, tmp_path: Path) -> None:
    """For made-up trees with `continue`, negations and patterns, the receivers are those that amtool says."""
    config = a_config(seed)
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    routing = read(config)
    chance = random.Random(seed)
    for _ in range(5):
        alert = {name: chance.choice(VALUES) for name in NAMES}
        given_ = [f"{name}={value}" for name, value in alert.items() if value] or ["other=x"]
        command = ["amtool", "config", "routes", "test", f"--config.file={file}", *given_]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split(",")
        taken = routes.match(routing.root, labels.fixed(alert))
        assert [each.route.receiver for each in taken] == said
        assert all(each.certain for each in taken)


CERTAIN = {value: Label(frozenset({value})) for value in VALUES}
LABEL = st.sampled_from(
    [*CERTAIN.values(), ANYTHING, Label(frozenset({"up", "down"})), Label(frozenset({"", "up"}))]
)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10_000), partly=st.fixed_dictionaries(dict.fromkeys(NAMES, LABEL)), data=st.data())
def test_what_is_said_of_partly_known_alerts_holds_for_each_of_them(
    seed: int, partly: dict[str, Label], data: st.DataObject
) -> None:
    """A route said to be certain is taken by every such alert, and one that any of them takes is among those said."""
    root = read(a_config(seed)).root
    alert = {
        name: data.draw(st.sampled_from(sorted(label.values or VALUES)), label=name)
        for name, label in partly.items()
    }
    concrete = {each.route.receiver for each in routes.match(root, labels.fixed(alert))}
    said = routes.match(root, Labels(partly))
    assert concrete <= {each.route.receiver for each in said}
    assert {each.route.receiver for each in said if each.certain} <= concrete


@settings(max_examples=150, deadline=None)
@given(
    op=st.sampled_from(["=", "!=", "=~", "!~"]),
    value=st.sampled_from([*VALUES, *PATTERNS]),
    label=LABEL,
    data=st.data(),
)
def test_a_matcher_on_a_partly_known_label(op: str, value: str, label: Label, data: st.DataObject) -> None:
    """Yes and no are true of every value that the label can have, and what is assumed of it stays possible."""
    matcher = Matcher("x", op, value)
    actual = data.draw(st.sampled_from(sorted(label.values or VALUES)))
    holds = matcher.matches({"x": actual})
    answer = labels.truth((matcher,), Labels({"x": label}))
    assert answer is Truth.MAYBE or (answer is Truth.YES) == holds
    if holds:
        narrowed = labels.assume(Labels({"x": label}), (matcher,))
        assert narrowed.get("x").can_be(actual)


def test_children_inherit_what_they_do_not_say() -> None:
    """Receiver, grouping and timings come from the parent; repeats fall on multiples of group_interval."""
    config = {
        "route": {
            "receiver": "a", "group_by": ["namespace"], "group_wait": "10s", "group_interval": "1m",
            "repeat_interval": "90s",
            "routes": [{"match": {"x": "1"}, "match_re": {"y": "a|b"}, "group_wait": "0s"}],
        },
        "receivers": [{"name": "a"}],
    }  # fmt: skip
    root = read(config).root
    [child] = root.routes
    assert (child.receiver, child.group_by, child.group_wait) == ("a", ("namespace",), 0)
    assert (child.group_interval, child.repeat_interval, child.repeated) == (60_000, 90_000, 120_000)
    assert child.matchers == (Matcher("x", "=", "1"), Matcher("y", "=~", "a|b"))
    assert (root.group_wait, read({"route": {"receiver": "a"}}).root.group_wait) == (10_000, 30_000)


def test_an_alertmanagerconfig_reads_alike() -> None:
    """The operator's spelling gives the same routes and receivers."""
    text = """
kind: AlertmanagerConfig
metadata: {name: x, namespace: monitoring}
spec:
  route:
    receiver: us
    groupBy: [namespace]
    groupWait: 5s
    routes:
    - matchers: [{name: action, matchType: '=~', value: 'scale_.+'}, {name: old, value: 'a.*', regex: true}]
  receivers:
  - name: us
    webhookConfigs:
    - {url: 'http://x/api/v1/webhooks/alertmanager', sendResolved: false, maxAlerts: 3}
"""
    [document], _ = located.read(text, "f.yaml")
    routing, wrong = routes.read(document)
    assert not wrong
    assert (routing.namespace, routing.root.group_wait) == ("monitoring", 5000)
    assert routing.root.routes[0].matchers == (
        Matcher("action", "=~", "scale_.+"),
        Matcher("old", "=~", "a.*"),
    )
    [receiver] = routes.ours(routing)
    [hook] = receiver.webhooks
    assert (hook.send_resolved, hook.max_alerts, hook.at.at("maxAlerts").line) == (False, 3, 14)


def test_an_absent_label_is_the_empty_string() -> None:
    """`x=""` and `x!="a"` take alerts without x, and a closed set of labels has no others."""
    closed = Labels({"y": ABSENT})
    assert labels.truth((Matcher("x", "=", ""), Matcher("y", "!=", "a")), closed) is Truth.YES
    assert labels.truth((Matcher("x", "=~", ".+"),), closed) is Truth.NO
    assert labels.truth((Matcher("x", "=~", ".+"),), Labels(open=True)) is Truth.MAYBE


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ('x=~"a.+"', 'x!=""', Truth.YES),
        ('x=~"a.+"', 'x="b"', Truth.NO),
        ('x=~"a.+"', 'x=~"b|c"', Truth.NO),
        ('x=~"a.+"', 'x=~"ab|c"', Truth.MAYBE),
        ('x=~"a.+"', 'x=~"a.+"', Truth.YES),
        ('x=~"a|b"', 'x=~"b|a|c"', Truth.YES),
        ('x!="a"', 'x="a"', Truth.NO),
    ],
)
def test_what_one_matcher_says_of_another(first: str, second: str, answer: Truth) -> None:
    """What is known of a label by one matcher decides others as far as it can."""
    known = labels.assume(Labels(open=True), (matchers.parse(first),))
    assert labels.truth((matchers.parse(second),), known) is answer
