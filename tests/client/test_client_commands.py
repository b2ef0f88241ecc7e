"""The commands against the application and a real store: what is shown, what is changed, what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from responder.client.times import absolute
from responder.model import Commit, Failure, Outcome, OverrideKind, Reason, TargetRef
from responder.store import HistoryFilter
from tests.client.client_world import World, applied, scripted, verdict, world
from tests.serving import free_port
from tests.web.people import OTHER, TRITON, VLLM


@pytest.fixture
def at(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def known(at: World) -> World:
    """Three targets, one of them in trouble."""
    busy = "Holding inference/deployment/vllm at 3: Busy fires, and scale-up waits 60 s."
    at.made.know(VLLM, replicas=3, ready=2, verdict=verdict(3, 3, Reason.COOLDOWN, busy))
    at.made.know(TRITON, replicas=2, ready=2, verdict=verdict(2, 2, Reason.NOTHING_FIRING))
    now = datetime.now(UTC)
    failure = Failure(Reason.FORBIDDEN, "may not scale it", now, now + timedelta(minutes=5), 3)
    at.made.know(OTHER, failure=failure)
    return at


class TestTargets:
    def test_shows_all_of_them_the_urgent_first(self, known: World) -> None:
        """One line each, whole when piped, with state, counts, bounds, reason and the sentence without its name."""
        lines = known.shell.run("targets").stdout.splitlines()
        assert [line.split()[0] for line in lines[1:]] == [OTHER.key, VLLM.key, TRITON.key]
        assert lines[2].split()[1:6] == ["limited", "2/3", "-", "3", "1..8"]
        assert lines[2].endswith("  Busy fires, and scale-up waits 60 s.")
        assert lines[1].endswith("may not scale it")

    def test_a_count_that_is_old_says_so(self, known: World) -> None:
        """In the table and in detail, and with no word while it is new."""
        now = datetime.now(UTC)
        for target, minutes in ((VLLM, 1), (TRITON, 5)):
            record, version = known.made.store.record(target.key)  # type: ignore[misc]
            since = now - timedelta(minutes=minutes)
            counted = replace(record, failure=Failure(Reason.API_UNAVAILABLE, "no answer", since, now))
            known.made.store.commit(Commit(records=((counted, version),)))
        *_, head, vllm, triton, _ = known.shell.run("targets").stdout.splitlines()
        assert head.split()[2:4] == ["READY", "COUNTED"]
        assert (vllm.split()[3], triton.split()[3:5]) == ("-", ["5m", "ago"])
        assert "  2, 2 ready (counted 5m ago); " in known.shell.run("targets", "triton").stdout
        assert "counted" not in known.shell.run("targets", "vllm").stdout

    @pytest.mark.parametrize(
        "options", [["--namespace", "nosuch"], ["--state", "up"], ["--kind", "rollout*"], ["zz*"]]
    )
    def test_that_do_not_fit_are_no_reason_to_believe_that_there_are_none(
        self, known: World, options: list[str]
    ) -> None:
        """A filter may be misspelt."""
        told = known.shell.run("targets", *options).stdout
        assert told == "No target fits: gpu-responder targets alone lists all that are known.\n"

    def test_can_be_narrowed(self, known: World) -> None:
        """By namespace, kind and state, and by a name with a star in it."""
        shown = lambda *options: [each["target"] for each in known.shell.json("targets", *options)["targets"]]  # noqa: E731
        assert shown("-n", "team-*") == [OTHER.key]
        assert shown("--kind", "statefulset") == [TRITON.key]
        assert shown("--state", "limited") == [VLLM.key]
        assert shown("vllm*") == [VLLM.key, OTHER.key]
        assert shown("inference/*") == [VLLM.key, TRITON.key]

    def test_says_so_when_there_are_none(self, at: World) -> None:
        """An empty service is no error."""
        assert (
            "No target is known: one is known once an alert for it has arrived."
            in at.shell.run("targets").stdout
        )

    def test_puts_a_freeze_above_all(self, known: World) -> None:
        """What concerns every target is read first."""
        known.made.source.current = replace(known.made.source.current, freeze="moving racks", dry_run=True)
        lines = known.shell.run("targets").stdout.splitlines()
        assert lines[0] == "FROZEN by the policy file: moving racks"
        assert "DRY RUN: nothing is written" in lines

    @pytest.mark.parametrize(
        "name", ["vllm", "inference/vllm", "inference/deployment/vllm", "inference/deploy/vllm"]
    )
    def test_explains_one_by_any_of_its_names(self, known: World, name: str) -> None:
        """State, sentence, since when, when it looks again, alerts, overrides and the last decisions."""
        known.decided(current=3, desired=3)
        known.shell.run("override", "add", "pauseScaleDown", "vllm", "--for", "2h", "--comment", "rollout")
        shown = known.shell.run("targets", name).stdout
        for part in (
            "inference/deployment/vllm  limited",
            "Holding inference/deployment/vllm at 3: Busy fires, and scale-up waits 60 s.",
            "3, 2 ready; 1 to 8 allowed",
            "Cooldown, since ",
            "(4m ago)",
            "looks again  ",
            "(in 4",
            "Busy   firing  up ",
            "pause down",
            "rollout",
            "LAST DECISIONS",
        ):
            assert part in shown
        assert known.shell.json("targets", name)["target"] == VLLM.key

    def test_explains_what_fails(self, known: World) -> None:
        """The failure's sentence, since when, how often and when it tries again."""
        shown = known.shell.run("targets", "vllm-large").stdout
        assert "Forbidden: may not scale it" in shown
        assert "3 tries; again " in shown

    def test_unknown_ones_get_near_matches(self, known: World) -> None:
        """The sentence names what may be meant, whichever part was mistyped."""
        meant = "did you mean inference/deployment/vllm?"
        assert known.shell.fails("targets", "vlm") == f"no target vlm is known; {meant}"
        assert meant in known.shell.fails("targets", "inference/vlm")
        assert "did you mean inference/deployment/vllm?" in known.shell.fails("targets", "infrence/vllm")
        assert "did you mean inference/deployment/vllm" in known.shell.fails(
            "targets", "other/deployment/vllm"
        )
        assert "gpu-responder targets lists those that are." in known.shell.fails("targets", "zzzzzz")
        assert "names no target: write namespace/kind/name" in known.shell.fails("targets", "a//b")

    def test_a_name_that_may_be_several_lists_them(self, known: World) -> None:
        """Nothing is guessed."""
        known.made.know(TargetRef("team-a", "Deployment", "vllm"))
        told = known.shell.fails("targets", "vllm")
        assert told == "vllm may mean inference/deployment/vllm, team-a/deployment/vllm: say which"


class TestHistory:
    def test_shows_what_was_decided_newest_first(self, known: World) -> None:
        """Each line has id, time, change, reason, outcome and sentence."""
        known.decided(current=3, desired=5, ago=120, **applied())
        known.decided(current=5, desired=5, ago=60, target=TRITON)
        lines = known.shell.run("history").stdout.splitlines()
        assert lines[1].split()[0] == "2"
        assert "1m  inference/statefulset/triton  5       Cooldown" in lines[1]
        assert "2m  inference/deployment/vllm     3 → 5   ScaledUp  applied  Scaling" in lines[2]

    def test_can_be_narrowed(self, known: World) -> None:
        """By target, reason, age and number."""
        known.decided(ago=7200)
        known.decided(current=5, desired=5, ago=60)
        known.decided(current=2, desired=2, ago=30, target=TRITON)
        ids = lambda *options: [each["id"] for each in known.shell.json("history", *options)["decisions"]]  # noqa: E731
        assert ids() == [3, 2, 1]
        assert ids("vllm") == ids("inference/vllm") == ids("inference/deployment/vllm") == [2, 1]
        assert ids("--reason", "scaled-up") == [1]
        assert ids("--since", "1h") == [3, 2]
        assert ids("--limit", "1") == [3]

    def test_of_a_target_that_is_gone_can_be_read(self, at: World) -> None:
        """A record is forgotten long before its history."""
        at.decided()
        assert "Busy fires." in at.shell.run("history", "vllm").stdout

    def test_of_an_unknown_target_is_an_error(self, known: World) -> None:
        """And not an empty table: the name was mistyped."""
        assert "did you mean inference/deployment/vllm?" in known.shell.fails("history", "vlm")
        assert "Nothing was decided" in known.shell.run("history", "vllm").stdout

    def test_an_unknown_reason_gets_near_ones(self, at: World) -> None:
        """It is wrong usage, so the status is 2."""
        told = at.shell.fails("history", "--reason", "colldown", status=2)
        assert "'colldown' is no reason; did you mean Cooldown" in told


class TestOverrides:
    def add(self, at: World, *arguments: str, **more: Any) -> str:
        return at.shell.run(
            "override", "add", *arguments, "--for", "2h", "--comment", "load test", **more
        ).stdout

    @pytest.mark.parametrize(
        ("arguments", "told", "kept"),
        [
            (["pin", "vllm", "--replicas", "3"], "Pinned inference/deployment/vllm at 3", {"replicas": 3}),
            (["pause", "vllm"], "Paused inference/deployment/vllm", {"kind": "pause"}),
            (["pause-scale-up", "vllm"], "Paused scale-up of inference/", {"kind": "pauseScaleUp"}),
            (["pauseScaleDown", "vllm"], "Paused scale-down of inference/", {"kind": "pauseScaleDown"}),
            (["bounds", "vllm", "--min", "2", "--max", "6"], "Set minReplicas 2 and maxReplicas 6 for inference/",
             {"minReplicas": 2, "maxReplicas": 6}),
            (["pause", "-m", 'namespace="inference"', "-m", "name=~v.*"],
             'Paused namespace="inference", name=~"v.*"', {"target": ""}),
            (["pin", "vllm", "--replicas", "20", "--force"], "Pinned", {"replicas": 20, "force": True}),
        ],
    )  # fmt: skip
    def test_are_added(self, known: World, arguments: list[str], told: str, kept: dict[str, Any]) -> None:
        """The sentence says what, for whom and until when, and how to end it early."""
        shown = self.add(known, *arguments)
        assert shown.startswith(told)
        assert "(in 2h)." in shown
        (made,) = known.shell.json("override", "list")["overrides"]
        assert {key: made[key] for key in kept} == kept
        assert (made["comment"], made["createdBy"]) == ("load test", "ana")
        assert f"gpu-responder override expire {made['id']}" in shown

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["pin", "vllm"], "pin needs --replicas."),
            (["pause", "vllm", "--replicas", "3"], "--replicas goes with pin only."),
            (["pause", "vllm", "--force"], "--force goes with pin only."),
            (["bounds", "vllm"], "bounds needs --min, --max or both."),
            (["pin", "vllm", "--replicas", "3", "--min", "1"], "--min and --max go with bounds only."),
            (["bounds", "vllm", "--min", "4", "--max", "2"], "--min 4 is above --max 2."),
            (["pause"], "Say for what: either a TARGET or --matcher"),
            (["pause", "vllm", "-m", "a=b"], "Say for what: either a TARGET or --matcher"),
            (["pinn", "vllm"], "'pinn' is none of pin, pause, pauseScaleUp, pauseScaleDown, bounds; did you mean pin?"),
            (["pause", "-m", "a"], "atcher"),
            (["pause", "vllm", "--until", "18:30"], "Say when it ends: either --for 2h or --until 18:30."),
        ],
    )  # fmt: skip
    def test_wrong_usage_is_told_before_anything_is_sent(
        self, at: World, arguments: list[str], told: str
    ) -> None:
        """Status 2, and a sentence with the mend."""
        at.shell.url = f"http://127.0.0.1:{free_port()}"
        base = ["override", "add", *arguments, "--for", "2h", "--comment", "x"]
        assert told in at.shell.fails(*base, status=2)

    def test_an_end_and_a_reason_are_required(self, at: World) -> None:
        """Nobody has to remember to undo it, and the next on call reads why."""
        assert "Say when it ends" in at.shell.fails(
            "override", "add", "pause", "x", "--comment", "x", status=2
        )
        assert "--comment" in at.shell.fails("override", "add", "pause", "x", "--for", "2h", status=2)
        told = at.shell.fails("override", "add", "pause", "x", "--for", "2", "--comment", "x", status=2)
        assert "'2' is no length of time: write it like 30m, 2h, 1h30m or 3d." in told

    def test_what_the_service_refuses_is_told_in_its_words(self, known: World) -> None:
        """A pin outside min..max names both numbers; an unknown target what may be meant."""
        told = known.shell.fails(
            "override", "add", "pin", "vllm", "--replicas", "30", "--for", "2h", "--comment", "x"
        )
        assert "minReplicas 1 and maxReplicas 8" in told
        told = known.shell.fails("override", "add", "pause", "vlm", "--for", "2h", "--comment", "x")
        assert "did you mean inference/deployment/vllm?" in told

    def test_for_a_target_that_is_not_known_yet_is_kept_and_told(self, known: World) -> None:
        """It is legitimate before a rollout, and a slip otherwise."""
        result = known.shell.run(
            "override", "add", "pause", "inference/deployment/new", "--for", "2h", "--comment", "x"
        )
        assert "Note: no alert of inference/deployment/new is known" in result.stderr

    def test_end_when_told_to_by_a_part_of_the_id(self, known: World) -> None:
        """The first characters are enough while they are unique."""
        self.add(known, "pin", "vllm", "--replicas", "3")
        made = known.shell.json("override", "list")["overrides"][0]
        shown = known.shell.run("override", "expire", made["id"][:6], "--comment", "test over").stdout
        assert shown == (
            "Ended pin at 3 of inference/deployment/vllm (load test); the next decision goes without it.\n"
        )
        assert known.made.store.audits(1)[0].comment == "test over"
        assert "No override is in force" in known.shell.run("override", "list").stdout
        assert made["id"] in known.shell.run("override", "list", "--ended").stdout
        assert "no override zzz is in force or to come" in known.shell.fails("override", "expire", "zzz")

    def test_list_shows_what_for_whom_until_when_and_why(self, known: World) -> None:
        """One line each."""
        self.add(known, "bounds", "vllm", "--max", "6")
        line = known.shell.run("override", "list").stdout.splitlines()[1]
        assert "bounds ..6  inference/deployment/vllm  active  in " in line
        assert line.endswith("ana  load test")

    def test_no_id_is_the_beginning_of_none(self, at: World) -> None:
        """An empty variable of a script must not end the only one that is in force."""
        at.shell.run("override", "add", "pause", VLLM.key, "--for", "2h", "--comment", "x")
        assert at.shell.fails("override", "expire", "") == (
            "the ID is empty: gpu-responder override list shows them"
        )
        at.shell.run("silence", "add", "Busy", "--for", "2h", "--comment", "x")
        assert at.shell.fails("silence", "expire", " ").startswith("the ID is empty")
        assert all(each.expired_at is None for each in at.made.store.overrides())
        assert len(at.made.store.silences()) == 1


class TestFreeze:
    @pytest.mark.parametrize(
        ("options", "matchers"),
        [
            (["--all"], []),
            (["-n", "team-a"], ['namespace="team-a"']),
            (["-n", "team-a", "-n", "team.b"], ['namespace=~"team-a|team\\\\.b"']),
            (["-n", "team-*"], ['namespace=~"team-.*"']),
            (["-n", "team-?", "-n", "a.b"], ['namespace=~"team-.|a\\\\.b"']),
            (["--policy", "inference"], ['policy="inference"']),
            (["--policy", "all *"], ['policy="all *"']),
        ],
        ids=[
            "everything",
            "one namespace",
            "two of them, taken literally",
            "a glob",
            "a glob and one",
            "a policy",
            "a policy of an odd name",
        ],
    )
    def test_stops_what_it_is_told_to(self, at: World, options: list[str], matchers: list[str]) -> None:
        """At once, with a reason and an end."""
        shown = at.shell.run("freeze", *options, "--for", "2h", "--comment", "fire").stdout
        assert shown.startswith("Froze ")
        (kept,) = at.made.store.overrides()
        assert (kept.kind, list(kept.matchers), kept.comment) == (OverrideKind.FREEZE, matchers, "fire")

    def test_does_not_guess_what(self, at: World) -> None:
        """Neither nothing nor two of them."""
        for options in ([], ["--all", "-n", "x"]):
            told = at.shell.fails("freeze", *options, "--for", "2h", "--comment", "x", status=2)
            assert "Say what to freeze: one of --all, --namespace or --policy." in told
        told = at.shell.fails("freeze", "-n", "", "--for", "2h", "--comment", "x", status=2)
        assert "--namespace is empty: name one, or freeze everything with --all." in told
        assert at.made.store.overrides() == ()


class TestUndo:
    def test_pins_the_earlier_count_and_says_what_it_undid(self, known: World) -> None:
        """The exact words: which decision, from where to where, when, and until when it holds."""
        number = known.decided(current=3, desired=5, ago=240, **applied())
        result = known.shell.run("undo", str(number))
        at = known.made.store.history(HistoryFilter(id=number))[0].entry.at
        (pin,) = known.made.store.overrides()
        now = pin.starts_at
        assert result.stdout.splitlines()[0] == (
            f"Undid decision {number}, which scaled inference/deployment/vllm from 3 to 5 at "
            f"{absolute(at, now)} (4m ago): pinned at 3 until {absolute(pin.ends_at, now)} (in 1h)."
        )
        assert (pin.kind, pin.target, pin.replicas) == (OverrideKind.PIN, VLLM.key, 3)
        assert pin.comment == f"Undo of decision {number}: ScaledUp from 3 to 5"
        assert pin.ends_at - pin.starts_at == timedelta(hours=1)

    def test_says_where_it_had_gone_since(self, known: World) -> None:
        """Whoever undoes an old decision learns what else goes with it."""
        number = known.decided(current=1, desired=2, **applied())
        result = known.shell.run("undo", str(number), "--for", "30m", "--comment", "costs")
        assert "Note: since that decision it had gone on to 3." in result.stderr
        (pin,) = known.made.store.overrides()
        assert (pin.comment, pin.ends_at - pin.starts_at) == ("costs", timedelta(minutes=30))

    @pytest.mark.parametrize(
        ("later", "told"),
        [
            pytest.param([(5, 6, {})], "the later decision 3 (ScaledUp, from 5 to 6).", id="one"),
            pytest.param(
                [(5, 6, {}), (6, 6, {}), (6, 4, {"reason": Reason.SCALED_DOWN})],
                "2 later decisions, the last of them 6 (ScaledDown, from 6 to 4).",
                id="two, and a hold between them",
            ),
        ],
    )
    def test_names_the_later_ones_that_it_overrules(
        self, known: World, later: list[tuple[int, int, dict[str, Any]]], told: str
    ) -> None:
        """Whoever takes back an old decision takes back those that built on it, and is told in one sentence."""
        number = known.decided(current=3, desired=5, ago=300, intent="a")
        known.decided(current=3, desired=5, ago=299, intent="a", outcome=Outcome.APPLIED)
        for place, (current, desired, more) in enumerate(later):
            known.decided(current=current, desired=desired, ago=200 - place, intent=f"i{place}", **more)
            if current != desired:
                known.decided(
                    current=current, desired=desired, ago=199.5 - place, intent=f"i{place}",
                    outcome=Outcome.APPLIED, **more,
                )  # fmt: skip
        result = known.shell.run("undo", str(number), "--for", "30m")
        assert result.stderr.splitlines() == [f"Note: this also overrules {told}"]

    def test_says_nothing_of_later_ones_that_changed_nothing(self, known: World) -> None:
        """Holds, dry runs, failed writes, and what was decided of another target or before."""
        known.decided(current=1, desired=3, ago=400, intent="before")
        number = known.decided(current=3, desired=5, ago=300, **applied())
        known.decided(current=5, desired=5, ago=200)
        known.decided(current=5, desired=6, ago=190, dry_run=True)
        known.decided(current=5, desired=6, ago=180, intent="x")
        known.decided(current=5, desired=6, ago=179, intent="x", outcome=Outcome.FAILED)
        known.decided(current=5, desired=6, ago=170, target=OTHER, intent="y")
        undone = known.shell.json("undo", str(number))
        assert undone["overruled"] == []

    def test_finds_an_old_decision(self, known: World) -> None:
        """It is asked for by its id, however many came after."""
        number = known.decided(current=3, desired=5, ago=9000, **applied())
        for _ in range(101):
            known.decided(current=3, desired=3)
        known.shell.run("undo", str(number))
        assert known.made.store.overrides()[0].replicas == 3

    def test_refuses_what_changed_nothing(self, known: World) -> None:
        """A hold, a failed write, a dry run, and a decision that there is not."""
        held = known.decided(current=3, desired=3)
        rehearsed = known.decided(dry_run=True)
        decided = known.decided(intent="i9", ago=50)
        known.decided(intent="i9", outcome=Outcome.FAILED, ago=49)
        told = known.shell.fails("undo", str(held))
        assert told == (
            f"decision {held} changed nothing: it left inference/deployment/vllm at 3 (Cooldown), "
            "so there is nothing to undo"
        )
        assert "from 3 to 5 and was a dry run, so there is" in known.shell.fails("undo", str(rehearsed))
        assert "from 3 to 5 and failed, so there is nothing" in known.shell.fails("undo", str(decided))
        assert (
            known.shell.fails("undo", "999")
            == "there is no decision 999: gpu-responder history shows their IDs"
        )
        assert known.made.store.overrides(include_ended=True) == ()

    def test_of_a_count_outside_the_bounds_needs_force(self, known: World) -> None:
        """As any pin."""
        number = known.decided(current=12, desired=8, **applied())
        assert "12 is outside" in known.shell.fails("undo", str(number))
        known.shell.run("undo", str(number), "--force")
        assert known.made.store.overrides()[0].replicas == 12


class TestSilences:
    def test_are_added_listed_and_ended(self, at: World) -> None:
        """A bare first word is an alert's name; an id may be shortened."""
        shown = at.shell.run(
            "silence",
            "add",
            "GpuIdle",
            'namespace=~"team-.*"',
            "x!=y",
            "--for",
            "90m",
            "--comment",
            "load test",
        ).stdout
        assert shown.startswith('Silenced {alertname="GpuIdle", namespace=~"team-.*", x!="y"} until ')
        assert "(in 1h 30m)." in shown
        (kept,) = at.made.store.silences()
        assert kept.matchers == ('alertname="GpuIdle"', 'namespace=~"team-.*"', 'x!="y"')
        line = at.shell.run("silence", "list").stdout.splitlines()[1]
        assert 'alertname="GpuIdle", namespace=~"team-.*", x!="y"  active  in 1h ' in line
        assert "ana  load test" in line
        ended = at.shell.run("silence", "expire", kept.id[:5]).stdout
        assert ended.endswith("(load test).\n")
        assert "No silence is in force" in at.shell.run("silence", "list").stdout
        assert kept.id in at.shell.run("silence", "list", "--expired").stdout
        assert "no silence" in at.shell.fails("silence", "expire", kept.id)

    def test_can_be_placed_in_alertmanager(self, at: World) -> None:
        """Its API gets the same silence, and this service none."""
        with scripted() as alertmanager:
            alertmanager.always(200, {"silenceID": "abc"})
            shown = at.shell.run(
                "silence", "add", "GpuIdle", "--for", "2h", "--comment", "x", "--in", "alertmanager",
                "--alertmanager-url", alertmanager.url,
            ).stdout  # fmt: skip
            assert f'Silenced {{alertname="GpuIdle"}} in Alertmanager {alertmanager.url} until' in shown
            assert [asked[:2] for asked in alertmanager.asked] == [("POST", "/api/v2/silences")]
        assert at.made.store.silences() == ()

    def test_in_alertmanager_needs_to_know_where(self, at: World) -> None:
        """Wrong usage names the option."""
        told = at.shell.fails(
            "silence", "add", "X", "--for", "2h", "--comment", "x", "--in", "alertmanager", status=2
        )
        assert "needs --alertmanager-url" in told

    def test_a_matcher_that_is_none_is_told(self, at: World) -> None:
        """In Alertmanager's own words about its syntax."""
        told = at.shell.fails("silence", "add", "a=~(", "--for", "2h", "--comment", "x", status=2)
        assert "RE2" in told


class TestAccess:
    def test_a_viewer_reads_and_changes_nothing(self, tmp_path: Path) -> None:
        """The refusal names the role that is needed."""
        with world(tmp_path, {"name": "x", "role": "viewer"}) as at:
            at.made.know(VLLM)
            (tmp_path / "token").write_text("viewer\n")
            token = {"GPU_RESPONDER_TOKEN_FILE": str(tmp_path / "token")}
            assert VLLM.key in at.shell.run("targets", env=token).stdout
            told = at.shell.fails("freeze", "--all", "--for", "2h", "--comment", "x", env=token)
            assert "token 'viewer' has the role viewer, and this needs operator" in told
            assert "needs a token" in at.shell.fails("targets")

    def test_the_tokens_name_is_the_author(self, tmp_path: Path) -> None:
        """Not the name of whoever is logged in: tokens prove, names only claim."""
        with world(tmp_path, {"name": "x", "role": "viewer"}) as at:
            (tmp_path / "token").write_text("operator\n")
            token = {"GPU_RESPONDER_TOKEN_FILE": str(tmp_path / "token")}
            at.shell.run("freeze", "--all", "--for", "2h", "--comment", "x", env=token)
            assert at.made.store.overrides()[0].created_by == "operator"
            silence = ("silence", "add", "GpuIdle", "--for", "2h", "--comment", "x")
            at.shell.run(*silence, env=token)
            at.shell.run(*silence, "--created-by", "ben", env=token)
            assert {each.created_by for each in at.made.store.silences()} == {"operator", "ben"}


def test_writes_that_were_under_way_are_told(at: World) -> None:
    """What an override does not stop any more is said beside it."""
    made = {
        "id": "o1", "kind": "pause", "target": VLLM.key, "matchers": [], "createdBy": "ana", "comment": "x",
        "replicas": None, "force": False, "minReplicas": None, "maxReplicas": None, "state": "active",
        "startsAt": "2026-01-01T00:00:00Z", "endsAt": "2999-01-01T00:00:00Z", "expiredAt": None, "source": "api",
        "inFlight": [{"target": VLLM.key, "intent": "i", "from": 3, "to": 5, "decidedAt": "2026-01-01T00:00:00Z"}],
    }  # fmt: skip
    with scripted() as service:
        service.always(201, made)
        at.shell.url = service.url
        result = at.shell.run("override", "add", "pause", "vllm", "--for", "2h", "--comment", "x")
    assert result.stderr == (
        "Note: a write from 3 to 5 on inference/deployment/vllm was already under way and may still take effect.\n"
    )
