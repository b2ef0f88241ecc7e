"""From deliveries to records: which target each alert is for, and folding a batch of them in."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from responder import alerts
from responder.errors import Conflict
from responder.matchers import within
from responder.model import Commit, Delivery, Notification, Record, Span, TargetRef
from responder.policy import Rejection, Settings, acts_on_node, ours, policy_of, stands_alone, target_of

DELIVERIES = 500
"""At most so many are taken at once, so that what they lead to begins soon."""
RECORDS = 200
"""At most so many records in one commit: a larger one would meet a change by somebody else too often."""
_TRIES = 100

log = logging.getLogger(__name__)

Fold = Callable[[Record], Record]


class Inboxes(Protocol):
    """The store, as far as deliveries are folded into it."""

    def inbox(self, limit: int) -> list[tuple[str, Delivery]]: ...

    def record(self, key: str) -> tuple[Record, int] | None: ...

    def standing(self) -> tuple[Span, ...]: ...

    def commit(self, commit: Commit) -> object: ...


class Lookup(Protocol):
    """Finds the target of an alert that names only a pod."""

    def find(self, labels: Mapping[str, str]) -> TargetRef | Rejection | None:
        """None while it is being looked up; the store's bell is rung when it is known."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a batch came to. `changed` targets want a look; `more` may be waiting."""

    changed: frozenset[str] = frozenset()
    standing_changed: bool = False
    truncated: bool = False
    more: bool = False
    receivers: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Batch:
    by_target: dict[str, tuple[TargetRef, list[Notification], Delivery]] = field(default_factory=dict)
    alone: list[Notification] = field(default_factory=list)
    drained: list[str] = field(default_factory=list)


class Inbox:
    """Folds deliveries in, in the order in which they came. For one thread."""

    def __init__(self, store: Inboxes, lookup: Lookup | None = None) -> None:
        self._store = store
        self._lookup = lookup
        self._parked: dict[str, list[Notification]] = {}
        """Alerts that wait to be looked up, by delivery; what else it brought is folded in already."""

    def drain(self, settings: Settings, now: datetime) -> Drained:
        """Fold in the oldest deliveries. Raises StoreUnavailable, with some of them folded and none lost."""
        taken = self._store.inbox(DELIVERIES + len(self._parked))
        if not taken:
            return Drained()
        batch, waiting = _Batch(), set[str]()
        parked: dict[str, list[Notification]] = {}
        new = 0
        for identity, delivery in taken:
            first = identity not in self._parked
            notifications = list(delivery.notifications) if first else self._parked[identity]
            new += first
            left = [
                notification
                for notification in notifications
                if not self._place(batch, settings, delivery, notification, waiting, first)
            ]
            if left:
                parked[identity] = left
            else:
                batch.drained.append(identity)
        folded = self._fold(batch, settings, now)
        # Not before: of a delivery whose other alerts could not be kept, all is placed again.
        self._parked = parked
        return replace(
            folded,
            truncated=any(delivery.truncated for _, delivery in taken),
            more=new >= DELIVERIES,
            receivers=frozenset(delivery.receiver for _, delivery in taken if delivery.receiver),
        )

    def _place(
        self,
        batch: _Batch,
        settings: Settings,
        delivery: Delivery,
        notification: Notification,
        waiting: set[str],
        first: bool,
    ) -> bool:
        """Put an alert with its target. False while that is being looked up; later ones of it wait behind."""
        labels = notification.labels
        try:
            if first and ours(settings, labels) and stands_alone(settings, labels):
                batch.alone.append(notification)
            if notification.fingerprint in waiting:
                return False
            target = self._target(settings, notification)
            if target is None:
                waiting.add(notification.fingerprint)
                return False
            if isinstance(target, TargetRef) and within(target.namespace, delivery.namespaces):
                _, notifications, _ = batch.by_target.setdefault(target.key, (target, [], delivery))
                notifications.append(notification)
        except Exception:
            # One alert that trips this code must not keep the others waiting, for it would for ever.
            log.exception("cannot place alert %s: it is left out", notification.fingerprint)
        return True

    def _target(self, settings: Settings, notification: Notification) -> TargetRef | Rejection | None:
        labels = notification.labels
        if not ours(settings, labels):
            return Rejection("another cluster's")
        policy = policy_of(settings.policies, labels)
        if policy is None:
            return Rejection("no policy claims it")
        target = target_of(policy, labels, notification.annotations)
        if target is not None:
            return target
        if acts_on_node(settings, labels):
            return Rejection("it is about its node")
        return self._lookup.find(labels) if self._lookup else Rejection("its labels name no target")

    def _fold(self, batch: _Batch, settings: Settings, now: datetime) -> Drained:
        """Records first and the drained deliveries last: what is folded twice counts once."""
        changed: set[str] = set()
        keys = list(batch.by_target)
        last = keys[-RECORDS:] if keys else []
        for start in range(0, len(keys) - len(last), RECORDS):
            chunk = keys[start : min(start + RECORDS, len(keys) - len(last))]
            changed |= self._fold_targets(batch, chunk, settings, now, Commit())
        standing, gone = self._folded_alone(batch.alone, settings, now)
        rest = Commit(standing=standing, standing_gone=gone, drained=tuple(batch.drained))
        changed |= self._fold_targets(batch, last, settings, now, rest)
        return Drained(frozenset(changed), bool(standing or gone))

    def _fold_targets(
        self, batch: _Batch, keys: Sequence[str], settings: Settings, now: datetime, rest: Commit
    ) -> set[str]:
        """One commit for all; when somebody changes one of them meanwhile, one for each."""
        folds = {key: self._fold_of(batch, key, settings, now) for key in keys}
        try:
            return self._commit(folds, rest, settings, now)
        except Conflict:
            changed: set[str] = set()
            for key, fold in folds.items():
                changed |= self._commit_one(key, fold, settings, now)
            self._store.commit(rest)
            return changed

    def _commit_one(
        self, key: str, fold: tuple[TargetRef, Fold], settings: Settings, now: datetime
    ) -> set[str]:
        for _ in range(_TRIES):
            try:
                return self._commit({key: fold}, Commit(), settings, now)
            except Conflict:
                continue
        raise Conflict(f"{key} is being changed all the time")

    def _commit(
        self,
        folds: Mapping[str, tuple[TargetRef, Fold]],
        rest: Commit,
        settings: Settings,
        now: datetime,
    ) -> set[str]:
        records, changed = [], set()
        for key, (target, fold) in folds.items():
            record, version = self._store.record(key) or (Record(target), 0)
            after = fold(record)
            if record.unseen or wants_look(record, after, settings, now):
                changed.add(key)
                after = replace(after, unseen=True)
            if after != record:
                records.append((after, version))
        if records or rest != Commit():
            self._store.commit(replace(rest, records=tuple(records)))
        return changed

    def _fold_of(self, batch: _Batch, key: str, settings: Settings, now: datetime) -> tuple[TargetRef, Fold]:
        target, notifications, delivery = batch.by_target[key]

        def fold(record: Record) -> Record:
            if not record.alerts:
                record = replace(record, namespaces=delivery.namespaces)
            try:
                return alerts.fold_all(record, notifications, settings, now)
            except Exception:
                log.exception("cannot fold the alerts of %s at once: each for itself", key)
            for notification in notifications:
                try:
                    record = alerts.fold(record, notification, settings, now)
                except Exception:
                    log.exception("cannot fold alert %s: it is left out", notification.fingerprint)
            return record

        return target, fold

    def _folded_alone(
        self, notifications: Iterable[Notification], settings: Settings, now: datetime
    ) -> tuple[tuple[Span, ...], tuple[str, ...]]:
        notifications = list(notifications)
        if not notifications:
            return (), ()
        before = {span.fingerprint: span for span in self._store.standing()}
        after: dict[str, Span | None] = dict(before)
        for notification in notifications:
            try:
                known = after.get(notification.fingerprint)
                after[notification.fingerprint] = alerts.fold_standing(known, notification, settings, now)
            except Exception:
                log.exception("cannot fold alert %s: it is left out", notification.fingerprint)
        kept = tuple(span for key, span in after.items() if span is not None and span != before.get(key))
        return kept, tuple(key for key in before if after.get(key) is None)


def wants_look(before: Record, after: Record, settings: Settings, now: datetime) -> bool:
    """False for mere repeats: a storm of them is no reason to ask the API server anything."""
    if before.episodes != after.episodes or before.alerts.keys() != after.alerts.keys():
        return True
    timeout = settings.timing.alert_timeout
    for key, span in after.alerts.items():
        known = before.alerts[key]
        if now - known.last_seen_at >= timeout or replace(known, last_seen_at=span.last_seen_at) != span:
            return True
    return False
