"""Alertmanager's matchers: `name="value"` with = != =~ !~, on RE2, anchored."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Matcher:
    name: str
    op: str
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if the label satisfies it; an absent label is the empty string."""
        raise NotImplementedError


def parse(text: str) -> Matcher:
    """Read one matcher as Alertmanager does. Raises ValueError with a sentence."""
    raise NotImplementedError
