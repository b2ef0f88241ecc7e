"""What the schema cannot say of a policy file: keys that must fit one another, and what could never act."""

from collections.abc import Iterator
from typing import Any

from responder import matchers, templates
from responder.config_yaml import Document, Path, where
from responder.matchers import Matcher
from responder.model import ScaleType
from responder.policy import Settings, allowed

_STEPS = (ScaleType.PODS, ScaleType.PERCENT)
_SIZED = (ScaleType.UTILIZATION, ScaleType.AVERAGE_VALUE)
_WITHOUT_SCALE = ("DaemonSet", "Job", "CronJob", "Pod")


def check_all(document: Document) -> None:
    """Add a fault for everything wrong in the parts of the file that the schema allows."""
    if not isinstance(document.value, dict):
        return
    checker = _Checker(document)
    checker.matchers(("heartbeat",))
    for key in ("holds", "policies"):
        checker.unique_names((key,))
    for path in checker.items(("holds",)):
        checker.matchers(path)
    for path in checker.items(("policies",)):
        checker.policy(path)
    checker.reachable(("policies",), "policy")


class _Checker:
    """Walks the document; what has a fault of the schema's is not looked into again."""

    def __init__(self, document: Document) -> None:
        self._document = document
        paths = (fault.path for fault in document.faults)
        self._faulty = {path[:length] for path in paths for length in range(len(path) + 1)}

    def get(self, path: Path) -> Any:
        """What stands there, or None; None also if the schema has anything against it."""
        value = self._document.value
        for part in path:
            if isinstance(part, int):
                value = value[part] if isinstance(value, list) and part < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return None if path in self._faulty else value

    def has(self, path: Path) -> bool:
        """True if the key is there, faulty or not."""
        return path in self._document.lines

    def items(self, path: Path) -> Iterator[Path]:
        """Paths of a list's items, faulty or not."""
        index = 0
        while self.has((*path, index)):
            yield (*path, index)
            index += 1

    def fault(self, path: Path, message: str) -> None:
        self._document.fault(path, message)

    def unique_names(self, path: Path) -> None:
        first: dict[str, Path] = {}
        for item in self.items(path):
            name = self.get((*item, "name"))
            if isinstance(name, str) and first.setdefault(name, item) != item:
                message = f"'{name}' is the name of {where(first[name])} too; give it another"
                self.fault((*item, "name"), message)

    def matchers(self, path: Path) -> None:
        """Say which of an item's matchers cannot be read."""
        for index, text in enumerate(self.get((*path, "matchers")) or ()):
            try:
                matchers.parse(text)
            except ValueError as error:
                self.fault((*path, "matchers", index), _matcher_fault(text, str(error)))

    def policy(self, path: Path) -> None:
        """Check a policy and all within it."""
        self.matchers(path)
        triggers = list(self.items((*path, "triggers")))
        low, high = self.get((*path, "minReplicas")), self.get((*path, "maxReplicas"))
        if low is not None and high is not None and low > high:
            message = f"{low} is above maxReplicas {high}; raise maxReplicas or lower minReplicas"
            self.fault((*path, "minReplicas"), message)
        if not self.has((*path, "maxReplicas")) and any(self.has((*at, "scale")) for at in triggers):
            self.fault(path, "key maxReplicas is missing; add it")
        target = self.get((*path, "scaleTargetRef"))
        if target is not None:
            self._target(target, (*path, "scaleTargetRef"))
        self.unique_names((*path, "triggers"))
        for at in triggers:
            self._trigger(at, 1 if low is None else low, high)
        self.reachable((*path, "triggers"), "trigger")

    def _target(self, target: dict[str, str], path: Path) -> None:
        for key, legal, what in (
            ("namespace", templates.is_namespace, "a legal Kubernetes namespace"),
            ("name", templates.is_object_name, "a legal Kubernetes name"),
        ):
            text = target[key]
            try:
                parts = templates.parse(text)
            except ValueError as error:
                self.fault((*path, key), str(error))
                continue
            # With any value in its places, a template with an illegal rest is never a legal name.
            if not legal("".join(part if isinstance(part, str) else "a" for part in parts)):
                self.fault((*path, key), f"'{text}' is not {what}; use lower case, digits and '-'")
            elif key == "namespace" and parts == (text,) and not self._allowed(text):
                message = f"'{text}' is not among allowedNamespaces, so nothing would ever be scaled; add it"
                self.fault((*path, key), message)
        if target["kind"] in _WITHOUT_SCALE:
            message = f"a {target['kind']} cannot be scaled; name a kind with a scale subresource"
            self.fault((*path, "kind"), message)

    def _allowed(self, namespace: str) -> bool:
        return allowed(
            Settings((), allowed_namespaces=tuple(self.get(("allowedNamespaces",)) or ())), namespace
        )

    def _trigger(self, path: Path, low: int, high: int | None) -> None:
        self.matchers(path)
        scales, acts_on_node = self.has((*path, "scale")), self.has((*path, "node"))
        if scales == acts_on_node:
            both = "both scale and node" if scales else "neither scale nor node"
            self.fault(path, f"has {both}; a trigger needs one of them")
            return
        scale = self.get((*path, "scale"))
        kind = "node" if acts_on_node else self.get((*path, "scale", "type"))
        if kind is None:
            return
        named = kind if acts_on_node else f"type {kind}"
        if self.has((*path, "maxStepsPerEpisode")) and kind not in _STEPS:
            message = f"counts steps of Pods and Percent, and means nothing with {named}; remove it"
            self.fault((*path, "maxStepsPerEpisode"), message)
        if self.has((*path, "evaluationSeconds")) and kind not in _SIZED:
            message = f"is for Utilization and AverageValue, and means nothing with {named}; remove it"
            self.fault((*path, "evaluationSeconds"), message)
        if scale is not None:
            self._scale(scale, (*path, "scale"), low, high)

    def _scale(self, scale: dict[str, Any], path: Path, low: int, high: int | None) -> None:
        kind = scale["type"]
        needed, useless = ("target", "value") if kind in _SIZED else ("value", "target")
        if needed not in scale:
            self.fault(path, f"key {needed} is missing; type {kind} needs it")
        if useless in scale:
            self.fault((*path, useless), f"means nothing with type {kind}; use {needed} instead")
        if kind in _SIZED:
            self._sized(scale, path)
            return
        for key in ("valueFrom", "fallback"):
            if key in scale:
                message = (
                    f"is for Utilization and AverageValue, and means nothing with type {kind}; remove it"
                )
                self.fault((*path, key), message)
        if "value" in scale:
            self._amount(kind, scale["direction"], scale["value"], (*path, "value"))
            if kind == ScaleType.REPLICAS:
                self._within(scale["value"], low, high, (*path, "value"))

    def _sized(self, scale: dict[str, Any], path: Path) -> None:
        source = scale.get("valueFrom")
        if source is None:
            self.fault(path, f"key valueFrom is missing; type {scale['type']} needs a query or an annotation")
        elif len(source) != 1:
            has = "both query and annotation" if source else "neither query nor annotation"
            self.fault((*path, "valueFrom"), f"has {has}; give one of them")
        if source and "query" in source:
            try:
                templates.check_query(source["query"])
            except ValueError as error:
                self.fault((*path, "valueFrom", "query"), str(error))
        fallback = scale.get("fallback")
        if fallback is None:
            return
        at = (*path, "fallback")
        if scale["direction"] != "Up":
            self.fault(at, "is only for direction Up: without a value nothing is scaled down; remove it")
        self._amount(fallback["type"], scale["direction"], fallback["value"], (*at, "value"))

    def _amount(self, kind: str, direction: str, value: float, path: Path) -> None:
        if kind != ScaleType.PERCENT and value != int(value):
            self.fault(path, f"{value} is not a whole number, and {kind} need one; round it")
        elif kind != ScaleType.REPLICAS and value <= 0:
            self.fault(path, f"a step of {value} never changes anything; raise it above 0")
        elif kind == ScaleType.PERCENT and direction == "Down" and value > 100:
            self.fault(path, f"{value} percent down is more than all replicas; write 100 or less")

    def _within(self, value: float, low: int, high: int | None, path: Path) -> None:
        if value < low:
            self.fault(
                path, f"{value} is below minReplicas {low} and is never reached; raise it or lower that"
            )
        elif high is not None and value > high:
            self.fault(
                path, f"{value} is above maxReplicas {high} and is never reached; lower it or raise that"
            )

    def reachable(self, path: Path, what: str) -> None:
        """Say which items never get an alert, because one ahead of them takes all of theirs."""
        seen: list[tuple[Path, frozenset[Matcher]]] = []
        for item in self.items(path):
            wanted = self._matcher_set(item)
            if wanted is None:
                continue
            taken = next((ahead for ahead, matchers_ in seen if matchers_ <= wanted), None)
            if taken is not None:
                message = f"never gets an alert: {where(taken)} takes them all; put this {what} ahead of it"
                self.fault(item, message)
            seen.append((item, wanted))

    def _matcher_set(self, item: Path) -> frozenset[Matcher] | None:
        texts = self.get((*item, "matchers"))
        if texts is None:
            return None
        try:
            return frozenset(matchers.parse(text) for text in texts)
        except ValueError:
            return None


def _matcher_fault(text: str, message: str) -> str:
    message = message.removesuffix(".")
    try:
        several = len(matchers.parse_all(text)) > 1
    except ValueError:
        several = False
    return f"{message}; write each matcher as an item of its own" if several else message
