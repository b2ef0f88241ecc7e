"""The disruption controller: what each PodDisruptionBudget allows right now.

After pkg/controller/disruption of Kubernetes 1.36, policy/v1. It records no Events, and leaves the condition
DisruptionTarget of pods alone.
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from responder.sim.objects import Conflict, Entry, NotFound, Object, ObjectStore
from responder.sim.owned import MANAGER
from responder.sim.resources import Registry, Resource
from responder.sim.scale import lookup
from responder.sim.selectors import SelectorError, from_label_selector
from responder.sim.view import BUDGETS, DEPLOYMENTS, PODS, REPLICASETS, Ref, View, controller_of, is_ready

DELETION_TIMEOUT_SECONDS = 120.0
"""Simulated seconds for which an eviction counts although its pod is not being deleted."""

_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_BUILT_IN = Registry()


class _SyncFailed(Exception):
    """Why a budget's status cannot be computed."""


class Disruptions:
    """Brings the status of budgets up to date. A pod's eviction is charged by the API server, not here."""

    def __init__(self, store: ObjectStore, view: View) -> None:
        self._store = store
        self._view = view
        # When evictions that no deletion followed stop counting, by budget, then by pod and time of eviction.
        self._expiries: dict[Ref, dict[tuple[str, str], float]] = {}

    def sync(self, ref: Ref, now: float) -> float | None:
        """Writes a budget's status if it changes; returns the simulated second to look again, if any."""
        entry = self._view.get(ref)
        if entry is None:
            return None
        budget = entry.obj
        try:
            pods = self._pods(ref.namespace, budget)
            expected, desired = self._expected(budget, pods)
        except (_SyncFailed, SelectorError) as failure:
            self._write_failure(entry, str(failure))
            return None
        disrupted, again = self._disrupted(ref, budget, pods, now)
        healthy = sum(
            is_ready(pod)
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in disrupted
        )
        # A budget without pods allows nothing: its first pods may come before this looks again.
        allowed = max(0, healthy - desired) if expected > 0 else 0
        self._write(entry, dict(zip(_COUNTS, (allowed, healthy, desired, expected), strict=True)), disrupted)
        return again

    def forget(self, ref: Ref) -> None:
        """A budget is gone."""
        self._expiries.pop(ref, None)

    def _pods(self, namespace: str, budget: Object) -> list[Object]:
        matches = from_label_selector(_spec(budget).get("selector"))
        return [
            entry.obj
            for (where, _), entry in self._view.entries[PODS].items()
            if where == namespace and matches(entry.obj["metadata"].get("labels") or {})
        ]

    def _expected(self, budget: Object, pods: list[Object]) -> tuple[int, int]:
        """How many pods there should be, and how many of them healthy."""
        most, least = _spec(budget).get("maxUnavailable"), _spec(budget).get("minAvailable")
        if most is not None:
            expected = self._scale_of_controllers(pods)
            return expected, max(0, expected - _scaled(most, expected))
        if isinstance(least, str):
            expected = self._scale_of_controllers(pods)
            return expected, _scaled(least, expected)
        if least is not None:
            return len(pods), int(least)
        return 0, 0

    def _scale_of_controllers(self, pods: list[Object]) -> int:
        """What the controllers of these pods are scaled to, together. Pods that nothing controls do not count."""
        scales: dict[str, int] = {}
        seen: set[str] = set()
        for pod in pods:
            owner = controller_of(pod)
            if owner is None or owner["uid"] in seen:
                continue
            seen.add(owner["uid"])
            found = self._scale_of(owner, pod["metadata"]["namespace"])
            if found is None:
                raise _SyncFailed(f'found no controllers for pod "{pod["metadata"]["name"]}"')
            uid, replicas = found
            scales[uid] = replicas
        return sum(scales.values())

    def _scale_of(self, owner: Object, namespace: str) -> tuple[str, int] | None:
        """uid and replicas of a Deployment above a ReplicaSet, or of the controller itself."""
        resource = self._served(owner)
        if resource.scale is None:
            raise _SyncFailed(f"{resource.key} does not implement the scale subresource")
        controller = self._object(resource, namespace, owner)
        if controller is None:
            return None
        above = controller_of(controller)
        if resource.key == REPLICASETS and above is not None and above["kind"] == "Deployment":
            deployment = self._view.get(Ref(DEPLOYMENTS, namespace, above["name"]))
            if deployment is not None and deployment.obj["metadata"]["uid"] == above["uid"]:
                return above["uid"], _replicas(deployment.obj, "spec.replicas", 1)
        unset = 0 if resource.custom else 1
        return owner["uid"], _replicas(controller, resource.scale.spec, unset)

    def _served(self, owner: Object) -> Resource:
        version, kind = owner["apiVersion"], owner["kind"]
        found = _BUILT_IN.by_kind(version, kind)
        if found is None:
            registry = Registry()
            for definition in self._store.entries(_DEFINITIONS):
                registry.define(definition.obj)
            found = registry.by_kind(version, kind)
        if found is None:
            raise _SyncFailed(f'no matches for kind "{kind}" in version "{version}"')
        return found

    def _object(self, resource: Resource, namespace: str, owner: Object) -> Object | None:
        """The controller that a pod names, unless it is gone or another one of that name."""
        if resource.key in self._view.entries:
            entry = self._view.get(Ref(resource.key, namespace, owner["name"]))
        else:
            entry = self._store.entry(resource.key, namespace, owner["name"])
        return entry.obj if entry is not None and entry.obj["metadata"]["uid"] == owner["uid"] else None

    def _disrupted(
        self, ref: Ref, budget: Object, pods: list[Object], now: float
    ) -> tuple[dict[str, str], float | None]:
        """Evictions whose pods are not seen going yet, and when the first of them stops counting.

        Their times are real time, as all in objects; the timeout runs in simulated time from when they are seen.
        """
        charged = (budget.get("status") or {}).get("disruptedPods") or {}
        before, expiries = self._expiries.pop(ref, {}), {}
        for pod in pods:
            name = pod["metadata"]["name"]
            if name in charged and not pod["metadata"].get("deletionTimestamp"):
                key = name, charged[name]
                age = _age(charged[name], self._store.clock())
                expiries[key] = before.get(key, now - age + DELETION_TIMEOUT_SECONDS)
        waiting = {key: expiry for key, expiry in expiries.items() if expiry > now}
        # Those that are over stay known until the write that removes them has come back.
        if expiries:
            self._expiries[ref] = expiries
        return dict(waiting.keys()), min(waiting.values(), default=None)

    def _write(self, entry: Entry, counts: dict[str, int], disrupted: dict[str, str]) -> None:
        budget = entry.obj
        before, generation = budget.get("status") or {}, budget["metadata"]["generation"]
        status: Object = {**counts, "observedGeneration": generation}
        if disrupted:
            status["disruptedPods"] = disrupted
        status["conditions"] = before.get("conditions")
        set_disruption_allowed(status, self._store.clock())
        if {**dict.fromkeys(_COUNTS, 0), **before} != status:
            self._update(entry, status)

    def _write_failure(self, entry: Entry, why: str) -> None:
        """Allows nothing, so that no eviction passes on counts that may be wrong."""
        status = {**(entry.obj.get("status") or {}), "disruptionsAllowed": 0}
        _set_condition(status, "False", "SyncFailed", why, self._store.clock())
        if status != entry.obj.get("status"):
            self._update(entry, status)

    def _update(self, entry: Entry, status: Object) -> None:
        budget = entry.copy()
        budget["status"] = status
        # An eviction may have been charged meanwhile: that change brings us back with it counted.
        with suppress(Conflict, NotFound):
            self._store.update(BUDGETS, budget, manager=MANAGER, subresource="status")


def set_disruption_allowed(status: Object, now: datetime) -> None:
    """Sets the condition DisruptionAllowed of a budget's status as its disruptionsAllowed has it."""
    if status["disruptionsAllowed"] > 0:
        _set_condition(status, "True", "SufficientPods", "", now)
    else:
        _set_condition(status, "False", "InsufficientPods", "", now)


def _set_condition(status: Object, value: str, reason: str, message: str, now: datetime) -> None:
    before = status.get("conditions") or []
    old: Object = next((c for c in before if c["type"] == "DisruptionAllowed"), {})
    moved = old.get("lastTransitionTime") if old.get("status") == value else None
    new = {
        "type": "DisruptionAllowed",
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": moved or now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if status.get("observedGeneration"):
        new["observedGeneration"] = status["observedGeneration"]
    status["conditions"] = [new if c is old else c for c in before] if old else [*before, new]


def _spec(budget: Object) -> Object:
    return budget.get("spec") or {}


def _scaled(value: Any, total: int) -> int:
    """A number, or a percentage of the total, rounded up."""
    if not isinstance(value, str):
        return int(value)
    if not value.endswith("%"):
        raise _SyncFailed("invalid value for IntOrString: invalid type: string is not a percentage")
    try:
        return -(-int(value[:-1]) * total // 100)
    except ValueError:
        told = f'invalid value "{value}": strconv.Atoi: parsing "{value[:-1]}": invalid syntax'
        raise _SyncFailed(f"invalid value for IntOrString: {told}") from None


def _replicas(obj: Object, path: str, unset: int) -> int:
    value = lookup(obj, path)
    return unset if value is None else int(value)


def _age(stamp: str, now: datetime) -> float:
    """Seconds since a time in an object; 0 if it is none or still to come."""
    try:
        return max(0.0, (now - datetime.fromisoformat(stamp)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
