"""The service as a process, and a browser that notes what the page complains of and whom it asks."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
import yaml
from playwright.sync_api import Browser, BrowserContext, Page

from responder.demo import watch
from responder.sim.cluster import SimCluster
from responder.web.auth import Role, hash_token
from tests.serving import ROOT, free_port, until

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HTTP = urllib3.PoolManager(retries=False, timeout=10)
POLICY = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
cluster: prod-eu
policies:
- name: inference
  matchers: ['namespace="inference"']
  minReplicas: 1
  maxReplicas: 8
  triggers:
  - {name: stay, matchers: ['action="stay"'], scale: {direction: Up, type: Replicas, value: 2}}
  - {name: six, matchers: ['action="six"'], scale: {direction: Up, type: Replicas, value: 6}}
  - name: nine
    matchers: ['action="nine"']
    scale: {direction: Up, type: Pods, value: 9}
    maxStepsPerEpisode: null
  behavior:
    scaleUp: {cooldownSeconds: 0, policies: [{type: Pods, value: 100, periodSeconds: 1}]}
"""


class Desk:
    """`gpu-responder serve`, and what a test does besides looking at the page."""

    def __init__(self, folder: Path, cluster: SimCluster) -> None:
        self._folder, self._cluster = folder, cluster
        self.url = f"http://127.0.0.1:{free_port()}"
        (folder / "policies.yaml").write_text(POLICY)
        tokens = [{"name": role.value, "role": role.value, "sha256": hash_token(role.value)} for role in Role]
        (folder / "tokens.yaml").write_text(yaml.safe_dump({"tokens": tokens}))
        cluster.kubeconfig(folder / "kubeconfig")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        command = [
            sys.executable, "-m", "responder", "serve", "--policy", str(self._folder / "policies.yaml"),
            "--bind", self.url.removeprefix("http://"), "--store", f"sqlite:{self._folder / 'store.db'}",
            "--kubeconfig", str(self._folder / "kubeconfig"),
            "--token-hashes-file", str(self._folder / "tokens.yaml"),
        ]  # fmt: skip
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
        headers = {"Authorization": "Bearer operator", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        answer = HTTP.request(method, self.url + path, body=data, headers=headers)
        assert answer.status < 300, answer.data
        return answer.json() if answer.data else None

    def fire(self, action: str, workload: str, status: str = "firing") -> None:
        labels = {"alertname": f"Alert-{action}", "action": action, "namespace": "inference",
                  "workload": workload, "workload_type": "deployment"}  # fmt: skip
        now = datetime.now(UTC).isoformat()
        alert = {"status": status, "labels": labels, "fingerprint": f"{action}-{workload}", "startsAt": now,
                 "annotations": {"summary": "<b>hot</b>", "runbook_url": "javascript:alert(1)"},
                 "generatorURL": "http://prometheus.example/graph", "endsAt": now}  # fmt: skip
        self.call("POST", "/api/v1/webhooks/alertmanager", {"version": "4", "alerts": [alert]})

    def target(self, workload: str) -> Any:
        return self.call("GET", f"/api/v1/targets/inference/deployment/{workload}")

    def settled(self, *workloads: str) -> None:
        """Every one of them has been looked at."""
        wanted = set(workloads)

        def all_looked_at() -> bool:
            found = self.call("GET", "/api/v1/targets")["targets"]
            return wanted <= {each["name"] for each in found if each["reason"] is not None}

        until(all_looked_at, what="the first looks")

    def scales(self, workload: str) -> list[int]:
        """Every change of its replicas that the API server has taken."""
        found = watch.scales(self._cluster.url, ("inference", "deployment", workload))
        return [each.to_replicas for each in found]


class Visitor:
    """A browser with one context, in which pages are opened."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self.url = url
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.contexts: list[BrowserContext] = []

    def open(self, path: str = "/", role: str = "operator", **options: Any) -> Page:
        """The page, signed in by the role's token unless that is empty."""
        context = self._browser.new_context(**options)
        self.contexts.append(context)
        context.set_default_timeout(5_000)
        page = context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))
        page.goto(self.url + path)
        if role:
            page.get_by_label("Token").fill(role)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(self.url + path)
        return page

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _asked(self, url: str) -> None:
        if urlsplit(url).netloc != urlsplit(self.url).netloc and not url.startswith("data:"):
            self.elsewhere.append(url)

    def close(self) -> None:
        for context in self.contexts:
            context.close()


def at_once(page: Page) -> None:
    """Have the script ask now, as it does when the machine comes back to its network."""
    page.evaluate("window.dispatchEvent(new Event('online'))")


def faults(page: Page) -> list[str]:
    """What axe finds wrong. It is injected, since the content security policy lets no other script in."""
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    return [f"{each['id']}: {node['html'][:200]}" for each in found["violations"] for node in each["nodes"]]
