"""Who holds `spec.replicas`, from an object's managedFields. Pure."""

from collections.abc import Sequence

from responder.kube.objects import Json, ManagedFields
from responder.settle import MANAGER

FIELD_MANAGER = MANAGER
"""What writes are made with is what settling looks for."""
SPEC_REPLICAS = ("spec", "replicas")


def holder(entries: Sequence[ManagedFields], path: Sequence[str] = SPEC_REPLICAS) -> str:
    """The manager of the field at `path`; "" when nobody claims it.

    Several may hold it, when one applied the value that another wrote. Ours wins: had anybody changed the
    value, our claim would be gone. Then the scale subresource's entry, then an apply, then the latest update.
    """
    claims = [e for e in entries if e.subresource in ("", "scale") and _claims(e.fields, path)]
    if not claims:
        return ""

    def rank(entry: ManagedFields) -> tuple[bool, bool, bool, str]:
        return (
            entry.manager == FIELD_MANAGER,
            entry.subresource == "scale",
            entry.operation == "Apply",
            entry.time or "",
        )

    return max(claims, key=rank).manager


def scale_path(entries: Sequence[ManagedFields]) -> tuple[str, ...] | None:
    """Where the replicas are, learned from what a scale write claimed: that entry holds this field alone."""
    for entry in entries:
        if entry.subresource == "scale" and entry.fields:
            path = _only_leaf(entry.fields)
            if path is not None:
                return path
    return None


def _claims(fields: Json | None, path: Sequence[str]) -> bool:
    at = fields
    for name in path:
        at = at.get(f"f:{name}") if isinstance(at, dict) else None
        if at is None:
            return False
    return True


def _only_leaf(fields: Json) -> tuple[str, ...] | None:
    path: list[str] = []
    at = fields
    while True:
        children = [key for key in at if key != "."]
        if not children:
            return tuple(path) or None
        if len(children) != 1 or not children[0].startswith("f:"):
            return None
        path.append(children[0][2:])
        at = at[children[0]]
        if not isinstance(at, dict):
            return None
