"""The one sequence for one target: what is written, stored and told, in which order, and when it holds."""

from dataclasses import replace
from datetime import timedelta

import pytest

from responder.errors import Conflict, PermanentError, StoreUnavailable, TransientError
from responder.model import Direction, Outcome, OverrideKind, Reason, ScaleType, Silence
from responder.policy import ActionBudget, Scale, ValueFrom
from tests.fakes import REF, T0, Crash, FakeCluster, notification
from tests.responding import DOWN, UP, World, policy, settings, trigger

FORBIDDEN = PermanentError("no right to scale", Reason.FORBIDDEN)
TIMEOUT = TransientError("no answer")


def firing(**fields):
    world = World(**fields)
    world.fire()
    return world


def test_stores_the_intent_then_writes_then_stores_the_outcome():
    """The order of promise 19, with people's word read again between intent and write."""
    world, steps = firing(), []
    world.trace = steps.append
    look = world.look()
    assert look.acted
    assert [step for step in steps if step in ("overrides", "commit", "scale")] == [
        "overrides",
        "commit",
        "overrides",
        "scale",
        "commit",
    ]
    assert world.replicas() == 3
    assert world.outcomes() == [("i1", Outcome.APPLIED)]
    assert world.record().intent is None
    assert list(world.record().ledger.steps.values()) == [1]
    assert world.notebook.entries == world.store.entries


def test_what_shapes_a_decision_is_told_though_it_comes_to_the_same():
    """When the narrower of two pins ends, the sentence names the one that holds now; history has nothing new."""
    world = firing()
    world.override(OverrideKind.PIN, replicas=4)
    world.override(
        OverrideKind.PIN, replicas=4, target=REF.key, created_by="bo", ends_at=T0 + timedelta(seconds=60)
    )
    world.look()
    world.look()
    assert "by bo" in world.record().verdict.message
    lines = len(world.store.entries)
    world.clock.tick(61)
    world.look()
    assert "by ana" in world.record().verdict.message
    assert len(world.store.entries) == lines
    version = world.store.record(REF.key)[1]
    world.look()
    assert world.store.record(REF.key)[1] == version


def test_looks_without_news_write_nothing():
    """History and records take changes of (desired, reason), not looks."""
    world = firing()
    world.look()
    world.look()
    before, version = len(world.store.entries), world.store.record(REF.key)
    for _ in range(3):
        world.clock.tick(1)
        assert not world.look().acted
    assert len(world.store.entries) == before
    assert world.store.record(REF.key) == version
    assert world.replicas() == 3


def watched(world, **shown):
    """The target was looked at, and its watch shows it as it is, or otherwise where said."""
    world.look()
    world.look()
    world.cluster.watched[REF.key] = replace(world.server.read(REF), **shown)
    reads = []
    world.trace = reads.append
    return reads


def test_what_the_watch_shows_is_enough_to_hold():
    """A look that finds nothing to do reads no target, and takes what people have annotated from the watch."""
    world = firing()
    reads = watched(world, annotations={"gpu-responder.io/paused": "yes"})
    assert not world.look().acted
    assert "workload" not in reads
    assert [override.kind for override in world.record().annotated] == [OverrideKind.PAUSE]


def test_nothing_is_written_on_the_watch_s_word():
    """What is to be done is decided again on a live read: here a person has scaled meanwhile, unseen by the watch."""
    stepping = trigger("scale_up", Direction.UP, max_steps=None)
    cooling = replace(policy().scale_up, cooldown=timedelta(seconds=30))
    world = firing(settings=settings(policy(triggers=(stepping,), scale_up=cooling, max_replicas=9)))
    reads = watched(world)
    world.server.replicas_write(REF, 7)
    world.clock.tick(31)
    world.look()
    assert reads.index("workload") < reads.index("commit")
    assert world.record().foreign_at == world.clock.now
    assert world.replicas() in (7, 8)


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({"replicas": 2, "manager": "helm"}, id="it lags behind our own write"),
        pytest.param({"replicas": 7}, id="somebody has scaled"),
        pytest.param({"manager": "kubectl"}, id="somebody has taken the field over"),
        pytest.param({"uid": "other"}, id="it was made anew"),
    ],
)
def test_a_watch_that_shows_something_else_is_no_account_of_it(shown):
    """Effects and foreign changes are told from a live read alone."""
    world = firing()
    before = world.record(), len(world.store.entries)
    reads = watched(world, **shown)
    known = world.record()
    assert not world.look().acted
    assert "workload" in reads
    assert (world.record().replicas, world.record().foreign_at) == (known.replicas, known.foreign_at)
    assert before[0] != known


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"policies": ()}, id="no policy claims it"),
        pytest.param({"allowed_namespaces": ("other",)}, id="its namespace is not allowed"),
    ],
)
def test_of_what_is_left_alone_not_even_the_watch_is_asked(changed, monkeypatch):
    """To ask would begin a watch, and read a namespace, where nobody is to look."""
    world = firing()
    world.look()
    world.settings = replace(world.settings, **changed)
    asked = []
    monkeypatch.setattr(world.cluster, "seen", asked.append)
    assert world.look().reason in (Reason.UNCLAIMED, Reason.NOT_ALLOWED)
    assert asked == []


def test_after_a_failure_the_target_is_read():
    """What the API server refused is not for the watch to allow."""
    world = firing()
    world.cluster.failing["scale"].append(FORBIDDEN)
    reads = watched(world)
    world.clock.tick(1)
    world.look()
    assert world.record().failure is not None
    assert "workload" in reads


def test_a_write_is_looked_at_once_more():
    """Whether somebody reverts a write is noticed within a minute."""
    world = firing()
    assert world.look().look_again_at == T0 + timedelta(seconds=60)


def test_news_of_the_same_alert_does_not_put_that_look_off():
    """A second Alertmanager delivers seconds after the first; the reverting hand is noticed all the same, once."""
    world = firing()
    world.look()
    world.clock.tick(5)
    world.fire()
    assert world.look().look_again_at == T0 + timedelta(seconds=60)
    world.clock.tick(55)
    assert world.look().look_again_at == T0 + timedelta(seconds=5 + 900)


@pytest.mark.parametrize(
    ("step", "count"),
    [
        pytest.param("commit", 1, id="before the intent is stored"),
        pytest.param("committed", 1, id="when the intent is stored"),
        pytest.param("scale", 1, id="before the write"),
        pytest.param("scaled", 1, id="after the write"),
        pytest.param("commit", 2, id="before the outcome is stored"),
        pytest.param("committed", 2, id="when the outcome is stored"),
    ],
)
def test_a_crash_at_any_step_is_mended_by_the_next_look(step, count):
    """One effect and one line that accounts for it, wherever the process dies."""
    world, seen = firing(), []

    def dies(name):
        seen.append(name)
        if seen.count(step) == count and name == step:
            raise Crash

    world.trace = dies
    with pytest.raises(Crash):
        world.look()
    world.trace = lambda name: None
    world.clock.tick(1)
    world.look()
    world.look()
    assert world.replicas() == 3
    assert [outcome for _, outcome in world.outcomes() if outcome is Outcome.APPLIED] == [Outcome.APPLIED]
    assert list(world.record().ledger.steps.values()) == [1]
    assert world.record().intent is None


def test_a_conflict_is_settled_and_then_decided_anew():
    """A status write moves the resourceVersion: nothing was applied, so the write is made again, once."""
    world, done = firing(), []

    def status(name):
        if name == "scale" and not done:
            done.append(name)
            world.server.status_write()

    world.trace = status
    assert world.look().acted
    assert world.replicas() == 3
    assert world.outcomes() == [("i1", Outcome.NOT_APPLIED), ("i2", Outcome.APPLIED)]


def test_a_conflict_with_a_person_respects_the_person():
    """Replicas that somebody set between decision and write are a foreign change, and the step is still ours."""
    world = firing(
        settings=settings(policy(scale_up=replace(policy().scale_up, cooldown=timedelta(seconds=60))))
    )
    done = []

    def person(name):
        if name == "scale" and not done:
            done.append(name)
            world.server.replicas_write(REF, 5)

    world.trace = person
    look = world.look()
    assert (world.replicas(), look.reason) == (5, Reason.COOLDOWN)
    assert Reason.FOREIGN_CHANGE in world.reasons()
    assert world.outcomes() == [("i1", Outcome.NOT_APPLIED)]


def test_gives_up_for_a_moment_when_others_never_stop_changing_the_target():
    """A target that changes faster than it can be written holds no thread."""
    world = firing()
    world.trace = lambda name: world.server.status_write() if name == "scale" else None
    look = world.look()
    assert (look.reason, look.look_again_at) == (Reason.WRITE_CONFLICT, T0 + timedelta(seconds=1))
    assert world.replicas() == 2


def test_a_lost_answer_leaves_the_intent_to_the_next_look():
    """The write took effect unseen: it is found applied, and not made again."""
    world = firing()
    world.cluster.lost["scale"].append(TIMEOUT)
    look = world.look()
    assert look.reason is Reason.API_UNAVAILABLE
    assert look.look_again_at == T0 + timedelta(seconds=2)
    assert world.record().intent is not None
    world.clock.tick(2)
    world.look()
    assert world.replicas() == 3
    assert world.outcomes() == [("i1", Outcome.APPLIED)]
    assert world.record().failure is None


def test_an_unanswered_write_that_did_not_land_is_made_again_under_its_id():
    """It may still land, so the second try is the same intent: whichever lands is one effect."""
    world = firing()
    world.cluster.failing["scale"].append(TIMEOUT)
    world.look()
    world.clock.tick(2)
    world.look()
    assert world.replicas() == 3
    assert world.outcomes() == [("i1", Outcome.APPLIED)]
    assert world.record().ledger.last_up_at == T0 + timedelta(seconds=2)


def test_an_api_server_that_is_down_is_told_once_and_asked_ever_less():
    """Backoff doubles from 2 s to 2 min; history has one line for all of it."""
    world, waits = firing(), []
    for _ in range(9):
        world.cluster.failing["workload"].append(TIMEOUT)
        look = world.look()
        waits.append((look.look_again_at - world.clock.now).total_seconds())
        world.clock.now = look.look_again_at
    assert waits == [2, 4, 8, 16, 32, 64, 120, 120, 120]
    assert world.reasons() == ["ApiUnavailable"]
    assert world.look().acted


def test_a_target_in_backoff_is_left_alone_until_its_time():
    """News for a target whose API calls hang does not occupy another thread."""
    world = firing()
    world.cluster.failing["workload"].append(TIMEOUT)
    world.look()
    steps = []
    world.trace = steps.append
    assert world.look().look_again_at == T0 + timedelta(seconds=2)
    assert "workload" not in steps
    assert world.look(anew=True).acted


def test_retry_after_is_kept_to():
    """The server knows better how long it will be."""
    world = firing()
    world.cluster.failing["workload"].append(TransientError("busy", retry_after=30))
    assert world.look().look_again_at == T0 + timedelta(seconds=30)


def test_a_refused_write_is_told_and_tried_again_after_five_minutes_doubling_to_an_hour():
    """403 will not go away by asking: promise 21."""
    world, waits = firing(), []
    for _ in range(6):
        world.cluster.failing["scale"].append(FORBIDDEN)
        look = world.look()
        waits.append((look.look_again_at - world.clock.now).total_seconds() / 60)
        world.clock.now = look.look_again_at
        world.fire(starts_at=T0)
    assert waits == [5, 10, 20, 40, 60, 60]
    assert world.record().failure.reason is Reason.FORBIDDEN
    assert world.record().verdict.reason is Reason.FORBIDDEN
    assert world.replicas() == 2
    world.look()
    assert world.replicas() == 3
    assert world.record().failure is None


def test_a_refused_write_is_not_tried_again_meanwhile():
    """A repeat of the alert is no reason to ask again what was refused."""
    world = firing()
    world.cluster.failing["scale"].append(FORBIDDEN)
    again = world.look().look_again_at
    steps = []
    world.trace = steps.append
    world.clock.tick(60)
    assert world.look().look_again_at == again
    assert "scale" not in steps


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.look(anew=True), id="a reload"),
        pytest.param(
            lambda world: (world.server.template_write(), world.look()), id="a change of the target"
        ),
    ],
)
def test_a_refused_write_is_tried_again_at_once_on(change):
    """What has changed may have mended it."""
    world = firing()
    world.cluster.failing["scale"].append(FORBIDDEN)
    world.look()
    world.clock.tick(1)
    change(world)
    assert world.replicas() == 3


def test_a_refusal_after_a_lost_answer_is_settled_by_what_is_read():
    """The client tried twice: the first took effect unseen, the second was refused. One effect, accounted for."""
    world = firing()

    class Twice(FakeCluster):
        def scale(self, ref, workload, replicas, *, dry_run=False):
            super().scale(ref, workload, replicas, dry_run=dry_run)
            raise FORBIDDEN

    world.process(Twice(world.server)).reconcile(REF.key, world.clock.now)
    assert world.outcomes() == [("i1", Outcome.APPLIED)]
    assert len(world.server.ours()) == 1


def test_a_target_that_is_gone_is_told_once_and_forgotten_after_a_while():
    """404: one line of history, then ever rarer looks, then no record."""
    world = firing()
    world.look()
    world.server.delete()
    world.clock.tick(60)
    look = world.look()
    assert look.reason is Reason.TARGET_GONE
    for _ in range(20):
        world.clock.now = look.look_again_at
        world.fire(starts_at=T0)
        look = world.look()
        if look.look_again_at is None:
            break
    assert world.store.record(REF.key) is None
    assert world.reasons().count("TargetGone") == 1
    assert world.clock.now - T0 < timedelta(hours=8)


def test_a_target_that_comes_back_is_acted_on():
    """Gone is not for ever: the next look finds it."""
    world = World()
    thing = world.server.things.pop(REF.key)
    world.fire()
    world.look()
    world.server.things[REF.key] = thing
    world.clock.tick(1)
    assert world.look().acted


def test_missing_rights_to_read_pods_are_told():
    """Any permanent error on the way is a reason in the target's explanation."""
    world = firing()
    world.cluster.failing["pods"].append(PermanentError("no right to list pods", Reason.FORBIDDEN))
    look = world.look()
    assert look.reason is Reason.FORBIDDEN
    assert "list pods" in world.record().verdict.message
    assert world.replicas() == 2


OVERRIDES = [
    pytest.param(lambda world: world.override(OverrideKind.PAUSE), id="a pause"),
    pytest.param(lambda world: world.override(OverrideKind.FREEZE), id="a freeze"),
    pytest.param(lambda world: world.override(OverrideKind.PIN, replicas=2, target=REF.key), id="a pin"),
    pytest.param(
        lambda world: world.override(OverrideKind.PAUSE_SCALE_UP, matchers=('namespace="inference"',)),
        id="a pause of one direction in a namespace",
    ),
    pytest.param(
        lambda world: world.store.put_silence(
            Silence("s1", ('alertname="Busy"',), T0, T0 + timedelta(hours=1), "ana", "test", T0)
        ),
        id="a silence",
    ),
    pytest.param(
        lambda world: setattr(world, "settings", replace(world.settings, freeze="an incident")),
        id="a freeze in the policy file",
    ),
]


@pytest.mark.parametrize("said", OVERRIDES)
def test_what_is_said_between_intent_and_write_binds(said):
    """Acknowledged before the write: nothing is written, and the intent is closed."""
    world, done = firing(), []

    def person(name):
        if name == "committed" and not done:
            done.append(name)
            said(world)

    world.trace = person
    look = world.look()
    assert not look.acted
    assert world.replicas() == 2
    assert world.outcomes() == [("i1", Outcome.ABANDONED)]
    assert (world.record().intent, world.record().outstanding) == (None, None)
    assert look.look_again_at <= world.clock.now
    world.look()
    assert world.replicas() == 2


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"target": "other/deployment/x"}, id="for another target"),
        pytest.param({"matchers": ('namespace="training"',)}, id="for another namespace"),
        pytest.param({"starts_at": T0 + timedelta(minutes=5)}, id="for later"),
    ],
)
def test_what_is_said_of_others_does_not_hinder(said):
    """Only an override that is for this target, now, stops its write."""
    world, done = firing(), []

    def person(name):
        if name == "committed" and not done:
            done.append(name)
            world.override(OverrideKind.PAUSE, **said)

    world.trace = person
    assert world.look().acted
    assert world.replicas() == 3


def test_an_override_that_runs_out_while_the_intent_is_stored_does_not_hinder_a_pin():
    """The pin ended between decision and write, so what it ordered is no longer wanted."""
    world, done = World(), []
    world.fire(DOWN)
    world.override(OverrideKind.PIN, replicas=6, target=REF.key, ends_at=T0 + timedelta(seconds=1))

    def slow(name):
        if name == "committed" and not done:
            done.append(name)
            world.clock.tick(2)

    world.trace = slow
    assert not world.look().acted
    assert world.replicas() == 2


def test_the_fence_is_checked_before_the_intent_and_before_the_write():
    """Who has lost the lease stops acting at once, and leaves what it began to the next."""
    world = firing()
    assert world.process(fence=lambda: False).reconcile(REF.key, T0).look_again_at is None
    assert world.record().intent is None
    answers = iter([True, False])
    world.process(fence=lambda: next(answers)).reconcile(REF.key, T0)
    assert world.replicas() == 2
    assert world.record().intent is not None
    world.look()
    assert world.replicas() == 3
    assert world.outcomes() == [("i1", Outcome.APPLIED)]


def test_dry_run_makes_every_step_but_the_write():
    """The server checks it, the shadow ledger keeps its step, history says what would have been."""
    world = firing(settings=settings(policy(dry_run=True)))
    world.look()
    world.look()
    assert world.cluster.rehearsed == [(REF.key, 3)]
    assert world.replicas() == 2
    assert world.server.effects == []
    assert list(world.record().shadow.steps.values()) == [1]
    assert world.record().ledger.steps == {}
    assert [(entry.outcome, entry.dry_run) for entry in world.store.entries if entry.outcome] == [
        (Outcome.DRY_RUN, True)
    ]
    assert world.record().intent is None


def test_dry_run_tells_what_the_server_would_refuse():
    """A missing right shows before it matters."""
    world = firing(settings=settings(policy(dry_run=True)))
    world.cluster.failing["scale"].append(FORBIDDEN)
    assert world.look().reason is Reason.FORBIDDEN
    assert world.record().shadow.steps == {}


def test_an_intent_whose_target_nothing_claims_is_settled_without_a_write():
    """The policy that made it is gone from the file."""
    world = firing()
    world.cluster.failing["scale"].append(TIMEOUT)
    world.look()
    world.settings = settings(policy(matchers=(trigger("other", Direction.UP).matchers)))
    world.clock.tick(2)
    look = world.look()
    assert look.reason is Reason.UNCLAIMED
    assert world.replicas() == 2
    assert world.outcomes() == [("i1", Outcome.ABANDONED)]
    assert world.record().outstanding is not None
    world.server.status_write()
    world.look()
    assert world.record().outstanding is None


def test_a_namespace_that_is_not_allowed_is_not_touched():
    """The API server is not even asked."""
    world = firing(settings=settings(allowed_namespaces=("training",)))
    steps = []
    world.trace = steps.append
    assert world.look().reason is Reason.NOT_ALLOWED
    assert "workload" not in steps
    assert "allowedNamespaces" in world.record().verdict.message


def test_two_processes_at_once_have_one_effect():
    """Both decide on one version of the record: one stores its intent, the other starts over and sees it done."""
    world, inside = firing(), []

    def meanwhile(name):
        if name == "commit" and not inside:
            inside.append(name)
            world.process().reconcile(REF.key, T0)

    world.trace = meanwhile
    world.look()
    assert world.replicas() == 3
    assert world.outcomes() == [("i2", Outcome.APPLIED)]


def test_an_alert_folded_meanwhile_does_not_lose_the_outcome():
    """The outcome is a pure change of whatever the record is by then."""
    world, done = firing(), []

    def folds(name):
        if name == "scaled" and not done:
            done.append(name)
            world.fire({**UP, "pod": "b"})

    world.trace = folds
    world.look()
    assert world.outcomes() == [("i1", Outcome.APPLIED)]
    assert len(world.record().alerts) == 2
    assert world.record().intent is None


def test_the_budget_is_taken_and_waited_for():
    """Of two targets that want to go down with one action left, the second waits and says so."""
    limits = {Direction.DOWN: ActionBudget(1, timedelta(seconds=60))}
    world = World(settings=settings(budgets=limits))
    other = replace(REF, name="b")
    world.server.add(other, 4)
    world.fire(DOWN)
    world.tell(notification({**DOWN, "workload": "b"}), ref=other)
    assert world.look().acted
    look = world.look(other)
    assert (look.reason, world.replicas(other)) == (Reason.BUDGET_SPENT, 4)
    assert world.budget.next_served(T0 + timedelta(seconds=59)) == []
    world.clock.tick(60)
    assert world.budget.next_served(world.clock.now) == [other.key]
    assert world.look(other).acted


def test_a_pin_is_not_held_by_the_budget():
    """What a person has ordered is done."""
    limits = {Direction.DOWN: ActionBudget(0, timedelta(seconds=60))}
    world = firing(settings=settings(budgets=limits))
    world.override(OverrideKind.PIN, replicas=1, target=REF.key)
    world.look()
    assert world.replicas() == 1


def sized(**source):
    """A policy sized to a query or an annotation: 8 requests a replica."""
    scale = Scale(Direction.UP, ScaleType.AVERAGE_VALUE, target=8, value_from=ValueFrom(**source))
    return settings(policy(triggers=(trigger("scale_up", Direction.UP, scale=scale),)))


def test_a_sized_trigger_asks_its_query_when_deciding():
    """40 requests at 8 a replica want 5 of them; the alert's labels are in the query, escaped."""
    world = World(settings=sized(query='inflight{workload="{{ $labels.workload }}"}'))
    world.fire()
    world.values.value = 40.0
    world.look()
    assert world.values.asked == ['inflight{workload="vllm"}']
    assert world.replicas() == 5


@pytest.mark.parametrize(
    ("text", "replicas"),
    [
        pytest.param("40", 5, id="a number is taken"),
        pytest.param("NaN", 2, id="NaN holds"),
        pytest.param("+Inf", 2, id="infinity holds"),
        pytest.param("many", 2, id="words hold"),
        pytest.param(None, 2, id="absence holds"),
    ],
)
def test_a_sized_trigger_takes_an_annotation_that_is_a_number(text, replicas):
    """Anything else is a missing value, never zero."""
    world = World(settings=sized(annotation="total"))
    world.fire(annotations={} if text is None else {"total": text})
    world.look()
    assert world.replicas() == replicas
    if replicas == 2:
        assert world.record().verdict.reason is Reason.VALUE_MISSING


def test_a_revert_is_respected_once_and_named_the_second_time():
    """A GitOps controller that undoes our writes wins, and the target says who it is."""
    up = trigger("scale_up", Direction.UP, max_steps=None)
    world = firing(settings=settings(policy(triggers=(up,))))
    world.look()
    world.server.replicas_write(REF, 2, "argocd-controller")
    world.clock.tick(60)
    world.look()
    world.server.replicas_write(REF, 2, "argocd-controller")
    world.clock.tick(60)
    look = world.look()
    assert look.reason is Reason.REVERTED
    assert "argocd-controller" in world.record().verdict.message
    assert world.reasons().count("ForeignChange") == 2


def test_a_store_that_fails_after_the_write_leaves_the_intent():
    """The outcome could not be kept; the next look finds it out from the server."""
    world = firing()

    def down(name):
        if name == "scaled":
            world.store.down = "disk full"

    world.trace = down
    with pytest.raises(StoreUnavailable):
        world.look()
    world.store.down = ""
    world.trace = lambda name: None
    world.look()
    assert world.outcomes() == [("i1", Outcome.APPLIED)]
    assert len(world.server.ours()) == 1


def test_what_is_long_over_is_forgotten():
    """A target whose alerts resolved half a day ago leaves no record behind."""
    world = firing()
    world.look()
    world.resolve()
    world.look()
    world.clock.tick(12 * 3600)
    world.look()
    assert world.store.record(REF.key) is None


def test_a_zero_that_a_pin_wrote_is_given_back_when_its_alerts_are_long_forgotten():
    """At the pin's end the target returns to the earlier count, though nothing has fired for a day."""
    world = firing()
    world.override(OverrideKind.PIN, replicas=0, target=REF.key, force=True, ends_at=T0 + timedelta(hours=24))
    world.look()
    assert world.replicas() == 0
    world.resolve()
    world.clock.tick(24 * 3600 + 1)
    world.look()
    assert world.replicas() == 2
    world.look()
    assert world.store.record(REF.key) is None


def test_an_unknown_key_is_nothing():
    """A wake for a target without a record costs one read."""
    assert World().look().look_again_at is None


def test_history_has_what_a_replay_needs():
    """The line of a decision carries what was observed and known."""
    world = firing()
    world.look()
    inputs = world.store.entries[0].inputs
    assert inputs["observed"].workload.replicas == 2
    assert list(inputs["record"].alerts) == ["Busy-scale_up-inference-vllm-deployment"]


def test_conflicts_on_the_record_do_not_starve_the_look():
    """A commit that meets a change made meanwhile starts over on what is there then."""
    world, left = firing(), [2]

    def busy(name):
        if name == "commit" and left[0]:
            left[0] -= 1
            raise Conflict("somebody was faster")

    world.trace = busy
    assert world.look().acted
    assert len(world.server.ours()) == 1
