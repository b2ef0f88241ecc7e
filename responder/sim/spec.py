"""What a simulated cluster consists of: from flags, from a YAML file, or by default."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from responder.sim.dcgm import Generation
from responder.sim.gpus import DEFAULT_MODEL, MODELS
from responder.sim.kubelet import DEFAULT_COLD_START_SECONDS
from responder.sim.load import DEFAULT_PEAK_REPLICAS
from responder.sim.queueing import Service
from responder.sim.view import Workload

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet"}
LOADS = ("curve", "steady", "none")
_SERVICE = Service()
DEFAULT_LLM = "meta-llama/Llama-3.1-8B-Instruct"


class SpecError(ValueError):
    """A specification cannot be used; the message is one sentence naming file, key and mend."""


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One served workload. `load` is the curve, a steady rate or none; its peak needs `peak_replicas`."""

    namespace: str = "inference"
    kind: str = "Deployment"
    name: str = "vllm"
    replicas: int = 1
    gpus_per_pod: int = 1
    cold_start_seconds: float = DEFAULT_COLD_START_SECONDS
    load: str = "curve"
    peak_replicas: float = DEFAULT_PEAK_REPLICAS
    model: str = DEFAULT_LLM
    service: Service = _SERVICE

    @property
    def workload(self) -> Workload:
        """Its identity."""
        return Workload(self.namespace, self.kind, self.name)


_DEFAULT_WORKLOADS = (
    WorkloadSpec(),
    WorkloadSpec(
        kind="StatefulSet",
        name="embedder",
        load="steady",
        peak_replicas=0.5,
        model="BAAI/bge-m3",
    ),
)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Nodes, their GPUs, and the workloads on them. The default is 4 nodes of 4 GPUs and two workloads."""

    nodes: int = 4
    gpus_per_node: int = 4
    gpu_model: str = DEFAULT_MODEL
    dcgm_generation: Generation = Generation.V4_8
    workloads: tuple[WorkloadSpec, ...] = field(default=_DEFAULT_WORKLOADS)

    def __post_init__(self) -> None:
        seen = set()
        for workload in self.workloads:
            if workload.workload in seen:
                raise SpecError(
                    f"workload {'/'.join(workload.workload)} is given twice; give each workload once."
                )
            seen.add(workload.workload)


def parse_workload(text: str) -> WorkloadSpec:
    """A workload from `namespace/kind/name=replicas`; raises SpecError."""
    where, _, count = text.partition("=")
    parts = where.split("/")
    if len(parts) != 3 or not count.isdigit():
        raise SpecError(
            f"--workload {text!r} is not namespace/kind/name=replicas; write e.g. ml/deployment/vllm=2."
        )
    table = {"namespace": parts[0], "kind": parts[1], "name": parts[2], "replicas": int(count)}
    return _workload(table, f"--workload {text!r}")


def read_spec(path: Path) -> ClusterSpec:
    """The cluster described by a YAML file; raises SpecError."""
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; give --file a YAML file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read ({error}).") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise SpecError(f"{path}:{line} {problem}; write valid YAML.") from None
    return parse_spec(table, name=str(path))


def parse_spec(table: object, *, name: str = "spec") -> ClusterSpec:
    """`read_spec` for a table at hand."""
    table = _table(
        table,
        name,
        ("nodes", "gpusPerNode", "gpuModel", "dcgmGeneration", "workloads"),
    )
    spec = ClusterSpec(
        nodes=_whole(table, "nodes", name, 4, low=0, high=1000),
        gpus_per_node=_whole(table, "gpusPerNode", name, 4, low=0, high=16),
        gpu_model=_one_of(table, "gpuModel", name, DEFAULT_MODEL, tuple(MODELS)),
        dcgm_generation=Generation(
            _one_of(table, "dcgmGeneration", name, Generation.V4_8, tuple(Generation))
        ),
    )
    if "workloads" not in table:
        return spec
    listed = table["workloads"]
    if not isinstance(listed, list):
        raise SpecError(f"{name}: workloads is not a list; write one item per workload.")
    workloads = tuple(_workload(item, f"{name}: workloads[{i}]") for i, item in enumerate(listed))
    try:
        return replace(spec, workloads=workloads)
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from None


_WORKLOAD_KEYS = (
    "namespace",
    "kind",
    "name",
    "replicas",
    "gpusPerPod",
    "coldStartSeconds",
    "load",
    "peakReplicas",
    "model",
    "concurrency",
    "serviceSeconds",
    "patienceSeconds",
    "targetInFlight",
)


def _workload(item: object, name: str) -> WorkloadSpec:
    table = _table(item, name, _WORKLOAD_KEYS)
    known = {f.name: f.default for f in fields(WorkloadSpec)}
    kind = str(table.get("kind", "Deployment")).lower()
    if kind not in _KINDS:
        raise SpecError(f"{name}: kind is {table['kind']!r}; write Deployment or StatefulSet.")
    if "name" not in table:
        raise SpecError(f"{name}: name is missing; give the workload a name.")
    return WorkloadSpec(
        namespace=_label(table, "namespace", name, "inference"),
        kind=_KINDS[kind],
        name=_label(table, "name", name, ""),
        replicas=_whole(table, "replicas", name, 1, low=0, high=10_000),
        gpus_per_pod=_whole(table, "gpusPerPod", name, 1, low=0, high=16),
        cold_start_seconds=_number(table, "coldStartSeconds", name, DEFAULT_COLD_START_SECONDS, 0),
        load=_one_of(table, "load", name, "curve", LOADS),
        peak_replicas=_number(table, "peakReplicas", name, DEFAULT_PEAK_REPLICAS, 0),
        model=str(table.get("model", known["model"])),
        service=Service(
            concurrency=_number(table, "concurrency", name, _SERVICE.concurrency, 1),
            service_seconds=_number(table, "serviceSeconds", name, _SERVICE.service_seconds, 0.1),
            patience_seconds=_number(table, "patienceSeconds", name, _SERVICE.patience_seconds, 1),
            target_in_flight=_number(table, "targetInFlight", name, _SERVICE.target_in_flight, 0.1),
        ),
    )


def _table(value: object, name: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(f"{name}: not a table; write keys and values ({', '.join(keys[:3])}, ...).")
    for key in value:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            mend = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(keys)}."
            raise SpecError(f"{name}: unknown key {key!r}; {mend}")
    return value


def _whole(table: Mapping[str, Any], key: str, name: str, default: int, *, low: int, high: int) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SpecError(f"{name}: {key} is {value!r}; write a whole number from {low} to {high}.")
    return value


def _number(table: Mapping[str, Any], key: str, name: str, default: float, low: float) -> float:
    value = table.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value < float("inf"):
        raise SpecError(f"{name}: {key} is {value!r}; write a number of at least {low:g}.")
    return float(value)


def _one_of(table: Mapping[str, Any], key: str, name: str, default: str, allowed: Sequence[str]) -> str:
    value = str(table.get(key, default))
    if value not in allowed:
        raise SpecError(f"{name}: {key} is {value!r}; write one of {', '.join(allowed)}.")
    return value


def _label(table: Mapping[str, Any], key: str, name: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise SpecError(
            f"{name}: {key} is {value!r}; write a Kubernetes name (lower case letters, digits and '-')."
        )
    return value
