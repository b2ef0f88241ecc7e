"""One real service over a simulated cluster, and one browser, for all tests of the page."""

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from responder.sim.cluster import SimCluster
from responder.sim.spec import ClusterSpec, WorkloadSpec
from tests.page.browsing import CHROMIUM, FLAGS, Desk, Visitor

WORKLOADS = ("vllm", "pinned", "paused", "bounded", "silenced", "frozen", "charted", "plain", "leaving")


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The service, with a token for each role, which is the role's name."""
    folder = tmp_path_factory.mktemp("page")
    workloads = tuple(WorkloadSpec(name=name, replicas=2, cold_start_seconds=0.1) for name in WORKLOADS)
    with SimCluster(ClusterSpec(workloads=workloads), speed=20) as cluster:
        made = Desk(folder, cluster)
        with made.running():
            for name in WORKLOADS:
                made.fire("stay", name)
            made.settled(*WORKLOADS)
            yield made


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # What is right is mostly seen at once; on a busy machine, later.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser, desk: Desk) -> Iterator[Visitor]:
    """Opens pages; at the end no page has complained, and none has asked any other host for anything."""
    with contextlib.closing(Visitor(chromium, desk.url)) as visitor:
        yield visitor
        assert visitor.complaints == []
        assert visitor.elsewhere == []
