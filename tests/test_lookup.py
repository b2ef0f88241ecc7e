"""Looking up targets beside the inbox."""

import logging
import threading
from collections.abc import Mapping

import pytest

from responder.lookup import PodLookup
from responder.model import TargetRef
from responder.policy import Rejection


class Resolver:
    def __init__(self, found: TargetRef | Rejection) -> None:
        self.found = found

    def locate(self, labels: Mapping[str, str]) -> TargetRef | Rejection:
        return self.found


def test_why_there_is_no_target_reaches_people(caplog: pytest.LogCaptureFixture) -> None:
    """The reason is logged once, however often the alert is repeated, and is what the inbox is told."""
    rung = threading.Event()
    lookup = PodLookup(Resolver(Rejection("pod n/p is an exporter")), rung.set)
    labels = {"alertname": "GPUIdle", "pod": "p"}
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                rung.clear()
                assert lookup.find(labels) is None
                assert rung.wait(5)
                assert lookup.find(labels) == Rejection("pod n/p is an exporter")
                assert lookup.find(labels) is None
                assert rung.wait(5)
    finally:
        lookup.close()
    assert [record.message for record in caplog.records] == [
        "an alert leads to no target: pod n/p is an exporter"
    ]
