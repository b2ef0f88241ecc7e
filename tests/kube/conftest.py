from collections.abc import Iterator
from pathlib import Path

import pytest

from responder.kube import KubeCluster
from tests.kube.fake_api import FakeApi, discovery, fake_api, recorded


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A fake API server that serves the recorded Deployment rec/vllm."""
    with fake_api() as server:
        server.answers |= discovery("apps", "v1", {"deployments": "Deployment"})
        server.answers |= {
            "GET /api/v1/namespaces/rec": recorded("namespace-create"),
            "GET /apis/apps/v1/namespaces/rec/deployments/vllm": recorded("deployment-get"),
            "PUT /apis/apps/v1/namespaces/rec/deployments/vllm/scale": recorded("scale-put"),
        }
        yield server


@pytest.fixture
def cluster(api: FakeApi, tmp_path: Path) -> Iterator[KubeCluster]:
    """The cluster behind it, as patient as a machine may be slow."""
    made = KubeCluster(api.kubeconfig(tmp_path / "kubeconfig"), timeout=20, deadline=30)
    yield made
    made.close()


@pytest.fixture
def impatient(cluster: KubeCluster) -> KubeCluster:
    """The same, that tries for a second only: for what will not mend."""
    cluster.connection.deadline = 1.0
    return cluster
