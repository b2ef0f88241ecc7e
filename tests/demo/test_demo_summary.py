"""What a demo run must have shown before it says so."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from responder.demo.run import Cycle
from responder.demo.summary import Facts, ScaleSeen, counter, lines, percentile, problems
from responder.demo.table import Lines
from responder.demo.watch import Snapshot, Verdict


def seen(from_replicas: int, to_replicas: int) -> ScaleSeen:
    return ScaleSeen(
        datetime(2026, 1, 1, tzinfo=UTC), "inference/vllm", from_replicas, to_replicas, "gpu-responder"
    )


GOOD = Facts(
    scales=(seen(1, 4), seen(4, 1)),
    min_replicas=1,
    max_replicas=8,
    peak_utilization=1.0,
    mean_utilization=0.4,
    minutes_saturated=3.0,
    minutes=120.0,
    latencies=(0.5,),
    latencies_down=(5.0,),
    deliveries_sent=10,
    deliveries_failed=0,
    deliveries_taken=10,
    evaluations_missed=0,
    evaluation_failures=0,
    speed=60.0,
)


def test_a_full_cycle_has_no_problem() -> None:
    """Up under load and down after, within the bounds and with nothing lost, is a good run."""
    assert problems(GOOD, started_at_replicas=1) == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param({"scales": ()}, "never scaled up", id="nothing happened"),
        pytest.param({"scales": (seen(1, 4),)}, "never came down", id="it stayed up"),
        pytest.param({"scales": (seen(1, 8), seen(8, 6))}, "ended at 6 replicas", id="it came down half way"),
        pytest.param({"scales": (seen(1, 9), seen(9, 1))}, "outside 1..8", id="it left the bounds above"),
        pytest.param({"scales": (seen(1, 4), seen(4, 0))}, "outside 1..8", id="it left the bounds below"),
        pytest.param({"deliveries_taken": 9}, "took 9", id="a delivery was lost"),
        pytest.param({"deliveries_failed": 1}, "1 failed", id="a delivery failed"),
        pytest.param({"evaluations_missed": 2}, "missed 2", id="Prometheus was too slow"),
        pytest.param({"evaluation_failures": 1}, "1 failed rule", id="a rule failed"),
        pytest.param({"faults": ("prometheus ended.",)}, "prometheus ended", id="a program ended"),
    ],
)
def test_each_way_to_fall_short_is_told(change: dict[str, object], sentence: str) -> None:
    """Each thing that the demo is there to prove is missed by name when it is not shown."""
    found = problems(replace(GOOD, **change), started_at_replicas=1)
    assert any(sentence in problem for problem in found), found
    assert any(problem in line for problem in found for line in lines(GOOD, found))


def test_percentiles_are_of_what_was_measured() -> None:
    """The nearest rank, so that a figure is always one that was seen."""
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99)) == (50.0, 99.0)
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([], 0.5) is None


def test_a_counter_is_summed_over_the_series_asked_for() -> None:
    """Series of other names and other labels do not count."""
    text = 'sent_total{to="a",ok="1"} 2\nsent_total{to="b"} 3\nsent_total_bytes{to="a"} 100\n# sent_total 9\nbare 4\n'
    assert counter(text, "sent_total") == 5
    assert counter(text, "sent_total", {"to": "a"}) == 2
    assert counter(text, "bare") == 4


def truth(minute: float, wanted: int) -> dict[str, object]:
    workload = {"namespace": "inference", "name": "vllm", "replicasWanted": wanted}
    return {"loadSeconds": minute * 60, "loadDurationSeconds": 180 * 60.0, "workloads": [workload]}


def test_the_cycle_is_over_some_quiet_minutes_after_it_came_down() -> None:
    """Not before it went up, not while it is up, not at once when it is down; and not never."""
    cycle = Cycle(started_at_replicas=1)
    steps = [(0, 1, False), (60, 1, False), (61, 4, False), (100, 1, False), (105, 1, False), (109, 1, True)]
    assert [cycle.over(truth(minute, wanted)) for minute, wanted, _ in steps] == [over for *_, over in steps]


def test_a_run_that_never_comes_down_ends_all_the_same() -> None:
    """Long after the load's end there is nothing to wait for."""
    assert not Cycle(1).over(truth(400, 4))
    assert Cycle(1).over(truth(481, 4))  # 180 min of load + 300 min of waiting


def look(verdict: Verdict | None, *changes: Verdict) -> Snapshot:
    workload = {"namespace": "inference", "name": "vllm", "replicasWanted": 1, "ready": 1,
                "requestsPerSecond": 1.0, "utilization": 0.5}  # fmt: skip
    return Snapshot({"loadSeconds": 60, "workloads": [workload]}, (), verdict, changes)


def test_every_change_is_told_once_though_others_were_the_last_word_by_then() -> None:
    """A run looks twice a second, and much may be decided in between."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first, second = Verdict(now, "ScaledUp", "1 to 3"), Verdict(now, "ScaledUp", "3 to 4")
    holds = Verdict(now, "Cooldown", "a while")
    out = StringIO()
    told = Lines(Console(file=out, width=200))
    told.show(look(None))
    told.show(look(holds, second, first))
    told.show(look(second, second, first))
    told.show(look(holds, second, first))
    assert re.findall(r"^ {12}(.*)$", out.getvalue(), flags=re.MULTILINE) == [
        "ScaledUp: 1 to 3",
        "ScaledUp: 3 to 4",
        "Cooldown: a while",
        "ScaledUp: 3 to 4",
        "Cooldown: a while",
    ]
