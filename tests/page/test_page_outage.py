"""What the page says when the service is cut off from the cluster."""

import re
from pathlib import Path

from responder.sim.cluster import SimCluster
from responder.sim.spec import ClusterSpec, WorkloadSpec
from tests.page.browsing import Desk
from tests.served import HTTP
from tests.serving import until


def test_the_banner_says_that_the_api_server_cannot_be_reached(tmp_path: Path) -> None:
    """Within seconds, even while no target wants anything; and the page itself is still there."""
    with SimCluster(
        ClusterSpec(workloads=(WorkloadSpec(replicas=2, cold_start_seconds=0.1),)), speed=20
    ) as cluster:
        desk = Desk(tmp_path, cluster)
        with desk.running():
            desk.fire("stay", "vllm")
            desk.settled("vllm")
            assert banner(desk) == []
            cluster.stop()
            [said] = until(lambda: banner(desk), what="a banner")
            assert said.startswith("Kubernetes. Cannot reach the API server")


def banner(desk: Desk) -> list[str]:
    answer = HTTP.request("GET", desk.url, headers={"Authorization": "Bearer viewer"})
    assert answer.status == 200
    found = re.findall(r'class="notice [a-z]+">(.*?)</p>', answer.data.decode())
    return [re.sub("<[^>]*>", "", each) for each in found]
