"""A web process that is told to stop at an awkward moment goes through its stop all the same."""

import pytest

from responder.worker import ResponderWorker


class Listener:
    """A socket as gunicorn's: closed, it has nothing to accept on."""

    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


class Poller:
    """Keeps what is registered, and minds what is not."""

    def __init__(self):
        self.registered = []

    def register(self, listener, *_):
        self.registered.append(listener)

    def unregister(self, listener):
        assert not listener.closed
        self.registered.remove(listener)


class Worker(ResponderWorker):
    """One that has forked and taken its slot, with two connections in the queue of its listener."""

    def __init__(self):
        self.sockets = [Listener()]
        self.poller = Poller()
        self.alive = True
        self.nr_conns = 0
        self._accepting = self._refuses = False

    def accept(self, listener):
        assert not listener.closed, "accepts on a closed socket"
        self.nr_conns += self.nr_conns < 2


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(Listener, "setblocking", lambda *_: None, raising=False)
    return Worker()


def test_before_it_has_begun_to_accept(worker):
    """Told to stop while it loads: it answers those in the queue, and does not fail in accepting once more."""
    worker.alive = False
    worker.set_accept_enabled(True)
    worker.set_accept_enabled(False)
    assert (worker.nr_conns, worker.sockets[0].closed, worker.poller.registered) == (2, 1, [])


def test_while_it_accepts(worker):
    """The usual order: it stops listening once, after it took those in the queue."""
    worker.set_accept_enabled(True)
    worker.alive = False
    worker.set_accept_enabled(False)
    worker.set_accept_enabled(False)
    assert (worker.nr_conns, worker.sockets[0].closed, worker.poller.registered) == (2, 1, [])


def test_while_it_is_full(worker):
    """A process that takes no more for now has not stopped: its listener stays open."""
    worker.set_accept_enabled(True)
    worker.set_accept_enabled(False)
    assert (worker.nr_conns, worker.sockets[0].closed) == (0, 0)
