"""What the actor did, as metrics and log lines."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from responder import metrics
from responder.model import (
    Failure,
    HistoryEntry,
    Intent,
    Outcome,
    Reason,
    Record,
    Span,
    TargetRef,
)
from responder.observer import Observer, called

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TARGET = TargetRef("inference", "Deployment", "vllm")


def grown(before: dict[str, float]) -> dict[str, float]:
    return {
        name: value - before.get(name, 0) for name, value in counted().items() if value != before.get(name, 0)
    }


def counted() -> dict[str, float]:
    return {
        sample.name.removeprefix("gpu_responder_")
        + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket"))
    }


def entry(outcome: Outcome | None) -> HistoryEntry:
    return HistoryEntry(NOW, TARGET.key, 1, 3, Reason.SCALED_UP, "it is hot: 100%", outcome=outcome)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param(None, {"decisions_total{ScaledUp}": 1}, id="a decision"),
        pytest.param(Outcome.APPLIED, {"scale_operations_total{applied}": 1}, id="what became of a write"),
    ],
)
def test_history_is_counted_and_logged_once(
    outcome: Outcome | None, expected: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    """A decision is one kind of line and its outcome another: neither is counted as both."""
    before = counted()
    with caplog.at_level(logging.INFO):
        Observer().recorded(entry(outcome))
    assert grown(before) == expected
    [line] = caplog.records
    assert (line.getMessage(), line.__dict__["target"], line.__dict__["to"]) == (
        "it is hot: 100%",
        TARGET.key,
        3,
    )


def test_a_scale_is_timed_from_its_alerts() -> None:
    """From the earliest start and the latest receipt of those that caused it; others do not count."""

    def span(name: str, started: float, heard: float) -> Span:
        ago = [NOW - timedelta(seconds=seconds) for seconds in (started, heard)]
        return Span(name, {}, {}, True, ago[0], ago[0], ago[1])

    spans = {"a": span("a", 30, 2), "b": span("b", 20, 1), "other": span("other", 9000, 9000)}
    intent = Intent("i", "u", 1, 3, "7", 1, "m", NOW, Reason.SCALED_UP, "m", alerts=("a", "b", "gone"))
    before = counted()
    Observer().scaled(Record(TARGET, alerts=spans), intent, NOW)
    assert grown(before) == {
        "alert_to_scale_seconds_sum": 30,
        "alert_to_scale_seconds_count": 1,
        "receipt_to_scale_seconds_sum": 1,
        "receipt_to_scale_seconds_count": 1,
    }


def test_a_scale_without_alerts_is_not_timed() -> None:
    """A pin has no alert to be late for."""
    before = counted()
    intent = Intent("i", "u", 1, 3, "7", 1, "m", NOW, Reason.PINNED, "m", override="o")
    Observer().scaled(Record(TARGET), intent, NOW)
    assert grown(before) == {}


def test_a_failing_target_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """With the reason and the time of the next try."""
    Observer().failed(TARGET, Failure(Reason.FORBIDDEN, "may not scale it", NOW, NOW + timedelta(minutes=5)))
    [line] = caplog.records
    assert (line.levelno, line.__dict__["retryAt"]) == (logging.WARNING, "2026-11-30T12:05:00+00:00")


def test_only_failed_requests_are_errors() -> None:
    """By kind."""
    before = counted()
    called("GET", "ok", 0.1)
    called("PUT", "timeout", 10.0)
    assert grown(before) == {"api_errors_total{timeout}": 1}
