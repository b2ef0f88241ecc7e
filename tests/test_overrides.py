"""Which override decides: the narrowest, then the newest; and what annotations say."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from responder.decide import decide
from responder.deciding import overrides
from responder.deciding.overrides import deciding, pin_of
from responder.model import Decision, Override, OverrideKind, Reason, Workload
from tests.deciding import DOWN, UP, at, observed, override, pin, policy, record

PAUSE, FREEZE, BOUNDS = OverrideKind.PAUSE, OverrideKind.FREEZE, OverrideKind.BOUNDS
UP_PAUSE, DOWN_PAUSE = OverrideKind.PAUSE_SCALE_UP, OverrideKind.PAUSE_SCALE_DOWN
NOW = at(1)


def on(found: Override, *matchers: str) -> Override:
    """The override on all that the matchers select; on everything without any."""
    return replace(found, target="", matchers=matchers)


def look(
    *overrides: Override, names: tuple[str, ...] = (), replicas: int = 4, now: datetime = NOW, **more: Any
) -> Decision:
    seen = observed(replicas, overrides=overrides, **more)
    return decide(policy(), seen, record(*names), now)


@pytest.mark.parametrize(
    ("narrower", "wider"),
    [
        pytest.param(pin(5, since=-99), on(override(FREEZE)), id="one target before all"),
        pytest.param(
            pin(5, since=-99),
            on(override(PAUSE), 'name="vllm"', 'namespace="inference"'),
            id="one target before any matchers",
        ),
        pytest.param(
            on(pin(5, since=-99), 'name="vllm"'),
            on(override(PAUSE), 'namespace="inference"', 'kind="Deployment"'),
            id="a name before namespace and kind",
        ),
        pytest.param(
            on(pin(5, since=-99), 'namespace="inference"', 'kind="Deployment"'),
            on(override(PAUSE), 'namespace="inference"'),
            id="two labels before one",
        ),
        pytest.param(
            on(pin(5, since=-99), 'namespace="inference"'),
            on(override(PAUSE), 'namespace=~".*"'),
            id="a value before a pattern",
        ),
        pytest.param(
            on(pin(5, since=-99), 'policy="inference"'), on(override(PAUSE)), id="a policy before all"
        ),
        pytest.param(pin(5), pin(7, since=-99), id="of equals the newest"),
    ],
)
def test_the_narrowest_then_the_newest_decides(narrower: Override, wider: Override) -> None:
    """The pin to 5 decides though the other is newer, whichever is listed first."""
    for both in ((narrower, wider), (wider, narrower)):
        assert look(*both).desired == 5


def test_a_newer_pause_of_the_same_target_beats_a_pin() -> None:
    """And the pin again once that is over."""
    pause = override(PAUSE, since=-5, until=60)
    paused = look(pin(6, since=-10), pause)
    assert (paused.desired, paused.reason, paused.override) == (4, Reason.PAUSED, "pause")
    assert paused.look_again_at == at(60)
    assert look(pin(6, since=-10), pause, now=at(60)).desired == 6


def test_pauses_of_one_direction_do_not_mask_each_other() -> None:
    """A newer pauseScaleDown leaves the older pauseScaleUp in force."""
    both = (override(UP_PAUSE, since=-99), override(DOWN_PAUSE, since=-5))
    assert look(*both, names=("more",)).reason is Reason.PAUSED
    assert look(*both, names=("less",)).reason is Reason.PAUSED
    assert look(both[0], names=("less",)).desired == 3


def test_a_pause_of_one_direction_binds_an_older_pin_in_that_direction() -> None:
    """Up to 6 is paused; down to 2 is not."""
    pause = override(UP_PAUSE, since=-5)
    assert look(pin(6), pause).reason is Reason.PAUSED
    assert look(pin(2), pause).desired == 2
    assert look(pin(4), pause).reason is Reason.PINNED


def test_bounds_mask_no_pause() -> None:
    """They are another matter."""
    assert (
        look(override(PAUSE, since=-99), override(BOUNDS, max_replicas=9), names=("more",)).reason
        is Reason.PAUSED
    )


def test_minimum_and_maximum_may_come_from_different_overrides() -> None:
    """Each by the narrowest that names it."""
    least, most = (
        override(BOUNDS, min_replicas=3, id="a"),
        on(override(BOUNDS, min_replicas=1, max_replicas=4, id="b")),
    )
    assert look(least, most, names=("more",)).reason is Reason.AT_MAX_REPLICAS
    assert look(least, most, names=("less",), replicas=3).reason is Reason.AT_MIN_REPLICAS


def test_bounds_that_exclude_each_other_spend_less() -> None:
    """A minimum of 6 from one, a maximum of 4 from another: 4."""
    bounds = (override(BOUNDS, min_replicas=6, id="a"), override(BOUNDS, max_replicas=4, id="b"))
    assert look(*bounds, names=("more",), replicas=2).desired == 4
    assert look(*bounds, pin(9), replicas=2).desired == 4
    assert look(*bounds, names=("less",), replicas=6).desired == 5


def test_an_override_not_in_force_decides_nothing() -> None:
    """Not yet, no longer, or ended early."""
    for quiet in (override(PAUSE, since=10), override(PAUSE, until=1), override(PAUSE, expired_at=at(0))):
        assert deciding([quiet], UP, NOW) is None
        assert look(quiet, names=("more",)).desired == 5


def test_a_pin_without_a_number_is_none() -> None:
    """It cannot decide among pins."""
    assert pin_of([override(OverrideKind.PIN)], NOW) is None
    assert deciding([override(DOWN_PAUSE)], DOWN, NOW) is not None


# --- Annotations -----------------------------------------------------------------------------------


def annotated(names: tuple[str, ...] = ("more",), replicas: int = 4, **values: str) -> Decision:
    annotations = {f"gpu-responder.io/{name.replace('_', '-')}": value for name, value in values.items()}
    return look(names=names, replicas=replicas, annotations=annotations)


@pytest.mark.parametrize(
    ("value", "paused"),
    [
        ("true", True),
        ("True", True),
        ("", True),
        ("1", True),
        ("false", False),
        ("no", False),
        ("ture", True),
    ],
)
def test_paused(value: str, paused: bool) -> None:
    """A slip of the finger pauses as well: somebody meant to stop it, and is told."""
    decision = annotated(paused=value)
    assert (decision.reason is Reason.PAUSED) == paused
    if paused:
        assert "annotation gpu-responder.io/paused" in decision.message
    if value == "ture":
        assert "'ture' cannot be read" in decision.message


@pytest.mark.parametrize(
    ("value", "until"),
    [
        pytest.param("2026-01-05T12:10:00Z", 600, id="UTC"),
        pytest.param("2026-01-05T14:10:00+02:00", 600, id="another zone"),
        pytest.param("2026-01-05T12:10:00", 600, id="without a zone it is UTC"),
        pytest.param("2026-01-05T11:00:00Z", None, id="over"),
        pytest.param("tomorrow", ..., id="unreadable: until it is mended"),
    ],
)
def test_paused_until(value: str, until: Any) -> None:
    """On the workload or its namespace."""
    for where in ("annotations", "namespace_annotations"):
        decision = look(names=("more",), **{where: {"gpu-responder.io/paused-until": value}})
        assert (decision.reason is Reason.PAUSED) == (until is not None)
        if isinstance(until, int):
            assert decision.look_again_at == at(until)
        if until is ...:
            assert "'tomorrow' cannot be read" in decision.message


@pytest.mark.parametrize(
    ("value", "expected", "reason"),
    [
        pytest.param("7", 7, Reason.PINNED, id="a number"),
        pytest.param("70", 10, Reason.PINNED, id="above maxReplicas: an annotation may only narrow"),
        pytest.param("0", 1, Reason.PINNED, id="below minReplicas"),
        pytest.param("many", 4, Reason.PAUSED, id="unreadable: nothing moves"),
        pytest.param("-1", 4, Reason.PAUSED, id="no count"),
    ],
)
def test_pinned_replicas(value: str, expected: int, reason: Reason) -> None:
    """A pin without an end."""
    decision = annotated(pinned_replicas=value)
    assert (decision.desired, decision.reason) == (expected, reason)


def test_the_apis_word_on_one_target_is_newer_than_its_annotation() -> None:
    """And the annotation is narrower than the API's word on many."""
    annotations = {"gpu-responder.io/pinned-replicas": "7"}
    assert look(pin(3), annotations=annotations).desired == 3
    assert look(on(pin(3), 'namespace="inference"'), annotations=annotations).desired == 7


@pytest.mark.parametrize(
    ("names", "values", "replicas", "expected"),
    [
        pytest.param(("more",), {"max_replicas": "4"}, 4, Reason.AT_MAX_REPLICAS, id="a lower maximum"),
        pytest.param(
            ("more",),
            {"max_replicas": "99"},
            10,
            Reason.AT_MAX_REPLICAS,
            id="a higher one counts as the policy's 10",
        ),
        pytest.param(("less",), {"min_replicas": "4"}, 4, Reason.AT_MIN_REPLICAS, id="a higher minimum"),
        pytest.param(
            ("less",),
            {"min_replicas": "0"},
            1,
            Reason.AT_MIN_REPLICAS,
            id="a lower one counts as the policy's 1",
        ),
        pytest.param(
            ("more",),
            {"max_replicas": "four"},
            4,
            Reason.SCALED_UP,
            id="an unreadable one is ignored, and told",
        ),
    ],
)
def test_annotated_bounds(
    names: tuple[str, ...], values: dict[str, str], replicas: int, expected: Reason
) -> None:
    """They may only narrow the policy's."""
    decision = annotated(names, replicas, **values)
    assert decision.reason is expected
    told = [step.message for step in decision.chain if step.rule == "annotations"]
    assert bool(told) == (values in ({"max_replicas": "99"}, {"min_replicas": "0"}, {"max_replicas": "four"}))


def test_an_unreadable_target_is_told() -> None:
    """And ignored."""
    for value in ("-3", "0", "nan", "much"):
        decision = annotated(target=value)
        assert decision.desired == 5
        assert any("target" in step.message for step in decision.chain if step.rule == "annotations")


@pytest.mark.parametrize("name", ["paused", "paused-until", "pinned-replicas", "min-replicas", "target"])
def test_a_long_value_makes_no_long_sentence(name: str) -> None:
    """An annotation may be a quarter of a mebibyte, and what is said of it is kept with each decision."""
    workload = Workload("u", 1, "1", 2, annotations={f"gpu-responder.io/{name}": "x" * 200_000})
    found = overrides.annotated(policy(), record().target, workload)
    assert sum(len(override.comment) for override in found.overrides) + sum(map(len, found.notes)) < 500
