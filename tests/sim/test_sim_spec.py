"""Describing a simulated cluster, and being told what is wrong with the description."""

import pytest

from responder.sim.dcgm import Generation
from responder.sim.spec import ClusterSpec, SpecError, parse_spec, parse_workload, read_spec
from responder.sim.view import Workload


def test_the_default_cluster_is_small_enough_for_compressed_time() -> None:
    """At most 16 GPUs: more at 300 times the speed would make Prometheus miss evaluations."""
    spec = ClusterSpec()
    assert spec.nodes * spec.gpus_per_node <= 16
    assert spec.workloads[0].workload == Workload("inference", "Deployment", "vllm")
    wanted = sum(w.replicas * w.gpus_per_pod for w in spec.workloads)
    assert wanted < spec.nodes * spec.gpus_per_node


def test_a_file_says_everything(tmp_path) -> None:
    """Every key of the format."""
    path = tmp_path / "cluster.yaml"
    path.write_text(
        """
        nodes: 2
        gpusPerNode: 8
        gpuModel: NVIDIA L4
        dcgmGeneration: "4.9"
        workloads:
        - {namespace: ml, kind: StatefulSet, name: db, replicas: 2, gpusPerPod: 4, coldStartSeconds: 5,
           load: steady, peakReplicas: 1.5, model: m, concurrency: 4, serviceSeconds: 2, patienceSeconds: 9,
           targetInFlight: 3}
        """
    )
    spec = read_spec(path)
    (workload,) = spec.workloads
    assert (spec.nodes, spec.gpus_per_node, spec.gpu_model) == (2, 8, "NVIDIA L4")
    assert spec.dcgm_generation is Generation.V4_9
    assert workload.workload == Workload("ml", "StatefulSet", "db")
    assert (workload.replicas, workload.gpus_per_pod, workload.cold_start_seconds) == (2, 4, 5)
    assert (workload.load, workload.peak_replicas, workload.model) == ("steady", 1.5, "m")
    assert workload.service.requests_per_second == 2
    assert workload.service.target_requests_per_second == 1.5
    assert workload.service.patience_seconds == 9


def test_a_flag_names_a_workload() -> None:
    """Namespace, kind in any case, name, replicas."""
    workload = parse_workload("ml/deployment/a=3")
    assert (workload.workload, workload.replicas) == (Workload("ml", "Deployment", "a"), 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "ml/deployment/a",
        "ml/deployment/a=x",
        "ml/deployment/a=-1",
        "ml/daemonset/a=1",
        "ml/deployment/A=1",
    ],
)
def test_a_bad_flag_is_refused(text: str) -> None:
    """In a sentence that names the flag."""
    with pytest.raises(SpecError, match="--workload"):
        parse_workload(text)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param([], ["not a table"], id="a list"),
        pytest.param({"node": 3}, ["unknown key 'node'", "did you mean nodes?"], id="a near miss"),
        pytest.param({"zzz": 3}, ["unknown key 'zzz'", "known keys are"], id="a far miss"),
        pytest.param({"nodes": "4"}, ["nodes", "whole number"], id="text for a number"),
        pytest.param({"nodes": True}, ["nodes", "whole number"], id="a boolean for a number"),
        pytest.param({"gpusPerNode": 17}, ["gpusPerNode", "0 to 16"], id="too many GPUs"),
        pytest.param({"gpuModel": "Voodoo 2"}, ["gpuModel", "NVIDIA L4"], id="an unknown model"),
        pytest.param({"dcgmGeneration": "5"}, ["dcgmGeneration", "4.9"], id="an unknown dialect"),
        pytest.param({"workloads": {}}, ["workloads", "list"], id="no list"),
        pytest.param({"workloads": [{}]}, ["workloads[0]", "name is missing"], id="no name"),
        pytest.param(
            {"workloads": [{"name": "a", "replica": 1}]}, ["did you mean replicas?"], id="a key below"
        ),
        pytest.param({"workloads": [{"name": "a", "kind": "Job"}]}, ["kind", "'Job'"], id="an unknown kind"),
        pytest.param(
            {"workloads": [{"name": "a", "load": "wild"}]}, ["load", "steady"], id="an unknown load"
        ),
        pytest.param({"workloads": [{"name": "a", "serviceSeconds": 0}]}, ["serviceSeconds"], id="no time"),
        pytest.param({"workloads": [{"name": "a"}, {"name": "a"}]}, ["given twice"], id="a workload twice"),
    ],
)
def test_a_bad_description_is_refused_in_one_sentence(table: object, words: list[str]) -> None:
    """File, key and mend."""
    with pytest.raises(SpecError) as caught:
        parse_spec(table, name="cluster.yaml")
    message = str(caught.value)
    assert message.startswith("cluster.yaml: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_missing_file_and_bad_yaml_are_refused_by_name(tmp_path) -> None:
    """Never a traceback."""
    with pytest.raises(SpecError, match="no such file"):
        read_spec(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("nodes: [\n")
    with pytest.raises(SpecError, match=r"bad\.yaml: line \d"):
        read_spec(bad)
