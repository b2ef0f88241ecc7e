"""Server-side printing: the tables that kubectl get shows."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from responder.sim.objects import Entry
from responder.sim.resources import Resource
from responder.sim.scale import lookup
from responder.sim.selectors import format_label_selector

Object = dict[str, Any]
Cells = Callable[[Object, datetime], list[Any]]


def build(resource: Resource, entries: list[Entry], now: datetime, query: Mapping[str, str]) -> Object:
    """A meta.k8s.io/v1 Table of these objects; includeObject as the query says."""
    columns, cells = _columns(resource)
    include = query.get("includeObject") or "Metadata"
    rows: list[Object] = []
    for entry in entries:
        row: Object = {"cells": cells(entry.obj, now)}
        if include == "Metadata":
            row["object"] = partial(entry)
        elif include == "Object":
            row["object"] = entry.obj
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": columns,
        "rows": rows,
    }


def partial(entry: Entry) -> Object:
    """An object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": entry.obj["metadata"],
    }


def age(stamp: str | None, now: datetime) -> str:
    """How long ago, as kubectl abbreviates it."""
    if not stamp:
        return "<unknown>"
    then = datetime.fromisoformat(stamp)
    return duration((now.astimezone(UTC) - then).total_seconds())


def duration(seconds: float) -> str:
    """2m10s, 5h, 3d2h: k8s.io/apimachinery/pkg/util/duration.HumanDuration."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 120:
        return f"{total}s"
    minutes, hours = total // 60, total // 3600
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(first: int, unit: str, second: int, small: str) -> str:
    return f"{first}{unit}{second}{small}" if second else f"{first}{unit}"


def _columns(resource: Resource) -> tuple[list[Object], Cells]:
    if resource.custom:
        return _custom(resource)
    known = _PRINTERS.get(resource.key)
    if known is None:
        return _defined(("Name", "Age")), lambda obj, now: [_name(obj), _age(obj, now)]
    names, cells = known
    return _defined(names), cells


def _defined(names: tuple[str, ...]) -> list[Object]:
    """Columns from their names; one that starts with + is for -o wide."""
    found = []
    for name in names:
        shown = name.lstrip("+")
        found.append(
            {
                "name": shown,
                "type": "string",
                "format": "name" if shown == "Name" else "",
                "description": shown,
                "priority": 1 if name.startswith("+") else 0,
            }
        )
    return found


def _custom(resource: Resource) -> tuple[list[Object], Cells]:
    wanted = resource.printer_columns
    if not wanted:
        return _defined(("Name", "Age")), lambda obj, now: [_name(obj), _age(obj, now)]
    columns = _defined(("Name",))
    for column in wanted:
        columns.append(
            {
                "name": column["name"],
                "type": column.get("type", "string"),
                "format": column.get("format", ""),
                "description": column.get("description", ""),
                "priority": column.get("priority", 0),
            }
        )

    def cells(obj: Object, now: datetime) -> list[Any]:
        row: list[Any] = [_name(obj)]
        for column in wanted:
            value = lookup(obj, column["jsonPath"].lstrip("."))
            row.append(age(value, now) if column.get("type") == "date" and value else value)
        return row

    return columns, cells


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _joined(items: Any, empty: str = "<none>") -> str:
    return ",".join(str(item) for item in items) or empty


def _wide(obj: Object) -> list[Any]:
    containers = (_spec(obj).get("template") or {}).get("spec", {}).get("containers") or ()
    return [_joined(c["name"] for c in containers), _joined(c.get("image", "") for c in containers)]


def _selector(obj: Object) -> str:
    return format_label_selector(_spec(obj).get("selector")) or "<none>"


def _pod(obj: Object, now: datetime) -> list[Any]:
    spec, status = _spec(obj), _status(obj)
    statuses = status.get("containerStatuses") or []
    ready = sum(bool(s.get("ready")) for s in statuses)
    if not statuses and _condition(obj, "Ready") == "True":
        ready = len(spec.get("containers") or ())
    restarts = sum(s.get("restartCount") or 0 for s in statuses)
    ip = _joined((i["ip"] for i in status.get("podIPs") or ()), status.get("podIP") or "<none>")
    gates = spec.get("readinessGates") or ()
    return [
        _name(obj),
        f"{ready}/{len(spec.get('containers') or ())}",
        _pod_status(obj, statuses),
        restarts,
        _age(obj, now),
        ip,
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"0/{len(gates)}" if gates else "<none>",
    ]


def _pod_status(obj: Object, statuses: list[Object]) -> str:
    status = _status(obj)
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    for container in statuses:
        for state in ("waiting", "terminated"):
            reason = ((container.get("state") or {}).get(state) or {}).get("reason")
            if reason:
                return str(reason)
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _condition(obj: Object, kind: str) -> str:
    for condition in _status(obj).get("conditions") or ():
        if condition["type"] == kind:
            return str(condition["status"])
    return ""


def _node(obj: Object, now: datetime) -> list[Any]:
    status, info = _status(obj), _status(obj).get("nodeInfo") or {}
    ready = {"True": "Ready", "False": "NotReady"}.get(_condition(obj, "Ready"), "Unknown")
    if _spec(obj).get("unschedulable"):
        ready += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = [
        key.removeprefix(prefix) for key in obj["metadata"].get("labels") or {} if key.startswith(prefix)
    ]
    addresses = {address["type"]: address["address"] for address in status.get("addresses") or ()}
    return [
        _name(obj),
        ready,
        _joined(sorted(roles)),
        _age(obj, now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _deployment(obj: Object, now: datetime) -> list[Any]:
    status = _status(obj)
    return [
        _name(obj),
        f"{status.get('readyReplicas') or 0}/{_spec(obj).get('replicas') or 0}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        _age(obj, now),
        *_wide(obj),
        _selector(obj),
    ]


def _replicaset(obj: Object, now: datetime) -> list[Any]:
    status = _status(obj)
    counts = [_spec(obj).get("replicas") or 0, status.get("replicas") or 0, status.get("readyReplicas") or 0]
    return [_name(obj), *counts, _age(obj, now), *_wide(obj), _selector(obj)]


def _statefulset(obj: Object, now: datetime) -> list[Any]:
    ready = f"{_status(obj).get('readyReplicas') or 0}/{_spec(obj).get('replicas') or 0}"
    return [_name(obj), ready, _age(obj, now), *_wide(obj)]


def _daemonset(obj: Object, now: datetime) -> list[Any]:
    status = _status(obj)
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    nodes = (_spec(obj).get("template") or {}).get("spec", {}).get("nodeSelector") or {}
    return [
        _name(obj),
        *(status.get(name) or 0 for name in fields),
        _joined(f"{key}={value}" for key, value in sorted(nodes.items())),
        _age(obj, now),
        *_wide(obj),
        _selector(obj),
    ]


def _event(obj: Object, now: datetime) -> list[Any]:
    about = obj.get("involvedObject") or {}
    source = obj.get("source") or {}
    last = obj.get("lastTimestamp") or obj.get("eventTime") or obj.get("firstTimestamp")
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    seen = age(last, now)
    return [
        seen,
        obj.get("type") or "",
        obj.get("reason") or "",
        f"{(about.get('kind') or '').lower()}/{about.get('name') or ''}",
        about.get("fieldPath") or "",
        _joined(
            filter(None, (source.get("component") or obj.get("reportingComponent"), source.get("host"))), ""
        ),
        (obj.get("message") or "").strip(),
        age(first, now),
        obj.get("count") or 1,
        _name(obj),
    ]


def _namespace(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), _status(obj).get("phase") or "", _age(obj, now)]


def _configmap(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)]


def _secret(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), obj.get("type") or "", len(obj.get("data") or {}), _age(obj, now)]


def _lease(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), _spec(obj).get("holderIdentity") or "", _age(obj, now)]


def _budget(obj: Object, now: datetime) -> list[Any]:
    spec = _spec(obj)
    return [
        _name(obj),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        _status(obj).get("disruptionsAllowed") or 0,
        _age(obj, now),
    ]


def _autoscaler(obj: Object, now: datetime) -> list[Any]:
    spec, status = _spec(obj), _status(obj)
    target = spec.get("scaleTargetRef") or {}
    return [
        _name(obj),
        f"{target.get('kind')}/{target.get('name')}",
        _joined(map(_metric, spec.get("metrics") or ())),
        str(spec.get("minReplicas", "<unset>")),
        spec.get("maxReplicas") or 0,
        status.get("currentReplicas") or 0,
        _age(obj, now),
    ]


def _metric(metric: Object) -> str:
    inner = metric.get(metric["type"][0].lower() + metric["type"][1:]) or {}
    target = inner.get("target") or {}
    prefix = f"{inner['name']}: " if metric["type"] == "Resource" else ""
    if "averageUtilization" in target:
        return f"{prefix}<unknown>/{target['averageUtilization']}%"
    if "averageValue" in target:
        return f"{prefix}<unknown>/{target['averageValue']} (avg)"
    return f"{prefix}<unknown>/{target.get('value', '')}"


def _definition(obj: Object, _: datetime) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp")]


def _service(obj: Object, now: datetime) -> list[Any]:
    spec = _spec(obj)
    ports = _joined(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in spec.get("ports") or ())
    selector = _joined(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
    kind, address = spec.get("type") or "", spec.get("clusterIP") or "<none>"
    return [_name(obj), kind, address, "<none>", ports, _age(obj, now), selector]


def _job(obj: Object, now: datetime) -> list[Any]:
    status, spec = _status(obj), _spec(obj)
    done = "Complete" if _condition(obj, "Complete") == "True" else "Running"
    return [
        _name(obj),
        done,
        f"{status.get('succeeded') or 0}/{spec.get('completions') or 1}",
        "",
        _age(obj, now),
        *_wide(obj),
        _selector(obj),
    ]


_WORKLOAD = ("+Containers", "+Images", "+Selector")
_PRINTERS: Mapping[str, tuple[tuple[str, ...], Cells]] = {
    "pods": (
        ("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"),
        _pod,
    ),
    "nodes": (
        (
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ),
        _node,
    ),
    "deployments.apps": (("Name", "Ready", "Up-to-date", "Available", "Age", *_WORKLOAD), _deployment),
    "replicasets.apps": (("Name", "Desired", "Current", "Ready", "Age", *_WORKLOAD), _replicaset),
    "statefulsets.apps": (("Name", "Ready", "Age", "+Containers", "+Images"), _statefulset),
    "daemonsets.apps": (
        (
            "Name",
            "Desired",
            "Current",
            "Ready",
            "Up-to-date",
            "Available",
            "Node Selector",
            "Age",
            *_WORKLOAD,
        ),
        _daemonset,
    ),
    "events": (
        (
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "+Subobject",
            "+Source",
            "Message",
            "+First Seen",
            "+Count",
            "+Name",
        ),
        _event,
    ),
    "namespaces": (("Name", "Status", "Age"), _namespace),
    "configmaps": (("Name", "Data", "Age"), _configmap),
    "secrets": (("Name", "Type", "Data", "Age"), _secret),
    "leases.coordination.k8s.io": (("Name", "Holder", "Age"), _lease),
    "poddisruptionbudgets.policy": (
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
        _budget,
    ),
    "horizontalpodautoscalers.autoscaling": (
        ("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"),
        _autoscaler,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (("Name", "Created At"), _definition),
    "services": (
        ("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"),
        _service,
    ),
    "jobs.batch": (("Name", "Status", "Completions", "Duration", "Age", *_WORKLOAD), _job),
}
