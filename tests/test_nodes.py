"""Which nodes are cordoned and whose cordons are lifted, as tables: a person's word always stands."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from responder import webhook
from responder.acting.inbox import Inbox
from responder.config import loads
from responder.model import Delivery, Notification, Override, OverrideKind, Reason, Silence, Span
from responder.nodes import Cluster, Cordon, Node, decide, keeps
from responder.store.sqlite import SqliteStore

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
GPU = frozenset({"nvidia.com/gpu"})
POLICY = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: faults
  matchers: ['severity="page"']
  triggers:
  - name: lost
    matchers: ['alertname="GPUDeviceLost"']
    node: {action: Cordon, maxNodes: 2, maxPercent: 50, uncordonAfterSeconds: 600}
  - name: ecc
    matchers: ['alertname="GPUEcc"']
    node: {action: Cordon, maxPercent: 50}
"""
SETTINGS = loads(POLICY, "policies.yaml")


def alert(node: str = "n1", name: str = "GPUDeviceLost", *, opened: datetime = NOW, **more: Any) -> Span:
    labels = {"alertname": name, "severity": "page", "node": node}
    given = {"firing": True, **more}
    return Span(f"{name}-{node}", labels, {}, starts_at=opened, opened_at=opened, last_seen_at=NOW, **given)


def resolved(minutes: float, **more: Any) -> Span:
    at = NOW - timedelta(minutes=minutes)
    return alert(firing=False, opened=NOW - HOUR, ends_at=at, resolved_received_at=at, **more)


def node(name: str = "n1", **more: Any) -> Node:
    return Node(name, **{"unschedulable": False, "gpus": GPU, **more})


def cordoned(name: str = "n1", alert: str = "GPUDeviceLost", at: datetime = NOW - HOUR, **more: Any) -> Node:
    trigger = {"GPUDeviceLost": "lost", "GPUEcc": "ecc"}[alert]
    note = Cordon(at, "faults", trigger, f"{alert}-{name}", alert)
    return node(name, **{"unschedulable": True, "cordon": note, **more})


def lifted(**more: Any) -> Node:
    """One whose cordon a person lifted, and made anew."""
    state = cordoned(**more)
    assert state.cordon is not None
    return replace(state, cordon=replace(state.cordon, lifted=True))


def look(
    *spans: Span, live: tuple[Node, ...] = (), pool: int = 10, settings: Any = SETTINGS, **people: Any
) -> list[tuple[str, Reason]]:
    there = {each.name: each for each in live}
    whole = [there.get(f"n{number}", node(f"n{number}")) for number in range(pool)]
    found = decide(
        settings, spans, Cluster(whole, there), people.get("silences", ()), people.get("overrides", ()), NOW
    )
    return [(each.node.name, each.reason) for each in found]


def test_a_fault_cordons_its_node() -> None:
    """Once: what is cordoned already needs nothing."""
    assert look(alert(), live=(node(),)) == [("n1", Reason.CORDONED)]
    assert look(alert(opened=NOW - HOUR), live=(cordoned(),)) == []


def test_the_note_says_who_and_why() -> None:
    """The sentence names node and alert, the note the trigger."""
    [decision] = decide(SETTINGS, (alert(),), Cluster((node(),) * 9, {"n1": node()}), (), (), NOW)
    assert decision.message == "Cordoning node n1: GPUDeviceLost fires on node n1."
    assert decision.cordon == Cordon(NOW, "faults", "lost", "GPUDeviceLost-n1", "GPUDeviceLost")


@pytest.mark.parametrize(
    ("span", "state"),
    [
        pytest.param(alert(name="GPUHot"), node(), id="an alert of no node trigger"),
        pytest.param(alert("n9"), node(), id="an alert of a node that is not there"),
        pytest.param(resolved(1), node(), id="an alert that is over"),
        pytest.param(alert(suppressed=True), node(), id="an alert silenced in Alertmanager"),
        pytest.param(replace(alert(), last_seen_at=NOW - HOUR), node(), id="an alert not heard of"),
        pytest.param(alert(), node(unschedulable=True), id="a node that a person cordoned"),
        pytest.param(
            alert(opened=NOW - HOUR),
            cordoned(unschedulable=False),
            id="a cordon that a person lifted",
        ),
    ],
)
def test_what_cordons_nothing(span: Span, state: Node) -> None:
    """Doubt and people's doings keep from acting, silently."""
    assert look(span, live=(state,)) == []


def test_a_fault_that_comes_again_cordons_again() -> None:
    """A person who lifted a cordon did so for that time of firing."""
    lifted = cordoned(unschedulable=False, at=NOW - 2 * HOUR)
    assert look(alert(opened=NOW - HOUR), live=(lifted,)) == [("n1", Reason.CORDONED)]


@pytest.mark.parametrize(
    ("spans", "live", "pool", "expected"),
    [
        pytest.param(
            (alert("n1"), alert("n2"), alert("n3")),
            (node("n1"), node("n2"), node("n3")),
            10,
            [("n1", Reason.CORDONED), ("n2", Reason.CORDONED), ("n3", Reason.CORDON_LIMITED)],
            id="maxNodes 2 of three faults at once",
        ),
        pytest.param(
            (alert("n3"),),
            (cordoned("n1"), cordoned("n2"), node("n3")),
            10,
            [("n3", Reason.CORDON_LIMITED)],
            id="maxNodes counts what is cordoned already",
        ),
        pytest.param(
            (alert("n1"),),
            (node("n1"), node("n2", unschedulable=True), node("n0", unschedulable=True)),
            4,
            [("n1", Reason.CORDON_LIMITED)],
            id="maxPercent counts a person's cordons too: 3 of 4",
        ),
        pytest.param(
            (alert("n0"),), (node("n0"),), 1, [("n0", Reason.CORDON_LIMITED)], id="never the only node"
        ),
        pytest.param((alert("n1"),), (node("n1"),), 2, [("n1", Reason.CORDONED)], id="1 of 2 is 50 %"),
        pytest.param(
            (alert("n1"), alert("n1", "GPUEcc")),
            (node("n1"),),
            10,
            [("n1", Reason.CORDONED)],
            id="two faults of one node are one cordon",
        ),
        pytest.param(
            (alert("n1"),),
            (node("n1", gpus=frozenset({"amd.com/gpu"})),),
            1,
            [("n1", Reason.CORDON_LIMITED)],
            id="another vendor's nodes are another pool",
        ),
    ],
)
def test_limits(
    spans: tuple[Span, ...], live: tuple[Node, ...], pool: int, expected: list[tuple[str, Reason]]
) -> None:
    """At most so many nodes, and so much of the pool."""
    assert look(*spans, live=live, pool=pool) == expected


@pytest.mark.parametrize(
    ("spans", "state", "lifts"),
    [
        pytest.param((resolved(11),), cordoned(), True, id="resolved for long enough"),
        pytest.param((resolved(9),), cordoned(), False, id="resolved not long enough"),
        pytest.param((alert(opened=NOW - HOUR),), cordoned(), False, id="it fires"),
        pytest.param(
            (replace(alert(), last_seen_at=NOW - HOUR, opened_at=NOW - HOUR),),
            cordoned(),
            False,
            id="not heard of",
        ),
        pytest.param((), cordoned(), False, id="not known any more: that is for a person"),
        pytest.param(
            (resolved(11), alert(name="GPUEcc", opened=NOW - HOUR)), cordoned(), False, id="another fires"
        ),
        pytest.param((resolved(11),), lifted(), False, id="cordoned anew by a person"),
        pytest.param((resolved(11),), cordoned(cordon=None), False, id="the note was taken away"),
        pytest.param(
            (resolved(11, name="GPUEcc"),),
            cordoned(alert="GPUEcc"),
            False,
            id="its policy leaves it to a person",
        ),
    ],
)
def test_lifting(spans: tuple[Span, ...], state: Node, lifts: bool) -> None:
    """Only our own, only when all is over for as long as the policy says."""
    assert look(*spans, live=(state,)) == ([("n1", Reason.UNCORDONED)] if lifts else [])


def test_silence_and_freeze() -> None:
    """A silence of ours stops a cordon without a word; a freeze stops both ways and says so."""
    silence = Silence("s", ('alertname="GPUDeviceLost"',), NOW - HOUR, NOW + HOUR, "anna", "known", NOW)
    assert look(alert(), live=(node(),), silences=(silence,)) == []
    freeze = Override("f", OverrideKind.FREEZE, "anna", "upgrade", NOW, NOW - HOUR, NOW + HOUR)
    assert look(alert(), live=(node(),), overrides=(freeze,)) == [("n1", Reason.FROZEN)]
    assert look(resolved(11), live=(cordoned(),), overrides=(freeze,)) == [("n1", Reason.FROZEN)]


class Nobody:
    """A look-up that must not be asked."""

    def find(self, labels: Any) -> None:
        raise AssertionError("the alert is about a node")


def test_an_alert_about_a_node_stands_and_is_not_looked_up(tmp_path: Path) -> None:
    """It is kept whatever target it may name, and that it names none is no trouble."""
    labels = {"alertname": "GPUDeviceLost", "severity": "page", "node": "n1", "pod": "dcgm-exporter-x"}
    told = Notification("f", True, labels, {}, NOW, None, NOW)
    store = SqliteStore(tmp_path / "store.db")
    try:
        store.append(Delivery(NOW, (told,)))
        drained = Inbox(store, Nobody()).drain(SETTINGS, NOW)
        assert drained.standing_changed
        assert [span.fingerprint for span in store.standing()] == ["f"]
        assert store.inbox(1) == []
    finally:
        store.close()


def test_a_token_of_some_namespaces_may_not_cordon() -> None:
    """Pods of any namespace run on a node, so only a sender without limits may tell of it."""
    labels = {"alertname": "GPUDeviceLost", "severity": "page", "node": "n1", "namespace": "team-a"}
    alert = {"status": "firing", "labels": labels, "startsAt": "2026-11-30T12:00:00Z", "fingerprint": "f"}
    body = json.dumps({"version": "4", "alerts": [alert]}).encode()
    limited = webhook.parse(body, SETTINGS, NOW, namespaces=("team-a",))
    assert "about a node" in limited.results[0].error
    assert limited.delivery.notifications == ()
    assert webhook.parse(body, SETTINGS, NOW).results[0].error == ""


def test_an_alert_is_remembered_until_its_cordon_is_lifted() -> None:
    """The sweep keeps a resolved alert as long as the policy needs it."""
    assert keeps(SETTINGS, resolved(5), NOW)
    assert not keeps(SETTINGS, resolved(60 * 24 + 11), NOW)
    assert not keeps(SETTINGS, resolved(5, name="GPUEcc"), NOW)
