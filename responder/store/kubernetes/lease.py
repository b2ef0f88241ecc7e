"""The actor's Lease. Whether its holder is alive is judged by what changes here, never by the holder's clock."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from responder.errors import Conflict
from responder.kube.connection import Call, Connection
from responder.store.holder import is_dead
from responder.store.kubernetes.configmaps import FIELD_MANAGER, PREFIX, ConfigMaps, Meta

PATIENCE = 3.0
"""Seconds for a renewal, which comes several times within the lease's."""
_SPEC = "coordination.k8s.io/v1"


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: Meta
    spec: _Spec | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A renewal as first seen by this process, at its own time."""

    holder: str
    renewed: str
    at: float


class Leases:
    """`passing` is a clock that only has to run evenly in this process; it is given the caller's now."""

    def __init__(
        self, connection: Connection, maps: ConfigMaps, passing: Callable[[datetime], float]
    ) -> None:
        self._connection = connection
        self._maps = maps
        self._passing = passing
        self._path = f"/apis/{_SPEC}/namespaces/{maps.namespace}/leases"
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def take(self, name: str, holder: str, ttl: timedelta, now: datetime) -> bool:
        """Acquire or renew. Raises StoreUnavailable, after which the lease may have been renewed."""
        with self._lock:
            passed = self._passing(now)
            found = self._get(name)
            if found is None:
                return self._write(name, None, holder, ttl, now)
            spec = found.spec or _Spec()
            by = spec.holder_identity or ""
            if by in ("", holder):
                return self._write(name, found, holder, ttl, now)
            if not self._is_over(name, spec, passed) and not is_dead(by):
                return False
            return self._write(name, found, holder, ttl, now)

    def release(self, name: str, holder: str) -> None:
        """Give it back, if it is the holder's."""
        with self._lock:
            found = self._get(name)
            if found is not None and found.spec is not None and found.spec.holder_identity == holder:
                self._write(name, found, "", timedelta(seconds=1), datetime.now(UTC))

    def _is_over(self, name: str, spec: _Spec, passed: float) -> bool:
        """True when nobody has renewed it for its duration, as time passes here."""
        holder, renewed = spec.holder_identity or "", spec.renew_time or ""
        seen = self._seen.get(name)
        if seen is None or (seen.holder, seen.renewed) != (holder, renewed) or passed < seen.at:
            seen = self._seen[name] = _Seen(holder, renewed, passed)
        return passed - seen.at >= (spec.lease_duration_seconds or 0)

    def _get(self, name: str) -> _Lease | None:
        path, doing = f"{self._path}/{PREFIX}-{name}", f"read Lease {self._maps.namespace}/{PREFIX}-{name}"
        return self._maps.found(
            lambda: self._connection.get(path, _Lease, doing, deadline=PATIENCE),
        )

    def _write(self, name: str, found: _Lease | None, holder: str, ttl: timedelta, now: datetime) -> bool:
        before = (found.spec if found else None) or _Spec()
        changes_hands = before.holder_identity != holder
        moment = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: dict[str, Any] = {"name": f"{PREFIX}-{name}"}
        if found is not None:
            metadata["resourceVersion"] = found.metadata.resource_version
        body = {
            "apiVersion": _SPEC,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": max(1, round(ttl.total_seconds())),
                "acquireTime": moment if changes_hands or not before.acquire_time else before.acquire_time,
                "renewTime": moment,
                "leaseTransitions": (before.lease_transitions or 0)
                + (changes_hands and found is not None and bool(holder)),
            },
        }
        path = self._path if found is None else f"{self._path}/{PREFIX}-{name}"
        call = Call(
            "POST" if found is None else "PUT",
            path,
            f"take Lease {self._maps.namespace}/{PREFIX}-{name}",
            {"fieldManager": FIELD_MANAGER},
            msgspec.json.encode(body),
        )
        try:
            self._maps.attempt(lambda: self._connection.send(call, msgspec.Raw, deadline=PATIENCE))
        except Conflict:
            return False
        return True
