"""The objects of the simulated cluster, as its API server and its controllers share them.

A stored object is never changed in place: every write makes a new one. That is what lets readers, watches and
the list cache share it without copying.
"""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Self

import msgspec

from responder.sim import managed_fields
from responder.sim.selectors import parse_labels

Object = dict[str, Any]
Objects = list[Object]
Selector = Callable[[Object], bool] | str | None

# Kinds whose metadata.generation the real server leaves unset.
WITHOUT_GENERATION = frozenset(
    {
        "configmaps",
        "endpoints",
        "events",
        "horizontalpodautoscalers.autoscaling",
        "leases.coordination.k8s.io",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "resourcequotas",
        "secrets",
        "serviceaccounts",
        "services",
        "controllerrevisions.apps",
        "priorityclasses.scheduling.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
    }
)
_HEAD = ("kind", "apiVersion", "metadata")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class StoreError(Exception):
    """A write that the store refuses, or a history that it no longer has."""

    def __init__(self, resource: str, name: str) -> None:
        super().__init__(f"{resource} {name!r}")
        self.resource = resource
        self.name = name


class AlreadyExists(StoreError):
    """An object of this name exists."""


class NotFound(StoreError):
    """No object of this name exists."""


class Conflict(StoreError):
    """The resourceVersion given is not the object's."""


class Expired(Exception):
    """Changes since that resourceVersion are no longer kept; `oldest` is the oldest that are."""

    def __init__(self, since: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {since} ({oldest})")
        self.since = since
        self.oldest = oldest


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One version of one object. `obj` is shared: read it, never change it."""

    obj: Object
    data: bytes
    version: int

    @property
    def key(self) -> tuple[str, str]:
        meta = self.obj["metadata"]
        return meta.get("namespace") or "", meta["name"]

    def copy(self) -> Object:
        """The object, the caller's own."""
        copied: Object = _decode(self.data)
        return copied


Entries = list[Entry]  # inside ObjectStore, `list` is its method
Names = list[str]


@dataclass(frozen=True, slots=True)
class Change:
    """One accepted write: `type` is ADDED, MODIFIED or DELETED; `old` is what it replaced."""

    version: int
    type: str
    resource: str
    entry: Entry
    old: Entry | None
    manager: str = ""
    subresource: str = ""

    @property
    def object(self) -> Object:
        """The object after the change (or as it was deleted). Shared: do not change it."""
        return self.entry.obj


class Subscription:
    """Changes of one resource, in order. Close it, or use it in a `with`."""

    def __init__(self, store: "ObjectStore", resource: str, namespace: str | None) -> None:
        self.resource = resource
        self.namespace = namespace
        self._store = store
        self._queue: SimpleQueue[Change | None] = SimpleQueue()

    def offer(self, change: Change) -> None:
        """Called by the store, under its lock."""
        if self.namespace is None or change.entry.key[0] == self.namespace:
            self._queue.put(change)

    def get(self, timeout: float | None = None) -> Change | None:
        """The next change; None when `timeout` seconds pass without one, or when closed."""
        try:
            return (
                self._queue.get(timeout=timeout)
                if timeout is None or timeout > 0
                else self._queue.get_nowait()
            )
        except Empty:
            return None

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be got."""
        return self._queue.empty()

    def close(self) -> None:
        """Stop receiving; a waiting `get` returns None."""
        self._store.unsubscribe(self)
        self._queue.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ObjectStore:
    """All objects by resource key ("pods", "deployments.apps"), with one increasing resourceVersion.

    Thread-safe. Objects returned by `get`, `list` and the writes belong to the caller; entries and changes are
    shared and must only be read. `clock` gives the time that creationTimestamp and managedFields carry.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        history: int = 10_000,
        first_version: int = 300,
    ) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self._objects: dict[str, dict[tuple[str, str], Entry]] = {}
        self._namespaced: dict[str, dict[str, dict[str, Entry]]] = {}
        self._version = first_version
        self._oldest = first_version
        self._history: deque[Change] = deque()
        self._history_limit = history
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._listeners: list[Callable[[Change], None]] = []

    # Reading

    @property
    def version(self) -> int:
        """The resourceVersion of the latest write."""
        return self._version

    @property
    def oldest(self) -> int:
        """The oldest resourceVersion from which a watch can start."""
        return self._oldest

    def get(self, resource: str, namespace: str | None, name: str) -> Object | None:
        """A copy of the object, or None."""
        entry = self.entry(resource, namespace, name)
        return entry.copy() if entry else None

    def list(self, resource: str, namespace: str | None = None, selector: Selector = None) -> list[Object]:
        """Copies of the objects, ordered by namespace and name; a str is a label selector."""
        return [entry.copy() for entry in self.entries(resource, namespace, selector)]

    def entry(self, resource: str, namespace: str | None, name: str) -> Entry | None:
        """The current version, shared; None if there is none."""
        with self.lock:
            return self._objects.get(resource, {}).get((namespace or "", name))

    def entries(self, resource: str, namespace: str | None = None, selector: Selector = None) -> Entries:
        """Current versions, shared, ordered by namespace and name. Cheap: nothing is copied."""
        with self.lock:
            if namespace is None:
                found = list(self._objects.get(resource, {}).values())
            else:
                found = list(self._namespaced.get(resource, {}).get(namespace, {}).values())
        matches = _predicate(selector)
        if matches is not None:
            found = [entry for entry in found if matches(entry.obj)]
        found.sort(key=lambda entry: entry.key)
        return found

    def count(self, resource: str) -> int:
        """How many objects of this resource there are."""
        with self.lock:
            return len(self._objects.get(resource, {}))

    def resources(self) -> Names:
        """Resources that have had objects."""
        with self.lock:
            return list(self._objects)

    # Writing

    def create(self, resource: str, obj: Object, *, manager: str = "", subresource: str = "") -> Object:
        """Store a new object with uid, creationTimestamp, generation; raises AlreadyExists."""
        return self.create_entry(resource, obj, manager=manager, subresource=subresource).copy()

    def create_entry(
        self, resource: str, obj: Object, *, manager: str = "", subresource: str = "", dry_run: bool = False
    ) -> Entry:
        """As `create`, but shared; managedFields in `obj` are kept. A dry run stores nothing."""
        with self.lock:
            new = _decode(_encode(obj))
            meta = new.setdefault("metadata", {})
            key = (meta.get("namespace") or "", meta["name"])
            if key in self._objects.get(resource, {}):
                raise AlreadyExists(resource, key[1])
            now = self.clock()
            meta["uid"] = str(uuid.uuid4())
            meta["creationTimestamp"] = _seconds(now)
            for ours in ("generation", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
                meta.pop(ours, None)
            if resource not in WITHOUT_GENERATION:
                meta["generation"] = 1
            if not meta.get("managedFields"):
                meta.pop("managedFields", None)
                managed_fields.record_update(resource, None, new, manager, subresource, now)
            if dry_run:
                return _frozen(new, 0)
            return self._commit("ADDED", resource, new, None, manager, subresource)

    def update(self, resource: str, obj: Object, *, manager: str = "", subresource: str = "") -> Object:
        """Replace an object; raises NotFound, and Conflict if it names another resourceVersion."""
        with self.lock:
            meta = obj["metadata"]
            old = self._existing(resource, meta.get("namespace") or "", meta["name"])
            given = meta.get("resourceVersion")
            if given and given != str(old.version):
                raise Conflict(resource, meta["name"])
            return self._replace(resource, old, _decode(_encode(obj)), manager, subresource).copy()

    def mutate(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        fn: Callable[[Object], Object | None],
        *,
        manager: str = "",
        subresource: str = "",
    ) -> Object | None:
        """Change a copy of the object by `fn` (in place, or returning it) and store it, under the lock.

        Returns the object after; None if there is none. If `fn` changes nothing, nothing moves.
        """
        with self.lock:
            old = self.entry(resource, namespace, name)
            if old is None:
                return None
            new = old.copy()
            new = fn(new) or new
            return self._replace(resource, old, new, manager, subresource).copy()

    def delete(self, resource: str, namespace: str | None, name: str) -> Object | None:
        """Remove an object at once, whatever its finalizers; returns it as it was, or None."""
        with self.lock:
            old = self.entry(resource, namespace, name)
            if old is None:
                return None
            return self._commit("DELETED", resource, old.copy(), old, "", "").copy()

    def put(
        self,
        resource: str,
        old: Entry,
        new: Object,
        manager: str,
        subresource: str = "",
        *,
        track: bool = True,
        dry_run: bool = False,
    ) -> Entry:
        """Replace `old`, the current version, by `new`; `track` False keeps new's own managedFields.

        A dry run returns what would be stored, at the old resourceVersion.
        """
        with self.lock:
            return self._replace(resource, old, new, manager, subresource, track=track, dry_run=dry_run)

    # Watching

    def subscribe(
        self, resource: str, namespace: str | None = None, *, since: int | None = None
    ) -> Subscription:
        """Changes after resourceVersion `since` (default: from now on); raises Expired."""
        with self.lock:
            subscription = Subscription(self, resource, namespace)
            if since is not None:
                if since < self._oldest:
                    raise Expired(since, self._oldest)
                for change in self._since(since):
                    if change.resource == resource:
                        subscription.offer(change)
            self._subscriptions.setdefault(resource, []).append(subscription)
            return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription; harmless twice."""
        with self.lock:
            listening = self._subscriptions.get(subscription.resource, [])
            if subscription in listening:
                listening.remove(subscription)

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` with every change, under the lock: it must be quick."""
        with self.lock:
            self._listeners.append(listener)

    def expire_history(self) -> None:
        """Forget all changes so far, as compaction does: watches from before get 410."""
        with self.lock:
            self._history.clear()
            self._oldest = self._version

    # Inside

    def _since(self, version: int) -> Iterator[Change]:
        recent = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            recent.append(change)
        return reversed(recent)

    def _existing(self, resource: str, namespace: str, name: str) -> Entry:
        old = self.entry(resource, namespace, name)
        if old is None:
            raise NotFound(resource, name)
        return old

    def _replace(
        self,
        resource: str,
        old: Entry,
        new: Object,
        manager: str,
        subresource: str,
        *,
        track: bool = True,
        dry_run: bool = False,
    ) -> Entry:
        before, meta = old.obj["metadata"], new["metadata"]
        for fixed in ("uid", "creationTimestamp", "generation", "resourceVersion"):
            if fixed in before:
                meta[fixed] = before[fixed]
            else:
                meta.pop(fixed, None)
        if track:
            meta["managedFields"] = before.get("managedFields") or []
        if not meta.get("managedFields"):
            meta.pop("managedFields", None)
        if managed_fields.same(old.obj, new):
            return old
        if track:
            managed_fields.record_update(resource, old.obj, new, manager, subresource, self.clock())
        if "generation" in meta and _generation_moves(resource, old.obj, new, subresource):
            meta["generation"] += 1
        if dry_run:
            return _frozen(new, old.version)
        return self._commit("MODIFIED", resource, new, old, manager, subresource)

    def _commit(
        self,
        type_: str,
        resource: str,
        obj: Object,
        old: Entry | None,
        manager: str,
        subresource: str,
    ) -> Entry:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        entry = _frozen(obj, self._version)
        namespace, name = key = entry.key
        if type_ == "DELETED":
            del self._objects[resource][key]
            del self._namespaced[resource][namespace][name]
        else:
            self._objects.setdefault(resource, {})[key] = entry
            self._namespaced.setdefault(resource, {}).setdefault(namespace, {})[name] = entry
        change = Change(self._version, type_, resource, entry, old, manager, subresource)
        self._history.append(change)
        while len(self._history) > self._history_limit:
            self._oldest = self._history.popleft().version
        for listener in self._listeners:
            listener(change)
        for subscription in self._subscriptions.get(resource, ()):
            subscription.offer(change)
        return entry


def _frozen(obj: Object, version: int) -> Entry:
    data = _encode(_ordered(obj))
    return Entry(_decode(data), data, version)


def _predicate(selector: Selector) -> Callable[[Object], bool] | None:
    if isinstance(selector, str):
        matches = parse_labels(selector)
        return lambda obj: matches(obj["metadata"].get("labels") or {})
    return selector


def _ordered(obj: Object) -> Object:
    """Kind and version first, so that a list can cut them off an encoded object."""
    head = {key: obj[key] for key in _HEAD if key in obj}
    return head | {key: value for key, value in obj.items() if key not in head}


def _generation_moves(resource: str, old: Object, new: Object, subresource: str) -> bool:
    if subresource == "status":
        return False
    if resource == "deployments.apps" and subresource == "":
        # Deployments alone count annotations too: pkg/registry/apps/deployment/strategy.go.
        if (old["metadata"].get("annotations") or {}) != (new["metadata"].get("annotations") or {}):
            return True
        return bool(old.get("spec") != new.get("spec"))
    ignored = ("metadata", "status")
    return {k: v for k, v in old.items() if k not in ignored} != {
        k: v for k, v in new.items() if k not in ignored
    }


def _seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
