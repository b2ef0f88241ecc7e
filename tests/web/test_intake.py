"""The webhook: every kind of input, answered as the interface says, with nothing lost and nothing executed."""

import io
import json
import logging
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug.test import TestResponse, run_wsgi_app
from werkzeug.wrappers import Request

from responder import webhook
from responder.web import intake
from responder.web.auth import Access, Role, Tokens, hash_token
from tests.web.web_fakes import SETTINGS, Draining, FakeSource, FakeStore, make_app

ROUTE = "/api/v1/webhooks/alertmanager"
DATA = Path(__file__).parent.parent / "data" / "alertmanager-0.25"
LOCAL = {"Host": "localhost:9099"}


def alert(**changes: Any) -> dict[str, Any]:
    healthy = {
        "status": "firing",
        "labels": {
            "alertname": "A",
            "namespace": "inference",
            "workload": "vllm",
            "workload_type": "deployment",
            "action": "scale_up",
        },
        "annotations": {"summary": "it is hot"},
        "startsAt": "2026-11-30T12:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "0123456789abcdef",
    }
    return {key: value for key, value in {**healthy, **changes}.items() if value is not ...}


def labels(**changes: Any) -> dict[str, Any]:
    return {**alert()["labels"], **changes}


def payload(*alerts: Any, **changes: Any) -> dict[str, Any]:
    whole = {
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "responder",
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager",
        "alerts": list(alerts),
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not ...}


def post(body: Any, *, app: Any = None, **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    app = app or make_app()
    return app.test_client().post(
        ROUTE, data=data, headers={**LOCAL, "Content-Type": "application/json", **headers}
    )


def send(stream: Any, app: Any = None, **environ: Any) -> TestResponse:
    """A request as the server hands it over, its body not yet read."""
    start = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": ROUTE,
        "CONTENT_TYPE": "application/json",
        "HTTP_HOST": "localhost",
        "wsgi.input": stream,
    }
    body, status, headers = run_wsgi_app((app or make_app()).wsgi_app, {**start, **environ})
    return TestResponse(body, status, headers, Request(start))


class TestWhatAlertmanagerSends:
    @pytest.mark.parametrize("recording", sorted(path.stem for path in DATA.glob("*.json")))
    def test_recorded_payloads_are_taken_in_whole(self, recording: str) -> None:
        """Real deliveries of Alertmanager 0.25: all alerts accepted, in order, nothing dropped."""
        body = json.loads((DATA / f"{recording}.json").read_text())["body"]
        store = FakeStore()
        answer = post(body, app=make_app(store))
        assert answer.status_code == 200
        assert (answer.json["accepted"], answer.json["rejected"]) == (len(body["alerts"]), 0)
        [delivery] = store.deliveries
        assert delivery.receiver == body["receiver"]
        assert delivery.truncated == body["truncatedAlerts"]
        for kept, sent in zip(delivery.notifications, body["alerts"], strict=True):
            assert (kept.labels, kept.annotations) == (sent["labels"], sent["annotations"])
            assert (kept.fingerprint, kept.firing) == (sent["fingerprint"], sent["status"] == "firing")
            assert kept.starts_at == datetime.fromisoformat(sent["startsAt"])
            assert kept.ends_at == (None if kept.firing else datetime.fromisoformat(sent["endsAt"]))

    def test_each_alert_has_a_result_in_order(self) -> None:
        """The sender can tell which is which."""
        answer = post(
            payload(alert(fingerprint="a"), alert(fingerprint="b", status="odd"), alert(fingerprint="c"))
        )
        assert answer.json == {
            "accepted": 2,
            "rejected": 1,
            "results": [
                {"fingerprint": "a", "result": "accepted"},
                {
                    "fingerprint": "b",
                    "result": "rejected",
                    "error": "'status' is 'odd', and must be one of firing, resolved",
                },
                {"fingerprint": "c", "result": "accepted"},
            ],
        }

    def test_unknown_fields_are_fine(self) -> None:
        """Later releases add some."""
        body = payload({**alert(), "routeLabels": {"a": "b"}}, notification_reason={"x": [1]}, another=None)
        assert post(body).json["accepted"] == 1

    def test_no_alerts_is_nothing_to_do(self) -> None:
        """An empty group is answered and keeps no row."""
        store = FakeStore()
        answer = post(payload(), app=make_app(store))
        assert (answer.status_code, answer.json) == (200, {"accepted": 0, "rejected": 0, "results": []})
        assert store.deliveries == []

    def test_an_alert_that_no_policy_takes_is_kept(self) -> None:
        """The next policy file may take it; and it is no fault of the sender's."""
        store = FakeStore()
        assert post(payload(alert(labels={"alertname": "Other"})), app=make_app(store)).json["accepted"] == 1
        assert len(store.deliveries) == 1

    def test_charset_in_the_content_type_is_fine(self) -> None:
        """As some proxies write it."""
        answer = post(payload(alert()), **{"Content-Type": "application/json; charset=utf-8"})
        assert answer.status_code == 200

    @pytest.mark.parametrize(
        ("text", "at"),
        [
            pytest.param("2026-11-30T12:00:00Z", datetime(2026, 11, 30, 12, tzinfo=UTC), id="seconds"),
            pytest.param(
                "2026-11-30T12:00:00.123456789Z",
                datetime(2026, 11, 30, 12, 0, 0, 123457, UTC),
                id="nanoseconds",
            ),
            pytest.param(
                "2026-11-30T13:30:00+01:30",
                datetime(2026, 11, 30, 13, 30, tzinfo=timezone(timedelta(minutes=90))),
                id="an offset",
            ),
            pytest.param("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC), id="the first moment"),
            pytest.param(
                "9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), id="the last"
            ),
        ],
    )
    def test_times_are_understood_and_kept_in_utc(self, text: str, at: datetime) -> None:
        """RFC 3339 as Go writes it."""
        store = FakeStore()
        post(payload(alert(startsAt=text)), app=make_app(store))
        starts_at = store.deliveries[0].notifications[0].starts_at
        assert starts_at == at
        assert starts_at.tzinfo is UTC


POISON = [
    pytest.param(5, "it is 5, and must be of type object", id="not an object"),
    pytest.param(None, "it is null, and must be of type object", id="null"),
    pytest.param(alert(status=...), "it lacks status", id="no status"),
    pytest.param(alert(fingerprint=...), "it lacks fingerprint", id="no fingerprint"),
    pytest.param(alert(fingerprint=""), "must be 1 to 128 letters, digits", id="an empty fingerprint"),
    pytest.param(alert(fingerprint="a\nb"), r"'fingerprint' is 'a\nb'", id="a newline in the fingerprint"),
    pytest.param(alert(fingerprint="f" * 129), "must be 1 to 128 letters, digits", id="a long fingerprint"),
    pytest.param(alert(labels=...), "it lacks labels", id="no labels"),
    pytest.param(alert(labels={}), "'labels' is empty", id="empty labels"),
    pytest.param(alert(labels=[]), "'labels' is a list, and must be of type object", id="labels as a list"),
    pytest.param(
        alert(labels=labels(x=5)), "'labels.x' is 5, and must be of type string", id="a number as a label"
    ),
    pytest.param(alert(labels=labels(x=None)), "'labels.x' is null", id="null as a label"),
    pytest.param(alert(labels=labels(x={"y": 1})), "'labels.x' is an object", id="an object as a label"),
    pytest.param(alert(labels=labels(x="x" * 70_000)), "longer than 65536 characters", id="a label of 70 kB"),
    pytest.param(alert(annotations={"x": []}), "'annotations.x' is a list", id="a list as an annotation"),
    pytest.param(alert(startsAt=...), "it lacks startsAt", id="no start"),
    pytest.param(alert(startsAt="yesterday"), "must be a time in RFC 3339", id="a start in words"),
    pytest.param(alert(startsAt=1796040000), "'startsAt' is 1796040000", id="a start as a number"),
    pytest.param(
        alert(startsAt="2026-11-30T12:00:00"), "must be a time in RFC 3339", id="a start without a zone"
    ),
    pytest.param(alert(startsAt="2026-02-30T12:00:00Z"), "there is no such time", id="the 30th of February"),
    pytest.param(
        alert(startsAt="0001-01-01T00:00:00+14:00"), "there is no such time", id="before the first moment"
    ),
    pytest.param(
        alert(startsAt="9999-12-31T23:59:59-12:00"), "there is no such time", id="after the last moment"
    ),
    pytest.param(
        alert(startsAt="٢٠٢٦-11-30T12:00:00Z"), "must be a time in RFC 3339", id="digits of another script"
    ),
    pytest.param(alert(status="resolved", endsAt=...), "it lacks endsAt", id="resolved without an end"),
    pytest.param(
        alert(status="resolved", endsAt="2026-13-01T00:00:00Z"), "`endsAt` is", id="an end that is none"
    ),
    pytest.param(alert(labels=labels(workload="../secrets")), "is not a legal name", id="a path as a name"),
    pytest.param(alert(labels=labels(workload="$(reboot)")), "is not a legal name", id="shell as a name"),
    pytest.param(
        alert(labels=labels(workload="{{ 7*7 }}")), "is not a legal name", id="a template as a name"
    ),
    pytest.param(
        alert(labels=labels(workload="v\nllm")), r"'v\nllm' is not a legal name", id="a newline in a name"
    ),
    pytest.param(
        alert(labels={"workload_type": "deployment"}),
        "The target cannot be named",
        id="no label for the target",
    ),
    pytest.param(alert(labels=labels(cluster="prod-us")), "acts on 'prod-eu'", id="another cluster's"),
    pytest.param(alert(labels=labels(x="\ud800")), "half a surrogate pair", id="half a surrogate pair"),
]


class TestPoison:
    @pytest.mark.parametrize(("poison", "sentence"), POISON)
    def test_is_rejected_beside_its_healthy_siblings(self, poison: Any, sentence: str) -> None:
        """One bad alert costs the others nothing, and says why it is bad."""
        store = FakeStore()
        answer = post(payload(alert(fingerprint="a"), poison, alert(fingerprint="c")), app=make_app(store))
        assert answer.status_code == 200
        assert (answer.json["accepted"], answer.json["rejected"]) == (2, 1)
        assert sentence in answer.json["results"][1]["error"]
        assert [kept.fingerprint for kept in store.deliveries[0].notifications] == ["a", "c"]

    @pytest.mark.parametrize(
        "number", [pytest.param("1" * 5000, id="huge"), pytest.param("1e999", id="beyond floats")]
    )
    def test_an_absurd_number_spoils_only_its_own_alert(self, number: str) -> None:
        """Fast JSON parsers refuse the whole document for it."""
        body = json.dumps(payload(alert(labels=labels(x="@")), alert())).replace('"@"', number).encode()
        answer = post(body)
        assert (answer.status_code, answer.json["accepted"], answer.json["rejected"]) == (200, 1, 1)

    def test_only_poison_keeps_nothing(self) -> None:
        """No empty rows for the actor to read."""
        store = FakeStore()
        assert post(payload(5), app=make_app(store)).json["rejected"] == 1
        assert store.deliveries == []

    def test_ten_thousand_of_them_are_told_in_time(self) -> None:
        """Wording a fault is dear, and a flood of faults must not hold the thread."""
        answer = post(payload(*({"n": i} for i in range(10_000))))
        assert answer.json["rejected"] == 10_000
        assert answer.json["results"][0]["error"] == "it lacks status and labels and startsAt and fingerprint"
        assert "as others before it" in answer.json["results"][-1]["error"]


class TestHostileText:
    @pytest.mark.parametrize(
        "value",
        [
            pytest.param('it\'s "quoted" \\ and `ticked`', id="quotes"),
            pytest.param("line\nbreak\r\n\x00\x1b[31m", id="newlines and control characters"),
            pytest.param("x" * 10_000, id="10 kB"),
            pytest.param("$(rm -rf /); `id` | sh", id="shell"),
            pytest.param("{{ 7*7 }} {% raw %} ${jndi:ldap://x} %s %n", id="templates"),
            pytest.param("<script>alert(1)</script>", id="markup"),
            pytest.param("'; DROP TABLE inbox; --", id="SQL"),
            pytest.param("ünïcode ☃ 🔥 \u202e\u200b", id="other scripts"),
        ],
    )
    def test_is_kept_as_it_is(self, value: str) -> None:
        """Labels are data: stored unchanged, never executed, expanded or cut."""
        store = FakeStore()
        answer = post(payload(alert(labels=labels(x=value), annotations={"x": value})), app=make_app(store))
        assert answer.json["accepted"] == 1
        [kept] = store.deliveries[0].notifications
        assert (kept.labels["x"], kept.annotations["x"]) == (value, value)

    def test_never_reaches_a_log_line_as_it_is(self, caplog: pytest.LogCaptureFixture) -> None:
        """A newline in a label must not forge a line of the log."""
        with caplog.at_level(logging.DEBUG):
            post(payload(alert(status="x\n2026 INFO forged\x1b[2J")))
            post(payload(alert(fingerprint="x\nforged")))
            post(payload(version="4\nforged"))
        assert caplog.records
        assert not [record for record in caplog.records if not record.getMessage().isprintable()]


class TestRefusedWhole:
    @pytest.mark.parametrize(
        ("body", "status", "sentence"),
        [
            pytest.param(b"", 400, "the body is not JSON", id="empty"),
            pytest.param(
                json.dumps(payload(alert())).encode()[:-7], 400, "the body is not JSON", id="truncated"
            ),
            pytest.param(b'{"a": NaN}', 400, "NaN is not a JSON value", id="NaN"),
            pytest.param(b'{"a": Infinity}', 400, "Infinity is not a JSON value", id="Infinity"),
            pytest.param(b'{"a": "\xff"}', 400, "byte 7 is not UTF-8", id="not UTF-8"),
            pytest.param("{}".encode("utf-16"), 400, "is not UTF-8", id="UTF-16"),
            pytest.param(b"[" * 200_000, 400, "nested too deeply", id="a bomb of brackets"),
            pytest.param(b'{"a":' * 200_000, 400, "nested too deeply", id="a bomb of braces"),
            pytest.param(b"labels=x&status=firing", 400, "the body is not JSON", id="a form"),
            pytest.param(b"<alerts/>", 400, "the body is not JSON", id="XML"),
            pytest.param(b'"4"', 422, "it is no JSON object", id="a string"),
            pytest.param([alert()], 422, "point Prometheus at Alertmanager", id="what Prometheus sends"),
            pytest.param({}, 422, "`version` has none", id="an empty object"),
            pytest.param(payload(version="3"), 422, "`version` has '3'", id="version 3"),
            pytest.param(payload(version="5"), 422, "`version` has '5'", id="version 5"),
            pytest.param(payload(version=4), 422, "`version` has 4", id="the version as a number"),
            pytest.param(payload(alerts=...), 422, "it lacks alerts", id="no alerts"),
            pytest.param(payload(alerts=None), 422, "'alerts' is null", id="null for alerts"),
            pytest.param(payload(alerts={}), 422, "'alerts' is an object", id="an object for alerts"),
            pytest.param(payload(receiver=[]), 422, "'receiver' is a list", id="a list for the receiver"),
            pytest.param(payload(groupKey=7), 422, "'groupKey' is 7", id="a number for the group's key"),
            pytest.param(payload(receiver="\udc00"), 422, "half a surrogate", id="half a surrogate pair"),
            pytest.param(
                payload(truncatedAlerts=-1), 422, "'truncatedAlerts' is -1", id="fewer than no alerts"
            ),
            pytest.param(
                payload(truncatedAlerts=10**30), 422, "'truncatedAlerts' is 1000", id="a huge number"
            ),
        ],
    )
    def test_says_why_and_keeps_nothing(self, body: Any, status: int, sentence: str) -> None:
        """400 for what is no JSON, 422 for what is no payload of version 4, with one sentence."""
        store = FakeStore()
        answer = post(body, app=make_app(store))
        assert answer.status_code == status
        assert sentence in answer.json["error"]
        assert len(answer.json["error"]) < 400
        assert store.deliveries == []

    @pytest.mark.parametrize(
        "content_type",
        [
            pytest.param("text/plain", id="text"),
            pytest.param(
                "application/x-www-form-urlencoded", id="a form, as a page of another site can send it"
            ),
            pytest.param("", id="none"),
            pytest.param("application/jsonx", id="a near miss"),
        ],
    )
    def test_another_content_type_is_415(self, content_type: str) -> None:
        """Alertmanager sends application/json."""
        assert post(payload(alert()), **{"Content-Type": content_type}).status_code == 415

    def test_a_compressed_body_is_415(self) -> None:
        """A bomb of zeros is never unpacked."""
        answer = post(payload(alert()), **{"Content-Encoding": "gzip"})
        assert (answer.status_code, "Content-Encoding" in answer.json["error"]) == (415, True)

    def test_more_than_32_mib_is_413_and_not_read(self) -> None:
        """The declared length is enough to refuse it."""
        stream = io.BytesIO(b"x" * 100)
        answer = send(stream, CONTENT_LENGTH=str(webhook.MAX_BYTES + 1))
        assert (answer.status_code, answer.headers["Connection"]) == (413, "close")
        assert "larger than 32 MiB: set `max_alerts`" in answer.json["error"]
        assert stream.tell() == 0

    def test_a_body_in_chunks_is_bounded_too(self) -> None:
        """A length that was not told is not a length without bound."""

        class Endless:
            given = 0

            def read(self, size: int = -1) -> bytes:
                assert 0 <= size <= webhook.MAX_BYTES + 1, "asked for more than it would take"
                self.given += size
                return b" " * size

        stream = Endless()
        answer = send(stream, HTTP_TRANSFER_ENCODING="chunked", **{"wsgi.input_terminated": True})
        assert answer.status_code == 413
        assert stream.given == webhook.MAX_BYTES + 1

    def test_a_body_that_ends_early_is_400(self) -> None:
        """A connection that broke in the middle."""
        answer = send(io.BytesIO(b"{}"), CONTENT_LENGTH="100")
        assert (answer.status_code, answer.json) == (
            400,
            {"error": "the body ended before its Content-Length"},
        )

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
    def test_other_methods_are_405(self, method: str) -> None:
        """With what is allowed."""
        answer = make_app().test_client().open(ROUTE, method=method, headers=LOCAL)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


class TestNotNow:
    def test_a_store_that_cannot_keep_it_is_503(self) -> None:
        """Alertmanager comes again; nothing is acknowledged that is not kept."""
        answer = post(
            payload(alert()), app=make_app(FakeStore(broken="db: the disk is full: free some space"))
        )
        assert (answer.status_code, answer.json) == (503, {"error": "db: the disk is full: free some space"})

    def test_draining_is_503(self) -> None:
        """A stopping process begins nothing new, and the connection goes to another."""
        store = FakeStore()
        answer = post(payload(alert()), app=make_app(store, draining=Draining(True)))
        assert (answer.status_code, answer.headers["Connection"]) == (503, "close")
        assert store.deliveries == []

    def test_more_large_bodies_than_memory_is_for_are_503(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two are read at a time; small ones do not wait for them."""
        monkeypatch.setattr(intake, "LARGE_WAIT_SECONDS", 0.01)
        go_on = threading.Event()
        store = FakeStore()

        class Slow(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                assert go_on.wait(10)
                return super().read(size)

        app = make_app(store)
        large = json.dumps(payload(alert(annotations={f"a{i}": "x" * 10_000 for i in range(150)}))).encode()
        length = {"CONTENT_LENGTH": str(len(large))}
        slow = [
            threading.Thread(target=send, args=(Slow(large),), kwargs={"app": app, **length})
            for _ in range(2)
        ]
        for thread in slow:
            thread.start()
        deadline = time.monotonic() + 60
        while send(io.BytesIO(large), app=app, **length).status_code != 503:
            assert time.monotonic() < deadline
        assert post(payload(alert()), app=app).status_code == 200
        go_on.set()
        for thread in slow:
            thread.join(60)
        assert send(io.BytesIO(large), app=app, **length).status_code == 200

    def test_what_is_wrong_in_itself_is_told_though_the_store_is_broken(self) -> None:
        """A retry would not mend it."""
        assert post(b"{", app=make_app(FakeStore(broken="full"))).status_code == 400


def tokens(tmp_path: Path, *entries: tuple[str, Role, str, tuple[str, ...] | None]) -> Access:
    path = tmp_path / "tokens.yaml"
    listed = [
        {"name": name, "role": role, "sha256": hash_token(token), **({"namespaces": list(ns)} if ns else {})}
        for name, role, token, ns in entries
    ]
    path.write_text(json.dumps({"tokens": listed}))
    return Access(Tokens(str(path)))


class TestTokens:
    @pytest.fixture
    def app(self, tmp_path: Path) -> Any:
        self.store = FakeStore()
        return make_app(
            self.store,
            access=tokens(
                tmp_path,
                ("am", Role.ALERTMANAGER, "whole", None),
                ("team", Role.ALERTMANAGER, "limited", ("team-*", "inference")),
                ("eye", Role.VIEWER, "viewer", None),
            ),
        )

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            pytest.param({}, 401, id="no token"),
            pytest.param({"Authorization": "Bearer wrong"}, 401, id="a wrong token"),
            pytest.param({"Authorization": "Bearer "}, 401, id="an empty token"),
            pytest.param({"Authorization": "Basic !!!"}, 401, id="broken basic"),
            pytest.param({"Authorization": "Bearer viewer"}, 403, id="a viewer"),
            pytest.param({"Authorization": "Bearer whole"}, 200, id="a deliverer"),
            pytest.param({"Authorization": "bearer  whole"}, 200, id="another spelling of bearer"),
            pytest.param({"Authorization": "Basic YW55Ondob2xl"}, 200, id="the token as a password"),
        ],
    )
    def test_decide_before_the_body_is_looked_at(
        self, app: Any, headers: dict[str, str], status: int
    ) -> None:
        """Who may not deliver learns nothing of what would be said to the body."""
        answer = post(payload(alert()), app=app, **headers)
        assert answer.status_code == status
        assert ("WWW-Authenticate" in answer.headers) == (status == 401)
        assert len(self.store.deliveries) == (status == 200)

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            pytest.param(labels(namespace="team-a"), "", id="a namespace of its glob"),
            pytest.param(labels(namespace="inference"), "", id="a namespace of its list"),
            pytest.param(labels(namespace="kube-system"), "may not reach targets in namespace", id="another"),
            pytest.param({"alertname": "Other"}, "", id="an alert that nothing takes"),
            pytest.param(
                {"action": "hold", "workload": "w", "namespace": "team-a"},
                "",
                id="a hold of its own namespace",
            ),
            pytest.param(
                {"action": "hold", "workload": "w", "namespace": "other"},
                "more namespaces",
                id="another's hold",
            ),
            pytest.param(
                {"action": "hold", "scope": "node", "node": "n", "namespace": "team-a"},
                "more namespaces",
                id="a hold on a node that others share",
            ),
            pytest.param({"alertname": "Watchdog"}, "more namespaces", id="the heartbeat of all"),
        ],
    )
    def test_bind_the_targets_that_a_delivery_may_reach(
        self, app: Any, given: dict[str, str], error: str
    ) -> None:
        """The namespaces are the token's; what an alert's labels say does not widen them."""
        answer = post(payload(alert(labels=given)), app=app, Authorization="Bearer limited")
        [result] = answer.json["results"]
        assert result["result"] == ("rejected" if error else "accepted")
        assert error in result.get("error", "")

    def test_keep_a_limited_sender_from_alerts_of_others_that_stand_alone(self, app: Any) -> None:
        """A fingerprint is what a sender says: with that of a hold on the cluster it could have resolved that."""
        hold = {"action": "hold", "workload": "w", "namespace": "team-a"}
        fingerprint = alert()["fingerprint"]
        for token in ("limited", "whole"):
            answer = post(payload(alert(labels=hold)), app=app, Authorization=f"Bearer {token}")
            assert answer.json["results"] == [{"fingerprint": fingerprint, "result": "accepted"}]
        own, whole = (each.notifications[0].fingerprint for each in self.store.deliveries)
        assert (own, whole) == (f"{fingerprint}@team-a", fingerprint)
        post(payload(alert()), app=app, Authorization="Bearer limited")
        assert self.store.deliveries[-1].notifications[0].fingerprint == fingerprint, "a target's are its own"

    def test_name_the_sender_and_its_limits_to_the_actor(self, app: Any) -> None:
        """An alert whose target is only found later is bound by them too."""
        post(payload(alert()), app=app, Authorization="Bearer limited")
        assert (self.store.deliveries[0].sender, self.store.deliveries[0].namespaces) == (
            "team",
            ("team-*", "inference"),
        )

    def test_never_answer_429_to_a_delivery(self, app: Any) -> None:
        """Alertmanager gives a delivery up on 429, and retries on nothing but 5xx."""
        statuses = {post(payload(alert()), app=app, Authorization="Bearer no").status_code for _ in range(50)}
        assert statuses == {401}
        assert post(payload(alert()), app=app, Authorization="Bearer whole").status_code == 200


def test_a_fault_of_ours_is_500_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback, the answer has a sentence."""

    class Broken(FakeStore):
        def append(self, delivery: Any) -> None:
            raise RuntimeError("secret detail")

    answer = post(payload(alert()), app=make_app(Broken()))
    assert (answer.status_code, answer.json) == (500, {"error": "a fault of this service; its log says more"})
    assert "secret detail" in caplog.text


def test_answers_carry_the_security_headers() -> None:
    """The fast path has them as the others do."""
    for answer in (post(payload(alert())), post(b"{")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@settings(max_examples=150)
@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["version", "alerts", "labels", "status", "fingerprint", "x"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_any_input_has_an_answer(body: Any) -> None:
    """Never 500 and never 429, whatever is sent."""
    app = make_app(source=FakeSource(SETTINGS))
    assert post(body, app=app).status_code in (200, 400, 422)


@settings(max_examples=150)
@given(st.data())
def test_any_change_of_one_alert_leaves_its_sibling(data: st.DataObject) -> None:
    """Replace any one field of an alert by anything: its sibling is accepted, and the answer is 200."""
    field = data.draw(st.sampled_from(sorted(alert())))
    anything = (
        st.none() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())
    )
    changed = alert(**{field: data.draw(anything)})
    answer = post(payload(changed, alert(fingerprint="healthy")))
    assert answer.status_code == 200
    assert answer.json["results"][1] == {"fingerprint": "healthy", "result": "accepted"}
