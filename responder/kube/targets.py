"""Targets as their watch last showed them, and who is told when one of them changes."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from responder.kube.discovery import Resource
from responder.kube.managers import FIELD_MANAGER
from responder.kube.news import News
from responder.kube.objects import Anything
from responder.kube.workloads import Details, details_of, tells_its_scale, workload_of
from responder.model import TargetRef, Workload

Names = set[tuple[str, str]]
"""(namespace, name)."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One object at one resourceVersion, without its namespace's annotations.

    `details` is None for kinds whose objects do not tell their own scale; then nor does `workload`.
    """

    workload: Workload
    leaving: bool
    details: Details | None


class TargetView:
    """All objects of one scalable kind, of which the actor acts on some. Thread-safe to read.

    `before` are those that were read while this view was not there yet: whether they have changed since, nobody
    can tell, so the first list is news of them. Of the others it is none.
    """

    def __init__(self, resource: Resource, news: News, before: Names) -> None:
        self._resource = resource
        self._news = news
        self._before = before
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], Sighting] | None = None

    def replace(self, items: Iterable[Anything]) -> None:
        found = {_key(item): self._sighting(item) for item in items}
        with self._lock:
            known, self._seen = self._seen, found
        if known is None:
            changed = {key for key in tuple(self._before) if key in found}
            self._before -= changed
        else:
            changed = {key for key in known.keys() | found.keys() if is_news(known.get(key), found.get(key))}
        for key in changed:
            self._tell(key)

    def put(self, item: Anything) -> None:
        key, now = _key(item), self._sighting(item)
        with self._lock:
            seen = self._seen = {} if self._seen is None else self._seen
            known = seen.get(key)
            seen[key] = now
        if is_news(known, now):
            self._tell(key)

    def drop(self, item: Anything) -> None:
        with self._lock:
            (self._seen or {}).pop(_key(item), None)
        self._tell(_key(item))

    def get(self, namespace: str, name: str) -> Sighting | None:
        with self._lock:
            return (self._seen or {}).get((namespace, name))

    def _sighting(self, item: Anything) -> Sighting:
        return Sighting(
            workload_of(item),
            item.metadata.deletion_timestamp is not None,
            details_of(item) if tells_its_scale(self._resource, item) else None,
        )

    def _tell(self, key: tuple[str, str]) -> None:
        namespace, name = key
        self._news.changed(TargetRef(namespace, self._resource.kind, name, self._resource.group))


def is_news(before: Sighting | None, now: Sighting | None) -> bool:
    """Whether somebody else has changed what a look goes by: the spec, our annotations, or that it is there at all.

    Status moves without end and is no news. Nor is a scale write of our own: who made it knows.
    """
    if before is None or now is None:
        return before is not now
    old, new = before.workload, now.workload
    if (old.uid, old.annotations, before.leaving) != (new.uid, new.annotations, now.leaving):
        return True
    ours = new.manager == FIELD_MANAGER and old.replicas != new.replicas
    # After a list, several changes may lie between the two, of which ours is only the last.
    return new.generation > old.generation + ours or new.generation < old.generation


def _key(item: Anything) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name
