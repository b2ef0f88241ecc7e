"""Label selectors, as list requests and a Scale's status write them, held against labels here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_KEY = r"[A-Za-z0-9][A-Za-z0-9._/-]*"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<not>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|(?P<op>==?|!=)\s*(?P<value>[^,()\s]*))?)"
    r"\s*(?:,|$)"
)


@dataclass(frozen=True, slots=True)
class Term:
    """A label's wanted values, or with `negated` unwanted ones; None stands for any value at all."""

    key: str
    values: frozenset[str] | None
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found != self.negated

    @property
    def only(self) -> str | None:
        """The one value that the label must have, if it is one."""
        if self.values is None or self.negated or len(self.values) != 1:
            return None
        return next(iter(self.values))


@lru_cache(maxsize=20_000)
def parse(selector: str) -> tuple[Term, ...]:
    """The terms, all of which must hold; raises ValueError for what is no selector, "" included."""
    terms: list[Term] = []
    at = 0
    while at < len(selector):
        match = _TERM.match(selector, at)
        if match is None or match.end() == at:
            raise ValueError(f"{selector!r} is not a label selector")
        terms.append(_term(match))
        at = match.end()
    if not terms:
        raise ValueError("an empty selector would select everything")
    return tuple(terms)


def _term(match: re.Match[str]) -> Term:
    if match["absent"]:
        return Term(match["not"], None, negated=True)
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Term(match["key"], values, negated=match["set"] == "notin")
    if match["op"]:
        return Term(match["key"], frozenset({match["value"]}), negated=match["op"] == "!=")
    return Term(match["key"], None)
