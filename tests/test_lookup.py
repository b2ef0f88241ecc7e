"""Looking up targets beside the inbox: once each, again after trouble, never in the way."""

import logging
import threading
import time

import pytest

from responder.acting import lookup as lookups
from responder.acting.lookup import PodLookup
from responder.errors import PermanentError, TransientError
from responder.model import Reason
from responder.policy import Rejection
from tests.fakes import REF

LABELS = {"namespace": "inference", "pod": "vllm-1"}


class Resolver:
    """Gives its answers in turn; the last for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def locate(self, labels):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def found(resolver):
    """What is found, once the bell has rung for it."""
    bell = threading.Event()
    lookup = PodLookup(resolver, bell.set)
    try:
        assert lookup.find(LABELS) is None
        assert bell.wait(10)
        return lookup.find(LABELS), lookup
    finally:
        lookup.close()


def test_what_was_found_is_remembered():
    """A pod's owner does not change: its repeats ask nothing."""
    resolver = Resolver(REF)
    target, lookup = found(resolver)
    assert target == REF
    assert lookup.find(LABELS) == REF
    assert resolver.asked == 1


def test_trouble_is_tried_again(monkeypatch):
    """An API server that is down for a moment loses no alert."""
    monkeypatch.setattr(lookups, "LONGEST_PAUSE", 0.01)
    waits = []
    monkeypatch.setattr(threading.Event, "wait", _recording(waits, threading.Event.wait))
    target, _ = found(Resolver(TransientError("down"), TransientError("down"), REF))
    assert target == REF


def _recording(waits, wait):
    def shortened(self, timeout=None):
        waits.append(timeout)
        return wait(self, min(timeout, 0.01) if timeout is not None and timeout < 5 else timeout)

    return shortened


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(PermanentError("no right to read pods", Reason.FORBIDDEN), id="a missing right"),
        pytest.param(Rejection("no owner"), id="a pod without a scalable owner"),
        pytest.param(RuntimeError("a bug"), id="a bug"),
    ],
)
def test_what_cannot_be_found_is_said_once_and_asked_again_another_time(answer):
    """The alert is let go; the next repeat may find it."""
    target, lookup = found(Resolver(answer))
    assert isinstance(target, Rejection)
    assert lookup.find(LABELS) is None


def test_a_slow_lookup_blocks_nobody():
    """Asking returns at once."""
    go = threading.Event()

    class Slow:
        def locate(self, labels):
            go.wait(10)
            return REF

    lookup = PodLookup(Slow(), lambda: None)
    began = time.monotonic()
    assert lookup.find(LABELS) is None
    assert time.monotonic() - began < 8
    go.set()
    lookup.close()


def test_why_there_is_no_target_reaches_people(caplog):
    """The reason is logged once, however often the alert is repeated, and is what the inbox is told."""
    rung = threading.Event()
    lookup = PodLookup(Resolver(Rejection("pod n/p is an exporter")), rung.set)
    labels = {"alertname": "GPUIdle", "pod": "p"}
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                rung.clear()
                assert lookup.find(labels) is None
                assert rung.wait(60)
                assert lookup.find(labels) == Rejection("pod n/p is an exporter")
    finally:
        lookup.close()
    assert [record.message for record in caplog.records] == [
        "an alert leads to no target: pod n/p is an exporter"
    ]
