"""The exporters' pages: what Prometheus would read, and what it would not."""

import json
import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from responder.sim.clock import SimClock
from responder.sim.dcgm import Generation, names
from responder.sim.demand import Demand
from responder.sim.gpus import Gpu
from responder.sim.loop import ControlLoop
from responder.sim.manifests import manifest
from responder.sim.nodes import make_node
from responder.sim.objects import ObjectStore
from responder.sim.spec import ClusterSpec, WorkloadSpec
from responder.sim.telemetry import FaultError, Telemetry, route

Samples = dict[str, list[tuple[dict[str, str], float]]]


class World:
    """A cluster without a server, in hand-moved time: one node of two GPUs, one pod that serves."""

    def __init__(self, generation: Generation = Generation.V4_8, **workload: Any) -> None:
        self.seconds = 0.0
        self.clock = SimClock(1, lambda: self.seconds)
        specs = (WorkloadSpec(load="steady", peak_replicas=0.75, **workload),)
        self.spec = ClusterSpec(nodes=1, gpus_per_node=2, dcgm_generation=generation, workloads=specs)
        self.store = ObjectStore()
        self.store.create("nodes", make_node(0, 2, self.spec.gpu_model))
        self.store.create("deployments.apps", manifest(specs[0]))
        self.loop = ControlLoop(self.store, self.clock)
        self.telemetry = Telemetry(self.spec, self.clock, self.loop, Demand(specs))
        self.loop.step()

    def run(self, seconds: float) -> None:
        self.seconds += seconds
        self.loop.step()
        self.telemetry.advance()

    def serve(self) -> "World":
        """Past the cold start, and long enough under load to settle."""
        self.run(60)
        self.clock.start_load()
        for _ in range(60):
            self.run(10)
        self.page("/metrics/dcgm/gpu-node-1")
        self.run(600)
        return self

    @property
    def pod(self) -> str:
        return str(self.store.list("pods")[0]["metadata"]["name"])

    def page(self, path: str, status: int = 200) -> str:
        page = route(self.telemetry, path, "127.0.0.1:1")
        assert page.status == status, page.body
        return page.body

    def scrape(self, path: str) -> Samples:
        found: Samples = {}
        page = self.page(path)
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                # The parser gives every counter the ending _total, whether it has it or not.
                name = sample.name if f"\n{sample.name}{{" in page else sample.name.removesuffix("_total")
                found.setdefault(name, []).append((sample.labels, sample.value))
        return found

    def gpu(self, name: str) -> dict[str, float]:
        return {labels["gpu"]: value for labels, value in self.scrape("/metrics/dcgm/gpu-node-1")[name]}

    def targets(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.page(f"/sim/http_sd/{job}"))
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_line_looks_as_dcgm_exporter_writes_it(world: World) -> None:
    """HELP, TYPE, label order and number format, letter by letter."""
    world.serve()
    lines = world.page("/metrics/dcgm/gpu-node-1").splitlines()
    at = lines.index("# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).")
    uuid = world.scrape("/metrics/dcgm/gpu-node-1")["DCGM_FI_DEV_GPU_UTIL"][0][0]["UUID"]
    assert lines[at + 1] == "# TYPE DCGM_FI_DEV_GPU_UTIL gauge"
    assert lines[at + 2] == (
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{uuid}",pci_bus_id="00000000:1A:00.0",device="nvidia0",'
        'modelName="NVIDIA H100 80GB HBM3",hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="570.133.20",'
        f'container="vllm",namespace="inference",pod="{world.pod}"}} 60'
    )
    power = next(line for line in lines if line.startswith("DCGM_FI_DEV_POWER_USAGE"))
    assert power.endswith(" 414.400000")


def test_a_gpu_without_a_pod_carries_no_pod_and_stands_idle(world: World) -> None:
    """No labels rather than empty ones (dcgm-exporter#428)."""
    world.serve()
    labels, value = world.scrape("/metrics/dcgm/gpu-node-1")["DCGM_FI_DEV_GPU_UTIL"][1]
    assert value == 0
    assert not {"pod", "namespace", "container"} & set(labels)


def test_both_generations_say_the_same_in_their_own_names_and_units() -> None:
    """4.9 renamed metrics and changed units; the GPU is the same."""
    old, new = World(Generation.V4_8).serve(), World(Generation.V4_9).serve()
    pairs = {
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"): 0.01,
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES"): 1048576,
        ("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE_BYTES"): 1048576,
        ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"): 1,
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"): 1,
        ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ"): 1e6,
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"): 0.001,
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"): 1,
    }
    for (before, after), factor in pairs.items():
        for gpu, value in old.gpu(before).items():
            assert new.gpu(after)[gpu] == pytest.approx(value * factor, rel=1e-3), after
    only_old = names(Generation.V4_8) - names(Generation.V4_9)
    assert not only_old & set(new.scrape("/metrics/dcgm/gpu-node-1"))
    label = new.scrape("/metrics/dcgm/gpu-node-1")["DCGM_FI_DEV_GPU_UTIL_RATIO"][0][0]
    assert {"hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION"} <= set(label)


def test_the_oldest_dialect_has_a_capital_hostname_and_no_profiling() -> None:
    """Version 3.3 is still out there."""
    world = World(Generation.V3_3).serve()
    page = world.scrape("/metrics/dcgm/gpu-node-1")
    assert "Hostname" in page["DCGM_FI_DEV_GPU_UTIL"][0][0]
    assert not [name for name in page if "PROF" in name or "EXP" in name]
    assert "vllm:gpu_cache_usage_perc" in world.scrape(f"/metrics/vllm/inference/{world.pod}")


def test_memory_is_taken_at_start_busy_or_not(world: World) -> None:
    """vLLM preallocates 90 % as soon as its container runs."""
    assert world.gpu("DCGM_FI_DEV_FB_USED") == {"0": 0, "1": 0}
    world.run(10)
    assert world.gpu("DCGM_FI_DEV_FB_USED") == {"0": round(0.9 * 81559), "1": 0}
    assert world.gpu("DCGM_FI_DEV_GPU_UTIL")["0"] == 0


def test_power_and_temperature_follow_utilization_with_a_lag() -> None:
    """Watts in ten seconds, degrees in a minute; energy is their sum and never falls."""
    gpu = Gpu("n", 0)
    gpu.observe(0, 0.0, 0.0)
    cold, idle = gpu.temperature, gpu.power
    full = idle + 0.92 * 700 - 70
    gpu.observe(10, 1.0, 0.9)
    assert (full - gpu.power) / (full - idle) == pytest.approx(math.exp(-1), rel=1e-3)
    assert cold < gpu.temperature < cold + 36 * 0.2
    energy = gpu.energy_joules
    gpu.observe(1000, 1.0, 0.9)
    assert gpu.power == pytest.approx(full)
    assert gpu.temperature == pytest.approx(cold + 36)
    assert gpu.energy_joules > energy > 0


def test_vllm_says_nothing_until_the_model_is_loaded_then_shows_its_share(world: World) -> None:
    """The target exists from the moment the pod has an address, as a PodMonitor's would."""
    assert world.targets("vllm") == []
    world.run(10)
    (target,) = world.targets("vllm")
    path = target["labels"]["__metrics_path__"]
    world.page(path, 503)
    world.serve()
    page = world.scrape(path)
    ((labels, running),) = page["vllm:num_requests_running"]
    assert labels == {"engine": "0", "model_name": "meta-llama/Llama-3.1-8B-Instruct"}
    assert running == 6
    assert page["vllm:num_requests_waiting"][0][1] == 0
    assert page["vllm:kv_cache_usage_perc"][0][1] == pytest.approx(0.54)
    assert page["vllm:request_success_total"][0][1] > 100


def test_targets_come_and_go_with_pods_and_nodes(world: World) -> None:
    """What a ServiceMonitor or PodMonitor would attach, per target."""
    world.serve()
    (exporter,) = world.targets("nvidia-dcgm-exporter")
    labels = exporter["labels"]
    assert exporter["targets"] == ["127.0.0.1:1"]
    assert labels["__metrics_path__"] == "/metrics/dcgm/gpu-node-1"
    assert (labels["node"], labels["namespace"], labels["container"]) == (
        "gpu-node-1",
        "gpu-operator",
        "nvidia-dcgm-exporter",
    )
    assert labels["instance"] == "10.0.0.1:9400"
    (server,) = world.targets("vllm")
    assert (server["labels"]["namespace"], server["labels"]["pod"]) == ("inference", world.pod)
    assert "node" not in server["labels"]
    world.store.create("nodes", make_node(1, 4, world.spec.gpu_model))
    world.store.delete("deployments.apps", "inference", "vllm")
    world.run(0)
    assert len(world.targets("nvidia-dcgm-exporter")) == 2
    assert world.targets("vllm") == []
    assert "no job" in world.page("/sim/http_sd/nonsense", 404)


def test_kube_state_metrics_joins_pods_to_their_workload(world: World) -> None:
    """The series of the shipped recording rules, with their labels."""
    world.serve()
    page = world.scrape("/metrics/kube-state-metrics")
    ((owner, _),) = page["kube_pod_owner"]
    ((above, _),) = page["kube_replicaset_owner"]
    assert (owner["pod"], owner["owner_kind"], owner["owner_is_controller"]) == (
        world.pod,
        "ReplicaSet",
        "true",
    )
    assert owner["owner_name"] == above["replicaset"]
    assert (above["owner_kind"], above["owner_name"]) == ("Deployment", "vllm")
    assert {labels["phase"]: value for labels, value in page["kube_pod_status_phase"]} == {
        "Pending": 0,
        "Succeeded": 0,
        "Failed": 0,
        "Unknown": 0,
        "Running": 1,
    }
    assert {labels["condition"]: value for labels, value in page["kube_pod_status_ready"]} == {
        "true": 1,
        "false": 0,
        "unknown": 0,
    }
    gpus = [(lb, v) for lb, v in page["kube_node_status_allocatable"] if lb["resource"] == "nvidia_com_gpu"]
    assert gpus == [({"node": "gpu-node-1", "resource": "nvidia_com_gpu", "unit": "integer"}, 2)]
    ((asked, amount),) = page["kube_pod_container_resource_requests"]
    assert (asked["node"], asked["resource"], asked["unit"], amount) == (
        "gpu-node-1",
        "nvidia_com_gpu",
        "integer",
        1,
    )
    assert page["kube_deployment_spec_replicas"] == [({"namespace": "inference", "deployment": "vllm"}, 1)]
    assert page["kube_deployment_status_replicas_ready"][0][1] == 1


def test_kube_state_metrics_follows_changes(world: World) -> None:
    """Rendering remembers, but never what has changed since."""
    world.scrape("/metrics/kube-state-metrics")

    def change(obj: dict[str, Any]) -> None:
        obj["spec"]["replicas"] = 3

    world.store.mutate("deployments.apps", "inference", "vllm", change)
    world.run(0)
    page = world.scrape("/metrics/kube-state-metrics")
    assert page["kube_deployment_spec_replicas"][0][1] == 3
    assert len(page["kube_pod_owner"]) == 3
    assert page["kube_pod_status_unschedulable"][0][1] == 1


def test_a_hot_gpu_is_hot_until_it_is_cleared(world: World) -> None:
    """Temperature, margin and throttling agree."""
    world.serve()
    world.telemetry.inject({"node": "gpu-node-1", "gpu": 0, "temperatureCelsius": 95})
    assert world.gpu("DCGM_FI_DEV_GPU_TEMP")["0"] == 95
    assert world.gpu("DCGM_FI_DEV_GPU_TEMP_LIMIT")["0"] == -8
    events = world.scrape("/metrics/dcgm/gpu-node-1")["DCGM_EXP_CLOCK_EVENTS_COUNT"]
    assert {labels["clock_event"] for labels, _ in events if labels["gpu"] == "0"} == {"hw_thermal"}
    world.telemetry.inject({"clear": True})
    assert world.gpu("DCGM_FI_DEV_GPU_TEMP")["0"] < 87


def test_an_xid_shows_as_the_last_one_for_ever_and_in_the_window_for_five_minutes(world: World) -> None:
    """Which is why `XID_ERRORS > 0` never stops firing."""
    world.telemetry.inject({"node": "gpu-node-1", "gpu": 1, "xid": 79})
    world.telemetry.inject({"node": "gpu-node-1", "gpu": 1, "xid": 79})
    page = world.scrape("/metrics/dcgm/gpu-node-1")
    labels, value = page["DCGM_FI_DEV_XID_ERRORS"][1]
    assert (value, labels["err_code"], labels["err_msg"]) == (79, "79", "GPU has fallen off the bus")
    counts = {(lb["gpu"], lb.get("xid")): v for lb, v in page["DCGM_EXP_XID_ERRORS_COUNT"]}
    assert counts == {("0", None): 0, ("1", "79"): 2}
    world.run(301)
    page = world.scrape("/metrics/dcgm/gpu-node-1")
    assert page["DCGM_FI_DEV_XID_ERRORS"][1][1] == 79
    assert {(lb["gpu"], lb.get("xid")) for lb, _ in page["DCGM_EXP_XID_ERRORS_COUNT"]} == {
        ("0", None),
        ("1", None),
    }
    assert page["DCGM_EXP_XID_ERRORS_TOTAL"][0][1] == 2


def test_an_exporter_that_is_down_a_lost_gpu_and_an_absent_series(world: World) -> None:
    """Each of the ways in which telemetry goes dark."""
    world.telemetry.inject({"node": "gpu-node-1", "exporterDown": True})
    world.page("/metrics/dcgm/gpu-node-1", 503)
    assert len(world.targets("nvidia-dcgm-exporter")) == 1, "a target that is down is still a target"
    world.telemetry.inject({"node": "gpu-node-1", "exporterDown": False})
    world.telemetry.inject({"node": "gpu-node-1", "gpu": 0, "lost": True})
    assert set(world.gpu("DCGM_FI_DEV_GPU_UTIL")) == {"1"}
    world.telemetry.inject({"absent": ["DCGM_FI_DEV_GPU_UTIL", "kube_pod_owner"]})
    assert "DCGM_FI_DEV_GPU_UTIL" not in world.page("/metrics/dcgm/gpu-node-1")
    assert "kube_pod_owner" not in world.page("/metrics/kube-state-metrics")
    world.telemetry.inject({"absent": []})
    assert "DCGM_FI_DEV_GPU_UTIL" in world.page("/metrics/dcgm/gpu-node-1")


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        pytest.param({}, "keys are", id="nothing"),
        pytest.param({"temperature": 95}, "unknown key 'temperature'", id="an unknown key"),
        pytest.param({"node": "nope", "exporterDown": True}, "node", id="an unknown node"),
        pytest.param({"node": "gpu-node-1", "gpu": 2, "xid": 79}, "0 to 1", id="an unknown GPU"),
        pytest.param({"node": "gpu-node-1", "gpu": 0, "xid": "79"}, "xid", id="a text for an XID"),
        pytest.param({"node": "gpu-node-1", "gpu": 0, "temperatureCelsius": "hot"}, "number", id="hot"),
        pytest.param({"absent": "x"}, "absent", id="a text for a list"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(world: World, fault: dict[str, Any], word: str) -> None:
    """In a sentence."""
    with pytest.raises(FaultError, match=word):
        world.telemetry.inject(fault)


def test_an_unknown_page_is_not_found(world: World) -> None:
    """Whatever the path."""
    for path in ("/metrics/dcgm/nope", "/metrics/vllm/a/b", "/metrics/nope", "/sim/http_sd/nope"):
        world.page(path, 404)
