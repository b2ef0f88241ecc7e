"""What the chart renders is what the API servers' own schemas take, of Kubernetes and of prometheus-operator."""

import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from charting import SETS, objects

VERSIONS = ("1.27.0", "1.30.0", "1.33.0", "1.37.0")

DURATION = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
TEXT = {"type": "string"}
NOT_EMPTY = {"type": "string", "minLength": 1}
FLAG = {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
LABELS = {"type": "object", "additionalProperties": TEXT}


def closed(required: str = "", /, **properties: Any) -> dict[str, Any]:
    """A mapping that has these keys and no other."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


def some(items: Any, least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


SECRET_KEY = closed("key", name=TEXT, key=NOT_EMPTY, optional=FLAG)
SECRET_OR_MAP = closed(secret=SECRET_KEY, configMap=SECRET_KEY)
TLS = closed(
    ca=SECRET_OR_MAP, cert=SECRET_OR_MAP, keySecret=SECRET_KEY, serverName=TEXT, insecureSkipVerify=FLAG
)
AUTHORIZATION = closed(type=TEXT, credentials=SECRET_KEY)
ROUTE = {
    "receiver": TEXT,
    "groupBy": TEXTS,
    "groupWait": DURATION,
    "groupInterval": DURATION,
    "repeatInterval": DURATION,
    "matchers": some(closed("name", name=NOT_EMPTY, value=TEXT, matchType={"enum": ["!=", "=", "=~", "!~"]})),
    "continue": FLAG,
}

# From the documentation of prometheus-operator's API, as far as the chart uses it, and closed, so that a field that
# the operator would not know fails.
OPERATOR: dict[tuple[str, str], Any] = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {
        "properties": {
            "spec": closed(
                "endpoints selector",
                endpoints=some(
                    closed(
                        port=TEXT,
                        path=TEXT,
                        scheme={"enum": ["http", "https", "HTTP", "HTTPS"]},
                        interval=DURATION,
                        scrapeTimeout=DURATION,
                        honorLabels=FLAG,
                        authorization=AUTHORIZATION,
                        tlsConfig=TLS,
                    )
                ),
                selector=closed(matchLabels=LABELS),
                namespaceSelector=closed(any=FLAG, matchNames=TEXTS),
            )
        }
    },
    ("monitoring.coreos.com/v1", "PrometheusRule"): {
        "properties": {
            "spec": closed(
                groups=some(
                    closed(
                        "name",
                        name=NOT_EMPTY,
                        interval=DURATION,
                        rules=some(
                            closed(
                                "expr",
                                alert=TEXT,
                                record=TEXT,
                                expr={"type": ["string", "integer"]},
                                keep_firing_for=DURATION,
                                labels=LABELS,
                                annotations=LABELS,
                                **{"for": DURATION},
                            )
                        ),
                    )
                )
            )
        }
    },
    ("monitoring.coreos.com/v1alpha1", "AlertmanagerConfig"): {
        "properties": {
            "spec": closed(
                "",
                route=closed("", routes=some(closed("", **ROUTE)), **ROUTE),
                receivers=some(
                    closed(
                        "name",
                        name=NOT_EMPTY,
                        webhookConfigs=some(
                            closed(
                                url=TEXT,
                                sendResolved=FLAG,
                                maxAlerts={"type": "integer", "minimum": 0},
                                httpConfig=closed(authorization=AUTHORIZATION, tlsConfig=TLS),
                            )
                        ),
                    )
                ),
            )
        }
    },
}

# From the Gateway API's documentation of HTTPRoute v1, in the same way.
HTTP_ROUTE: dict[str, Any] = {
    "properties": {
        "apiVersion": {"const": "gateway.networking.k8s.io/v1"},
        "spec": closed(
            "",
            parentRefs=some(
                closed("name", name=NOT_EMPTY, namespace=NOT_EMPTY, sectionName=NOT_EMPTY), least=1
            ),
            hostnames=TEXTS,
            rules=some(
                closed("", backendRefs=some(closed("name port", name=TEXT, port={"type": "integer"})))
            ),
        ),
    }
}


def is_of_kubernetes(api_version: str) -> bool:
    group = api_version.partition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and not group.startswith("gateway."))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_object(version: str):
    """Each object is valid in the OpenAPI of this release, with no field that it does not know."""
    checked = 0
    for name in SETS:
        for each in objects(name):
            if is_of_kubernetes(each["apiVersion"]):
                kubernetes_validate.validate(each, version, strict=True)
                checked += 1
    assert checked > 40


def test_an_unknown_field_would_show():
    """The check above is one that can fail."""
    (deployment,) = [each for each in objects("default") if each["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["terminationGracePeriod"] = 3
    with pytest.raises(Exception, match="terminationGracePeriod"):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_prometheus_operator_takes_its_objects():
    """ServiceMonitor, PrometheusRules and AlertmanagerConfig have only fields of the operator's definitions."""
    checked = set()
    for each in objects("everything"):
        if each["apiVersion"].startswith("monitoring.coreos.com/"):
            jsonschema.validate(each, OPERATOR[each["apiVersion"], each["kind"]])
            checked.add((each["apiVersion"], each["kind"]))
    assert checked == set(OPERATOR)


def test_gateway_takes_its_route():
    """The HTTPRoute has the fields that the Gateway API documents."""
    (route,) = [each for each in objects("everything") if each["kind"] == "HTTPRoute"]
    jsonschema.validate(route, HTTP_ROUTE)
