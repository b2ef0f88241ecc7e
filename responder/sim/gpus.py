"""Simulated GPUs: what a device does under load, and how it breaks."""

import math
import uuid
from dataclasses import dataclass, field

SLOWDOWN_CELSIUS = 87.0
_POWER_LAG_SECONDS = 10.0
_TEMPERATURE_LAG_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Model:
    """What a kind of GPU is good for."""

    memory_mib: int
    power_limit_watts: float
    idle_watts: float
    sm_clock_mhz: int
    memory_clock_mhz: int


MODELS = {
    "NVIDIA H100 80GB HBM3": Model(81559, 700.0, 70.0, 1980, 2619),
    "NVIDIA A100-SXM4-80GB": Model(81920, 400.0, 55.0, 1410, 1593),
    "NVIDIA L4": Model(23034, 72.0, 12.0, 2040, 6251),
}
DEFAULT_MODEL = "NVIDIA H100 80GB HBM3"


@dataclass(slots=True)
class Gpu:
    """One device. Power and temperature follow utilization with a lag; faults are set from outside."""

    node: str
    index: int
    model_name: str = DEFAULT_MODEL
    utilization: float = 0.0
    memory_used_ratio: float = 0.0
    power: float = 0.0
    temperature: float = 32.0
    energy_joules: float = 0.0
    seen: float | None = None
    forced_celsius: float | None = None
    lost: bool = False
    xid: int = 0
    xids: list[tuple[float, int]] = field(default_factory=list)
    uuid: str = field(init=False)
    """The same for the same node and index in every run."""

    def __post_init__(self) -> None:
        self.uuid = f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{self.index}.{self.node}')}"

    @property
    def model(self) -> Model:
        """Its kind; unknown names read as the default kind."""
        return MODELS.get(self.model_name, MODELS[DEFAULT_MODEL])

    def observe(self, now: float, utilization: float, memory_used_ratio: float) -> None:
        """Lives until `now` at the given load, exactly for a load that did not change in between."""
        spec = self.model
        aim = spec.idle_watts + (0.92 * spec.power_limit_watts - spec.idle_watts) * utilization
        warm = 32.0 + 36.0 * utilization + 0.6 * (self.index % 4)
        if self.seen is None:
            self.power, self.temperature = aim, warm
        else:
            dt = max(0.0, now - self.seen)
            before = self.power
            self.power = aim + (self.power - aim) * math.exp(-dt / _POWER_LAG_SECONDS)
            self.temperature = warm + (self.temperature - warm) * math.exp(-dt / _TEMPERATURE_LAG_SECONDS)
            self.energy_joules += (before + self.power) / 2 * dt
        self.seen = now
        self.utilization = utilization
        self.memory_used_ratio = memory_used_ratio

    def raise_xid(self, now: float, xid: int) -> None:
        """An XID error at `now`; 0 clears the last one shown, as a driver reload does."""
        self.xid = xid
        if xid:
            self.xids.append((now, xid))
        else:
            self.xids.clear()

    @property
    def shown_celsius(self) -> float:
        """The temperature that is reported."""
        return self.temperature if self.forced_celsius is None else self.forced_celsius
