"""What kube-controller-manager does for Deployments, ReplicaSets and StatefulSets.

Every controller looks at the whole state and moves it one step closer to the spec, so running it again, or
late, or after missing something, is harmless.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from responder.sim.defaults import fill_for_controller
from responder.sim.deployments import DeploymentController
from responder.sim.objects import AlreadyExists, Entry, Object, ObjectStore
from responder.sim.owned import (
    ALPHABET,
    MANAGER,
    Hashes,
    annotation,
    copied,
    label,
    owner_reference,
    replicas_of,
    write_status,
)
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

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class Controllers:
    """The three controllers over one store and one view."""

    def __init__(self, store: ObjectStore, view: View) -> None:
        self._store = store
        self._view = view
        self._random = random.Random(0)  # noqa: S311 - names, not secrets
        self._hashes = Hashes()
        self._steps: dict[str, Callable[[Ref, Object], None]] = {
            DEPLOYMENTS: DeploymentController(store, view).sync,
            REPLICASETS: self._sync_replicaset,
            STATEFULSETS: self._sync_statefulset,
        }

    def sync(self, ref: Ref) -> None:
        """Moves one object closer to its spec; nothing if it is gone or going."""
        entry = self._view.get(ref)
        step = self._steps.get(ref.resource)
        if entry is not None and step is not None and not entry.obj["metadata"].get("deletionTimestamp"):
            step(ref, entry.obj)

    # ReplicaSets

    def _sync_replicaset(self, ref: Ref, replicaset: Object) -> None:
        pods = [e for e in self._view.owned(replicaset["metadata"]["uid"], PODS) if is_active(e.obj)]
        wanted = replicas_of(replicaset)
        for _ in range(wanted - len(pods)):
            self._create_pod(replicaset, f"{ref.name}-{self._suffix()}", "ReplicaSet", {})
        for pod in self.victims(pods, len(pods) - wanted):
            self._store.delete(PODS, *pod.key)
        ready = sum(is_ready(e.obj) for e in pods)
        counts = {"fullyLabeledReplicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
        status: Object = {"replicas": len(pods)} | {name: count for name, count in counts.items() if count}
        status["observedGeneration"] = replicaset["metadata"]["generation"]
        write_status(self._store, ref, replicaset, status, ("replicas", "observedGeneration", *counts))

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
        uid, wanted = statefulset["metadata"]["uid"], replicas_of(statefulset)
        revision = f"{ref.name}-{self._hashes.of(statefulset)}"
        pods = {_ordinal(e.key[1]): e for e in self._view.owned(uid, PODS)}
        for entry in list(pods.values()):
            if entry.obj.get("status", {}).get("phase") in ("Failed", "Succeeded"):
                self._store.delete(PODS, *entry.key)
        pods = {o: e for o, e in pods.items() if is_active(e.obj)}
        ordered = statefulset["spec"].get("podManagementPolicy", "OrderedReady") != "Parallel"
        self._move_ordinals(ref, statefulset, revision, pods, ordered=ordered)
        ready = sum(is_ready(e.obj) for e in pods.values())
        updated = sum(label(e.obj, "controller-revision-hash") == revision for e in pods.values())
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
        held = sum(label(e.obj, "controller-revision-hash") == current for e in pods.values())
        counts = {"readyReplicas": ready, "currentReplicas": held, "updatedReplicas": updated}
        status |= {name: count for name, count in counts.items() if count}
        write_status(self._store, ref, statefulset, status, (*status, *counts))

    def _move_ordinals(
        self, ref: Ref, owner: Object, revision: str, pods: dict[int, Entry], *, ordered: bool
    ) -> None:
        wanted = replicas_of(owner)
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
            if label(pods[ordinal].obj, "controller-revision-hash") != revision:
                self._store.delete(PODS, *pods[ordinal].key)
                return
            if not is_ready(pods[ordinal].obj):
                return

    # Shared

    def _create_pod(self, owner: Object, name: str, kind: str, labels: dict[str, str]) -> None:
        template = copied(owner["spec"]["template"])
        meta = template.get("metadata") or {}
        metadata: Object = {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), **labels},
            "ownerReferences": [owner_reference(owner, kind)],
        }
        if kind == "ReplicaSet":
            metadata["generateName"] = owner["metadata"]["name"] + "-"
        if meta.get("annotations"):
            metadata["annotations"] = meta["annotations"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        fill_for_controller(PODS, pod)
        # One of that name may still be going: the next change there brings us back.
        with suppress(AlreadyExists):
            self._store.create(PODS, pod, manager=MANAGER)

    def _suffix(self) -> str:
        return "".join(self._random.choices(ALPHABET, k=5))


def _ordinal(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


def _deletion_cost(pod: Object) -> int:
    try:
        return int(annotation(pod, DELETION_COST) or 0)
    except ValueError:
        return 0


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(character) for character in text)
