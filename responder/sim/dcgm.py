"""Readings of simulated GPUs in the words of NVIDIA's dcgm-exporter.

Names, help texts, label order and number formats follow the exporter's etc/default-counters.csv and its
templates; the opt-in counters that the shipped rules use are switched on, as `docs/simulator.md` lists.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from responder.sim.gpus import SLOWDOWN_CELSIUS, Gpu
from responder.sim.view import Ref

EXPORTER_PORT = 9400
NAMESPACE = "gpu-operator"
XID_WINDOW_SECONDS = 300.0
DRIVER_VERSION = "570.133.20"


_XID_TEXT = {
    0: "No Error",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "Preemptive cleanup, due to previous errors -- Most likely to see when running multiple cuda"
    " applications and hitting a DBE",
    48: "Double Bit ECC Error",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
}


class Generation(StrEnum):
    """Dialects of dcgm-exporter: the host label was renamed in 4.6, metrics and units in 4.9."""

    V3_3 = "3.3"
    V4_8 = "4.8"
    V4_9 = "4.9"


Read = Callable[[Gpu], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric in both dialects. `scale` turns the old unit into the new one."""

    name: str
    kind: str
    help: str
    read: Read
    fraction: bool = False
    new_name: str = ""
    new_help: str = ""
    scale: float = 1.0
    new_fraction: bool | None = None
    since: Generation = Generation.V3_3


def _zero(_: Gpu) -> int:
    return 0


def _used(gpu: Gpu) -> int:
    return round(gpu.model.memory_mib * gpu.memory_used_ratio)


def _reserved(gpu: Gpu) -> int:
    return gpu.model.memory_mib // 128


def _free(gpu: Gpu) -> int:
    return max(0, gpu.model.memory_mib - _reserved(gpu) - _used(gpu))


def _sm_clock(gpu: Gpu) -> float:
    return gpu.model.sm_clock_mhz if gpu.utilization > 0.01 else 345


_DEV, _PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"
_MHZ, _MIB = 1e6, 1048576.0

# In the order of the exporter's counters file.
FAMILIES = (
    Family(_DEV + "SM_CLOCK", "gauge", "SM clock frequency (in MHz).", _sm_clock,
           new_name=_DEV + "SM_CLOCK_HERTZ", new_help="SM clock frequency (in Hz).", scale=_MHZ),
    Family(_DEV + "MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).",
           lambda g: g.model.memory_clock_mhz,
           new_name=_DEV + "MEMORY_CLOCK_HERTZ", new_help="Memory clock frequency (in Hz).", scale=_MHZ),
    Family(_DEV + "MEMORY_TEMP", "gauge", "Memory temperature (in C).", lambda g: round(g.shown_celsius + 8),
           new_name=_DEV + "MEMORY_TEMP_CELSIUS"),
    Family(_DEV + "GPU_TEMP", "gauge", "GPU temperature (in C).", lambda g: round(g.shown_celsius),
           new_name=_DEV + "GPU_TEMP_CELSIUS"),
    Family(_DEV + "GPU_TEMP_LIMIT", "gauge", "Distance to the nearest slowdown threshold (in C).",
           lambda g: round(SLOWDOWN_CELSIUS - g.shown_celsius), new_name=_DEV + "GPU_TEMP_MARGIN_CELSIUS",
           since=Generation.V4_8),
    Family(_DEV + "POWER_USAGE", "gauge", "Power draw (in W).", lambda g: g.power, True,
           new_name=_DEV + "BOARD_POWER_WATTS"),
    Family(_DEV + "ENFORCED_POWER_LIMIT", "gauge", "Enforced power limit (in W).",
           lambda g: g.model.power_limit_watts, True, new_name=_DEV + "BOARD_POWER_LIMIT_ENFORCED_WATTS",
           since=Generation.V4_8),
    Family(_DEV + "TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).",
           lambda g: round(g.energy_joules * 1000), new_name=_DEV + "GPU_ENERGY_JOULES_TOTAL",
           new_help="Total energy consumption since boot (in J).", scale=0.001, new_fraction=True),
    Family(_DEV + "PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.", _zero,
           new_name=_DEV + "PCIE_REPLAY_TOTAL"),
    Family(_DEV + "GPU_UTIL", "gauge", "GPU utilization (in %).", lambda g: round(100 * g.utilization),
           new_name=_DEV + "GPU_UTIL_RATIO", new_help="GPU utilization (ratio).", scale=0.01,
           new_fraction=True),
    Family(_DEV + "MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", lambda g: round(60 * g.utilization),
           new_name=_DEV + "MEMORY_UTIL_RATIO", new_help="Memory utilization (ratio).", scale=0.01,
           new_fraction=True),
    Family(_DEV + "ENC_UTIL", "gauge", "Encoder utilization (in %).", _zero,
           new_name=_DEV + "ENC_UTIL_RATIO", new_help="Encoder utilization (ratio).", new_fraction=True),
    Family(_DEV + "DEC_UTIL", "gauge", "Decoder utilization (in %).", _zero,
           new_name=_DEV + "DEC_UTIL_RATIO", new_help="Decoder utilization (ratio).", new_fraction=True),
    Family(_DEV + "XID_ERRORS", "gauge", "Value of the last XID error encountered.", lambda g: g.xid,
           new_name=_DEV + "XID_ERROR"),
    Family(_DEV + "FB_FREE", "gauge", "Framebuffer memory free (in MiB).", _free,
           new_name=_DEV + "FB_FREE_BYTES", new_help="Framebuffer memory free (in bytes).", scale=_MIB),
    Family(_DEV + "FB_USED", "gauge", "Framebuffer memory used (in MiB).", _used,
           new_name=_DEV + "FB_USED_BYTES", new_help="Framebuffer memory used (in bytes).", scale=_MIB),
    Family(_DEV + "FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).", _reserved,
           new_name=_DEV + "FB_RESERVED_BYTES", new_help="Framebuffer memory reserved (in bytes).",
           scale=_MIB, since=Generation.V4_8),
    Family("", "gauge", "", lambda g: g.model.memory_mib, new_name=_DEV + "FB_CAPACITY_BYTES",
           new_help="Framebuffer memory capacity (in bytes).", scale=_MIB, since=Generation.V4_9),
    Family(_DEV + "ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors.",
           lambda g: sum(1 for _, xid in g.xids if xid == 48), new_name=_DEV + "ECC_DBE_VOL_TOTAL",
           since=Generation.V4_8),
    Family(_DEV + "VGPU_LICENSE_STATUS", "gauge", "vGPU License status", _zero,
           new_name=_DEV + "VGPU_LICENSE_STATUS"),
    Family(_DEV + "UNCORRECTABLE_REMAPPED_ROWS", "counter",
           "Number of remapped rows for uncorrectable errors", _zero,
           new_name=_DEV + "ROW_REMAP_UNCORRECTABLE_TOTAL"),
    Family(_DEV + "CORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for correctable errors",
           _zero, new_name=_DEV + "ROW_REMAP_CORRECTABLE_TOTAL"),
    Family(_DEV + "ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed",
           lambda g: int(g.xid == 64), new_name=_DEV + "ROW_REMAP_FAILED"),
    Family(_PROF + "GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active.",
           lambda g: g.utilization, True, new_name=_PROF + "GR_ENGINE_UTIL_RATIO", since=Generation.V4_8),
    Family(_PROF + "PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor (HMMA) pipe is active.",
           lambda g: 0.45 * g.utilization, True, new_name=_PROF + "TENSOR_UTIL_RATIO", since=Generation.V4_8),
    Family(_PROF + "DRAM_ACTIVE", "gauge",
           "Ratio of cycles the device memory interface is active sending or receiving data.",
           lambda g: 0.6 * g.utilization, True, new_name=_PROF + "DRAM_UTIL_RATIO", since=Generation.V4_8),
    Family(_PROF + "PCIE_TX_BYTES", "gauge",
           "The rate of data transmitted over the PCIe bus - including both protocol headers and data"
           " payloads - in bytes per second.",
           lambda g: round(2e8 * g.utilization), new_name=_PROF + "PCIE_TX_BYTES", since=Generation.V4_8),
    Family(_PROF + "PCIE_RX_BYTES", "gauge",
           "The rate of data received over the PCIe bus - including both protocol headers and data"
           " payloads - in bytes per second.",
           lambda g: round(3e8 * g.utilization), new_name=_PROF + "PCIE_RX_BYTES", since=Generation.V4_8),
)  # fmt: skip

XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
XID_TOTAL = "DCGM_EXP_XID_ERRORS_TOTAL"
CLOCK_EVENTS = "DCGM_EXP_CLOCK_EVENTS_COUNT"


def names(generation: Generation) -> frozenset[str]:
    """Every metric name of a dialect."""
    found = {_name(family, generation) for family in FAMILIES if _spoken(family, generation)}
    if generation is not Generation.V3_3:
        found |= {XID_COUNT, XID_TOTAL, CLOCK_EVENTS}
    return frozenset(found)


def _name(family: Family, generation: Generation) -> str:
    return family.new_name if generation is Generation.V4_9 else family.name


def _spoken(family: Family, generation: Generation) -> bool:
    return family.since <= generation and bool(_name(family, generation))


def render(
    gpus: Sequence[Gpu],
    holders: Sequence[Ref | None],
    containers: Sequence[str],
    generation: Generation,
    *,
    now: float,
    absent: frozenset[str] = frozenset(),
) -> str:
    """One node's page: `holders` and `containers` say whose each GPU is; `absent` names are left out."""
    shown = [i for i, gpu in enumerate(gpus) if not gpu.lost]
    static = [_static_labels(gpus[i], generation) for i in shown]
    owners = [_owner_labels(holders[i], containers[i]) for i in shown]
    labels = [f"{{{before}{after}}} " for before, after in zip(static, owners, strict=True)]
    with_xid = [
        f"{{{before}{_with_xid(gpus[i], holders[i], containers[i])}}} "
        for i, before in zip(shown, static, strict=True)
    ]
    lines: list[str] = []
    for family in FAMILIES:
        name = _name(family, generation)
        if not _spoken(family, generation) or name in absent:
            continue
        new = generation is Generation.V4_9
        fraction = family.fraction if not new or family.new_fraction is None else family.new_fraction
        lines.append(f"# HELP {name} {(family.new_help if new else '') or family.help}")
        lines.append(f"# TYPE {name} {family.kind}")
        scale = family.scale if new else 1.0
        is_xid = name in ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")
        for i, text in zip(shown, with_xid if is_xid else labels, strict=True):
            value = family.read(gpus[i]) * scale
            lines.append(name + text + (f"{value:.6f}" if fraction else str(round(value))))
    if generation is not Generation.V3_3:
        lines += _events([gpus[i] for i in shown], static, owners, now, absent)
    return "\n".join(lines) + "\n"


def _static_labels(gpu: Gpu, generation: Generation) -> str:
    host = "Hostname" if generation is Generation.V3_3 else "hostname"
    driver = "DCGM_FI_SYSTEM_DRIVER_VERSION" if generation is Generation.V4_9 else "DCGM_FI_DRIVER_VERSION"
    return (
        f'gpu="{gpu.index}",UUID="{gpu.uuid}",pci_bus_id="00000000:{0x1A + 0x11 * gpu.index:02X}:00.0",'
        f'device="nvidia{gpu.index}",modelName="{gpu.model_name}",{host}="{gpu.node}",{driver}="{DRIVER_VERSION}"'
    )


def _owner_labels(holder: Ref | None, container: str) -> str:
    if holder is None:
        return ""
    return f',container="{container}",namespace="{holder.namespace}",pod="{holder.name}"'


def _with_xid(gpu: Gpu, holder: Ref | None, container: str) -> str:
    # Attributes are sorted by name in the exporter, so the error stands between container and namespace.
    text = _XID_TEXT.get(gpu.xid, "Unknown Error")
    error = f',err_code="{gpu.xid}",err_msg="{text}"'
    if holder is None:
        return error
    return f',container="{container}"{error},namespace="{holder.namespace}",pod="{holder.name}"'


def _events(
    gpus: Sequence[Gpu], static: Sequence[str], owners: Sequence[str], now: float, absent: frozenset[str]
) -> list[str]:
    """The exporter's own counts: XIDs and clock events of the last five minutes, XIDs since start."""
    window = f'window_size_in_ms="{round(XID_WINDOW_SECONDS * 1000)}"'
    counts: list[str] = []
    totals: list[str] = []
    clocks: list[str] = []
    for gpu, before, after in zip(gpus, static, owners, strict=True):
        recent = [xid for at, xid in gpu.xids if now - at <= XID_WINDOW_SECONDS]
        if not recent:
            counts.append(f"{XID_COUNT}{{{before},{window}{after}}} 0")
        ever = [xid for _, xid in gpu.xids]
        counts += [
            f'{XID_COUNT}{{{before},{window}{after},xid="{xid}"}} {recent.count(xid)}'
            for xid in sorted(set(recent))
        ]
        totals += [
            f'{XID_TOTAL}{{{before}{after},xid="{xid}"}} {ever.count(xid)}' for xid in sorted(set(ever))
        ]
        clocks += [
            f'{CLOCK_EVENTS}{{{before},clock_event="{event}",{window}{after}}} 10'
            for event in _clock_events(gpu)
        ]
    lines: list[str] = []
    for name, kind, text, samples in (
        (CLOCK_EVENTS, "gauge", "Count of clock events within the user-specified time window.", clocks),
        (XID_COUNT, "gauge", "Count of XID Errors within user-specified time window.", counts),
        (XID_TOTAL, "counter", "Total number of XID errors.", totals),
    ):
        if samples and name not in absent:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
    return lines


def _clock_events(gpu: Gpu) -> Iterable[str]:
    if gpu.shown_celsius >= SLOWDOWN_CELSIUS:
        yield "hw_thermal"
    if gpu.utilization == 0:
        yield "gpu_idle"
