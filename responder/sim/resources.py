"""Which resources the simulated API server knows: the built-in ones and those that definitions add."""

import base64
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a scale finds its numbers, as dotted paths: spec.replicas, status.replicas, and the selector."""

    spec: str = "spec.replicas"
    status: str = "status.replicas"
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource in one version. `key` names where its objects are stored, whatever the version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    status: bool = False
    scale: ScalePaths | None = None
    singular: str = ""
    stored_as: str = ""
    custom: bool = False
    storage: bool = True
    schema: Object = field(default_factory=dict)
    printer_columns: tuple[Object, ...] = ()
    list_kind: str = ""

    @property
    def key(self) -> str:
        return self.stored_as or (f"{self.plural}.{self.group}" if self.group else self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """The singular, as discovery gives it."""
        return self.singular or self.kind.lower()

    @property
    def kind_of_list(self) -> str:
        return self.list_kind or f"{self.kind}List"


def _core(plural: str, kind: str, *short: str, **more: Any) -> Resource:
    return Resource("", "v1", plural, kind, short_names=short, **more)


_ALL = ("all",)
_RBAC = "rbac.authorization.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_REVIEW: dict[str, Any] = {"namespaced": False, "verbs": ("create",)}
_ROOT: dict[str, Any] = {"namespaced": False}
_SCALE = ScalePaths()

BUILT_IN = (
    _core("bindings", "Binding", verbs=("create",)),
    _core("configmaps", "ConfigMap", "cm"),
    _core("endpoints", "Endpoints", "ep"),
    _core("events", "Event", "ev"),
    _core("namespaces", "Namespace", "ns", status=True, **_ROOT),
    _core("nodes", "Node", "no", status=True, **_ROOT),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", status=True),
    _core("persistentvolumes", "PersistentVolume", "pv", status=True, **_ROOT),
    _core("pods", "Pod", "po", categories=_ALL, status=True),
    _core("resourcequotas", "ResourceQuota", "quota", status=True),
    _core("secrets", "Secret"),
    _core("serviceaccounts", "ServiceAccount", "sa"),
    _core("services", "Service", "svc", categories=_ALL, status=True),
    Resource("apps", "v1", "controllerrevisions", "ControllerRevision"),
    Resource("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",), _ALL, status=True),
    Resource("apps", "v1", "deployments", "Deployment", True, ("deploy",), _ALL, status=True, scale=_SCALE),
    Resource("apps", "v1", "replicasets", "ReplicaSet", True, ("rs",), _ALL, status=True, scale=_SCALE),
    Resource("apps", "v1", "statefulsets", "StatefulSet", True, ("sts",), _ALL, status=True, scale=_SCALE),
    Resource("batch", "v1", "cronjobs", "CronJob", True, ("cj",), _ALL, status=True),
    Resource("batch", "v1", "jobs", "Job", True, (), _ALL, status=True),
    Resource(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        ("hpa",),
        _ALL,
        status=True,
    ),
    Resource(
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        ("hpa",),
        _ALL,
        status=True,
        storage=False,
    ),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",), status=True),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource("events.k8s.io", "v1", "events", "Event", True, ("ev",), stored_as="events", storage=False),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(
        _AUTHORIZATION, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=("create",)
    ),
    Resource(_AUTHORIZATION, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", **_REVIEW),
    Resource(_AUTHORIZATION, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", **_REVIEW),
    Resource(_AUTHORIZATION, "v1", "subjectaccessreviews", "SubjectAccessReview", **_REVIEW),
    Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", **_REVIEW),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        ("crd", "crds"),
        ("api-extensions",),
        status=True,
    ),
)


class Registry:
    """Resources by group, version and plural. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str, str], Resource] = {}
        self._by_key: dict[str, Resource] = {}
        self._preferred: dict[str, str] = {}
        for resource in BUILT_IN:
            self._add(resource)

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource, or None."""
        return self._found.get((group, version, plural))

    def by_key(self, key: str) -> Resource | None:
        """The storage version of a resource by its key."""
        return self._by_key.get(key)

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource of an object's apiVersion and kind."""
        with self._lock:
            return next(
                (r for r in self._found.values() if r.api_version == api_version and r.kind == kind), None
            )

    def groups(self) -> dict[str, list[str]]:
        """Named groups and their versions, the preferred one first."""
        with self._lock:
            found: dict[str, list[str]] = {}
            for group, version, _ in self._found:
                if group and version not in found.setdefault(group, []):
                    found[group].append(version)
        for versions in found.values():
            versions.sort(key=_version_priority, reverse=True)
        return found

    def of(self, group: str, version: str) -> list[Resource]:
        """Resources of one group and version, by name."""
        with self._lock:
            return sorted(
                (r for (g, v, _), r in self._found.items() if (g, v) == (group, version)),
                key=lambda r: r.plural,
            )

    def __iter__(self) -> Iterator[Resource]:
        with self._lock:
            return iter(list(self._found.values()))

    def define(self, definition: Object) -> None:
        """Serve what a CustomResourceDefinition describes, in place of what it described before."""
        self.undefine(definition)
        with self._lock:
            for resource in _defined(definition):
                self._add(resource)

    def undefine(self, definition: Object) -> None:
        """Stop serving what the definition described."""
        spec = definition["spec"]
        with self._lock:
            for at in [
                at for at in self._found if (at[0], at[2]) == (spec["group"], spec["names"]["plural"])
            ]:
                self._by_key.pop(self._found.pop(at).key, None)

    def _add(self, resource: Resource) -> None:
        self._found[resource.group, resource.version, resource.plural] = resource
        if resource.storage:
            self._by_key[resource.key] = resource


def storage_hash(resource: Resource) -> str:
    """The storageVersionHash that discovery gives."""
    text = f"{resource.group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _defined(definition: Object) -> Iterator[Resource]:
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        yield Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            verbs=CUSTOM_VERBS,
            status="status" in subresources,
            scale=ScalePaths(
                scale["specReplicasPath"].lstrip("."),
                scale["statusReplicasPath"].lstrip("."),
                (scale.get("labelSelectorPath") or "").lstrip("."),
            )
            if scale
            else None,
            singular=names.get("singular") or "",
            custom=True,
            storage=bool(version.get("storage")),
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
            printer_columns=tuple(version.get("additionalPrinterColumns") or ()),
            list_kind=names.get("listKind") or "",
        )


def _version_priority(version: str) -> tuple[int, int, int]:
    """Kubernetes' order: v2 before v1 before v1beta2 before v1beta1 before v1alpha1."""
    for rank, word in ((1, "beta"), (0, "alpha")):
        major, found, minor = version.removeprefix("v").partition(word)
        if found and major.isdigit():
            return rank, int(major), int(minor or 0)
    digits = version.removeprefix("v")
    return (2, int(digits), 0) if digits.isdigit() else (-1, 0, 0)
