"""Which resource serves a kind, and whether it scales: asked of the API server, kept in memory."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from responder.errors import PermanentError
from responder.kube.connection import Connection
from responder.kube.errors import NotServedError
from responder.model import Reason, TargetRef
from responder.templates import is_object_name

F = TypeVar("F")
R = TypeVar("R")
_MISSING_SECONDS = 30.0
"""What was not there is asked for again after so long: a CRD may be installed later."""
_FRESH_SECONDS = 600.0
"""What was there is asked for again after so long: the preferred version may change."""
_MOST_GROUPS = 1000
"""Alerts name kinds, so whoever writes them could fill the memory with groups that do not exist."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A served resource. `scalable` says whether it has the `scale` subresource."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    scalable: bool

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The URL path of one object, of its subresource, or without a name of the collection."""
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)

    @property
    def words(self) -> str:
        """`deployments.apps`, as Kubernetes writes it in its messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class _Version(msgspec.Struct, rename="camel"):
    version: str


class _Group(msgspec.Struct, rename="camel"):
    versions: list[_Version] = []
    preferred_version: _Version | None = None


class _Entry(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = True


class _ResourceList(msgspec.Struct):
    resources: list[_Entry] | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """One group as last read. `kinds` is by kind, exact and in lower case."""

    served: bool
    kinds: dict[str, Resource]
    at: float


class Discovery:
    """Looks kinds up by group; an unknown kind reads its group again, at most every 30 s."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._groups: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def find(self, group: str, kind: str) -> Resource | None:
        """The resource of a kind in the version that the server prefers; None if it is not served."""
        known = self._group(group, kind)
        return known.kinds.get(kind) or known.kinds.get(kind.lower())

    def serves(self, group: str) -> bool:
        """Whether the API group exists."""
        return self._group(group, "").served

    def scalable(self, ref: TargetRef) -> Resource:
        """The resource of a target; raises PermanentError(NotScalable) that says what is missing."""
        known = self._group(ref.group, ref.kind)
        found = known.kinds.get(ref.kind) or known.kinds.get(ref.kind.lower())
        if not known.served:
            raise PermanentError(
                f"Cannot scale {ref}: the API server serves no group {ref.group!r}; check apiVersion in "
                "scaleTargetRef, or install what brings it.",
                Reason.NOT_SCALABLE,
            )
        if found is None:
            where = f"group {ref.group!r}" if ref.group else "the core API"
            raise PermanentError(
                f"Cannot scale {ref}: {where} has no kind {ref.kind!r}; check kind in scaleTargetRef.",
                Reason.NOT_SCALABLE,
            )
        if not found.scalable:
            raise PermanentError(
                f"Cannot scale {ref}: a {found.kind} has no scale subresource.", Reason.NOT_SCALABLE
            )
        return found

    def forget(self, group: str) -> None:
        """Read the group anew at the next look-up: what it said turned out to be out of date."""
        with self._lock:
            self._groups.pop(group, None)

    def asking(self, group: str, find: Callable[[], F], call: Callable[[F], R]) -> R:
        """`call` with what `find` finds in the group; once more where that turns out not to be served any more."""
        found = find()
        try:
            return call(found)
        except NotServedError:
            # A definition that was deleted or is served in another version now: nothing has been done yet.
            self.forget(group)
            anew = find()
            if anew == found:
                raise
            return call(anew)

    def _group(self, group: str, kind: str) -> _Known:
        now = self._clock()
        with self._lock:
            known = self._groups.get(group)
        if known is not None:
            there = known.served and (not kind or kind in known.kinds or kind.lower() in known.kinds)
            if now - known.at < (_FRESH_SECONDS if there else _MISSING_SECONDS):
                return known
        read = self._read(group)
        with self._lock:
            if len(self._groups) >= _MOST_GROUPS:
                self._groups.clear()
            self._groups[group] = read
        return read

    def _read(self, group: str) -> _Known:
        kinds: dict[str, Resource] = {}
        versions = self._versions(group) if not group or is_object_name(group) else []
        for version in versions:
            for resource in self._resources(group, version):
                # The first version that has a kind wins; the preferred one comes first.
                kinds.setdefault(resource.kind, resource)
                kinds.setdefault(resource.kind.lower(), resource)
        return _Known(bool(versions), kinds, self._clock())

    def _versions(self, group: str) -> list[str]:
        if not group:
            return ["v1"]
        try:
            read = self._connection.get(f"/apis/{group}", _Group, f"discover the API group {group}")
        except NotServedError:
            return []
        first = [read.preferred_version.version] if read.preferred_version else []
        return first + [v.version for v in read.versions if v.version not in first]

    def _resources(self, group: str, version: str) -> list[Resource]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            read = self._connection.get(path, _ResourceList, f"discover {path.split('/', 2)[2]}")
        except NotServedError:
            return []
        entries = read.resources or []
        scales = {e.name.removesuffix("/scale") for e in entries if e.name.endswith("/scale")}
        return [
            Resource(group, version, e.name, e.kind, e.namespaced, e.name in scales)
            for e in entries
            if "/" not in e.name
        ]
