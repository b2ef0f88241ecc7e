"""What containers ask of a node, in thousandths by resource name. Pure."""

from collections.abc import Iterable

import msgspec

from responder.kube.objects import Json
from responder.kube.quantity import milli

Amounts = dict[str, int]


class Container(msgspec.Struct, rename="camel"):
    resources: Json | None = None
    restart_policy: str = ""


def is_extended(resource: str) -> bool:
    """`nvidia.com/gpu`, `nvidia.com/mig-1g.5gb`, `amd.com/gpu`, `habana.ai/gaudi`, `gpu.intel.com/i915`."""
    return "/" in resource


def effective(containers: Iterable[Container], init: Iterable[Container]) -> Amounts:
    """Containers run together; init containers one by one, beside the sidecars that were started before them."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in init:
        own = _asks(container)
        if container.restart_policy == "Always":
            sidecars = _plus(sidecars, own)
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _plus(sidecars, own))
    together = sidecars
    for container in containers:
        together = _plus(together, _asks(container))
    return _most(peak, together) | {"pods": 1000}


def _asks(container: Container) -> Amounts:
    """Requests; a limit without a request stands for it."""
    resources = container.resources or {}
    given = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {name: milli(quantity) for name, quantity in given.items()}


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one | other}


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one | other}
