"""The rights that a policy file needs, no more and no fewer, and the Role that grants those that are missing."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import yaml

from responder.kube.access import Access, Right
from responder.kube.credentials import own_namespace
from responder.policy import Capacity, Policy, Settings

Plural = Callable[[str, str], str | None]
"""The resource that serves a kind of a group, as discovery knows it; None if it is not served."""

ROLE = "gpu-responder"
_FOUND_FROM_LABELS = (("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"))
"""What a target may be when the policy file names none."""
_ANY = "{{"


class Options(Protocol):
    """What `serve` is told, as far as rights depend on it."""

    @property
    def store(self) -> str: ...


def _plural(group: str, kind: str) -> str | None:  # noqa: ARG001 - as Plural
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}{'es' if lower.endswith('s') else 's'}"


def rights_needed(
    settings: Settings, options: Options, plural: Plural = _plural, *, keda: bool = False
) -> list[Right]:
    """Each right that the loaded policies use, once and in order. An empty namespace is all of them.

    `plural` is best discovery's; without it the usual spelling is taken. `keda`: whether KEDA is installed.
    """
    rights: set[Right] = set()
    for policy in settings.policies:
        if policy.triggers:
            for namespace in _namespaces(settings, policy):
                rights |= _of_targets(policy, namespace, plural, keda)
        if policy.triggers and policy.capacity is not Capacity.IGNORE:
            rights |= _each("list watch", "", "nodes", "") | _each("list watch", "", "pods", "")
        if policy.node_triggers:
            rights |= _each("get list watch patch", "", "nodes", "")
    kind, _, named = options.store.partition(":")
    if kind == "kubernetes":
        namespace = named or own_namespace()
        rights |= _each("get list watch create patch delete", "", "configmaps", namespace)
        rights |= _each("get create update", "coordination.k8s.io", "leases", namespace)
    return sorted(right for right in rights if not _covered(right, rights))


def _of_targets(policy: Policy, namespace: str, plural: Plural, keda: bool) -> set[Right]:
    template = policy.target
    if template is not None:
        kinds: Sequence[tuple[str, str]] = ((template.api_version.rpartition("/")[0], template.kind),)
    else:
        kinds = _FOUND_FROM_LABELS
    rights = _each("list watch", "autoscaling", "horizontalpodautoscalers", namespace)
    rights |= _each("list watch", "", "pods", namespace) | _each("create patch", "", "events", namespace)
    rights |= _each("get", "", "namespaces", namespace)
    if keda:
        rights |= _each("list watch", "keda.sh", "scaledobjects", namespace)
    if template is None:
        rights |= _each("get", "", "pods", namespace)
    for group, kind in kinds:
        resource = plural(group, kind)
        if resource is None:
            continue
        rights |= _each("get", group, resource, namespace)
        # What owns a pod by way of a ReplicaSet is scaled instead of it.
        if template is not None or kind != "ReplicaSet":
            rights |= _each("list watch", group, resource, namespace)
            rights |= _each("get update", group, resource, namespace, "scale")
    return rights


def _each(verbs: str, group: str, resource: str, namespace: str, subresource: str = "") -> set[Right]:
    return {Right(verb, group, resource, subresource, namespace) for verb in verbs.split()}


def _covered(right: Right, among: set[Right]) -> bool:
    """True for a right in one namespace that is needed in all of them anyway."""
    wider = Right(right.verb, right.group, right.resource, right.subresource)
    return bool(right.namespace) and wider in among


def _namespaces(settings: Settings, policy: Policy) -> list[str]:
    """Where the policy's targets may be, as far as the file says: [""] for anywhere."""
    named = policy.target.namespace if policy.target is not None else _ANY
    if _ANY not in named:
        return [named]
    allowed = settings.allowed_namespaces
    if not allowed or any(set(glob) & set("*?[") for glob in allowed):
        return [""]
    return list(allowed)


def missing_role(accesses: Iterable[Access]) -> str:
    """What grants the rights that are denied: a Role for each namespace and a ClusterRole, as YAML; "" for none."""
    denied: dict[str, list[Right]] = {}
    for access in accesses:
        if not access.allowed:
            denied.setdefault(access.right.namespace, []).append(access.right)
    documents = [_role(namespace, rights) for namespace, rights in sorted(denied.items())]
    return yaml.safe_dump_all(documents, sort_keys=False) if documents else ""


def _role(namespace: str, rights: Iterable[Right]) -> dict[str, Any]:
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in sorted(rights):
        name = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        verbs.setdefault((right.group, name), []).append(right.verb)
    rules: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, name), given in verbs.items():
        rules.setdefault((group, tuple(given)), []).append(name)
    metadata = {"name": ROLE} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": metadata,
        "rules": [
            {"apiGroups": [group], "resources": sorted(names), "verbs": list(given)}
            for (group, given), names in sorted(rules.items())
        ],
    }
