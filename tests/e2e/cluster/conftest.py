"""The cluster that GPU_RESPONDER_E2E_KUBECONFIG names, or a simulated one without kubelets; tests cannot tell."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from responder.kube import KubeCluster
from responder.sim.clock import SimClock
from responder.sim.loop import ControlLoop
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from tests.e2e.cluster.world import POLICIES, Kubeconfig, World, namespace_of_its_own
from tests.e2e.harness import Service, services


@contextmanager
def without_kubelets(folder: Path) -> Iterator[Path]:
    """An API server with controllers, where no pod becomes Ready by itself."""
    store = ObjectStore()
    loop = ControlLoop(store, SimClock(1), kubelet=False)
    with SimServer(store) as server:
        loop.start()
        try:
            yield server.kubeconfig(folder / "kubeconfig")
        finally:
            loop.stop()


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    given = os.environ.get("GPU_RESPONDER_E2E_KUBECONFIG", "")
    if given:
        yield Path(given).absolute()
        return
    with without_kubelets(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="session")
def cluster(kubeconfig: Path) -> Iterator[KubeCluster]:
    found = KubeCluster(str(kubeconfig))
    yield found
    found.close()


@pytest.fixture(scope="session")
def replicas(
    cluster: KubeCluster, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Service]]:
    """Two services that keep their state in a namespace of their own."""
    folder = tmp_path_factory.mktemp("services")
    with (
        namespace_of_its_own(cluster) as namespace,
        services(folder, Kubeconfig(kubeconfig), POLICIES, 2, store=f"kubernetes:{namespace}") as both,  # type: ignore[arg-type]
    ):
        yield both


@pytest.fixture
def world(cluster: KubeCluster, replicas: list[Service]) -> Iterator[World]:
    """A namespace of the test's own."""
    with namespace_of_its_own(cluster) as namespace:
        yield World(cluster, namespace, replicas)
