"""Who else decides a target's replicas: an HPA, a KEDA ScaledObject, or a controller that scales it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from responder.errors import PermanentError
from responder.kube.connection import Connection
from responder.kube.discovery import Discovery, Resource
from responder.kube.objects import Anything, Meta, OwnerReference, group_of
from responder.kube.workloads import Details
from responder.model import Ownership, Reason, TargetRef

KEDA = "keda.sh"
_FRESH_SECONDS = 10.0
"""An autoscaler that appears is noticed after so long at most."""
_OWNER_SECONDS = 300.0
"""What an owner of some uid is owned by hardly ever changes."""
_MOST_LISTED = 20_000
_DEEPEST = 8


Target = tuple[str, str, str]
"""Group, kind and name."""


class ScaleTarget(msgspec.Struct, rename="camel"):
    """KEDA leaves apiVersion and kind out for a Deployment."""

    name: str = ""
    kind: str = "Deployment"
    api_version: str = "apps/v1"


class _Spec(msgspec.Struct, rename="camel"):
    scale_target_ref: ScaleTarget | None = None


class Autoscaler(msgspec.Struct):
    metadata: Meta
    spec: _Spec | None = None

    @property
    def target(self) -> Target | None:
        """What it scales."""
        ref = self.spec.scale_target_ref if self.spec else None
        if ref is None:
            return None
        group = group_of(ref.api_version)
        # Deployments were once in "extensions"; the server still takes that in an old HPA.
        return ("apps" if group == "extensions" else group), ref.kind, ref.name


@dataclass(frozen=True, slots=True)
class _Listed:
    """One namespace's autoscalers by target; None when they must not be read."""

    owners: dict[Target, str] | None
    at: float


class Mirrored(Protocol):
    """Autoscalers that are kept current by a watch."""

    def autoscaler(self, kind: str, namespace: str, target: Target) -> str | None:
        """The name of one, "" if there is none, None while that is not known."""


class Owners:
    """Reads autoscalers from `mirrors`, or lists them once per namespace and 10 s: many targets stay cheap."""

    def __init__(
        self, connection: Connection, discovery: Discovery, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._discovery = discovery
        self._clock = clock
        self._lock = threading.Lock()
        self._listed: dict[tuple[str, str], _Listed] = {}
        self._parents: dict[str, tuple[OwnerReference | None, float]] = {}
        self.mirrors: Mirrored | None = None

    def of(self, ref: TargetRef, details: Details) -> Ownership:
        """The first of ScaledObject, HPA and scaling owner; `known` is False where that must not be read."""
        known = True
        resource = self._discovery.find(ref.group, ref.kind)
        # As the server spells the kind: a policy may say "deployment", an autoscaler never does.
        target = (ref.group, resource.kind if resource else ref.kind, ref.name)
        for kind in ("ScaledObject", "HorizontalPodAutoscaler"):
            name = self._autoscaler(kind, ref.namespace, target)
            if name is None:
                known = False
            elif name:
                return Ownership(owner=f"{kind} {ref.namespace}/{name}")
        if (owner := self._scaling_owner(ref, details.owner)) is not None:
            return Ownership(owner=f"{owner.kind} {ref.namespace}/{owner.name}")
        return Ownership(known=known)

    def _autoscaler(self, kind: str, namespace: str, target: Target) -> str | None:
        """The name of an autoscaler of the target, "" if there is none, None when they must not be read."""
        mirrored = self.mirrors.autoscaler(kind, namespace, target) if self.mirrors else None
        if mirrored is not None:
            return mirrored
        key = (kind, namespace)
        now = self._clock()
        with self._lock:
            listed = self._listed.get(key)
        if listed is None or now - listed.at >= _FRESH_SECONDS:
            listed = _Listed(self._list(kind, namespace), now)
            with self._lock:
                if len(self._listed) >= _MOST_LISTED:
                    self._listed.clear()
                self._listed[key] = listed
        return None if listed.owners is None else listed.owners.get(target, "")

    def _list(self, kind: str, namespace: str) -> dict[Target, str] | None:
        try:
            if kind == "ScaledObject":
                # Asked of discovery first: without the right, a group that does not exist answers 403 as well.
                return self._discovery.asking(
                    KEDA,
                    lambda: self._discovery.find(KEDA, kind),
                    lambda resource: (
                        self._read(kind, namespace, resource.path(namespace)) if resource else {}
                    ),
                )
            path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
            return self._read(kind, namespace, path)
        except PermanentError as error:
            if error.reason is Reason.FORBIDDEN:
                return None
            raise

    def _read(self, kind: str, namespace: str, path: str) -> dict[Target, str]:
        found: dict[Target, str] = {}
        for item in self._connection.items(path, Autoscaler, f"list the {kind}s of {namespace}"):
            if item.target:
                found.setdefault(item.target, item.metadata.name)
        return found

    def _scaling_owner(self, ref: TargetRef, owner: OwnerReference | None) -> OwnerReference | None:
        """The nearest controller above the target that has a scale of its own."""
        for _ in range(_DEEPEST):
            if owner is None:
                return None
            resource = self._discovery.find(owner.group, owner.kind)
            if resource is None:
                return None
            if resource.scalable:
                return owner
            owner = self._parent(ref, owner)
        return None

    def _parent(self, ref: TargetRef, owner: OwnerReference) -> OwnerReference | None:
        """The owner's own controller; None also where it must not be read: without a scale it is no rival."""
        now = self._clock()
        with self._lock:
            known = self._parents.get(owner.uid)
        if known is not None and now < known[1]:
            return known[0]
        doing = f"read {owner.kind} {ref.namespace}/{owner.name}"

        def read(resource: Resource | None) -> OwnerReference | None:
            if resource is None:
                return None
            path = resource.path(ref.namespace, owner.name)
            return self._connection.get(path, Anything, doing).metadata.controller

        try:
            parent = self._discovery.asking(
                owner.group, lambda: self._discovery.find(owner.group, owner.kind), read
            )
        except PermanentError:
            parent = None
        with self._lock:
            if len(self._parents) > 20_000:
                self._parents.clear()
            self._parents[owner.uid] = (parent, now + _OWNER_SECONDS)
        return parent
