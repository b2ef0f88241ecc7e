"""ConfigMaps of one namespace, as the store needs them: writes that may be repeated, errors in one sentence.

Every write here is either bound to a resourceVersion or a name of its own, or the same however often it is made,
so it is tried again when nobody knows whether it took effect.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from responder.errors import PermanentError, ResponderError, StoreUnavailable, TransientError
from responder.kube.connection import Call, Connection
from responder.kube.objects import ListMeta
from responder.model import Reason

T = TypeVar("T")

PART = "gpu-responder.io/store"
"""The label that says what of the store a ConfigMap holds."""
PREFIX = "gpu-responder"
PATIENCE = 8.0
"""Seconds for one operation with all its tries: Alertmanager's own limit is 10 s or more."""
LARGEST = 960 * 2**10
"""Bytes of one ConfigMap's values; the API server takes 1 MiB."""
FIELD_MANAGER = "gpu-responder-store"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE = "40"
_HOPELESS = frozenset({"stopping", "rate_limit", "unauthorized", "tls"})


class Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None

    @property
    def order(self) -> int:
        """When it was last written, in the order of the whole API server."""
        return int(self.resource_version) if self.resource_version.isdigit() else 0


class Named(msgspec.Struct):
    """Any object, as far as its metadata goes."""

    metadata: Meta


class ConfigMap(msgspec.Struct, rename="camel"):
    metadata: Meta
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None


class _ConfigMaps(msgspec.Struct):
    metadata: ListMeta
    items: list[ConfigMap] | None = None


class _NamedList(msgspec.Struct):
    metadata: ListMeta
    items: list[Named] | None = None


class ConfigMaps:
    """Raises Conflict where a write met another, and StoreUnavailable for all else."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._connection = connection
        self._closed = threading.Event()

    def close(self) -> None:
        """Nothing is begun any more."""
        self._closed.set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def get(self, name: str) -> ConfigMap | None:
        """The ConfigMap; None if there is none."""
        path, doing = f"{self.path}/{name}", f"read ConfigMap {self.namespace}/{name}"
        return self.found(lambda: self._connection.get(path, ConfigMap, doing, deadline=PATIENCE))

    def data(self, name: str) -> Mapping[str, str]:
        """The ConfigMap's values; none if there is none."""
        found = self.get(name)
        return (found.data if found else None) or {}

    def found(self, read: Callable[[], T]) -> T | None:
        """What it reads; None if it is not there."""
        try:
            return self.attempt(read)
        except _GoneError:
            return None

    def page(self, part: str, limit: int) -> tuple[list[ConfigMap], bool]:
        """At most so many of a part, by name, and whether there are more."""
        query = {"labelSelector": f"{PART}={part}", "limit": str(limit)}
        found = self._list(_ConfigMaps, part, query, "application/json")
        return list(found.items or ()), bool(found.metadata.more)

    def listed(self, part: str) -> Iterator[ConfigMap]:
        """All of a part."""
        query = {"labelSelector": f"{PART}={part}", "limit": _PAGE}
        while True:
            page = self._list(_ConfigMaps, part, query, "application/json")
            yield from page.items or ()
            if not page.metadata.more:
                return
            query["continue"] = page.metadata.more

    def versions(self, part: str) -> list[Meta]:
        """The metadata of all of a part, which is little to read."""
        query = {"labelSelector": f"{PART}={part}"}
        found = self._list(_NamedList, part, query, _METADATA_LIST)
        return [item.metadata for item in found.items or ()]

    def moment(self) -> str:
        """The resourceVersion from which a watch misses nothing that comes after this call."""
        return self._list(_NamedList, "inbox", {"limit": "1"}, _METADATA_LIST).metadata.resource_version

    def create(
        self,
        name: str,
        part: str,
        *,
        data: Mapping[str, str] | None = None,
        binary: Mapping[str, bytes] | None = None,
        dry_run: bool = False,
    ) -> ConfigMap:
        """Raises Conflict if it is there, which may be by an earlier try of this very call."""
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {PART: part}},
        }
        if data:
            body["data"] = data
        if binary:
            body["binaryData"] = binary
        doing = f"{'try to ' if dry_run else ''}create ConfigMap {self.namespace}/{name}"
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        made: ConfigMap = self._write(Call("POST", self.path, doing, query, msgspec.json.encode(body)))
        return made

    def patch(
        self,
        name: str,
        *,
        data: Mapping[str, str | None] | None = None,
        binary: Mapping[str, bytes | None] | None = None,
        version: str = "",
    ) -> ConfigMap | None:
        """Set some values and remove those that are None; with a version only on that. None if it is not there."""
        body: dict[str, Any] = {"metadata": {"resourceVersion": version}} if version else {}
        if data:
            body["data"] = data
        if binary:
            body["binaryData"] = binary
        call = Call(
            "PATCH",
            f"{self.path}/{name}",
            f"change ConfigMap {self.namespace}/{name}",
            {"fieldManager": FIELD_MANAGER},
            msgspec.json.encode(body),
            "application/merge-patch+json",
        )
        try:
            changed: ConfigMap = self._write(call)
        except _GoneError:
            return None
        return changed

    def delete(self, name: str) -> None:
        """Remove it; it may be gone already."""
        call = Call("DELETE", f"{self.path}/{name}", f"delete ConfigMap {self.namespace}/{name}")
        try:
            self._write(call, msgspec.Raw)
        except _GoneError:
            return

    def attempt(self, act: Callable[[], T]) -> T:
        """One act on the API server, its errors being the store's. For the lease too."""
        if self._closed.is_set():
            raise StoreUnavailable("the store is closed: the service is stopping")
        try:
            return act()
        except PermanentError as error:
            if error.reason is Reason.TARGET_GONE:
                raise _GoneError(str(error)) from error
            raise self._unavailable(error) from error
        except TransientError as error:
            raise self._unavailable(error) from error

    def _list(self, shape: type[T], part: str, query: Mapping[str, str], accept: str) -> T:
        doing = f"list the ConfigMaps of the store's {part} in {self.namespace}"
        return self.attempt(
            lambda: self._connection.get(
                self.path, shape, doing, query=query, deadline=PATIENCE, accept=accept
            )
        )

    def _write(self, call: Call, shape: Any = ConfigMap) -> Any:
        until, pause = time.monotonic() + PATIENCE, 0.05

        def insist() -> Any:
            nonlocal pause
            while True:
                try:
                    return self._connection.send(call, shape, deadline=max(0.1, until - time.monotonic()))
                except TransientError as error:
                    if error.kind in _HOPELESS or time.monotonic() + pause > until:
                        raise
                    if self._closed.wait(pause):
                        raise
                    pause = min(pause * 2, 1.0)

        return self.attempt(insist)

    def _unavailable(self, error: ResponderError) -> StoreUnavailable:
        return StoreUnavailable(f"the store in namespace {self.namespace}: {error}")


class _GoneError(StoreUnavailable):
    """404. A StoreUnavailable where nobody expects it, as when the namespace does not exist."""
