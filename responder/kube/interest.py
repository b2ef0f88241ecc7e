"""Whose pods a pod is, among the targets that have asked for theirs."""

from collections.abc import Mapping

from responder.kube import selectors
from responder.model import TargetRef


class Interest:
    """Targets by their selectors, found from a pod's labels without trying each. Not thread-safe."""

    def __init__(self) -> None:
        self._selectors: dict[TargetRef, str] = {}
        self._targets: dict[tuple[str, str, str], set[TargetRef]] = {}

    def note(self, target: TargetRef, selector: str) -> None:
        """Remember what the target's pods are; raises ValueError for what is no selector."""
        known = self._selectors.get(target)
        if known == selector:
            return
        place = _place(target, selector)
        if known is not None:
            self._targets[_place(target, known)].discard(target)
        self._selectors[target] = selector
        self._targets.setdefault(place, set()).add(target)

    def of(self, namespace: str, labels: Mapping[str, str]) -> set[TargetRef]:
        """The targets of a namespace whose selectors these labels fit."""
        places = [(namespace, key, value) for key, value in labels.items()] + [(namespace, "", "")]
        return {
            target
            for place in places
            for target in self._targets.get(place, ())
            if all(term.holds(labels) for term in selectors.parse(self._selectors[target]))
        }


def _place(target: TargetRef, selector: str) -> tuple[str, str, str]:
    """One label that its pods must have; for a selector that asks for none, a place that all pods come by."""
    for term in selectors.parse(selector):
        if term.only is not None:
            return target.namespace, term.key, term.only
    return target.namespace, "", ""
