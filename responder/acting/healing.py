"""Asking the Alertmanagers what stands, to mend what deliveries have lost (promise 6)."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from responder import alerts
from responder.alerting.heal import Readings
from responder.errors import Conflict, StoreUnavailable
from responder.matchers import all_match
from responder.model import AlertmanagerReading, Commit, Delivery, Notification, Record, Span, StandingAlert
from responder.policy import Settings, ours, policy_of, stands_alone

EVERY = timedelta(seconds=60)
SENDER = "healing"
_TRIES = 20

log = logging.getLogger(__name__)


class Alertmanager(Protocol):
    def alerts(self, receiver: str | None = None) -> AlertmanagerReading:
        """What it has for this receiver, or for all. Never raises."""


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
        self._receivers: set[str] = set()
        self._taken: set[tuple[str, datetime]] = set()
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
        self._receivers |= set(receivers)

    def soon(self) -> None:
        """Ask at once: a delivery said that it lacks alerts."""
        self._soon.set()

    def heal(self) -> None:
        """Ask all Alertmanagers once, and take in what they say. Raises StoreUnavailable."""
        readings = self._read()
        by_fingerprint = alerts.gathered(readings)
        settings = self._settings()
        known: set[str] = set()
        for record, version in self._store.records():
            if not self._fence():
                return
            known |= record.alerts.keys()
            if record.alerts:
                self._heal(record, version, by_fingerprint, settings)
        known |= {span.fingerprint for span in self._store.standing()}
        self._take_in(readings, known, settings)

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
        receivers = set(self._receivers)
        receiver = min(receivers) if len(receivers) == 1 else None
        with ThreadPoolExecutor(max_workers=len(self._alertmanagers)) as pool:
            readings = pool.map(lambda alertmanager: alertmanager.alerts(receiver), self._alertmanagers)
            return [_routed_here(reading, receivers) for reading in readings]

    def _heal(self, record: Record, version: int, readings: Readings, settings: Settings) -> None:
        for _ in range(_TRIES):
            now = self._clock()
            healed = alerts.heal(record, readings, settings, now)
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

    def _take_in(self, readings: Iterable[AlertmanagerReading], known: set[str], settings: Settings) -> None:
        """Alerts that no delivery brought go the way of all deliveries, once each."""
        now = self._clock()
        lost = {
            (alert.fingerprint, alert.starts_at): _notification(alert, now)
            for reading in readings
            if not reading.error
            for alert in reading.alerts
            if alert.state == "active" and alert.fingerprint not in known and _claimed(settings, alert)
        }
        news = tuple(alert for key, alert in lost.items() if key not in self._taken)
        if news:
            log.info("taking in %d alerts that no delivery brought", len(news))
            self._store.append(Delivery(now, news, SENDER))
        self._taken = set(lost)


def _routed_here(reading: AlertmanagerReading, receivers: set[str]) -> AlertmanagerReading:
    """Until a delivery has named a receiver of ours, every alert may be for us."""
    if not receivers:
        return reading
    routed = tuple(alert for alert in reading.alerts if receivers & set(alert.receivers))
    return replace(reading, alerts=routed)


def _claimed(settings: Settings, alert: StandingAlert) -> bool:
    """The heartbeat is left out: it says that deliveries arrive, which asking cannot."""
    labels = alert.labels
    if settings.heartbeat is not None and all_match(settings.heartbeat.matchers, labels):
        return False
    return ours(settings, labels) and (
        policy_of(settings.policies, labels) is not None or stands_alone(settings, labels)
    )


def _notification(alert: StandingAlert, now: datetime) -> Notification:
    return Notification(
        alert.fingerprint,
        True,
        alert.labels,
        alert.annotations,
        alert.starts_at,
        None,
        now,
        alert.generator_url,
    )
