"""What the actor can and cannot reach, left in the store for those who answer people."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from responder.errors import ResponderError

STATUS = "actor"
"""The name of the document. Its keys are what was tried, its values why that failed; with no keys all is well."""
EVERY_SECONDS = 5.0
REPEATED_SECONDS = 30.0
"""A document that says the same is left again so often, so that its age tells whether anybody acts."""
SILENT = timedelta(seconds=120)
"""Older than that, it tells that nobody does."""

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""Why something cannot be reached, as one sentence; empty when it can."""


class Statuses(Protocol):
    def put_status(self, name: str, body: Mapping[str, str]) -> None: ...


class Acting(Protocol):
    @property
    def leads(self) -> bool: ...

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None: ...


class Reporting:
    """An actor that also says what it can reach, while it is the elected one. The checks may be slow.

    `ends` are called when it has stopped acting: what its clients still have to do is done then.
    """

    def __init__(
        self,
        actor: Acting,
        store: Statuses,
        checks: Mapping[str, Check],
        ends: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._actor = actor
        self._store = store
        self._checks = checks
        self._ends = ends
        self._said: Mapping[str, str] | None = None
        self._since = 0.0

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
        """Act until `stop` is set."""
        threading.Thread(target=self._report, args=(stop,), name="reach", daemon=True).start()
        try:
            self._actor.run(stop, beat)
        finally:
            for end in self._ends:
                end()

    def _report(self, stop: threading.Event) -> None:
        while not stop.wait(0.5 if self._said is None else EVERY_SECONDS):
            self._since += EVERY_SECONDS
            if not self._actor.leads:
                self._said = None
                continue
            try:
                self._leave()
            except ResponderError as error:
                log.warning("cannot say what can be reached: %s", error)
            except Exception:
                log.exception("cannot tell what can be reached")

    def _leave(self) -> None:
        found = {name: said for name, check in self._checks.items() if (said := check())}
        if found != self._said or self._since >= REPEATED_SECONDS:
            self._store.put_status(STATUS, found)
            self._said, self._since = found, 0.0


def raising(ask: Callable[[], object]) -> Check:
    """A check from a call that raises when it fails."""

    def check() -> str:
        try:
            ask()
        except ResponderError as error:
            return str(error)
        return ""

    return check
