"""Asking the Alertmanagers what stands, to mend what deliveries have lost (promise 6).

They are asked for all that stands, and not for what is routed here: an actor that is new knows few of the names under
which alerts are delivered, and what it did not ask for would seem to be over.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from responder import alerts
from responder.alerting.heal import Readings
from responder.errors import Conflict, StoreUnavailable
from responder.matchers import all_match
from responder.model import AlertmanagerReading, Commit, Delivery, Record, Span
from responder.policy import Settings, ours, policy_of, stands_alone

EVERY = timedelta(seconds=60)
SENDER = "healing"
_TRIES = 20

log = logging.getLogger(__name__)


class Alertmanager(Protocol):
    def alerts(self) -> AlertmanagerReading:
        """All that stands there. Never raises."""


class Kept(Protocol):
    """The store, as far as it is healed."""

    def record(self, key: str) -> tuple[Record, int] | None: ...

    def records(self) -> Iterator[tuple[Record, int]]: ...

    def standing(self) -> tuple[Span, ...]: ...

    def append(self, delivery: Delivery) -> None: ...

    def commit(self, commit: Commit) -> object: ...


class Healer:
    """Runs in a thread of its own, since an Alertmanager may be slow to answer."""

    def __init__(
        self,
        store: Kept,
        alertmanagers: Sequence[Alertmanager],
        settings: Callable[[], Settings],
        clock: Callable[[], datetime],
        woken: Callable[[str], None],
        fence: Callable[[], bool],
    ) -> None:
        self._store = store
        self._alertmanagers = alertmanagers
        self._settings = settings
        self._clock = clock
        self._woken = woken
        self._fence = fence
        self._receivers: frozenset[str] = frozenset()
        self._taken: set[tuple[str, datetime]] = set()
        self._said: Readings | None = None
        self._heeded: Readings | None = None
        """The last of what was said that alerts which stand alone were mended by."""
        self._soon = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="healing", daemon=True)

    def start(self) -> None:
        if self._alertmanagers:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._soon.set()

    def heard(self, receivers: Iterable[str]) -> None:
        """Names under which Alertmanagers deliver here."""
        self._receivers |= frozenset(receivers)

    def soon(self) -> None:
        """Ask at once: a delivery said that it lacks alerts."""
        self._soon.set()

    def heal(self) -> None:
        """Ask all Alertmanagers once, and take in what they say. Raises StoreUnavailable."""
        readings, settings = alerts.gathered(self._read()), self._settings()
        known: set[str] = set()
        for record, version in self._store.records():
            if not self._fence():
                return
            known |= record.alerts.keys()
            if record.alerts:
                self._heal(record, version, readings, settings)
        known |= {span.fingerprint for span in self._store.standing()}
        self._take_in(readings, known, settings)
        self._said = readings

    def heal_standing(self) -> bool:
        """Mend the alerts that stand alone by what was said last; True if any has come, gone or been silenced.

        For the thread that folds deliveries: such alerts have no version, so one thread alone may change them.
        """
        said, settings, now = self._said, self._settings(), self._clock()
        if said is None or said is self._heeded:
            return False
        mended = [
            (span, alerts.heal_span(span, said, settings, now, self._receivers))
            for span in self._store.standing()
            if not _is_heartbeat(settings, span.labels)
        ]
        changed = tuple(after for before, after in mended if after != before)
        if changed:
            self._store.commit(Commit(standing=changed))
        self._heeded = said
        return any((old.firing, old.suppressed) != (new.firing, new.suppressed) for old, new in mended)

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._fence():
                try:
                    self.heal()
                except StoreUnavailable as error:
                    log.warning("cannot keep what the Alertmanagers say: %s", error)
                except Exception:
                    log.exception("cannot ask the Alertmanagers")
            self._soon.wait(EVERY.total_seconds())
            self._soon.clear()

    def _read(self) -> list[AlertmanagerReading]:
        with ThreadPoolExecutor(max_workers=len(self._alertmanagers)) as pool:
            return list(pool.map(lambda alertmanager: alertmanager.alerts(), self._alertmanagers))

    def _heal(self, record: Record, version: int, readings: Readings, settings: Settings) -> None:
        for _ in range(_TRIES):
            now = self._clock()
            healed = alerts.heal(record, readings, settings, now, self._receivers)
            if healed == record:
                return
            healed = replace(healed, unseen=True)
            try:
                self._store.commit(Commit(records=((healed, version),)))
            except Conflict:
                found = self._store.record(record.target.key)
                if found is None:
                    return
                record, version = found
                continue
            self._woken(record.target.key)
            return

    def _take_in(self, readings: Readings, known: set[str], settings: Settings) -> None:
        """Alerts that no delivery brought go the way of all deliveries, once each."""
        now = self._clock()
        lost = {
            (alert.fingerprint, alert.starts_at): alert
            for alert in alerts.unheard(known, readings, now, self._receivers)
            if _claimed(settings, alert.labels)
        }
        news = tuple(alert for key, alert in lost.items() if key not in self._taken)
        if news:
            log.info("taking in %d alerts that no delivery brought", len(news))
            self._store.append(Delivery(now, news, SENDER))
        self._taken = set(lost)


def _is_heartbeat(settings: Settings, labels: Mapping[str, str]) -> bool:
    """The heartbeat is left alone: it says that deliveries arrive, which asking cannot."""
    return settings.heartbeat is not None and all_match(settings.heartbeat.matchers, labels)


def _claimed(settings: Settings, labels: Mapping[str, str]) -> bool:
    if _is_heartbeat(settings, labels) or not ours(settings, labels):
        return False
    return policy_of(settings.policies, labels) is not None or stands_alone(settings, labels)
