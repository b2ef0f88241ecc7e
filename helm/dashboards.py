# ruff: noqa: E501, ISC004 - an expression reads best in one piece, and is built where it stands.
"""The Grafana dashboards as data; helm/generate.py writes them as JSON into the chart.

Every expression is run against a real Prometheus by tests/chart/test_dashboards.py.
"""

from dataclasses import dataclass, field
from typing import Any

GPU = 'cluster=~"$cluster", vendor=~"$vendor", node=~"$node"'
WORK = 'cluster=~"$cluster", namespace=~"$namespace", workload=~"$workload"'
OWN = 'cluster=~"$cluster"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24


@dataclass(frozen=True)
class Panel:
    """One panel: `queries` are pairs of expression and legend."""

    title: str
    queries: list[tuple[str, str]]
    kind: str = "timeseries"
    unit: str = "short"
    wide: int = 12
    high: int = 8
    about: str = ""
    top: float | None = None
    steps: list[tuple[float | None, str]] = field(default_factory=list)
    step_line: bool = False


@dataclass(frozen=True)
class Row:
    title: str
    panels: list[Panel]


def stat(title: str, query: str, **more: Any) -> Panel:
    return Panel(title, [(query, "")], kind="stat", wide=4, high=4, **more)


BAD_ABOVE_ZERO: list[tuple[float | None, str]] = [(None, "green"), (1, "red")]
GOOD_AT_ONE: list[tuple[float | None, str]] = [(None, "red"), (1, "green")]

FLEET = [
    Row(
        "Now",
        [
            stat("GPUs", f"count(gpu:device:info{{{GPU}}})"),
            stat("Nodes", f"count(count by (cluster, node) (gpu:device:info{{{GPU}}}))"),
            stat("Utilization", f"avg(gpu:utilization_ratio:max{{{GPU}}})", unit="percentunit"),
            stat("GPUs below 2 %", f"count(gpu:utilization_ratio:max{{{GPU}}} < 0.02) or vector(0)"),
            stat("Power", f"sum(gpu:power_watts:max{{{GPU}}})", unit="watt"),
            stat(
                "GPU faults firing",
                'count(ALERTS{alertstate="firing", scope=~"node|cluster", cluster=~"$cluster"}) or vector(0)',
                steps=BAD_ABOVE_ZERO,
            ),
        ],
    ),
    Row(
        "Load",
        [
            Panel(
                "Utilization by vendor",
                [
                    (f"avg by (vendor) (gpu:utilization_ratio:max{{{GPU}}})", "{{vendor}} mean"),
                    (f"quantile by (vendor) (0.95, gpu:utilization_ratio:max{{{GPU}}})", "{{vendor}} p95"),
                ],
                unit="percentunit",
                top=1,
            ),
            Panel(
                "Utilization by node",
                [(f"topk(20, avg by (cluster, node) (gpu:utilization_ratio:max{{{GPU}}}))", "{{node}}")],
                unit="percentunit",
                top=1,
                about="The 20 busiest.",
            ),
            Panel(
                "Memory used by node",
                [(f"topk(20, avg by (cluster, node) (gpu:memory_used_ratio:max{{{GPU}}}))", "{{node}}")],
                unit="percentunit",
                top=1,
            ),
            Panel(
                "GPUs asked for and there",
                [
                    ('sum(node:gpu_allocatable:max{cluster=~"$cluster", node=~"$node"})', "allocatable"),
                    (
                        'sum(node:gpu_requests:sum{cluster=~"$cluster", node=~"$node"})',
                        "requested by running pods",
                    ),
                ],
            ),
        ],
    ),
    Row(
        "Power and heat",
        [
            Panel(
                "Power by vendor",
                [(f"sum by (vendor) (gpu:power_watts:max{{{GPU}}})", "{{vendor}}")],
                unit="watt",
            ),
            Panel(
                "Power of the limit",
                [(f"max by (cluster, node) (gpu:power_limit_used_ratio:max{{{GPU}}})", "{{node}}")],
                unit="percentunit",
                about="The highest GPU of each node.",
            ),
            Panel(
                "Temperature",
                [(f"topk(20, max by (cluster, node) (gpu:temperature_celsius:max{{{GPU}}}))", "{{node}}")],
                unit="celsius",
                about="The hottest GPU of each node.",
            ),
            Panel(
                "Memory temperature",
                [
                    (
                        f"topk(20, max by (cluster, node) (gpu:memory_temperature_celsius:max{{{GPU}}}))",
                        "{{node}}",
                    )
                ],
                unit="celsius",
            ),
        ],
    ),
    Row(
        "Faults",
        [
            Panel(
                "Faults firing",
                [
                    (
                        'count by (cluster, alertname, node) (ALERTS{alertstate="firing", scope=~"node|cluster", '
                        'cluster=~"$cluster"})',
                        "{{alertname}} {{node}}",
                    ),
                ],
                step_line=True,
                about="What each means: docs/runbooks.",
            ),
            Panel(
                "XID errors",
                [
                    (
                        f"sum by (cluster, node, gpu, xid, xid_class) (gpu_xid:new_errors:class{{{GPU}}})",
                        "{{node}} GPU {{gpu}}: XID {{xid}}, {{xid_class}}",
                    ),
                ],
                step_line=True,
                about="NVIDIA. The class says whether the GPU, or the application, is to blame.",
            ),
            Panel(
                "Uncorrectable ECC errors",
                [
                    (
                        f"max by (cluster, node, gpu) (gpu:uncorrectable_ecc_errors:max{{{GPU}}})",
                        "{{node}} GPU {{gpu}}",
                    ),
                ],
            ),
            Panel(
                "Remapped rows",
                [
                    (
                        f"max by (cluster, node, gpu) (gpu:uncorrectable_remapped_rows:max{{{GPU}}})",
                        "{{node}} GPU {{gpu}}",
                    ),
                ],
            ),
            Panel(
                "Exporters down",
                [
                    (
                        'sum by (cluster) (cluster:gpu_exporters_down:count{cluster=~"$cluster"}) or vector(0)',
                        "down",
                    ),
                    ('sum by (cluster) (cluster:gpu_exporters:count{cluster=~"$cluster"})', "known"),
                ],
                step_line=True,
            ),
            Panel(
                "GPUs by node",
                [('node:gpu_devices:count{cluster=~"$cluster", node=~"$node"}', "{{node}}")],
                step_line=True,
                about="One that is lost shows as a step down.",
            ),
        ],
    ),
]

REPLICAS = (
    'max by (cluster, namespace, workload) (label_replace(kube_deployment_{what}{{namespace=~"$namespace", '
    'deployment=~"$workload"}}, "workload", "$1", "deployment", "(.+)") '
    'or label_replace(kube_statefulset_{other}{{namespace=~"$namespace", statefulset=~"$workload"}}, '
    '"workload", "$1", "statefulset", "(.+)"))'
)
WANTED = REPLICAS.format(what="spec_replicas", other="replicas")
READY = REPLICAS.format(what="status_replicas_ready", other="status_replicas_ready")
NAME = "{{namespace}}/{{workload}}"

WORKLOADS = [
    Row(
        "Utilization against replicas",
        [
            Panel(
                "Utilization",
                [
                    (f"namespace_workload:gpu_utilization_ratio:avg{{{WORK}}}", f"{NAME} now"),
                    (f"namespace_workload:gpu_utilization_ratio:avg5m{{{WORK}}}", f"{NAME} 5m"),
                ],
                unit="percentunit",
                top=1,
                wide=24,
                steps=[(None, "transparent"), (0.85, "red")],
                about="Above 0.85 for 3m asks for more, below 0.30 for 30m for fewer.",
            ),
            Panel(
                "Replicas", [(WANTED, f"{NAME} wanted"), (READY, f"{NAME} ready")], step_line=True, wide=24
            ),
        ],
    ),
    Row(
        "Demand",
        [
            Panel("Requests in flight", [(f"namespace_workload:llm_requests_inflight:sum{{{WORK}}}", NAME)]),
            Panel(
                "Requests waiting per replica",
                [(f"namespace_workload:llm_requests_waiting:avg{{{WORK}}}", NAME)],
            ),
            Panel(
                "Time to the first token, p95",
                [(f"namespace_workload:llm_ttft_seconds:p95_5m{{{WORK}}}", NAME)],
                unit="s",
            ),
            Panel(
                "KV cache",
                [(f"namespace_workload:llm_kv_cache_ratio:max{{{WORK}}}", NAME)],
                unit="percentunit",
                top=1,
            ),
            Panel("GPUs held", [(f"namespace_workload:gpu_devices:count{{{WORK}}}", NAME)], step_line=True),
            Panel(
                "GPU memory used",
                [(f"namespace_workload:gpu_memory_used_bytes:sum{{{WORK}}}", NAME)],
                unit="bytes",
            ),
        ],
    ),
    Row(
        "Alerts and what came of them",
        [
            Panel(
                "Alerts firing",
                [
                    (
                        'count by (namespace, workload, alertname, action) (ALERTS{alertstate="firing", action=~"scale_.+|inhibit_.+", '
                        'namespace=~"$namespace", workload=~"$workload"})',
                        "{{alertname}} {{namespace}}/{{workload}}",
                    ),
                ],
                step_line=True,
            ),
            Panel(
                "Scale writes",
                [
                    (
                        "sum by (outcome) (increase(gpu_responder_scale_operations_total{"
                        + OWN
                        + "}[$__rate_interval]))",
                        "{{outcome}}",
                    ),
                ],
                step_line=True,
                about="Of all workloads.",
            ),
            Panel(
                "Time at maxReplicas",
                [
                    (
                        'sum_over_time(max by (namespace, name) (gpu_responder_target_at_max{namespace=~"$namespace", '
                        'name=~"$workload"})[$__range:$__interval]) / scalar(count_over_time(max(gpu_responder_policy_valid{'
                        + OWN
                        + "})[$__range:$__interval])) or 0 * max by (namespace, name) (label_replace("
                        + WANTED
                        + ', "name", "$1", "workload", "(.+)"))',
                        "{{namespace}}/{{name}}",
                    ),
                ],
                kind="bargauge",
                unit="percentunit",
                top=1,
                about="Of the time shown, while the responder was scraped.",
            ),
            Panel(
                "Time held, and why",
                [
                    (
                        "$__interval_ms / 1000 * count_over_time(max by (namespace, name, reason) (gpu_responder_target_held{"
                        'namespace=~"$namespace", name=~"$workload"})[$__range:$__interval])',
                        "{{namespace}}/{{name}} {{reason}}",
                    ),
                ],
                kind="bargauge",
                unit="s",
                about="Of the time shown, while something asked for more or fewer replicas and did not get them. "
                "What each reason means: docs/how-it-decides.md.",
            ),
        ],
    ),
]

RATE = "[$__rate_interval]"


def quantile(q: float, metric: str) -> str:
    return f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{{{OWN}}}{RATE})))"


RESPONDER = [
    Row(
        "Now",
        [
            stat(
                "Scraped",
                'count(gpu_responder_policy_valid{cluster=~"$cluster"}) or vector(0)',
                steps=GOOD_AT_ONE,
            ),
            stat(
                "Policy file",
                f"min(gpu_responder_policy_valid{{{OWN}}})",
                steps=GOOD_AT_ONE,
                about="1: the newest is in force.",
            ),
            stat("Store", f"min(gpu_responder_store_up{{{OWN}}})", steps=GOOD_AT_ONE),
            stat(
                "Safe mode",
                f"max(gpu_responder_safe_mode{{{OWN}}})",
                steps=BAD_ABOVE_ZERO,
                about="1: no heartbeat, nothing goes down.",
            ),
            stat("Heartbeat age", f"max(gpu_responder_heartbeat_age_seconds{{{OWN}}})", unit="s"),
            stat("Targets", f"max(gpu_responder_targets{{{OWN}}})"),
        ],
    ),
    Row(
        "Taking in",
        [
            Panel(
                "Deliveries",
                [(f"sum by (result) (rate(gpu_responder_deliveries_total{{{OWN}}}{RATE}))", "{{result}}")],
                unit="reqps",
            ),
            Panel(
                "Alerts",
                [(f"sum by (result) (rate(gpu_responder_alerts_total{{{OWN}}}{RATE}))", "{{result}}")],
                unit="cps",
            ),
            Panel(
                "Time to answer",
                [
                    (quantile(0.5, "gpu_responder_webhook_duration_seconds"), "p50"),
                    (quantile(0.99, "gpu_responder_webhook_duration_seconds"), "p99"),
                ],
                unit="s",
            ),
            Panel(
                "Waiting",
                [
                    (f"max(gpu_responder_inbox_deliveries{{{OWN}}})", "deliveries in the inbox"),
                    (f"max(gpu_responder_unknown_alerts{{{OWN}}})", "alerts not heard of"),
                ],
            ),
        ],
    ),
    Row(
        "Deciding and acting",
        [
            Panel(
                "Decisions",
                [(f"sum by (reason) (increase(gpu_responder_decisions_total{{{OWN}}}{RATE}))", "{{reason}}")],
                step_line=True,
            ),
            Panel(
                "Scale writes",
                [
                    (
                        f"sum by (outcome) (increase(gpu_responder_scale_operations_total{{{OWN}}}{RATE}))",
                        "{{outcome}}",
                    )
                ],
                step_line=True,
            ),
            Panel(
                "From alert to scale",
                [
                    (
                        f"histogram_quantile(0.5, sum by (le) (increase(gpu_responder_alert_to_scale_seconds_bucket{{{OWN}}}[$__range])))",
                        "p50 from startsAt",
                    ),
                    (
                        f"histogram_quantile(0.95, sum by (le) (increase(gpu_responder_alert_to_scale_seconds_bucket{{{OWN}}}[$__range])))",
                        "p95 from startsAt",
                    ),
                    (
                        f"histogram_quantile(0.95, sum by (le) (increase(gpu_responder_receipt_to_scale_seconds_bucket{{{OWN}}}[$__range])))",
                        "p95 from receipt",
                    ),
                ],
                unit="s",
            ),
            Panel(
                "Writes of unknown outcome",
                [
                    (f"max(gpu_responder_pending_intents{{{OWN}}})", "pending"),
                    (f"max(gpu_responder_pending_intent_age_seconds{{{OWN}}})", "age of the oldest, s"),
                ],
            ),
        ],
    ),
    Row(
        "Trouble and people",
        [
            Panel(
                "API errors",
                [(f"sum by (kind) (rate(gpu_responder_api_errors_total{{{OWN}}}{RATE}))", "{{kind}}")],
                unit="cps",
            ),
            Panel(
                "Refused requests",
                [(f"sum(rate(gpu_responder_auth_failures_total{{{OWN}}}{RATE}))", "refused")],
                unit="reqps",
            ),
            Panel(
                "Overrides in force",
                [(f"max by (kind) (gpu_responder_active_overrides{{{OWN}}})", "{{kind}}")],
                step_line=True,
            ),
            Panel(
                "Overrides that end",
                [
                    (
                        f"max by (id, kind, target) (gpu_responder_override_ends_timestamp_seconds{{{OWN}}}) - time()",
                        "{{kind}} {{target}}",
                    ),
                ],
                kind="bargauge",
                unit="s",
            ),
        ],
    ),
]


@dataclass(frozen=True)
class Variable:
    name: str
    query: str


DASHBOARDS: dict[str, tuple[str, str, list[Row], list[Variable]]] = {
    "fleet": (
        "GPU fleet",
        "gpu-responder-fleet",
        FLEET,
        [
            Variable("cluster", "label_values(gpu:device:info, cluster)"),
            Variable("vendor", 'label_values(gpu:device:info{cluster=~"$cluster"}, vendor)'),
            Variable("node", 'label_values(gpu:device:info{cluster=~"$cluster", vendor=~"$vendor"}, node)'),
        ],
    ),
    "workloads": (
        "GPU workloads",
        "gpu-responder-workloads",
        WORKLOADS,
        [
            Variable("cluster", "label_values(namespace_workload:gpu_devices:count, cluster)"),
            Variable(
                "namespace",
                'label_values(namespace_workload:gpu_devices:count{cluster=~"$cluster"}, namespace)',
            ),
            Variable(
                "workload",
                'label_values(namespace_workload:gpu_devices:count{namespace=~"$namespace"}, workload)',
            ),
        ],
    ),
    "responder": (
        "gpu-responder",
        "gpu-responder",
        RESPONDER,
        [
            Variable("cluster", "label_values(gpu_responder_policy_valid, cluster)"),
        ],
    ),
}

ANNOTATIONS = [
    (
        "Scale-up alerts",
        "red",
        'max by (namespace, workload, alertname) (ALERTS{alertstate="firing", action="scale_up", '
        'namespace=~"$namespace", workload=~"$workload"})',
        "{{alertname}} {{namespace}}/{{workload}}",
    ),
    (
        "Scale-down alerts",
        "blue",
        'max by (namespace, workload, alertname) (ALERTS{alertstate="firing", '
        'action="scale_down", namespace=~"$namespace", workload=~"$workload"})',
        "{{alertname}} {{namespace}}/{{workload}}",
    ),
    (
        "Decisions that acted",
        "purple",
        'sum by (reason) (increase(gpu_responder_decisions_total{reason=~"Scaled.+|Pinned"}[$__rate_interval])) > 0',
        "{{reason}}",
    ),
]


def dashboard(name: str) -> dict[str, Any]:
    """One dashboard in Grafana's JSON, schema version 39 (Grafana 11), also taken by 10 and 12."""
    title, uid, rows, variables = DASHBOARDS[name]
    return {
        "title": title,
        "uid": uid,
        "tags": ["gpu", "gpu-responder"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "annotations": {"list": _annotations(name)},
        "templating": {"list": [_datasource(), *map(_variable, variables)]},
        "links": [
            {
                "title": "GPU dashboards",
                "type": "dashboards",
                "tags": ["gpu-responder"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": _panels(rows),
    }


def _annotations(name: str) -> list[dict[str, Any]]:
    if name != "workloads":
        return []
    return [
        {
            "name": title,
            "datasource": DATASOURCE,
            "enable": True,
            "expr": expr,
            "iconColor": color,
            "titleFormat": text,
            "step": "30s",
        }
        for title, color, expr, text in ANNOTATIONS
    ]


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Also what has no such label at all.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: list[Row]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        made.append(
            _placed(
                {"type": "row", "title": row.title, "collapsed": False, "panels": []},
                len(made) + 1,
                0,
                y,
                24,
                1,
            )
        )
        y += 1
        x = 0
        for panel in row.panels:
            if x + panel.wide > WIDTH:
                x, y = 0, y + panel.high
            made.append(_placed(_panel(panel), len(made) + 1, x, y, panel.wide, panel.high))
            x += panel.wide
        y += row.panels[-1].high
    return made


def _placed(panel: dict[str, Any], number: int, x: int, y: int, wide: int, high: int) -> dict[str, Any]:
    return {"id": number, "gridPos": {"x": x, "y": y, "w": wide, "h": high}, **panel}


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.top is not None:
        defaults["max"] = panel.top
    if panel.steps:
        steps = [{"value": value, "color": color} for value, color in panel.steps]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "lineInterpolation": "stepAfter" if panel.step_line else "linear",
            "fillOpacity": 5,
        }
        if panel.steps:
            defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
    instant = panel.kind != "timeseries"
    return {
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.about} if panel.about else {}),
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": expr,
                "legendFormat": legend or "__auto",
                "instant": instant,
                "range": not instant,
            }
            for number, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.kind == "stat":
        return {"reduceOptions": last, "colorMode": "value" if panel.steps else "none", "graphMode": "none"}
    if panel.kind == "bargauge":
        return {"reduceOptions": last, "orientation": "horizontal", "displayMode": "basic"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
