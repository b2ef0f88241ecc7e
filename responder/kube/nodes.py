"""Nodes: reading them, and cordoning with a note that says who and why. Nothing is evicted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec

from responder.errors import PermanentError
from responder.kube.amounts import is_extended
from responder.kube.capacity import Node as Mirrored
from responder.kube.connection import Call, Connection
from responder.kube.managers import FIELD_MANAGER
from responder.kube.objects import Meta
from responder.model import Reason
from responder.nodes import Cordon, Node
from responder.templates import is_object_name

NOTE = "gpu-responder.io/cordoned"
"""The annotation with who, when and why. It stays when a person lifts the cordon, and says then that one did."""
MARK = "gpu-responder.io/cordoned"
"""The label by which our cordons are found."""


class _Spec(msgspec.Struct):
    unschedulable: bool = False


class _Status(msgspec.Struct):
    allocatable: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None


class _Node(msgspec.Struct):
    metadata: Meta
    spec: _Spec | None = None
    status: _Status | None = None


class Nodes:
    """Raises Conflict when somebody wrote to the node since it was read, and what connections raise."""

    def __init__(
        self, connection: Connection, mirrored: Callable[[], Sequence[Mirrored] | None] = lambda: None
    ) -> None:
        self._connection = connection
        self._mirrored = mirrored

    def pool(self) -> Sequence[Node]:
        """All nodes that have GPUs, or whatever else only a device plugin brings."""
        mirrored = self._mirrored()
        if mirrored is not None:
            return [node for node in map(_counted, mirrored) if node.gpus]
        items = self._connection.items("/api/v1/nodes", _Node, "list the nodes")
        return [node for node in map(_read, items) if node.gpus]

    def cordoned(self) -> Sequence[Node]:
        """Those with our mark."""
        query = {"labelSelector": MARK}
        items = self._connection.items("/api/v1/nodes", _Node, "list the cordoned nodes", query=query)
        return list(map(_read, items))

    def read(self, names: Iterable[str]) -> Mapping[str, Node]:
        """Those of the nodes that exist, live."""
        found = {}
        for name in filter(is_object_name, names):
            try:
                node = self._connection.get(f"/api/v1/nodes/{name}", _Node, f"read node {name}")
            except PermanentError as error:
                if error.reason is not Reason.TARGET_GONE:
                    raise
                continue
            found[name] = _read(node)
        return found

    def cordon(self, node: Node, cordon: Cordon, message: str, *, dry_run: bool = False) -> None:
        """Keep new pods off the node, if it is still as read."""
        note = {"by": FIELD_MANAGER, "message": message} | asdict(cordon)
        metadata = {"labels": {MARK: "true"}, "annotations": {NOTE: msgspec.json.encode(note).decode()}}
        self._patch(node, metadata, {"unschedulable": True}, f"cordon node {node.name}", dry_run)

    def disown(self, node: Node) -> None:
        """Note that a person has lifted our cordon, so that the next one is theirs."""
        if node.cordon is None:
            return
        note = {"by": FIELD_MANAGER, "message": "lifted by a person"} | asdict(
            replace(node.cordon, lifted=True)
        )
        metadata = {"labels": {MARK: None}, "annotations": {NOTE: msgspec.json.encode(note).decode()}}
        self._patch(node, metadata, {}, f"note that the cordon of node {node.name} was lifted", False)

    def uncordon(self, node: Node, *, dry_run: bool = False) -> None:
        """Lift a cordon of ours, and take its note away."""
        metadata: dict[str, Any] = {"labels": {MARK: None}, "annotations": {NOTE: None}}
        self._patch(node, metadata, {"unschedulable": None}, f"uncordon node {node.name}", dry_run)

    def _patch(
        self, node: Node, metadata: dict[str, Any], spec: dict[str, Any], doing: str, dry_run: bool
    ) -> None:
        # The API server keeps no managedFields of nodes, so the note is all that tells whose a cordon is.
        body: dict[str, Any] = {"metadata": metadata | {"resourceVersion": node.resource_version}}
        if spec:
            body["spec"] = spec
        call = Call(
            "PATCH",
            f"/api/v1/nodes/{node.name}",
            f"{'try to ' if dry_run else ''}{doing}",
            {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {}),
            msgspec.json.encode(body),
            "application/merge-patch+json",
        )
        self._connection.send(call, msgspec.Raw)


def _read(node: _Node) -> Node:
    meta, status = node.metadata, node.status or _Status()
    resources = {*(status.capacity or {}), *(status.allocatable or {})}
    return Node(
        name=meta.name,
        unschedulable=(node.spec or _Spec()).unschedulable,
        gpus=frozenset(name for name in resources if is_extended(name)),
        cordon=_note((meta.annotations or {}).get(NOTE, "")),
        resource_version=meta.resource_version,
    )


def _counted(node: Mirrored) -> Node:
    unschedulable = node.spec is not None and node.spec.unschedulable
    gpus = frozenset(name for name in node.allocatable if is_extended(name))
    return Node(node.metadata.name, unschedulable, gpus)


def _note(text: str) -> Cordon | None:
    try:
        return msgspec.json.decode(text, type=Cordon) if text else None
    except msgspec.MsgspecError:
        return None  # a person has edited it, and it is theirs then
