"""The one sequence for one target: observe, settle, decide, act, record.

Safety rests on two compare-and-sets and on nothing else: the version of the record that a decision was made on,
and the resourceVersion that the scale is written with. An intent is stored before its write and settled, from
what is read live, before anything else is decided; see `settle`.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from responder import alerts, ledger, settle, verdicts
from responder.decide import decide
from responder.deciding.overrides import annotated
from responder.errors import Conflict, PermanentError, ResponderError, TransientError
from responder.failures import bars_writing, failed_again, waits
from responder.model import (
    Budget,
    Change,
    Commit,
    Decision,
    Direction,
    Failure,
    HistoryEntry,
    Intent,
    Observed,
    Outcome,
    Reason,
    Record,
    TargetRef,
    Workload,
)
from responder.observe import Cluster, People, Values, Will, observe, will
from responder.policy import Policy, Settings, allowed, governing
from responder.settle import Settled

_TRIES = 5
"""Looks in a row at a target that others keep changing."""
_UPDATE_TRIES = 100
_AFTER_ACTING = timedelta(seconds=60)
"""Whether a write stands is looked at once, soon after it: somebody may have reverted it."""
_AFTER_CONFLICTS = timedelta(seconds=1)


class Records(Protocol):
    """Records with compare-and-set. Raises StoreUnavailable; `commit` raises Conflict too."""

    def record(self, key: str) -> tuple[Record, int] | None: ...

    def commit(self, commit: Commit) -> object: ...


class Limits(Protocol):
    """The action budget over all targets."""

    def offer(self, key: str, now: datetime) -> Budget: ...

    def take(self, key: str, direction: Direction, now: datetime) -> bool: ...

    def give_back(self, direction: Direction, taken_at: datetime) -> None: ...

    def wait(self, key: str, direction: Direction, since: datetime) -> None: ...

    def leave(self, key: str) -> None: ...


class Observer(Protocol):
    """Who wants to know: logs and metrics. Called after what it is told has been stored."""

    def recorded(self, entry: HistoryEntry) -> None: ...

    def scaled(self, record: Record, intent: Intent, at: datetime) -> None: ...

    def failed(self, target: TargetRef, failure: Failure) -> None: ...


@dataclass(frozen=True, slots=True)
class Look:
    """What a look came to. `look_again_at` is None when nothing but news can change it."""

    look_again_at: datetime | None = None
    reason: Reason | None = None
    acted: bool = False


@dataclass(frozen=True, slots=True)
class _Turn:
    """One pass over one target: what was loaded, and when."""

    record: Record
    version: int
    settings: Settings
    now: datetime
    seen: Workload | None = None
    """The target as its watch shows it, when that will do; None to read it live."""


class Reconciler:
    """Looks at targets, one call each; calls for different targets may run at once."""

    def __init__(
        self,
        records: Records,
        people: People,
        cluster: Cluster,
        values: Values,
        settings: Callable[[], Settings],
        *,
        clock: Callable[[], datetime],
        limits: Limits,
        observer: Observer,
        started_at: datetime,
        fence: Callable[[], bool] = lambda: True,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._records = records
        self._people = people
        self._cluster = cluster
        self._values = values
        self._settings = settings
        self._clock = clock
        self._limits = limits
        self._observer = observer
        self._started_at = started_at
        self._fence = fence
        self._new_id = new_id

    def reconcile(self, key: str, now: datetime, *, anew: bool = False) -> Look:
        """Look at one target once. `anew` tries again at once what failed before.

        Raises StoreUnavailable; an intent that is open then is settled at the next look.
        """
        for _ in range(_TRIES):
            try:
                return self._look(key, now, anew)
            except Conflict:
                now = self._clock()
        return Look(now + _AFTER_CONFLICTS, Reason.WRITE_CONFLICT)

    def _look(self, key: str, now: datetime, anew: bool, live: bool = False) -> Look:
        found = self._records.record(key)
        if found is None:
            self._limits.leave(key)
            return Look()
        record, version = found
        settings = self._settings()
        turn = _Turn(record, version, settings, now)
        record = replace(alerts.prune(record, settings, now), unseen=False)
        if _is_over(record):
            return self._forget(turn)
        failure = record.failure
        if failure and failure.reason is Reason.API_UNAVAILABLE and waits(failure, now) and not anew:
            return Look(failure.retry_at, failure.reason)
        permitted = allowed(settings, record.target.namespace)
        policy = _policy(settings, record) if permitted else None
        if policy is None and not record.open_intents:
            return self._stand_aside(turn, Settled(record), permitted)
        if not live:
            turn = replace(turn, seen=self._seen(record))
        try:
            workload = turn.seen or self._cluster.workload(record.target)
        except (TransientError, PermanentError) as error:
            gone = isinstance(error, PermanentError) and error.reason is Reason.TARGET_GONE
            settled = settle.account(record, None, now) if gone else Settled(record)
            return self._failed(turn, settled, error)
        settled = settle.account(record, workload, now)
        if policy is None:
            return self._stand_aside(turn, settle.withdraw(settled, now), permitted)
        if failure and not anew and bars_writing(failure, workload, record.uid, now):
            return self._store(turn, settle.withdraw(settled, now), Look(failure.retry_at, failure.reason))
        return self._decide(turn, policy, workload, settled)

    def _seen(self, record: Record) -> Workload | None:
        """What the watch shows, if it is what was known already: anything else is settled and dated from a live read.

        Then also a watch that lags behind our own write is not believed.
        """
        if record.failure is not None:
            return None
        seen = self._cluster.seen(record.target)
        return seen if seen is not None and settle.is_as_known(record, seen) else None

    def _decide(self, turn: _Turn, policy: Policy, workload: Workload, settled: Settled) -> Look:
        key, now = turn.record.target.key, turn.now
        try:
            observed = observe(
                turn.settings,
                policy,
                settled.record,
                workload,
                cluster=self._cluster,
                values=self._values,
                people=self._people,
                budget=self._limits.offer(key, now),
                started_at=self._started_at,
                now=now,
            )
        except (TransientError, PermanentError) as error:
            return self._failed(turn, settle.withdraw(settled, now), error)
        if observed.pods.ready != settled.record.ready:
            record = replace(settled.record, ready=observed.pods.ready, pods_known_at=now)
            settled = replace(settled, record=record)
        said = annotated(policy, turn.record.target, workload).overrides
        if said != settled.record.annotated:
            settled = replace(settled, record=replace(settled.record, annotated=said))
        decision = decide(policy, observed, settled.record, now)
        if decision.acts and turn.seen is not None:
            return self._look(key, now, anew=False, live=True)
        if decision.reason is Reason.BUDGET_SPENT:
            self._limits.wait(key, _wanted(policy, decision), _since(settled.record, now))
        elif not decision.acts:
            self._limits.leave(key)
        if not decision.acts:
            return self._hold(turn, observed, settle.withdraw(settled, now), decision)
        if decision.dry_run:
            return self._rehearse(turn, workload, observed, settle.withdraw(settled, now), decision)
        return self._act(turn, observed, settled, decision)

    # Below: the ways a look ends

    def _hold(self, turn: _Turn, observed: Observed, closed: Settled, decision: Decision) -> Look:
        record = ledger.note(closed.record, decision, turn.now, decision.dry_run)
        if record.failure is not None:
            record = replace(record, failure=None)
        look = Look(self._until(turn, decision, record.ledger.changes), decision.reason)
        return self._store(turn, replace(closed, record=record), look, decision, observed)

    def _rehearse(
        self, turn: _Turn, live: Workload, observed: Observed, closed: Settled, decision: Decision
    ) -> Look:
        """Dry run: the server checks the write, the shadow ledger is charged, and that is all."""
        try:
            self._cluster.scale(turn.record.target, live, decision.desired, dry_run=True)
        except (TransientError, PermanentError) as error:
            return self._failed(turn, closed, error, live.generation)
        intent = self._intent(live, decision, turn.now)
        record = ledger.note(closed.record, decision, turn.now, decision.dry_run)
        record = replace(ledger.charge(record, intent, dry_run=True), failure=None)
        line = settle.entry(record, intent, Outcome.DRY_RUN, "dry run: not written", turn.now)
        entries = (
            *closed.entries,
            replace(line, dry_run=True, inputs=verdicts.inputs(observed, closed.record)),
        )
        look = Look(decision.look_again_at, decision.reason)
        return self._store(turn, Settled(record, entries), look, decision)

    def _act(self, turn: _Turn, observed: Observed, settled: Settled, decision: Decision) -> Look:
        """Store the intent, read people's word again, write, store the outcome."""
        if not self._fence():
            return Look(None, Reason.WRITE_CONFLICT)
        target, now = turn.record.target, turn.now
        direction = Direction.UP if decision.desired > decision.current else Direction.DOWN
        if not _by_hand(decision) and not self._limits.take(target.key, direction, now):
            raise Conflict("another target took the last action of the budget")
        try:
            fresh = self._intent(observed.workload, decision, now)
            begun = settle.commit_to(settled, fresh, now)
            record = ledger.note(begun.record, decision, now, decision.dry_run)
            look = Look(_soon(decision, now), decision.reason, acted=True)
            self._store(turn, replace(begun, record=record), look, decision, observed)
            intent = record.intent or fresh
            if not self._still_wanted(turn, observed, settled, decision):
                self._take_back(target, intent, may_land=intent.id != fresh.id)
                self._limits.give_back(direction, now)
                return Look(self._clock(), decision.reason)
            if not self._fence():
                return Look(None, Reason.WRITE_CONFLICT)
            self._cluster.scale(target, observed.workload, intent.to_replicas)
        except Conflict:
            self._limits.give_back(direction, now)
            raise
        except TransientError as error:
            return self._unanswered(target, error, now)
        except PermanentError as error:
            self._limits.give_back(direction, now)
            return self._refused(target, error, now)
        self._applied(target, intent, now)
        return look

    def _still_wanted(self, turn: _Turn, observed: Observed, settled: Settled, decision: Decision) -> bool:
        """An override binds every intent written after its acknowledgement, so people's word is read again."""
        now, settings = self._clock(), self._settings()
        policy = _policy(settings, settled.record)
        if policy is None or not allowed(settings, turn.record.target.namespace):
            return False
        word = will(settings, policy, settled.record, self._people)
        read = Will(observed.overrides, observed.silences, observed.freeze)
        if settings is turn.settings and read.same(word, turn.now, now):
            return True
        observed = replace(observed, overrides=word.overrides, silences=word.silences, freeze=word.freeze)
        again = decide(policy, observed, settled.record, now)
        return again.acts and again.desired == decision.desired and not again.dry_run

    def _take_back(self, target: TargetRef, intent: Intent, may_land: bool) -> None:
        """Close an intent that was stored and not sent. An earlier write under its id may still land."""
        now = self._clock()

        def change(record: Record) -> Settled | None:
            if record.intent is None or record.intent.id != intent.id:
                return None
            open_ = Settled(
                replace(record, intent=None), loose=record.intent, unmoved=True, may_land=may_land
            )
            return settle.withdraw(open_, now, message="an override or a reload came before the write")

        self._update(target, change)

    def _applied(self, target: TargetRef, intent: Intent, now: datetime) -> None:
        """The server has answered that it took the write."""

        def change(record: Record) -> Settled | None:
            return settle.landed(record, intent.id, now)

        record = self._update(target, change)
        if record is not None:
            self._observer.scaled(record, intent, self._clock())

    def _unanswered(self, target: TargetRef, error: TransientError, now: datetime) -> Look:
        """The write may have taken effect: its intent stays, and is settled at the next look."""

        def change(record: Record) -> Settled:
            failure = failed_again(record.failure, error, now)
            return Settled(replace(record, failure=failure))

        return self._after_failure(target, self._update(target, change))

    def _refused(self, target: TargetRef, error: PermanentError, now: datetime) -> Look:
        """The last try was refused. An earlier one may have taken effect unseen, so the intent is settled first."""
        try:
            live = self._cluster.workload(target)
        except (TransientError, PermanentError):
            live = None

        def change(record: Record) -> Settled:
            failure = failed_again(record.failure, error, now, live.generation if live else None)
            settled = Settled(record)
            if live is not None:
                settled = settle.account(record, live, now)
                settled = settle.withdraw(settled, now, Outcome.FAILED, str(error), error.reason)
            record = replace(settled.record, failure=failure)
            decision = verdicts.failing(record, failure)
            return replace(settled, record=verdicts.judged(record, decision, now, failure.retry_at))

        return self._after_failure(target, self._update(target, change))

    def _after_failure(self, target: TargetRef, record: Record | None) -> Look:
        if record is None or record.failure is None:
            return Look(self._clock() + _AFTER_CONFLICTS)
        self._observer.failed(target, record.failure)
        return Look(record.failure.retry_at, record.failure.reason)

    def _failed(
        self, turn: _Turn, settled: Settled, error: ResponderError, generation: int | None = None
    ) -> Look:
        """Keep the error; history has it once."""
        settled = settle.withdraw(settled, turn.now)
        failure = failed_again(turn.record.failure, error, turn.now, generation)
        if failure is not turn.record.failure:
            self._observer.failed(turn.record.target, failure)
        since = failure.since
        if failure.reason is Reason.TARGET_GONE and turn.now - since > turn.settings.timing.forget_after:
            return self._forget(turn)
        self._limits.leave(turn.record.target.key)
        record = replace(settled.record, failure=failure)
        look = Look(failure.retry_at, failure.reason)
        return self._store(turn, replace(settled, record=record), look, verdicts.failing(record, failure))

    def _stand_aside(self, turn: _Turn, closed: Settled, permitted: bool) -> Look:
        """Nothing claims the target, or the policy file forbids its namespace: nothing is written."""
        decision = verdicts.unclaimed(closed.record, permitted)
        self._limits.leave(turn.record.target.key)
        look = Look(None, decision.reason)
        return self._store(turn, closed, look, decision)

    def _forget(self, turn: _Turn) -> Look:
        self._limits.leave(turn.record.target.key)
        self._records.commit(Commit(forgotten=((turn.record.target.key, turn.version),)))
        return Look()

    def _until(self, turn: _Turn, decision: Decision, changes: Sequence[Change]) -> datetime | None:
        """A hold that is not heard of any more ends by itself, and is no alert of this target."""
        moments = [decision.look_again_at]
        if changes:
            # News of the same alert comes at once from a second Alertmanager, and must not put this look off.
            moments += [at for at in (changes[-1].at + _AFTER_ACTING,) if at > turn.now]
        if decision.reason is Reason.HELD:
            moments.append(alerts.next_change(self._people.standing(), turn.settings, turn.now))
        return min((moment for moment in moments if moment is not None), default=None)

    # Below: storing

    def _store(
        self,
        turn: _Turn,
        settled: Settled,
        look: Look,
        decision: Decision | None = None,
        observed: Observed | None = None,
    ) -> Look:
        """Commit what changed, on the version it was decided on. History takes changes, not looks."""
        record, entries = settled.record, settled.entries
        if decision is not None:
            news = verdicts.is_news(record, decision)
            if news and not any(line.outcome is Outcome.DRY_RUN for line in entries):
                entries = (
                    *entries,
                    verdicts.line(record, decision, observed, turn.now, look.look_again_at),
                )
            if news or record != turn.record or verdicts.is_shaped_anew(record, decision):
                record = verdicts.judged(record, decision, turn.now, look.look_again_at)
        if record != turn.record or entries:
            self._records.commit(Commit(records=((record, turn.version),), history=entries))
            for line in entries:
                self._observer.recorded(line)
        return look

    def _update(self, target: TargetRef, change: Callable[[Record], Settled | None]) -> Record | None:
        """Apply a pure change to whatever the record is now. None if it does not apply (any more)."""
        for _ in range(_UPDATE_TRIES):
            found = self._records.record(target.key)
            changed = None if found is None else change(found[0])
            if found is None or changed is None:
                return None
            try:
                self._records.commit(Commit(records=((changed.record, found[1]),), history=changed.entries))
            except Conflict:
                continue
            for line in changed.entries:
                self._observer.recorded(line)
            return changed.record
        return None

    def _intent(self, live: Workload, decision: Decision, now: datetime) -> Intent:
        return Intent(
            id=self._new_id(),
            uid=live.uid,
            from_replicas=live.replicas,
            to_replicas=decision.desired,
            resource_version=live.resource_version,
            generation=live.generation,
            manager=live.manager,
            decided_at=now,
            reason=decision.reason,
            message=decision.message,
            policy=decision.policy,
            trigger=decision.trigger,
            episode=decision.episode,
            override=decision.override,
            alerts=decision.alerts,
        )


def _policy(settings: Settings, record: Record) -> Policy | None:
    """Who governs the target. A pin's 0 is given back also when its alerts are long forgotten."""
    policy = governing(settings, record)
    if policy is None and record.zero_from is not None and record.verdict is not None:
        name = record.verdict.policy
        return next((policy for policy in settings.policies if policy.name == name), None)
    return policy


def _soon(decision: Decision, now: datetime) -> datetime:
    again = now + _AFTER_ACTING
    return again if decision.look_again_at is None else min(decision.look_again_at, again)


def _is_over(record: Record) -> bool:
    """True if nothing is known or open any more that a later look could need."""
    return not record.alerts and not record.open_intents and record.zero_from is None


def _by_hand(decision: Decision) -> bool:
    """The action budget is not for what a person has ordered."""
    # Not by `override`: one that only sets other bounds is named in a trigger's decision too.
    return decision.reason in (Reason.PINNED, Reason.PIN_ENDED)


def _wanted(policy: Policy, decision: Decision) -> Direction:
    for trigger in policy.triggers:
        if trigger.name == decision.trigger:
            return trigger.scale.direction
    return Direction.DOWN


def _since(record: Record, now: datetime) -> datetime:
    """Since when it waits for the budget, across restarts."""
    known = record.verdict
    return known.at if known is not None and known.reason is Reason.BUDGET_SPENT else now
