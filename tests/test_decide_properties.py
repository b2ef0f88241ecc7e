"""What holds for every decision, whatever is thrown at it."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from responder.decide import decide
from responder.ledger import charge, note
from responder.model import (
    ActiveHold,
    Budget,
    Change,
    Direction,
    Intent,
    Ledger,
    Observed,
    Override,
    OverrideKind,
    Ownership,
    Pods,
    Reason,
    Recommendation,
    Record,
    Reverts,
    ScaleType,
    Silence,
    Span,
    Value,
    Workload,
)
from responder.policy import Capacity, Policy, RatePolicy, Rules, SelectPolicy, Trigger
from tests.deciding import REF, at, episode_id, override, policy, record, silence, span, trigger

NAMES = ("a", "b", "c", "d")
SECONDS = st.integers(-1000, 30).map(float)
LENGTHS = st.sampled_from([0, 15, 60, 300, 600]).map(lambda length: timedelta(seconds=length))
DIRECTIONS = st.sampled_from(Direction)

triggers = st.builds(
    lambda name, way, kind, value, target, steps, back: trigger(
        name, way, kind, value, target=target, steps=steps, fallback=back
    ),
    st.just(""),
    DIRECTIONS,
    st.sampled_from(ScaleType),
    st.integers(1, 12),
    st.sampled_from([0.5, 1, 8]),
    st.sampled_from([None, 1, 2]),
    st.none() | st.just((ScaleType.PERCENT, 50, 60)),
)
rates = st.builds(
    RatePolicy,
    st.sampled_from([ScaleType.PODS, ScaleType.PERCENT]),
    st.sampled_from([1, 2, 50, 100]),
    st.sampled_from([15, 60, 120]).map(lambda length: timedelta(seconds=length)),
)
rules = st.builds(
    Rules,
    LENGTHS,
    LENGTHS,
    st.lists(rates, max_size=2).map(tuple),
    st.sampled_from([SelectPolicy.MAX, SelectPolicy.MAX, SelectPolicy.MIN, SelectPolicy.DISABLED]),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    chosen: list[Trigger] = [replace(draw(triggers), name=name) for name in NAMES]
    named = [replace(each, matchers=trigger(each.name, Direction.UP).matchers) for each in chosen]
    least, most = sorted((draw(st.integers(0, 12)), draw(st.integers(1, 12))))
    return policy(
        *named,
        min_replicas=least,
        max_replicas=most,
        scale_up=draw(rules),
        scale_down=draw(rules),
        dry_run=draw(st.booleans()),
        wake_from_zero=draw(st.booleans()),
        capacity=draw(st.sampled_from(Capacity)),
    )


@st.composite
def spans(draw: st.DrawFn, name: str) -> Span:
    return span(
        name,
        heard=draw(st.sampled_from([-25000, -22480, -20000, -890, -30, 0])),
        opened_at=at(-30000),
        firing=draw(st.sampled_from([True, True, True, False])),
        suppressed=draw(st.sampled_from([False, False, False, True])),
    )


changes = st.lists(st.tuples(SECONDS, st.integers(0, 12), st.integers(0, 12)), max_size=3)
steps = st.lists(st.tuples(SECONDS, st.none() | st.integers(0, 12)), max_size=3)


@st.composite
def ledgers(draw: st.DrawFn, episodes: list[str]) -> Ledger:
    return Ledger(
        steps={name: draw(st.integers(0, 2)) for name in episodes},
        changes=tuple(
            Change(at(when), before, after, str(index))
            for index, (when, before, after) in enumerate(sorted(draw(changes)))
        ),
        recommendations=tuple(
            Recommendation(at(when), number) for when, number in sorted(draw(steps), key=lambda s: s[0])
        ),
        last_up_at=draw(st.none() | SECONDS.map(at)),
        last_down_at=draw(st.none() | SECONDS.map(at)),
        last_up_to=draw(st.none() | st.integers(0, 12)),
    )


@st.composite
def records(draw: st.DrawFn, pol: Policy) -> Record:
    names = draw(st.sets(st.sampled_from(NAMES)))
    rec = record(*sorted(names), pol=pol)
    episodes = [episode_id(rec, name) for name in sorted(names)]
    return replace(
        rec,
        alerts={name: draw(spans(name)) for name in sorted(names)},
        ledger=draw(ledgers(episodes)),
        shadow=draw(ledgers(episodes)),
        foreign_at=draw(st.none() | SECONDS.map(at)),
        reverts=draw(st.none() | st.just(Reverts(2, at(-60), "argocd", at(540)))),
        zero_from=draw(st.none() | st.integers(1, 12)),
        missing=draw(st.dictionaries(st.sampled_from(NAMES), SECONDS.map(at))),
    )


times = st.sampled_from([-500, -10, 20, 70, 400])


@st.composite
def overrides(draw: st.DrawFn) -> Override:
    start, end = sorted((draw(times), draw(times) + 1))
    return override(
        draw(st.sampled_from(OverrideKind)),
        since=start,
        until=end,
        id=draw(st.sampled_from(["x", "y"])),
        target=draw(st.sampled_from(["", REF.key])),
        replicas=draw(st.integers(0, 14)),
        min_replicas=draw(st.none() | st.integers(0, 6)),
        max_replicas=draw(st.none() | st.integers(6, 14)),
    )


@st.composite
def silences(draw: st.DrawFn) -> Silence:
    start, end = sorted((draw(times), draw(times) + 1))
    return silence(f'alertname="{draw(st.sampled_from(NAMES))}"', since=start, until=end)


values = st.builds(
    Value,
    st.none() | st.sampled_from([0.0, 0.3, 0.9, 5.0, 40.0, 90.0, float("nan")]),
    st.sampled_from([-290, -5, 0]).map(at),
)


@st.composite
def seen(draw: st.DrawFn) -> Observed:
    replicas = draw(st.integers(0, 14))
    rare = st.sampled_from([False, False, False, False, True])
    return Observed(
        workload=Workload("u1", 1, "1", replicas),
        pods=Pods(draw(st.integers(0, replicas)), replicas, draw(st.sampled_from([0, 0, 0, 1]))),
        ownership=Ownership(owner="HPA x" if draw(rare) else "", known=not draw(rare)),
        values=draw(st.dictionaries(st.sampled_from(NAMES), values)),
        holds=tuple(
            ActiveHold("h", way, "Hot", at(-60))
            for way in draw(st.lists(DIRECTIONS, max_size=1))
            if draw(rare)
        ),
        overrides=tuple(draw(st.lists(overrides(), max_size=2))) if draw(rare) else (),
        silences=tuple(draw(st.lists(silences(), max_size=2))) if draw(rare) else (),
        freeze="stop" if draw(rare) else "",
        safe_mode="no heartbeat" if draw(rare) else "",
        budget=Budget(up=0, up_until=at(40)) if draw(rare) else Budget(),
        schedulable=draw(st.none() | st.integers(0, 5)),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Policy, Observed, Record]:
    pol = draw(policies())
    return pol, draw(seen()), draw(records(pol))


CASES = cases()
PIN_REASONS = (Reason.PINNED, Reason.PIN_ENDED)


def bounds(pol: Policy, found: Observed) -> tuple[int, int]:
    """The widest that policy and overrides allow between them."""
    least = [
        pol.min_replicas,
        *(each.min_replicas for each in found.overrides if each.min_replicas is not None),
    ]
    most = [
        pol.max_replicas,
        *(each.max_replicas for each in found.overrides if each.max_replicas is not None),
    ]
    return min(*least, *most), max(most)


@settings(max_examples=150)
@given(CASES)
def test_every_decision_is_sound(case: tuple[Policy, Observed, Record]) -> None:
    """Within bounds, never against the direction that was asked for, never acting while told not to."""
    pol, found, rec = case
    decision = decide(pol, found, rec, at(0))
    current, desired = found.workload.replicas, decision.desired
    least, most = bounds(pol, found)
    assert decision.current == current
    assert decision.acts == (decision.reason in (Reason.SCALED_UP, Reason.SCALED_DOWN) or desired != current)
    assert decision.message.count("\n") == 0
    assert decision.message.startswith("Scaling" if decision.acts else "Holding")
    assert decision.chain[-1].replicas == desired
    if desired > current:
        assert desired <= most
        clipped = pol.capacity is Capacity.CLIP and found.schedulable is not None
        # Free GPUs are a limit that no minimum moves.
        assert desired >= least or (clipped and desired == current + (found.schedulable or 0))
    if desired < current:
        assert desired >= least
    if decision.reason is Reason.SCALED_UP:
        assert desired > current
    if decision.reason is Reason.SCALED_DOWN:
        assert desired < current
    if decision.acts and decision.reason not in PIN_REASONS:
        by = next(each for each in pol.triggers if each.name == decision.trigger)
        assert (desired > current) == (by.scale.direction is Direction.UP)
        assert not found.freeze
        assert found.ownership == Ownership()
        assert rec.reverts is None
    if found.freeze and decision.reason is Reason.PIN_ENDED:
        raise AssertionError("a frozen target does not move by itself")


@settings(max_examples=150)
@given(CASES)
def test_an_up_alert_of_any_kind_forbids_down(case: tuple[Policy, Observed, Record]) -> None:
    """Firing, silenced or unknown: nothing but a pin goes down then."""
    pol, found, rec = case
    ups = {each.name for each in pol.triggers if each.scale.direction is Direction.UP}
    alive = [each for name, each in rec.alerts.items() if name in ups and each.firing]
    known = [each for each in alive if each.last_seen_at > at(-22500)]
    decision = decide(pol, found, rec, at(0))
    if known and decision.reason not in PIN_REASONS:
        assert decision.desired >= decision.current


@settings(max_examples=150)
@given(CASES, st.lists(st.floats(0, 1), max_size=4))
def test_nothing_changes_before_the_look_again(
    case: tuple[Policy, Observed, Record], fractions: list[float]
) -> None:
    """look_again_at is sound: until then, unchanged inputs give the same answer; None is for ever."""
    pol, found, rec = case
    decision = decide(pol, found, rec, at(0))
    until = decision.look_again_at or at(40000)
    moments = [at(0) + (until - at(0)) * fraction for fraction in fractions]
    moments += [until - timedelta(microseconds=1)]
    noted = note(rec, decision, at(0), pol.dry_run)
    for moment in moments:
        if moment >= until:
            continue
        for kept in (rec, noted):
            later = decide(pol, found, kept, max(moment, at(0)))
            assert (later.desired, later.reason) == (decision.desired, decision.reason), moment


@settings(max_examples=60)
@given(CASES)
def test_what_no_trigger_asked_for_is_recorded_as_what_is_there(
    case: tuple[Policy, Observed, Record],
) -> None:
    """And what was asked for is recorded whatever stopped it, and noting a look twice changes nothing."""
    pol, found, rec = case
    decision = decide(pol, found, rec, at(0))
    if decision.reason in (Reason.SCALED_UP, Reason.SCALED_DOWN):
        assert decision.recommendation is not None
    if not any(each.firing for each in rec.alerts.values()):
        assert decision.recommendation is None
    noted = note(rec, decision, at(0), pol.dry_run)
    assert note(noted, decision, at(0), pol.dry_run) == noted
    again = decide(pol, found, noted, at(0))
    assert replace(again, look_again_at=None) == replace(decision, look_again_at=None)


def _acted(pol: Policy, rec: Record, decision: Any, now: float) -> Record:
    intent = Intent(
        f"i{now}", "u1", decision.current, decision.desired, "", 1, "", at(now), decision.reason, "",
        episode=decision.episode,
    )  # fmt: skip
    return charge(rec, intent, dry_run=pol.dry_run)


@settings(max_examples=60)
@given(CASES)
def test_an_hour_of_looks_keeps_every_rate_and_cooldown(case: tuple[Policy, Observed, Record]) -> None:
    """Followed from look to look, no period sees more than its policies allow, and cooldowns are kept."""
    pol, found, rec = case
    pol = replace(pol, dry_run=False)
    rec, now, done = replace(rec, ledger=Ledger()), 0.0, []
    for _ in range(40):
        decision = decide(pol, found, rec, at(now))
        rec = note(rec, decision, at(now))
        if decision.acts:
            done.append((now, decision))
            rec = _acted(pol, rec, decision, now)
            found = replace(found, workload=replace(found.workload, replicas=decision.desired))
        following = decision.look_again_at
        if following is None or now > 3600:
            break
        now = max((following - at(0)).total_seconds(), now + 0.5)
    ours = [(when, each) for when, each in done if each.reason in (Reason.SCALED_UP, Reason.SCALED_DOWN)]
    for (earlier, first), (later, second) in pairwise(ours):
        up = second.desired > second.current
        if up and first.desired > first.current:
            assert later - earlier >= pol.scale_up.cooldown.total_seconds()
        if not up:
            assert later - earlier >= pol.scale_down.cooldown.total_seconds()
