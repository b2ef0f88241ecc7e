"""`gpu-responder explain` as a person or a pipeline runs it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from responder.client import http
from responder.codec import encode
from responder.explain.recorded import from_api
from responder.model import Commit
from responder.store.sqlite import SqliteStore
from responder.webhook import MAX_BYTES
from tests.client.client_world import Shell, world
from tests.explain.test_explain_offline import POLICIES, alert
from tests.fakes import FakeClock
from tests.responding import UP
from tests.responding import World as Responding

SAME = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: inference
  matchers: []
  minReplicas: 1
  maxReplicas: 8
  triggers:
  - {name: scale_up, matchers: ['action="scale_up"'], scale: {direction: Up, type: Pods, value: 1}}
  behavior:
    scaleUp: {cooldownSeconds: 0}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "policies.yaml").write_text(POLICIES)
    alerts = [alert(), alert("Other", team="other")]
    payload = {"version": "4", "receiver": "r", "groupKey": "g", "alerts": alerts}
    (tmp_path / "payload.json").write_text(json.dumps(payload))
    return Shell(tmp_path)


def base(shell: Shell) -> list[str]:
    return [
        "explain",
        "--policy",
        str(shell.home / "policies.yaml"),
        "--payload",
        str(shell.home / "payload.json"),
    ]


def test_shows_alerts_decision_and_chain(shell: Shell) -> None:
    """What a person asks before a change goes out, with nothing running anywhere."""
    shown = shell.run(*base(shell), "--replicas", "3", "--at", "12:00Z").stdout
    for part in (
        "Busy   firing  inference  up       inference/deployment/vllm",
        "Other  firing  -          -        no policy takes it",
        "inference/deployment/vllm  3 → 4  ScaledUp",
        "Scaling inference/deployment/vllm from 3 to 4: Busy fires and asks for 4 (+1).",
        "cooldown         4  no cooldown runs",
        "It would look again at 12:01:00Z, 1m later."[:24],
        "Supposing that all of them are ready (say otherwise with --ready)",
    ):
        assert part in shown


def test_gives_programs_the_same(shell: Shell) -> None:
    """With the keys of the API."""
    found = shell.json(*base(shell), "--replicas", "vllm=3")
    assert [each["target"] for each in found["alerts"]] == ["inference/deployment/vllm", ""]
    (decided,) = found["decisions"]
    assert (decided["current"], decided["desired"], decided["reason"]) == (3, 4, "ScaledUp")
    assert decided["chain"][0] == {"rule": "current", "replicas": 3, "message": "3 replicas are there"}


def test_needs_no_service_and_no_token(shell: Shell) -> None:
    """A token file that is missing matters to those who ask the service, and to nobody else."""
    env = {"GPU_RESPONDER_TOKEN_FILE": "/nonexistent", "GPU_RESPONDER_URL": "nonsense"}
    assert "3 → 4" in shell.run(*base(shell), "--replicas", "3", env=env).stdout


def test_reads_standard_input(shell: Shell) -> None:
    """So that what was caught on the wire can be piped in."""
    body = (shell.home / "payload.json").read_text()
    arguments = [*base(shell)[:-1], "-"]
    assert "3 → 4" in shell.run(*arguments, "--replicas", "3", input=body).stdout


def test_a_rejected_alert_is_a_problem(shell: Shell) -> None:
    """Status 1, with everything shown."""
    broken = {**alert("Broken"), "startsAt": "yesterday"}
    (shell.home / "payload.json").write_text(
        json.dumps({"version": "4", "receiver": "r", "groupKey": "g", "alerts": [broken]})
    )
    assert "rejected: " in shell.run(*base(shell), status=1).stdout


@pytest.mark.parametrize(
    ("arguments", "told", "status"),
    [
        ([], "either --payload FILE or --replay", 2),
        (["--payload", "x", "--replay"], "either --payload FILE or --replay", 2),
        (["--payload", "/nonexistent"], "--payload: /nonexistent: No such file or directory", 1),
        (
            ["--payload", "P", "--replicas", "many"],
            "'many' is no count: write it like 3, or inference/vllm=3.",
            2,
        ),
        (["--payload", "P", "--value", "backlog"], "'backlog' is no value: write it like backlog=42.", 2),
        (["--payload", "P", "--target", "vllm"], "'vllm' is not whole: write namespace/kind/name.", 2),
        (["--payload", "Y"], "is not JSON", 1),
        (["--replay", "--store", "sqlite:/nonexistent/x.db"], "/nonexistent/x.db does not exist", 1),
        (["--replay", "--store", "sqlite:H/x.db"], "there is no database", 1),
        (["--replay", "--store", "kubernetes"], "leave --store out", 1),
    ],
    ids=[
        "nothing",
        "both",
        "no file",
        "no count",
        "no value",
        "no target",
        "no payload",
        "no folder",
        "no database",
        "a store in the cluster",
    ],
)
def test_what_is_wrong_is_told_with_its_mend(
    shell: Shell, arguments: list[str], told: str, status: int
) -> None:
    """One sentence that names the option or the file."""
    places = {"P": shell.home / "payload.json", "Y": shell.home / "policies.yaml"}
    given = [str(places.get(each, each)).replace("sqlite:H", f"sqlite:{shell.home}") for each in arguments]
    assert told in shell.fails(
        "explain", "--policy", str(shell.home / "policies.yaml"), *given, status=status
    )


@pytest.mark.parametrize("standard_input", [True, False])
def test_a_payload_that_the_service_would_refuse_is_too_large(shell: Shell, standard_input: bool) -> None:
    """It is not cut, and then taken for no JSON."""
    body = "[" + " " * MAX_BYTES
    (shell.home / "large.json").write_text(body)
    place = "-" if standard_input else str(shell.home / "large.json")
    arguments = ("explain", "--policy", str(shell.home / "policies.yaml"), "--payload", place)
    said = shell.fails(*arguments, input=body) if standard_input else shell.fails(*arguments)
    assert f"--payload: {place} is larger than 32 MiB" in said


def test_a_policy_file_with_faults_is_told_line_by_line(shell: Shell) -> None:
    """As `serve` tells them."""
    (shell.home / "policies.yaml").write_text("apiVersion: x\npolices: []\n")
    told = shell.fails(*base(shell))
    assert told.count("policies.yaml") > 1
    assert "polices" in told


class TestReplay:
    @pytest.fixture
    def recorded(self, tmp_path: Path) -> Path:
        """A database with a scale-up in it, made by the real reconciler."""
        # The store lets go of what is older than a month.
        made = Responding(
            clock=FakeClock(datetime.now(UTC).replace(microsecond=123456) - timedelta(minutes=5))
        )
        made.fire(UP)
        made.look()
        made.clock.tick(timedelta(minutes=1).total_seconds())
        made.fire(UP)
        made.look()
        store = SqliteStore(tmp_path / "store.db")
        store.commit(Commit(history=tuple(made.store.entries)))
        store.close()
        (tmp_path / "same.yaml").write_text(SAME)
        (tmp_path / "lower.yaml").write_text(SAME.replace("maxReplicas: 8", "maxReplicas: 2"))
        assert encode(made.store.entries[0].inputs)
        return tmp_path

    def test_under_the_same_file_is_fine(self, recorded: Path) -> None:
        """Status 0 and one sentence, for a pipeline."""
        shown = (
            Shell(recorded)
            .run(
                "explain",
                "--replay",
                "--policy",
                str(recorded / "same.yaml"),
                "--store",
                f"sqlite:{recorded}/store.db",
            )
            .stdout
        )
        assert "All 2 decisions would be the same under" in shown

    def test_shows_where_it_would_differ(self, recorded: Path) -> None:
        """Status 1; what was and what would be stand below each other with both sentences."""
        shown = Shell(recorded).run(
            "explain", "--replay", "--policy", str(recorded / "lower.yaml"), "--store", f"sqlite:{recorded}/store.db",
            status=1,
        ).stdout  # fmt: skip
        was, would = (
            next(line for line in shown.splitlines() if line.startswith(f"  {each}"))
            for each in ("was", "would")
        )
        assert was.split()[1:5] == ["2", "→", "3", "ScaledUp"]
        assert would.split()[2:6] == ["stays", "at", "2", "AtMaxReplicas"]
        assert "1 of 2 decisions would differ" in shown
        assert "1 in the count, 0 in the reason only" in shown

    def test_asks_the_service_as_well(self, recorded: Path) -> None:
        """Its API gives the recorded inputs, so that no file of the service's is needed."""
        with world(recorded) as at:
            found = at.shell.json("explain", "--replay", "--policy", str(recorded / "lower.yaml"), status=1)
            served = from_api(http.Api(at.shell.url), None, 10)
            kept = at.made.store.history(limit=10)
        precise = [[each.entry.at for each in lines if each.entry.inputs] for lines in (served, kept)]
        assert precise[0] == precise[1] != []
        (difference,) = found["differences"]
        assert (difference["was"]["desired"], difference["wouldBe"]["desired"]) == (3, 2)
        assert (found["compared"], difference["unrecordedValues"]) == (2, [])
