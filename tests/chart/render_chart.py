"""Renders the chart for many values at once. A program of its own: who has loaded Helm's library must never fork.

Reads {"name": values, ...} as JSON, writes {"name": {"manifests": {...}} or {"error": "..."}, ...}.
"""

import json
import sys
from pathlib import Path

import helm_python as helm

CHART = Path(__file__).parents[2] / "helm" / "gpu-responder"


def main() -> None:
    asked, answers = json.load(sys.stdin), {}
    with helm.Chart.load(CHART) as chart:
        for name, case in asked.items():
            try:
                if case.get("lint"):
                    answers[name] = {"lint": helm.lint(CHART, case["values"], strict=True, namespace="ns")}
                else:
                    options = {
                        "name": "gpu-responder",
                        "namespace": "gpu-responder",
                        **case.get("options", {}),
                    }
                    answers[name] = {"manifests": chart.render(case["values"], **options)}
            except helm.HelmError as error:
                answers[name] = {"error": str(error)}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
