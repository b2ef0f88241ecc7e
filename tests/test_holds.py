"""Holds that tie an alert to a target, and the heartbeat whose absence is safe mode (promises 11 and 18)."""

from dataclasses import replace
from typing import Any

import pytest

from responder.alerts import holds_on, safe_mode
from responder.matchers import parse
from responder.model import Direction, Span
from responder.policy import Heartbeat, Hold, Settings
from tests.deciding import DOWN, UP, at, policy, record, s, settings, span

INHIBIT = parse('action="inhibit_scale_down"')


def file(*equal: str, forbid: Direction = DOWN, **more: Any) -> Settings:
    return settings(policy(), holds=(Hold("hot", (INHIBIT,), forbid, equal),), **more)


def alert(**labels: str) -> Span:
    labels = {"namespace": "", "action": "inhibit_scale_down", **labels}
    return span("GPUHot", labels={name: value for name, value in labels.items() if value})


@pytest.mark.parametrize(
    ("equal", "labels", "tied"),
    [
        pytest.param(("namespace",), {"namespace": "inference"}, True, id="its namespace"),
        pytest.param(("namespace",), {"namespace": "training"}, False, id="another namespace"),
        pytest.param(
            ("namespace", "workload"), {"namespace": "inference", "workload": "vllm"}, True, id="its name"
        ),
        pytest.param(
            ("namespace", "workload"), {"namespace": "inference", "workload": "tgi"}, False, id="another name"
        ),
        pytest.param(("workload",), {}, False, id="a label that the alert lacks"),
        pytest.param(("workload_type",), {"workload_type": "deployment"}, True, id="its kind"),
        pytest.param(
            ("workload_type",), {"workload_type": "Deployment"}, True, id="its kind as Kubernetes spells it"
        ),
        pytest.param(("workload_type",), {"workload_type": "statefulset"}, False, id="another kind"),
        pytest.param(("node",), {"node": "gpu-1"}, True, id="a node with pods of it"),
        pytest.param(("node",), {"node": "gpu-9"}, False, id="a node without"),
        pytest.param(("node",), {}, False, id="no node"),
        pytest.param(("model",), {"model": "llama"}, True, id="a label of one of its alerts"),
        pytest.param(("model",), {"model": "qwen"}, False, id="another value of it"),
        pytest.param(("model",), {}, False, id="a label that neither has ties nothing"),
        pytest.param((), {}, True, id="no label: every target"),
    ],
)
def test_what_ties_a_hold_to_a_target(equal: tuple[str, ...], labels: dict[str, str], tied: bool) -> None:
    """`equal`, on inference/deployment/vllm with pods on gpu-1 and an alert about the model llama."""
    rec = record("more")
    rec = replace(rec, alerts={"more": span("more", labels={"model": "llama"})})
    found = holds_on(file(*equal), [alert(**labels)], rec, frozenset({"gpu-1"}), at(0))
    assert bool(found) == tied
    if tied:
        assert (found[0].name, found[0].alert, found[0].forbid) == ("hot", "GPUHot", DOWN)


@pytest.mark.parametrize(
    ("ours", "theirs", "known", "tied"),
    [
        pytest.param("eu", "eu", "", True, id="the file's cluster"),
        pytest.param("eu", "us", "", False, id="another than the file's"),
        pytest.param("eu", "", "", True, id="an alert without one is ours"),
        pytest.param("", "eu", "eu", True, id="the file names none: that of the target's alerts"),
        pytest.param("", "us", "eu", False, id="another than that of the target's alerts"),
        pytest.param("", "eu", "", True, id="nobody names one: there is only one"),
    ],
)
def test_cluster_holds(ours: str, theirs: str, known: str, tied: bool) -> None:
    """A dark cluster holds all its targets; where names are missing, caution wins."""
    rec = record("more")
    labels = {"cluster": known} if known else {}
    rec = replace(rec, alerts={"more": span("more", labels=labels)})
    assert (
        bool(holds_on(file("cluster", cluster=ours), [alert(cluster=theirs)], rec, frozenset(), at(0)))
        == tied
    )


@pytest.mark.parametrize(
    ("forbid", "found", "now", "expected"),
    [
        pytest.param(DOWN, {}, 0, (False,), id="firing"),
        pytest.param(DOWN, {"suppressed": True}, 0, (False,), id="silenced: it still holds"),
        pytest.param(DOWN, {"firing": False}, 0, (), id="resolved"),
        pytest.param(DOWN, {}, 900, (True,), id="unknown: still forbids down"),
        pytest.param(UP, {}, 900, (), id="unknown: forbids up no more"),
        pytest.param(UP, {}, 899, (False,), id="firing: forbids up"),
        pytest.param(DOWN, {}, 22500, (), id="forgotten"),
    ],
)
def test_ageing_holds(
    forbid: Direction, found: dict[str, Any], now: float, expected: tuple[bool, ...]
) -> None:
    """Promise 6: an unknown hold still forbids scale-down for forgetAfterSeconds."""
    hot = replace(alert(), **found)
    holds = holds_on(file(forbid=forbid), [hot], record(), frozenset(), at(now))
    assert tuple(hold.unknown for hold in holds) == expected


def test_an_alert_that_matches_no_hold_holds_nothing() -> None:
    """Standing alerts are kept for the heartbeat too."""
    assert holds_on(file(), [span("Watchdog")], record(), frozenset(), at(0)) == ()


BEAT = Heartbeat((parse('alertname="Watchdog"'),), s(600))


@pytest.mark.parametrize(
    ("standing", "now", "words"),
    [
        pytest.param([span("Watchdog", heard=100)], 699, "", id="it beat 599 s ago"),
        pytest.param([span("Watchdog", heard=100)], 700, "has not arrived since 12:01:40Z", id="600 s ago"),
        pytest.param([], 1, "has not arrived since the start", id="not yet since the start"),
        pytest.param(
            [span("Watchdog", heard=-1)], 1, "has not arrived since the start", id="only before the start"
        ),
        pytest.param([span("Watchdog", heard=100, firing=False)], 101, "has resolved", id="it resolved"),
        pytest.param(
            [span("other", heard=100)], 101, "has not arrived since the start", id="something else beats"
        ),
        pytest.param(
            [span("Watchdog", heard=0), span("Watchdog", fingerprint="b", heard=500)],
            700,
            "",
            id="one of two beats",
        ),
    ],
)
def test_safe_mode(standing: list[Span], now: float, words: str) -> None:
    """Promise 18: a timeout of 600 s, started at 0."""
    told = safe_mode(settings(heartbeat=BEAT), standing, at(now), at(0))
    assert words in told
    assert bool(told) == bool(words)


def test_without_a_heartbeat_there_is_no_safe_mode() -> None:
    """It has to be configured."""
    assert safe_mode(settings(), [], at(99999), at(0)) == ""
