"""Whose pods a pod is, among the targets that have asked for theirs."""

from collections import OrderedDict
from collections.abc import Mapping

from responder.kube import selectors
from responder.model import TargetRef

_KEPT = 50_000
"""Targets come and go for years; who has not asked for longest is told no more."""


class Interest:
    """Targets by their selectors, found from a pod's labels without trying each. Not thread-safe."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._selectors: OrderedDict[TargetRef, str] = OrderedDict()
        self._targets: dict[tuple[str, str, str], set[TargetRef]] = {}

    def note(self, target: TargetRef, selector: str) -> None:
        """Remember what the target's pods are; raises ValueError for what is no selector."""
        known = self._selectors.get(target)
        if known != selector:
            place = _place(target, selector)
            if known is not None:
                self._remove(target)
            self._selectors[target] = selector
            self._targets.setdefault(place, set()).add(target)
        self._selectors.move_to_end(target)
        while len(self._selectors) > self._most:
            self._remove(next(iter(self._selectors)))

    def of(self, namespace: str, labels: Mapping[str, str]) -> set[TargetRef]:
        """The targets of a namespace whose selectors these labels fit."""
        places = [(namespace, key, value) for key, value in labels.items()] + [(namespace, "", "")]
        return {
            target
            for place in places
            for target in self._targets.get(place, ())
            if all(term.holds(labels) for term in selectors.parse(self._selectors[target]))
        }

    def _remove(self, target: TargetRef) -> None:
        place = _place(target, self._selectors.pop(target))
        targets = self._targets[place]
        targets.discard(target)
        if not targets:
            del self._targets[place]


def _place(target: TargetRef, selector: str) -> tuple[str, str, str]:
    """One label that its pods must have; for a selector that asks for none, a place that all pods come by."""
    for term in selectors.parse(selector):
        if term.only is not None:
            return target.namespace, term.key, term.only
    return target.namespace, "", ""
