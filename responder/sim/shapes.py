"""How built-in objects are made up, as far as who owns which field depends on it."""

import json
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]

# What the empty object of a type holds already: a struct that is always written is never "added" by anyone.
_TEMPLATE: Object = {"metadata": {}, "spec": {"containers": None}}
_JOB: Object = {"template": _TEMPLATE}
SKELETONS: Mapping[str, Object] = {
    "deployments.apps": {"spec": {"selector": None, "template": _TEMPLATE, "strategy": {}}, "status": {}},
    "replicasets.apps": {"spec": {"selector": None, "template": _TEMPLATE}, "status": {"replicas": 0}},
    "statefulsets.apps": {
        "spec": {"selector": None, "template": _TEMPLATE, "serviceName": "", "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    },
    "daemonsets.apps": {
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        },
    },
    "controllerrevisions.apps": {"revision": 0},
    "jobs.batch": {"spec": _JOB, "status": {}},
    "cronjobs.batch": {"spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": _JOB}}, "status": {}},
    "pods": {"spec": {"containers": None}, "status": {}},
    "namespaces": {"spec": {}, "status": {}},
    "services": {"spec": {}, "status": {"loadBalancer": {}}},
    "persistentvolumeclaims": {"spec": {"resources": {}}, "status": {}},
    "persistentvolumes": {"spec": {}, "status": {}},
    "resourcequotas": {"spec": {}, "status": {}},
    "configmaps": {},
    "secrets": {},
    "serviceaccounts": {},
    "endpoints": {},
    "events": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    },
    "leases.coordination.k8s.io": {"spec": {}},
    "horizontalpodautoscalers.autoscaling": {
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    },
    "poddisruptionbudgets.policy": {
        "spec": {},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    },
    "customresourcedefinitions.apiextensions.k8s.io": {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None},
    },
    "priorityclasses.scheduling.k8s.io": {"value": 0},
    "roles.rbac.authorization.k8s.io": {"rules": None},
    "clusterroles.rbac.authorization.k8s.io": {"rules": None},
    "rolebindings.rbac.authorization.k8s.io": {"roleRef": {}},
    "clusterrolebindings.rbac.authorization.k8s.io": {"roleRef": {}},
    "selfsubjectaccessreviews.authorization.k8s.io": {"spec": {}, "status": {"allowed": False}},
    "subjectaccessreviews.authorization.k8s.io": {"spec": {}, "status": {"allowed": False}},
}

_LIST_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "initContainers": (("name",),),
    "env": (("name",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "volumeDevices": (("devicePath",),),
    "imagePullSecrets": (("name",),),
    "hostAliases": (("ip",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "conditions": (("type",),),
    "addresses": (("type",),),
    "podIPs": (("ip",),),
    "ownerReferences": (("uid",),),
}
_SETS = frozenset({"finalizers"})
_ATOMIC = frozenset(
    {
        "selector",
        "nodeSelector",
        "labelSelector",
        "namespaceSelector",
        "involvedObject",
        "regarding",
        "related",
        "targetRef",
        "roleRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fieldRef",
        "resourceFieldRef",
        "nodeSelectorTerms",
        "claimRef",
        "secretRef",
    }
)
_META_LISTS = frozenset({"ownerReferences", "finalizers"})


def list_keys(field: str, items: list[Any], path: Path, typed: bool) -> tuple[str, ...] | None:
    """The keys of a list's items, () for a set, None for a list that is one value."""
    if not typed and not (field in _META_LISTS and path[0] == "f:metadata"):
        return None
    if field in _SETS:
        return ()
    for keys in _LIST_KEYS.get(field, ()):
        if all(isinstance(item, dict) and keys[0] in item for item in items):
            return keys
    return None


def item_element(keys: tuple[str, ...], item: Any) -> str:
    """The path element of a list's item."""
    if not keys:
        return f"v:{json.dumps(item)}"
    found = {key: item.get(key, "TCP" if key == "protocol" else None) for key in keys}
    return f"k:{json.dumps(found, separators=(',', ':'), sort_keys=True)}"


def is_atomic(field: str, path: Path, typed: bool) -> bool:
    """Whether a map is one value to its managers."""
    # Labels and annotations, data and limits may be named like anything.
    parent = path[-2] if len(path) > 1 else ""
    return (
        typed and field in _ATOMIC and parent not in ("f:labels", "f:annotations", "f:data", "f:stringData")
    )
