"""Make the parts of the chart that have their source elsewhere: `python helm/generate.py`, or `make chart`.

rules/ is copied, dashboards are written out, the policy's schema is put into values.schema.json, and README.md
and the rest of that schema are made from values.yaml. `--check` writes nothing, and says what differs.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml
from dashboards import DASHBOARDS, dashboard

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "gpu-responder"

# The draft that Helm 3 reads too. The policy's own schema is 2020-12, and says nothing that this one would not.
DRAFT = "http://json-schema.org/draft-07/schema#"

TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
OPEN = {"type": "object"}
OPEN_LIST = {"type": "array", "items": {"type": "object"}}
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"}
NAME = {"maxLength": 253, "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"}
KEY = {"minLength": 1, "maxLength": 253, "pattern": "^[-._a-zA-Z0-9]+$"}
URLS = {
    "type": "array",
    "items": {"type": "string", "pattern": "^https?://[^\\s/]+\\S*$"},
    "uniqueItems": True,
}

# What a default value does not say of its key.
OVERLAY: dict[str, dict[str, Any]] = {
    "nameOverride": {"maxLength": 40, "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
    "fullnameOverride": {"maxLength": 50, "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
    "commonLabels": LABELS,
    "targetNamespaces": {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9*?\\[\\]!-]+$"},
    },
    "cluster": {"maxLength": 253, "pattern": "^[^\\x00-\\x1f]*$"},
    "replicaCount": {"type": ["integer", "null"], "minimum": 1, "maximum": 9},
    "store.type": {"enum": ["kubernetes", "sqlite"]},
    "store.sync": {"enum": ["normal", "full"]},
    "store.persistence.accessMode": {"enum": ["ReadWriteOnce", "ReadWriteOncePod"]},
    "store.persistence.size": {"pattern": "^[0-9.]+(Ki|Mi|Gi|Ti|k|M|G|T)?$"},
    "store.persistence.annotations": LABELS,
    "prometheusUrls": URLS,
    "alertmanagerUrls": URLS,
    "store.persistence.existingClaim": NAME,
    "store.persistence.storageClassName": {
        "maxLength": 253,
        "pattern": "^(-|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
    },
    "tokens.existingHashesSecret.name": NAME,
    "tokens.existingHashesSecret.key": KEY,
    "tokens.alertmanagerSecret.name": NAME,
    "tokens.alertmanagerSecret.key": KEY,
    "tokens.viewerSecret.name": NAME,
    "tokens.viewerSecret.key": KEY,
    "tokens.entries": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "role", "sha256"],
            "properties": {
                "name": {"description": "Who: stands in audit and log.", "type": "string", "minLength": 1},
                "role": {"description": "What it may do.", "enum": ["alertmanager", "viewer", "operator"]},
                "sha256": {
                    "description": "The token's SHA-256.",
                    "type": "string",
                    "pattern": "^[a-f0-9]{64}$",
                },
                "namespaces": {"description": "Globs that limit it.", **TEXTS, "minItems": 1},
            },
        },
    },
    # A host, perhaps a port, perhaps folders: no https:// before it, no slash after it.
    "image.registry": {"pattern": "^([a-zA-Z0-9.-]*[a-zA-Z0-9](:[0-9]+)?(/[a-z0-9._-]+)*)?$"},
    "image.repository": {"minLength": 1, "pattern": "^[a-z0-9._/-]+$"},
    "image.tag": {"pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "imagePullSecrets": OPEN_LIST,
    "workers": {"minimum": 1, "maximum": 64},
    "threads": {"minimum": 1, "maximum": 512},
    "logFormat": {"enum": ["json", "human"]},
    "valueMaxAgeSeconds": {"type": "number", "exclusiveMinimum": 0},
    "overrideMaxDays": {"type": "number", "exclusiveMinimum": 0, "maximum": 3650},
    "extraArgs": TEXTS,
    "extraEnv": OPEN_LIST,
    "extraVolumes": OPEN_LIST,
    "extraVolumeMounts": OPEN_LIST,
    "bindAddress": {"pattern": "^[0-9a-fA-F.:\\[\\]]+$"},
    "tls.existingSecret": NAME,
    "serviceAccount.name": NAME,
    "ingress.className": NAME,
    "priorityClassName": NAME,
    "serviceAccount.annotations": LABELS,
    "rbac.workloads": {
        "type": "array",
        "uniqueItems": True,
        "items": {"enum": ["deployments", "statefulsets", "replicasets"]},
    },
    "rbac.customResources": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["apiGroup", "resource"],
            "properties": {
                "apiGroup": {
                    "description": "As in argoproj.io.",
                    "type": "string",
                    "pattern": "^[a-z0-9.-]+$",
                },
                "resource": {"description": "The plural.", "type": "string", "pattern": "^[a-z0-9]+$"},
            },
        },
    },
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "service.port": {"minimum": 1, "maximum": 65535},
    "service.annotations": LABELS,
    "ingress.annotations": LABELS,
    "ingress.hosts": TEXTS,
    "ingress.tls": OPEN_LIST,
    "httpRoute.annotations": LABELS,
    "httpRoute.parentRefs": OPEN_LIST,
    "httpRoute.hostnames": TEXTS,
    "networkPolicy.ingressFrom": OPEN_LIST,
    "networkPolicy.egress.to": OPEN_LIST,
    "networkPolicy.egress.dnsPorts": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    },
    "networkPolicy.egress.apiServerPorts": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    },
    "serviceMonitor.labels": LABELS,
    "serviceMonitor.interval": DURATION,
    "serviceMonitor.scrapeTimeout": DURATION,
    "serviceMonitor.relabelings": OPEN_LIST,
    "serviceMonitor.metricRelabelings": OPEN_LIST,
    "prometheusRule.labels": LABELS,
    "prometheusRule.alertLabels": LABELS,
    "alertmanagerConfig.labels": LABELS,
    "alertmanagerConfig.groupWait": DURATION,
    "alertmanagerConfig.groupInterval": DURATION,
    "alertmanagerConfig.repeatInterval": DURATION,
    "dashboards.namespace": {"maxLength": 63, "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
    "dashboards.labels": LABELS,
    "dashboards.annotations": LABELS,
    "podDisruptionBudget.maxUnavailable": {
        "type": ["integer", "string"],
        "minimum": 1,
        "pattern": "^[0-9]+%$",
    },
    "topologySpreadConstraints": OPEN_LIST,
    "resources": OPEN,
    "helmTest.resources": OPEN,
    "nodeSelector": LABELS,
    "tolerations": OPEN_LIST,
    "affinity": OPEN,
    "annotations": LABELS,
    "podAnnotations": LABELS,
    "podLabels": LABELS,
    "podSecurityContext": OPEN,
    "securityContext": OPEN,
    "terminationGracePeriodSeconds": {"minimum": 31},
    "extraObjects": {
        "type": "array",
        "items": {"type": "object", "required": ["apiVersion", "kind", "metadata"]},
    },
}

# One number of an alert's expression may be set by prometheusRule.thresholds. Booleans and counts of faults, where
# no other number makes sense, are not here; the second number of an alert stays as it is.
THRESHOLDS = {
    "GPUThermalMarginLow": ("< 5", "°C left to the slowdown temperature"),
    "GPUTemperatureHigh": ("> 85", "°C"),
    "GPUTemperatureCritical": ("> 92", "°C"),
    "GPUMemoryTemperatureHigh": ("> 95", "°C"),
    "GPUPowerLowUnderLoad": ("< 0.25", "of the power limit"),
    "GPUPowerAtLimit": ("> 0.98", "of the power limit"),
    "GPUXidRepeatedApplication": ("> 5", "errors a day"),
    "GPUResponderAuthFailures": ("> 10", "requests in 10 minutes"),
    "GPUResponderIntentOld": ("> 300", "seconds"),
    "GPUResponderApiErrors": ("> 0.1", "errors a second"),
    "GPUResponderOverrideEnding": ("< 3600", "seconds before its end"),
    "GPUWorkloadScaleUp": ("> 0.85", "utilization, mean of 5 minutes"),
    "GPUWorkloadScaleUpForecast": ("> 0.95", "utilization in 10 minutes"),
    "GPUWorkloadSaturated": ("> 0.95", "utilization, mean of 5 minutes"),
    "LLMQueueBacklog": ("> 5", "waiting requests per replica"),
    "LLMKVCachePressure": ("> 0.80", "of the KV cache"),
    "LLMPreemptions": ("> 0.1", "preemptions a second and replica"),
    "LLMTimeToFirstTokenHigh": ("> 2", "seconds, 95th percentile"),
    "TritonQueueBacklog": ("> 1", "times as long in queue as in compute"),
    "GPUWorkloadScaleDown": ("< 0.30", "utilization, maximum of 30 minutes"),
    "LLMWorkloadUnderused": ("< 2", "requests per replica, maximum of 30 minutes"),
    "GPUWorkloadIdle": ("< 0.02", "utilization, maximum of an hour"),
    "GPUWorkloadMemoryPressure": ("> 0.95", "of GPU memory"),
    "GPUExportersDownWidely": ("> 0.05", "of the exporters"),
    "GPUMetricsAbsentWidely": ("> 0.05", "of the GPU nodes"),
    "GPUProfilingStuckAtZero": ("> 0.5", "utilization by the other metric"),
}

POLICY_IN_VALUES = ("apiVersion", "kind", "cluster", "dryRun", "allowedNamespaces")
"""What the chart says itself, or by other values."""


def alerts() -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted((ROOT / "rules").glob("*.yaml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["groups"]:
            found.update({rule["alert"]: rule for rule in group["rules"] if "alert" in rule})
    return found


def comments(text: str) -> dict[str, str]:
    """The comment directly above each key, by the key's dotted path."""
    found: dict[str, str] = {}
    above: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            above.append(stripped.lstrip("# "))
            continue
        key = re.match(r"( *)([A-Za-z]\w*):", line)
        if key:
            indent = len(key[1])
            while path and path[-1][0] >= indent:
                path.pop()
            path.append((indent, key[2]))
            dotted = ".".join(name for _, name in path)
            if above and dotted not in found:
                found[dotted] = " ".join(above)
        above = []
    return found


def schema_of(values: Any, path: str, notes: dict[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if path in notes:
        made["description"] = notes[path]
    if isinstance(values, bool):
        made["type"] = "boolean"
    elif isinstance(values, int):
        made["type"] = "integer"
    elif isinstance(values, str):
        made["type"] = "string"
    elif isinstance(values, dict) and path not in OVERLAY:
        made |= {"type": "object", "additionalProperties": False, "properties": {}}
        for key, value in values.items():
            made["properties"][key] = schema_of(value, f"{path}.{key}".lstrip("."), notes)
    return made | OVERLAY.get(path, {})


def schema(values: dict[str, Any], notes: dict[str, str]) -> dict[str, Any]:
    policy = json.loads((ROOT / "responder" / "schemas" / "policy.json").read_text(encoding="utf-8"))
    rest = {key: value for key, value in values.items() if key != "policy"}
    made = schema_of(rest, "", notes)
    made["properties"]["policy"] = {
        "description": notes["policy"],
        "type": "object",
        "additionalProperties": False,
        "properties": {k: v for k, v in policy["properties"].items() if k not in POLICY_IN_VALUES},
        "required": ["policies"],
    }
    made["properties"]["global"] = {"description": "Of a parent chart; not used.", "type": "object"}
    rule = made["properties"]["prometheusRule"]["properties"]
    known = alerts()
    rule["disabled"] |= {"type": "array", "uniqueItems": True, "items": {"enum": sorted(known)}}
    rule["for"] |= {"type": "object", "additionalProperties": False}
    rule["for"]["properties"] = {
        name: {"description": f"{found['for']} by default.", **DURATION}
        for name, found in sorted(known.items())
        if "for" in found
    }
    rule["thresholds"] |= {"type": "object", "additionalProperties": False}
    rule["thresholds"]["properties"] = {
        name: {"description": f"{default} by default: {what}.", "type": "number"}
        for name, (default, what) in THRESHOLDS.items()
    }
    return {
        "$schema": policy["$schema"],
        "title": "Values of gpu-responder",
        **made,
        "$defs": policy["$defs"],
    }


def rows(values: Any, path: str, notes: dict[str, str]) -> list[str]:
    if isinstance(values, dict) and values and path not in OVERLAY and path != "policy":
        found = []
        for key, value in values.items():
            found += rows(value, f"{path}.{key}".lstrip("."), notes)
        return found
    shown = json.dumps(values, ensure_ascii=False)
    shown = f"`{shown}`" if len(shown) < 60 else "see values.yaml"
    return [f"| `{path}` | {shown} | {notes.get(path, '')} |"]


def readme(values: dict[str, Any], notes: dict[str, str]) -> str:
    head = (CHART / "README.head.md").read_text(encoding="utf-8")
    table = ["| key | default | what |", "| --- | --- | --- |", *rows(values, "", notes)]
    limits = ["| alert | default | of what |", "| --- | --- | --- |"]
    limits += [f"| `{name}` | `{default}` | {what} |" for name, (default, what) in THRESHOLDS.items()]
    return "\n".join([
        head.rstrip(), "", "## Values", "", *table, "",
        "## Thresholds", "", "Keys of `prometheusRule.thresholds`; what each alert means: docs/runbooks.",
        "", *limits, "",
    ])  # fmt: skip


def thresholds() -> str:
    """Raises SystemExit when the table above and the rules have come apart."""
    known = alerts()
    for name, (literal, _) in THRESHOLDS.items():
        times = known[name]["expr"].count(literal) if name in known else 0
        if times != 1:
            raise SystemExit(f"helm/generate.py: {literal!r} stands {times} times in {name}: mend THRESHOLDS")
    lines = [f'{name}: "{literal}"' for name, (literal, _) in THRESHOLDS.items()]
    return "\n".join(["# The number in each alert that may be set. Made by helm/generate.py.", *lines, ""])


def files() -> dict[Path, str]:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    values, notes = yaml.safe_load(text), comments(text)
    made = {
        CHART / "values.schema.json": json.dumps(schema(values, notes), indent=2, ensure_ascii=False) + "\n",
        CHART / "README.md": readme(values, notes),
        CHART / "files" / "thresholds.yaml": thresholds(),
    }
    for path in sorted((ROOT / "rules").glob("*.yaml")):
        made[CHART / "rules" / path.name] = path.read_text(encoding="utf-8")
    for name in DASHBOARDS:
        text = json.dumps(dashboard(name), indent=2, ensure_ascii=False) + "\n"
        made[CHART / "dashboards" / f"{name}.json"] = text
    return made


def differing(made: dict[Path, str]) -> list[Path]:
    """Files that are not as they would be made, and copies whose source is gone."""
    wrong = [p for p, text in made.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    there = [*(CHART / "rules").glob("*"), *(CHART / "dashboards").glob("*")]
    return wrong + [path for path in there if path not in made]


def main() -> None:
    made = files()
    wrong = differing(made)
    if "--check" in sys.argv:
        for path in wrong:
            print(f"{path.relative_to(ROOT)} is not as its source says: run make chart")
        sys.exit(bool(wrong))
    for path in wrong:
        if path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
