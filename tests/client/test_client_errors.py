"""What goes wrong between here and the service: each one helpful sentence, and the right exit status."""

import contextlib
import pwd
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from responder.client.overrides import user
from tests.client.client_world import Shell, scripted
from tests.serving import free_port


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_refused_connection_says_where_it_looked_and_how_to_say_another(shell: Shell) -> None:
    """The address, the cause, and the option."""
    url = f"http://127.0.0.1:{free_port()}"
    told = shell.fails("targets", "--url", url)
    assert told == (
        f"cannot reach {url}: connection refused; is gpu-responder serve running there? "
        "Another place is named with --url or GPU_RESPONDER_URL"
    )


def test_a_freeze_that_cannot_be_had_says_what_works_without_the_service(shell: Shell) -> None:
    """On the worst night the policy file still stops everything."""
    shell.url = f"http://127.0.0.1:{free_port()}"
    told = shell.fails("freeze", "--all", "--for", "2h", "--comment", "x")
    assert told.startswith("nothing is frozen: cannot reach ")
    assert "put the line `freeze: <why>` at the top level of the policy file" in told


@pytest.mark.parametrize(
    ("status", "body", "headers", "told"),
    [
        (401, {"error": "x"}, {}, "needs a token: give --token-file or set GPU_RESPONDER_TOKEN_FILE"),
        (403, {"error": "token 'ana' has the role viewer"}, {}, "does not allow it: token 'ana' has the role viewer"),
        (429, {"error": "x"}, {}, "too many failed attempts from here: wait a minute"),
        (503, {"error": "the disk is full"}, {}, "cannot do it now (503): the disk is full"),
        (500, b"<html>", {}, "cannot do it now (500): it says no more; see its log"),
        (200, b"<html>hello", {}, "does not answer GET /api/v1/targets as gpu-responder does: check --url"),
        (404, b"404 page not found", {}, "does not answer GET /api/v1/targets as gpu-responder does: check --url"),
        (302, b"", {"Location": "https://sso/"}, "redirects to https://sso/: give that with --url"),
        (400, {"error": "state: 'x' is no state"}, {}, "state: 'x' is no state"),
        (400, "a bare string", {}, "a bare string"),
        (404, {"error": "evil \x1b[31m"}, {}, "evil \\x1b[31m"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_told_in_a_sentence(
    shell: Shell, status: int, body: Any, headers: dict[str, str], told: str
) -> None:
    """Whatever is at the address, nobody sees a traceback or a page of HTML."""
    with scripted() as service:
        service.always(status, body, **headers)
        shell.url = service.url
        assert told in shell.fails("targets")


def test_a_token_that_is_not_known_names_its_file_and_never_itself(shell: Shell, tmp_path: Path) -> None:
    """The token is sent as a bearer, and the sentence says which file it came from."""
    token = tmp_path / "token"
    token.write_text("gpur_secret\n")
    with scripted() as service:
        service.always(401, {"error": "x"})
        told = shell.fails("targets", "--url", service.url, "--token-file", str(token))
        assert service.asked[0][2]["Authorization"] == "Bearer gpur_secret"
    assert f"does not know the token in {token}: it may have been replaced" in told
    assert "secret" not in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file or directory"),
        ("", "holds no token"),
        ("two words", "holds no token"),
        ("é", "holds no"),
    ],
    ids=["no file", "empty", "two words", "not ASCII"],
)
def test_a_token_file_that_holds_none_is_told(
    shell: Shell, tmp_path: Path, content: str | None, told: str
) -> None:
    """The file is named, and nothing is sent."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    assert told in shell.fails("targets", "--token-file", str(path))


def test_a_slow_service_is_given_up(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded also when bytes trickle, and the sentence says how long it was."""
    from responder.client import connection, http

    over = threading.Event()
    with scripted() as service, contextlib.ExitStack() as at_the_end:
        service.answers[""] = lambda _: over.wait(60) and (200, {}, b"{}")
        at_the_end.callback(over.set)
        with pytest.raises(http.Unreachable, match=r"did not answer within 0\.2 s: try again in a moment"):
            connection.connect(service.url, None, None, timeout=0.2).get("/")


@pytest.mark.parametrize("url", ["127.0.0.1:9099", "ftp://x", "http://", "http://[::1", "foo"])
def test_what_is_no_address_is_told(shell: Shell, url: str) -> None:
    """With an example of one."""
    assert "is no address: write it like http://127.0.0.1:9099" in shell.fails("targets", "--url", url)


def test_a_token_in_the_address_is_refused(shell: Shell) -> None:
    """Others see the arguments of a process."""
    told = shell.fails("targets", "--url", "http://x:secret@127.0.0.1:1")
    assert "use --token-file" in told
    assert "secret" not in told


def test_plain_http_under_https_says_so(shell: Shell) -> None:
    """The most common slip with TLS, beside a CA that is missing."""
    with scripted() as service:
        service.always(200, {})
        told = shell.fails("targets", "--url", service.url.replace("http:", "https:"))
    assert "does not speak TLS: write http:// instead of https://" in told


def test_a_ca_file_that_is_none_is_told(shell: Shell, tmp_path: Path) -> None:
    """Missing and empty are told apart."""
    path = tmp_path / "ca.pem"
    assert "No such file" in shell.fails("targets", "--ca-file", str(path), "--url", "https://127.0.0.1:1")
    path.write_text("")
    assert "it holds no certificate" in shell.fails("targets", "--ca-file", str(path))


def test_a_user_without_home_and_name_needs_neither(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container under a number of the cluster's choice."""

    def nobody(_: int) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    without = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "LOGNAME", "USER", "LNAME", "USERNAME"))
    for name in without:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "token").write_text("gpur_secret\n")
    with scripted() as service:
        service.always(200, {"overrides": []})
        given = ("--url", service.url, "--token-file", str(tmp_path / "token"))
        assert shell.run("override", "list", *given, env=without).stdout  # type: ignore[arg-type]
        assert user() == "unknown"


class TestConfigFile:
    def write(self, home: Path, text: str) -> Path:
        path = home / "gpu-responder" / "config.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def test_says_where_the_service_is(self, shell: Shell) -> None:
        """Then no option is needed."""
        with scripted() as service:
            service.always(200, {"overrides": []})
            self.write(shell.home, f"url: {service.url}\n")
            shell.run("override", "list")
            assert len(service.asked) == 1

    def test_gives_way_to_environment_and_option(self, shell: Shell) -> None:
        """The option wins over the environment, and that over the file."""
        with scripted() as right, scripted() as wrong:
            right.always(200, {"overrides": []})
            wrong.always(200, {"overrides": []})
            self.write(shell.home, f"url: {wrong.url}\n")
            shell.url = right.url
            shell.run("override", "list")
            shell.url = wrong.url
            shell.run("override", "list", "--url", right.url)
            assert (len(right.asked), len(wrong.asked)) == (2, 0)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("urll: x", "unknown key urll: did you mean url?"),
            ("a: [", ":1: it is not YAML"),
            ("- url", "it must hold keys and values"),
            ("url: 7", "url must be text"),
        ],
    )
    def test_faults_name_file_and_mend(self, shell: Shell, text: str, told: str) -> None:
        """One sentence with the file's name."""
        path = self.write(shell.home, text)
        said = shell.fails("targets")
        assert said.startswith(str(path))
        assert told in said

    def test_that_is_named_must_be_there(self, shell: Shell, tmp_path: Path) -> None:
        """Only the default place may be empty."""
        env = {"GPU_RESPONDER_CONFIG": str(tmp_path / "none.yaml")}
        assert "does not exist, and GPU_RESPONDER_CONFIG names it" in shell.fails("targets", env=env)


def test_an_untrusted_certificate_says_how_to_trust_it() -> None:
    """The option that helps is in the sentence."""
    from urllib3.exceptions import SSLError

    from responder.client.http import Api

    cause = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
    cause.verify_message, cause.verify_code = "self-signed certificate", 18
    told = str(Api("https://x")._unreachable(SSLError(cause)))
    assert told == (
        "the certificate of https://x is not to be trusted (self-signed certificate): give its CA with --ca-file"
    )


def test_a_command_that_is_misspelt_is_told_with_the_near_one(shell: Shell) -> None:
    """The commands themselves, as what is below them."""
    assert "No such command 'silnce'; did you mean silence?" in shell.fails("silnce", "list", status=2)
    assert shell.fails("zzz", status=2).endswith("No such command 'zzz'.")


def test_a_moment_gone_by_may_be_a_length_and_says_so(shell: Shell) -> None:
    """Whoever types what is neither is told both."""
    told = shell.fails("history", "--since", "yesterday", status=2)
    assert told.endswith("2026-01-31T18:30:00Z, or 2h for two hours ago.")
