"""What is wrong with alerting rules, whatever becomes of them. Pure."""

import re
from collections.abc import Iterator

from responder import promql
from responder.check.chain import Alert, Chain
from responder.check.expressions import Comparison, always, comparisons, parse
from responder.check.findings import Finding, error, warning
from responder.check.labels import overlap
from responder.model import Direction
from responder.rules import Rule

_VALUE = re.compile(r"\{\{[^}]*(?:\$value|\.Value|\|\s*value)\b")
_REPLICA_LABELS = ("prometheus_replica", "replica", "__replica__", "prometheus_server")
_WORKLOAD = ("cluster", "namespace", "workload", "workload_type")
_ACTIONS = (
    "scale_up", "scale_down", "inhibit_scale_up", "inhibit_scale_down", "cordon", "drain", "notify",
)  # fmt: skip


def check(chain: Chain) -> Iterator[Finding]:
    """Every fault of the rules themselves."""
    yield from _expressions(chain)
    for alert in chain.alerts:
        if alert.scaling or alert.action:
            yield from _value_in_label(chain, alert)
            yield from _replica_label(chain, alert)
            yield from _unknown_action(chain, alert)
            yield from _always_fires(chain, alert)
        if alert.action == "scale_down" or any(fate.direction is Direction.DOWN for fate in alert.fates):
            yield from _kept_firing(chain, alert)
    yield from _hysteresis(chain)
    yield from _same_name(chain)


def _expressions(chain: Chain) -> Iterator[Finding]:
    for group in chain.sources.groups:
        for rule in group.rules:
            try:
                parse(rule.expr)
            except ValueError as problem:
                line = chain.sources.line_of(rule.file, rule.line, "expr")
                said = f"The expression of {rule.name} is not PromQL: {problem}."
                yield error(rule.file, line, "promql", said, "mend the expression")


def _value_in_label(chain: Chain, alert: Alert) -> Iterator[Finding]:
    for name, text in alert.rule.labels.items():
        if _VALUE.search(text):
            yield error(
                alert.rule.file,
                _label_line(chain, alert.rule, name),
                "value-in-label",
                f"Label {name} of {alert.name} holds the query's value, so that each change of it is a new alert.",
                "move it to an annotation",
            )


def _label_line(chain: Chain, rule: Rule, name: str) -> int:
    labels = chain.sources.line_of(rule.file, rule.line, "labels")
    return chain.sources.line_of(rule.file, labels, name, beyond=len(rule.labels) + 2)


def _replica_label(chain: Chain, alert: Alert) -> Iterator[Finding]:
    labels = chain.records.rule_labels(alert.group, alert.rule)  # without those that Prometheus adds
    for name in _REPLICA_LABELS:
        if name in labels.known and labels.possible(name):
            yield warning(
                alert.rule.file,
                chain.sources.line_of(alert.rule.file, alert.rule.line, "expr"),
                "replica-label",
                f"{alert.name} carries the label {name}, so that two Prometheus servers give two alerts of one.",
                f"aggregate it away, as by `without ({name})`",
            )


def _unknown_action(chain: Chain, alert: Alert) -> Iterator[Finding]:
    if alert.action and alert.action not in _ACTIONS:
        yield warning(
            alert.rule.file,
            _label_line(chain, alert.rule, "action"),
            "unknown-action",
            f"{alert.name} has the action {alert.action}, which the shipped policies and routes do not know.",
            f"write one of {', '.join(_ACTIONS)}",
        )


def _always_fires(chain: Chain, alert: Alert) -> Iterator[Finding]:
    try:
        fires = always(parse(alert.rule.expr))
    except ValueError:
        return
    if fires:
        yield error(
            alert.rule.file,
            chain.sources.line_of(alert.rule.file, alert.rule.line, "expr"),
            "always-fires",
            f"{alert.name} compares with `bool`, which gives 0 instead of nothing, so that it always fires.",
            "remove bool",
        )


def _kept_firing(chain: Chain, alert: Alert) -> Iterator[Finding]:
    if alert.rule.keep_firing_for and promql.duration_ms(alert.rule.keep_firing_for):
        yield error(
            alert.rule.file,
            chain.sources.line_of(alert.rule.file, alert.rule.line, "keep_firing_for"),
            "down-keeps-firing",
            f"{alert.name} scales down and keeps firing for {alert.rule.keep_firing_for} after its cause has gone,"
            " so that it goes on shrinking what is busy again.",
            "remove keep_firing_for",
        )


def _hysteresis(chain: Chain) -> Iterator[Finding]:
    ups: dict[str, list[tuple[Alert, Comparison]]] = {}
    for up in chain.scaling:
        for high in _compared(chain, up) if up.action == "scale_up" else ():
            if high.above:
                ups.setdefault(high.base, []).append((up, high))
    for down in chain.scaling:
        for low in _compared(chain, down) if down.action == "scale_down" else ():
            for up, high in ups.get(low.base, ()) if not low.above else ():
                if overlap(up.labels, down.labels, _WORKLOAD):
                    yield from _band(chain, up, high, down, low)


def _band(chain: Chain, up: Alert, high: Comparison, down: Alert, low: Comparison) -> Iterator[Finding]:
    line = chain.sources.line_of(down.rule.file, down.rule.line, "expr")
    if low.threshold >= high.threshold:
        yield error(
            down.rule.file,
            line,
            "no-hysteresis",
            f"{down.name} fires below {low.threshold:g} and {up.name} above {high.threshold:g} of the same"
            f" series ({low.base}), so that one of them always fires.",
            f"lower the threshold of {down.name} to less than {high.threshold / 2:g}",
        )
    elif low.threshold > high.threshold / 2 and _is_average(chain, low.base):
        yield warning(
            down.rule.file,
            line,
            "narrow-hysteresis",
            f"{up.name} fires above {high.threshold:g}, and a second replica brings that to"
            f" {high.threshold / 2:g}, where {down.name} (below {low.threshold:g}) takes it away again.",
            f"lower the threshold of {down.name} to less than {high.threshold / 2:g}",
        )


def _compared(chain: Chain, alert: Alert) -> list[Comparison]:
    try:
        return comparisons(parse(alert.rule.expr), chain.records)
    except ValueError:
        return []


def _is_average(chain: Chain, base: str) -> bool:
    """Whether a second replica halves it: a mean over replicas, and no total."""
    if "(" in base:  # an aggregation written into the alert
        return base.startswith("avg")
    if base.rpartition(":")[2].startswith("avg"):
        return True
    rules = chain.records.by_name.get(base, [])
    return any(rule.expr.strip().startswith("avg") for _, rule in rules)


def _same_name(chain: Chain) -> Iterator[Finding]:
    """A group that stands in two files is loaded by neither promtool nor Prometheus without trouble."""
    seen: dict[tuple[str, str], int] = {}
    for group in chain.sources.groups:
        key = (group.file, group.name)
        if key in seen:
            yield error(
                group.file,
                group.line,
                "group-twice",
                f"Group {group.name} stands on line {seen[key]} already, and Prometheus refuses the file.",
                "give it another name",
            )
        seen.setdefault(key, group.line)
