"""The scale subresource, and the log of every change of replicas that the store took."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from responder.sim import errors, managed_fields
from responder.sim.objects import Change, Entry, ObjectStore
from responder.sim.resources import Registry, Resource
from responder.sim.selectors import format_label_selector

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """Who is writing: set around each request, empty for controllers inside the process."""

    user: str = ""
    agent: str = ""


class ScaleLog:
    """Accepted replica changes, oldest first, bounded. What tests count against."""

    def __init__(self, registry: Registry, origin: Callable[[], Origin], limit: int = 100_000) -> None:
        self._registry = registry
        self._origin = origin
        self._entries: deque[Object] = deque(maxlen=limit)
        self._lock = threading.Lock()
        self._total = 0

    def note(self, change: Change) -> None:
        """A listener for the store's changes."""
        if change.type != "MODIFIED" or change.old is None:
            return
        resource = self._registry.by_key(change.resource)
        if resource is None or resource.scale is None:
            return
        before = lookup(change.old.obj, resource.scale.spec)
        after = lookup(change.object, resource.scale.spec)
        if (before or 0) == (after or 0):
            return
        origin = self._origin()
        meta = change.object["metadata"]
        if not origin.user and any(owner.get("controller") for owner in meta.get("ownerReferences") or ()):
            return  # A Deployment's controller passing the number on to its ReplicaSet.
        with self._lock:
            self._total += 1
            self._entries.append(
                {
                    "time": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
                    "resource": change.resource,
                    "namespace": meta.get("namespace") or "",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "from": before or 0,
                    "to": after or 0,
                    "manager": change.manager or origin.agent,
                    "user": origin.user,
                    "subresource": change.subresource,
                    "resourceVersion": str(change.version),
                    "generation": meta.get("generation"),
                }
            )

    def list(self, wanted: Mapping[str, str] | None = None) -> "list[Object]":
        """Changes whose fields equal `wanted`."""
        with self._lock:
            entries = list(self._entries)
        return [e for e in entries if all(str(e.get(key)) == value for key, value in (wanted or {}).items())]

    @property
    def total(self) -> int:
        """How many there have been, those no longer kept included."""
        return self._total

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self._entries.clear()
            self._total = 0


def read(resource: Resource, entry: Entry) -> Object:
    """The Scale of an object; 500 where a custom resource leaves its replicas unset, as recorded."""
    paths = resource.scale
    assert paths is not None
    obj = entry.obj
    replicas = lookup(obj, paths.spec)
    if replicas is None and resource.custom:
        raise errors.internal(f'the spec replicas field ".{paths.spec}" does not exist')
    return render(resource, obj, replicas or 0)


def render(resource: Resource, obj: Object, replicas: int) -> Object:
    """A Scale with these replicas; zero is left out."""
    paths = resource.scale
    assert paths is not None
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": lookup(obj, paths.status) or 0}
    selector = _selector(resource, obj)
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def write(store: ObjectStore, resource: Resource, entry: Entry, replicas: int, manager: str) -> Entry:
    """Set the replicas as the scale endpoint does; an equal number changes nothing at all."""
    paths = resource.scale
    assert paths is not None
    have = lookup(entry.obj, paths.spec)
    if have == replicas or (have is None and replicas == 0 and not resource.custom):
        return entry
    new = changed(resource, entry, replicas, manager)
    return store.put(resource.key, entry, new, manager, "scale", track=False)


def changed(resource: Resource, entry: Entry, replicas: int, manager: str) -> Object:
    """A copy of the object with these replicas, held by `manager`."""
    paths = resource.scale
    assert paths is not None
    new = entry.copy()
    *parents, last = paths.spec.split(".")
    at = new
    for part in parents:
        at = at.setdefault(part, {})
    at[last] = replicas
    managed_fields.record_scale(new, paths.spec, manager, replicas)
    return new


def lookup(obj: Object, path: str) -> Any:
    """The value at a dotted path, or None."""
    found: Any = obj
    for part in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _selector(resource: Resource, obj: Object) -> str:
    assert resource.scale is not None
    if resource.custom:
        return str(lookup(obj, resource.scale.selector) or "") if resource.scale.selector else ""
    return format_label_selector((obj.get("spec") or {}).get("selector"))
