"""What happens to a pod once it has a node: containers start, the model loads, the pod becomes Ready."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime

from responder.sim.objects import Entry, Object, ObjectStore
from responder.sim.view import NODES, PODS, Ref, View, internal_ip, is_active, is_ready

MANAGER = "kubelet"
COLD_START = "sim.gpu-responder.io/cold-start-seconds"
"""Pod annotation: simulated seconds from binding to Ready."""

DEFAULT_COLD_START_SECONDS = 60.0
MAX_PULL_SECONDS = 5.0


class Kubelet:
    """Moves bound pods along. With `ready=False` it starts containers, but makes no pod Ready by itself.

    While `warm`, models load in no time.
    """

    def __init__(
        self,
        store: ObjectStore,
        view: View,
        *,
        cold_start: float = DEFAULT_COLD_START_SECONDS,
        ready: bool = True,
    ) -> None:
        self._store = store
        self._view = view
        self._cold_start = cold_start
        self._makes_ready = ready
        self.warm = False
        self._bound: dict[str, float] = {}
        self._made_ready: set[str] = set()
        self._addresses: dict[str, int] = defaultdict(int)

    def sync(self, ref: Ref, now: float) -> float | None:
        """Writes what is due for a pod by simulated second `now`; returns when to look again, if ever."""
        entry = self._view.get(ref)
        if entry is None:
            return None
        pod = entry.obj
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if not pod["metadata"].get("finalizers"):
                self._store.delete(PODS, ref.namespace, ref.name)
            return None
        if not pod["spec"].get("nodeName") or not is_active(pod) or is_ready(pod):
            return None
        began = self._bound.setdefault(uid, now)
        cold_start = 0.0 if self.warm else cold_start_of(pod, self._cold_start)
        running_at = began + min(MAX_PULL_SECONDS, cold_start / 10)
        ready_at = began + cold_start
        if now < running_at:
            self._creating(ref, pod)
            return running_at
        if pod["status"].get("phase") != "Running":
            self._running(entry)
        if not self._makes_ready:
            return None
        if now < ready_at:
            return ready_at
        if uid not in self._made_ready:
            # Only the first time: a pod that a test makes unready stays so.
            self._made_ready.add(uid)
            self.set_ready(ref, True)
        return None

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._bound.pop(uid, None)
        self._made_ready.discard(uid)

    def set_ready(self, ref: Ref, ready: bool) -> bool:
        """Makes a running pod Ready or not; whether there is such a pod."""
        status = "True" if ready else "False"

        def change(pod: Object) -> None:
            reason = {} if ready else _not_ready(pod)
            _set(pod, "ContainersReady", status, **reason)
            _set(pod, "Ready", status, **reason)
            for container in pod["status"].get("containerStatuses") or ():
                container["ready"] = ready

        return self._write(ref, change)

    def _creating(self, ref: Ref, pod: Object) -> None:
        if pod["status"].get("containerStatuses"):
            return
        node = self._view.get(Ref(NODES, "", pod["spec"]["nodeName"]))
        address = internal_ip(node.obj) if node else ""

        def change(new: Object) -> None:
            status = new["status"]
            status["hostIP"] = address
            status["startTime"] = _now()
            _set(new, "PodReadyToStartContainers", "False")
            _set(new, "Initialized", "True")
            for type_ in ("Ready", "ContainersReady"):
                _set(new, type_, "False", **_not_ready(new))
            waiting = {"waiting": {"reason": "ContainerCreating"}}
            status["containerStatuses"] = [
                _container(c, waiting) for c in new["spec"].get("containers") or ()
            ]

        self._write(ref, change)

    def _running(self, entry: Entry) -> None:
        if not entry.obj["status"].get("containerStatuses"):
            self._creating(Ref(PODS, *entry.key), entry.obj)
        node = entry.obj["spec"]["nodeName"]
        self._addresses[node] += 1
        address = _pod_address(node, self._addresses[node])

        def change(new: Object) -> None:
            status = new["status"]
            status["phase"] = "Running"
            status["podIP"] = address
            status["podIPs"] = [{"ip": address}]
            _set(new, "PodReadyToStartContainers", "True")
            running = {"running": {"startedAt": _now()}}
            status["containerStatuses"] = [
                _container(c, running, started=True) for c in new["spec"].get("containers") or ()
            ]

        self._write(Ref(PODS, *entry.key), change)

    def _write(self, ref: Ref, change: Callable[[Object], None]) -> bool:
        written = self._store.mutate(
            PODS, ref.namespace, ref.name, change, manager=MANAGER, subresource="status"
        )
        return written is not None


def cold_start_of(pod: Object, default: float) -> float:
    """Simulated seconds a pod takes from binding to Ready."""
    text = (pod["metadata"].get("annotations") or {}).get(COLD_START)
    try:
        return max(0.0, float(text)) if text is not None else default
    except ValueError:
        return default


def _container(spec: Object, state: Object, *, started: bool = False) -> Object:
    status: Object = {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "started": started,
        "state": state,
        "lastState": {},
    }
    return status


def _set(pod: Object, type_: str, status: str, **more: str) -> None:
    conditions = pod["status"].setdefault("conditions", [])
    old = next((c for c in conditions if c["type"] == type_), None)
    moved = _now() if old is None or old["status"] != status else old["lastTransitionTime"]
    new = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": moved, **more}
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new


def set_scheduled(pod: Object, node: str | None, message: str) -> None:
    """What kube-scheduler writes: a binding, or the condition that says why there is none."""
    if node is not None:
        pod["spec"]["nodeName"] = node
        _set(pod, "PodScheduled", "True")
    else:
        _set(pod, "PodScheduled", "False", reason="Unschedulable", message=message)


def _not_ready(pod: Object) -> dict[str, str]:
    names = " ".join(container["name"] for container in pod["spec"].get("containers") or ())
    return {"reason": "ContainersNotReady", "message": f"containers with unready status: [{names}]"}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _number(node: str) -> int:
    tail = node.rpartition("-")[2]
    return int(tail) % 250 if tail.isdigit() else sum(node.encode()) % 250


def _pod_address(node: str, count: int) -> str:
    return f"10.{244 + count // 62_500 % 8}.{_number(node)}.{count % 250 + 1}"
