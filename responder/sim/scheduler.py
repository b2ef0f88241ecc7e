"""Places pods on nodes with room for their extended resources (nvidia.com/gpu and the like)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from responder.sim.objects import Object
from responder.sim.view import NODES, PODS, Ref, View, requests_of

# The two endings of the real message: whether evicting others could have helped.
_HELPLESS = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one node cannot take a pod; `final` when evicting other pods would not help."""

    reason: str
    final: bool


def refusal(pod: Object, node: Object, used: Mapping[str, int]) -> tuple[Refusal, ...]:
    """Why `node` cannot take `pod`, in the order of the real scheduler's filters; empty if it can.

    The first filter that fails ends the look, but insufficient resources are all named.
    """
    spec = node.get("spec") or {}
    if spec.get("unschedulable") and not _tolerates(pod, _CORDONED):
        return (Refusal("node(s) were unschedulable", True),)
    for taint in spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerates(pod, taint):
            named = f"{taint['key']}: {taint.get('value', '')}"
            return (Refusal(f"node(s) had untolerated taint {{{named}}}", True),)
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return (Refusal("node(s) didn't match Pod's node affinity/selector", True),)
    allocatable = node.get("status", {}).get("allocatable") or {}
    short = []
    for resource, amount in sorted(requests_of(pod).items()):
        total = int(allocatable.get(resource, 0))
        if amount > total - used.get(resource, 0):
            short.append(Refusal(f"Insufficient {resource}", amount > total))
    return tuple(short)


_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _tolerates(pod: Object, taint: Mapping[str, str]) -> bool:
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        if toleration.get("operator") == "Exists":
            if toleration.get("key") in (None, "", taint["key"]):
                return True
        elif toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def message(refusals: Iterable[tuple[Refusal, ...]]) -> str:
    """The sentence of a PodScheduled=False condition, as kube-scheduler words it."""
    nodes = list(refusals)
    if not nodes:
        return "no nodes available to schedule pods"
    reasons = Counter(refused.reason for node in nodes for refused in node)
    endings = Counter(_HELPLESS if any(r.final for r in node) else _NO_VICTIMS for node in nodes)
    return (
        f"0/{len(nodes)} nodes are available: {_counted(reasons)}. "
        f"preemption: 0/{len(nodes)} nodes are available: {_counted(endings)}."
    )


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


class Scheduler:
    """Chooses nodes. Remembers what was refused until room is made, so a long queue of pods stays cheap."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._refused: dict[object, str] = {}

    def room_made(self) -> None:
        """Capacity may have come: earlier refusals no longer hold."""
        self._refused.clear()

    def place(self, pod: Object) -> tuple[str | None, str]:
        """(node, "") or (None, why not). Prefers the node with most room, which spreads replicas."""
        wish = repr([requests_of(pod), pod["spec"].get("nodeSelector"), pod["spec"].get("tolerations")])
        if wish in self._refused:
            return None, self._refused[wish]
        best: tuple[int, str] | None = None
        refusals = []
        wanted = requests_of(pod)
        for node in self._view.nodes():
            name = node.key[1]
            used = self._view.used[name]
            refused = refusal(pod, node.obj, used)
            if refused:
                refusals.append(refused)
                continue
            allocatable = node.obj.get("status", {}).get("allocatable") or {}
            room = sum(int(allocatable.get(r, 0)) - used.get(r, 0) for r in wanted)
            if best is None or (-room, name) < best:
                best = (-room, name)
        if best is not None:
            return best[1], ""
        self._refused[wish] = message(refusals)
        return None, self._refused[wish]


class Devices:
    """Which pod holds which GPU of which node, as the device plugin decides: lowest free index first."""

    def __init__(self, view: View, resource: str = "nvidia.com/gpu") -> None:
        self._view = view
        self._resource = resource
        self._slots: dict[str, list[Ref | None]] = {}
        self._seen = -1

    def on(self, node: str) -> list[Ref | None]:
        """Pod per GPU index."""
        self._refresh()
        return self._slots.get(node, [])

    def _refresh(self) -> None:
        if self._seen == self._view.placement_version:
            return
        self._seen = self._view.placement_version
        for (_, name), node in self._view.entries[NODES].items():
            count = int((node.obj.get("status", {}).get("allocatable") or {}).get(self._resource, 0))
            slots = self._slots.setdefault(name, [None] * count)
            slots.extend([None] * (count - len(slots)))
            here = {r for r in self._view.on_node.get(name, ()) if r.resource == PODS}
            for index, held in enumerate(slots):
                if held is not None and held not in here:
                    slots[index] = None
            for ref in sorted(here):
                self._assign(slots, ref)

    def _assign(self, slots: list[Ref | None], ref: Ref) -> None:
        entry = self._view.get(ref)
        wanted = requests_of(entry.obj).get(self._resource, 0) if entry else 0
        missing = wanted - slots.count(ref)
        for index, held in enumerate(slots):
            if missing <= 0:
                return
            if held is None:
                slots[index] = ref
                missing -= 1
