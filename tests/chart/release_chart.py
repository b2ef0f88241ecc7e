"""Installs, upgrades, tests and removes releases with Helm's engine. A program of its own, as render_chart.py is.

Takes a kubeconfig and a namespace as arguments; reads {"verb": "...", ...} as JSON, one a line, and answers each with
a line: {"release": {...}} or {"error": "..."}.
"""

import json
import sys
from pathlib import Path

import helm_python as helm

CHART = Path(__file__).parents[2] / "helm" / "gpu-responder"


def main() -> None:
    kubeconfig, namespace = sys.argv[1:]
    with helm.Config(kubeconfig_path=kubeconfig, namespace=namespace) as cluster:
        for line in sys.stdin:
            asked = json.loads(line)
            verb, name = asked.pop("verb"), asked.pop("name", "gpu-responder")
            chart = [CHART] if verb in ("install", "upgrade") else []
            try:
                answer = {"release": getattr(cluster, verb)(*chart, name, **asked)}
            except helm.HelmError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
