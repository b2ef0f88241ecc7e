"""The store in ConfigMaps of the service's own namespace: for any number of replicas, with no disk of their own.

The API server is the distributed engine. Deliveries are ConfigMaps that the actor folds in and deletes; records are
in 256 shards with compare-and-set on resourceVersion; overrides and silences are a ConfigMap each; a Lease elects
the actor, and a watch wakes it. A commit is whole within a shard. Over several shards it is not, and its order makes
a stop in between harmless: records with their history first, then standing alerts, the inbox last, and folding a
delivery twice changes nothing.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from responder.errors import ConfigError, Conflict, StoreUnavailable
from responder.kube.connection import Connection, OnCall
from responder.kube.credentials import own_namespace
from responder.model import (
    AuditEntry,
    Commit,
    Delivery,
    Direction,
    Outcome,
    Override,
    Record,
    Silence,
    Span,
)
from responder.store import (
    ALL_HISTORY,
    NOT_HELD,
    HistoryFilter,
    Status,
    StoredEntry,
    Summary,
    pending_of,
    unknown_alerts,
)
from responder.store.kubernetes.bell import Bell
from responder.store.kubernetes.configmaps import PREFIX, ConfigMaps
from responder.store.kubernetes.inbox import Inbox
from responder.store.kubernetes.kept import unpack
from responder.store.kubernetes.lease import Leases
from responder.store.kubernetes.people import (
    Audit,
    Ending,
    Standing,
    Statuses,
)
from responder.store.kubernetes.shards import Shards

__all__ = ["KubernetesStore"]

_TIMEOUT = 3.0
"""Seconds for one request: several tries must fit before Alertmanager gives up."""
_READY_SECONDS = 5.0
_SCHEMA = "1"


class KubernetesStore:
    """See the module. To be opened after a fork, never before one.

    Raises ConfigError if the store is another cluster's or there is no namespace, and StoreUnavailable if the API
    server cannot be reached, unless `start_anyway`: then it is tried again when used. `passing` is the clock that
    leases go by: one that nobody sets.
    """

    def __init__(
        self,
        namespace: str = "",
        kubeconfig: str | None = None,
        cluster: str = "",
        *,
        history_rows: int = 50,
        history_age: timedelta = timedelta(days=30),
        clock: Callable[[], float] = time.time,
        passing: Callable[[datetime], float] = lambda now: time.monotonic(),  # noqa: ARG005
        start_anyway: bool = False,
        on_call: OnCall | None = None,
    ) -> None:
        namespace = namespace or own_namespace()
        if not namespace:
            raise ConfigError(
                "--store: this is no pod with a namespace of its own: write kubernetes:<namespace>"
            )
        self._cluster = cluster
        self._clock = clock
        self._connection = Connection(
            kubeconfig, timeout=_TIMEOUT, deadline=8.0, qps=500.0, burst=1000, on_call=on_call
        )
        self.maps = ConfigMaps(self._connection, namespace)
        self._inbox = Inbox(self.maps)
        self._shards = Shards(self.maps, clock, rows=history_rows, age=history_age)
        self._overrides = Ending(self.maps, "overrides", Override, attrgetter("end"), clock)
        self._silences = Ending(self.maps, "silences", Silence, attrgetter("ends_at"), clock)
        self._audit = Audit(self.maps, clock)
        self._standing = Standing(self.maps)
        self._statuses = Statuses(self.maps, clock)
        self._leases = Leases(self._connection, self.maps, passing)
        self._bell = Bell(self._connection, self.maps)
        self._acting = False
        self._claimed = False
        self._ready_lock = threading.Lock()
        self._ready_until = 0.0
        self._not_ready = ""
        try:
            self._claim()
        except StoreUnavailable:
            if not start_anyway:
                self.close()
                raise
        except BaseException:
            self.close()
            raise

    # Deliveries

    def append(self, delivery: Delivery) -> None:
        """Keep a delivery; durable on return. Its ConfigMap wakes the actor. Raises StoreUnavailable."""
        self._claim()
        self._inbox.append(delivery)

    def inbox(self, limit: int) -> list[tuple[str, Delivery]]:
        """The oldest deliveries and their ids: at most `limit`, and fewer when they are large."""
        found = self._inbox.oldest(limit)
        if self._inbox.more:
            self._bell.ring()
        return found

    def wait(self, timeout: float) -> bool:
        """Wait, at most so many seconds, until something is to be looked at. True if so.

        Other processes wake the one that took the lease last; `ring` of this process wakes it always.
        """
        return self._bell.wait(timeout)

    def ring(self) -> None:
        """Wake the actor, whichever process it is in."""
        self._bell.ring()
        if not self._acting and not self.maps.closed:
            name, moment = f"{PREFIX}-bell", {"rung": f"{self._clock():.6f}-{time.monotonic_ns()}"}
            try:
                if self.maps.patch(name, data=moment) is None:
                    self.maps.create(name, "bell", data=moment)
            except (Conflict, StoreUnavailable):
                return  # the actor looks by itself every few seconds

    # Records

    def record(self, key: str) -> tuple[Record, int] | None:
        """A target's record and its version."""
        return self._shards.record(key)

    def records(self) -> Iterator[tuple[Record, int]]:
        """All records in the order of their keys."""
        return self._shards.records()

    def intents(self) -> list[Record]:
        """Records with an intent that is pending or outstanding."""
        found = [unpack(slot.blob).record for _, slot in self._shards.slots() if slot.glance().pending]
        return [record for record in found if record is not None]

    def unseen(self) -> list[str]:
        """The keys of records that have yet to be looked at: new ones, and those with news."""
        new = [slot for _, slot in self._shards.slots() if slot.glance().there and not slot.glance().reason]
        found = [unpack(slot.blob).record for slot in new]
        return sorted(record.target.key for record in found if record is not None)

    def commit(self, commit: Commit) -> None:
        """Make the changes, whole within a shard; the version of a record that was changed is one more.

        Raises Conflict if a version is not the one in the store: nothing is written then, unless somebody wrote
        while this was being written.
        """
        self._claim()
        self._shards.commit(commit)
        if commit.standing or commit.standing_gone:
            self._standing.change(commit.standing, commit.standing_gone)
        if commit.drained:
            self._inbox.drain(commit.drained)

    def standing(self) -> tuple[Span, ...]:
        """Alerts that stand for themselves: holds and heartbeats."""
        return self._standing.all()

    def summary(self, now: datetime, alert_timeout: timedelta) -> Summary:
        """What the metrics tell of all records. `inbox` counts ConfigMaps: under load one holds several deliveries."""
        late = now - alert_timeout
        kept = self._shards.slots()
        glances = [(slot, slot.glance()) for _, slot in kept]
        unknown, pending = 0, []
        for slot, seen in glances:
            heard = seen.heard_at is not None and seen.heard_at < late.timestamp()
            if not (heard or seen.pending):
                continue
            record = unpack(slot.blob).record
            if record is None:
                continue
            unknown += unknown_alerts(record, late)
            pending += pending_of(record)
        held = tuple(
            (place.replace("_", "/"), slot.glance().reason)
            for place, slot in kept
            if slot.glance().reason not in {"", *NOT_HELD}
        )
        there = sum(seen.there for _, seen in glances)
        return Summary(self._inbox.count(), there, tuple(pending), held, unknown)

    # People

    def overrides(self, include_ended: bool = False) -> tuple[Override, ...]:
        """Overrides in force or to come, by id; with those that ended, if asked."""
        return self._overrides.all(include_ended)

    def put_override(self, override: Override, audit: AuditEntry | None = None) -> None:
        """Keep an override, in place of the one with its id, with its line of the audit, and wake the actor."""
        self._claim()
        self._overrides.put(override.id, override)
        if audit is not None:
            self._audit.add(audit)

    def silences(self, include_expired: bool = False) -> tuple[Silence, ...]:
        """Silences in force or to come, by id; with those that expired, if asked."""
        return self._silences.all(include_expired)

    def put_silence(self, silence: Silence, audit: AuditEntry | None = None) -> None:
        """Keep a silence, in place of the one with its id, with its line of the audit, and wake the actor."""
        self._claim()
        self._silences.put(silence.id, silence)
        if audit is not None:
            self._audit.add(audit)

    def audit(self, entry: AuditEntry) -> None:
        """Add a line to the audit: to the log, and to the newest that are kept."""
        self._audit.add(entry)

    def audits(self, limit: int) -> list[AuditEntry]:
        """The newest lines of the audit, newest first."""
        return self._audit.newest(limit)

    # What processes tell one another

    def put_status(self, name: str, body: Mapping[str, str]) -> None:
        """Leave a document in place of the one of that name. Wakes nobody."""
        self._claim()
        self._statuses.put(name, body)

    def statuses(self) -> dict[str, Status]:
        """What was left last, by name."""
        return self._statuses.all()

    # History

    def history(self, wanted: HistoryFilter = ALL_HISTORY, *, limit: int = 100) -> list[StoredEntry]:
        """Entries that are wanted, newest first."""
        lines = self._shards.lines(wanted.id, wanted.target)
        # To read what a line says takes time, and its number is known without.
        entries = (StoredEntry(line.n, line.entry()) for line in lines if wanted.id in (None, line.n))
        return list(islice(filter(wanted.fits, entries), max(limit, 0)))

    def actions_since(self, direction: Direction, since: datetime) -> list[datetime]:
        """When changes of ours took effect, or may have, oldest first."""
        entries = [line.entry() for line in self._shards.lines()]
        return sorted(
            entry.at
            for entry in entries
            if entry.at >= since
            and entry.outcome in (Outcome.APPLIED, Outcome.UNCERTAIN)
            and entry.direction is direction
        )

    # The actor's lease

    def lease(self, name: str, holder: str, ttl: timedelta, now: datetime) -> bool:
        """Acquire or renew; True if it is the holder's now. Who holds the lease hears the bell.

        Another's lease is over when it was not seen to be renewed for its time, as time passes in this process.
        """
        self._claim()
        held = self._leases.take(name, holder, ttl, now)
        if held:
            self._bell.listen()
        else:
            self._bell.deafen()
        self._act(held)
        return held

    def release(self, name: str, holder: str) -> None:
        """Give a lease back, if it is the holder's."""
        self._act(False)
        self._bell.deafen()
        self._leases.release(name, holder)

    # The service

    def ready(self) -> str:
        """Why deliveries cannot be taken, as one sentence; empty when they can. Tried by a write that is not kept."""
        with self._ready_lock:
            if time.monotonic() >= self._ready_until:
                try:
                    self._claim()
                    self.maps.create(f"{PREFIX}-ready", "ready", data={"tried": "1"}, dry_run=True)
                    self._not_ready = ""
                except StoreUnavailable as error:
                    self._not_ready = str(error)
                self._ready_until = time.monotonic() + (1.0 if self._not_ready else _READY_SECONDS)
            return self._not_ready

    def close(self) -> None:
        """Finish what was begun and close; what is asked after that is StoreUnavailable."""
        self._inbox.close()
        self._bell.close()
        self.maps.close()
        self._connection.close()

    def _act(self, acting: bool) -> None:
        self._acting = acting
        self._shards.trust(acting)
        self._standing.trust(acting)

    def _claim(self) -> None:
        """See once that the store is this cluster's, and make it so if it is nobody's."""
        if self._claimed:
            return
        name = f"{PREFIX}-store"
        found = self.maps.get(name)
        data = (found.data if found else None) or {}
        if data.get("schema", _SCHEMA) != _SCHEMA:
            raise ConfigError(
                f"--store: ConfigMap {self.maps.namespace}/{name} was written by a newer release: run that one"
            )
        owner = data.get("cluster", "")
        if owner and self._cluster and owner != self._cluster:
            raise ConfigError(
                f"--store: ConfigMap {self.maps.namespace}/{name} belongs to cluster {owner!r} and the policy file "
                f"says {self._cluster!r}: name another namespace with --store, or mend `cluster`"
            )
        if found is None or (self._cluster and not owner):
            mine = {"schema": _SCHEMA} | ({"cluster": self._cluster} if self._cluster else {})
            try:
                if found is None:
                    self.maps.create(name, "store", data=mine)
                else:
                    self.maps.patch(name, data=mine, version=found.metadata.resource_version)
            except Conflict:
                self._claim()
                return
        self._claimed = True
