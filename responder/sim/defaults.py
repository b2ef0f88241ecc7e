"""What the real server fills in when objects are written: defaults, prepared status, admission."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from responder.sim.shapes import SKELETONS

Object = dict[str, Any]

_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_FASTEST_UP = (("Pods", 4, 15), ("Percent", 100, 15))
_FASTEST_DOWN = (("Percent", 100, 15),)
_NOT_READY = "node.kubernetes.io/not-ready"
_WITH_STATUS_AT_CREATION = frozenset({"nodes"})


def suffix(length: int = 5) -> str:
    """A random ending, in the alphabet of generated names."""
    return "".join(secrets.choice(_NAME_ALPHABET) for _ in range(length))


def apply_defaults(resource: str, obj: Object) -> None:
    """Fill in what decoding fills in, so that writers own it."""
    fill = _DEFAULTS.get(resource)
    if fill:
        fill(obj)
    times = _CONDITION_TIMES.get(resource, ())
    for condition in ((obj.get("status") or {}).get("conditions") or ()) if times else ():
        for field in times:
            condition.setdefault(field, None)


def prepare_for_create(resource: str, obj: Object) -> None:
    """Set what a new object starts with: its status and what belongs to the server alone."""
    if resource not in _WITH_STATUS_AT_CREATION and "status" in SKELETONS.get(resource, {}):
        obj["status"] = _copied(SKELETONS[resource]["status"])
    prepare = _PREPARE.get(resource)
    if prepare:
        prepare(obj)


def admit(resource: str, obj: Object) -> None:
    """What admission adds to a new object; nobody owns these fields."""
    admission = _ADMIT.get(resource)
    if admission:
        admission(obj)


def fill_for_controller(resource: str, obj: Object) -> None:
    """All three, for code that creates objects in the store without going through the API."""
    apply_defaults(resource, obj)
    prepare_for_create(resource, obj)
    admit(resource, obj)


def _pod_spec(spec: Object) -> None:
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            _container(container)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if source in volume:
                volume[source].setdefault("defaultMode", 420)
        if not set(volume) - {"name"}:
            volume["emptyDir"] = {}


def _container(container: Object) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    fresh = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if fresh else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1)):
                probe.setdefault(key, value)
            probe.setdefault("failureThreshold", 3)
            if "httpGet" in probe:
                probe["httpGet"].setdefault("path", "/")
                probe["httpGet"].setdefault("scheme", "HTTP")
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")
    for kind in ("limits", "requests"):
        quantities = container["resources"].get(kind)
        if quantities:
            container["resources"][kind] = {key: str(value) for key, value in quantities.items()}


def _template(obj: Object) -> Object:
    spec: Object = obj.setdefault("spec", {})
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    _pod_spec(template.setdefault("spec", {}))
    return spec


def _deployment(obj: Object) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _replicaset(obj: Object) -> None:
    _template(obj).setdefault("replicas", 1)


def _statefulset(obj: Object) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("serviceName", "")
    spec.setdefault("podManagementPolicy", "OrderedReady")
    update = spec.setdefault("updateStrategy", {})
    if update.setdefault("type", "RollingUpdate") == "RollingUpdate":
        update.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})


def _daemonset(obj: Object) -> None:
    obj["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "1")
    spec = _template(obj)
    update = spec.setdefault("updateStrategy", {})
    if update.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = update.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


def _pod(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    _pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            limits = container["resources"].get("limits")
            if limits:
                container["resources"]["requests"] = limits | (container["resources"].get("requests") or {})


def _namespace(obj: Object) -> None:
    meta = obj["metadata"]
    if meta.get("name"):
        meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]


def _hpa(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is None:
        return
    behavior.setdefault("scaleUp", {}).setdefault("stabilizationWindowSeconds", 0)
    for direction, steps in (("scaleUp", _FASTEST_UP), ("scaleDown", _FASTEST_DOWN)):
        rules = behavior.setdefault(direction, {})
        rules.setdefault("selectPolicy", "Max")
        if not rules.get("policies"):
            rules["policies"] = [{"type": t, "value": v, "periodSeconds": p} for t, v, p in steps]


def _event(obj: Object) -> None:
    if obj["apiVersion"] == "v1":
        obj.setdefault("source", {})
        for field in ("firstTimestamp", "lastTimestamp", "eventTime"):
            obj.setdefault(field, None)
        obj.setdefault("reportingComponent", "")
        obj.setdefault("reportingInstance", "")
    else:
        obj.setdefault("deprecatedSource", {})
        for field in ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"):
            obj.setdefault(field, None)


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")


def _service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port["targetPort"] = port.get("targetPort") or port.get("port")


def _job(obj: Object) -> None:
    spec = _template(obj)
    for key, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6), ("suspend", False)):
        spec.setdefault(key, value)
    spec.setdefault("completionMode", "NonIndexed")


def _definition(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _role_binding(obj: Object) -> None:
    obj.setdefault("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


def _lists_in_role(obj: Object) -> None:
    obj.setdefault("rules", None)


def _prepare_namespace(obj: Object) -> None:
    obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
    obj["status"] = {"phase": "Active"}


def _prepare_pod(obj: Object) -> None:
    obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}


def _prepare_node(obj: Object) -> None:
    status = obj.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    info = status.setdefault("nodeInfo", {})
    for key in (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ):
        info.setdefault(key, "")


def _prepare_definition(obj: Object) -> None:
    stored = [version["name"] for version in obj["spec"]["versions"] if version.get("storage")]
    obj["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored,
    }


def _admit_pod(obj: Object) -> None:
    spec = obj["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for key in (_NOT_READY, "node.kubernetes.io/unreachable"):
        if not any(
            t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    if spec.get("automountServiceAccountToken") is not False:
        _mount_token(spec)


def _mount_token(spec: Object) -> None:
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    volumes = spec.setdefault("volumes", [])
    if any(volume["name"].startswith("kube-api-access-") for volume in volumes):
        return
    name = f"kube-api-access-{suffix()}"
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources: list[Object] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]
    volumes.append({"name": name, "projected": {"sources": sources, "defaultMode": 420}})
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        mounts = container.setdefault("volumeMounts", [])
        if not any(mount["mountPath"] == path for mount in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": path})


def _admit_node(obj: Object) -> None:
    taints = obj.setdefault("spec", {}).setdefault("taints", [])
    if not any(taint["key"] == _NOT_READY for taint in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})


def quality_of_service(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory alone."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    asked, guaranteed = False, True
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            asked = asked or name in limits or name in requests
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(below) for key, below in value.items()}
    return [_copied(below) for below in value] if isinstance(value, list) else value


# Times that Go writes even when they are unset.
_CONDITION_TIMES: Mapping[str, tuple[str, ...]] = {
    "pods": ("lastProbeTime", "lastTransitionTime"),
    "nodes": ("lastHeartbeatTime", "lastTransitionTime"),
    "deployments.apps": ("lastUpdateTime", "lastTransitionTime"),
    "replicasets.apps": ("lastTransitionTime",),
    "statefulsets.apps": ("lastTransitionTime",),
    "daemonsets.apps": ("lastTransitionTime",),
    "horizontalpodautoscalers.autoscaling": ("lastTransitionTime",),
    "poddisruptionbudgets.policy": ("lastTransitionTime",),
    "jobs.batch": ("lastProbeTime", "lastTransitionTime"),
}
_Filler = Callable[[Object], None]
_DEFAULTS: Mapping[str, _Filler] = {
    "deployments.apps": _deployment,
    "replicasets.apps": _replicaset,
    "statefulsets.apps": _statefulset,
    "daemonsets.apps": _daemonset,
    "pods": _pod,
    "namespaces": _namespace,
    "horizontalpodautoscalers.autoscaling": _hpa,
    "events": _event,
    "secrets": _secret,
    "services": _service,
    "jobs.batch": _job,
    "customresourcedefinitions.apiextensions.k8s.io": _definition,
    "rolebindings.rbac.authorization.k8s.io": _role_binding,
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
    "roles.rbac.authorization.k8s.io": _lists_in_role,
    "clusterroles.rbac.authorization.k8s.io": _lists_in_role,
}
_PREPARE: Mapping[str, _Filler] = {
    "namespaces": _prepare_namespace,
    "pods": _prepare_pod,
    "nodes": _prepare_node,
    "customresourcedefinitions.apiextensions.k8s.io": _prepare_definition,
}
_ADMIT: Mapping[str, _Filler] = {"pods": _admit_pod, "nodes": _admit_node}
