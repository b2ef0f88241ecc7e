"""What happens to a pod once it has a node: containers start, the model loads, the pod becomes Ready."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime

from responder.sim.objects import Object, ObjectStore
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
        # Only the first time: a pod that a test makes unready stays so.
        ready = self._makes_ready and now >= ready_at and uid not in self._made_ready
        if ready:
            self._made_ready.add(uid)
        self._advance(ref, pod, running=now >= running_at, ready=ready)
        if now < running_at:
            return running_at
        return ready_at if self._makes_ready and now < ready_at else None

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._bound.pop(uid, None)
        self._made_ready.discard(uid)

    def set_ready(self, ref: Ref, ready: bool) -> bool:
        """Makes a pod Ready, or not; whether there is such a pod with a node."""
        pod = self._store.get(PODS, ref.namespace, ref.name)
        if pod is None or not pod["spec"].get("nodeName"):
            return False
        if ready:
            self._advance(ref, pod, running=True, ready=True)
        else:
            self._write(ref, _to_unready)
        return True

    def _advance(self, ref: Ref, pod: Object, *, running: bool, ready: bool) -> None:
        """Moves a pod as far as it is due, in one write."""
        status = pod["status"]
        starts = not status.get("containerStatuses")
        runs = running and status.get("phase") != "Running"
        if not (starts or runs or ready):
            return
        node = self._view.get(Ref(NODES, "", pod["spec"]["nodeName"]))
        host = internal_ip(node.obj) if node else ""
        address = self._new_address(pod["spec"]["nodeName"]) if runs else ""

        def change(new: Object) -> None:
            if starts:
                _to_creating(new, host)
            if runs:
                _to_running(new, address)
            if ready:
                _to_ready(new)

        self._write(ref, change)

    def _new_address(self, node: str) -> str:
        self._addresses[node] += 1
        return _pod_address(node, self._addresses[node])

    def _write(self, ref: Ref, change: Callable[[Object], None]) -> None:
        self._store.mutate(PODS, ref.namespace, ref.name, change, manager=MANAGER, subresource="status")


def cold_start_of(pod: Object, default: float) -> float:
    """Simulated seconds a pod takes from binding to Ready."""
    text = (pod["metadata"].get("annotations") or {}).get(COLD_START)
    try:
        return max(0.0, float(text)) if text is not None else default
    except ValueError:
        return default


def _to_creating(pod: Object, host: str) -> None:
    status = pod["status"]
    status["hostIP"] = host
    status["startTime"] = _now()
    _set(pod, "PodReadyToStartContainers", "False")
    _set(pod, "Initialized", "True")
    for type_ in ("Ready", "ContainersReady"):
        _set(pod, type_, "False", **_not_ready(pod))
    _set_containers(pod, {"waiting": {"reason": "ContainerCreating"}}, started=False)


def _to_running(pod: Object, address: str) -> None:
    pod["status"] |= {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    _set(pod, "PodReadyToStartContainers", "True")
    _set_containers(pod, {"running": {"startedAt": _now()}}, started=True)


def _to_ready(pod: Object) -> None:
    for type_ in ("Ready", "ContainersReady"):
        _set(pod, type_, "True")
    for container in pod["status"]["containerStatuses"]:
        container["ready"] = True


def _to_unready(pod: Object) -> None:
    for type_ in ("Ready", "ContainersReady"):
        _set(pod, type_, "False", **_not_ready(pod))
    for container in pod["status"].get("containerStatuses") or ():
        container["ready"] = False


def _set_containers(pod: Object, state: Object, *, started: bool) -> None:
    specs = pod["spec"].get("containers") or ()
    pod["status"]["containerStatuses"] = [_container(spec, state, started=started) for spec in specs]


def _container(spec: Object, state: Object, *, started: bool) -> Object:
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
