"""Runs controllers, scheduler and kubelet: woken by changes, by simulated time, now and then for safety."""

import heapq
import itertools
import logging
import threading
from collections import deque

from responder.sim.clock import SimClock
from responder.sim.controllers import Controllers
from responder.sim.disruptions import Disruptions
from responder.sim.garbage import collect, finishing
from responder.sim.kubelet import DEFAULT_COLD_START_SECONDS, Kubelet, set_scheduled
from responder.sim.nodes import sync_taints
from responder.sim.objects import Change, Object, ObjectStore
from responder.sim.scheduler import Scheduler
from responder.sim.view import (
    BUDGETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    WATCHED,
    Ref,
    View,
    condition,
    is_active,
)

log = logging.getLogger(__name__)

# Pods before those who count them, so that many changes of pods make one change of status.
_ORDER = (NODES, PODS, REPLICASETS, STATEFULSETS, DEPLOYMENTS, BUDGETS)

RESYNC_SECONDS = 30.0
"""Real seconds between looks at everything, in case an event was mishandled."""


class ControlLoop:
    """One thread that keeps the cluster moving. `step` does the same without a thread, for tests.

    Readers of `view` hold `lock`.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: SimClock,
        *,
        cold_start: float = DEFAULT_COLD_START_SECONDS,
        kubelet: bool = True,
    ) -> None:
        self.view = View()
        self.lock = threading.RLock()
        self._store = store
        self._clock = clock
        self._controllers = Controllers(store, self.view)
        self._disruptions = Disruptions(store, self.view)
        self._scheduler = Scheduler(self.view)
        self._kubelet = Kubelet(store, self.view, cold_start=cold_start, ready=kubelet)
        self._changes: deque[Change] = deque()
        self._queues: dict[str, dict[Ref, None]] = {resource: {} for resource in _ORDER}
        self._unscheduled: dict[Ref, None] = {}
        self._timers: list[tuple[float, int, Ref]] = []
        self._ticket = itertools.count()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        with store.lock:
            for resource in WATCHED:
                for entry in store.entries(resource):
                    self._noticed(Change(entry.version, "ADDED", resource, entry, None))
            store.on_change(self._noticed)

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="sim-control-loop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops it and waits."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def set_ready(self, namespace: str, name: str, ready: bool = True) -> bool:
        """Makes a pod Ready or not, whatever its age; whether there is such a pod."""
        return self._kubelet.set_ready(Ref(PODS, namespace, name), ready)

    def step(self) -> None:
        """Does everything that is due now, until nothing is."""
        while self._step_once():
            pass

    def warm_up(self) -> None:
        """Settles the cluster without cold starts, as if it had been running all along."""
        self._kubelet.warm = True
        self.step()
        self._kubelet.warm = False

    def resync(self) -> None:
        """Queues every object."""
        with self.lock:
            for resource in WATCHED:
                for key in self.view.entries[resource]:
                    self._enqueue(Ref(resource, *key))

    def _enqueue(self, ref: Ref) -> None:
        self._queues[ref.resource][ref] = None

    def _noticed(self, change: Change) -> None:
        if change.resource in self.view.entries:
            self._changes.append(change)
            self._wake.set()

    def _run(self) -> None:
        resync_at = self._clock.now() + RESYNC_SECONDS * self._clock.speed
        while not self._stopping:
            self._wake.wait(self._patience(resync_at))
            self._wake.clear()
            if self._clock.now() >= resync_at:
                self.resync()
                resync_at = self._clock.now() + RESYNC_SECONDS * self._clock.speed
            while not self._stopping and self._step_once():
                pass

    def _patience(self, resync_at: float) -> float:
        due = min(resync_at, self._timers[0][0]) if self._timers else resync_at
        return max(0.0, self._clock.real_seconds(due - self._clock.now()))

    def _step_once(self) -> bool:
        """One object; False when there was nothing to do."""
        with self.lock:
            while self._changes:
                self._take(self._changes.popleft())
            now = self._clock.now()
            while self._timers and self._timers[0][0] <= now:
                self._enqueue(heapq.heappop(self._timers)[2])
            queue = next((queue for queue in self._queues.values() if queue), None)
            if queue is None:
                return False
            ref = next(iter(queue))
            del queue[ref]
            try:
                self._sync(ref, now)
            except Exception:  # one object's trouble must not stop the cluster; resync tries again
                log.exception("cannot bring %s %s/%s closer to its spec", *ref)
            return True

    def _take(self, change: Change) -> None:
        self.view.apply(change)
        obj = change.object
        ref = Ref(change.resource, *change.entry.key)
        owner = self.view.owner_ref(obj)
        if owner is not None:
            self._enqueue(owner)
        if change.resource == NODES:
            self._room_made()
        elif change.resource == PODS and self.view.budgets:
            self._queues[BUDGETS].update(dict.fromkeys(self.view.budgets.get(ref.namespace, ())))
        if change.type != "DELETED":
            self._enqueue(ref)
            if change.resource == PODS and not is_active(obj):
                self._room_made()
            return
        for orphan in self.view.orphans(obj["metadata"]["uid"]):
            self._store.delete(*orphan)
        if change.resource == PODS:
            self._unscheduled.pop(ref, None)
            self._kubelet.forget(obj["metadata"]["uid"])
            self._room_made()
        elif change.resource == NODES:
            for pod in list(self.view.on_node.get(ref.name, ())):
                self._store.delete(*pod)
        elif change.resource == BUDGETS:
            self._disruptions.forget(ref)

    def _room_made(self) -> None:
        self._scheduler.room_made()
        self._queues[PODS].update(self._unscheduled)

    def _sync(self, ref: Ref, now: float) -> None:
        entry = self.view.get(ref)
        if entry is None:
            return
        if finishing(entry.obj):
            collect(self._store, self.view, ref, entry.obj)
            return
        if ref.resource == NODES:
            sync_taints(self._store, ref, entry.obj)
            return
        if ref.resource == BUDGETS:
            self._look_again(ref, self._disruptions.sync(ref, now), now)
            return
        if ref.resource != PODS:
            self._controllers.sync(ref)
            return
        if entry.obj["spec"].get("nodeName") or entry.obj["metadata"].get("deletionTimestamp"):
            self._look_again(ref, self._kubelet.sync(ref, now), now)
        elif is_active(entry.obj):
            self._schedule(ref, entry.obj)

    def _look_again(self, ref: Ref, due: float | None, now: float) -> None:
        if due is not None and due > now:
            heapq.heappush(self._timers, (due, next(self._ticket), ref))

    def _schedule(self, ref: Ref, pod: Object) -> None:
        node, message = self._scheduler.place(pod)
        if node is None:
            self._unscheduled[ref] = None
            if condition(pod, "PodScheduled").get("message") == message:
                return
        else:
            self._unscheduled.pop(ref, None)

        def change(new: Object) -> None:
            if not new["spec"].get("nodeName"):
                set_scheduled(new, node, message)

        self._store.mutate(
            PODS,
            ref.namespace,
            ref.name,
            change,
            manager="kube-scheduler",
            subresource="binding" if node else "status",
        )
