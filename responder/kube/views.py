"""What mirrors keep: pods by namespace and label, autoscalers by target, nodes. Thread-safe to read."""

import threading
from collections.abc import Iterable, Iterator, Mapping

from responder.kube import selectors
from responder.kube.capacity import Node
from responder.kube.interest import Interest
from responder.kube.news import News
from responder.kube.nodes import MARK
from responder.kube.ownership import Autoscaler, Target
from responder.kube.pods import Pod, PodState, state_of
from responder.model import TargetRef

_Names = dict[str, set[str]]


class PodView:
    """Pods, found by selector without looking at each: the label keys that are asked for are indexed.

    `news` is told of targets that have asked for their pods, when one becomes ready or is so no more, or is found no
    place for.
    """

    def __init__(self, news: News) -> None:
        self._news = news
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, PodState]] = {}
        self._index: dict[tuple[str, str], _Names] = {}
        self._interest = Interest()

    def replace(self, items: Iterable[Pod]) -> None:
        pods: dict[str, dict[str, PodState]] = {}
        for item in items:
            pod = state_of(item)
            pods.setdefault(pod.namespace, {})[pod.name] = pod
        with self._lock:
            before, self._pods = self._pods, pods
            self._index.clear()
            whose = self._whose(
                pod
                for namespace in before.keys() | pods.keys()
                for pod in _changed(before.get(namespace, {}), pods.get(namespace, {}))
            )
        self._tell(whose)

    def put(self, item: Pod) -> None:
        pod = state_of(item)
        with self._lock:
            old = before = self._pods.setdefault(pod.namespace, {}).get(pod.name)
            if old is not None and old.labels != pod.labels:
                self._unindex(old)
                old = None
            self._pods[pod.namespace][pod.name] = pod
            if old is None:
                for (namespace, key), values in self._index.items():
                    if namespace == pod.namespace and key in pod.labels:
                        values.setdefault(pod.labels[key], set()).add(pod.name)
            whose = self._whose(_changed({pod.name: before} if before else {}, {pod.name: pod}))
        self._tell(whose)

    def drop(self, item: Pod) -> None:
        with self._lock:
            old = self._pods.get(item.metadata.namespace, {}).pop(item.metadata.name, None)
            if old is not None:
                self._unindex(old)
            whose = self._whose(_changed({old.name: old}, {}) if old is not None else ())
        self._tell(whose)

    def select(self, target: TargetRef, selector: str) -> list[PodState]:
        """The target's pods by its selector; raises ValueError for what is no selector."""
        terms, namespace = selectors.parse(selector), target.namespace
        with self._lock:
            self._interest.note(target, selector)
            pods = self._pods.get(namespace, {})
            buckets = [
                self._values(namespace, term.key).get(term.only, set())
                for term in terms
                if term.only is not None
            ]
            names = min(buckets, key=len) if buckets else pods.keys()
            return [pods[name] for name in names if all(term.holds(pods[name].labels) for term in terms)]

    def all(self) -> list[PodState]:
        with self._lock:
            return [pod for pods in self._pods.values() for pod in pods.values()]

    def _whose(self, pods: Iterable[PodState]) -> set[TargetRef]:
        return {target for pod in pods for target in self._interest.of(pod.namespace, pod.labels)}

    def _tell(self, targets: Iterable[TargetRef]) -> None:
        for target in targets:
            self._news.pods_changed(target)

    def _values(self, namespace: str, key: str) -> _Names:
        """The index of one label key, built when it is first asked for."""
        index = self._index.get((namespace, key))
        if index is None:
            index = {}
            for pod in self._pods.get(namespace, {}).values():
                if key in pod.labels:
                    index.setdefault(pod.labels[key], set()).add(pod.name)
            self._index[namespace, key] = index
        return index

    def _unindex(self, pod: PodState) -> None:
        for (namespace, key), values in self._index.items():
            if namespace == pod.namespace and key in pod.labels:
                names = values.get(pod.labels[key], set())
                names.discard(pod.name)
                if not names:
                    values.pop(pod.labels[key], None)


def _changed(before: Mapping[str, PodState], now: Mapping[str, PodState]) -> Iterator[PodState]:
    """Both states of those pods that count for something else now."""
    for name in before.keys() | now.keys():
        old, new = before.get(name), now.get(name)
        if _part(old) != _part(new):
            yield from (pod for pod in (old, new) if pod is not None)


def _part(pod: PodState | None) -> object:
    """What a pod adds to its target's counts; one that is not there, or not yet anything, adds nothing."""
    if pod is None or not (pod.ready or (pod.counts and pod.lacks)):
        return None
    return pod.labels, pod.ready, pod.lacks


class AutoscalerView:
    """Autoscalers of one kind, by what they scale. `news` is told of targets that gain or lose one."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._listed = False
        self._lock = threading.Lock()
        self._targets: dict[tuple[str, str], Target | None] = {}
        self._names: dict[tuple[str, Target], set[str]] = {}

    def replace(self, items: Iterable[Autoscaler]) -> None:
        found = list(items)
        with self._lock:
            before = self._names.keys() if self._listed else None
            self._targets, self._names = {}, {}
            for item in found:
                self._add(item)
            self._listed = True
            changed = before ^ self._names.keys() if before is not None else set()
        self._tell(changed)

    def put(self, item: Autoscaler) -> None:
        with self._lock:
            before = self._targets.get((item.metadata.namespace, item.metadata.name))
            self._remove(item)
            self._add(item)
        if before != item.target:
            self._tell((item.metadata.namespace, target) for target in (before, item.target) if target)

    def drop(self, item: Autoscaler) -> None:
        with self._lock:
            before = self._targets.get((item.metadata.namespace, item.metadata.name))
            self._remove(item)
        self._tell([(item.metadata.namespace, before)] if before else ())

    def of(self, namespace: str, target: Target) -> str:
        """The name of one that scales the target; "" if there is none."""
        with self._lock:
            return min(self._names.get((namespace, target), ()), default="")

    def _tell(self, scaled: Iterable[tuple[str, Target]]) -> None:
        for namespace, (group, kind, name) in scaled:
            self._news.changed(TargetRef(namespace, kind, name, group))

    def _add(self, item: Autoscaler) -> None:
        meta = item.metadata
        self._targets[meta.namespace, meta.name] = item.target
        if item.target:
            self._names.setdefault((meta.namespace, item.target), set()).add(meta.name)

    def _remove(self, item: Autoscaler) -> None:
        meta = item.metadata
        target = self._targets.pop((meta.namespace, meta.name), None)
        if target is not None:
            names = self._names[meta.namespace, target]
            names.discard(meta.name)
            if not names:
                del self._names[meta.namespace, target]


class NodeView:
    """Nodes. `news` is told of those that bear our mark and are schedulable again: a person has lifted a cordon."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}

    def replace(self, items: Iterable[Node]) -> None:
        nodes = {item.metadata.name: item for item in items}
        with self._lock:
            self._nodes = nodes
        if any(map(_is_lifted, nodes.values())):
            self._news.cordon_lifted()

    def put(self, item: Node) -> None:
        with self._lock:
            self._nodes[item.metadata.name] = item
        if _is_lifted(item):
            self._news.cordon_lifted()

    def drop(self, item: Node) -> None:
        with self._lock:
            self._nodes.pop(item.metadata.name, None)

    def all(self) -> list[Node]:
        with self._lock:
            return list(self._nodes.values())


def _is_lifted(node: Node) -> bool:
    """Whether a cordon of ours was lifted by somebody else: we take its mark away with it."""
    return MARK in (node.metadata.labels or {}) and not (node.spec and node.spec.unschedulable)
