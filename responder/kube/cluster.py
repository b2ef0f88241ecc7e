"""KubeCluster: everything the responder asks of a Kubernetes cluster, behind one object."""

import threading
import time
from collections.abc import Iterable, Mapping

import msgspec

from responder.errors import PermanentError, ResponderError
from responder.kube.access import Access, Right, review
from responder.kube.capacity import Fit, fit
from responder.kube.connection import Connection, OnCall
from responder.kube.discovery import Discovery
from responder.kube.events import Recorder
from responder.kube.inventory import Inventory
from responder.kube.mirrors import Mirrors
from responder.kube.news import News, Nobody
from responder.kube.nodes import Nodes
from responder.kube.ownership import Owners
from responder.kube.pods import PodState, count, listed
from responder.kube.resolve import Resolver
from responder.kube.workloads import Details, Workloads
from responder.model import Ownership, Pods, Reason, TargetRef, Workload
from responder.policy import Rejection

_CHECK_SECONDS = 5.0
_ODD_TEMPLATE = (msgspec.MsgspecError, ValueError, TypeError, AttributeError, KeyError)


class KubeCluster:
    """One cluster, by a kubeconfig file or the pod's service account. Thread-safe; share it.

    Methods raise PermanentError, TransientError or Conflict with a sentence for the person on call.
    """

    def __init__(
        self,
        kubeconfig: str | None = None,
        *,
        timeout: float = 10.0,
        deadline: float = 20.0,
        qps: float = 100.0,
        burst: int = 200,
        pool_size: int = 160,
        on_call: OnCall | None = None,
    ) -> None:
        self.connection = Connection(
            kubeconfig,
            timeout=timeout,
            deadline=deadline,
            qps=qps,
            burst=burst,
            pool_size=pool_size,
            on_call=on_call,
        )
        self.discovery = Discovery(self.connection)
        self._workloads = Workloads(self.connection, self.discovery)
        self._owners = Owners(self.connection, self.discovery)
        self._resolver = Resolver(self.connection, self.discovery)
        self._inventory = Inventory(self.connection)
        self._recorder = Recorder(self.connection, self.discovery)
        self.nodes = Nodes(self.connection, lambda: self._mirrors.nodes() if self._mirrors else None)
        self._mirrors: Mirrors | None = None
        self._checked: tuple[str, float] | None = None
        self._check_lock = threading.Lock()

    def keep_current(self, news: News | None = None) -> None:
        """Keep targets, pods, autoscalers and nodes current by watches from now on, where the rights allow.

        For the process that acts, which is told of what it has to look at. While a watch is not current, they are
        read when asked for.
        """
        if self._mirrors is None:
            self._mirrors = Mirrors(self.connection, self.discovery, news or Nobody())
            self._owners.mirrors = self._mirrors
            self._inventory.mirrors = self._mirrors

    def workload(self, ref: TargetRef) -> Workload:
        """The object and its scale, live, at one resourceVersion."""
        return self._workloads.read(ref)

    def seen(self, ref: TargetRef) -> Workload | None:
        """The workload as its watch last showed it: a moment old, and never enough to act on. Never raises.

        None while there is no current watch, while it is on its way out, and for kinds that must be asked for their
        scale.
        """
        try:
            sighting = self._mirrors.target(ref) if self._mirrors else None
            if sighting is None or sighting.details is None or sighting.leaving:
                return None
            self._workloads.keep(ref, sighting.details)
            return self._workloads.within(ref.namespace, sighting.workload)
        except ResponderError:
            return None

    def scale(self, ref: TargetRef, workload: Workload, replicas: int, *, dry_run: bool = False) -> Workload:
        """Write the scale if the workload is still as read; the workload as it is afterwards.

        Conflict says that it is not. A TransientError leaves open whether the write took effect.
        """
        return self._workloads.write(ref, workload, replicas, dry_run)

    def pods(self, ref: TargetRef, workload: Workload) -> Pods:
        """The target's pods, by its scale's selector."""
        details = self._workloads.details(ref, workload)
        try:
            states = self._states(ref, details)
            if states is not None:
                return count(states)
        except PermanentError as error:
            if error.reason is not Reason.FORBIDDEN:
                raise
        # No selector or no right: then the object's own status counts.
        total = details.pods or 0
        return Pods(ready=total if details.ready is None else details.ready, total=total)

    def ownership(self, ref: TargetRef, workload: Workload) -> Ownership:
        """Who else decides the replicas; noticed within 10 s when one appears."""
        return self._owners.of(ref, self._workloads.details(ref, workload))

    def locate(self, labels: Mapping[str, str]) -> TargetRef | Rejection:
        """The topmost scalable owner of the pod that the labels name, or why there is none."""
        return self._resolver.locate(labels)

    def fit(self, ref: TargetRef, workload: Workload) -> Fit | None:
        """How many more replicas could be placed, and the resource that bounds it.

        None without the right to list nodes and all pods, without a pod template in the object, and for
        templates that ask for no extended resource or are none: nobody checks those of custom resources.
        """
        details = self._workloads.details(ref, workload)
        if details.template is None:
            return None
        among = self._inventory.rooms()
        if among is None:
            return None
        placed = sum(pod.counts and bool(pod.node) for pod in self._states(ref, details) or ())
        waiting = max(0, workload.replicas - placed)
        try:
            return fit(details.template, among, waiting)
        except _ODD_TEMPLATE:
            return None

    def tell(self, ref: TargetRef, uid: str, reason: str, message: str, kind: str = "Normal") -> None:
        """Record an Event on the target: best effort, in the background. `kind` is Normal or Warning.

        Without a uid the object is asked for its own.
        """
        self._recorder.record(ref, uid, reason, message, kind)

    def access(self, rights: Iterable[Right]) -> list[Access]:
        """Whether this service has each right, as the server says."""
        return review(self.connection, rights)

    def check(self) -> str:
        """ "" when the API server answers, else one sentence. Asked at most every 5 s."""
        with self._check_lock:
            now = time.monotonic()
            if self._checked is None or now - self._checked[1] >= _CHECK_SECONDS:
                self._checked = (self._ask_version(), now)
            return self._checked[0]

    def close(self) -> None:
        """Write the Events that wait, end the watches and drop the connections."""
        if self._mirrors:
            self._mirrors.stop()
        self._recorder.close()
        self.connection.close()

    def _states(self, ref: TargetRef, details: Details) -> Iterable[PodState] | None:
        """The target's pods, from the mirror while that is current; None without a selector."""
        if not details.selector:
            return None
        mirrored = self._mirrors.pods(ref, details.selector) if self._mirrors else None
        if mirrored is not None:
            return mirrored
        return listed(self.connection, ref.namespace, details.selector, f"list the pods of {ref}")

    def _ask_version(self) -> str:
        try:
            self.connection.get("/version", msgspec.Raw, "reach the API server", deadline=3.0)
        except ResponderError as error:
            return str(error)
        return ""
