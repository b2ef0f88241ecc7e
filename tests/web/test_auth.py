"""Tokens, roles, hosts and failed attempts: who gets in, who does not, and what they are told."""

import base64
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from responder.errors import ConfigError
from responder.web import auth
from responder.web.auth import (
    LOCAL,
    Access,
    Identity,
    Refused,
    Role,
    Tokens,
    generate_token,
    hash_token,
    is_loopback_host,
    read_token_hashes,
    token_entry,
)


def write(path: Path, *entries: Any) -> str:
    path.write_text(json.dumps({"tokens": list(entries)}))
    return str(path)


def entry(token: str, role: Role = Role.OPERATOR, **more: Any) -> dict[str, Any]:
    return {"name": f"name-of-{token}", "role": role, "sha256": hash_token(token), **more}


def environ(authorization: str = "", **more: str) -> dict[str, str]:
    start = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/api/v1/targets",
        "REMOTE_ADDR": "10.0.0.1",
        "HTTP_HOST": "x",
    }
    return {**start, **({"HTTP_AUTHORIZATION": authorization} if authorization else {}), **more}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return Access(
        Tokens(
            write(
                tmp_path / "tokens",
                entry("operator"),
                entry("viewer", Role.VIEWER, namespaces=["team-*"]),
                entry("deliver", Role.ALERTMANAGER),
                entry("ünïcode", Role.VIEWER),
            )
        )
    )


class TestRoles:
    @pytest.mark.parametrize(
        ("token", "may"),
        [
            ("operator", {Role.OPERATOR, Role.VIEWER, Role.ALERTMANAGER}),
            ("viewer", {Role.VIEWER}),
            ("deliver", {Role.ALERTMANAGER}),
        ],
    )
    def test_allow_what_they_say_and_no_more(self, access: Access, token: str, may: set[Role]) -> None:
        """One who delivers reads nothing, one who reads changes nothing."""
        for role in Role:
            if role in may:
                assert access.identify(environ(f"Bearer {token}"), role).name == f"name-of-{token}"
            else:
                with pytest.raises(Refused) as refused:
                    access.identify(environ(f"Bearer {token}"), role)
                assert refused.value.status == 403
                assert str(refused.value).endswith(f"and this needs {role}")

    def test_are_limited_to_namespaces(self, access: Access) -> None:
        """By name or glob; without a list there is no limit."""
        viewer = access.identify(environ("Bearer viewer"), Role.VIEWER)
        assert [viewer.may_reach(each) for each in ("team-a", "team-", "other", "xteam-a")] == [
            True,
            True,
            False,
            False,
        ]
        assert access.identify(environ("Bearer operator"), Role.VIEWER).may_reach("anything")


class TestCredentials:
    @pytest.mark.parametrize(
        "authorization",
        [
            pytest.param("Bearer operator", id="bearer"),
            pytest.param("bEARER   operator ", id="odd spelling"),
            pytest.param(basic("anybody", "operator"), id="basic"),
            pytest.param(basic("", "operator"), id="basic without a user"),
        ],
    )
    def test_are_taken_in_these_forms(self, access: Access, authorization: str) -> None:
        """Alertmanager sends both; a token with a colon in the user's place does not confuse it."""
        assert access.identify(environ(authorization), Role.OPERATOR).role is Role.OPERATOR

    def test_may_be_any_text(self, access: Access) -> None:
        """A token is bytes to us."""
        assert access.identify(environ(basic("u", "ünïcode")), Role.VIEWER).name == "name-of-ünïcode"

    @pytest.mark.parametrize(
        "authorization",
        [
            pytest.param("", id="none"),
            pytest.param("operator", id="a token without a scheme"),
            pytest.param("Bearer", id="a scheme without a token"),
            pytest.param("Bearer operator extra", id="more than a token"),
            pytest.param(f"Bearer {hash_token('operator')}", id="the hash in place of the token"),
            pytest.param("Basic operator", id="basic that is not base64"),
            pytest.param(basic("operator", ""), id="the token as the user"),
            pytest.param("Basic " + base64.b64encode(b"\xff\xfe").decode(), id="basic that is not text"),
            pytest.param("Digest operator", id="another scheme"),
            pytest.param("Bearer " + "x" * 100_000, id="100 kB"),
            pytest.param("Bearer \udcff", id="bytes that are no text"),
        ],
    )
    def test_are_refused_in_others(self, access: Access, authorization: str) -> None:
        """401 with how to send one, and the token in neither answer nor log."""
        with pytest.raises(Refused) as refused:
            access.identify(environ(authorization), Role.VIEWER)
        assert refused.value.status == 401
        assert "Bearer" in refused.value.headers["WWW-Authenticate"]
        assert "operator" not in str(refused.value).replace("Authorization", "")

    def test_never_reach_a_log(self, access: Access, caplog: pytest.LogCaptureFixture) -> None:
        """Neither right nor wrong ones."""
        with caplog.at_level(logging.DEBUG):
            access.identify(environ("Bearer operator"), Role.VIEWER)
            with pytest.raises(Refused):
                access.identify(environ("Bearer s3cret"), Role.VIEWER)
        logged = " ".join(str(record.__dict__) for record in caplog.records)
        assert "10.0.0.1" in logged
        assert "s3cret" not in logged
        assert "Bearer" not in logged

    def test_are_compared_in_constant_time(self, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every known hash is compared, whichever fits, by the function made for it."""
        compared: list[int] = []
        real = auth.hmac.compare_digest
        monkeypatch.setattr(auth.hmac, "compare_digest", lambda a, b: compared.append(1) or real(a, b))
        access.identify(environ("Bearer operator"), Role.VIEWER)
        assert len(compared) == 4


class TestFailures:
    def test_are_limited_per_address_and_a_valid_token_passes(
        self, access: Access, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A flood of guesses is told to wait, and neither locks others out nor fills the log."""
        statuses = []
        for _ in range(100):
            with pytest.raises(Refused) as refused:
                access.identify(environ("Bearer wrong"), Role.VIEWER)
            statuses.append(refused.value.status)
        assert statuses == [401] * 10 + [429] * 90
        assert refused.value.headers == {"Retry-After": "60"}
        assert access.identify(environ("Bearer operator"), Role.VIEWER)
        with pytest.raises(Refused) as other:
            access.identify(environ("Bearer wrong", REMOTE_ADDR="10.0.0.2"), Role.VIEWER)
        assert other.value.status == 401
        assert len(caplog.records) <= 12

    def test_are_forgotten_after_a_while(self, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
        """The limit is a rate."""
        now = 1000.0
        monkeypatch.setattr(auth.time, "monotonic", lambda: now)
        failures = auth.Failures()
        assert [failures.count("a") for _ in range(12)][-1] == 12
        now += auth.WINDOW_SECONDS + 1
        assert failures.count("a") == 1

    def test_of_endless_addresses_take_bounded_memory(self) -> None:
        """The oldest address is forgotten first."""
        failures = auth.Failures()
        for i in range(auth.MOST_ADDRESSES + 500):
            failures.count(str(i))
        assert len(failures._counts) == auth.MOST_ADDRESSES
        assert failures.count("0") == 1
        assert failures.count(str(auth.MOST_ADDRESSES)) == 2


class TestTokenHashesFile:
    def test_is_read_again_when_it_changes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A new token works and a removed one does not, without a restart; both work while both are listed."""
        monkeypatch.setattr(auth, "LOOK_EVERY", 0.0)
        path = tmp_path / "tokens"
        access = Access(Tokens(write(path, entry("old"))))
        assert access.identify(environ("Bearer old"), Role.VIEWER)
        write(path, entry("old"), entry("new"))
        assert access.identify(environ("Bearer new"), Role.VIEWER)
        assert access.identify(environ("Bearer old"), Role.VIEWER)
        write(path, entry("new"))
        assert access.identify(environ("Bearer new"), Role.VIEWER)
        with pytest.raises(Refused):
            access.identify(environ("Bearer old"), Role.VIEWER)

    def test_is_read_again_when_a_mount_is_swapped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kubernetes changes a mounted Secret by swapping a link; dates and sizes may stay."""
        monkeypatch.setattr(auth, "LOOK_EVERY", 0.0)
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
            write(tmp_path / name / "tokens", entry(name))
            os.utime(tmp_path / name / "tokens", (1, 1))
        (tmp_path / "data").symlink_to("old")
        access = Access(Tokens(str(tmp_path / "data" / "tokens")))
        assert access.identify(environ("Bearer old"), Role.VIEWER)
        (tmp_path / "swap").symlink_to("new")
        os.replace(tmp_path / "swap", tmp_path / "data")
        assert access.identify(environ("Bearer new"), Role.VIEWER)

    @pytest.mark.parametrize(
        "broken",
        [
            pytest.param(lambda path: path.write_text("tokens: ["), id="not YAML"),
            pytest.param(lambda path: path.write_text(""), id="empty"),
            pytest.param(lambda path: path.unlink(), id="gone"),
        ],
    )
    def test_that_is_wrong_leaves_the_old_one_in_force(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Any
    ) -> None:
        """And says so where readiness can show it."""
        monkeypatch.setattr(auth, "LOOK_EVERY", 0.0)
        path = tmp_path / "tokens"
        access = Access(Tokens(write(path, entry("old"))))
        broken(path)
        assert access.identify(environ("Bearer old"), Role.VIEWER)
        assert str(path) in access.error
        write(path, entry("new"))
        assert access.identify(environ("Bearer new"), Role.VIEWER)
        assert access.error == ""

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            pytest.param(
                "tokens: [", "it is not YAML at line 1: write a list under `tokens:`", id="not YAML"
            ),
            pytest.param("a token by itself", "there is no list under `tokens:`", id="a bare token"),
            pytest.param("tokens: []", "there is no list under `tokens:`", id="no tokens"),
            pytest.param("tokens: [x]", "tokens[0] must have the keys name, role and sha256", id="no object"),
            pytest.param("tokens: [{name: a, token: b}]", "has the unknown key token", id="an unknown key"),
            pytest.param(
                "tokens: [{role: viewer}]", "tokens[0].name must say whose token it is", id="no name"
            ),
            pytest.param(
                "tokens: [{name: a, role: admin}]", "tokens[0].role must be one of", id="an unknown role"
            ),
            pytest.param("tokens: [{name: a, role: viewer, sha256: 12}]", "as 64 hex digits", id="a number"),
            pytest.param(
                "tokens: [{name: a, role: viewer, sha256: '" + "z" * 64 + "'}]",
                "as 64 hex digits",
                id="not hex",
            ),
            pytest.param(
                "tokens: [{name: a, role: viewer, sha256: '" + "0 " * 32 + "'}]",
                "as 64 hex digits",
                id="hex with blanks",
            ),
            pytest.param(
                "tokens:\n" + 2 * ("- {name: a, role: viewer, sha256: '" + "0" * 64 + "'}\n"),
                "tokens[1].sha256 is that of token 'a' too",
                id="a token that is listed twice",
            ),
            pytest.param("tokens: [{name: 2026-13-45}]", "it is not YAML", id="a date that is none"),
            pytest.param("tokens: " + "[" * 5000, "it is not YAML", id="lists without end"),
            pytest.param(
                "tokens: [{name: a, role: viewer, sha256: '" + "0" * 64 + "', namespaces: []}]",
                "tokens[0].namespaces must be a list",
                id="no namespaces",
            ),
        ],
    )
    def test_that_is_wrong_is_told_in_one_sentence(self, tmp_path: Path, content: str, sentence: str) -> None:
        """File, key and mend, and nothing of what else stands in it."""
        path = tmp_path / "tokens"
        path.write_text(content)
        with pytest.raises(ConfigError) as error:
            read_token_hashes(str(path))
        assert str(error.value).startswith(str(path))
        assert sentence in str(error.value)
        assert "\n" not in str(error.value)

    def test_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        """A wrong path."""
        with pytest.raises(ConfigError, match="No such file or directory: see --token-hashes-file"):
            Tokens(str(tmp_path / "nowhere"))

    def test_takes_the_entry_that_is_made_for_a_new_token(self, tmp_path: Path) -> None:
        """What is printed can be pasted; the token itself is in it nowhere."""
        token = generate_token()
        text = token_entry("am", Role.ALERTMANAGER, token, ("a", "b-*"))
        assert token not in text
        (tmp_path / "tokens").write_text("tokens:\n" + text)
        known = read_token_hashes(str(tmp_path / "tokens"))
        assert known == {bytes.fromhex(hash_token(token)): Identity("am", Role.ALERTMANAGER, ("a", "b-*"))}
        assert yaml.safe_load(text)[0]["role"] == "alertmanager"

    def test_tokens_are_long_and_never_the_same(self) -> None:
        """256 bits of randomness."""
        made = {generate_token() for _ in range(100)}
        assert len(made) == 100
        assert all(len(base64.urlsafe_b64decode(token.removeprefix("gpur_") + "==")) >= 32 for token in made)


class TestWithoutTokens:
    @pytest.mark.parametrize(
        ("host", "ours"),
        [
            ("localhost", True),
            ("LOCALHOST:9099", True),
            ("127.0.0.1:9099", True),
            ("127.8.8.8", True),
            ("[::1]:9099", True),
            ("::1", True),
            ("", False),
            ("evil.example", False),
            ("localhost.evil.example", False),
            ("127.0.0.1.evil.example", False),
            ("10.0.0.1", False),
            ("0.0.0.0", False),
            ("user@localhost", False),
            ("localhost@evil", False),
        ],
    )
    def test_only_loopback_names_are_answered(self, host: str, ours: bool) -> None:
        """A page of the web that resolves its own name to this host gets nothing."""
        assert is_loopback_host(host) is ours
        access = Access(None)
        if ours:
            assert access.identify(environ(HTTP_HOST=host), Role.OPERATOR) == LOCAL
        else:
            with pytest.raises(Refused) as refused:
                access.identify(environ(HTTP_HOST=host), Role.OPERATOR)
            assert refused.value.status == 403

    def test_with_tokens_any_host_is_answered(self, access: Access) -> None:
        """A Service's name, an Ingress's: the token decides."""
        assert access.identify(environ("Bearer operator", HTTP_HOST="responder.example"), Role.VIEWER)


class TestOrigin:
    @pytest.mark.parametrize(
        ("headers", "allowed"),
        [
            pytest.param({}, True, id="no browser"),
            pytest.param({"HTTP_SEC_FETCH_SITE": "same-origin"}, True, id="our own page"),
            pytest.param({"HTTP_SEC_FETCH_SITE": "none"}, True, id="a person"),
            pytest.param({"HTTP_SEC_FETCH_SITE": "cross-site"}, False, id="another site"),
            pytest.param({"HTTP_SEC_FETCH_SITE": "same-site"}, False, id="a neighbour of the site"),
            pytest.param({"HTTP_ORIGIN": "http://localhost:9099"}, True, id="our own origin"),
            pytest.param({"HTTP_ORIGIN": "http://localhost:8000"}, False, id="another port"),
            pytest.param({"HTTP_ORIGIN": "null"}, False, id="a sandboxed page"),
        ],
    )
    def test_of_a_change_must_be_ours(self, headers: dict[str, str], allowed: bool) -> None:
        """A page of another site cannot act by the browser of one who may."""
        access = Access(None)
        change = environ(REQUEST_METHOD="POST", HTTP_HOST="localhost:9099", **headers)
        if allowed:
            access.identify(change, Role.OPERATOR)
        else:
            with pytest.raises(Refused) as refused:
                access.identify(change, Role.OPERATOR)
            assert refused.value.status == 403
        access.identify({**change, "REQUEST_METHOD": "GET"}, Role.OPERATOR)
