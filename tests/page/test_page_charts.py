"""Charts as they are drawn, and the utilization that Prometheus tells or does not."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import pytest

from responder.model import HistoryEntry, Outcome, Reason, Record, Span, TargetRef
from responder.policy import Timing
from responder.store import StoredEntry
from responder.web import charts, utilization
from responder.web.charts import WIDTH
from responder.web.page_words import lines_of
from responder.web.utilization import Series

NOW = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)
START = NOW - timedelta(hours=6)
VLLM = TargetRef("inference", "Deployment", "vllm")


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def span(name: str, since: datetime, until: datetime | None = None) -> Span:
    return Span(name, {"alertname": name}, {}, until is None, since, since, NOW, ends_at=until)


def drawn(record: Record, *entries: HistoryEntry) -> ET.Element:
    stored = [StoredEntry(number, entry) for number, entry in enumerate(entries, 1)]
    lines = lines_of(stored[::-1])[::-1]
    return ET.fromstring(charts.timeline(record, lines, Timing(), START, NOW))


def entry(at: datetime, current: int, desired: int, outcome: Outcome | None = None) -> HistoryEntry:
    inputs = {"observed": {"pods": {"ready": current}}}
    return HistoryEntry(
        at, VLLM.key, current, desired, Reason.SCALED_UP, 'because "<b>"', outcome=outcome, inputs=inputs
    )


class TestTimeline:
    def test_brings_no_style_or_script_of_its_own(self) -> None:
        """The content security policy would refuse them, and complain."""
        root = drawn(Record(VLLM, replicas=2), entry(NOW - minutes(60), 1, 2))
        assert {node.tag.rpartition("}")[2] for node in root.iter()} <= {"svg", "g", "rect", "path", "text", "a",
                                                                        "circle", "title"}  # fmt: skip
        assert not [node for node in root.iter() if "style" in node.attrib or "onload" in node.attrib]

    def test_a_mark_says_what_was_decided_and_leads_to_it(self) -> None:
        """A decision and its outcome are one mark; what the sentence holds is text."""
        at = NOW - minutes(60)
        root = drawn(Record(VLLM, replicas=2), entry(at, 1, 2), entry(at, 1, 2, Outcome.APPLIED))
        [mark] = root.iter("{http://www.w3.org/2000/svg}a")
        said = '20:00:00 UTC, 1 to 2, ScaledUp, applied: because "<b>"'
        assert (mark.get("href"), mark.get("aria-label")) == ("#d1", said)

    def test_what_is_older_than_the_chart_holds_at_its_left_edge(self) -> None:
        """A count that nobody changed for a day is drawn all the same."""
        root = drawn(Record(VLLM, replicas=2, ready=2), entry(NOW - minutes(3000), 2, 2))
        lines = [
            node.get("d", "")
            for node in root.iter()
            if {"line", "reactive"} <= set(node.get("class", "").split())
        ]
        assert len(lines) == 3
        edge = WIDTH * 0.02  # the plot's own margin
        assert all(float(line[1:].split()[0]) <= edge for line in lines), lines

    def test_draws_even_what_nothing_is_known_of(self) -> None:
        """A target whose first alert has just come in."""
        assert drawn(Record(VLLM)).tag.endswith("svg")


class TestLanes:
    def test_alerts_of_one_name_share_a_lane_and_firing_ones_are_first(self) -> None:
        """Those that were over before the chart begins are not in it."""
        alerts = {
            "1": span("Z", NOW - minutes(30)),
            "2": span("A", NOW - minutes(90), NOW - minutes(60)),
            "3": span("A", NOW - minutes(40), NOW - minutes(20)),
            "4": span("Old", NOW - minutes(900), NOW - minutes(800)),
        }
        lanes = charts.lanes_of(Record(VLLM, alerts=alerts), Timing(), START, NOW)
        assert [(lane.name, len(lane.spans)) for lane in lanes] == [("Z", 1), ("A", 2)]
        assert lanes[0].spans == ((NOW - minutes(30), NOW),)


class Prometheus(http.server.ThreadingHTTPServer):
    """Answers range queries with what it is told to; when it hangs, not before the test is over."""

    body: object = None
    hangs = False
    asked: list[dict[str, list[str]]]


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(parse_qs(urlsplit(self.path).query))
            if server.hangs:
                let_go.wait(60)
            body = json.dumps(server.body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            with contextlib.suppress(OSError):
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    let_go = threading.Event()
    server = Prometheus(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    utilization._kept.clear()
    yield server
    utilization._pool.clear()
    let_go.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


def answer(*values: tuple[float, str]) -> object:
    result = [{"metric": {}, "values": [list(value) for value in values]}] if values else []
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def read(server: Prometheus, hours: int = 6) -> Series:
    return utilization.read((f"http://127.0.0.1:{server.server_port}",), {}, VLLM, hours, NOW)


class TestUtilization:
    def test_is_asked_for_once_in_a_while(self, prometheus: Prometheus) -> None:
        """However many look at the page; for its own namespace and name."""
        at = NOW.timestamp()
        prometheus.body = answer((at - 90, "0.5"), (at, "0.75"))
        assert [value for _, value in read(prometheus).points] == [0.5, 0.75]
        read(prometheus)
        [asked] = prometheus.asked
        selector = 'namespace_workload:gpu_utilization_ratio:avg{namespace="inference",workload="vllm"}'
        assert asked["query"] == [selector]
        assert float(asked["end"][0]) - float(asked["start"][0]) == 6 * 3600

    def test_a_gap_stays_a_gap(self, prometheus: Prometheus) -> None:
        """A line over it would say what nobody has measured."""
        at = NOW.timestamp()
        prometheus.body = answer((at - 900, "0.5"), (at - 90, "0.75"), (at, "NaN"))
        assert [value for _, value in read(prometheus).points] == [0.5, None, 0.75, None]

    def test_one_that_is_slow_is_not_waited_for(self, prometheus: Prometheus) -> None:
        """The image says so, and the page has long been shown."""
        prometheus.hangs = True
        began = time.monotonic()
        assert read(prometheus).error == "Prometheus cannot be reached"
        assert time.monotonic() - began < 30

    @pytest.mark.parametrize(
        "body", [None, [], {"status": "error"}, {"data": {"result": [{"values": [[1]]}]}}]
    )
    def test_what_is_no_answer_of_prometheus_is_said(self, body: object, prometheus: Prometheus) -> None:
        """As of a proxy that answers for it."""
        prometheus.body = body
        assert read(prometheus).error == "Prometheus does not answer this"

    def test_an_answer_that_is_too_large_is_said(
        self, prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was reached, and must not fill the memory."""
        monkeypatch.setattr(utilization, "_LARGEST", 10)
        prometheus.body = answer((NOW.timestamp(), "0.5"))
        assert read(prometheus).error == "Prometheus answers with more than can be drawn"

    def test_the_image_says_why_it_is_empty(self) -> None:
        """And is drawn to the eye's scheme by itself, for an image does not see the page's style."""
        image = charts.utilization(Series(error="Prometheus cannot be reached"), [], START, NOW).decode()
        assert "Prometheus cannot be reached" in image
        assert "prefers-color-scheme: dark" in image
        assert "<script" not in image
