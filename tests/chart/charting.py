"""What the chart's tests share: rendering in a process of its own, and looking at what came out."""

import base64
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "gpu-responder"
NAMESPACE = "gpu-responder"
SETS = ("default", "minimal", "sqlite", "everything")

Object = dict[str, Any]


def render(cases: dict[str, Any]) -> dict[str, Any]:
    """Render the chart with Helm's engine for each case, as render_chart.py says."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("render_chart.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def values_of(name: str) -> Object:
    loaded: Object = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8"))
    return loaded


@cache
def rendered(name: str) -> dict[str, str]:
    """The manifests of a set of values, by template. All sets are rendered at once."""
    return _all_sets()[name]


@cache
def _all_sets() -> dict[str, dict[str, str]]:
    answers = render({name: {"values": values_of(name)} for name in SETS})
    return {name: answer["manifests"] for name, answer in answers.items()}


def objects_in(manifests: dict[str, str]) -> list[Object]:
    """All Kubernetes objects of a rendering."""
    texts = [text for path, text in sorted(manifests.items()) if path.endswith(".yaml")]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def objects(name: str) -> list[Object]:
    return objects_in(rendered(name))


def one(found: list[Object], kind: str, name: str = "") -> Object:
    """The object of a kind, which must be the only one."""
    (chosen,) = [each for each in found if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return chosen


def decoded(text: str) -> str:
    """What stands in a Secret's data."""
    return base64.b64decode(text).decode()


def settled(name: str) -> str:
    """A rendering as text to compare: without what is random, long copies left out."""
    parts = []
    for each in objects(name):
        if each["kind"] == "PrometheusRule":
            each["spec"] = {"groups": [group["name"] for group in each["spec"]["groups"]]}
        if "-dashboard-" in each["metadata"]["name"]:
            each["data"] = dict.fromkeys(each["data"], "...")
        if each["metadata"]["name"] == "gpu-responder-test" and each["kind"] == "ConfigMap":
            each["data"] = dict.fromkeys(each["data"], "...")
        if each["metadata"]["name"] == "gpu-responder-tokens":
            each["data"] = dict.fromkeys(each["data"], "<random>")
        if each["metadata"]["name"] == "gpu-responder-token-hashes":
            entries = yaml.safe_load(decoded(each["data"]["tokens.yaml"]))["tokens"]
            each["data"]["tokens.yaml"] = [{**entry, "sha256": "<hash>"} for entry in entries]
        parts.append(yaml.safe_dump(each, sort_keys=True, width=110))
    return "---\n".join(parts)
