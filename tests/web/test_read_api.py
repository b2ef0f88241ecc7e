"""What people read: targets, their history and why, each to those who may see it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from responder import verdicts
from responder.decide import decide
from responder.deciding.overrides import annotated
from responder.model import (
    Commit,
    Failure,
    HistoryEntry,
    Observed,
    Outcome,
    Override,
    OverrideKind,
    Pods,
    Reason,
    TargetRef,
    Verdict,
    Workload,
)
from responder.web.views import stamp
from tests.fakes import FakeCluster
from tests.responding import World
from tests.web.people import OTHER, TRITON, VLLM, Api, api
from tests.web.web_fakes import SETTINGS

NOW = datetime.now(UTC)
TEAM = {"name": "team", "role": "viewer", "namespaces": ["team-*"]}
LIVE = Workload("uid", 1, "100", 2, "kubectl")


@pytest.fixture
def people(tmp_path: Path) -> Any:
    with api(tmp_path, TEAM) as made:
        yield made


def decided(people: Api, workload: Workload = LIVE, ready: int = 1) -> None:
    """Have VLLM looked at once, as the actor does."""
    record, version = people.store.record(VLLM.key)  # type: ignore[misc]
    observed = Observed(workload, Pods(ready=ready))
    decision = decide(SETTINGS.policies[0], observed, record, datetime.now(UTC))
    line = verdicts.line(record, decision, observed, datetime.now(UTC), None)
    record = verdicts.judged(replace(record, replicas=2, ready=ready), decision, datetime.now(UTC), None)
    people.store.commit(Commit(records=((record, version),), history=(line,)))


def entry(target: str, **fields: Any) -> HistoryEntry:
    return HistoryEntry(**{"at": NOW, "target": target, "current": 2, "desired": 3, "reason": Reason.SCALED_UP,
                           "message": "m", **fields})  # fmt: skip


class TestTargets:
    def test_show_what_is_known(self, people: Api) -> None:
        """State, reason, alerts and whose word binds, in the shapes of the interface."""
        people.know(VLLM)
        decided(people)
        people.store.put_override(
            Override("o", OverrideKind.PAUSE, "ana", "c", NOW, NOW, NOW + timedelta(hours=1), VLLM.key)
        )
        body = people.get("/api/v1/targets", token="viewer").json
        [shown] = body["targets"]
        assert {key: shown[key] for key in ("target", "state", "replicas", "ready", "desired", "reason")} == {
            "target": "inference/deployment/vllm", "state": "up", "replicas": 2, "ready": 1, "desired": 3,
            "reason": "ScaledUp",
        }  # fmt: skip
        assert [(each["name"], each["state"], each["trigger"]) for each in shown["alerts"]] == [
            ("Busy", "firing", "up")
        ]
        assert [(each["id"], each["state"]) for each in shown["overrides"]] == [("o", "active")]
        assert (body["cluster"], body["dryRun"], body["freeze"], body["problems"]) == (
            "prod-eu",
            False,
            "",
            [],
        )

    def test_say_when_replicas_were_counted(self, people: Api) -> None:
        """Where that is over: of a target that cannot be read any more, and of one that no policy claims."""
        ago = {number: NOW - timedelta(minutes=number) for number in (3, 5, 9)}
        failing = Failure(Reason.API_UNAVAILABLE, "no answer", ago[5], NOW)
        alone = Verdict(NOW, 1, 1, Reason.UNCLAIMED, "no policy claims it")
        people.know(VLLM, ready=1, pods_known_at=ago[9], failure=failing)
        people.know(OTHER, ready=1, pods_known_at=ago[3], verdict=alone)
        people.know(TRITON, ready=1, pods_known_at=ago[9])
        found = {each["name"]: each["countedAt"] for each in people.get("/api/v1/targets").json["targets"]}
        assert found == {"vllm": stamp(ago[5]), "vllm-large": stamp(ago[3]), "triton": None}
        assert people.get(f"/api/v1/targets/{VLLM.key}").json["countedAt"] == found["vllm"]

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", {VLLM, TRITON, OTHER}),
            ("?namespace=team-*", {OTHER}),
            ("?kind=statefulset", {TRITON}),
            ("?name=vllm*", {VLLM, OTHER}),
            ("?name=vllm*&namespace=inference", {VLLM}),
            ("?q=trit", {TRITON}),
            ("?state=pending", {VLLM, TRITON, OTHER}),
            ("?state=failing", set()),
        ],
    )
    def test_are_filtered(self, people: Api, query: str, found: set[Any]) -> None:
        """By globs, by state, by a part of the key."""
        people.know(VLLM, TRITON, OTHER)
        body = people.get(f"/api/v1/targets{query}").json
        assert {each["target"] for each in body["targets"]} == {each.key for each in found}

    def test_are_shown_to_those_who_may_see_them(self, people: Api) -> None:
        """One who is limited to namespaces sees what is in them, by no other way either."""
        people.know(VLLM, OTHER)
        people.store.commit(Commit(history=(entry(VLLM.key), entry(OTHER.key))))
        assert [each["target"] for each in people.get("/api/v1/targets", token="team").json["targets"]] == [
            OTHER.key
        ]
        assert people.get(f"/api/v1/targets/{VLLM.key}", token="team").status_code == 404
        seen = people.get("/api/v1/decisions", token="team").json["decisions"]
        assert [each["target"] for each in seen] == [OTHER.key]

    def test_say_that_the_api_server_is_not_reached(self, people: Api) -> None:
        """What is shown may be old then."""
        failure = Failure(Reason.API_UNAVAILABLE, "connection refused", NOW, NOW)
        people.know(VLLM, failure=failure)
        people.source.error = "policies.yaml: line 3: …"
        body = people.get("/api/v1/targets").json
        assert body["problems"] == [
            "policies.yaml: line 3: …",
            "the Kubernetes API could not be reached for 1 of the targets: connection refused",
        ]
        assert body["targets"][0]["state"] == "failing"

    def test_say_what_the_acting_process_cannot_reach(self, people: Api) -> None:
        """Web processes ask nobody themselves: the one that acts leaves word in the store."""
        people.store.put_status("actor", {"kubernetes": "the API server refuses connections."})
        assert people.get("/api/v1/targets").json["problems"] == [
            "Kubernetes: The API server refuses connections."
        ]
        people.store.put_status("actor", {})
        assert people.get("/api/v1/targets").json["problems"] == []

    def test_links_are_http_only(self, people: Api) -> None:
        """What comes from outside becomes no script."""
        people.know(VLLM)
        record, version = people.store.record(VLLM.key)  # type: ignore[misc]
        spans = {
            key: replace(span, generator_url="javascript:alert(1)") for key, span in record.alerts.items()
        }
        people.store.commit(Commit(records=((replace(record, alerts=spans), version),)))
        assert people.get("/api/v1/targets").json["targets"][0]["alerts"][0]["generatorURL"] == ""

    @pytest.mark.parametrize(
        "path", ["/api/v1/targets", f"/api/v1/targets/{VLLM.key}", "/api/v1/decisions", "/api/v1/overrides"]
    )
    def test_are_not_sent_again_to_one_who_has_them(self, people: Api, path: str) -> None:
        """304 while nothing but the time has changed; then anew. So it is with all that a page polls."""
        people.know(VLLM)
        first = people.get(path)
        again = people.get(path, **{"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b"")
        decided(people)
        people.store.put_override(
            Override("o", OverrideKind.PAUSE, "ana", "c", NOW, NOW, NOW + timedelta(hours=1), VLLM.key)
        )
        anew = people.get(path, **{"If-None-Match": first.headers["ETag"]})
        assert anew.status_code == 200
        assert anew.headers["ETag"] != first.headers["ETag"]


class TestAnnotations:
    @pytest.mark.parametrize(
        ("annotations", "kind", "source", "ends"),
        [
            ({"gpu-responder.io/paused": "true"}, "pause", "annotation gpu-responder.io/paused", None),
            ({"gpu-responder.io/pinned-replicas": "3"}, "pin", "annotation gpu-responder.io/pinned-replicas", None),
            ({"gpu-responder.io/paused-until": "2099-01-01T00:00:00Z"}, "pause",
             "annotation gpu-responder.io/paused-until", "2099-01-01T00:00:00.000Z"),
        ],
    )  # fmt: skip
    def test_show_as_overrides_with_their_source(
        self, people: Api, annotations: dict[str, str], kind: str, source: str, ends: str | None
    ) -> None:
        """They came from the workload, have no creation date, and may have no end."""
        live = replace(LIVE, annotations=annotations)
        said = annotated(SETTINGS.policies[0], VLLM, live).overrides
        people.know(VLLM, annotated=said)
        [shown] = people.get(f"/api/v1/targets/{VLLM.key}").json["overrides"]
        assert (shown["kind"], shown["source"], shown["endsAt"], shown["createdAt"]) == (
            kind,
            source,
            ends,
            None,
        )
        assert (shown["state"], shown["createdBy"]) == ("active", "annotation")
        assert people.get("/api/v1/overrides").json == {"overrides": []}

    def test_are_kept_by_a_look_and_go_when_they_are_removed(self) -> None:
        """The record says what the last look saw; the web reads no cluster."""

        class Annotated(FakeCluster):
            said: dict[str, str] = {"gpu-responder.io/paused": "true"}

            def workload(self, ref: TargetRef) -> Workload:
                return replace(super().workload(ref), annotations=self.said)

        world = World()
        world.cluster = cluster = Annotated(world.server)
        world.fire()
        world.look()
        assert [each.source for each in world.record().annotated] == ["annotation gpu-responder.io/paused"]
        cluster.said = {}
        world.look()
        assert world.record().annotated == ()


class TestOneTarget:
    def test_tells_how_it_came_to_its_last_decision(self, people: Api) -> None:
        """The chain of reasons, decided again from what history kept."""
        people.know(VLLM)
        decided(people)
        shown = people.get(f"/api/v1/targets/{VLLM.key}").json
        assert [step["rule"] for step in shown["chain"]][:2] == ["current", "owner"]
        assert shown["chain"][-1]["replicas"] == 3
        assert all(step["message"] for step in shown["chain"])

    def test_tells_no_chain_that_would_be_wrong(self, people: Api) -> None:
        """After a change of the policy the same inputs lead elsewhere."""
        people.know(VLLM)
        decided(people)
        policy = replace(SETTINGS.policies[0], max_replicas=2)
        people.source.current = replace(SETTINGS, policies=(policy,))
        assert people.get(f"/api/v1/targets/{VLLM.key}").json["chain"] == []

    def test_has_a_timeline_from_old_to_new(self, people: Api) -> None:
        """With ready replicas where they were seen, and outcomes."""
        people.know(VLLM)
        before = entry(VLLM.key, at=NOW - timedelta(hours=1), outcome=Outcome.APPLIED)
        people.store.commit(Commit(history=(before, entry(OTHER.key))))
        decided(people)
        shown = people.get(f"/api/v1/targets/{VLLM.key}").json
        assert [(each["current"], each["desired"], each["ready"], each["outcome"]) for each in shown["timeline"]] == [
            (2, 3, None, "applied"), (2, 3, 1, None),
        ]  # fmt: skip
        assert [each["outcome"] for each in shown["decisions"]] == [None, "applied"]

    @pytest.mark.parametrize(
        "path", ["inference/deployment/vllm", "inference/Deployment/vllm", "inference/deployments/vllm",
                 "inference/deploy/vllm"]
    )  # fmt: skip
    def test_is_found_as_people_write_it(self, people: Api, path: str) -> None:
        """Kubernetes' spelling, plurals, kubectl's short names."""
        people.know(VLLM)
        assert people.get(f"/api/v1/targets/{path}").json["target"] == VLLM.key

    @pytest.mark.parametrize(
        ("path", "status", "sentence", "near"),
        [
            ("inference/deployment/vlm", 404, "did you mean inference/deployment/vllm?", [VLLM.key]),
            ("inference/statefulset/vllm", 404, "did you mean inference/deployment/vllm?", [VLLM.key]),
            ("zz/zz/zz", 404, "no target 'zz/zz/zz' is known", []),
            ("inference/deployment/_", 400, "is not a legal name", None),
        ],
    )
    def test_that_is_not_there_is_404_with_near_ones(
        self, people: Api, path: str, status: int, sentence: str, near: list[str] | None
    ) -> None:
        """A misspelling is not looked for in vain."""
        people.know(VLLM)
        answer = people.get(f"/api/v1/targets/{path}")
        assert answer.status_code == status
        assert sentence in answer.json["error"]
        assert answer.json.get("near") == near


class TestParameters:
    @pytest.mark.parametrize(
        ("method", "path", "sentence"),
        [
            ("GET", "targets?namspace=inference",
             "an unknown parameter, perhaps for namespace; known here are namespace, kind, name, state, q"),
            ("GET", f"targets/{VLLM.key}?hours=6", "'hours' is an unknown parameter; none are known here"),
            ("GET", "decisions?limit=1&target=vllm", "'target' is an unknown parameter; known here are namespace,"),
            ("GET", "overrides?expired=true", "'expired' is an unknown parameter; known here are ended"),
            ("DELETE", "overrides/x?coment=why", "'coment' is an unknown parameter, perhaps for comment"),
            ("POST", "overrides?dryRun=true", "'dryRun' is an unknown parameter; none are known here"),
            ("GET", "audit?since=2h", "'since' is an unknown parameter; known here are limit"),
            ("HEAD", "targets?namspace=x", ""),
        ],
    )  # fmt: skip
    def test_that_are_unknown_are_refused(self, people: Api, method: str, path: str, sentence: str) -> None:
        """A misspelt filter would show everything, and somebody would believe it."""
        people.know(VLLM)
        answer = people.call(method, f"/api/v1/{path}")
        assert answer.status_code == 400
        assert sentence in answer.text

    def test_are_told_only_to_those_who_may_ask(self, people: Api) -> None:
        """Who has no token learns nothing but that."""
        assert people.get("/api/v1/targets?x=1", token="guess").status_code == 401

    @pytest.mark.parametrize(
        "path",
        [
            "/api/v2/silences?x=1",
            "/api/v2/status?x=1",
            "/-/healthy?x=1",
            "/metrics?x=1",
            "/api/v1/openapi.json",
        ],
    )
    def test_of_others_interfaces_are_let_be(self, people: Api, path: str) -> None:
        """Alertmanager ignores what it does not know, probes and scrapes add what they like."""
        assert people.get(path).status_code == 200


class TestDecisions:
    @pytest.mark.parametrize(
        ("query", "count"),
        [
            ("", 3),
            ("?namespace=inference", 2),
            ("?kind=deployments&namespace=inference", 2),
            ("?name=vllm-large", 1),
            ("?reason=Paused", 1),
            ("?limit=1", 1),
            ("?id=2", 1),
            ("?id=99", 0),
            ("?since=2099-01-01T00:00:00Z", 0),
            ("?since=2020-01-01T00:00:00+01:00", 3),
        ],
    )
    def test_are_filtered(self, people: Api, query: str, count: int) -> None:
        """Each filter, and all of them together."""
        lines = (entry(VLLM.key), entry(VLLM.key, reason=Reason.PAUSED), entry(OTHER.key))
        people.store.commit(Commit(history=lines))
        assert len(people.get(f"/api/v1/decisions{query}").json["decisions"]) == count

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            ("limit=0", "limit: '0' is no whole number from 1 to 10000"),
            ("limit=x", "limit: 'x' is no whole number"),
            ("limit=0000000019", "limit: '0000000019' is no whole number"),
            ("limit=00001000099999999999999999999", "is no whole number from 1 to 10000"),
            ("id=x", "id: 'x' is no whole number"),
            ("reason=Pause", "reason: 'Pause' is no reason; did you mean Paused?"),
            ("reason=x", "reason: 'x' is no reason; docs/how-it-decides.md lists them"),
            ("since=yesterday", "since: 'yesterday' is no time"),
            ("since=2026-01-01T00:00:00", "has no time zone"),
            ("inputs=1", "inputs: '1' is neither true nor false"),
        ],
    )
    def test_filters_that_are_wrong_are_told(self, people: Api, query: str, sentence: str) -> None:
        """In one sentence."""
        answer = people.get(f"/api/v1/decisions?{query}")
        assert answer.status_code == 400
        assert sentence in answer.json["error"]

    def test_have_what_they_were_made_from_when_asked(self, people: Api) -> None:
        """For a replay against another policy."""
        people.know(VLLM)
        decided(people)
        [plain] = people.get("/api/v1/decisions").json["decisions"]
        [full] = people.get("/api/v1/decisions?inputs=true").json["decisions"]
        assert set(full) - set(plain) == {"inputs"}
        assert full["inputs"]["observed"]["workload"]["replicas"] == 2

    def test_tell_the_time_from_alert_to_scale(self, people: Api) -> None:
        """For outcomes that have an alert."""
        line = entry(VLLM.key, outcome=Outcome.APPLIED, alert_started_at=NOW - timedelta(seconds=12))
        people.store.commit(Commit(history=(line,)))
        [shown] = people.get("/api/v1/decisions").json["decisions"]
        assert (shown["alertToScaleSeconds"], shown["outcome"]) == (12.0, "applied")
