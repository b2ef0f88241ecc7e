"""What the controllers share: how owned objects are named, counted and reported."""

import hashlib
import zlib

import msgspec

from responder.sim.objects import Entry, Object, ObjectStore
from responder.sim.view import Ref

MANAGER = "kube-controller-manager"

# The alphabet of generated names: no vowels, so no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_canonical = msgspec.json.Encoder(order="deterministic").encode


def template_hash(template: Object) -> str:
    """A short name for a pod template, in the alphabet of generated names."""
    number = zlib.crc32(hashlib.sha256(_canonical(template)).digest())
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(number))


def copied(value: Object) -> Object:
    """A deep copy."""
    result: Object = msgspec.json.decode(msgspec.json.encode(value))
    return result


def replicas_of(obj: Object) -> int:
    """The replicas that a spec asks for; 1 when it says nothing."""
    value = obj["spec"].get("replicas")
    return 1 if value is None else int(value)


def count_of(obj: Object, field: str) -> int:
    """A number in the status; 0 when it is left out."""
    return int(obj.get("status", {}).get(field) or 0)


def total_of(entries: list[Entry]) -> int:
    """Replicas asked for by several objects together."""
    return sum(replicas_of(entry.obj) for entry in entries)


def annotation(obj: Object, name: str) -> str | None:
    """An annotation's value."""
    value: str | None = (obj["metadata"].get("annotations") or {}).get(name)
    return value


def label(obj: Object, name: str) -> str | None:
    """A label's value."""
    value: str | None = (obj["metadata"].get("labels") or {}).get(name)
    return value


def owner_reference(obj: Object, kind: str) -> Object:
    """A reference that makes `obj` the controller of what carries it."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def same_status(obj: Object, status: Object) -> bool:
    """Whether an object's status already says this; counts that are left out mean 0."""
    before = dict(obj.get("status") or {})
    listed = {c["type"]: c for c in before.get("conditions") or ()}
    ours = {c["type"]: c for c in status.get("conditions") or ()}
    return (
        all(before.get(k) == v for k, v in status.items() if k != "conditions")
        and all(before.get(k) == status.get(k) for k in _COUNTS)
        and all(listed.get(k) == v for k, v in ours.items())
    )


_COUNTS = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "unavailableReplicas",
    "currentReplicas",
    "fullyLabeledReplicas",
)


def merged(before: Object | None, status: Object, ours: tuple[str, ...]) -> Object:
    """A status with our fields replaced and those of others kept."""
    kept = {key: value for key, value in (before or {}).items() if key not in ours}
    return kept | status


class Hashes:
    """Template hashes by owner and generation, since hashing a template for every look would be dear."""

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._known: dict[tuple[str, int], str] = {}

    def of(self, owner: Object) -> str:
        """The hash of an owner's pod template."""
        key = (owner["metadata"]["uid"], owner["metadata"]["generation"])
        if key not in self._known:
            if len(self._known) >= self._limit:
                self._known.clear()
            self._known[key] = template_hash(owner["spec"]["template"])
        return self._known[key]


def write_status(store: ObjectStore, ref: Ref, obj: Object, status: Object, ours: tuple[str, ...]) -> None:
    """Writes a status unless it says so already."""
    if same_status(obj, status):
        return

    def change(new: Object) -> None:
        new["status"] = merged(new.get("status"), status, ours)

    store.mutate(ref.resource, ref.namespace, ref.name, change, manager=MANAGER, subresource="status")
