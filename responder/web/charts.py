"""The page's charts, drawn by pygal as SVG: what was wanted, what was there, what was ready, and which alerts fired.

pygal brings a style and a script of its own, which a strict content security policy forbids: they are taken out, and
the page's style sheet knows the classes.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any
from xml.etree import ElementTree as ET

import pygal  # type: ignore[import-untyped]
from markupsafe import Markup
from pygal.style import Style  # type: ignore[import-untyped]

from responder.alerting.spans import Condition, condition
from responder.model import Outcome, Record
from responder.policy import Timing
from responder.web.page_words import Line
from responder.web.utilization import Series
from responder.web.views import ready_of

# pygal leaves an import hook behind, for plugins of its own, of a kind that Python 3.11 warns about at each import.
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]

WIDTH = 960
_PLOT = 190
_LANE = 22
_MARGINS = 46
_MOST_LANES = 6
_NAME = 24
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #4a5560 }
.axis text { text-anchor: end } .axis.x text { text-anchor: middle } .background, .nofill { fill: none }
.guide, .axis.y .line { stroke: #d5dade } .axis.x .line { stroke: none }
.series .line { stroke: #7a4fc0; stroke-width: 2; fill: none } .message { font-size: 14px; text-anchor: middle }
@media (prefers-color-scheme: dark) {
  text { fill: #b4bdc6 } .guide, .axis.y .line { stroke: #343b42 } .series .line { stroke: #b79aee }
}
"""

Point = tuple[datetime, float]


@dataclass(frozen=True, slots=True)
class Lane:
    """When alerts of one name fired."""

    name: str
    spans: tuple[tuple[datetime, datetime], ...]


def timeline(
    record: Record, history: Sequence[Line], timing: Timing, start: datetime, now: datetime
) -> Markup:
    """Replicas, ready and wanted as steps; alerts below. A decision is a mark that leads to its line, `#d<id>`.

    History is oldest first.
    """
    entries = [line.stored.entry for line in history]
    replicas: list[Point] = []
    for line in history:
        entry = line.stored.entry
        replicas.append((entry.at, entry.current))
        if line.outcome is Outcome.APPLIED:
            replicas.append((line.took_at, entry.desired))
    ready = [(entry.at, value) for entry in entries if (value := ready_of(entry)) is not None]
    wanted = [(entry.at, entry.desired) for entry in entries]
    lanes = lanes_of(record, timing, start, now)
    known = [*(value for _, value in (*replicas, *ready, *wanted)), record.replicas or 0, 1]
    top = ceil(max(known) * 1.08)
    lane = top * _LANE / _PLOT
    height = _PLOT + _LANE * len(lanes) + _MARGINS
    chart = _chart(start, now, height, (-lane * (len(lanes) + 0.3), top))
    chart.y_labels = [
        *({"label": str(number), "value": number} for number in _scale(top)),
        *({"label": _short(each.name), "value": -lane * (place + 1)} for place, each in enumerate(lanes)),
    ]
    last = wanted[-1][1] if wanted else None
    chart.add("ready", _drawn(_steps(ready, record.ready, start, now)), show_dots=False, fill=True)
    chart.add("wanted", _drawn(_steps(wanted, last, start, now)), show_dots=False)
    chart.add("replicas", _drawn(_steps(replicas, record.replicas, start, now)), show_dots=False)
    chart.add(
        "decisions", [_mark(line) for line in history if start <= line.stored.entry.at <= now], stroke=False
    )
    for place, each in enumerate(lanes):
        for begin, end in each.spans:
            y = -lane * (place + 1)
            chart.add(each.name, _drawn([(begin, y), (end, y)]), show_dots=False)
    root = _tidied(chart)
    root.set("role", "group")
    root.set("aria-label", "Replicas over time; every mark is a decision, and leads to it in the list below")
    # Nothing in it is text that came from outside but what the tree has escaped.
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704


def utilization(series: Series, labels: Sequence[str], start: datetime, now: datetime) -> bytes:
    """GPU utilization as an image of its own, its plot as far from the left as that of the timeline."""
    chart = _chart(start, now, 110 + _MARGINS, (0, 1))
    # The room for labels goes by their number of characters; a figure space is one that is not trimmed.
    widest = max([len("100 %"), *map(len, labels)])
    chart.y_labels = [
        {"label": text.rjust(widest, "\u2007"), "value": value}
        for text, value in (("0 %", 0), ("50 %", 0.5), ("100 %", 1))
    ]
    points = _drawn(series.points or [(start, None)])
    chart.add("utilization", points, show_dots=False, allow_interruptions=True)
    root = _tidied(chart)
    ET.SubElement(root, f"{{{_SVG}}}style").text = _STYLE
    if not series.points:
        said = ET.SubElement(root, f"{{{_SVG}}}text", {"class": "message", "x": str(WIDTH // 2), "y": "48"})
        said.text = series.error or "No utilization is known of this time"
    return ET.tostring(root, encoding="unicode").encode()


def lanes_of(record: Record, timing: Timing, start: datetime, now: datetime) -> list[Lane]:
    """When the alerts that are known fired since `start`, by name; those that fire now first."""
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    firing: set[str] = set()
    for span in record.alerts.values():
        name = span.labels.get("alertname", span.fingerprint)
        fires = condition(span, timing, now) in (Condition.FIRING, Condition.SUPPRESSED, Condition.UNKNOWN)
        end = now if fires else span.ends_at or span.last_seen_at
        if fires:
            firing.add(name)
        if end > start and span.starts_at < now:
            spans.setdefault(name, []).append((max(span.starts_at, start), min(end, now)))
    names = sorted(spans, key=lambda name: (name not in firing, name))
    return [Lane(name, tuple(spans[name])) for name in names[:_MOST_LANES]]


def labels_of(record: Record, timing: Timing, start: datetime, now: datetime) -> list[str]:
    """What stands at the left of the timeline."""
    return [_short(lane.name) for lane in lanes_of(record, timing, start, now)]


def _chart(start: datetime, now: datetime, height: int, between: tuple[float, float]) -> Any:
    within_a_day = now - start <= timedelta(days=1)
    clock = "%H:%M" if within_a_day else "%d %b %H:%M"
    chart = pygal.XY(
        js=[], css=[], style=Style(label_font_size=12, major_label_font_size=12), no_prefix=True,
        disable_xml_declaration=True, width=WIDTH, height=height, show_legend=False, margin=6, dots_size=5,
        xrange=(start.timestamp(), now.timestamp()), range=between, truncate_label=-1, no_data_text="",
        x_value_formatter=lambda at: datetime.fromtimestamp(at, UTC).strftime(clock),
    )  # fmt: skip
    chart.x_labels = _ticks(start, now)
    return chart


def _drawn(points: Iterable[tuple[datetime, float | None]]) -> list[tuple[float, float | None]]:
    """As the library takes them."""
    return [(at.timestamp(), value) for at, value in points]


def _ticks(start: datetime, now: datetime) -> list[float]:
    """Full hours, or what is as round in a longer or shorter time."""
    every = next(
        (each for each in (600, 3600, 14400, 43200) if (now - start).total_seconds() / each <= 8), 43200
    )
    first = ceil(start.timestamp() / every) * every
    return [float(at) for at in range(first, int(now.timestamp()) + 1, every)]


def _scale(top: int) -> list[int]:
    step = next(each for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, top) if top / each <= 5)
    return list(range(0, top + 1, step))


def _steps(points: Iterable[Point], last: float | None, start: datetime, now: datetime) -> list[Point]:
    """The points as steps: each value holds until the next one."""
    stairs: list[Point] = []
    before: float | None = None
    for at, value in points:
        if at < start:
            before = value
            continue
        if before is not None:
            stairs += [(at if stairs else start, before), (at, before)]
        stairs.append((at, value))
        before = value
    if before is not None:
        stairs += [(stairs[-1][0] if stairs else start, before), (now, before)]
    if last is not None:
        stairs.append((now, last))
    return stairs


def _mark(line: Line) -> dict[str, Any]:
    entry = line.stored.entry
    became = f", {line.outcome.value.replace('_', ' ')}" if line.outcome else ""
    said = f"{entry.at:%H:%M:%S} UTC, {entry.current} to {entry.desired}, {entry.reason.value}{became}: {entry.message}"
    return {
        "value": (entry.at.timestamp(), entry.desired),
        "label": said,
        "xlink": {"href": f"#d{line.stored.id}"},
    }


def _tidied(chart: Any) -> ET.Element:
    """The drawing without pygal's style, script and tooltips; what its marks say becomes their title."""
    root: ET.Element = chart.render_tree()
    for parent in list(root.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or _unwanted(child):
                parent.remove(child)
    for link in list(root.iter("a")):
        said = next((each.text for each in link.iter("desc") if each.get("class") == "label"), "")
        link.set("aria-label", said or "")
        link.set("href", link.attrib.pop(_XLINK, "#"))
        link.attrib.pop("target", None)
        ET.SubElement(link, "title").text = said
    for parent in list(root.iter()):
        parent.attrib.pop("style", None)
        for child in [each for each in parent if each.tag == "desc"]:
            parent.remove(child)
    root.attrib.pop("id", None)
    return root


def _unwanted(node: ET.Element) -> bool:
    return node.tag in ("defs", "title", "style", "script") or "tooltip" in node.get("class", "").split("-")


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"
