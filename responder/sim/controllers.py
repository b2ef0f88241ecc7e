"""What kube-controller-manager does for Deployments, ReplicaSets and StatefulSets.

Every function looks at the whole state and moves it one step closer to the spec, so running it again, or late,
or after missing something, is harmless.
"""

import hashlib
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from responder.sim.objects import AlreadyExists, Entry, Object, ObjectStore
from responder.sim.selectors import from_label_selector
from responder.sim.view import (
    DEPLOYMENTS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Ref,
    View,
    condition,
    is_active,
    is_ready,
)

MANAGER = "kube-controller-manager"
REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

# The alphabet of generated names: no vowels, so no words.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_canonical = msgspec.json.Encoder(order="deterministic").encode


class Controllers:
    """The three controllers over one store and one view."""

    def __init__(self, store: ObjectStore, view: View) -> None:
        self._store = store
        self._view = view
        self._random = random.Random(0)
        self._hashes: dict[tuple[str, int], str] = {}

    def sync(self, ref: Ref) -> None:
        """Moves one object closer to its spec; nothing if it is gone or going."""
        entry = self._view.get(ref)
        if entry is None or entry.obj["metadata"].get("deletionTimestamp"):
            return
        steps: dict[str, Callable[[Ref, Object], None]] = {
            DEPLOYMENTS: self._sync_deployment,
            REPLICASETS: self._sync_replicaset,
            STATEFULSETS: self._sync_statefulset,
        }
        step = steps.get(ref.resource)
        if step is not None:
            step(ref, entry.obj)

    # Deployments

    def _sync_deployment(self, ref: Ref, deployment: Object) -> None:
        uid = deployment["metadata"]["uid"]
        wanted = _replicas(deployment)
        digest = self._template_hash(deployment)
        owned = self._view.owned(uid, REPLICASETS)
        new = next((e for e in owned if e.obj["metadata"]["labels"].get(HASH) == digest), None)
        old = [entry for entry in owned if entry is not new]
        surge, unavailable = _rolling_bounds(deployment, wanted)
        if new is None:
            if _recreates(deployment) and any(_status(e.obj, "replicas") for e in old):
                self._resize_all(old, 0, deployment)
                self._report_deployment(ref, deployment, owned, None, unavailable)
                return
            size = wanted if not old else max(0, min(wanted, wanted + surge - _total(old)))
            self._create_replicaset(deployment, digest, size, old)
        elif not old or not _total(old):
            self._resize(new, wanted, deployment)
        else:
            size = _replicas(new.obj)
            grown = min(wanted, size + max(0, wanted + surge - _total(owned)))
            self._resize(new, grown if grown > size else min(size, wanted), deployment)
            self._shrink_old(old, new, wanted - unavailable, deployment)
        self._report_deployment(ref, deployment, owned, new, unavailable)

    def _shrink_old(self, old: list[Entry], new: Entry, minimum: int, deployment: Object) -> None:
        # Replicas of the new set that are not up yet must not be counted as spare.
        spare = _total([*old, new]) - minimum - (_replicas(new.obj) - _status(new.obj, "availableReplicas"))
        for entry in old:
            down = max(0, min(_replicas(entry.obj), spare))
            self._resize(entry, _replicas(entry.obj) - down, deployment)
            spare -= down

    def _resize_all(self, sets: list[Entry], size: int, deployment: Object) -> None:
        for entry in sets:
            self._resize(entry, size, deployment)

    def _resize(self, entry: Entry, size: int, deployment: Object) -> None:
        marks = _scale_annotations(deployment)
        annotations = entry.obj["metadata"].get("annotations") or {}
        if _replicas(entry.obj) == size and marks.items() <= annotations.items():
            return

        def change(obj: Object) -> None:
            obj["spec"]["replicas"] = size
            obj["metadata"].setdefault("annotations", {}).update(marks)

        namespace, name = entry.key
        self._store.mutate(REPLICASETS, namespace, name, change, manager=MANAGER)

    def _create_replicaset(self, deployment: Object, digest: str, size: int, old: list[Entry]) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        template = msgspec.json.decode(msgspec.json.encode(spec["template"]))
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[HASH] = digest
        selector = msgspec.json.decode(msgspec.json.encode(spec["selector"]))
        selector.setdefault("matchLabels", {})[HASH] = digest
        revision = 1 + max((int(_annotation(e.obj, REVISION) or 0) for e in old), default=0)
        replicaset = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "namespace": meta["namespace"],
                "labels": dict(labels),
                "annotations": {REVISION: str(revision), **_scale_annotations(deployment)},
                "ownerReferences": [_owner(deployment, "Deployment")],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
            "status": {"replicas": 0},
        }
        if "minReadySeconds" in spec:
            replicaset["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        try:
            self._store.create(REPLICASETS, replicaset, manager=MANAGER)
        except AlreadyExists:
            pass  # a set of that name that is not ours: the real controller counts collisions, we wait

    def _report_deployment(
        self, ref: Ref, deployment: Object, owned: list[Entry], new: Entry | None, unavailable: int
    ) -> None:
        wanted = _replicas(deployment)
        total = sum(_status(e.obj, "replicas") for e in owned)
        available = sum(_status(e.obj, "availableReplicas") for e in owned)
        updated = _status(new.obj, "replicas") if new else 0
        counts = {
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(_status(e.obj, "readyReplicas") for e in owned),
            "availableReplicas": available,
            "unavailableReplicas": max(0, total - available),
        }
        conditions = _conditions(deployment, _is_available(available, wanted, unavailable))
        progress = _progress(deployment, new, total, updated, available)
        conditions = _conditions({"status": {"conditions": conditions}}, progress)
        status: Object = {"observedGeneration": deployment["metadata"]["generation"]}
        status |= {name: count for name, count in counts.items() if count}
        status["conditions"] = conditions
        revision = _annotation(new.obj, REVISION) if new else None
        if _same_status(deployment, status) and (
            not revision or _annotation(deployment, REVISION) == revision
        ):
            return

        def change(obj: Object) -> None:
            # A later status writer's fields are kept: the real controller replaces only its own.
            obj["status"] = _merged(obj.get("status"), status, (*counts, "observedGeneration", "conditions"))
            if revision:
                obj["metadata"].setdefault("annotations", {})[REVISION] = revision

        # The revision annotation travels with the status write, so generation does not move.
        self._store.mutate(
            DEPLOYMENTS, ref.namespace, ref.name, change, manager=MANAGER, subresource="status"
        )

    def _template_hash(self, owner: Object) -> str:
        key = (owner["metadata"]["uid"], owner["metadata"]["generation"])
        if key not in self._hashes:
            if len(self._hashes) > 20_000:
                self._hashes.clear()
            self._hashes[key] = template_hash(owner["spec"]["template"])
        return self._hashes[key]

    # ReplicaSets

    def _sync_replicaset(self, ref: Ref, replicaset: Object) -> None:
        pods = [e for e in self._view.owned(replicaset["metadata"]["uid"], PODS) if is_active(e.obj)]
        wanted = _replicas(replicaset)
        for _ in range(wanted - len(pods)):
            self._create_pod(replicaset, f"{ref.name}-{self._suffix()}", "ReplicaSet", {})
        for pod in self.victims(pods, len(pods) - wanted):
            self._store.delete(PODS, *pod.key)
        ready = sum(is_ready(e.obj) for e in pods)
        counts = {"fullyLabeledReplicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
        status: Object = {"replicas": len(pods)} | {name: count for name, count in counts.items() if count}
        status["observedGeneration"] = replicaset["metadata"]["generation"]
        self._write_status(ref, replicaset, status, ("replicas", "observedGeneration", *counts))

    def victims(self, pods: list[Entry], count: int) -> list[Entry]:
        """The pods a ReplicaSet deletes first, in the real controller's order."""
        if count <= 0:
            return []
        crowd = Counter(e.obj["spec"].get("nodeName") for e in pods)

        def rank(entry: Entry) -> tuple[object, ...]:
            pod = entry.obj
            node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase")
            restarts = max(
                (c.get("restartCount", 0) for c in pod["status"].get("containerStatuses") or ()), default=0
            )
            return (
                bool(node),
                {"Pending": 0, "Unknown": 1}.get(str(phase), 2),
                is_ready(pod),
                _deletion_cost(pod),
                -crowd[node] if node else 0,
                _descending(str(condition(pod, "Ready").get("lastTransitionTime", ""))),
                -restarts,
                -self._view.created[pod["metadata"]["uid"]],
            )

        return sorted(pods, key=rank)[:count]

    # StatefulSets

    def _sync_statefulset(self, ref: Ref, statefulset: Object) -> None:
        uid, wanted = statefulset["metadata"]["uid"], _replicas(statefulset)
        revision = f"{ref.name}-{self._template_hash(statefulset)}"
        pods = {_ordinal(e.key[1]): e for e in self._view.owned(uid, PODS)}
        for entry in list(pods.values()):
            if entry.obj.get("status", {}).get("phase") in ("Failed", "Succeeded"):
                self._store.delete(PODS, *entry.key)
        pods = {o: e for o, e in pods.items() if is_active(e.obj)}
        ordered = statefulset["spec"].get("podManagementPolicy", "OrderedReady") != "Parallel"
        self._move_ordinals(ref, statefulset, revision, pods, wanted, ordered)
        ready = sum(is_ready(e.obj) for e in pods.values())
        updated = sum(_label(e.obj, "controller-revision-hash") == revision for e in pods.values())
        previous = statefulset.get("status", {}).get("currentRevision", revision)
        done = updated == len(pods) == wanted == ready
        current = revision if done else previous
        status: Object = {
            "observedGeneration": statefulset["metadata"]["generation"],
            "replicas": len(pods),
            "availableReplicas": ready,
            "currentRevision": current,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        held = sum(_label(e.obj, "controller-revision-hash") == current for e in pods.values())
        counts = {"readyReplicas": ready, "currentReplicas": held, "updatedReplicas": updated}
        status |= {name: count for name, count in counts.items() if count}
        self._write_status(ref, statefulset, status, (*status, *counts))

    def _move_ordinals(
        self, ref: Ref, owner: Object, revision: str, pods: dict[int, Entry], wanted: int, ordered: bool
    ) -> None:
        for ordinal in range(wanted):
            pod = pods.get(ordinal)
            if pod is None:
                name = f"{ref.name}-{ordinal}"
                labels = {
                    "statefulset.kubernetes.io/pod-name": name,
                    "apps.kubernetes.io/pod-index": str(ordinal),
                    "controller-revision-hash": revision,
                }
                self._create_pod(owner, name, "StatefulSet", labels)
            if ordered and (pod is None or not is_ready(pod.obj)):
                return
        for ordinal in sorted((o for o in pods if o >= wanted), reverse=True):
            self._store.delete(PODS, *pods[ordinal].key)
            if ordered:
                return
        for ordinal in sorted(pods, reverse=True):
            if _label(pods[ordinal].obj, "controller-revision-hash") != revision:
                self._store.delete(PODS, *pods[ordinal].key)
                return
            if not is_ready(pods[ordinal].obj):
                return

    # Shared

    def _create_pod(self, owner: Object, name: str, kind: str, labels: dict[str, str]) -> None:
        template = msgspec.json.decode(msgspec.json.encode(owner["spec"]["template"]))
        meta = template.get("metadata") or {}
        metadata: Object = {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), **labels},
            "ownerReferences": [_owner(owner, kind)],
        }
        if kind == "ReplicaSet":
            metadata["generateName"] = owner["metadata"]["name"] + "-"
        if meta.get("annotations"):
            metadata["annotations"] = meta["annotations"]
        spec = {"restartPolicy": "Always", "schedulerName": "default-scheduler"} | template["spec"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }
        try:
            self._store.create(PODS, pod, manager=MANAGER)
        except AlreadyExists:
            pass  # still going, or somebody else's: the next change there brings us back

    def _write_status(self, ref: Ref, obj: Object, status: Object, ours: tuple[str, ...]) -> None:
        if _same_status(obj, status):
            return

        def change(new: Object) -> None:
            new["status"] = _merged(new.get("status"), status, ours)

        self._store.mutate(
            ref.resource, ref.namespace, ref.name, change, manager=MANAGER, subresource="status"
        )

    def _suffix(self) -> str:
        return "".join(self._random.choices(_ALPHABET, k=5))


def template_hash(template: Object) -> str:
    """A short name for a pod template, in the alphabet of generated names."""
    number = zlib.crc32(hashlib.sha256(_canonical(template)).digest())
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


def selects(owner: Object, pod: Object) -> bool:
    """Whether an owner's label selector matches a pod."""
    return from_label_selector(owner["spec"].get("selector"))(pod["metadata"].get("labels") or {})


def _replicas(obj: Object) -> int:
    value = obj["spec"].get("replicas")
    return 1 if value is None else int(value)


def _status(obj: Object, field: str) -> int:
    return int(obj.get("status", {}).get(field) or 0)


def _total(entries: list[Entry]) -> int:
    return sum(_replicas(entry.obj) for entry in entries)


def _annotation(obj: Object, name: str) -> str | None:
    value: str | None = (obj["metadata"].get("annotations") or {}).get(name)
    return value


def _label(obj: Object, name: str) -> str | None:
    value: str | None = (obj["metadata"].get("labels") or {}).get(name)
    return value


def _ordinal(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


def _deletion_cost(pod: Object) -> int:
    try:
        return int(_annotation(pod, DELETION_COST) or 0)
    except ValueError:
        return 0


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(character) for character in text)


def _owner(obj: Object, kind: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


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
    wanted = _replicas(deployment)
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
    wanted = _replicas(deployment)
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


def _same_status(obj: Object, status: Object) -> bool:
    before = dict(obj.get("status") or {})
    listed = {c["type"]: c for c in before.get("conditions") or ()}
    ours = {c["type"]: c for c in status.get("conditions") or ()}
    return (
        all(before.get(k) == v for k, v in status.items() if k != "conditions")
        and all(before.get(k) == status.get(k) for k in _COUNTS)
        and all(listed.get(k) == v for k, v in ours.items())
    )


_COUNTS = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "unavailableReplicas",
    "currentReplicas",
    "fullyLabeledReplicas",
)


def _merged(before: Object | None, status: Object, ours: tuple[str, ...]) -> Object:
    kept = {key: value for key, value in (before or {}).items() if key not in ours}
    return kept | status
