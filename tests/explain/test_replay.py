"""Recorded history under a policy file: the same under the same, and told where a change would matter."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.codec import decode, encode
from responder.explain.replay import Replayed, replay
from responder.matchers import parse
from responder.model import Direction, HistoryEntry, OverrideKind, Reason, ScaleType
from responder.policy import ActionBudget, Heartbeat, Rules, Scale, Settings, ValueFrom
from responder.store import StoredEntry
from tests.fakes import REF
from tests.responding import DOWN, UP, World, policy, settings, trigger

MINUTE = timedelta(minutes=1)
BRAKED = Rules(5 * MINUTE, 5 * MINUTE, tolerance=0.1)


def recorded(world: World) -> list[StoredEntry]:
    """What the store would give back: every line went through JSON."""
    lines = [decode(encode(entry), HistoryEntry) for entry in world.store.entries]
    return [StoredEntry(number, line) for number, line in enumerate(lines, 1)]


def under(world: World, changed: Settings) -> Replayed:
    return replay(recorded(world), changed)


def busy(world: World) -> World:
    """A target that goes up, waits, is paused, comes down and waits again."""
    world.fire(UP)
    world.look()
    for _ in range(4):
        world.clock.tick(MINUTE.total_seconds())
        world.fire(UP)
        world.look()
    world.override(OverrideKind.PAUSE, ends_at=world.clock.now + MINUTE)
    world.look()
    world.clock.tick(2 * MINUTE.total_seconds())
    world.resolve(UP)
    world.fire(DOWN)
    for _ in range(20):
        world.clock.tick(MINUTE.total_seconds())
        world.fire(DOWN)
        world.look()
    return world


def plain(**fields: Any) -> Settings:
    fields = {"scale_up": Rules(2 * MINUTE, 0 * MINUTE, tolerance=0.1), "scale_down": BRAKED, **fields}
    ups = trigger("scale_up", Direction.UP, max_steps=None)
    downs = trigger("scale_down", Direction.DOWN, max_steps=None)
    return settings(policy(triggers=(ups, downs), **fields))


@pytest.mark.parametrize("dry_run", [False, True], ids=["for real", "as a dry run"])
def test_the_same_file_makes_the_same_decisions(dry_run: bool) -> None:
    """Whatever was decided, replaying it under the file that was in force differs nowhere."""
    world = busy(World(settings=plain(dry_run=dry_run)))
    found = under(world, world.settings)
    assert found.differences == ()
    assert found.compared > 4
    reasons = {entry.reason for entry in world.store.entries}
    assert {Reason.SCALED_UP, Reason.PAUSED, Reason.SCALED_DOWN, Reason.STABILIZED} <= reasons


EVENTS = st.lists(
    st.sampled_from(["up", "up ends", "down", "down ends", "pause", "pin", "minute", "long"]), max_size=30
)


@given(events=EVENTS, window=st.sampled_from([0, 60, 300]), cooldown=st.sampled_from([0, 120]))
@hypothesis.settings(max_examples=300)
def test_no_history_differs_under_its_own_file(events: list[str], window: int, cooldown: int) -> None:
    """Deliveries, overrides and passing time in any order: each line decides itself again."""
    rules = Rules(timedelta(seconds=cooldown), timedelta(seconds=window), tolerance=0.1)
    world = World(settings=plain(scale_up=rules, scale_down=rules))
    for event in events:
        match event:
            case "up" | "down":
                world.fire(UP if event == "up" else DOWN)
            case "up ends" | "down ends":
                world.resolve(UP if event == "up ends" else DOWN)
            case "pause":
                world.override(OverrideKind.PAUSE, ends_at=world.clock.now + MINUTE)
            case "pin":
                world.override(OverrideKind.PIN, replicas=5, ends_at=world.clock.now + MINUTE)
            case "minute" | "long":
                world.clock.tick(60 if event == "minute" else 400)
        world.look()
        world.clock.tick(1)
    found = under(world, world.settings)
    assert found.differences == ()
    assert found.compared == sum(bool(entry.inputs) for entry in world.store.entries)


def test_a_lower_maximum_shows_where_it_would_have_stopped() -> None:
    """The decision that went beyond it is told, with what it would have been, and as another count."""
    world = busy(World(settings=plain()))
    changed = settings(replace(world.settings.policies[0], max_replicas=2))
    found = under(world, changed)
    first = found.differences[0]
    assert (first.entry.current, first.entry.desired, first.entry.reason) == (2, 3, Reason.SCALED_UP)
    assert (first.decision.desired, first.decision.reason) == (2, Reason.AT_MAX_REPLICAS)
    assert first.acts_otherwise


def test_a_shorter_window_frees_what_it_held_back() -> None:
    """The window's own recommendation, noted with the decision, does not hold its replay back."""
    world = busy(World(settings=plain()))
    free = replace(BRAKED, stabilization_window=timedelta(0))
    found = under(world, settings(replace(world.settings.policies[0], scale_down=free)))
    were = {each.entry.reason for each in found.differences}
    assert Reason.STABILIZED in were
    assert all(each.decision.reason is not Reason.STABILIZED for each in found.differences)


def test_a_policy_that_is_gone_leaves_the_target_unclaimed() -> None:
    """A file without the policy would decide nothing there."""
    world = busy(World(settings=plain()))
    other = replace(world.settings.policies[0], matchers=(parse('namespace="elsewhere"'),))
    found = under(world, settings(other))
    assert found.differences
    assert {each.decision.reason for each in found.differences} == {Reason.UNCLAIMED}


def test_a_namespace_that_is_no_longer_allowed_is_told() -> None:
    """allowedNamespaces counts in a replay as it does in the service."""
    world = busy(World(settings=plain()))
    found = under(world, replace(world.settings, allowed_namespaces=("elsewhere",)))
    assert {each.decision.reason for each in found.differences} == {Reason.NOT_ALLOWED}


def test_a_freeze_in_the_new_file_stops_everything() -> None:
    """Its sentence is in each decision that would have acted."""
    world = busy(World(settings=plain()))
    found = under(world, replace(world.settings, freeze="moving the racks"))
    frozen = [each for each in found.differences if each.entry.reason is Reason.SCALED_UP]
    assert frozen
    assert all("moving the racks" in each.decision.message for each in frozen)


def test_dry_run_is_no_difference() -> None:
    """A file that only arms what was rehearsed decides the same."""
    world = busy(World(settings=plain(dry_run=True)))
    armed = settings(replace(world.settings.policies[0], dry_run=False))
    assert under(world, armed).differences == ()


def test_what_the_new_file_does_not_know_binds_no_more() -> None:
    """Safe mode and the budget of the old file hold nothing back without their keys."""
    heartbeat = Heartbeat((), timedelta(seconds=1))
    limits = {Direction.UP: ActionBudget(0, MINUTE)}
    world = World(settings=replace(plain(), heartbeat=heartbeat, budgets=limits))
    world.fire(UP)
    world.look()
    assert [entry.reason for entry in world.store.entries] == [Reason.BUDGET_SPENT]
    found = under(world, plain())
    assert [each.decision.reason for each in found.differences] == [Reason.SCALED_UP]

    swift = plain(scale_down=Rules(timedelta(0), timedelta(0), tolerance=0.1))
    world = World(settings=replace(swift, heartbeat=heartbeat))
    world.fire(DOWN)
    world.look()
    assert [entry.reason for entry in world.store.entries] == [Reason.SAFE_MODE]
    assert under(world, world.settings).differences == ()
    found = under(world, swift)
    assert [each.decision.reason for each in found.differences] == [Reason.SCALED_DOWN]


def test_a_value_that_was_never_asked_for_is_told_as_missing() -> None:
    """A trigger that is sized in the new file alone has no recorded value, and its name is given."""
    world = World(settings=plain())
    world.fire(UP)
    world.look()
    scale = Scale(Direction.UP, ScaleType.AVERAGE_VALUE, target=8, value_from=ValueFrom(query="load"))
    sized = trigger("scale_up", Direction.UP, scale=scale)
    found = under(world, settings(policy(triggers=(sized,))))
    assert [each.unrecorded for each in found.differences] == [("scale_up",)]
    assert found.differences[0].decision.reason is Reason.VALUE_MISSING


def test_recorded_values_are_used_again() -> None:
    """Another target per replica is judged by the load that was measured."""
    scale = Scale(Direction.UP, ScaleType.AVERAGE_VALUE, target=8, value_from=ValueFrom(query="load"))
    world = World(settings=settings(policy(triggers=(trigger("scale_up", Direction.UP, scale=scale),))))
    world.values.value = 40
    world.fire(UP)
    world.look()
    assert world.store.entries[0].desired == 5
    doubled = trigger("scale_up", Direction.UP, scale=replace(scale, target=10))
    found = under(world, settings(policy(triggers=(doubled,))))
    assert [each.decision.desired for each in found.differences] == [4]


def test_what_the_decision_itself_noted_does_not_count_in_its_replay() -> None:
    """A recommendation that was noted with the decision is the old file's word, and not the past's."""
    scale = Scale(Direction.DOWN, ScaleType.AVERAGE_VALUE, target=8, value_from=ValueFrom(query="load"))
    downs = trigger("scale_down", Direction.DOWN, scale=scale)
    swift = Rules(timedelta(0), timedelta(seconds=60), tolerance=0.1)
    world = World(settings=settings(policy(triggers=(downs,), scale_down=swift)))
    world.server.things[REF.key].replicas = 8
    for load in (30, 45):
        world.values.value = load
        world.fire(DOWN)
        world.look()
        world.clock.tick(61)
    # 45 ÷ (8 × 0.9) is 6.25, so 7; by 10 per replica it is 45 ÷ 9, so 5, as 61 s before.
    assert [entry.desired for entry in world.store.entries if entry.inputs] == [8, 7]
    tighter = trigger("scale_down", Direction.DOWN, scale=replace(scale, target=10))
    found = under(world, settings(policy(triggers=(tighter,), scale_down=swift)))
    assert [each.decision.desired for each in found.differences] == [5]


def test_lines_without_inputs_are_counted_and_not_compared() -> None:
    """Outcomes, failures and lines that an older release wrote hold nothing to decide again."""
    world = busy(World(settings=plain()))
    found = under(world, world.settings)
    assert found.skipped == sum(not entry.inputs for entry in world.store.entries) > 0
    assert found.compared + found.skipped == len(world.store.entries)
    torn = replace(world.store.entries[0], inputs={"observed": {}, "record": {}})
    assert replay([StoredEntry(1, torn)], world.settings) == Replayed(0, 1, ())
