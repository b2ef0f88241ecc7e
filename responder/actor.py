"""The elected actor: what is due when, a bounded pool of threads, and what wakes whom.

One process of all acts at a time; see `lease`. It drains the inbox, folds alerts into their targets' records and
looks at each target when its news or its own decision says so, never by polling all of them.
"""

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from responder import alerts
from responder.acting.budget import BudgetBook
from responder.acting.calm import Calm
from responder.acting.cordons import Cordons, Nodes
from responder.acting.healing import Alertmanager, Healer
from responder.acting.inbox import Inbox, Lookup
from responder.acting.lease import TTL, Lease
from responder.acting.pool import Pool
from responder.acting.schedule import Schedule
from responder.deciding.claims import silenced_by
from responder.errors import Conflict, StoreUnavailable
from responder.matchers import parse
from responder.model import (
    Commit,
    Delivery,
    Direction,
    Override,
    OverrideKind,
    Reason,
    Record,
    Silence,
    Span,
    TargetRef,
)
from responder.nodes import keeps
from responder.observe import Cluster, Values
from responder.policy import Settings
from responder.reconcile import Look, Observer, Reconciler

THREADS = 16
GRACE_SECONDS = 15.0
"""How long a stop waits for looks that run; what is cut off is settled by the next actor."""
_TICK_SECONDS = 0.5
"""The main loop wakes so often to see whether it should stop; it looks at nothing but its own memory then."""
_REFRESH_SECONDS = 3.0
"""The store's bell says when there is news; this is for the case that it was not heard."""
_OVERLOOKED_SECONDS = 15.0
"""So often, targets are looked for whose news was kept by a process that has lost the lease before its look."""
_SPREAD = timedelta(seconds=0.04)
"""Between two looks that a new actor takes for caution only, so that news never waits behind thousands of them."""
_SWEEP_SECONDS = 600.0
"""So often, what is known of alerts that are long over is forgotten."""
_GATHERED = timedelta(seconds=1)
"""Of many pods that become ready one after the other, a look takes in those of so long."""
_NEWS_AT_ONCE, _NEWS_EVERY = 5, timedelta(seconds=10)
"""So many looks at a target that somebody else keeps changing; each may write to history and to the store."""
_COUNTS_AT_ONCE, _COUNTS_EVERY = 30, timedelta(seconds=10)
"""The same where its pods come and go, of those that wait for none."""
_WAITING = frozenset({Reason.WAITING_FOR_READY, Reason.UNSCHEDULABLE, Reason.NO_CAPACITY})
_AFTER_OUTAGE = timedelta(seconds=5)
_AFTER_FAULT = timedelta(minutes=1)
_CLOCK_SET = 5.0
"""Seconds by which wall and monotonic clock part when somebody has set the former."""
_REMATCH_TRIES = 20
_AT_REST = frozenset({Reason.NOTHING_FIRING, Reason.ALREADY_THERE, Reason.UNCLAIMED, None})
"""Looks that no pause, freeze or silence would have changed."""
_TOLD_OTHERWISE = frozenset(
    {
        Reason.UNCLAIMED,
        Reason.TARGET_GONE,
        Reason.NOT_SCALABLE,
        Reason.NOT_ALLOWED,
        Reason.FORBIDDEN,
        Reason.INVALID,
        Reason.NAMESPACE_TERMINATING,
        Reason.API_UNAVAILABLE,
        Reason.WRITE_CONFLICT,
    }
)
"""Reasons that bring their own next look: failures have a backoff, and what nothing claims waits for a reload."""
_UNTOLD = timedelta(minutes=1)
"""For so long at most, what tells nobody goes unseen: annotations on namespaces, and targets that no watch may show."""
_UNTOLD_AT_REST = timedelta(minutes=5)
_UNTOLD_PER_SECOND = 20
"""The price of noticing what no watch tells: at most so many looks a second, over all targets."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

log = logging.getLogger(__name__)


class Store(Protocol):
    """The store, as far as the actor uses it."""

    def inbox(self, limit: int) -> list[tuple[str, Delivery]]: ...
    def append(self, delivery: Delivery) -> None: ...
    def wait(self, timeout: float) -> bool: ...
    def ring(self) -> None: ...
    def record(self, key: str) -> tuple[Record, int] | None: ...
    def records(self) -> Iterator[tuple[Record, int]]: ...
    def unseen(self) -> list[str]: ...
    def commit(self, commit: Commit) -> object: ...
    def standing(self) -> tuple[Span, ...]: ...
    def overrides(self) -> tuple[Override, ...]: ...
    def silences(self) -> tuple[Silence, ...]: ...
    def lease(self, name: str, holder: str, ttl: timedelta, now: datetime) -> bool: ...
    def release(self, name: str, holder: str) -> None: ...
    def actions_since(self, direction: Direction, since: datetime) -> list[datetime]: ...


class SettingsSource(Protocol):
    """The policy file in force. `generation` grows with each reload, changed or not."""

    @property
    def generation(self) -> int: ...

    def __call__(self) -> Settings: ...


class Actor:
    """Runs in one process of the service; `run` returns when told to stop. `holder` names this process."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        values: Values,
        alertmanagers: Sequence[Alertmanager],
        settings: SettingsSource,
        *,
        holder: str,
        observer: Observer,
        started_at: datetime | None = None,
        lookup: Lookup | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        threads: int = THREADS,
        lease_ttl: timedelta = TTL,
        nodes: Nodes | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._started_at = started_at or clock()
        self._monotonic = monotonic
        self._lease = Lease(store, holder, clock, lease_ttl, monotonic)
        self._inbox = Inbox(store, lookup)
        self._schedule = Schedule(clock)
        self._pool = Pool(self._schedule, self._look, threads)
        self._budget = BudgetBook()
        self._healer = Healer(store, alertmanagers, settings, clock, self._wake, self._lease.held)
        self._cordons = (
            Cordons(store, nodes, settings, clock, self._lease.held, observer) if nodes is not None else None
        )
        self._reconciler = Reconciler(
            store,
            store,
            cluster,
            values,
            settings,
            clock=clock,
            limits=self._budget,
            observer=observer,
            started_at=self._started_at,
            fence=self._lease.held,
        )
        self._leading = False
        self._generation = -1
        self._news = Calm(_NEWS_AT_ONCE, _NEWS_EVERY)
        self._counts = Calm(_COUNTS_AT_ONCE, _COUNTS_EVERY)
        self._reasons: dict[str, Reason | None] = {}
        self._anew: set[str] = set()
        self._overrides: frozenset[Override] = frozenset()
        self._silences: frozenset[Silence] = frozenset()
        self._safe_mode = ""
        self._refresh_at = 0.0
        self._sweep_at = monotonic() + _SWEEP_SECONDS
        self._overlooked_at = 0.0
        self._offset: float | None = None
        self._trouble = ""
        """What the store said at the last turn: it may be down for hours, and says so once."""

    @property
    def leads(self) -> bool:
        """Whether this process is the one that acts."""
        return self._lease.held()

    def changed(self, target: TargetRef) -> None:
        """Somebody has changed a target, or what scales it: look at it, if any alert was ever about it."""
        key = target.key
        if self._leading and key in self._reasons:
            self._anew.add(key)
            self._schedule.wake(key, self._news.when(key, self._clock()))

    def pods_changed(self, target: TargetRef) -> None:
        """Its pods have become ready or the like: count them, and take the step that waited for it."""
        key = target.key
        if self._leading and key in self._reasons:
            now = self._clock()
            at = now if self._reasons.get(key) in _WAITING else self._counts.when(key, now)
            self._schedule.wake(key, max(at, now + _GATHERED))

    def cordon_lifted(self) -> None:
        """A person has lifted a cordon of ours: note it before they make one of their own."""
        if self._cordons is not None:
            self._cordons.soon()

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
        """Act while elected, until `stop` is set; `beat` is called every second or so."""
        self._lease.try_hold()
        self._lease.start()
        self._healer.start()
        if self._cordons is not None:
            self._cordons.start()
        self._pool.widen()
        rung = False
        try:
            while not stop.is_set():
                beat()
                self._turn(rung, beat)
                self._pool.widen()
                rung = self._store.wait(_TICK_SECONDS)
        finally:
            self._healer.stop()
            if self._cordons is not None:
                self._cordons.stop()
            self._schedule.close()
            if not self._schedule.idle(GRACE_SECONDS):
                log.warning("%d looks are cut off; the next actor settles them", self._schedule.running())
            self._lease.stop()

    def _turn(self, rung: bool, beat: Callable[[], None]) -> None:
        """One round of the main loop: lead or step down, and hand out what is due."""
        if not self._lease.held():
            if self._leading:
                log.warning("this process has lost the actor's lease and stops acting")
                self._schedule.forget()
            self._leading = False
            return
        try:
            if not self._leading:
                self._lead(beat)
                rung = True
            if self._clock_was_set():
                log.warning("the clock was set: looking at all targets again")
                self._load(beat, at_once=True)
            settings = self._settings()
            if self._settings.generation != self._generation:
                self._reload(settings, beat)
            if rung or self._monotonic() >= self._refresh_at:
                self._refresh_at = self._monotonic() + _REFRESH_SECONDS
                self._hear_people()
                self._drain(settings, beat)
                self._watch_heartbeat(settings)
                self._trouble = ""
            if self._healer.heal_standing():
                self._standing_changed()
            self._now_and_then(settings, beat)
            for key in self._budget.next_served(self._clock()):
                self._schedule.wake(key, self._clock())
        except StoreUnavailable as error:
            if str(error) != self._trouble:
                log.error("the store cannot be used: %s", error)
            self._trouble = str(error)
        except Conflict as error:
            log.warning("%s", error)

    # Below: taking up the work

    def _lead(self, beat: Callable[[], None]) -> None:
        log.info("this process is the actor now")
        settings = self._settings()
        self._budget.limit(settings.budgets)
        now = self._clock()
        for direction, budget in settings.budgets.items():
            self._budget.restore(direction, self._store.actions_since(direction, now - budget.period))
        self._generation = -1
        self._overrides, self._silences = frozenset(), frozenset()
        self._clock_was_set()
        self._load(beat)
        self._leading = True

    def _load(self, beat: Callable[[], None], at_once: bool = False) -> None:
        """Take up all records: open intents first, news next, the others when they are due, or `at_once` if ever.

        While nobody acted, an override, a silence or a hold may have ended, or the policy file have changed: those
        that something keeps from acting are looked at soon, one after the other.
        """
        now = soon = self._clock()
        self._schedule.forget()
        self._news.clear()
        self._counts.clear()
        for record, _ in self._store.records():
            self._take_up(record, now, at_once)
            if (
                record.verdict is not None
                and record.verdict.reason not in _AT_REST
                and record.failure is None
            ):
                soon += _SPREAD
                self._schedule.wake(record.target.key, soon)
            beat()

    def _take_up(self, record: Record, now: datetime, at_once: bool) -> None:
        key, verdict = record.target.key, record.verdict
        self._reasons[key] = verdict.reason if verdict else None
        if record.open_intents:
            self._schedule.wake(key, _FIRST)
        elif verdict is None or record.unseen:
            self._schedule.wake(key, now)
        elif record.failure is not None:
            self._schedule.wake(key, now if at_once else record.failure.retry_at)
        elif at_once:
            self._schedule.wake(key, now)
        elif verdict.reason not in _TOLD_OTHERWISE:
            latest = now + _UNTOLD_AT_REST * (zlib.crc32(key.encode()) % 100 + 1) / 100
            self._schedule.wake(key, min(verdict.look_again_at or latest, latest))
        elif verdict.look_again_at is not None:
            self._schedule.wake(key, verdict.look_again_at)

    def _reload(self, settings: Settings, beat: Callable[[], None]) -> None:
        """Match all known alerts anew, and look at every target; at first, only at those that it changes."""
        first, generation = self._generation < 0, self._settings.generation
        self._budget.limit(settings.budgets)
        for record, version in self._store.records():
            beat()
            if self._rematch(record, version, settings) or not first:
                self._wake(record.target.key, anew=True)
        # Not before: what a store that is down cuts short is done again.
        self._generation = generation

    def _rematch(self, record: Record, version: int, settings: Settings) -> bool:
        for _ in range(_REMATCH_TRIES):
            matched = alerts.rematch(record, settings)
            if matched == record:
                return False
            try:
                self._store.commit(Commit(records=((replace(matched, unseen=True), version),)))
            except Conflict:
                found = self._store.record(record.target.key)
                if found is None:
                    return False
                record, version = found
                continue
            return True
        return True

    # Below: news

    def _drain(self, settings: Settings, beat: Callable[[], None]) -> None:
        more = True
        while more and self._lease.held():
            beat()
            drained = self._inbox.drain(settings, self._clock())
            for key in drained.changed:
                self._wake(key)
            if drained.standing_changed:
                self._standing_changed()
            self._healer.heard(drained.receivers)
            if drained.truncated:
                self._healer.soon()
            more = drained.more

    def _standing_changed(self) -> None:
        self._wake_those(Reason.HELD)
        if self._cordons is not None:
            self._cordons.soon()

    def _hear_people(self) -> None:
        """Wake those that a new, changed or ended override or silence is for; decisions wait for their ends."""
        overrides, silences = frozenset(self._store.overrides()), frozenset(self._store.silences())
        for override in overrides ^ self._overrides:
            for key in self._overridden(override):
                self._wake(key, anew=True)
        for silence in silences ^ self._silences:
            for key in self._silenced(silence):
                self._wake(key, anew=True)
        self._overrides, self._silences = overrides, silences

    def _overridden(self, override: Override) -> list[str]:
        if override.target:
            return [override.target]
        orders = override.kind in (OverrideKind.PIN, OverrideKind.BOUNDS)
        return [
            key
            for key, reason in list(self._reasons.items())
            if (orders or reason not in _AT_REST) and _may_bind(override, key)
        ]

    def _silenced(self, silence: Silence) -> list[str]:
        return [
            record.target.key
            for record, _ in self._store.records()
            if any(silenced_by(silence, span.labels) for span in record.alerts.values())
        ]

    def _watch_heartbeat(self, settings: Settings) -> None:
        if settings.heartbeat is None:
            return
        now = self._clock()
        sentence = alerts.safe_mode(settings, self._store.standing(), now, self._started_at)
        if sentence != self._safe_mode:
            if sentence:
                log.warning("safe mode: %s", sentence)
            elif self._safe_mode:
                log.info("safe mode is over: the heartbeat arrives")
                self._wake_those(Reason.SAFE_MODE)
            self._safe_mode = sentence

    def _now_and_then(self, settings: Settings, beat: Callable[[], None]) -> None:
        """What nothing tells of: news that another process has left behind, and what can be forgotten."""
        if self._monotonic() >= self._overlooked_at:
            self._overlooked_at = self._monotonic() + _OVERLOOKED_SECONDS
            for key in self._store.unseen():
                self._wake(key)
        if self._monotonic() >= self._sweep_at:
            self._sweep_at = self._monotonic() + _SWEEP_SECONDS
            self._sweep(settings, beat)

    def _sweep(self, settings: Settings, beat: Callable[[], None]) -> None:
        now = self._clock()
        for record, _ in self._store.records():
            beat()
            if alerts.prune(record, settings, now) != record:
                self._wake(record.target.key)
        gone = tuple(
            span.fingerprint
            for span in self._store.standing()
            if alerts.prunes_span(span, settings.timing, now) and not keeps(settings, span, now)
        )
        if gone:
            self._store.commit(Commit(standing_gone=gone))

    def _clock_was_set(self) -> bool:
        offset = self._clock().timestamp() - self._monotonic()
        before, self._offset = self._offset, offset
        return before is not None and abs(offset - before) > _CLOCK_SET

    def _wake(self, key: str, anew: bool = False) -> None:
        self._reasons.setdefault(key, None)
        if anew:
            self._anew.add(key)
        self._schedule.wake(key, self._clock())

    def _wake_those(self, reason: Reason) -> None:
        for key in [key for key, known in list(self._reasons.items()) if known is reason]:
            self._wake(key)

    # Below: the pool

    def _look(self, key: str) -> datetime | None:
        if not self._lease.held():
            return None
        now = self._clock()
        anew = key in self._anew
        self._anew.discard(key)
        try:
            look = self._reconciler.reconcile(key, now, anew=anew)
        except StoreUnavailable as error:
            log.error("cannot look at %s: %s", key, error, extra={"target": key})
            if anew:
                self._anew.add(key)
            return now + _AFTER_OUTAGE
        except Exception:
            # A fault in one target's look must not stop the others'.
            log.exception("cannot look at %s", key, extra={"target": key})
            return now + _AFTER_FAULT
        self._remember(key, look)
        return self._no_later_than(look, now)

    def _no_later_than(self, look: Look, now: datetime) -> datetime | None:
        """When to look again, though nothing is due: see `_UNTOLD`."""
        if look.reason is None or look.reason in _TOLD_OTHERWISE:
            return look.look_again_at
        wait = _UNTOLD_AT_REST if look.reason in _AT_REST else _UNTOLD
        latest = now + max(wait, timedelta(seconds=len(self._reasons) / _UNTOLD_PER_SECOND))
        return latest if look.look_again_at is None else min(look.look_again_at, latest)

    def _remember(self, key: str, look: Look) -> None:
        if look.reason is None:
            self._reasons.pop(key, None)
            self._news.forget(key)
            self._counts.forget(key)
        else:
            self._reasons[key] = look.reason


def _may_bind(override: Override, key: str) -> bool:
    """False if its matchers leave out the target's namespace; the rest is for the look to tell."""
    labels = {"namespace": key.partition("/")[0]}
    return all(
        matcher.matches(labels) for matcher in map(parse, override.matchers) if matcher.name == "namespace"
    )
