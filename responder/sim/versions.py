"""Resources that are served in more than one version: between what is stored and what a client sees."""

import copy
from typing import Any

from responder.sim.resources import Resource

Object = dict[str, Any]

_EVENT_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)


def to_view(resource: Resource, obj: Object) -> Object:
    """A stored object as this version shows it; `obj` is the caller's and may be changed."""
    if obj.get("apiVersion") == resource.api_version:
        return obj
    obj["apiVersion"] = resource.api_version
    if resource.key == "events":
        return _renamed(obj, dict(_EVENT_NAMES))
    if resource.key == "horizontalpodautoscalers.autoscaling":
        return _autoscaler_v1(obj)
    return obj


def to_storage(resource: Resource, stored: Resource, obj: Object) -> Object:
    """An object of this version as it is stored."""
    if resource.api_version == stored.api_version:
        return obj
    obj = {**obj, "apiVersion": stored.api_version}
    if resource.key == "events":
        return _renamed(obj, {new: old for old, new in _EVENT_NAMES})
    if resource.key == "horizontalpodautoscalers.autoscaling":
        return _autoscaler_v2(obj)
    return obj


def _renamed(obj: Object, names: dict[str, str]) -> Object:
    return {names.get(key, key): value for key, value in obj.items()}


def _autoscaler_v1(obj: Object) -> Object:
    seen = copy.deepcopy(obj)
    spec, status = seen.get("spec") or {}, seen.get("status") or {}
    for metric in spec.pop("metrics", None) or ():
        target = (metric.get("resource") or {}).get("target") or {}
        if (metric.get("resource") or {}).get("name") == "cpu" and "averageUtilization" in target:
            spec["targetCPUUtilizationPercentage"] = target["averageUtilization"]
    spec.pop("behavior", None)
    status.pop("currentMetrics", None)
    status.pop("conditions", None)
    status.setdefault("currentReplicas", 0)
    return seen


def _autoscaler_v2(obj: Object) -> Object:
    stored = copy.deepcopy(obj)
    spec = stored.get("spec") or {}
    utilization = spec.pop("targetCPUUtilizationPercentage", None)
    if utilization is not None:
        target = {"type": "Utilization", "averageUtilization": utilization}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return stored
