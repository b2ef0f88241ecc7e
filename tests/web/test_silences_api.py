"""Silences as Alertmanager's API v2 has them, by its own amtool and by requests that amtool cannot make."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from responder.model import Silence
from tests.web.people import OTHER, TRITON, VLLM, Api, api, in_seconds, listening

SILENCES = "/api/v2/silences"
TEAM = {"name": "team", "role": "operator", "namespaces": ["team-a"]}


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path, TEAM) as made:
        yield made


def asked(*matchers: tuple[str, str], **changes: Any) -> dict[str, Any]:
    """A silence as amtool posts it; `...` takes a key out."""
    body = {
        "matchers": [
            {"name": name, "value": value, "isRegex": False, "isEqual": True}
            for name, value in matchers or [("alertname", "Busy")]
        ],
        "startsAt": in_seconds(0),
        "endsAt": in_seconds(3600),
        "createdBy": "ana",
        "comment": "maintenance",
    }
    return {key: value for key, value in {**body, **changes}.items() if value is not ...}


def put(people: Api, body: dict[str, Any], **more: Any) -> str:
    answer = people.post(SILENCES, body, **more)
    assert answer.status_code == 200, answer.json
    identity: str = answer.json["silenceID"]
    return identity


def one(people: Api, identity: str) -> dict[str, Any]:
    found: dict[str, Any] = people.get(f"/api/v2/silence/{identity}").json
    return found


@dataclass
class Ran:
    status: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Amtool = Callable[..., Ran]


class TestAmtool:
    """The real one, unchanged, with a token by --http.config.file."""

    @pytest.fixture
    def amtool(self, people: Api, tmp_path: Path) -> Iterator[Amtool]:
        program = shutil.which("amtool")
        assert program, (
            "amtool is not on PATH; install it (on Debian: apt-get install prometheus-alertmanager)"
        )
        with listening(people) as url:

            def run(*arguments: str, token: str = "operator", stdin: str = "") -> Ran:
                config = tmp_path / f"{token}.yml"
                config.write_text(f"authorization: {{type: Bearer, credentials: {token}}}\n")
                ended = subprocess.run(
                    [program, *arguments, f"--alertmanager.url={url}", f"--http.config.file={config}"],
                    check=False, input=stdin, capture_output=True, text=True, timeout=30,
                    env={"HOME": str(tmp_path), "TZ": "UTC"},
                )  # fmt: skip
                return Ran(ended.returncode, ended.stdout.strip(), ended.stderr.strip())

            yield run

    def test_adds_queries_updates_and_expires(self, people: Api, amtool: Amtool) -> None:
        """A silence's whole life, with nothing on standard error: amtool warns of what it does not expect."""
        added = amtool("silence", "add", "Busy", 'namespace=~"inf.*"', "pod!=x", "node!~y.*", "--author=ana",
                       "--comment=maintenance", "--duration=1h")  # fmt: skip
        assert (added.status, added.error) == (0, "")
        [silence] = people.store.silences()
        assert silence.id == added.out
        assert silence.matchers == ('alertname="Busy"', 'namespace=~"inf.*"', 'pod!="x"', 'node!~"y.*"')
        assert (silence.created_by, silence.comment) == ("ana", "maintenance")

        for wanted in ("alertname=Busy", 'alertname="Busy"', "namespace=~inf.*", "pod=x"):
            assert amtool("silence", "query", "-q", wanted).out == silence.id, wanted
        assert amtool("silence", "query", "-q", "alertname=Other").out == ""
        [shown] = amtool("silence", "query", "-o", "json").json
        assert (shown["status"]["state"], len(shown["matchers"])) == ("active", 4)

        updated = amtool("silence", "update", silence.id, "--duration=3h", "--comment=longer", "-o", "json")
        assert (updated.status, updated.json[0]["id"], updated.error) == (0, silence.id, "")
        [longer] = people.store.silences()
        assert (longer.starts_at, longer.comment) == (silence.starts_at, "longer")
        assert longer.ends_at > silence.ends_at + timedelta(minutes=100)

        expired = amtool("silence", "expire", silence.id)
        assert (expired.status, expired.out, expired.error) == (0, "", "")
        assert amtool("silence", "query", "-q").out == ""
        assert amtool("silence", "query", "-q", "--expired").out == silence.id
        assert people.store.silences() == ()
        assert [each.action for each in people.store.audits(9)] == [
            "silence.expire", "silence.update", "silence.create",
        ]  # fmt: skip

    def test_exports_and_imports(self, people: Api, amtool: Amtool) -> None:
        """By id, which updates; and anew, when there is none of that id."""
        first = put(people, asked(("alertname", "A")))
        second = put(people, asked(("alertname", "B"), startsAt=in_seconds(600)))
        exported = amtool("silence", "query", "-o", "json").out
        assert set(amtool("silence", "import", stdin=exported).out.split()) == {first, second}
        assert len(people.store.silences()) == 2
        new = amtool("silence", "import", "--force", stdin=exported).out.split()
        assert len(new) == 2
        assert len(people.store.silences()) == 4

    def test_shows_why_it_was_refused(self, people: Api, amtool: Amtool) -> None:
        """The sentence, where amtool shows one; no panic anywhere."""
        refusals = (
            (amtool("silence", "add", "a=~.*", "--comment=x"), "at least one of them must not match an empty value"),
            (amtool("silence", "add", "a=b", "--comment=x", "--end=2020-01-01T00:00:00Z",
                    "--start=2019-01-01T00:00:00Z"), "the end cannot be past"),
            (amtool("silence", "add", "a=b", "--comment=x", token="team"), "limited to namespaces (team-a)"),
            (amtool("silence", "add", "a=b", "--comment=x", token="viewer"), "status 403"),
            (amtool("silence", "query", token="wrong"), "status 401"),
            (amtool("silence", "expire", "nope"), "404"),
            (amtool("silence", "update", "nope", "--duration=1h"), "getSilenceNotFound"),
        )  # fmt: skip
        for ran, said in refusals:
            assert ran.status == 1
            assert said in ran.error
            assert "panic" not in ran.error
        assert people.store.silences() == ()

    def test_lists_alerts_and_the_config(self, people: Api, amtool: Amtool) -> None:
        """`alert query` shows what is known, silenced or not; `config show` that this is no Alertmanager."""
        people.know(VLLM, OTHER)
        put(people, asked(("workload", "vllm")))
        assert [each["labels"]["workload"] for each in amtool("alert", "-o", "json").json] == ["vllm-large"]
        silenced = amtool("alert", "query", "--silenced", "-o", "json").json
        assert [each["labels"]["workload"] for each in silenced] == ["vllm"]
        assert [each["status"]["state"] for each in silenced] == ["suppressed"]
        assert amtool("alert", "query", "workload=zzz", "-o", "json").json == []
        assert "no Alertmanager" in amtool("config", "show").out


class TestUpdating:
    """What Alertmanager allows to be changed, and what makes a new silence."""

    def test_an_active_one_may_end_later_and_say_more(self, people: Api) -> None:
        """Its id stays, and its start to the microsecond."""
        identity = put(people, asked())
        [before] = people.store.silences()
        shown = one(people, identity)
        assert put(people, {**shown, "endsAt": in_seconds(9000), "comment": "more"}) == identity
        [after] = people.store.silences()
        assert (after.starts_at, after.comment) == (before.starts_at, "more")
        assert after.ends_at > before.ends_at

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param(
                {"matchers": [{"name": "alertname", "value": "B", "isRegex": False}]}, id="other matchers"
            ),
            pytest.param({"startsAt": "2020-01-01T00:00:00Z"}, id="another start"),
        ],
    )
    def test_what_was_true_of_the_past_makes_a_new_one(self, people: Api, changes: dict[str, Any]) -> None:
        """The old one ends now and stays to be seen as it was."""
        identity = put(people, asked())
        new = put(people, {**one(people, identity), **changes})
        assert new != identity
        assert one(people, identity)["status"]["state"] == "expired"
        assert one(people, identity)["matchers"][0]["value"] == "Busy"
        assert one(people, new)["status"]["state"] == "active"
        assert [each.id for each in people.store.silences()] == [new]

    def test_a_pending_one_may_be_moved(self, people: Api) -> None:
        """As long as its start stays in the future."""
        identity = put(people, asked(startsAt=in_seconds(600)))
        assert one(people, identity)["status"]["state"] == "pending"
        moved = asked(startsAt=in_seconds(1200), id=identity)
        assert put(people, moved) == identity
        assert one(people, identity)["startsAt"][:19] == moved["startsAt"][:19]
        now = put(people, asked(id=identity))
        assert now != identity
        assert one(people, identity)["status"]["state"] == "expired"

    def test_an_expired_one_comes_back_as_a_new_one(self, people: Api) -> None:
        """What is over is over."""
        identity = put(people, asked())
        people.call("DELETE", f"/api/v2/silence/{identity}")
        over = one(people, identity)
        new = put(people, asked(id=identity))
        assert new != identity
        assert one(people, identity) == over

    def test_an_unknown_id_is_404(self, people: Api) -> None:
        """Nothing is made under an id of somebody's choice."""
        answer = people.post(SILENCES, asked(id="nope"))
        assert (answer.status_code, answer.json) == (404, "silence 'nope' not found")


class TestExpiring:
    def test_moves_the_end_to_now(self, people: Api) -> None:
        """amtool goes by the end and not by the state."""
        identity = put(people, asked())
        answer = people.call("DELETE", f"/api/v2/silence/{identity}")
        assert (answer.status_code, answer.data) == (200, b"")
        shown = one(people, identity)
        assert shown["status"]["state"] == "expired"
        assert datetime.fromisoformat(shown["endsAt"]) <= datetime.now(UTC)

    def test_again_changes_nothing(self, people: Api) -> None:
        """And is 200: the silence is as it was asked to be."""
        identity = put(people, asked())
        people.call("DELETE", f"/api/v2/silence/{identity}")
        before = one(people, identity)
        assert people.call("DELETE", f"/api/v2/silence/{identity}").status_code == 200
        assert one(people, identity) == before
        assert len(people.store.audits(9)) == 2

    def test_a_pending_one_never_begins(self, people: Api) -> None:
        """Start and end are both now."""
        identity = put(people, asked(startsAt=in_seconds(600)))
        people.call("DELETE", f"/api/v2/silence/{identity}")
        shown = one(people, identity)
        assert shown["startsAt"] == shown["endsAt"]
        assert shown["status"]["state"] == "expired"


class TestAuthor:
    @pytest.mark.parametrize(
        ("said", "author"),
        [
            pytest.param("ana", "ana", id="whoever amtool says"),
            pytest.param(..., "operator", id="the token's name unless it is said"),
        ],
    )
    def test_is_kept_and_the_audit_names_the_token(self, people: Api, said: Any, author: str) -> None:
        """A name only claims; what is proved stands beside it in any case."""
        identity = put(people, asked(createdBy=said))
        assert one(people, identity)["createdBy"] == author
        [line] = people.store.audits(9)
        assert (line.who, line.after.endswith(f" by {author}")) == ("operator", True)


class TestRefused:
    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            (b"{", "the body is not JSON"),
            ([], "the body: a list is not a mapping of keys"),
            (asked(comment=...), "comment is missing; add it"),
            (asked(comment="  "), "must say why"),
            (asked(createdBy=""), "createdBy: is empty"),
            (asked(matchers=[]), "matchers: is empty"),
            (asked(matchers=[{"name": "a", "value": "b"}]), "matchers[0].isRegex is missing; add it"),
            (asked(matchers=[{"name": "a", "value": 1, "isRegex": False}]), "matchers[0].value: 1 is not text"),
            (asked(matchers=[{"name": "a", "value": "(", "isRegex": True}]), "matchers[0]: Regular expression"),
            (asked(("a", "")), "at least one of them must not match an empty value"),
            (asked(startsAt="yesterday"), "startsAt: 'yesterday' is no time"),
            (asked(endsAt="2020-01-01T00:00:00Z"), "the start must be before the end"),
            (asked(startsAt="2019-01-01T00:00:00Z", endsAt="2020-01-01T00:00:00Z"), "the end cannot be past"),
        ],
    )  # fmt: skip
    def test_by_a_bare_string(self, people: Api, body: Any, sentence: str) -> None:
        """As Alertmanager words its errors; nothing is kept."""
        answer = people.post(SILENCES, body)
        assert answer.status_code == 400
        assert isinstance(answer.json, str)
        assert sentence in answer.json
        assert people.store.silences(include_expired=True) == ()

    def test_keys_that_are_not_known_are_no_fault(self, people: Api) -> None:
        """Alertmanager's clients send back what they got, and what they will get is not ours to say."""
        put(people, asked(status={"state": "active"}, updatedAt=in_seconds(0), annotations={"a": "b"}))

    def test_filters_that_are_none(self, people: Api) -> None:
        """400, in words."""
        assert people.get(f"{SILENCES}?filter=a%3D~(").status_code == 400
        assert people.get("/api/v2/alerts?active=perhaps").status_code == 400
        assert people.get("/api/v2/alerts?receiver=(").status_code == 400


class TestListing:
    def test_goes_by_what_ends_or_begins_next(self, people: Api) -> None:
        """Active first, then pending, then those that expired, the last first; long expired ones not at all."""
        now = datetime.now(UTC)

        def keep(name: str, start: float, end: float) -> None:
            people.store.put_silence(
                Silence(
                    name, ('a="b"',), now + timedelta(hours=start), now + timedelta(hours=end), "x", "y", now
                )
            )

        for name, start, end in (("p2", 5, 9), ("p1", 4, 10), ("e2", -9, -3), ("e1", -9, -2), ("a2", -1, 9),
                                 ("a1", -1, 8), ("old", -200, -121)):  # fmt: skip
            keep(name, start, end)
        assert [each["id"] for each in people.get(SILENCES).json] == ["a1", "a2", "p1", "p2", "e1", "e2"]

    @pytest.mark.parametrize(
        ("filters", "found"),
        [
            pytest.param(["alertname=A"], {"a"}, id="equal"),
            pytest.param(["alertname!=A"], {"b"}, id="not equal"),
            pytest.param(["alertname=~A|B"], {"a", "b"}, id="a pattern"),
            pytest.param(["alertname=~A|B", "node=n1"], {"b"}, id="several"),
            pytest.param(["node="], {"a"}, id="those that do not name the label"),
            pytest.param(["node!="], {"b"}, id="those that name the label"),
        ],
    )
    def test_filters_by_what_silences_name(self, people: Api, filters: list[str], found: set[str]) -> None:
        """Alertmanager's matching of filters against matchers."""
        names = {put(people, asked(("alertname", "A"))): "a",
                 put(people, asked(("alertname", "B"), ("node", "n1"))): "b"}  # fmt: skip
        query = "&".join(f"filter={each.replace('=', '%3D').replace('|', '%7C')}" for each in filters)
        assert {names[each["id"]] for each in people.get(f"{SILENCES}?{query}").json} == found


class TestAccess:
    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("GET", SILENCES, {"viewer", "operator"}),
            ("POST", SILENCES, {"operator"}),
            ("GET", "/api/v2/silence/x", {"viewer", "operator"}),
            ("DELETE", "/api/v2/silence/x", {"operator"}),
            ("GET", "/api/v2/status", {"viewer", "operator"}),
            ("GET", "/api/v2/alerts", {"viewer", "operator"}),
        ],
    )
    def test_is_as_each_route_says(self, people: Api, method: str, path: str, allowed: set[str]) -> None:
        """Viewers look, operators change."""
        for token in ("", "alertmanager", "viewer", "operator"):
            answer = people.call(method, path, {} if method == "POST" else None, token=token)
            assert (answer.status_code not in (401, 403)) is (token in allowed), token

    def test_a_limited_operator_silences_its_own_namespaces_only(self, people: Api) -> None:
        """Neither makes, nor changes, nor sees, nor ends another's."""
        other = put(people, asked(("namespace", "inference")))
        everybodys = put(people, asked())
        mine = put(people, asked(("namespace", "team-a")), token="team")
        for body in (
            asked(),
            asked(("namespace", "inference")),
            asked(("namespace", "team-a"), id=everybodys),
        ):
            answer = people.post(SILENCES, body, token="team")
            assert answer.status_code == 400
            assert "this token is limited to namespaces (team-a)" in answer.json
        assert {each["id"] for each in people.get(SILENCES, token="team").json} == {everybodys, mine}
        assert people.get(f"/api/v2/silence/{other}", token="team").status_code == 404
        assert people.call("DELETE", f"/api/v2/silence/{other}", token="team").status_code == 404
        assert people.call("DELETE", f"/api/v2/silence/{everybodys}", token="team").status_code == 403
        assert people.call("DELETE", f"/api/v2/silence/{mine}", token="team").status_code == 200
        assert {each.id for each in people.store.silences()} == {other, everybodys}

    def test_a_limited_viewer_sees_alerts_of_its_targets_only(self, people: Api) -> None:
        """By the namespaces of the targets they are about."""
        people.know(VLLM, TRITON, OTHER)
        assert [each["labels"]["workload"] for each in people.get("/api/v2/alerts", token="team").json] == [
            "vllm-large"
        ]
