"""Health, readiness, reload and metrics: what they tell, to whom."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint
from prometheus_client.parser import text_string_to_metric_families

from responder.errors import ConfigError, StoreUnavailable
from responder.model import Override, OverrideKind, Span
from responder.store import Status, Summary
from responder.web.app import Services, create_app, needs
from responder.web.auth import Access, Role, Tokens, hash_token
from tests.web.web_fakes import SETTINGS, Draining, FakeSource, FakeStore, make_app

NOW = datetime.now(UTC)
LOCAL = {"Host": "localhost"}


@pytest.fixture
def guarded(tmp_path: Path) -> Access:
    entries = [{"name": role, "role": role, "sha256": hash_token(role)} for role in Role]
    (tmp_path / "tokens").write_text(json.dumps({"tokens": entries}))
    return Access(Tokens(str(tmp_path / "tokens")))


class TestAccess:
    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("GET", "/-/healthy", {"", "alertmanager", "viewer", "operator"}),
            ("GET", "/-/ready", {"", "alertmanager", "viewer", "operator"}),
            ("GET", "/metrics", {"viewer", "operator"}),
            ("POST", "/-/reload", {"operator"}),
        ],
    )
    def test_is_as_each_route_says(self, guarded: Access, method: str, path: str, allowed: set[str]) -> None:
        """Probes need no token, metrics a viewer's, reload an operator's."""
        client = make_app(access=guarded).test_client()
        for role in ("", *Role):
            headers = {"Authorization": f"Bearer {role}"} if role else {}
            answer = client.open(path, method=method, headers=headers)
            expected = 200 if role in allowed else 403 if role else 401
            assert answer.status_code == expected, role

    def test_a_view_that_says_nothing_needs_an_operator(self, guarded: Access) -> None:
        """A route that somebody adds and forgets to guard is closed, not open."""
        added = Blueprint("added", __name__)
        added.get("/forgotten")(lambda: "secret")
        services = Services(store=FakeStore(), source=FakeSource(), access=guarded)
        client = create_app(services, [added]).test_client()
        assert client.get("/forgotten").status_code == 401
        assert client.get("/forgotten", headers={"Authorization": "Bearer viewer"}).status_code == 403
        assert client.get("/forgotten", headers={"Authorization": "Bearer operator"}).status_code == 200

    def test_nothing_is_changed_by_get(self) -> None:
        """A link cannot reload."""
        source = FakeSource()
        answer = make_app(source=source).test_client().get("/-/reload", headers=LOCAL)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "OPTIONS, POST")
        assert source.reloads == 0

    @pytest.mark.parametrize("path", ["/-/healthy", "/-/ready", "/metrics", "/nowhere", "/api/v2/silences"])
    def test_another_host_is_refused_everywhere_without_tokens(self, path: str) -> None:
        """The open routes too: nothing of this service is for pages of the web."""
        assert make_app().test_client().get(path, headers={"Host": "evil.example"}).status_code == 403

    @pytest.mark.parametrize("path", ["//metrics", "/-//ready", "//-/healthy"])
    def test_a_path_with_doubled_slashes_is_none(self, guarded: Access, path: str) -> None:
        """A redirect to the right one would go wherever the Host header says."""
        answer = make_app(access=guarded).test_client().get(path, headers={"Host": "evil.example"})
        assert (answer.status_code, answer.headers.get("Location")) == (404, None)
        assert answer.json == {"error": "there is nothing at this path"}


class TestHealth:
    def test_answers_while_the_process_does(self) -> None:
        """Health is not readiness: a full disk is no reason to kill the process."""
        answer = make_app(FakeStore(broken="full")).test_client().get("/-/healthy", headers=LOCAL)
        assert (answer.status_code, answer.json) == (200, {"status": "healthy"})


class TestReadiness:
    def ready(self, **parts: Any) -> Any:
        return make_app(**parts).test_client().get("/-/ready", headers=LOCAL)

    def test_says_nothing_when_all_is_well(self) -> None:
        """No news."""
        answer = self.ready()
        assert (answer.status_code, answer.json) == (200, {"status": "ready", "details": {}})

    def test_is_503_while_the_store_takes_nothing(self) -> None:
        """And says why."""
        answer = self.ready(store=FakeStore(broken="db: the disk is full"))
        assert (answer.status_code, answer.json["error"]) == (503, "db: the disk is full")

    def test_is_503_while_draining(self) -> None:
        """No new connections, please."""
        answer = self.ready(draining=Draining(True))
        assert (answer.status_code, answer.json["error"]) == (503, "the service is stopping")

    def test_stays_200_with_a_detail_while_an_older_policy_is_in_force(self) -> None:
        """All replicas have the same wrong file: taking them all away would help nobody."""
        answer = self.ready(source=FakeSource(error="policies.yaml: line 3: …"))
        assert (answer.status_code, answer.json["details"]) == (200, {"policy": "policies.yaml: line 3: …"})

    def test_tells_of_safe_mode(self) -> None:
        """Why nothing is scaled down."""
        services = Services(FakeStore(), FakeSource(), Access(None), safe_mode=lambda *_: "no heartbeat")
        answer = create_app(services).test_client().get("/-/ready", headers=LOCAL)
        assert (answer.status_code, answer.json["details"]) == (200, {"safeMode": "no heartbeat"})

    @pytest.mark.parametrize(
        ("started", "said", "expected"),
        [
            pytest.param(-600, (-20, {}), [], id="the actor reaches everything"),
            pytest.param(
                -600, (-20, {"kubernetes": "refused"}), ["kubernetes"], id="it cannot reach the cluster"
            ),
            pytest.param(-600, (-200, {}), ["actor"], id="it is silent"),
            pytest.param(-600, None, ["actor"], id="there never was one, as with a wrong kubeconfig"),
            pytest.param(-5, None, [], id="there is none yet"),
            pytest.param(-5, (-9000, {"kubernetes": "x"}), [], id="an earlier service left it"),
        ],
    )
    def test_tells_what_the_actor_cannot_reach(
        self, started: int, said: tuple[int, dict[str, str]] | None, expected: list[str]
    ) -> None:
        """Deliveries are taken in without it, but somebody must be able to see that nothing is scaled."""
        now = datetime.now(UTC)
        left = {"actor": Status(now + timedelta(seconds=said[0]), said[1])} if said else {}
        began = now + timedelta(seconds=started)
        services = Services(FakeStore(left=left), FakeSource(), Access(None), started_at=began)
        answer = create_app(services).test_client().get("/-/ready", headers=LOCAL)
        assert (answer.status_code, list(answer.json["details"])) == (200, expected)


class TestReload:
    def test_reads_the_file_and_wakes_the_actor(self) -> None:
        """In force when it is answered."""
        store, source = FakeStore(), FakeSource()
        answer = make_app(store, source).test_client().post("/-/reload", headers=LOCAL)
        assert (answer.status_code, answer.json) == (200, {"status": "reloaded", "digest": SETTINGS.digest})
        assert (source.reloads, store.rung) == (1, 1)

    def test_says_what_is_wrong_with_the_file(self) -> None:
        """422, and the old one stays in force."""
        source = FakeSource(error="policies.yaml: line 3: minReplicas is larger than maxReplicas")
        answer = make_app(source=source).test_client().post("/-/reload", headers=LOCAL)
        assert (answer.status_code, answer.json) == (422, {"error": source.error})

    @pytest.mark.parametrize(
        ("error", "result"),
        [
            pytest.param("", f"digest {SETTINGS.digest}", id="taken"),
            pytest.param(
                "line 3: no", f"refused, digest {SETTINGS.digest} stays in force: line 3: no", id="wrong"
            ),
        ],
    )
    def test_is_in_the_audit(self, guarded: Access, error: str, result: str) -> None:
        """Who, when, from where, and what came of it."""
        store = FakeStore()
        client = make_app(store, FakeSource(error=error), guarded).test_client()
        client.post("/-/reload", headers={"Authorization": "Bearer operator"})
        [line] = store.audited
        assert (line.who, line.address, line.action) == ("operator", "127.0.0.1", "policy.reload")
        assert (line.before, line.after) == (f"digest {SETTINGS.digest}", result)
        assert datetime.now(UTC) - line.at < timedelta(seconds=10)

    def test_by_who_may_not_is_none(self, guarded: Access) -> None:
        """Nothing was done, so there is nothing to keep."""
        store = FakeStore()
        client = make_app(store, access=guarded).test_client()
        assert client.post("/-/reload", headers={"Authorization": "Bearer viewer"}).status_code == 403
        assert store.audited == []

    def test_does_not_wait_for_the_store(self, caplog: pytest.LogCaptureFixture) -> None:
        """A freeze in the file is what is left when nothing else works; the log has what the audit cannot take."""
        source = FakeSource()
        store = FakeStore(broken="the disk is full")
        answer = make_app(store, source).test_client().post("/-/reload", headers=LOCAL)
        assert (answer.status_code, source.reloads) == (200, 1)
        assert "a reload by local (digest " in caplog.text


class TestErrors:
    @pytest.mark.parametrize(
        ("path", "body"),
        [
            pytest.param("/api/v1/nowhere", {"error": "there is nothing at this path"}, id="as JSON"),
            pytest.param(
                "/api/v2/nowhere", "there is nothing at this path", id="as a bare string under /api/v2"
            ),
        ],
    )
    def test_are_json_in_the_form_of_the_route(self, path: str, body: Any) -> None:
        """amtool prints a bare string, and nothing else."""
        answer = make_app().test_client().get(path, headers=LOCAL)
        assert (answer.status_code, answer.json) == (404, body)
        assert answer.headers["X-Frame-Options"] == "DENY"

    @pytest.mark.parametrize(
        ("error", "status", "sentence"),
        [
            (StoreUnavailable("db: the disk is full"), 503, "db: the disk is full"),
            (ConfigError("policies.yaml: …"), 422, "policies.yaml: …"),
            (RuntimeError("secret detail"), 500, "a fault of this service; its log says more"),
        ],
    )
    def test_of_views_are_sentences(self, error: Exception, status: int, sentence: str) -> None:
        """And what is a fault of ours stays in the log."""
        added = Blueprint("added", __name__)

        @added.get("/broken")
        @needs(None)
        def broken() -> str:
            raise error

        services = Services(FakeStore(), FakeSource(), Access(None))
        answer = create_app(services, [added]).test_client().get("/broken", headers=LOCAL)
        assert (answer.status_code, answer.json) == (status, {"error": sentence})


def scrape(accept: str = "", **parts: Any) -> dict[str, float]:
    answer = make_app(**parts).test_client().get("/metrics", headers={**LOCAL, "Accept": accept})
    assert answer.status_code == 200
    return {
        sample.name
        + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


class TestMetrics:
    def test_tell_the_state_of_the_store(self) -> None:
        """Computed when scraped, so the same whichever process answers."""
        ends = NOW + timedelta(hours=1)
        override = Override(
            "o",
            OverrideKind.PIN,
            "me",
            "why",
            NOW,
            NOW - timedelta(1),
            ends,
            target="inference/deployment/vllm",
        )
        store = FakeStore(
            told=Summary(
                3,
                7,
                (("a/deployment/b", NOW - timedelta(seconds=90)),),
                (("ns/deployment/full", "AtMaxReplicas"), ("ns/deployment/hot", "Held")),
                2,
            ),
            people=(override, replace(override, id="later", starts_at=ends)),
            spans=(
                Span("w", {"alertname": "Watchdog"}, {}, True, NOW, NOW, NOW - timedelta(seconds=30)),
                Span("x", {"alertname": "Other"}, {}, True, NOW, NOW, NOW),
            ),
        )
        told = scrape(store=store)
        expected = {
            "gpu_responder_inbox_deliveries": 3,
            "gpu_responder_targets": 7,
            "gpu_responder_pending_intents": 1,
            "gpu_responder_unknown_alerts": 2,
            "gpu_responder_active_overrides{kind=pin}": 1,
            "gpu_responder_target_at_max{kind=deployment}{name=full}{namespace=ns}": 1,
            "gpu_responder_target_held{kind=deployment}{name=full}{namespace=ns}{reason=AtMaxReplicas}": 1,
            "gpu_responder_target_held{kind=deployment}{name=hot}{namespace=ns}{reason=Held}": 1,
            "gpu_responder_safe_mode": 0,
            "gpu_responder_policy_valid": 1,
            "gpu_responder_store_up": 1,
        }
        assert {name: told[name] for name in expected} == expected
        assert 90 <= told["gpu_responder_pending_intent_age_seconds"] < 3600
        assert 30 <= told["gpu_responder_heartbeat_age_seconds"] < 3600
        name = (
            "gpu_responder_override_ends_timestamp_seconds{id=o}{kind=pin}{target=inference/deployment/vllm}"
        )
        assert told[name] == pytest.approx(ends.timestamp())
        assert not any("later" in name for name in told)
        assert not any("target_at_max" in name and "hot" in name for name in told)

    def test_say_nothing_of_a_heartbeat_never_heard(self) -> None:
        """An age of zero would be a lie."""
        assert "gpu_responder_heartbeat_age_seconds" not in scrape()

    def test_are_there_though_the_store_is_not(self) -> None:
        """An alert on a dead store needs a metric that lives."""
        told = scrape(store=FakeStore(broken="full"))
        assert (told["gpu_responder_store_up"], "gpu_responder_targets" in told) == (0, False)

    def test_say_when_an_older_policy_is_in_force(self) -> None:
        """The alert for a file that was not taken."""
        assert scrape(source=FakeSource(error="wrong"))["gpu_responder_policy_valid"] == 0

    def test_count_deliveries_and_alerts_by_result(self) -> None:
        """Each result of the interface, once."""
        before = scrape()
        client = make_app().test_client()
        healthy = {
            "status": "firing",
            "startsAt": "2026-11-30T12:00:00Z",
            "fingerprint": "f",
            "labels": {"alertname": "Watchdog"},
        }
        other = {**healthy, "labels": {"alertname": "Other"}}

        def deliver(*alerts: Any) -> None:
            headers = {**LOCAL, "Content-Type": "application/json"}
            body = json.dumps({"version": "4", "alerts": alerts})
            client.post("/api/v1/webhooks/alertmanager", data=body, headers=headers)

        deliver(healthy, other)
        deliver(healthy, 5)
        deliver(5)
        after = scrape()
        grown = {name: after[name] - before.get(name, 0) for name in after if "_total" in name}
        assert {name: value for name, value in grown.items() if value} == {
            "gpu_responder_deliveries_total{result=accepted}": 1,
            "gpu_responder_deliveries_total{result=partial}": 1,
            "gpu_responder_deliveries_total{result=rejected}": 1,
            "gpu_responder_alerts_total{result=accepted}": 2,
            "gpu_responder_alerts_total{result=unclaimed}": 1,
            "gpu_responder_alerts_total{result=rejected}": 2,
        }

    def test_are_documented_each_one(self) -> None:
        """Every name that can be scraped stands in docs/operations.md, and every name there can be scraped."""
        documented = set()
        for line in (Path(__file__).parents[2] / "docs" / "operations.md").read_text().splitlines():
            if line.startswith("| `gpu_responder_"):
                documented.add(line.split("`")[1].partition("{")[0])
        override = Override("o", OverrideKind.PIN, "me", "why", NOW, NOW, NOW + timedelta(hours=1))
        beat = Span("w", {"alertname": "Watchdog"}, {}, True, NOW, NOW, NOW)
        text = (
            make_app(FakeStore(people=(override,), spans=(beat,)))
            .test_client()
            .get("/metrics", headers=LOCAL)
            .text
        )
        told = {
            line.split()[2].removesuffix("_created")
            for line in text.splitlines()
            if line.startswith("# TYPE") and not line.split()[2].endswith("_created")
        }
        assert documented == told

    def test_are_given_as_openmetrics_when_asked(self) -> None:
        """As Prometheus asks."""
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        answer = make_app().test_client().get("/metrics", headers={**LOCAL, **accept})
        assert answer.content_type.startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")
