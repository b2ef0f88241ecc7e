"""Keeps nodes as `nodes` decides: in a thread of the process that acts, so that no target waits for it."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from responder import nodes
from responder.errors import Conflict, PermanentError, StoreUnavailable, TransientError
from responder.model import Commit, HistoryEntry, Override, Reason, Silence, Span
from responder.nodes import Cordon, Node, NodeDecision
from responder.policy import Settings

EVERY = 10.0
"""Seconds between two looks when nothing brings one: without a watch, so late a cordon is seen to be lifted."""
MOST_READ = 50
"""Nodes read one by one at a look."""

log = logging.getLogger(__name__)


class Nodes(Protocol):
    """The API server's nodes. Everything may raise TransientError or PermanentError."""

    def pool(self) -> Sequence[Node]: ...
    def cordoned(self) -> Sequence[Node]: ...
    def read(self, names: Iterable[str]) -> Mapping[str, Node]: ...
    def cordon(self, node: Node, cordon: Cordon, message: str, *, dry_run: bool = False) -> None:
        """Conflict if it is not as read any more."""

    def uncordon(self, node: Node, *, dry_run: bool = False) -> None: ...
    def disown(self, node: Node) -> None: ...


class Kept(Protocol):
    def standing(self) -> tuple[Span, ...]: ...
    def overrides(self) -> tuple[Override, ...]: ...
    def silences(self) -> tuple[Silence, ...]: ...
    def commit(self, commit: Commit) -> object: ...


class Observer(Protocol):
    def recorded(self, entry: HistoryEntry) -> None: ...


class Cordons:
    """Acts only while `fence` says that this process leads. Both acts are the same however often they are done."""

    def __init__(
        self,
        store: Kept,
        cluster: Nodes,
        settings: Callable[[], Settings],
        clock: Callable[[], datetime],
        fence: Callable[[], bool],
        observer: Observer,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._fence = fence
        self._observer = observer
        self._told: dict[str, tuple[Reason, str]] = {}
        self._unkept: list[HistoryEntry] = []
        """What was done or decided and history does not have yet."""
        self._failure = ""
        self._soon = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cordons", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._soon.set()

    def soon(self) -> None:
        """Look at once: an alert has come."""
        self._soon.set()

    def look(self) -> None:
        """Look once, and act. Raises StoreUnavailable, TransientError, PermanentError."""
        self._keep()
        settings, now = self._settings(), self._clock()
        if not nodes.acts_on_nodes(settings):
            return
        standing = self._store.standing()
        asked = dict.fromkeys(fault.node for fault in nodes.faults(settings, standing) if fault.span.firing)
        live = {node.name: node for node in self._cluster.cordoned()}
        # The longest standing first: where very many are faulty, the limits leave little to do.
        live |= self._cluster.read([name for name in asked if name not in live][:MOST_READ])
        for node in live.values():
            if node.lifted_unseen and self._fence():
                self._cluster.disown(node)
        if not live:
            return
        cluster = nodes.Cluster(self._cluster.pool() if asked else (), live)
        decisions = nodes.decide(
            settings, standing, cluster, self._store.silences(), self._store.overrides(), now
        )
        for decision in decisions:
            if not self._fence():
                return
            self._take(decision, now)
        there = {decision.node.name for decision in decisions}
        self._told = {name: told for name, told in self._told.items() if name in there}

    def _take(self, decision: NodeDecision, now: datetime) -> None:
        if decision.acts and not (decision.dry_run and self._is_told(decision)):
            try:
                if decision.cordon is not None:
                    self._cluster.cordon(
                        decision.node, decision.cordon, decision.message, dry_run=decision.dry_run
                    )
                else:
                    self._cluster.uncordon(decision.node, dry_run=decision.dry_run)
            except Conflict:
                self._soon.set()  # somebody wrote to the node: look again at what is there now
                return
        if self._is_told(decision):
            return
        self._told[decision.node.name] = (decision.reason, decision.trigger)
        entry = HistoryEntry(
            at=now,
            target=f"/node/{decision.node.name}",
            current=0,
            desired=0,
            reason=decision.reason,
            message=decision.message,
            policy=decision.policy,
            trigger=decision.trigger,
            alerts=(decision.alert,) if decision.alert else (),
            dry_run=decision.dry_run,
        )
        self._unkept.append(entry)
        self._keep()

    def _keep(self) -> None:
        """What a store that was down could not take is tried again before anything else is done."""
        while self._unkept:
            self._store.commit(Commit(history=(self._unkept[0],)))
            self._observer.recorded(self._unkept.pop(0))

    def _is_told(self, decision: NodeDecision) -> bool:
        return self._told.get(decision.node.name) == (decision.reason, decision.trigger)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._soon.clear()
            if self._fence():
                self._try()
            self._soon.wait(EVERY)

    def _try(self) -> None:
        failure = ""
        try:
            self.look()
        except (StoreUnavailable, TransientError, PermanentError, Conflict) as error:
            failure = str(error)
        except Exception:
            log.exception("cannot look at nodes")
        if failure and failure != self._failure:
            log.warning("nodes are left as they are: %s", failure)
        self._failure = failure
