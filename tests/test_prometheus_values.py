"""A value is one fresh, finite number or a sentence that says why there is none."""

import contextlib
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from responder.errors import ConfigError
from responder.model import Value
from responder.prometheus import PrometheusValues, is_selector
from tests.kube.fake_api import HANG, HANG_SECONDS, RESET, TRICKLE, TRUNCATED, FakeApi, fake_api
from tests.serving import free_port, until

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
AT = 1796040000.0
QUERY = "POST /api/v1/query"


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    with fake_api() as server:
        yield server


def data(result_type: str, result: object, **more: object) -> tuple:
    return 200, {}, {"status": "success", "data": {"resultType": result_type, "result": result}, **more}


def sample(value: object, at: object = AT) -> dict:
    return {"metric": {}, "value": [at, value]}


def ask(fake: FakeApi, answer: object, expr: str = "sum(x)", **options: object) -> Value:
    fake.answers[QUERY] = answer
    values = PrometheusValues([fake.url], timeout=0.3 if answer in (HANG, TRICKLE) else 20, **options)
    try:
        return values.query(expr, NOW)
    finally:
        values.close()


GOOD = {
    "a vector of one": (data("vector", [sample("3")]), 3.0),
    "a true zero": (data("vector", [sample("0")]), 0.0),
    "a scalar": (data("scalar", [AT, "1.5"]), 1.5),
    "a whole timestamp": (data("vector", [sample("3", 1796040000)]), 3.0),
    "a remark that harms nothing": (
        data("vector", [sample("3")], warnings=["PromQL info: metric might not be a counter"]),
        3.0,
    ),
}


@pytest.mark.parametrize(("answer", "expected"), GOOD.values(), ids=GOOD)
def test_values(fake: FakeApi, answer: tuple, expected: float) -> None:
    """What is a value, and that it carries the server's time."""
    assert ask(fake, answer) == Value(expected, datetime.fromtimestamp(AT, UTC))


NONE = {
    "no sample": (data("vector", []), "has no sample for the query (none within 90 s)"),
    "two samples": (data("vector", [sample("1"), sample("1")]), "2 samples and not one"),
    "NaN": (data("vector", [sample("NaN")]), "gives NaN and not a finite number"),
    "infinity": (data("vector", [sample("+Inf")]), "gives +Inf and not a finite number"),
    "no number": (data("vector", [sample("three")]), "gives 'three' and not a number"),
    "a number that is not in quotes": (data("vector", [sample(3)]), "does not answer as Prometheus does"),
    "an impossible time": (data("vector", [sample("3", 1e300)]), "impossible time"),
    "a matrix": (data("matrix", [{"values": []}]), "gives a matrix"),
    "a string": (data("string", [AT, "3"]), "gives a string"),
    "a histogram": (data("vector", [{"metric": {}, "histogram": [AT, {}]}]), "gives a histogram"),
    "a warning": (
        data("vector", [sample("3")], warnings=["No StoreAPIs matched for this query"]),
        "may be incomplete: No StoreAPIs matched",
    ),
    "no data": ((200, {}, {"status": "success"}), "there is no data"),
    "success that is none": (
        (200, {}, {"status": "error", "error": "boom"}),
        "cannot evaluate the query: boom",
    ),
    "a list": ((200, {}, []), "does not answer as Prometheus does"),
    "null": ((200, {}, "null"), "does not answer as Prometheus does"),
    "an HTML page": ((200, {"Content-Type": "text/html"}, "<html>sign in"), "an HTML page (HTTP 200)"),
    "a page of 404": ((404, {}, "404 page not found"), "no JSON (HTTP 404)"),
    "a query it rejects": (
        (400, {}, {"status": "error", "errorType": "bad_data", "error": "1:3: parse error"}),
        "answers HTTP 400: 1:3: parse error",
    ),
    "422": ((422, {}, {"status": "error", "error": "found duplicate series"}), "found duplicate series"),
    "503": ((503, {}, {"status": "error", "error": "starting up"}), "answers HTTP 503: starting up"),
    "401": ((401, {}, "nope"), "refuses this service's credentials (HTTP 401)"),
    "a redirect": ((302, {"Location": "https://login.example/"}, ""), "redirects elsewhere (HTTP 302)"),
    "too much": ((200, {}, "[" + "1," * 1_000_000), "too large for one sample"),
    "a reset": (RESET, "cannot be reached: connection reset by peer"),
    "a cut": (TRUNCATED, "IncompleteRead"),
    "silence": (HANG, "did not answer within 0.3 s"),
    "a trickle": (TRICKLE, "did not answer within 0.3 s"),
}


@pytest.mark.parametrize(("answer", "words"), NONE.values(), ids=NONE)
def test_no_value(fake: FakeApi, answer: object, words: str) -> None:
    """What is no value: never zero, never an exception, and one sentence."""
    began = time.monotonic()
    value = ask(fake, answer)
    assert value.value is None
    assert words in value.error
    assert value.error.startswith(fake.url)
    assert "\n" not in value.error
    assert value.at == NOW
    assert time.monotonic() - began < HANG_SECONDS


def test_query_on_the_wire(fake: FakeApi) -> None:
    """The query goes in a form by POST, so that it may be long, with bounds on time and on age."""
    ask(fake, data("vector", [sample("3")]), 'sum(x{a="b&c"})')
    (request,) = fake.requests
    assert request["body"] == {"query": 'sum(x{a="b&c"})', "timeout": "20000ms", "lookback_delta": "90000ms"}


def test_age_of_a_plain_selector(fake: FakeApi) -> None:
    """A plain selector's sample has a time of its own, which timestamp() tells at the same moment."""
    fake_answers = [data("vector", [sample("7")]), data("vector", [sample(str(AT - 30))])]
    value = ask(fake, fake_answers, "x")
    assert value == Value(7.0, datetime.fromtimestamp(AT - 30, UTC))
    assert [r["body"]["query"] for r in fake.requests] == ["x", "timestamp(x)"]
    assert fake.requests[1]["body"]["time"] == f"{AT:.3f}"


def test_stale_sample(fake: FakeApi) -> None:
    """One that is older than the bound is no value, however good it looks."""
    value = ask(fake, [data("vector", [sample("7")]), data("vector", [sample(str(AT - 91))])], "x")
    assert value.value is None
    assert "only a stale value: 91 s old, and 90 s are the limit" in value.error


def test_bound_is_a_parameter(fake: FakeApi) -> None:
    """In compressed time the bound is compressed too."""
    answers = [data("vector", [sample("7")]), data("vector", [sample(str(AT - 1))])]
    assert ask(fake, list(answers), "x", fresh=0.5).value is None
    assert ask(fake, list(answers), "x", fresh=1.5).value == 7.0


@pytest.mark.parametrize(
    ("expr", "plain"),
    [
        ("x", True),
        ('x{a="b"}', True),
        ('{__name__="x"}', True),
        ("((x))", True),
        ("x offset 5m", False),
        ("x @ 0", False),
        ("x + 0", False),
        ("sum(x)", False),
        ("x[5m]", False),
        ("1", False),
        ("x{", False),
    ],
)
def test_plain_selectors(expr: str, plain: bool) -> None:
    """For which expressions timestamp() says something."""
    assert is_selector(expr) is plain


def test_several_servers(fake: FakeApi) -> None:
    """The next is asked when one has no value; when none has, each one's reason is given."""
    with fake_api() as other:
        fake.answers[QUERY] = data("vector", [])
        other.answers[QUERY] = data("vector", [sample("3")])
        values = PrometheusValues([fake.url, other.url + "/"], timeout=20)
        assert values.query("sum(x)", NOW).value == 3.0
        other.answers[QUERY] = RESET
        error = values.query("sum(x)", NOW).error
        assert error == (
            f"{fake.url} has no sample for the query (none within 90 s); "
            f"{other.url} cannot be reached: connection reset by peer"
        )
        values.close()


def test_path_prefix_and_headers(fake: FakeApi) -> None:
    """Mimir and VictoriaMetrics live under a path; tenants go in a header."""
    fake.answers["POST /prometheus/api/v1/query"] = data("vector", [sample("3")])
    values = PrometheusValues([fake.url + "/prometheus/"], timeout=20, headers={"X-Scope-OrgID": "gpu"})
    assert values.query("sum(x)", NOW).value == 3.0
    assert fake.requests[0]["headers"]["X-Scope-OrgID"] == "gpu"
    values.close()


def test_credentials(fake: FakeApi, tmp_path: Path) -> None:
    """A token file is read at each query; a password in the URL goes along and is never shown."""
    token = tmp_path / "token"
    fake.answers[QUERY] = data("vector", [sample("3")])
    values = PrometheusValues([fake.url], timeout=20, bearer_token_file=str(token))
    assert "its token cannot be read" in values.query("sum(x)", NOW).error
    for content in ("one\n", "two\n"):
        token.write_text(content)
        values.query("sum(x)", NOW)
    assert [r["headers"]["Authorization"] for r in fake.requests] == ["Bearer one", "Bearer two"]
    values.close()
    fake.answers[QUERY] = (500, {}, "x")
    values = PrometheusValues([fake.url.replace("http://", "http://me:secret@")], timeout=20)
    assert "secret" not in values.query("sum(x)", NOW).error
    assert fake.requests[-1]["headers"]["authorization"].startswith("Basic ")
    values.close()


def test_nobody_to_ask() -> None:
    """Without a server there is no value, and the sentence names the option."""
    assert "--prometheus-url" in PrometheusValues([]).query("x", NOW).error


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "http://", ""])
def test_bad_url(url: str) -> None:
    """What is no URL is said at the start."""
    with pytest.raises(ConfigError, match="is not a Prometheus URL"):
        PrometheusValues([url])


# A real Prometheus.


class Exporter:
    """A scrape target whose page can be changed; None closes it."""

    def __init__(self) -> None:
        self.page: str | None = ""
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if exporter.page is None:
                    self.send_error(500)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(exporter.page.encode())

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    made = Exporter()
    yield made
    made.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, exporter: Exporter) -> Iterator[str]:
    """A real Prometheus with an old series backfilled, scraping the exporter five times a second."""
    home = tmp_path_factory.mktemp("prometheus")
    # Five minutes on, it would not be told at all.
    old = datetime.now(UTC) - timedelta(seconds=150)
    (home / "old.txt").write_text(f"# TYPE old gauge\nold 5 {old.timestamp():.3f}\n# EOF\n")
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", "old.txt", "data"],
        cwd=home,
        check=True,
        capture_output=True,
    )
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "gpu", "static_configs": [{"targets": [exporter.address]}]}],
    }
    (home / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    log = (home / "log").open("wb")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={home}/prometheus.yml",
            f"--storage.tsdb.path={home}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log,
        stderr=log,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: ready(url), what="Prometheus is ready")
        yield url
    finally:
        process.terminate()
        process.wait(40)
        log.close()


def ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/-/ready", timeout=20) as response:
        return bool(response.status == 200)
    return False


def test_real_prometheus(prometheus: str, exporter: Exporter) -> None:
    """Against a real Prometheus: values follow the exporter, and everything else has its sentence."""
    exporter.page = 'load{gpu="0"} 3\nload{gpu="1"} 4\nnan NaN\n'
    values = PrometheusValues([prometheus], timeout=20, fresh=5)

    def query(expr: str) -> Value:
        return values.query(expr, datetime.now(UTC))

    until(lambda: query("sum(load)").value == 7.0)
    one = query('load{gpu="0"}')
    assert one.value == 3.0
    assert datetime.now(UTC) - one.at < timedelta(seconds=5)
    assert "2 samples and not one" in query("load").error
    assert "NaN" in query("nan").error
    assert "has no sample" in query("absent_metric").error
    assert "parse error" in query("load{").error
    assert "gives a matrix" in query("load[1m]").error
    assert query("scalar(sum(load))").value == 7.0
    assert values.check() == ""

    # A target that stops answering leaves a staleness marker: there is no value, and not the last one.
    exporter.page = None
    until(lambda: "has no sample" in query('load{gpu="0"}').error)
    values.close()


def test_real_prometheus_and_age(prometheus: str) -> None:
    """Prometheus gives a sample of minutes ago as if it were of now; its own time tells."""
    patient = PrometheusValues([prometheus], timeout=20, fresh=3600)
    value = patient.query("old", datetime.now(UTC))
    assert value.value == 5.0
    assert 145 < (datetime.now(UTC) - value.at).total_seconds() < 300
    patient.close()
    values = PrometheusValues([prometheus], timeout=20)
    error = values.query("old", datetime.now(UTC)).error
    assert "only a stale value" in error or "has no sample" in error  # newer ones know lookback_delta
    values.close()
