"""The service as a process, and a browser that notes what the page complains of and whom it asks."""

from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

from responder.sim.cluster import SimCluster
from tests.served import Served
from tests.serving import until

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
PATIENCE = 30_000
"""Milliseconds that the browser and the page may take for anything: what is right is mostly seen at once."""
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


class Desk(Served):
    """The service, and what a test does besides looking at the page."""

    def __init__(self, folder: Path, cluster: SimCluster) -> None:
        super().__init__(folder, cluster, POLICY, tokens=True)

    def fire(self, action: str, workload: str, status: str = "firing", **more: Any) -> None:
        """With annotations as somebody might write them who means harm."""
        annotations = {"summary": "<b>hot</b>", "runbook_url": "javascript:alert(1)"}
        link = "http://prometheus.example/graph"
        super().fire(action, workload, status, annotations=annotations, generatorURL=link, **more)

    def target(self, workload: str) -> Any:
        return self.call("GET", f"/api/v1/targets/inference/deployment/{workload}")

    def settled(self, *workloads: str) -> None:
        """Every one of them has been looked at."""
        wanted = set(workloads)

        def all_looked_at() -> bool:
            found = self.call("GET", "/api/v1/targets")["targets"]
            return wanted <= {each["name"] for each in found if each["reason"] is not None}

        until(all_looked_at, what="the first looks")


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
        context.set_default_timeout(PATIENCE)
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
