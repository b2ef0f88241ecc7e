"""From a pod that an alert names to the workload that scales it.

dcgm-exporter scraped without honorLabels says `exported_pod` for the pod that uses the GPU, and Prometheus says
`pod` for the exporter itself. So `exported_*` goes first, and a pod that is an exporter is never followed: an
alert of an idle GPU must not scale what measures it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from responder.errors import PermanentError
from responder.kube.connection import Connection
from responder.kube.discovery import Discovery, Resource
from responder.kube.objects import Anything, Meta, OwnerReference
from responder.matchers import quoted
from responder.model import Reason, TargetRef
from responder.policy import Rejection
from responder.templates import is_namespace, is_object_name

_FRESH_SECONDS = 60.0
"""A pod's owner is verified again after so long: a StatefulSet's pod names come back under another owner."""
_REMEMBERED_SECONDS = 3600.0
"""What a pod belonged to is known for so long after it is gone: its alerts outlive it."""
_KEPT = 50_000
_DEEPEST = 8
_EXPORTERS = ("exporter", "kube-state-metrics", "prometheus", "alertmanager", "device-plugin")
_NAME_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/component", "app", "k8s-app", "name")


@dataclass(frozen=True, slots=True)
class _Found:
    """What a pod led to; `uid` is the target's, or why it led to nothing."""

    target: TargetRef | Rejection
    uid: str
    at: float


class Resolver:
    """Finds targets from pod labels. Every owner on the way is verified by its uid."""

    def __init__(
        self, connection: Connection, discovery: Discovery, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._discovery = discovery
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[str, str], _Found] = OrderedDict()

    def locate(self, labels: Mapping[str, str]) -> TargetRef | Rejection:
        """The topmost owner with a scale of the pod that the labels name, or why there is none."""
        named = pod_of(labels)
        if named is None:
            return Rejection("the alert names no pod: it has neither exported_pod nor pod with a namespace")
        namespace, name = named
        if not is_namespace(namespace) or not is_object_name(name):
            return Rejection(
                f"the alert names pod {quoted(f'{namespace}/{name}')}, which is not a legal name"
            )
        exported = bool(labels.get("exported_pod"))
        now = self._clock()
        with self._lock:
            known = self._found.get(named)
        if known is not None and now - known.at < _FRESH_SECONDS:
            return known.target
        pod = self._read(namespace, "", "Pod", name)
        if pod is None:
            return self._from_memory(known, namespace, name, now)
        if not exported and is_exporter(pod):
            target: TargetRef | Rejection = Rejection(
                f"pod {namespace}/{name} is an exporter, not the workload that the alert is about; set honorLabels "
                "where it is scraped, or name the target in scaleTargetRef"
            )
            uid = ""
        else:
            target, uid = self._climb(namespace, name, pod.controller)
        self._remember(named, _Found(target, uid, now))
        return target

    def _climb(
        self, namespace: str, pod: str, owner: OwnerReference | None
    ) -> tuple[TargetRef | Rejection, str]:
        """(topmost scalable owner, its uid); an owner that cannot be verified stops the search without one."""
        top: tuple[TargetRef, str] | None = None
        for _ in range(_DEEPEST):
            if owner is None:
                break
            resource = self._discovery.find(owner.group, owner.kind)
            if resource is None:
                break
            words = f"{owner.kind} {namespace}/{owner.name}"
            try:
                meta = self._read(namespace, owner.group, owner.kind, owner.name)
            except PermanentError as error:
                if error.reason is Reason.FORBIDDEN and not resource.scalable:
                    break  # without a scale of its own it is not the target, and what is below it stays the top
                return Rejection(
                    f"pod {namespace}/{pod} belongs to {words}, which cannot be verified: {error}"
                ), ""
            if meta is None or meta.uid != owner.uid:
                return Rejection(
                    f"pod {namespace}/{pod} belongs to a {words} that is gone or was made anew"
                ), ""
            if resource.scalable:
                top = TargetRef(namespace, owner.kind, owner.name, owner.group), owner.uid
            owner = meta.controller
        return top or (Rejection(f"pod {namespace}/{pod} has no owner with a scale"), "")

    def _from_memory(
        self, known: _Found | None, namespace: str, name: str, now: float
    ) -> TargetRef | Rejection:
        """The target of a pod that is gone, if it was known and is still the same object."""
        gone = Rejection(f"pod {namespace}/{name} does not exist, and what it belonged to is not known")
        if known is None or now - known.at > _REMEMBERED_SECONDS or not isinstance(known.target, TargetRef):
            return gone
        ref = known.target
        meta = self._read(ref.namespace, ref.group, ref.kind, ref.name)
        return ref if meta is not None and meta.uid == known.uid else gone

    def _read(self, namespace: str, group: str, kind: str, name: str) -> Meta | None:
        """An object's metadata; None when it does not exist."""

        def read(resource: Resource | None) -> Meta | None:
            if resource is None:
                return None
            path = resource.path(namespace, name)
            return self._connection.get(path, Anything, f"read {kind} {namespace}/{name}").metadata

        try:
            return self._discovery.asking(group, lambda: self._discovery.find(group, kind), read)
        except PermanentError as error:
            if error.reason is Reason.TARGET_GONE:
                return None
            raise

    def _remember(self, pod: tuple[str, str], found: _Found) -> None:
        with self._lock:
            self._found[pod] = found
            self._found.move_to_end(pod)
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)


def pod_of(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """(namespace, name) of the pod that an alert is about, `exported_*` first."""
    for prefix in ("exported_", ""):
        name = labels.get(f"{prefix}pod", "")
        # Some relabellings export the pod alone: then both are in the namespace that is there.
        namespace = labels.get(f"{prefix}namespace", "") or labels.get("namespace", "")
        if name and namespace:
            return namespace, name
    return None


def is_exporter(pod: Meta) -> bool:
    """Whether a pod measures others, by its name and the labels that name its program."""
    labels = pod.labels or {}
    words = [pod.name, *(labels.get(key, "") for key in _NAME_LABELS)]
    return any(exporter in word.lower() for word in words for exporter in _EXPORTERS)
