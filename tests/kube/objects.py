"""Kubernetes objects for tests, no larger than they need to be."""


def pod(
    name: str,
    *,
    node: str = "",
    ready: bool = False,
    phase: str = "Pending",
    unscheduled: str = "",
    owner: dict | None = None,
    labels: dict | None = None,
    gpus: int = 0,
    **metadata: object,
) -> dict:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if unscheduled:
        conditions.append(
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unscheduled}
        )
    meta = {"name": name, "namespace": "rec", "uid": f"uid-{name}", "labels": labels or {}, **metadata}
    if owner:
        meta["ownerReferences"] = [owner]
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "metadata": meta,
        "spec": {"containers": [{"name": "c", "resources": resources}], "nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    }


def node(name: str, gpus: int, *, labels: dict | None = None, **spec: object) -> dict:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
        },
    }


def owner(kind: str, name: str, uid: str, api_version: str = "apps/v1") -> dict:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def listed(*items: dict, more: str = "") -> tuple:
    return (
        200,
        {},
        {"kind": "List", "metadata": {"resourceVersion": "9", "continue": more}, "items": list(items)},
    )


def found(name: str, uid: str, owned_by: dict | None = None) -> tuple:
    meta: dict = {"name": name, "namespace": "rec", "uid": uid}
    if owned_by:
        meta["ownerReferences"] = [owned_by]
    return 200, {}, {"metadata": meta}
