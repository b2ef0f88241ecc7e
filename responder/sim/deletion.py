"""Deletes and evictions, as the real server does them."""

import contextlib
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

from responder.sim import errors, requests, versions
from responder.sim.disruptions import set_disruption_allowed
from responder.sim.objects import Entry, ObjectStore
from responder.sim.requests import Request
from responder.sim.resources import Resource
from responder.sim.selectors import SelectorError, from_label_selector
from responder.sim.targets import Target, Written
from responder.sim.view import BUDGETS

Object = dict[str, Any]

_ANSWERS_WITH_THE_OBJECT = frozenset({"pods", "services", "serviceaccounts", "persistentvolumeclaims"})
_NAMESPACES = "namespaces"


class Remover:
    """Deletes and evictions. Each runs under the store's lock."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def delete(self, target: Target, options: Object) -> Written:
        """DELETE of one object, gracefully where that applies."""
        with self._store.lock:
            entry = self._existing(target)
            wanted = options.get("preconditions") or {}
            meta = entry.obj["metadata"]
            for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
                have = meta[field]
                if wanted.get(field) and wanted[field] != have:
                    raise target.conflict(
                        f"the {label} in the precondition ({wanted[field]}) does not match the {label} in record"
                        f" ({have}). The object might have been deleted and then recreated"
                    )
            return self._delete(target, entry, options)

    def _delete(self, target: Target, entry: Entry, options: Object) -> Written:
        resource, meta = target.resource, entry.obj["metadata"]
        dry_run = bool(options.get("dryRun"))
        change = self._dying(resource, entry, options)
        if change is not None:
            if not dry_run:
                changed = self._store.mutate(resource.key, target.namespace, target.name, change)
                assert changed is not None
                return Written(versions.to_view(resource, changed))
            return Written(self._view(resource, entry))
        if not dry_run:
            self._store.delete(resource.key, target.namespace, target.name)
        if resource.key in _ANSWERS_WITH_THE_OBJECT:
            return Written(self._view(resource, entry))
        return Written(errors.success(resource.group, resource.plural, target.name, meta["uid"]))

    def _dying(self, resource: Resource, entry: Entry, options: Object) -> Callable[[Object], None] | None:
        """How the object changes when it is not removed at once; None when it is."""
        obj, now = entry.obj, self._store.clock()
        meta = obj["metadata"]
        finalizers = list(meta.get("finalizers") or ())
        policy = options.get("propagationPolicy")
        if (
            policy == "Foreground"
            and "foregroundDeletion" not in finalizers
            and self._has_dependents(meta["uid"])
        ):
            finalizers.append("foregroundDeletion")
        if resource.key == _NAMESPACES:
            return lambda new: _terminate(new, 0, now, phase="Terminating")
        grace = 0
        if resource.key == "pods":
            grace = _grace(obj, options)
            dying = meta.get("deletionGracePeriodSeconds")
            if dying is not None and "deletionTimestamp" in meta and grace:
                grace = min(grace, dying)
        if not finalizers and not grace:
            return None
        return lambda new: _terminate(new, grace, now, finalizers=finalizers)

    def _has_dependents(self, uid: str) -> bool:
        return any(
            owner.get("uid") == uid
            for key in self._store.resources()
            for entry in self._store.entries(key)
            for owner in entry.obj["metadata"].get("ownerReferences") or ()
        )

    def evict(self, target: Target, request: Request) -> Written:
        """POST on a pod's eviction: delete it if no disruption budget forbids."""
        body, _ = _eviction(request, target)
        with self._store.lock:
            pod = self._existing(target)
            options = dict(body.get("deleteOptions") or {})
            if request.dry_run:
                options["dryRun"] = ["All"]
            self._check_budget(target, pod, dry_run=bool(options.get("dryRun")))
            self.delete(target, options)
        return Written(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )

    def _check_budget(self, target: Target, pod: Entry, *, dry_run: bool) -> None:
        if (pod.obj.get("status") or {}).get("phase") in ("Pending", "Succeeded", "Failed"):
            return
        if "deletionTimestamp" in pod.obj["metadata"]:
            return
        budgets = self._budgets_of(pod.obj)
        if not budgets:
            return
        if len(budgets) > 1:
            raise errors.internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        budget = budgets[0].obj
        status = budget.get("status") or {}
        if not _is_ready(pod.obj):
            healthy, wanted = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
            always = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            if always or healthy >= wanted > 0:
                return
        _check_allowed(budget, status)
        if dry_run:
            return
        now = self._store.clock()

        def charge(new: Object) -> None:
            left = new["status"]["disruptionsAllowed"] = new["status"]["disruptionsAllowed"] - 1
            if left == 0:
                set_disruption_allowed(new["status"], now)
            stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            new["status"].setdefault("disruptedPods", {})[target.name] = stamp

        name = budget["metadata"]["name"]
        self._store.mutate(
            BUDGETS, target.namespace, name, charge, manager="kube-apiserver", subresource="status"
        )

    def _budgets_of(self, pod: Object) -> list[Entry]:
        labels = pod["metadata"].get("labels") or {}
        found = []
        for entry in self._store.entries(BUDGETS, pod["metadata"]["namespace"]):
            # A selector that makes no sense selects nothing.
            with contextlib.suppress(SelectorError):
                if from_label_selector((entry.obj.get("spec") or {}).get("selector"))(labels):
                    found.append(entry)
        return found

    def bind(self, target: Target, request: Request) -> Written:
        """POST on a pod's binding: what a scheduler does."""
        binding = requests.read_plain(request, "Binding")
        node = (binding.get("target") or {}).get("name")
        pod = self._existing(target)
        if pod.obj["spec"].get("nodeName"):
            raise target.conflict(
                f'pod {target.name} is already assigned to node "{pod.obj["spec"]["nodeName"]}"'
            )

        def assign(new: Object) -> None:
            new["spec"]["nodeName"] = node

        self._store.mutate("pods", target.namespace, target.name, assign, manager=request.manager)
        return Written(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )

    def _existing(self, target: Target) -> Entry:
        entry = self._store.entry(target.resource.key, target.namespace, target.name)
        if entry is None:
            raise target.not_found
        return entry

    def _view(self, resource: Resource, entry: Entry) -> Object:
        return versions.to_view(resource, entry.copy())


def _terminate(
    obj: Object, grace: int, now: Any, *, finalizers: list[str] | None = None, phase: str = ""
) -> None:
    meta = obj["metadata"]
    if phase:
        obj["status"] = {**(obj.get("status") or {}), "phase": phase}
    if finalizers:
        meta["finalizers"] = finalizers
    at = (now + timedelta(seconds=grace)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if "deletionTimestamp" not in meta or meta.get("deletionGracePeriodSeconds", 0) > grace:
        meta["deletionTimestamp"] = at
        if not phase:
            meta["deletionGracePeriodSeconds"] = grace


def _grace(pod: Object, options: Object) -> int:
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    if asked is None:
        asked = pod["spec"].get("terminationGracePeriodSeconds", 30)
    with contextlib.suppress(TypeError, ValueError):
        return max(0, int(asked))
    return 30


def _eviction(request: Request, target: Target) -> tuple[Object, list[str]]:
    body = requests.read_plain(request, "Eviction") if request.body.strip() else {}
    meta = body.get("metadata") or {}
    if meta.get("name") and meta["name"] != target.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    return body, []


def _check_allowed(budget: Object, status: Object) -> None:
    """Raises what the real server answers when a budget allows no eviction, or nobody has looked at it yet."""
    name = budget["metadata"]["name"]
    if (status.get("observedGeneration") or 0) < budget["metadata"]["generation"]:
        told = f"The disruption budget {name} is still being processed by the server."
        raise _too_many_disruptions(told, retry_after=10)
    if (status.get("disruptionsAllowed") or 0) <= 0:
        raise _too_many_disruptions(f"The disruption budget {name} {_why_not(status)}")


def _why_not(status: Object) -> str:
    healthy, wanted = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    conditions = status.get("conditions") or ()
    condition: Object = next((c for c in conditions if c["type"] == "DisruptionAllowed"), {})
    why = condition.get("message") if condition.get("status") == "False" else ""
    if why and condition["reason"] == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {why}"
    if healthy <= wanted:
        return f"needs {wanted} healthy pods and has {healthy} currently"
    suffix = f" ({condition['reason']}): {why}" if why else ""
    return f"does not allow evicting pods currently{suffix}"


def _too_many_disruptions(told: str, retry_after: int | None = None) -> errors.ApiError:
    found: Object = {"causes": [{"reason": "DisruptionBudget", "message": told}]}
    if retry_after:
        found["retryAfterSeconds"] = retry_after
    return errors.ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        found,
        headers={"Retry-After": str(retry_after)} if retry_after else None,
    )


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
