"""The page as it is sent: who gets it, what protects its forms, what its banner says, and a large fleet."""

import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from responder import config
from responder.errors import StoreUnavailable
from responder.model import (
    Commit,
    Failure,
    HistoryEntry,
    Outcome,
    Override,
    OverrideKind,
    Reason,
    Record,
    Silence,
    TargetRef,
    Verdict,
)
from responder.store import StoredEntry
from responder.web import ages, page
from responder.web.auth import hash_token
from responder.web.page_words import lines_of
from responder.web.session import COOKIE
from tests.web.people import OTHER, VLLM, Api, api
from tests.web.web_fakes import POLICIES

NOW = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)
MINE = {"name": "mine", "role": "operator", "namespaces": ["inference"]}
HERE = "/targets/inference/deployment/vllm"


def client(made: Api) -> Client:
    found: Client = made.app.test_client()
    return found


def signed_in(made: Api, token: str) -> Client:
    visitor = client(made)
    answer = visitor.post("/sign-in", data={"token": token, "next": "/"}, headers={"Host": "localhost"})
    assert answer.status_code == 303, answer.text
    return visitor


def csrf_of(page: TestResponse) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert found, page.text[:2000]
    return found[1]


def pause(visitor: Client, csrf: str, **more: str) -> TestResponse:
    given = {"kind": "pause", "target": VLLM.key, "comment": "why", "for": "3600", "csrf": csrf, **more}
    return visitor.post("/overrides", data=given)


class TestWhoGetsIt:
    def test_without_a_session_one_is_asked_for_a_token(self, tmp_path: Path) -> None:
        """A person is led to the form; the script is told by a status, and gets nothing else."""
        with api(tmp_path, MINE) as made:
            made.know(VLLM)
            for path in ("/", HERE, HERE + "/utilization.svg"):
                assert client(made).get(path).headers["Location"].startswith("/sign-in?next=")
                answer = client(made).get(path, headers={"X-Live": "1"})
                assert (answer.status_code, "vllm" in answer.text) == (401, False)

    def test_the_api_does_not_take_the_cookie(self, tmp_path: Path) -> None:
        """A form of another site could not use it there, whatever the browser sends along."""
        with api(tmp_path, MINE) as made:
            assert signed_in(made, "operator").get("/api/v1/targets").status_code == 401

    def test_the_deliverer_of_alerts_does_not_get_in(self, tmp_path: Path) -> None:
        """Its token is in Alertmanager's configuration, which many can read."""
        with api(tmp_path, MINE) as made:
            answer = client(made).post("/sign-in", data={"token": "alertmanager"})
            assert answer.status_code == 403
            assert "Set-Cookie" not in answer.headers

    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(
                lambda cookie: cookie[:-1] + ("0" if cookie[-1] != "0" else "1"), id="another signature"
            ),
            pytest.param(lambda cookie: "9" + cookie, id="a later end"),
            pytest.param(lambda cookie: "1" + cookie[10:], id="an end that is past"),
            pytest.param(lambda cookie: "", id="nothing"),
            pytest.param(lambda cookie: "é.x.y", id="letters beyond ASCII"),
            pytest.param(lambda cookie: cookie.rpartition(".")[0] + ".é", id="a signature beyond ASCII"),
        ],
    )
    def test_a_cookie_that_was_tampered_with_is_none(self, spoil: Any, tmp_path: Path) -> None:
        """Its moment and its signature go together."""
        with api(tmp_path, MINE) as made:
            visitor = signed_in(made, "operator")
            good = visitor.get_cookie(COOKIE)
            assert good is not None
            assert visitor.get("/").status_code == 200
            visitor.set_cookie(COOKIE, spoil(good.value))
            assert visitor.get("/").status_code == 303

    def test_a_token_taken_away_takes_its_sessions_along(self, tmp_path: Path) -> None:
        """At once, and no other's."""
        with api(tmp_path, MINE) as made:
            mine, other = signed_in(made, "mine"), signed_in(made, "operator")
            tokens = tmp_path / "tokens"
            tokens.write_text(tokens.read_text().replace(hash_token("mine"), "0" * 64))
            deadline = time.monotonic() + 60
            while mine.get("/").status_code == 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert other.get("/").status_code == 200

    def test_the_cookie_goes_over_tls_only_where_there_is_tls(self, tmp_path: Path) -> None:
        """Also behind a proxy, by what the browser says."""
        with api(tmp_path, MINE) as made:
            for origin, secure in (("http://localhost", False), ("https://localhost", True)):
                answer = client(made).post("/sign-in", data={"token": "viewer"}, headers={"Origin": origin})
                cookie = answer.headers["Set-Cookie"]
                assert ("Secure" in cookie, "HttpOnly" in cookie, "SameSite=Strict" in cookie) == (
                    secure,
                    True,
                    True,
                )

    @pytest.mark.parametrize(
        "address",
        [
            "//evil.example/",
            "https://evil.example/",
            "/\\evil.example",
            "/\t/evil.example",
            "/\n/evil.example",
            "/a\r\nX-Injected: 1",
            "/" + "a" * 5000,
        ],
    )
    def test_signing_in_leads_nowhere_else(self, address: str, tmp_path: Path) -> None:
        """A link to the form with another site's address would lend this page's name to it."""
        with api(tmp_path, MINE) as made:
            answer = client(made).post("/sign-in", data={"token": "viewer", "next": address})
            assert answer.headers["Location"] == "/"

    def test_signing_in_takes_a_form_and_no_more(self, tmp_path: Path) -> None:
        """It is the one body that is read of anybody: megabytes that trickle in would hold a thread for long."""
        with api(tmp_path, MINE) as made:
            given = {"token": "viewer", "next": "/" + "a" * 20_000}
            assert client(made).post("/sign-in", data=given).status_code == 413
            chunked = {"Transfer-Encoding": "chunked"}
            assert client(made).post("/sign-in", data={"token": "viewer"}, headers=chunked).status_code == 413

    def test_only_its_namespaces_are_shown(self, tmp_path: Path) -> None:
        """Neither targets, nor what was decided about them."""
        with api(tmp_path, MINE) as made:
            made.know(VLLM, OTHER)
            entry = HistoryEntry(NOW, OTHER.key, 1, 2, Reason.SCALED_UP, "because")
            made.store.commit(Commit(history=(entry,)))
            visitor = signed_in(made, "mine")
            assert OTHER.name not in visitor.get("/").text
            assert visitor.get(f"/targets/{OTHER.key}").status_code == 404
            assert OTHER.name in signed_in(made, "viewer").get("/").text


class TestForms:
    @pytest.mark.parametrize("csrf", ["", "0" * 64, "é"])
    def test_one_that_this_page_did_not_make_changes_nothing(self, csrf: str, tmp_path: Path) -> None:
        """Even with the session's cookie."""
        with api(tmp_path, MINE) as made:
            made.know(VLLM)
            visitor = signed_in(made, "operator")
            assert pause(visitor, csrf).status_code == 403
            assert made.store.overrides(include_ended=True) == ()

    def test_one_of_another_session_changes_nothing(self, tmp_path: Path) -> None:
        """What one visitor knows does not help against another."""
        with api(tmp_path, MINE) as made:
            made.know(VLLM)
            mine = signed_in(made, "operator").get(HERE)
            assert pause(signed_in(made, "operator"), csrf_of(mine)).status_code == 403

    def test_one_from_another_site_changes_nothing(self, tmp_path: Path) -> None:
        """Even where everybody on this host may do everything."""
        with api(tmp_path) as made:
            made.know(VLLM)
            visitor = client(made)
            csrf = csrf_of(visitor.get(HERE))
            given = {"kind": "pause", "target": VLLM.key, "comment": "why", "for": "3600", "csrf": csrf}
            answer = visitor.post("/overrides", data=given, headers={"Origin": "http://evil.example"})
            assert answer.status_code == 403
            assert pause(visitor, csrf).status_code == 303

    def test_a_viewer_changes_nothing(self, tmp_path: Path) -> None:
        """With a form of its own making."""
        with api(tmp_path, MINE) as made:
            made.know(VLLM)
            visitor = signed_in(made, "viewer")
            assert pause(visitor, csrf_of(visitor.get(HERE))).status_code == 403
            assert made.store.overrides() == ()

    def test_nothing_changes_by_get(self, tmp_path: Path) -> None:
        """Not even signing out: a picture of another site could ask for it."""
        with api(tmp_path) as made:
            for path in ("/overrides", "/silences", "/overrides/x/end", "/silences/x/end", "/sign-out"):
                assert client(made).get(path).status_code in (404, 405)

    def test_an_end_is_needed(self, tmp_path: Path) -> None:
        """A length of time, or a moment; in UTC, as the page says."""
        with api(tmp_path) as made:
            made.know(VLLM)
            visitor = client(made)
            csrf = csrf_of(visitor.get(HERE))
            answer = pause(visitor, csrf, **{"for": ""})
            assert answer.status_code == 400
            assert "end is needed" in answer.text
            end = datetime.now(UTC).replace(microsecond=0, second=0) + timedelta(hours=3)
            assert pause(visitor, csrf, until=f"{end:%Y-%m-%dT%H:%M}").status_code == 303
            [kept] = made.store.overrides()
            assert kept.ends_at == end


class TestBanner:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Any:
        with api(tmp_path) as made:
            made.know(VLLM)
            yield made

    def said(self, made: Api, path: str = "/") -> list[str]:
        text = client(made).get(path).text
        return [re.sub("<[^>]*>", "", each) for each in re.findall(r'class="notice [a-z]+">(.*?)</p>', text)]

    def test_is_empty_while_all_is_well(self, made: Api) -> None:
        """A banner that always says something is not read."""
        made.store.put_status("actor", {})
        assert self.said(made) == []

    def test_says_what_the_actor_cannot_reach(self, made: Api) -> None:
        """On every page."""
        made.store.put_status("actor", {"kubernetes": "it is gone", "alertmanager http://a": "it is late"})
        for path in ("/", HERE):
            assert self.said(made, path) == ["Alertmanager. It is late", "Kubernetes. It is gone"]

    def test_says_when_nobody_acts(self, tmp_path: Path) -> None:
        """The process that acts gives a sign every half minute, and at first has some time."""
        with api(tmp_path, started_at=datetime.now(UTC) - timedelta(minutes=5)) as made:
            [said] = self.said(made)
            assert said.startswith("Nobody acts. No process has acted for more than 2 min")

    def test_does_not_repeat_what_an_earlier_service_left(self, tmp_path: Path) -> None:
        """The process that acts has yet to say what it can reach."""
        with api(tmp_path, started_at=datetime.now(UTC) + timedelta(seconds=30)) as made:
            made.store.put_status("actor", {"kubernetes": "it is gone"})
            assert self.said(made) == []

    def test_says_what_stops_everything(self, made: Api) -> None:
        """Freezes of both kinds, dry run, and a policy file that is not in force."""
        made.source.current = replace(config.loads(POLICIES), freeze="change 7", dry_run=True)
        made.source.error = "policies.yaml: it is no YAML."
        now = datetime.now(UTC)
        made.store.put_override(
            Override("f", OverrideKind.FREEZE, "ana", "flood", now, now, now + timedelta(hours=1))
        )
        assert self.said(made) == [
            "Invalid policy file. policies.yaml: it is no YAML. The one before stays in force.",
            "Frozen by the policy file. change 7",
            "Frozen. All targets, by ana: flood",
            "Dry run. Decisions are made and shown; no scale is written.",
        ]

    def test_a_store_that_is_gone_is_said_in_words(self, made: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        """And not by a traceback."""

        def gone(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("the disk is full")

        monkeypatch.setattr(made.store, "overrides", gone)
        answer = client(made).get("/")
        assert (answer.status_code, "The disk is full" in answer.text) == (503, True)


class TestLargeFleet:
    def test_the_worst_are_first_and_the_page_stays_small(self, tmp_path: Path) -> None:
        """Two thousand targets: counts of all, a hundred shown, and a look costs little once read."""
        with api(tmp_path) as made:
            verdict = Verdict(NOW, 2, 2, Reason.NOTHING_FIRING, "No alert fires.")
            records = [
                Record(
                    TargetRef("inference", "Deployment", f"model-{number:04}"), replicas=2, verdict=verdict
                )
                for number in range(2000)
            ]
            failure = Failure(Reason.FORBIDDEN, "may not", NOW, NOW)
            records[1500] = replace(records[1500], failure=failure)
            made.store.commit(Commit(records=tuple((record, 0) for record in records)))
            visitor = client(made)
            text = visitor.get("/").text
            rows = re.findall(r'data-state="(\w+)"', text)
            assert (rows[0], len(rows), len(text) < 200_000) == ("failing", 100, True)
            assert "1 to 100 of 2000" in text
            assert "<strong>1999</strong> steady" in text
            assert "model-1999" in visitor.get("/?page=19").text
            assert "of 2000" not in visitor.get("/?q=model-15+failing").text
            began = time.process_time()
            visitor.get("/?page=3")
            assert time.process_time() - began < 0.5


class TestBounds:
    @pytest.mark.parametrize(
        ("override", "shown"),
        [
            pytest.param({"target": VLLM.key, "max_replicas": 12}, "1–12 allowed", id="for the target"),
            pytest.param(
                {"matchers": ('namespace="inference"',), "min_replicas": 3}, "3–8 allowed", id="by matchers"
            ),
            pytest.param({"target": OTHER.key, "max_replicas": 12}, "1–8 allowed", id="for another target"),
            pytest.param(
                {"target": VLLM.key, "max_replicas": 12, "expired_at": NOW}, "1–8 allowed", id="that ended"
            ),
        ],
    )
    def test_in_force_are_those_that_the_list_shows(
        self, tmp_path: Path, override: dict[str, Any], shown: str
    ) -> None:
        """As the target's own page and the API have them."""
        with api(tmp_path) as made:
            made.know(VLLM, replicas=2, ready=2)
            now = datetime.now(UTC)
            end = now + timedelta(hours=1)
            made.store.put_override(Override("b", OverrideKind.BOUNDS, "ana", "c", now, now, end, **override))
            assert re.findall(r"\d+–\d+ allowed", client(made).get("/").text) == [shown]
            assert re.findall(r"\d+–\d+ allowed", client(made).get(HERE).text) == [shown]
            known = made.get(f"/api/v1/targets/{VLLM.key}").json
            assert f"{known['minReplicas']}–{known['maxReplicas']} allowed" == shown


class TestTag:
    def test_an_unchanged_page_is_304_and_a_changed_one_is_not(self, tmp_path: Path) -> None:
        """By what it would show, and not by the moment of asking."""
        with api(tmp_path) as made:
            made.know(VLLM)
            made.store.put_status("actor", {})
            visitor = client(made)
            tag = visitor.get("/").headers["ETag"]
            again = visitor.get("/", headers={"If-None-Match": tag})
            assert (again.status_code, again.data) == (304, b"")
            now = datetime.now(UTC)
            made.store.put_override(
                Override("f", OverrideKind.FREEZE, "ana", "flood", now, now, now + timedelta(hours=1))
            )
            assert visitor.get("/", headers={"If-None-Match": tag}).status_code == 200

    def test_thousands_of_overrides_and_silences_do_not_make_thousands_of_lines(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All are counted, the newest are shown, and where the others are is said."""
        monkeypatch.setattr(page, "PER_PAGE", 2)
        with api(tmp_path) as made:
            now = datetime.now(UTC)
            end = now + timedelta(hours=1)
            for number in range(5):
                one = Override(f"o{number}", OverrideKind.FREEZE, "ana", f"why{number}", now, now, end)
                made.store.put_override(replace(one, created_at=now + timedelta(seconds=number)))
                made.store.put_silence(Silence(f"s{number}", ('a="b"',), now, end, "ana", "c", now))
            text = client(made).get("/").text
            assert [text.count(f'id="{kind}{number}"') for kind in ("o-o", "s-s") for number in range(5)] == [
                *(0, 0, 0, 1, 1),
                *(1, 1, 0, 0, 0),
            ]
            assert "5 overrides" in text
            assert "And 3 more: <code>gpu-responder override list</code>" in text
            assert "And 3 more: <code>gpu-responder silence list</code>" in text

    def test_a_count_is_as_old_as_it_is_and_the_page_no_other_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An old one is told with its age, and growing old alone sends nobody the page again; a new count does."""
        with api(tmp_path) as made:
            counted = datetime.now(UTC) - timedelta(minutes=1)
            failure = Failure(Reason.API_UNAVAILABLE, "no answer", counted, counted)
            made.know(VLLM, replicas=2, ready=2, failure=failure)
            made.store.put_status("actor", {})
            visitor = client(made)
            front = visitor.get("/").headers["ETag"]
            for path in ("/", HERE):
                monkeypatch.setattr(ages, "FRESH", timedelta(minutes=2))
                new = visitor.get(path)
                monkeypatch.setattr(ages, "FRESH", timedelta(seconds=30))
                old = visitor.get(path)
                said = re.compile(r'<time class="counted"[^>]*?( hidden)?>(counted 1 min[^<]*ago)</time>')
                assert [bool(said.search(each.text)[1]) for each in (new, old)] == [True, False]  # type: ignore[index]
                # The chart's minute may have passed in between.
                assert new.headers["ETag"] == old.headers["ETag"] or path == HERE
            record, version = made.store.record(VLLM.key)  # type: ignore[misc]
            later = replace(record, failure=replace(failure, since=counted + timedelta(seconds=50)))
            made.store.commit(Commit(records=((later, version),)))
            made.app.extensions["gpu-responder-board"].forget()
            assert visitor.get("/", headers={"If-None-Match": front}).status_code == 200


class TestLines:
    def entry(self, number: int, target: str = "n/deployment/w", **more: Any) -> StoredEntry:
        values = {"current": 1, "desired": 2, "reason": Reason.SCALED_UP, "message": "m", **more}
        return StoredEntry(number, HistoryEntry(NOW + timedelta(seconds=number), target, **values))

    def test_an_outcome_stands_with_its_decision(self) -> None:
        """Whatever was decided about others in between."""
        decided, other = self.entry(1), self.entry(2, "n/deployment/x")
        applied = self.entry(3, outcome=Outcome.APPLIED)
        assert [(line.stored, line.outcome) for line in lines_of([applied, other, decided])] == [
            (other, None),
            (decided, Outcome.APPLIED),
        ]

    def test_an_outcome_of_something_else_stands_alone(self) -> None:
        """As when its decision is no longer in what was read."""
        decided = self.entry(1, desired=5)
        applied = self.entry(2, outcome=Outcome.UNCERTAIN)
        assert [line.stored for line in lines_of([applied, decided])] == [applied, decided]
