"""Which labels the series of an expression can have, as far as the expression and the recording rules say.

Pure. What is not known is "maybe": a finding is made only of what cannot be otherwise.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from responder.matchers import Matcher

_ALTERNATIVES = re.compile(r"\(?([\w.:/-]+(?:\|[\w.:/-]+)*)\)?")


class Truth(StrEnum):
    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


@dataclass(frozen=True, slots=True)
class Label:
    """What one label can be. `values` is None when anything can stand there; "" is the label's absence."""

    values: frozenset[str] | None = None
    matchers: frozenset[Matcher] = frozenset()
    """Known to hold, beyond `values`."""

    def can_be(self, value: str) -> bool:
        if self.values is not None:
            return value in self.values
        return all(matcher.matches({matcher.name: value}) for matcher in self.matchers)


ABSENT = Label(frozenset({""}))
ANYTHING = Label()


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of a set of series. An `open` set can have labels beside the known ones, a closed one cannot."""

    known: Mapping[str, Label] = field(default_factory=dict)
    open: bool = False
    outer: frozenset[str] = frozenset()
    """Those that Prometheus may put on alerts itself, by external_labels that nobody gave."""

    def get(self, name: str) -> Label:
        found = self.known.get(name, ANYTHING if self.open else ABSENT)
        return ANYTHING if found == ABSENT and name in self.outer else found

    def possible(self, name: str) -> bool:
        """Whether the label can be there at all."""
        values = self.get(name).values
        return values is None or any(values)

    def sure(self, name: str) -> str | None:
        """The label's value when it can be only one."""
        values = self.get(name).values
        return next(iter(values)) if values is not None and len(values) == 1 else None

    def with_label(self, name: str, label: Label) -> "Labels":
        return Labels({**self.known, name: label}, self.open, self.outer - {name})

    def only(self, names: Iterable[str]) -> "Labels":
        """What is left by `by (names)`."""
        return Labels({name: self.get(name) for name in names if self.possible(name)})

    def without(self, names: Iterable[str]) -> "Labels":
        return Labels({**self.known, **dict.fromkeys(names, ABSENT)}, self.open)


def fixed(labels: Mapping[str, str]) -> Labels:
    """Exactly these labels."""
    return Labels({name: Label(frozenset({value})) for name, value in labels.items()})


def truth(matchers: Iterable[Matcher], labels: Labels) -> Truth:
    """Whether all matchers hold for series with such labels."""
    found = Truth.YES
    for matcher in matchers:
        one = _holds(matcher, labels.get(matcher.name))
        if one is Truth.NO:
            return Truth.NO
        if one is Truth.MAYBE:
            found = Truth.MAYBE
            # What the others find on this label is of what this one leaves there.
            labels = assume(labels, (matcher,))
    return found


def _holds(matcher: Matcher, label: Label) -> Truth:
    if label.values is not None:
        answers = {matcher.matches({matcher.name: value}) for value in label.values}
        if len(answers) == 1:
            return Truth.YES if answers.pop() else Truth.NO
        return Truth.MAYBE
    if matcher in label.matchers:
        return Truth.YES
    if matcher.op == "=" and not label.can_be(matcher.value):
        return Truth.NO
    if matcher.op == "!=" and not label.can_be(matcher.value):
        return Truth.YES
    options = _options(matcher)
    if matcher.op == "=~" and options is not None and not any(map(label.can_be, options)):
        return Truth.NO
    return Truth.MAYBE


def assume(labels: Labels, matchers: Iterable[Matcher]) -> Labels:
    """The labels of those series for which the matchers hold."""
    for matcher in matchers:
        labels = labels.with_label(matcher.name, _narrowed(labels.get(matcher.name), matcher))
    return labels


def _narrowed(label: Label, matcher: Matcher) -> Label:
    if label.values is not None:
        kept = frozenset(value for value in label.values if matcher.matches({matcher.name: value}))
        return Label(kept)
    options = _options(matcher) if matcher.op in ("=", "=~") else None
    if options is not None:
        return Label(frozenset(filter(label.can_be, options)))
    return replace(label, matchers=label.matchers | {matcher})


def _options(matcher: Matcher) -> tuple[str, ...] | None:
    """The values that a matcher allows, if they can be listed."""
    if matcher.op == "=":
        return (matcher.value,)
    plain = _ALTERNATIVES.fullmatch(matcher.value)
    if plain is None or "." in plain[1]:
        return None
    return tuple(plain[1].split("|"))


def join(many: Sequence[Labels]) -> Labels:
    """What series of any of these can have."""
    if not many:
        return Labels(open=True)
    names = {name for labels in many for name in labels.known}
    known = {name: _either([labels.get(name) for labels in many]) for name in names}
    return Labels(known, any(labels.open for labels in many))


def _either(many: Sequence[Label]) -> Label:
    if any(label.values is None for label in many):
        common = frozenset.intersection(*(label.matchers for label in many))
        return Label(None, common)
    return Label(frozenset(value for label in many for value in label.values or ()))


def impossible(labels: Labels) -> bool:
    """Whether no series can have such labels."""
    return any(label.values is not None and not label.values for label in labels.known.values())


def overlap(one: Labels, other: Labels, names: Iterable[str]) -> bool:
    """Whether series of both can agree in these labels."""
    for name in names:
        here, there = one.get(name), other.get(name)
        if here.values is not None and not any(map(there.can_be, here.values)):
            return False
        if there.values is not None and not any(map(here.can_be, there.values)):
            return False
    return True
