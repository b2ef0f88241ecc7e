"""The Deployment controller: one ReplicaSet per pod template, moved by rolling updates."""

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from responder.sim.objects import AlreadyExists, Entry, Object, ObjectStore
from responder.sim.owned import (
    MANAGER,
    Hashes,
    annotation,
    copied,
    count_of,
    merged,
    owner_reference,
    replicas_of,
    same_status,
    total_of,
)
from responder.sim.view import DEPLOYMENTS, REPLICASETS, Ref, View, condition

REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"


class DeploymentController:
    """Level-triggered: looks at the whole state and moves it one step."""

    def __init__(self, store: ObjectStore, view: View) -> None:
        self._store = store
        self._view = view
        self._hashes = Hashes()

    def sync(self, ref: Ref, deployment: Object) -> None:
        """Creates, grows and shrinks ReplicaSets, and reports."""
        uid = deployment["metadata"]["uid"]
        wanted = replicas_of(deployment)
        digest = self._hashes.of(deployment)
        owned = self._view.owned(uid, REPLICASETS)
        new = next((e for e in owned if e.obj["metadata"]["labels"].get(HASH) == digest), None)
        old = [entry for entry in owned if entry is not new]
        surge, unavailable = _rolling_bounds(deployment, wanted)
        if new is not None and _revision(new) <= _newest_revision(old):
            self._renumber(new, _newest_revision(old) + 1)
            return  # its change brings us back
        if new is None:
            if _recreates(deployment) and any(count_of(e.obj, "replicas") for e in old):
                self._resize_all(old, 0, deployment)
                self._report_deployment(ref, deployment, owned, None, unavailable)
                return
            size = wanted if not old else max(0, min(wanted, wanted + surge - total_of(old)))
            self._create_replicaset(deployment, digest, size, old)
        elif not old or not total_of(old):
            self._resize(new, wanted, deployment)
        else:
            size = replicas_of(new.obj)
            grown = min(wanted, size + max(0, wanted + surge - total_of(owned)))
            self._resize(new, grown if grown > size else min(size, wanted), deployment)
            self._shrink_old(old, new, wanted - unavailable, deployment)
        self._report_deployment(ref, deployment, owned, new, unavailable)

    def _shrink_old(self, old: list[Entry], new: Entry, minimum: int, deployment: Object) -> None:
        # Replicas of the new set that are not up yet must not be counted as spare.
        spare = (
            total_of([*old, new]) - minimum - (replicas_of(new.obj) - count_of(new.obj, "availableReplicas"))
        )
        for entry in old:
            down = max(0, min(replicas_of(entry.obj), spare))
            self._resize(entry, replicas_of(entry.obj) - down, deployment)
            spare -= down

    def _resize_all(self, sets: list[Entry], size: int, deployment: Object) -> None:
        for entry in sets:
            self._resize(entry, size, deployment)

    def _resize(self, entry: Entry, size: int, deployment: Object) -> None:
        marks = _scale_annotations(deployment)
        annotations = entry.obj["metadata"].get("annotations") or {}
        if replicas_of(entry.obj) == size and marks.items() <= annotations.items():
            return

        def change(obj: Object) -> None:
            obj["spec"]["replicas"] = size
            obj["metadata"].setdefault("annotations", {}).update(marks)

        namespace, name = entry.key
        self._store.mutate(REPLICASETS, namespace, name, change, manager=MANAGER)

    def _renumber(self, entry: Entry, revision: int) -> None:
        """An old template that is wanted again, as after `rollout undo`, becomes the newest revision."""

        def change(obj: Object) -> None:
            obj["metadata"].setdefault("annotations", {})[REVISION] = str(revision)

        namespace, name = entry.key
        self._store.mutate(REPLICASETS, namespace, name, change, manager=MANAGER)

    def _create_replicaset(self, deployment: Object, digest: str, size: int, old: list[Entry]) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        template = copied(spec["template"])
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[HASH] = digest
        selector = copied(spec["selector"])
        selector.setdefault("matchLabels", {})[HASH] = digest
        revision = 1 + _newest_revision(old)
        replicaset: Object = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "namespace": meta["namespace"],
                "labels": dict(labels),
                "annotations": {REVISION: str(revision), **_scale_annotations(deployment)},
                "ownerReferences": [owner_reference(deployment, "Deployment")],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
            "status": {"replicas": 0},
        }
        if "minReadySeconds" in spec:
            replicaset["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        # A set of that name that is not ours: the real controller counts collisions, this one waits.
        with suppress(AlreadyExists):
            self._store.create(REPLICASETS, replicaset, manager=MANAGER)

    def _report_deployment(
        self, ref: Ref, deployment: Object, owned: list[Entry], new: Entry | None, unavailable: int
    ) -> None:
        wanted = replicas_of(deployment)
        total = sum(count_of(e.obj, "replicas") for e in owned)
        available = sum(count_of(e.obj, "availableReplicas") for e in owned)
        updated = count_of(new.obj, "replicas") if new else 0
        counts = {
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(count_of(e.obj, "readyReplicas") for e in owned),
            "availableReplicas": available,
            "unavailableReplicas": max(0, total - available),
        }
        conditions = _conditions(deployment, _is_available(available, wanted, unavailable))
        progress = _progress(deployment, new, total, updated, available)
        conditions = _conditions({"status": {"conditions": conditions}}, progress)
        status: Object = {"observedGeneration": deployment["metadata"]["generation"]}
        status |= {name: count for name, count in counts.items() if count}
        status["conditions"] = conditions
        revision = annotation(new.obj, REVISION) if new else None
        if same_status(deployment, status) and (not revision or annotation(deployment, REVISION) == revision):
            return

        def change(obj: Object) -> None:
            # A later status writer's fields are kept: the real controller replaces only its own.
            obj["status"] = merged(obj.get("status"), status, (*counts, "observedGeneration", "conditions"))
            if revision:
                obj["metadata"].setdefault("annotations", {})[REVISION] = revision

        # The revision annotation travels with the status write, so generation does not move.
        self._store.mutate(
            DEPLOYMENTS, ref.namespace, ref.name, change, manager=MANAGER, subresource="status"
        )


def _revision(entry: Entry) -> int:
    text = annotation(entry.obj, REVISION) or ""
    return int(text) if text.isdigit() else 0


def _newest_revision(entries: list[Entry]) -> int:
    return max(map(_revision, entries), default=0)


def _recreates(deployment: Object) -> bool:
    strategy = deployment["spec"].get("strategy") or {}
    return bool(strategy.get("type") == "Recreate")


def _rolling_bounds(deployment: Object, wanted: int) -> tuple[int, int]:
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    if _recreates(deployment):
        return 0, wanted
    surge = _amount(rolling.get("maxSurge", "25%"), wanted, math.ceil)
    unavailable = _amount(rolling.get("maxUnavailable", "25%"), wanted, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, wanted)


def _amount(value: Any, of: int, rounding: Callable[[float], int]) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return rounding(of * int(value[:-1]) / 100)
    return int(value)


def _scale_annotations(deployment: Object) -> dict[str, str]:
    wanted = replicas_of(deployment)
    surge, _ = _rolling_bounds(deployment, wanted)
    return {
        "deployment.kubernetes.io/desired-replicas": str(wanted),
        "deployment.kubernetes.io/max-replicas": str(wanted + surge),
    }


def _is_available(available: int, wanted: int, unavailable: int) -> Object:
    if available >= wanted - unavailable:
        return {
            "type": "Available",
            "status": "True",
            "reason": "MinimumReplicasAvailable",
            "message": "Deployment has minimum availability.",
        }
    return {
        "type": "Available",
        "status": "False",
        "reason": "MinimumReplicasUnavailable",
        "message": "Deployment does not have minimum availability.",
    }


def _progress(deployment: Object, new: Entry | None, total: int, updated: int, available: int) -> Object:
    before = condition(deployment, "Progressing")
    wanted = replicas_of(deployment)
    if new is None:
        return before or {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetCreated",
            "message": "Created new replica set.",
        }
    named = f'ReplicaSet "{new.key[1]}"'
    settled = before.get("reason") == "NewReplicaSetAvailable" and named in str(before.get("message"))
    # Scaling is not a rollout: once a set has been available, growing it does not make it progress again.
    if (settled and total == updated) or updated == total == available == wanted:
        reason, text = "NewReplicaSetAvailable", f"{named} has successfully progressed."
    else:
        reason, text = "ReplicaSetUpdated", f"{named} is progressing."
    return {"type": "Progressing", "status": "True", "reason": reason, "message": text}


def _conditions(obj: Object, new: Object) -> list[Object]:
    """The object's conditions with one set, its times moved only when it changed."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    result = [c for c in obj.get("status", {}).get("conditions") or () if c["type"] != new["type"]]
    old = condition(obj, new["type"])
    same_status = old.get("status") == new["status"]
    unchanged = same_status and old.get("reason") == new["reason"]
    times = {
        "lastUpdateTime": old["lastUpdateTime"] if unchanged and "lastUpdateTime" in old else now,
        "lastTransitionTime": old["lastTransitionTime"]
        if same_status and "lastTransitionTime" in old
        else now,
    }
    result.append({**new, **times})
    return sorted(result, key=lambda c: str(c["type"]))
