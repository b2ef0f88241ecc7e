"""The Alertmanager client, against the real Alertmanager and against servers that misbehave."""

import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from responder.alertmanager import AlertmanagerClient
from responder.errors import ConfigError, PermanentError, TransientError
from responder.matchers import Matcher, parse_all
from responder.model import Reason
from tests.serving import free_port

BINARY = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
CONFIG = """
route:
  receiver: other
  routes:
  - {receiver: ours, matchers: ['action=~"scale.+"']}
receivers: [{name: ours}, {name: ours-too}, {name: other}]
inhibit_rules:
- {source_matchers: ['alertname="Outage"'], target_matchers: ['alertname="Inhibited"']}
"""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HANG_SECONDS = 10


def poll(condition, seconds=60.0):
    """Wait until the condition gives something, or fail."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("It did not happen in time.")


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory):
    """A real Alertmanager's URL."""
    if BINARY is None:
        pytest.skip("needs prometheus-alertmanager")
    home = tmp_path_factory.mktemp("alertmanager")
    (home / "alertmanager.yml").write_text(CONFIG)
    port = free_port()
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [
                BINARY,
                f"--config.file={home}/alertmanager.yml",
                f"--storage.path={home}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        poll(lambda: not AlertmanagerClient(url).alerts().error)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def post_alerts(url, *alerts):
    body = json.dumps(list(alerts)).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200


def test_reads_what_stands_and_who_is_suppressed(alertmanager):
    """Active, silenced and inhibited alerts come with their states; a resolved one does not come."""
    client = AlertmanagerClient(alertmanager)
    started = datetime.now(UTC) - timedelta(minutes=3)
    post_alerts(
        alertmanager,
        {
            "labels": {"alertname": "Active", "action": "scale_up", "odd": 'q"\n'},
            "annotations": {"value": "3"},
            "startsAt": started.isoformat(),
            "generatorURL": "http://prometheus/graph",
        },
        {"labels": {"alertname": "Silenced", "action": "scale_down"}},
        {"labels": {"alertname": "Outage"}},
        {"labels": {"alertname": "Inhibited", "action": "scale_up"}},
        {
            "labels": {"alertname": "Resolved", "action": "scale_up"},
            "startsAt": started.isoformat(),
            "endsAt": (started + timedelta(minutes=1)).isoformat(),
        },
    )
    silence = client.create_silence(
        parse_all('alertname="Silenced"'),
        starts_at=datetime.now(UTC),
        ends_at=datetime.now(UTC) + timedelta(hours=1),
        created_by="test",
        comment="to see it suppressed",
    )
    # Alertmanager inhibits only once the source has gone through its inhibitor.
    reading = poll(lambda: _with_states(client, Silenced="suppressed", Inhibited="suppressed"))
    alerts = {alert.labels["alertname"]: alert for alert in reading.alerts}
    assert set(alerts) == {"Active", "Silenced", "Outage", "Inhibited"}
    active = alerts["Active"]
    assert active.state in ("active", "unprocessed")
    assert active.receivers == ("ours",)
    assert active.labels["odd"] == 'q"\n'
    assert active.annotations == {"value": "3"}
    assert active.generator_url == "http://prometheus/graph"
    assert abs(active.starts_at - started) < timedelta(milliseconds=2)
    assert active.ends_at > datetime.now(UTC)
    assert len(active.fingerprint) == 16
    assert alerts["Silenced"].silenced_by == (silence,)
    assert alerts["Inhibited"].inhibited_by == (alerts["Outage"].fingerprint,)
    assert alerts["Outage"].receivers == ("other",)
    assert reading.url == alertmanager
    assert timedelta(0) <= datetime.now(UTC) - reading.up_since < timedelta(minutes=5)


def _with_states(client, **states):
    reading = client.alerts()
    seen = {alert.labels["alertname"]: alert.state for alert in reading.alerts}
    return reading if all(seen.get(name) == state for name, state in states.items()) else None


def test_a_silence_is_made_as_asked(alertmanager):
    """Every kind of matcher arrives as it was meant, with owner, reason and end."""
    client = AlertmanagerClient(alertmanager)
    start = datetime.now(UTC)
    end = start + timedelta(hours=2)
    matchers = parse_all(r'a="x \"y\"",b!="",c=~"d|e.*",f!~"g"')
    made = client.create_silence(
        matchers, starts_at=start, ends_at=end, created_by="Ann", comment="two\nlines"
    )
    with urllib.request.urlopen(f"{alertmanager}/api/v2/silence/{made}", timeout=20) as answer:
        found = json.load(answer)
    ops = {(False, True): "=", (False, False): "!=", (True, True): "=~", (True, False): "!~"}
    assert {
        Matcher(each["name"], ops[each["isRegex"], each["isEqual"]], each["value"])
        for each in found["matchers"]
    } == set(matchers)
    assert (found["createdBy"], found["comment"]) == ("Ann", "two\nlines")
    assert abs(datetime.fromisoformat(found["endsAt"]) - end) < timedelta(milliseconds=2)


def test_what_alertmanager_refuses_is_a_permanent_error_in_its_words(alertmanager):
    """A refusal carries what Alertmanager said."""
    client = AlertmanagerClient(alertmanager)
    with pytest.raises(PermanentError, match="end time") as caught:
        client.create_silence(
            parse_all('a="b"'),
            starts_at=NOW,
            ends_at=NOW - timedelta(days=1),
            created_by="Ann",
            comment="x",
        )
    assert caught.value.reason is Reason.INVALID


def test_a_dead_address_is_a_reading_with_an_error():
    """Nobody there says nothing about alerts, in one sentence, and the other calls say so too."""
    client = AlertmanagerClient(f"http://127.0.0.1:{free_port()}", clock=lambda: NOW)
    reading = client.alerts()
    assert "cannot be reached" in reading.error
    assert "refused" in reading.error
    assert "object at" not in reading.error
    assert (reading.alerts, reading.up_since, reading.read_at) == ((), None, NOW)
    with pytest.raises(TransientError) as caught:
        client.status()
    assert caught.value.kind == "connection"


@contextmanager
def answering(respond):
    """A server that answers each request by calling respond(handler)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            seen.append(self.path)
            headers.append(dict(self.headers))
            respond(self)

        def log_message(self, *args):
            pass

    seen: list[str] = []
    headers: list[dict[str, str]] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen, headers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(handler, status=200, body=b'{"uptime":"2026-01-01T00:00:00Z"}', **headers):
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def hang_up(handler):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def hang(handler):
    """Until the client has gone."""
    handler.connection.settimeout(HANG_SECONDS)
    handler.rfile.read(1)
    handler.close_connection = True


def drip(handler):
    """One byte at a time, each well within a time-out of the socket."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        handler.close_connection = True


@pytest.mark.parametrize(
    ("respond", "error", "words"),
    [
        pytest.param(lambda h: send(h, 500, b"boom"), TransientError, "answered 500.*boom", id="500"),
        pytest.param(lambda h: send(h, 503, b""), TransientError, "answered 503.*nothing more", id="503"),
        pytest.param(lambda h: send(h, 401, b"no"), PermanentError, "credentials", id="401"),
        pytest.param(lambda h: send(h, 404, b"<html>"), PermanentError, "answered 404", id="404"),
        pytest.param(
            lambda h: send(h, 302, b"", Location="http://127.0.0.1:1/"),
            PermanentError,
            "redirects",
            id="redirect",
        ),
        pytest.param(lambda h: send(h, 200, b"<html>"), PermanentError, "check the URL", id="a web page"),
        pytest.param(
            lambda h: send(h, 200, b'{"uptime":3}'), PermanentError, "check the URL", id="other JSON"
        ),
        pytest.param(
            lambda h: send(h, 200, b'{"uptime":"2026-01-01T00:00:00"}'),
            PermanentError,
            "check the URL",
            id="a time without zone",
        ),
        pytest.param(lambda h: send(h, 200, b"\xff\xfe"), PermanentError, "check the URL", id="not UTF-8"),
        pytest.param(hang, TransientError, "within 0.3 s", id="a hang"),
        pytest.param(drip, TransientError, "within 0.3 s", id="a drip"),
        pytest.param(hang_up, TransientError, "cannot be reached", id="a reset"),
    ],
)
def test_trouble_has_a_kind_and_a_sentence(respond, error, words):
    """Each failure is transient or permanent, in one line, asked once and never waited for long."""
    with answering(respond) as (url, seen, _):
        started = time.monotonic()
        with pytest.raises(error, match=words) as caught:
            AlertmanagerClient(url, timeout=0.3 if "0.3 s" in words else 20).status()
        assert time.monotonic() - started < HANG_SECONDS
        assert seen == ["/api/v2/status"]
    assert "\n" not in str(caught.value)


def test_retry_after_is_handed_on():
    """How long a busy server asks to wait is kept for the caller, and not slept through."""
    with (
        answering(lambda h: send(h, 429, b"", Retry_After="7")) as (url, _, _),
        pytest.raises(TransientError) as caught,
    ):
        AlertmanagerClient(url).status()
    assert caught.value.retry_after == 7


def test_a_bearer_token_is_read_anew_and_missing_ones_are_said(tmp_path):
    """Tokens rotate on disk; what cannot be sent is a sentence and not a request."""
    token = tmp_path / "token"
    token.write_text("one\n")
    with answering(send) as (url, seen, headers):
        client = AlertmanagerClient(url + "/", bearer_file=token)
        client.status()
        token.write_text("two")
        assert client.status() == NOW
        assert [sent["Authorization"] for sent in headers] == ["Bearer one", "Bearer two"]
        token.write_text("a\nb")
        assert "holds no token" in client.alerts().error
        token.unlink()
        assert "cannot be read" in client.alerts().error
        assert len(seen) == 2


def test_a_password_in_the_url_is_sent_and_never_said():
    """Basic authentication works; no sentence and no reading carries the password."""
    with answering(lambda h: send(h, 403, b"")) as (url, _, headers):
        client = AlertmanagerClient(url.replace("http://", "http://ann:hunter2@") + "/am")
        reading = client.alerts()
        assert headers[0]["Authorization"].startswith("Basic ")
    assert "hunter2" not in repr(reading)
    assert reading.url == f"{url}/am"


@pytest.mark.parametrize("url", ["", "alertmanager:9093", "ftp://x", "http://", "http://[::1", "/var/run/x"])
def test_what_is_no_url_is_refused_when_made(url):
    """A URL that cannot work is a configuration error."""
    with pytest.raises(ConfigError, match="not a URL"):
        AlertmanagerClient(url)


def test_a_ca_file_that_cannot_be_used_is_refused_when_made(tmp_path):
    """The sentence names the file."""
    junk = tmp_path / "ca.pem"
    junk.write_text("junk")
    for path in (junk, tmp_path / "absent"):
        with pytest.raises(ConfigError, match=str(path)):
            AlertmanagerClient("https://x", ca_file=path)
