"""Which mirrors there are: one for the whole cluster where the rights allow, else one per namespace asked for."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from responder.kube.capacity import Node
from responder.kube.connection import Connection
from responder.kube.discovery import Discovery, Resource
from responder.kube.mirror import Mirror, Sink
from responder.kube.news import News
from responder.kube.objects import Anything
from responder.kube.ownership import KEDA, Autoscaler, Target
from responder.kube.pods import Pod, PodState
from responder.kube.targets import Names, Sighting, TargetView
from responder.kube.views import AutoscalerView, NodeView, PodView
from responder.model import TargetRef

T = TypeVar("T")
V = TypeVar("V")
_MOST_NAMESPACES = 50
"""Each namespace costs a thread and a connection per resource; beyond these, reads do."""
_IDLE_SECONDS = 1800.0
"""A namespace that nobody has asked for so long makes room for another: namespaces come and go."""
_MOST_BEFORE = 50_000


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T, V]):
    mirror: Mirror[T]
    view: V


class _Scoped(Generic[T, V]):
    """Mirrors of one resource. `where` gives the collection's path in a namespace, or of all for ""."""

    def __init__(self, make: Callable[[str], _Kept[T, V]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._all = make("")
        self._all.mirror.start()
        self._namespaces: dict[str, _Kept[T, V]] = {}
        self._asked: dict[str, float] = {}

    def view(self, namespace: str) -> V | None:
        """What is kept of a namespace, or of the cluster for ""; None while that is not current."""
        if self._all.mirror.current:
            if self._namespaces:
                self._drop_all()
            return self._all.view
        if not namespace or not self._all.mirror.refused:
            return None
        with self._lock:
            kept = self._namespaces.get(namespace)
            if kept is None and self._has_room():
                kept = self._namespaces[namespace] = self._make(namespace)
                kept.mirror.start()
            if kept is not None:
                self._asked[namespace] = time.monotonic()
        return kept.view if kept is not None and kept.mirror.current else None

    def _has_room(self) -> bool:
        if len(self._namespaces) < _MOST_NAMESPACES:
            return True
        idle = min(self._asked, key=self._asked.__getitem__)
        if time.monotonic() - self._asked[idle] < _IDLE_SECONDS:
            return False
        self._drop(idle)
        return True

    def _drop(self, namespace: str) -> None:
        self._namespaces.pop(namespace).mirror.stop()
        del self._asked[namespace]

    def _drop_all(self) -> None:
        """The right to the whole cluster has been given meanwhile."""
        with self._lock:
            for namespace in tuple(self._namespaces):
                self._drop(namespace)

    def stop(self) -> None:
        with self._lock:
            for kept in (self._all, *self._namespaces.values()):
                kept.mirror.stop()


@dataclass(frozen=True, slots=True)
class _Kind:
    """The mirrors of a kind of targets. `before`: those that were read while the mirror was not there yet."""

    scoped: _Scoped[Anything, TargetView]
    before: Names


class Mirrors:
    """Targets, pods, autoscalers and nodes, kept current by watches. Answers None where a read must do."""

    def __init__(self, connection: Connection, discovery: Discovery, news: News) -> None:
        self._connection = connection
        self._discovery = discovery
        self._news = news
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._pods = _Scoped(self._make(lambda: PodView(news), Pod, "pods", _core("pods")))
        self._nodes = _Scoped(
            self._make(lambda: NodeView(news), Node, "nodes", lambda namespace: "/api/v1/nodes")  # noqa: ARG005
        )
        self._autoscalers = {
            kind: _Scoped(self._make(lambda: AutoscalerView(news), Autoscaler, f"{kind}s", where, unserved))
            for kind, where, unserved in (
                ("HorizontalPodAutoscaler", _hpas, _as_ever),
                ("ScaledObject", self._scaled_objects, partial(discovery.forget, KEDA)),
            )
        }

    def target(self, ref: TargetRef) -> Sighting | None:
        """A target as its watch shows it. The first question about a kind begins the watch."""
        resource = self._discovery.find(ref.group, ref.kind)
        if resource is None or not resource.scalable:
            return None
        kind = self._kind(resource)
        place = ref.namespace, ref.name
        # Noted first, for the list may come in between.
        if len(kind.before) < _MOST_BEFORE:
            kind.before.add(place)
        view = kind.scoped.view(ref.namespace)
        if view is None:
            return None
        kind.before.discard(place)
        return view.get(*place)

    def pods(self, target: TargetRef, selector: str) -> list[PodState] | None:
        """A target's pods. Who has asked for them is told when they change."""
        view = self._pods.view(target.namespace)
        try:
            return None if view is None else view.select(target, selector)
        except ValueError:
            return None  # the server knows selectors that are not known here

    def autoscaler(self, kind: str, namespace: str, target: Target) -> str | None:
        """The name of an autoscaler of the target; "" if there is none."""
        view = self._autoscalers[kind].view(namespace)
        return None if view is None else view.of(namespace, target)

    def nodes(self) -> list[Node] | None:
        """All nodes."""
        view = self._nodes.view("")
        return None if view is None else view.all()

    def inventory(self) -> tuple[list[Node], list[PodState]] | None:
        """All nodes and all pods."""
        nodes, pods = self._nodes.view(""), self._pods.view("")
        return None if nodes is None or pods is None else (nodes.all(), pods.all())

    def stop(self) -> None:
        self._pods.stop()
        self._nodes.stop()
        for autoscalers in self._autoscalers.values():
            autoscalers.stop()
        with self._lock:
            for kind in self._kinds.values():
                kind.scoped.stop()

    def _kind(self, resource: Resource) -> _Kind:
        key = (resource.group, resource.kind)
        with self._lock:
            known = self._kinds.get(key)
            if known is None:
                before: Names = set()
                where = _of(self._discovery, *key)
                view = partial(TargetView, resource, self._news, before)
                unserved = partial(self._discovery.forget, resource.group)
                scoped = _Scoped(self._make(view, Anything, resource.words, where, unserved))
                known = self._kinds[key] = _Kind(scoped, before)
            return known

    def _make(
        self,
        view: Callable[[], V],
        shape: type[T],
        words: str,
        where: Callable[[str], str | None],
        unserved: Callable[[], None] = lambda: None,
    ) -> Callable[[str], _Kept[T, V]]:
        def make(namespace: str) -> _Kept[T, V]:
            made = view()
            scope = f"{words} of {namespace}" if namespace else f"all {words}"
            sink: Sink[T] = made  # type: ignore[assignment]
            mirror = Mirror(self._connection, lambda: where(namespace), shape, sink, scope, unserved)
            return _Kept(mirror, made)

        return make

    def _scaled_objects(self, namespace: str) -> str | None:
        resource = self._discovery.find(KEDA, "ScaledObject")
        return resource.path(namespace) if resource else None


def _of(discovery: Discovery, group: str, kind: str) -> Callable[[str], str | None]:
    """Asked anew each time: the version that the server prefers may change."""

    def where(namespace: str) -> str | None:
        resource = discovery.find(group, kind)
        return resource.path(namespace) if resource else None

    return where


def _as_ever() -> None:
    """Autoscalers are no definition that somebody could take away."""


def _core(plural: str) -> Callable[[str], str]:
    return lambda namespace: f"/api/v1/namespaces/{namespace}/{plural}" if namespace else f"/api/v1/{plural}"


def _hpas(namespace: str) -> str:
    within = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/autoscaling/v2/{within}horizontalpodautoscalers"
