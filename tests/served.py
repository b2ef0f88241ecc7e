"""`gpu-responder serve` over a simulated cluster, and what people and Alertmanager send it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3
import yaml

from responder.demo import watch
from responder.sim.cluster import SimCluster
from responder.web.auth import Role, hash_token
from tests.serving import ROOT, free_port, until

HTTP = urllib3.PoolManager(retries=False, timeout=30)


class Served:
    """One service at a time in `folder`, whose state stays from one start to the next.

    With `tokens` there is one for each role, which is the role's name, and `call` uses the operator's.
    """

    def __init__(self, folder: Path, cluster: SimCluster, policy: str, *, tokens: bool = False) -> None:
        self._folder, self.cluster = folder, cluster
        self.url = f"http://127.0.0.1:{free_port()}"
        self._headers = {"Content-Type": "application/json"}
        self._arguments = [
            "--policy", str(folder / "policies.yaml"), "--bind", self.url.removeprefix("http://"),
            "--store", f"sqlite:{folder / 'store.db'}", "--kubeconfig", str(folder / "kubeconfig"),
        ]  # fmt: skip
        (folder / "policies.yaml").write_text(policy)
        cluster.kubeconfig(folder / "kubeconfig")
        if tokens:
            known = [
                {"name": role.value, "role": role.value, "sha256": hash_token(role.value)} for role in Role
            ]
            (folder / "tokens.yaml").write_text(yaml.safe_dump({"tokens": known}))
            self._headers["Authorization"] = f"Bearer {Role.OPERATOR.value}"
            self._arguments += ["--token-hashes-file", str(folder / "tokens.yaml")]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        command = [sys.executable, "-m", "responder", "serve", *self._arguments]
        with (self._folder / "serve.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            until(self._ready, what=f"ready, see {self._folder}/serve.log")
            yield
        finally:
            process.terminate()
            process.wait(40)

    def _ready(self) -> bool:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return HTTP.request("GET", f"{self.url}/-/ready").status == 200
        return False

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        answer = HTTP.request(method, self.url + path, body=data, headers=self._headers)
        assert answer.status < 300, answer.data
        return answer.json() if answer.data else None

    def fire(self, action: str, workload: str, status: str = "firing", **more: Any) -> None:
        """Deliver one alert of a workload, as Alertmanager does; `more` are further keys of it."""
        labels = {"alertname": f"Alert-{action}", "action": action, "namespace": "inference",
                  "workload": workload, "workload_type": "deployment"}  # fmt: skip
        now = datetime.now(UTC).isoformat()
        alert = {"status": status, "labels": labels, "fingerprint": f"{action}-{workload}", "startsAt": now,
                 "endsAt": now, **more}  # fmt: skip
        self.call("POST", "/api/v1/webhooks/alertmanager", {"version": "4", "alerts": [alert]})

    def scales(self, workload: str) -> list[int]:
        """Every change of its replicas that the API server has taken."""
        found = watch.scales(self.cluster.url, ("inference", "deployment", workload))
        return [each.to_replicas for each in found]
