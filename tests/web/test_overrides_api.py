"""Overrides over HTTP: what is taken, what is refused and how, who may, and what is kept of it."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from responder.model import Intent, Reason
from responder.store.sqlite import SqliteStore
from tests.web.people import OTHER, TRITON, VLLM, Api, api, in_seconds

ROUTE = "/api/v1/overrides"
TEAM = {"name": "team", "role": "operator", "namespaces": ["team-*"]}
PAUSE = {
    "kind": "pause",
    "target": "inference/deployment/vllm",
    "comment": "maintenance",
    "durationSeconds": 3600,
}
PIN = {**PAUSE, "kind": "pin", "replicas": 4}


@pytest.fixture
def people(tmp_path: Path) -> Any:
    with api(tmp_path, TEAM) as made:
        made.know(VLLM, TRITON, OTHER)
        yield made


def with_(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The body with changes; `...` takes a key out."""
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}


def refused(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.json
    sentence: str = answer.json["error"]
    assert "\n" not in sentence
    return sentence


class TestTaken:
    def test_is_what_was_asked_for(self, people: Api) -> None:
        """With an owner, a reason, an end, an id, and where to find it."""
        before = datetime.now(UTC)
        answer = people.post(ROUTE, with_(PIN, comment="  load test "))
        assert answer.status_code == 201
        made = answer.json
        assert answer.headers["Location"] == f"{ROUTE}/{made['id']}"
        assert {key: made[key] for key in ("kind", "target", "replicas", "force", "createdBy", "comment")} == {
            "kind": "pin", "target": "inference/deployment/vllm", "replicas": 4, "force": False,
            "createdBy": "operator", "comment": "load test",
        }  # fmt: skip
        assert (made["state"], made["source"], made["expiredAt"]) == ("active", "api", None)
        assert (made["inFlight"], made["warning"]) == ([], "")
        starts, ends = (datetime.fromisoformat(made[key]) for key in ("startsAt", "endsAt"))
        assert ends - starts == timedelta(hours=1)
        assert abs(starts - before) < timedelta(seconds=5)
        assert people.get(f"{ROUTE}/{made['id']}").json == {
            key: value for key, value in made.items() if key not in ("inFlight", "warning")
        }

    def test_is_on_disk_when_it_is_answered(self, people: Api) -> None:
        """Another process that opens the store sees it, with the line of the audit."""
        made = people.post(ROUTE, PAUSE).json
        other = SqliteStore(people.store.path)
        try:
            assert [each.id for each in other.overrides()] == [made["id"]]
            assert [each.subject for each in other.audits(10)] == [made["id"]]
        finally:
            other.close()

    def test_wakes_the_actor(self, people: Api) -> None:
        """At once, and not when something else happens."""
        people.store.lease("actor", "me", timedelta(minutes=1), datetime.now(UTC))
        while people.store.wait(0):
            pass
        woken = threading.Event()
        waiting = threading.Thread(target=lambda: people.store.wait(10) and woken.set())
        waiting.start()
        people.post(ROUTE, PAUSE)
        waiting.join(10)
        assert woken.is_set()

    @pytest.mark.parametrize(
        ("kind", "more"),
        [
            ("pause", {}),
            ("pauseScaleUp", {}),
            ("pauseScaleDown", {}),
            ("freeze", {}),
            ("pin", {"replicas": 0, "force": True}),
            ("pin", {"replicas": 4.0}),
            ("bounds", {"minReplicas": 2}),
            ("bounds", {"maxReplicas": 2}),
            ("bounds", {"minReplicas": 9, "maxReplicas": 12}),
        ],
    )
    def test_are_all_kinds(self, people: Api, kind: str, more: dict[str, Any]) -> None:
        """Each with its own numbers."""
        answer = people.post(ROUTE, with_(PAUSE, kind=kind, **more))
        assert answer.status_code == 201, answer.json
        assert {key: answer.json[key] for key in more} == more

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            pytest.param("inference/deployment/vllm", "inference/deployment/vllm", id="whole"),
            pytest.param(
                "inference/Deployment/vllm", "inference/deployment/vllm", id="as Kubernetes spells it"
            ),
            pytest.param("inference/deploy/vllm", "inference/deployment/vllm", id="kubectl's short name"),
            pytest.param("inference/deployments/vllm", "inference/deployment/vllm", id="plural"),
            pytest.param("inference/vllm", "inference/deployment/vllm", id="without its kind"),
            pytest.param("vllm", "inference/deployment/vllm", id="by its name alone"),
            pytest.param("triton", "inference/statefulset/triton", id="of another kind"),
            pytest.param(
                "new/rollouts.argoproj.io/x", "new/rollout.argoproj.io/x", id="a rollout by its resource"
            ),
            pytest.param("new/rollout/x", "new/rollout.argoproj.io/x", id="a rollout without its group"),
        ],
    )
    def test_target_may_be_written_short(self, people: Api, text: str, key: str) -> None:
        """As much as names only one that is known."""
        assert people.post(ROUTE, with_(PAUSE, target=text)).json["target"] == key

    def test_target_that_is_not_known_is_taken_when_it_is_whole_and_said(self, people: Api) -> None:
        """To pause what has not fired yet is sensible; to misspell it is not, so it is said."""
        answer = people.post(ROUTE, with_(PAUSE, target="inference/deployment/vlm"))
        assert answer.status_code == 201
        assert answer.json["warning"] == (
            "no alert of inference/deployment/vlm is known: the override binds once there is one; "
            "did you mean inference/deployment/vllm?"
        )

    def test_matchers_are_written_alike(self, people: Api) -> None:
        """A kind in lower case would never match: kinds are spelt as Kubernetes does."""
        body = with_(PAUSE, target=..., matchers=["namespace=inference", 'kind="statefulset"', "name=~tri.*"])
        answer = people.post(ROUTE, body)
        assert answer.json["matchers"] == ['namespace="inference"', 'kind="StatefulSet"', 'name=~"tri.*"']
        assert answer.json["warning"] == ""

    @pytest.mark.parametrize(
        ("matcher", "hint"),
        [
            ('namespace="inferense"', "; did you mean namespace=inference?"),
            ('policy="inferense"', "; did you mean policy=inference?"),
            ('name="vlm"', "; did you mean name=vllm?"),
            ('name="zzz"', ""),
            ('name=~"vlm"', ""),
            ('kind="Job"', ""),
        ],
    )
    def test_matchers_that_fit_nothing_are_said(self, people: Api, matcher: str, hint: str) -> None:
        """Most likely they are misspelt: whoever freezes a policy that is none believes it frozen."""
        answer = people.post(ROUTE, with_(PAUSE, target=..., matchers=[matcher]))
        assert answer.json["warning"] == f"the matchers fit no target that is known now{hint}"

    def test_a_freeze_may_be_for_all(self, people: Api) -> None:
        """The worst night."""
        answer = people.post(ROUTE, with_(PAUSE, kind="freeze", target=...))
        assert (answer.status_code, answer.json["target"], answer.json["matchers"]) == (201, "", [])

    def test_may_start_later(self, people: Api) -> None:
        """Its duration counts from its start."""
        start = in_seconds(600)
        made = people.post(ROUTE, with_(PAUSE, startsAt=start)).json
        assert made["state"] == "pending"
        starts, ends = (datetime.fromisoformat(made[key]) for key in ("startsAt", "endsAt"))
        assert ends - starts == timedelta(hours=1)

    def test_a_start_that_is_past_is_now(self, people: Api) -> None:
        """Nothing binds backwards."""
        made = people.post(ROUTE, with_(PAUSE, startsAt="2020-01-01T00:00:00Z")).json
        assert made["startsAt"] == made["createdAt"]

    def test_lists_intents_that_may_still_land(self, people: Api) -> None:
        """What was begun before it, for the targets it binds, and no others."""
        intent = Intent("i1", "u", 2, 3, "100", 1, "kubectl", datetime.now(UTC), Reason.SCALED_UP, "")
        people.know(replace(VLLM, name="a"), intent=intent, outstanding=replace(intent, id="i0"))
        people.know(replace(VLLM, name="b"), intent=replace(intent, id="i2"))
        made = people.post(ROUTE, with_(PAUSE, target="inference/a")).json
        assert [(each["target"], each["intent"]) for each in made["inFlight"]] == [
            ("inference/deployment/a", "i1"), ("inference/deployment/a", "i0"),
        ]  # fmt: skip
        assert {key: made["inFlight"][0][key] for key in ("from", "to")} == {"from": 2, "to": 3}
        everything = people.post(ROUTE, with_(PAUSE, kind="freeze", target=...)).json
        assert len(everything["inFlight"]) == 3


class TestRefused:
    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            ({}, "kind is missing; add it"),
            ([], "the body: a list is not a mapping of keys"),
            (with_(PAUSE, kind="paws"), "kind: 'paws' is not one of pin, pause, "),
            (with_(PAUSE, kind="Pause"), "did you mean pause?"),
            (with_(PAUSE, coment="x"), "coment: unknown key; did you mean comment?"),
            (with_(PAUSE, zzz="x"), "zzz: unknown key; known here are kind, target,"),
            (with_(PAUSE, comment=...), "comment is missing; add it"),
            (with_(PAUSE, comment=" \n"), "must say why"),
            (with_(PAUSE, comment=""), "comment: is empty"),
            (with_(PAUSE, durationSeconds=...), "an end is needed; give either endsAt or durationSeconds"),
            (with_(PAUSE, endsAt="2099-01-01T00:00:00Z"), "give either endsAt or durationSeconds"),
            (with_(PAUSE, durationSeconds=0), "durationSeconds: 0 is not above 0; raise it"),
            (with_(PAUSE, durationSeconds="1h"), "'1h' is not a number; durations are numbers of seconds"),
            (with_(PAUSE, durationSeconds=..., endsAt="tomorrow"), "'tomorrow' is no time; write it like 2026-"),
            (with_(PAUSE, durationSeconds=..., endsAt="2099-01-01T00:00:00"), "has no time zone; end it with Z"),
            (with_(PAUSE, durationSeconds=..., endsAt="2020-01-01T00:00:00Z"), "is past"),
            (with_(PAUSE, durationSeconds=..., endsAt="0001-01-01T00:00:00+10:00"), "is no time"),
            (with_(PAUSE, durationSeconds=..., startsAt=in_seconds(900), endsAt=in_seconds(600)), "not after startsAt"),
            (with_(PIN, replicas=...), "replicas is missing; say at how many to pin"),
            (with_(PIN, replicas=-1), "replicas: -1 is below 0; raise it"),
            (with_(PIN, replicas=1.5), "replicas: 1.5 is not a whole number"),
            (with_(PIN, replicas=10**30), "replicas: "),
            (with_(PAUSE, replicas=3), "replicas: it goes with the kind pin and not with pause; leave it out"),
            (with_(PAUSE, force=True), "force: it goes with the kind pin"),
            (with_(PIN, maxReplicas=3), "maxReplicas: it goes with the kind bounds and not with pin"),
            (with_(PAUSE, kind="bounds"), "minReplicas and maxReplicas are both missing"),
            (with_(PAUSE, kind="bounds", minReplicas=5, maxReplicas=2), "5 is above maxReplicas 2; lower it"),
            (with_(PAUSE, target=...), "target is missing"),
            (with_(PAUSE, target=..., matchers=[]), "only a freeze may be for all targets"),
            (with_(PAUSE, matchers=["name=x"]), "target and matchers exclude each other"),
            (with_(PAUSE, target=..., matchers=["name"]), "matchers[0]: 'name' is not a matcher"),
            (with_(PAUSE, target=..., matchers=["name=~("]), "is not RE2 syntax"),
            (with_(PAUSE, target=..., matchers=["namspace=x"]), "did you mean namespace?"),
            (with_(PAUSE, target=..., matchers=["pod=x"]), "known are namespace, kind, name, policy"),
            (with_(PAUSE, target=..., matchers=["kind=widget"]), "write it like Deployment"),
            (with_(PAUSE, target="a/b/c/d"), "is no target; write namespace/kind/name"),
            (with_(PAUSE, target="/"), "is no target; write namespace/kind/name"),
            (with_(PAUSE, target="Inference!/deployment/x"), "is not a legal Kubernetes namespace"),
            (with_(PAUSE, target="inference/deployment/_"), "is not a legal name"),
            (with_(PAUSE, target="inference/dep loy/x"), "is no kind"),
            (b"{", "the body is not JSON"),
            (b'{"comment": "\\ud800"}', "the body is not JSON"),
            (b"[" * 100_000, "the body is nested too deeply"),
        ],
    )  # fmt: skip
    def test_in_one_sentence_with_the_mend(self, people: Api, body: Any, sentence: str) -> None:
        """And nothing is kept."""
        assert sentence in refused(people.post(ROUTE, body), 400)
        assert people.store.overrides() == ()
        assert people.store.audits(10) == []

    @pytest.mark.parametrize(
        ("text", "status", "near"),
        [
            pytest.param("inference/vlm", 404, ["inference/deployment/vllm"], id="misspelt"),
            pytest.param("trition", 404, ["inference/statefulset/triton"], id="misspelt, by its name"),
            pytest.param("zzz", 404, [], id="like nothing"),
        ],
    )
    def test_a_short_target_that_is_not_known_with_near_ones(
        self, people: Api, text: str, status: int, near: list[str]
    ) -> None:
        """Only a whole key may be of something unknown."""
        answer = people.post(ROUTE, with_(PAUSE, target=text))
        sentence = refused(answer, status)
        assert answer.json["near"] == near
        assert (f"did you mean {near[0]}?" if near else "write namespace/kind/name") in sentence

    def test_a_short_target_that_may_be_two(self, people: Api) -> None:
        """It is never guessed."""
        people.know(replace(VLLM, namespace="team-a"))
        answer = people.post(ROUTE, with_(PAUSE, target="vllm"))
        assert "may be inference/deployment/vllm and team-a/deployment/vllm" in refused(answer, 409)
        assert answer.json["near"] == ["inference/deployment/vllm", "team-a/deployment/vllm"]

    @pytest.mark.parametrize(
        "where", [{}, {"target": ..., "matchers": ["name=vllm"]}], ids=["target", "matchers"]
    )
    @pytest.mark.parametrize("replicas", [0, 9])
    def test_a_pin_outside_the_bounds_unless_forced(
        self, people: Api, where: dict[str, Any], replicas: int
    ) -> None:
        """Both numbers are named, and the policy they are from."""
        body = with_(PIN, replicas=replicas, **where)
        sentence = refused(people.post(ROUTE, body), 422)
        assert f"replicas: {replicas} is outside of minReplicas 1 and maxReplicas 8" in sentence
        assert "(policy inference); choose within them, or set force" in sentence
        assert people.post(ROUTE, with_(body, force=True)).status_code == 201

    def test_a_pin_within_bounds_that_an_override_sets_is_taken(self, people: Api) -> None:
        """What is in force when it starts counts."""
        people.post(ROUTE, with_(PAUSE, kind="bounds", maxReplicas=12))
        assert people.post(ROUTE, with_(PIN, replicas=12)).status_code == 201
        later = with_(PIN, replicas=12, startsAt=in_seconds(7200))
        assert "maxReplicas 8" in refused(people.post(ROUTE, later), 422)

    def test_a_minimum_above_the_policys_maximum(self, people: Api) -> None:
        """It would silently be made smaller."""
        body = with_(PAUSE, kind="bounds", minReplicas=10)
        assert "10 is above maxReplicas 8 of policy inference" in refused(people.post(ROUTE, body), 422)

    def test_an_end_that_is_too_far(self, tmp_path: Path) -> None:
        """The longest is the service's to say."""
        with api(tmp_path, override_max=timedelta(days=2)) as made:
            body = with_(PAUSE, durationSeconds=2 * 86400 + 120)
            assert "must end within 2 days" in refused(made.post(ROUTE, body), 422)
            late = with_(PAUSE, startsAt=in_seconds(86400), durationSeconds=86400 * 1.5)
            assert "--override-max-days" in refused(made.post(ROUTE, late), 422)
            assert made.post(ROUTE, with_(PAUSE, durationSeconds=2 * 86400)).status_code == 201

    @pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
    def test_anything_but_json(self, people: Api, content_type: str) -> None:
        """A form of another site's page can send these, and not JSON."""
        refused(people.post(ROUTE, PAUSE, **{"Content-Type": content_type}), 415)

    def test_a_request_of_another_sites_page(self, people: Api) -> None:
        """Whatever it can send."""
        refused(people.post(ROUTE, PAUSE, **{"Sec-Fetch-Site": "cross-site"}), 403)
        refused(people.post(ROUTE, PAUSE, Origin="https://evil.example"), 403)
        assert people.post(ROUTE, PAUSE, Origin="http://localhost").status_code == 201

    def test_a_body_without_end(self, people: Api) -> None:
        """It is not read."""
        refused(people.post(ROUTE, b" " * (2 << 20)), 413)


class TestExpiring:
    def test_ends_it_at_once_and_keeps_it(self, people: Api) -> None:
        """It stays in history, with when it was ended."""
        made = people.post(ROUTE, PAUSE).json
        ended = people.call("DELETE", f"{ROUTE}/{made['id']}")
        assert (ended.status_code, ended.json["state"]) == (200, "ended")
        assert people.get(ROUTE).json == {"overrides": []}
        assert people.get(f"{ROUTE}?ended=true").json == {"overrides": [ended.json]}
        assert people.store.overrides() == ()

    def test_again_changes_nothing(self, people: Api) -> None:
        """A repeated request answers as the first did, and is no change to audit."""
        made = people.post(ROUTE, PAUSE).json
        first = people.call("DELETE", f"{ROUTE}/{made['id']}")
        second = people.call("DELETE", f"{ROUTE}/{made['id']}")
        assert (second.status_code, second.json) == (200, first.json)
        assert [each.action for each in people.store.audits(10)] == ["override.expire", "override.create"]

    def test_one_that_has_not_begun_keeps_it_from_beginning(self, people: Api) -> None:
        """A plan is given up."""
        made = people.post(ROUTE, with_(PAUSE, startsAt=in_seconds(600))).json
        assert people.call("DELETE", f"{ROUTE}/{made['id']}").json["state"] == "ended"
        assert not any(each.in_force(datetime.now(UTC) + timedelta(seconds=700)) for each in
                       people.store.overrides(include_ended=True))  # fmt: skip

    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_one_that_is_not_there_is_404(self, people: Api, method: str) -> None:
        """And says where to look."""
        assert "no override 'nope' is known" in refused(people.call(method, f"{ROUTE}/nope"), 404)


class TestAccess:
    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("GET", ROUTE, {"viewer", "operator", "team"}),
            ("GET", f"{ROUTE}/x", {"viewer", "operator", "team"}),
            ("POST", ROUTE, {"operator", "team"}),
            ("DELETE", f"{ROUTE}/x", {"operator", "team"}),
            ("GET", "/api/v1/audit", {"operator"}),
        ],
    )
    def test_is_as_each_route_says(self, people: Api, method: str, path: str, allowed: set[str]) -> None:
        """Viewers look, operators change, the one who delivers does neither."""
        for token in ("wrong", "alertmanager", "viewer", "operator", "team"):
            status = people.call(method, path, {} if method == "POST" else None, token=token).status_code
            if token == "wrong":
                assert status == 401
            else:
                assert (status != 403) is (token in allowed), (token, status)

    def test_a_limited_operator_overrides_its_own_namespaces_only(self, people: Api) -> None:
        """By target and by matchers; matchers that are not tied to a namespace are refused."""
        mine = with_(PAUSE, target="team-a/deployment/vllm-large")
        assert people.post(ROUTE, mine, token="team").status_code == 201
        tied = with_(PAUSE, target=..., matchers=['namespace="team-b"'])
        assert people.post(ROUTE, tied, token="team").status_code == 201
        for body, sentence in (
            (PAUSE, "this token may not reach namespace 'inference', only team-*"),
            (with_(PAUSE, target=..., matchers=['namespace="inference"']), "may not reach namespace 'inference'"),
            (with_(PAUSE, target=..., matchers=['namespace=~"team-.*"']), 'it needs a matcher namespace="…"'),
            (with_(PAUSE, target=..., matchers=['namespace!="inference"']), 'it needs a matcher namespace="…"'),
            (with_(PAUSE, target=..., matchers=["namespace="]), 'it needs a matcher namespace="…"'),
            (with_(PAUSE, kind="freeze", target=...), 'it needs a matcher namespace="…"'),
        ):  # fmt: skip
            assert sentence in refused(people.post(ROUTE, body, token="team"), 403)

    def test_a_limited_operator_learns_nothing_of_other_namespaces(self, people: Api) -> None:
        """By what is near a name, by lists, by ids; and it cannot end what binds others too."""
        other = people.post(ROUTE, PAUSE).json
        everybody = people.post(ROUTE, with_(PAUSE, kind="freeze", target=...)).json
        assert people.post(ROUTE, with_(PAUSE, target="vlm"), token="team").json["near"] == []
        assert people.post(ROUTE, with_(PAUSE, target="vllm"), token="team").status_code == 404
        assert [each["id"] for each in people.get(ROUTE, token="team").json["overrides"]] == [everybody["id"]]
        assert people.get(f"{ROUTE}/{other['id']}", token="team").status_code == 404
        assert people.call("DELETE", f"{ROUTE}/{other['id']}", token="team").status_code == 404
        assert people.call("DELETE", f"{ROUTE}/{everybody['id']}", token="team").status_code == 403
        assert len(people.store.overrides()) == 2

    @pytest.mark.parametrize(
        ("method", "path"), [("GET", "/api/v1/audit"), ("GET", "/metrics"), ("POST", "/-/reload")]
    )
    def test_a_limited_token_reaches_nothing_that_is_of_all_namespaces(
        self, people: Api, method: str, path: str
    ) -> None:
        """Lines of the audit and metrics name targets of others, and a reload has theirs tried again."""
        assert "this token is limited to some" in people.call(method, path, token="team").json["error"]
        assert people.call(method, path, token="team").status_code == 403
        assert people.call(method, path).status_code == 200
        assert people.source.reloads == (1 if path == "/-/reload" else 0)


class TestAudit:
    def test_says_who_when_from_where_what_before_what_after_and_why(self, people: Api) -> None:
        """Each change is one line, newest first."""
        made = people.post(ROUTE, with_(PIN, force=True, createdBy="ana")).json
        people.call("DELETE", f"{ROUTE}/{made['id']}?comment=all+well")
        ended, created = people.get("/api/v1/audit?limit=5").json["audit"]
        was = "pin inference/deployment/vllm at 4 forced from "
        assert {key: created[key] for key in ("who", "address", "action", "subject", "before", "comment")} == {
            "who": "operator", "address": "127.0.0.1", "action": "override.create", "subject": made["id"],
            "before": "", "comment": "maintenance",
        }  # fmt: skip
        assert created["at"] == made["createdAt"]
        assert created["after"] == f"{was}{made['startsAt']} to {made['endsAt']} by ana"
        assert (ended["action"], ended["before"], ended["comment"]) == (
            "override.expire",
            created["after"],
            "all well",
        )
        assert ended["after"] == f"{was}{made['startsAt']} to {ended['at']} by ana"

    @pytest.mark.parametrize("limit", ["0", "-1", "x", "99999999999"])
    def test_limit_must_be_sensible(self, people: Api, limit: str) -> None:
        """Or nothing is read."""
        assert "limit: " in refused(people.get(f"/api/v1/audit?limit={limit}"), 400)


def test_a_store_that_takes_nothing_is_said(people: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 and not 201: what was not kept is not acknowledged."""
    people.store.close()
    assert people.post(ROUTE, PAUSE).status_code == 503
