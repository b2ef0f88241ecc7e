"""Reading a target live and writing its scale. Kept is only what an object's version cannot change."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from responder.deciding.overrides import said
from responder.errors import PermanentError, TransientError
from responder.kube.connection import Call, Connection
from responder.kube.discovery import Discovery, Resource
from responder.kube.managers import FIELD_MANAGER, SPEC_REPLICAS, holder, scale_path
from responder.kube.objects import Anything, Json, Meta, OwnerReference, Scale
from responder.model import Reason, TargetRef, Workload

R = TypeVar("R")

# For these the scale is a view of the object's own spec.replicas: one read has both at one version.
_OWN_SCALE = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"), ("", "ReplicationController")}
)
_SAME_VERSION_TRIES = 5
_NAMESPACE_SECONDS = 5.0
_NAMESPACE_PATIENCE = 55.0
"""So much older it may be for a look that comes to nothing: what acts reads it anew."""
_NAMESPACE_FORBIDDEN_SECONDS = 60.0
_KEPT_DETAILS = 20_000
_MOST_NAMESPACES = 20_000
_MOST_NAMESPACES = 10_000
"""Alerts name them, so not all of them need exist."""


@dataclass(frozen=True, slots=True)
class Details:
    """What other questions about a workload need, as of one resourceVersion.

    `selector` is "" when the kind names none. `ready` and `pods` are the object's own word, None without one.
    """

    resource_version: str
    selector: str
    owner: OwnerReference | None
    template: Json | None
    ready: int | None
    pods: int | None


class _Namespace(msgspec.Struct):
    metadata: Meta


class Workloads:
    def __init__(
        self, connection: Connection, discovery: Discovery, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._discovery = discovery
        self._clock = clock
        self._lock = threading.Lock()
        self._details: OrderedDict[str, Details] = OrderedDict()
        self._paths: dict[tuple[str, str], tuple[str, ...]] = {}
        self._namespaces: dict[str, tuple[Meta, float]] = {}

    def read(self, ref: TargetRef) -> Workload:
        """The object and its scale at one resourceVersion, never cached."""
        self._discovery.scalable(ref)
        namespace = self._namespace(ref.namespace)
        if namespace.deletion_timestamp:
            raise PermanentError(
                f"Namespace {ref.namespace} is being deleted, and {ref} with it.",
                Reason.NAMESPACE_TERMINATING,
            )
        resource, found, scale = self._asking(ref, lambda resource: (resource, *self._both(ref, resource)))
        if found.metadata.deletion_timestamp:
            raise PermanentError(f"{ref} is being deleted.", Reason.TARGET_GONE)
        self.keep(ref, details_of(found, scale))
        read = workload_of(found, scale, self._path(resource, found))
        return replace(read, namespace_annotations=namespace.annotations or {})

    def within(self, namespace: str, seen: Workload) -> Workload | None:
        """What a watch has shown, with its namespace's annotations; None if the namespace is on its way out."""
        meta = self._namespace(namespace, _NAMESPACE_PATIENCE)
        if meta.deletion_timestamp:
            return None
        return replace(seen, namespace_annotations=meta.annotations or {})

    def write(self, ref: TargetRef, workload: Workload, replicas: int, dry_run: bool) -> Workload:
        """PUT the scale against the workload's resourceVersion; returns the workload as it is afterwards."""
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": ref.name,
                "namespace": ref.namespace,
                "uid": workload.uid,
                "resourceVersion": workload.resource_version,
            },
            "spec": {"replicas": replicas},
        }
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        doing = f"{'try (dry run) to ' if dry_run else ''}scale {ref} from {workload.replicas} to {replicas}"

        def put(resource: Resource) -> Scale:
            path = resource.path(ref.namespace, ref.name, "scale")
            return self._connection.send(Call("PUT", path, doing, query, msgspec.json.encode(body)), Scale)

        scale = self._asking(ref, put)
        if dry_run or scale.metadata.resource_version == workload.resource_version:
            return replace(workload, replicas=scale.replicas)
        # The write was bound to the version read, so nothing but it lies between.
        return replace(
            workload,
            replicas=scale.replicas,
            resource_version=scale.metadata.resource_version,
            generation=workload.generation + 1,
            manager=FIELD_MANAGER,
        )

    def details(self, ref: TargetRef, workload: Workload) -> Details:
        """Of the workload as it was read; read again when that is no longer known."""
        with self._lock:
            known = self._details.get(ref.key)
        if known is not None and known.resource_version == workload.resource_version:
            return known
        details = details_of(*self._asking(ref, lambda resource: self._both(ref, resource)))
        self.keep(ref, details)
        return details

    def _both(self, ref: TargetRef, resource: Resource) -> tuple[Anything, Scale | None]:
        """The object and its scale at one resourceVersion; no scale where the object says it all."""
        path = resource.path(ref.namespace, ref.name)
        for _ in range(_SAME_VERSION_TRIES):
            found = self._connection.get(path, Anything, f"read {ref}")
            if tells_its_scale(resource, found):
                return found, None
            scale = self._connection.get(f"{path}/scale", Scale, f"read the scale of {ref}")
            if scale.metadata.resource_version == found.metadata.resource_version:
                return found, scale
        raise TransientError(
            f"Cannot read {ref}: it changes faster than it and its scale can be read at one version.",
            kind="moving",
        )

    def _asking(self, ref: TargetRef, call: Callable[[Resource], R]) -> R:
        return self._discovery.asking(ref.group, lambda: self._discovery.scalable(ref), call)

    def _path(self, resource: Resource, found: Anything) -> tuple[str, ...]:
        """Where a custom resource keeps its replicas, as far as its objects tell."""
        key = (resource.group, resource.kind)
        if key in _OWN_SCALE:
            return SPEC_REPLICAS
        path = scale_path(found.metadata.managed_fields or [])
        if path is not None:
            self._paths[key] = path
        return self._paths.get(key, SPEC_REPLICAS)

    def _namespace(self, name: str, patience: float = 0.0) -> Meta:
        """The namespace's metadata, a few seconds and `patience` old at most; empty where that must not be read."""
        now = self._clock()
        known = self._namespaces.get(name)
        if known is not None and now < known[1] + patience:
            return known[0]
        try:
            doing = f"read namespace {name}"
            read = self._connection.get(f"/api/v1/namespaces/{name}", _Namespace, doing).metadata
            meta = Meta(
                name=name, annotations=said(read.annotations), deletion_timestamp=read.deletion_timestamp
            )
            until = now + _NAMESPACE_SECONDS
        except PermanentError as error:
            forbidden = error.reason is Reason.FORBIDDEN
            meta = Meta(name=name)
            until = now + (_NAMESPACE_FORBIDDEN_SECONDS if forbidden else _NAMESPACE_SECONDS)
        except TransientError:
            if known is None:
                raise
            meta, until = known[0], now + 1.0
        if len(self._namespaces) >= _MOST_NAMESPACES:
            self._namespaces.clear()
        if len(self._namespaces) >= _MOST_NAMESPACES:
            self._namespaces.clear()
        self._namespaces[name] = (meta, until)
        return meta

    def keep(self, ref: TargetRef, details: Details) -> None:
        """Answer with these while the workload is at their version."""
        with self._lock:
            self._details[ref.key] = details
            self._details.move_to_end(ref.key)
            while len(self._details) > _KEPT_DETAILS:
                self._details.popitem(last=False)


def tells_its_scale(resource: Resource, found: Anything) -> bool:
    """Whether the object alone says all that its scale does."""
    replicas = (found.spec or {}).get("replicas")
    return (resource.group, resource.kind) in _OWN_SCALE and isinstance(replicas, int)


def workload_of(found: Anything, scale: Scale | None = None, path: Sequence[str] = SPEC_REPLICAS) -> Workload:
    """The object without its namespace. Its replicas are the scale's or, without one, its own; 0 if it has none."""
    meta = found.metadata
    own = (found.spec or {}).get("replicas")
    return Workload(
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        replicas=scale.replicas if scale else own if isinstance(own, int) else 0,
        manager=holder(meta.managed_fields or [], path),
        annotations=said(meta.annotations),
    )


def details_of(found: Anything, scale: Scale | None = None) -> Details:
    """Without a scale, the object is one that tells its own."""
    spec, status = found.spec or {}, found.status or {}
    if scale is not None:
        selector = scale.status.selector if scale.status else ""
        pods: int | None = scale.status.replicas if scale.status else None
    else:
        selector, pods = selector_words(spec.get("selector")), status.get("replicas", 0)
    template = spec.get("template")
    pod_spec = template.get("spec") if isinstance(template, dict) else None
    ready = status.get("readyReplicas", 0 if scale is None else None)
    return Details(
        found.metadata.resource_version,
        selector,
        found.metadata.controller,
        _slim(pod_spec) if isinstance(pod_spec, dict) else None,
        ready if isinstance(ready, int) else None,
        pods if isinstance(pods, int) else None,
    )


def _slim(pod_spec: Json) -> Json | None:
    """The parts of a pod template that placement looks at; the rest would be kept for nothing."""
    kept: Json = {
        key: pod_spec[key]
        for key in ("nodeSelector", "affinity", "tolerations", "nodeName")
        if key in pod_spec
    }
    for key in ("containers", "initContainers"):
        containers = pod_spec.get(key)
        if isinstance(containers, list):
            kept[key] = [
                {k: c[k] for k in ("resources", "restartPolicy") if k in c}
                for c in containers
                if isinstance(c, dict)
            ]
    return kept


def selector_words(selector: Any) -> str:
    """A label selector as the string that list requests take; "" for none, which must never select all."""
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        # A ReplicationController's selector is a plain map.
        return ",".join(f"{k}={v}" for k, v in sorted(selector.items()) if isinstance(v, str))
    terms = [f"{k}={v}" for k, v in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or []:
        key, values = term.get("key", ""), ",".join(term.get("values") or [])
        words = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(words[term["operator"]])
    return ",".join(terms)
