"""The dashboards: well-formed, and each expression gives data from the demo's real Prometheus."""

import json
import math
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from responder.demo.run import Options, running

sys.path.insert(0, str(Path(__file__).parent))
from charting import CHART

NAMES = ("fleet", "workloads", "responder")
PATIENCE = 100.0
"""Seconds; what the demo shows at all shows in about half of that."""

NOT_IN_THE_DEMO = {
    "Time to the first token, p95": "the simulated servers have no histogram of it",
}
"""Panels without data there, and why."""
PERHAPS = {
    "API errors": "a labelled counter begins with its first event, and perhaps no API fails",
    "Scale-down alerts": "they come after half an hour of quiet, and this test mostly ends before",
}


def load(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((CHART / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
    return read


def expressions(name: str) -> list[tuple[str, str]]:
    """Titles and expressions of all panels and annotations."""
    dashboard = load(name)
    found = [
        (panel["title"], each["expr"]) for panel in dashboard["panels"] for each in panel.get("targets", ())
    ]
    return found + [(each["name"], each["expr"]) for each in dashboard["annotations"]["list"]]


@pytest.mark.parametrize("name", NAMES)
def test_well_formed(name: str):
    """Panels do not overlap, have ids of their own, a datasource that can be chosen, and only known variables."""
    dashboard = load(name)
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    known = {each["name"] for each in dashboard["templating"]["list"]} | {
        "__rate_interval",
        "__range",
        "__interval",
        "__interval_ms",
    }
    used = set(re.findall(r"\$\{?(\w*[a-z_]\w*)", json.dumps([expr for _, expr in expressions(name)])))
    assert used <= known
    assert len({load(each)["uid"] for each in NAMES}) == len(NAMES)


def as_grafana(expr: str) -> str:
    """The expression as Grafana sends it, with All chosen."""
    for name, value in {
        "$__rate_interval": "30s", "$__range": "90s", "$__interval_ms": "1000", "$__interval": "1s",
    }.items():  # fmt: skip
        expr = expr.replace(name, value)
    return re.sub(r"\$[a-z]+", ".*", expr)


def query(prometheus: str, expr: str) -> list[float]:
    asked = urllib.parse.urlencode({"query": as_grafana(expr)})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{asked}", timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    values = [float(each["value"][1]) for each in found]
    return [value for value in values if not math.isnan(value)]


def post(url: str, body: object) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def test_times_are_shares_of_the_time_shown(tmp_path: Path):
    """At maxReplicas for a quarter of it is 25 %, and held for five minutes is 300 s, whatever pods were replaced."""
    at_max, held = (
        next(expr for title, expr in expressions("workloads") if title == wanted)
        .replace("$__range", "20m")
        .replace("$__interval_ms", "30000")
        .replace("$__interval", "30s")
        for wanted in ("Time at maxReplicas", "Time held, and why")
    )
    series = {
        'gpu_responder_policy_valid{instance="a"}': "_ 1x19 stale",
        'gpu_responder_policy_valid{instance="b"}': "_x20 1x20",
        'gpu_responder_target_at_max{instance="a",namespace="ns",name="w"}': "_x10 1x9 stale",
        'gpu_responder_target_held{instance="a",namespace="ns",name="w",reason="Held"}': "_x16 1x4 stale",
        'gpu_responder_target_held{instance="b",namespace="ns",name="w",reason="Held"}': "_x21 1x4 stale",
    }
    wanted = [
        (at_max, '{namespace="ns", name="w"}', 0.25),
        (held, '{namespace="ns", name="w", reason="Held"}', 300),
    ]
    asked = {
        "rule_files": [],
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": as_grafana(expr),
                        "eval_time": "20m",
                        "exp_samples": [{"labels": labels, "value": value}],
                    }
                    for expr, labels, value in wanted
                ],
            }
        ],
    }
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump(asked))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_expression_gives_data(tmp_path: Path):
    """Run against the demo, with a GPU in trouble and an override in force, nothing stays empty without a reason."""
    waiting = {(title, expr) for name in NAMES for title, expr in expressions(name)}
    with running(Options(speed=60), tmp_path, lambda _: None) as demo:
        sim, prometheus = demo.addresses.sim, demo.addresses.prometheus
        post(f"{sim}/sim/telemetry", {"node": "gpu-node-1", "gpu": 3, "temperatureCelsius": 95})
        override = {"kind": "pauseScaleDown", "target": "inference/statefulset/embedder", "comment": "a test"}
        post(f"{demo.addresses.responder}/api/v1/overrides", {**override, "durationSeconds": 600})
        deadline, next_xid = time.monotonic() + PATIENCE, 0.0
        while time.monotonic() < deadline:
            if time.monotonic() > next_xid:
                post(f"{sim}/sim/telemetry", {"node": "gpu-node-2", "gpu": 0, "xid": 79})
                next_xid = time.monotonic() + 10
            waiting = {(title, expr) for title, expr in waiting if not query(prometheus, expr)}
            if {title for title, _ in waiting} <= NOT_IN_THE_DEMO.keys() | PERHAPS.keys():
                break
            time.sleep(0.5)
    empty = {title for title, _ in waiting} - PERHAPS.keys()
    assert empty == NOT_IN_THE_DEMO.keys(), waiting
