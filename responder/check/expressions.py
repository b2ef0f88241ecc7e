"""PromQL read by a real parser: which labels an expression leaves, what it stands on, what it compares. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import promql_parser as pp

from responder import promql
from responder.check.labels import ABSENT, ANYTHING, Label, Labels, assume, fixed, join
from responder.matchers import Matcher, all_match
from responder.rules import Group, Rule

_MATCH_OPS = {
    str(pp.MatchOp.Equal): "=",
    str(pp.MatchOp.NotEqual): "!=",
    str(pp.MatchOp.Re): "=~",
    str(pp.MatchOp.NotRe): "!~",
}
_KEEP_LABELS = ("topk", "bottomk", "limitk", "limit_ratio")
_SETS = ("and", "or", "unless")
_COMPARISONS = (">", ">=", "<", "<=", "==", "!=")
_RAW = ("vllm:", "sglang:")
"""Raw metrics that have colons."""
_TURNED = str.maketrans("<>", "><")
_NO_LABELS = (
    "vector",
    "time",
    "scalar",
    "pi",
    "minute",
    "hour",
    "month",
    "year",
    "day_of_month",
    "day_of_week",
)
_GONE_WITH_PODS = re.compile(
    r"DCGM_|(?:gpu|vllm|sglang|tgi|nv|amd|xpum|habanalabs|container|process|python|http|num_requests)[:_]"
    r"|kube_pod_|up$|te_"
)


def parse(expr: str) -> Any:
    """The syntax tree. Raises ValueError with a sentence."""
    try:
        return pp.parse(expr)
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from None


def unwrapped(node: Any) -> Any:
    """The tree without parentheses around it."""
    while isinstance(node, pp.ParenExpr):
        node = node.expr
    return node


def selectors(node: Any) -> Iterator[Any]:
    """Every selector in the tree, from left to right."""
    # The parser's own walk copies the tree at each step, and takes seconds for some hundreds of terms.
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, pp.VectorSelector):
            yield item
        elif isinstance(item, pp.MatrixSelector):
            yield item.vector_selector
        elif isinstance(item, pp.BinaryExpr):
            waiting += [item.rhs, item.lhs]
        elif isinstance(item, pp.Call):
            waiting += reversed(item.args)
        elif isinstance(item, pp.AggregateExpr):
            waiting += [part for part in (item.param, item.expr) if part is not None]
        elif isinstance(item, pp.ParenExpr | pp.UnaryExpr | pp.SubqueryExpr):
            waiting.append(item.expr)


def matchers_of(selector: Any) -> tuple[Matcher, ...]:
    """The selector's matchers, `__name__` left out; those of an `or` within braces are not told."""
    return tuple(
        Matcher(matcher.name, _MATCH_OPS[str(matcher.op)], matcher.value)
        for matcher in selector.matchers.matchers
        if matcher.name != "__name__"
    )


def _named_by(selector: Any) -> tuple[Matcher, ...]:
    """The selector's matchers of the metric's name."""
    return tuple(
        Matcher(matcher.name, _MATCH_OPS[str(matcher.op)], matcher.value)
        for matcher in selector.matchers.matchers
        if matcher.name == "__name__"
    )


def _of_records(matcher: Matcher) -> bool:
    """Whether a matcher of the metric's name picks records alone, by the colons that only those should have."""
    if matcher.op not in ("=", "=~"):
        return False
    depth, choices = 0, [""]
    for char in matcher.value if matcher.op == "=~" else "":
        depth += (char == "(") - (char == ")")
        if char == "|" and not depth:
            choices.append("")
        choices[-1] += char
    return matcher.op == "=" or all(":" in choice and not choice.startswith(_RAW) for choice in choices)


def called(call: Any) -> str:
    return str(call.func.name)


def vector_args(call: Any) -> list[Any]:
    """A call's arguments that are series."""
    return [
        arg for arg in call.args if not isinstance(unwrapped(arg), pp.StringLiteral) and not _is_scalar(arg)
    ]


@dataclass(slots=True)
class Records:
    """The recording rules, by the name that they record, and what has been found out about them."""

    by_name: dict[str, list[tuple[Group, Rule]]] = field(default_factory=dict)
    _labels: dict[str, Labels] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _ways: dict[int, list[tuple[Group, Rule]]] = field(default_factory=dict)
    _surviving: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Iterable[Group]) -> "Records":
        records = cls()
        for group in groups:
            for rule in group.rules:
                if rule.record:
                    records.by_name.setdefault(rule.record, []).append((group, rule))
        return records

    def names(self, selector: Any) -> list[str] | None:
        """The metrics that a selector picks, of a pattern's the records; None when none is known."""
        if selector.name:
            return [str(selector.name)]
        named = _named_by(selector)
        listed = assume(Labels(open=True), named).get("__name__").values
        if listed is not None:
            return sorted(listed)
        if not named:
            return None
        return [name for name in self.by_name if all_match(named, {"__name__": name})] or None

    # --- Labels ----------------------------------------------------------------------------------

    def rule_labels(self, group: Group, rule: Rule) -> Labels:
        """The labels of what a rule gives: its expression's, and those that rule and group add."""
        try:
            labels = self.labels(parse(rule.expr))
        except ValueError:
            labels = Labels(open=True)
        added = group.options.get("labels")
        own = {**(added if isinstance(added, dict) else {}), **rule.labels}
        for name, value in own.items():
            label = ANYTHING if "{{" in str(value) else Label(frozenset({str(value)}))
            labels = labels.with_label(str(name), label)
        if rule.alert:
            labels = labels.with_label("alertname", Label(frozenset({rule.alert})))
        return labels

    def labels(self, node: Any) -> Labels:
        """The labels that an expression's series can have."""
        node = unwrapped(node)
        if isinstance(node, pp.VectorSelector):
            return assume(self._selected(node), matchers_of(node))
        if isinstance(node, pp.MatrixSelector):
            return self.labels(node.vector_selector)
        if isinstance(node, pp.SubqueryExpr | pp.UnaryExpr):
            return self.labels(node.expr)
        if isinstance(node, pp.AggregateExpr):
            return self._aggregated(node)
        if isinstance(node, pp.BinaryExpr):
            return self._combined(node)
        if isinstance(node, pp.Call):
            return self._of_call(node)
        return Labels()

    def _selected(self, selector: Any) -> Labels:
        names = self.names(selector) or []
        found = [self._of_metric(name) for name in names]
        if not selector.name and not any(map(_of_records, _named_by(selector))):
            found.append(Labels(open=True))  # raw metrics beside the records
        return join(found)

    def _of_metric(self, name: str) -> Labels:
        if name in self._labels:
            return self._labels[name]
        if name not in self.by_name or name in self._busy:
            return Labels(open=True)
        self._busy.add(name)
        found = join([self.rule_labels(group, rule) for group, rule in self.by_name[name]])
        self._busy.discard(name)
        self._labels[name] = found
        return found

    def _aggregated(self, node: Any) -> Labels:
        inner = self.labels(node.expr)
        operator = str(node.op)
        if operator in _KEEP_LABELS:
            return inner
        if node.modifier is None:
            found = Labels()
        elif node.modifier.type == pp.AggModifierType.By:
            found = inner.only(node.modifier.labels)
        else:
            found = inner.without(node.modifier.labels)
        if operator == "count_values" and isinstance(unwrapped(node.param), pp.StringLiteral):
            found = found.with_label(unwrapped(node.param).val, ANYTHING)
        return found

    def _combined(self, node: Any) -> Labels:
        left, right = unwrapped(node.lhs), unwrapped(node.rhs)
        if _is_scalar(right):
            return self.labels(left)
        if _is_scalar(left):
            return self.labels(right)
        if str(node.op) in ("and", "unless"):
            return self.labels(left)
        if str(node.op) == "or":
            return join([self.labels(left), self.labels(right)])
        return self._matched(self.labels(left), self.labels(right), node.modifier)

    def _matched(self, left: Labels, right: Labels, modifier: Any) -> Labels:
        """Labels of an arithmetic or comparison operator between series."""
        if modifier is None:
            return left
        match modifier.card:
            case pp.VectorMatchCardinality.ManyToOne:
                return _group(left, right, modifier.group_labels or ())
            case pp.VectorMatchCardinality.OneToMany:
                return _group(right, left, modifier.group_labels or ())
        if modifier.matching is None:
            return left
        names = modifier.matching.labels
        if modifier.matching.type == pp.LabelModifierType.Include:
            return left.only(names)
        return left.without(names)

    def _of_call(self, call: Any) -> Labels:
        name = called(call)
        series = vector_args(call)
        if name in _NO_LABELS and (name in {"vector", "scalar"} or not series):
            return Labels()
        if name in ("absent", "absent_over_time"):
            return self._of_absent(series)
        if not series:
            return Labels()
        inner = self.labels(series[0])
        if name.startswith("histogram_quantile"):
            return inner.without(("le",))
        if name == "label_replace":
            return _replaced(inner, [unwrapped(arg).val for arg in call.args[1:]])
        if name == "label_join":
            texts = [unwrapped(arg).val for arg in call.args[1:]]
            return _joined(inner, texts[0], texts[1], texts[2:])
        return inner

    def _of_absent(self, series: Sequence[Any]) -> Labels:
        inner = unwrapped(series[0]) if series else None
        inner = inner.vector_selector if isinstance(inner, pp.MatrixSelector) else inner
        if not isinstance(inner, pp.VectorSelector):
            return Labels()
        return fixed({matcher.name: matcher.value for matcher in matchers_of(inner) if matcher.op == "="})

    # --- What an expression stands on ---------------------------------------------------------------

    def behind(self, group: Group, rule: Rule) -> list[tuple[Group, Rule]]:
        """The longest way of recording rules to a rule, with itself: evaluations that follow one another."""
        return [*self._before(rule), (group, rule)]

    def _before(self, rule: Rule) -> list[tuple[Group, Rule]]:
        if id(rule) in self._ways:
            return self._ways[id(rule)]
        # What stands on itself adds nothing; and each rule is followed once, however many ways lead to it.
        self._ways[id(rule)] = []
        try:
            tree = parse(rule.expr)
        except ValueError:
            return []
        longest: list[tuple[Group, Rule]] = []
        for name in sorted({name for selector in selectors(tree) for name in self.names(selector) or ()}):
            for maker in self.by_name.get(name, ()):
                way = [*self._before(maker[1]), maker]
                if _length(way) > _length(longest):
                    longest = way
        self._ways[id(rule)] = longest
        return longest

    def base(self, node: Any) -> str:
        """The series that an expression looks at, through windows and records that only smooth it."""
        node = unwrapped(node)
        if isinstance(node, pp.BinaryExpr):
            if str(node.op) in ("and", "unless"):
                return self.base(node.lhs)
            if _is_scalar(unwrapped(node.rhs)) and str(node.op) in _COMPARISONS:
                return self.base(node.lhs)
            return ""
        if isinstance(node, pp.MatrixSelector):
            return self.base(node.vector_selector)
        if isinstance(node, pp.SubqueryExpr):
            return self.base(node.expr)
        if isinstance(node, pp.Call):
            series = vector_args(node)
            smoothing = called(node).endswith("_over_time") or called(node) in ("clamp", "predict_linear")
            return self.base(series[0]) if smoothing and series else ""
        if not isinstance(node, pp.VectorSelector) or not node.name:
            return ""
        rules = self.by_name.get(str(node.name), [])
        if len(rules) == 1 and str(node.name) not in self._busy:
            self._busy.add(str(node.name))
            below = self._base_of_rule(rules[0][1])
            self._busy.discard(str(node.name))
            if below:
                return below
        return str(node.name)

    def _base_of_rule(self, rule: Rule) -> str:
        try:
            return self.base(parse(rule.expr))
        except ValueError:
            return ""

    def survives_zero(self, node: Any) -> bool:
        """Whether an expression can have a value while its workload has no pods."""
        node = unwrapped(node)
        if isinstance(node, pp.VectorSelector):
            names = self.names(node)
            if names is None:
                return True
            return any(self._name_survives(name) for name in names)
        if isinstance(node, pp.MatrixSelector):
            return self.survives_zero(node.vector_selector)
        if isinstance(node, pp.SubqueryExpr | pp.UnaryExpr | pp.AggregateExpr):
            return self.survives_zero(node.expr)
        if isinstance(node, pp.BinaryExpr):
            left = self.survives_zero(node.lhs)
            if str(node.op) == "unless":
                return left
            right = self.survives_zero(node.rhs)
            return (left or right) if str(node.op) == "or" else (left and right)
        if isinstance(node, pp.Call):
            if called(node) in ("absent", "absent_over_time"):
                return True
            return all(self.survives_zero(arg) for arg in vector_args(node))
        return True

    def _name_survives(self, name: str) -> bool:
        if name not in self._surviving:
            self._surviving[name] = False  # of what stands on itself alone
            self._surviving[name] = self._makers_survive(name)
        return self._surviving[name]

    def _makers_survive(self, name: str) -> bool:
        if name not in self.by_name:
            return _GONE_WITH_PODS.match(name) is None
        for _, rule in self.by_name[name]:
            try:
                if self.survives_zero(parse(rule.expr)):
                    return True
            except ValueError:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Comparison:
    """One side of an alert: a series, above or below a number."""

    base: str
    above: bool
    threshold: float


def comparisons(node: Any, records: Records) -> list[Comparison]:
    """What must be above or below which number for the expression to have a value."""
    node = unwrapped(node)
    if not isinstance(node, pp.BinaryExpr):
        return []
    operator = str(node.op)
    if operator == "and":
        return [*comparisons(node.lhs, records), *comparisons(node.rhs, records)]
    if operator == "unless":
        return comparisons(node.lhs, records)
    compared, number = unwrapped(node.lhs), unwrapped(node.rhs)
    if isinstance(compared, pp.NumberLiteral):
        compared, number = number, compared
        operator = operator.translate(_TURNED)
    if operator not in (">", ">=", "<", "<=") or not isinstance(number, pp.NumberLiteral):
        return []
    base = records.base(compared) or (str(compared) if isinstance(compared, pp.AggregateExpr) else "")
    return [Comparison(base, operator.startswith(">"), float(number.val))] if base else []


def always(node: Any) -> bool:
    """Whether an expression has a value whatever its comparisons find, since `bool` makes them 0 or 1."""
    node = unwrapped(node)
    if not isinstance(node, pp.BinaryExpr):
        return False
    operator = str(node.op)
    if operator == "or":
        return always(node.lhs) or always(node.rhs)
    if operator == "and":
        return always(node.lhs) and always(node.rhs)
    return operator in _COMPARISONS and node.modifier is not None and bool(node.modifier.return_bool)


def interval_ms(group: Group, default_ms: int) -> int:
    return promql.duration_ms(group.interval) if group.interval else default_ms


def _length(way: Sequence[tuple[Group, Rule]], default_ms: int = 30_000) -> int:
    """In milliseconds: rules of one group see one another within one evaluation."""
    return sum({(group.file, group.name): interval_ms(group, default_ms) for group, _ in way}.values())


def _is_scalar(node: Any) -> bool:
    if isinstance(node, pp.NumberLiteral):
        return True
    if isinstance(node, pp.Call):
        return called(node) in ("time", "scalar", "pi")
    if isinstance(node, pp.UnaryExpr | pp.ParenExpr):
        return _is_scalar(node.expr)
    return isinstance(node, pp.BinaryExpr) and _is_scalar(node.rhs) and _is_scalar(node.lhs)


def _group(many: Labels, one: Labels, names: Iterable[str]) -> Labels:
    """`group_left (names)`: the many side's labels, and these of the one side."""
    for name in names:
        many = many.with_label(name, one.get(name))
    return many


def _replaced(inner: Labels, texts: Sequence[str]) -> Labels:
    """`label_replace`: where the pattern does not match, the label stays as it was."""
    target, replacement, source, pattern = texts
    before, origin = inner.get(target), inner.get(source)
    whole = replacement in ("$1", "${1}") and pattern in ("(.*)", "(.+)")
    if origin.values is not None:
        found = [_replaced_one(value, before, replacement, pattern) for value in sorted(origin.values)]
    elif pattern in (".*", "(.*)") or "$" not in replacement:
        found = [origin if whole else ANYTHING if "$" in replacement else Label(frozenset({replacement}))]
        found += [] if pattern in (".*", "(.*)") else [before]
    else:
        found = [ANYTHING]
    return inner.with_label(target, join_labels(found or [before]))


def _replaced_one(value: str, before: Label, replacement: str, pattern: str) -> Label:
    """What one value of the source makes of the target."""
    if not Matcher("", "=~", pattern).matches({"": value}):
        return before
    if "$" not in replacement:
        return Label(frozenset({replacement}))
    if replacement in ("$1", "${1}") and pattern in ("(.*)", "(.+)"):
        return Label(frozenset({value}))
    return ANYTHING


def join_labels(many: Sequence[Label]) -> Label:
    return join([Labels({"x": label}) for label in many]).get("x")


def _joined(inner: Labels, target: str, separator: str, sources: Sequence[str]) -> Labels:
    if len(sources) == 1:
        return inner.with_label(target, inner.get(sources[0]))
    # Between labels that are not there, the separator still stands.
    if not separator and not any(inner.possible(source) for source in sources):
        return inner.with_label(target, ABSENT)
    return inner.with_label(target, ANYTHING)
