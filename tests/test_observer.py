"""What people find on the target itself: which news become Events, and which do not."""

from datetime import UTC, datetime

import pytest

from responder.model import Failure, HistoryEntry, Intent, Outcome, Reason, Record, TargetRef, target_of_key
from responder.observer import Observer

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
VLLM = TargetRef("inference", "Deployment", "vllm")


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str, str]] = []

    def tell(self, ref: TargetRef, uid: str, reason: str, message: str, kind: str = "Normal") -> None:
        self.events.append((ref.key, uid, reason, message, kind))


def line(reason: Reason, desired: int = 2, outcome: Outcome | None = None) -> HistoryEntry:
    return HistoryEntry(NOW, VLLM.key, 2, desired, reason, "because", outcome=outcome)


@pytest.mark.parametrize(
    ("entry", "kinds"),
    [
        pytest.param(line(Reason.HELD), ["Normal"], id="a hold is told"),
        pytest.param(line(Reason.OWNER_UNKNOWN), ["Warning"], id="one that wants mending warns"),
        pytest.param(line(Reason.NOTHING_FIRING), [], id="quiet is no news"),
        pytest.param(line(Reason.COOLDOWN), [], id="a cooldown comes with every episode"),
        pytest.param(line(Reason.SCALED_UP, 3), [], id="a decision to act is told when it is done"),
        pytest.param(line(Reason.SCALED_UP, 3, Outcome.APPLIED), [], id="and by scaled, not twice"),
        pytest.param(line(Reason.EFFECT_UNCERTAIN, 3, Outcome.UNCERTAIN), ["Warning"], id="doubt is told"),
        pytest.param(line(Reason.FORBIDDEN), [], id="failures are told by failed"),
    ],
)
def test_which_history_is_an_event(entry: HistoryEntry, kinds: list[str]) -> None:
    """A target's Events are what a person there would want to know, once."""
    told = Told()
    Observer(told).recorded(entry)
    assert [event[4] for event in told.events] == kinds


def test_scales_and_failures_are_events() -> None:
    """With numbers, on the object of the uid; an API server that is away is told nothing."""
    told = Told()
    observer = Observer(told)
    intent = Intent("i", "u", 2, 4, "7", 1, "m", NOW, Reason.SCALED_UP, "busy")
    observer.scaled(Record(VLLM, uid="u"), intent, NOW)
    observer.failed(VLLM, Failure(Reason.FORBIDDEN, "no right", NOW, NOW))
    observer.failed(VLLM, Failure(Reason.API_UNAVAILABLE, "away", NOW, NOW))
    assert told.events == [
        (VLLM.key, "u", "ScaledUp", "2 to 4: busy", "Normal"),
        (VLLM.key, "", "Forbidden", "no right", "Warning"),
    ]


@pytest.mark.parametrize("group", ["apps", "argoproj.io", ""], ids=["apps", "custom", "core"])
def test_a_key_names_its_target(group: str) -> None:
    """A key leads back to a target of that key, whatever its group."""
    ref = TargetRef("n", "Rollout", "a.b", group)
    assert target_of_key(ref.key).key == ref.key
    assert target_of_key(ref.key).group == group
