"""What the process that acts leaves in the store about what it can reach."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from responder.acting import reach
from responder.acting.reach import STATUS, Reporting, raising
from responder.errors import StoreUnavailable, TransientError
from tests.serving import until


class Statuses:
    """Keeps all that was left, and fails as often as it is told to."""

    def __init__(self, fails: int = 0) -> None:
        self.left: list[tuple[str, Mapping[str, str]]] = []
        self.fails = fails

    def put_status(self, name: str, body: Mapping[str, str]) -> None:
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("the disk is full")
        self.left.append((name, dict(body)))


class Acting:
    """An actor that only waits for its end."""

    def __init__(self, leads: bool = True) -> None:
        self.leads = leads

    def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
        stop.wait(30)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(reach, "REPEATED_SECONDS", 1e9)


def running(actor: Any, store: Statuses, checks: Mapping[str, Callable[[], str]]) -> threading.Event:
    stop = threading.Event()
    made = Reporting(actor, store, checks)
    threading.Thread(target=made.run, args=(stop, lambda: None), daemon=True).start()
    return stop


def test_changes_are_left_once() -> None:
    """What cannot be reached is told by name, and that all is well again too."""
    store, said = Statuses(), {"kubernetes": "it is gone"}
    checks = {"kubernetes": lambda: said["kubernetes"], "prometheus": lambda: ""}
    stop = running(Acting(), store, checks)
    until(lambda: len(store.left) == 1)
    said["kubernetes"] = ""
    until(lambda: len(store.left) == 2)
    stop.set()
    assert store.left == [(STATUS, {"kubernetes": "it is gone"}), (STATUS, {})]


def test_a_process_that_does_not_act_says_nothing() -> None:
    """Two processes that reach different things would contradict one another."""
    store, actor = Statuses(), Acting(leads=False)
    stop = running(actor, store, {})
    stop.wait(1.2)
    assert store.left == []
    actor.leads = True
    until(lambda: store.left)
    stop.set()


def test_a_store_that_fails_and_a_check_that_breaks_do_not_end_it() -> None:
    """It goes on as soon as it can."""
    store, calls = Statuses(fails=1), iter([ZeroDivisionError(), ""])

    def breaks() -> str:
        found = next(calls, "")
        if isinstance(found, Exception):
            raise found
        return found

    stop = running(Acting(), store, {"kubernetes": breaks})
    until(lambda: store.left == [(STATUS, {})])
    stop.set()


def test_a_call_that_raises_is_a_sentence() -> None:
    """As a client's method does."""

    def refused() -> None:
        raise TransientError("Alertmanager cannot be reached.", kind="connection")

    assert raising(refused)() == "Alertmanager cannot be reached."
    assert raising(lambda: 1)() == ""


def test_the_clients_are_closed_when_it_has_stopped_acting() -> None:
    """In their order, so that what they still have to write is written, also when the actor has failed."""

    class Failing(Acting):
        def run(self, stop: threading.Event, beat: Callable[[], None]) -> None:
            closed.append("acted")
            raise TransientError("gone")

    closed: list[str] = []
    ends = (lambda: closed.append("lookup"), lambda: closed.append("cluster"))
    with pytest.raises(TransientError):
        Reporting(Failing(), Statuses(), {}, ends).run(threading.Event(), lambda: None)
    assert closed == ["acted", "lookup", "cluster"]
