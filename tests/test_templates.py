"""Templates place values where they may stand, and nowhere else."""

import shutil
import subprocess
import time

import promql_parser
import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from responder import templates
from responder.templates import MissingError, check_query, is_namespace, is_object_name, quote_promql
from tests.serving import free_port


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain", "plain", id="no placeholder"),
        pytest.param("{{ $labels.a }}", "A", id="a label"),
        pytest.param("{{$labels.a}}", "A", id="no spaces"),
        pytest.param("x-{{ $labels.a }}-{{ $annotations.b }}", "x-A-B", id="within text"),
        pytest.param("{single} $labels.a", "{single} $labels.a", id="single braces are text"),
    ],
)
def test_places_values(text, expected):
    """Labels and annotations are placed as they are."""
    assert templates.render(text, {"a": "A"}, {"b": "B"}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ $labels.a",
        "$labels.a }}",
        "{{ $value }}",
        "{{ .Labels.a }}",
        '{{ $labels.a | printf "x" }}',
        "{{ $labels }}",
        "{{ $labels.a.b }}",
        "{{ $labels.a-b }}",
        "{{{ $labels.a }}}}",
        "{% if x %}{{ x }}",
    ],
)
def test_knows_no_other_form(text):
    """Anything else in double braces is an error when the file is loaded."""
    with pytest.raises(ValueError, match="only template forms"):
        templates.parse(text)


def test_a_value_is_never_a_template():
    """A label that looks like a template is placed as text."""
    assert templates.render("{{ $labels.a }}", {"a": "{{ $labels.b }}", "b": "x"}, {}) == "{{ $labels.b }}"


@pytest.mark.parametrize("labels", [{}, {"a": ""}], ids=["absent", "empty"])
def test_an_absent_label_is_missing(labels):
    """An absent or empty label is said by name, for targets and queries alike."""
    with pytest.raises(MissingError, match="no label 'a'"):
        templates.render("{{ $labels.a }}", labels, {})
    with pytest.raises(MissingError, match="no label 'a'"):
        templates.render_query('x{a="{{ $labels.a }}"}', labels, {})


@pytest.mark.parametrize(
    ("name", "namespace", "object_name"),
    [
        pytest.param("a", True, True, id="one letter"),
        pytest.param("a-1", True, True, id="dash within"),
        pytest.param("a.b", False, True, id="dots are for objects"),
        pytest.param("", False, False, id="empty"),
        pytest.param("-a", False, False, id="dash first"),
        pytest.param("a-", False, False, id="dash last"),
        pytest.param("a..b", False, False, id="two dots"),
        pytest.param("A", False, False, id="upper case"),
        pytest.param("a_b", False, False, id="underscore"),
        pytest.param("a\n", False, False, id="newline last"),
        pytest.param("../secrets/x", False, False, id="a path"),
        pytest.param("a/scale?x=", False, False, id="a query"),
        pytest.param("é", False, False, id="not ASCII"),
        pytest.param("a" * 63, True, True, id="63 characters"),
        pytest.param("a" * 64, False, True, id="64 characters"),
        pytest.param("a" * 254, False, False, id="254 characters"),
    ],
)
def test_kubernetes_names(name, namespace, object_name):
    """Namespaces are RFC 1123 labels, object names RFC 1123 subdomains."""
    assert is_namespace(name) is namespace
    assert is_object_name(name) is object_name


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("vector(1)", id="no placeholder"),
        pytest.param('x{a="{{ $labels.a }}"}', id="one"),
        pytest.param('x{a="{{ $labels.a }}",b="{{ $annotations.b }}",c=~"d.*"}', id="two and a pattern"),
        pytest.param('sum(rate(x{a="{{ $labels.a }}"}[5m]))', id="within a range"),
        pytest.param('max_over_time(x{a="{{ $labels.a }}"}[5m:1m])', id="within a subquery"),
        pytest.param('x{a="{{ $labels.a }}"} / on() y{a="{{ $labels.a }}"}', id="the same label twice"),
        pytest.param('n:x:sum{a="{{ $labels.a }}"} # for the demo', id="recording rule and comment"),
    ],
)
def test_accepts_placeholders_as_whole_values(query):
    """A whole double-quoted value under = is where a placeholder may stand."""
    check_query(query)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        pytest.param('x{a=~"{{ $labels.a }}"}', "under =", id="a pattern"),
        pytest.param('x{a!="{{ $labels.a }}"}', "under =", id="not equal"),
        pytest.param('x{a="p-{{ $labels.a }}"}', "under =", id="part of a value"),
        pytest.param('x{a="{{ $labels.a }}{{ $labels.b }}"}', "under =", id="two in a value"),
        pytest.param("x{a='{{ $labels.a }}'}", "under =", id="single quotes"),
        pytest.param("x{a=`{{ $labels.a }}`}", "under =", id="backticks"),
        pytest.param("x{a='\"{{ $labels.a }}\"'}", "under =", id="quotes within quotes"),
        pytest.param("{{ $labels.a }}", "under =", id="the entire query"),
        pytest.param('x{a="b"} > {{ $annotations.n }}', "under =", id="a number"),
        pytest.param('label_replace(x, "a", "{{ $labels.a }}", "", "")', "under =", id="an argument"),
        pytest.param('x # "{{ $labels.a }}"', "under =", id="a comment"),
        pytest.param('x{a="b"', "not PromQL", id="broken"),
        pytest.param("", "not PromQL", id="empty"),
        pytest.param('x{a="{{ $labels.a }}"}[5m]', "instant vector", id="a range"),
        pytest.param('("x")', "instant vector", id="a string"),
        pytest.param('x{a="{{ .a }}"}', "only template forms", id="another form"),
    ],
)
def test_refuses_placeholders_elsewhere(query, words):
    """Anywhere else the file is refused, with a sentence."""
    with pytest.raises(ValueError, match=words) as caught:
        check_query(query)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_no_value_leaves_its_quotes(value):
    """Whatever the label holds, the query's shape stays and the matcher's value has no loose end."""
    query = templates.render_query('x{a="{{ $labels.a }}",b="c"}', {"a": value or "x"}, {})
    expr = promql_parser.parse(query)
    assert expr.name == "x"
    assert [m.name for m in expr.matchers.matchers] == ["a", "b"]
    assert expr.matchers.matchers[1].value == "c"


@given(st.text(st.characters(exclude_characters='\\"\x7f�', min_codepoint=0x20, exclude_categories=["Cs"])))
def test_plain_text_is_not_changed(value):
    """What needs no escape gets none."""
    assert quote_promql(value) == value


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ('"', '\\"'),
        ("\\", "\\\\"),
        ("\n", "\\n"),
        ("\0", "\\x00"),
        ("\x7f", "\\x7f"),
        ("�", "\\ufffd"),
        (chr(0xD800), "\\ufffd"),
        ('\\"} or y{z="', '\\\\\\"} or y{z=\\"'),
    ],
    ids=repr,
)
def test_escapes(value, escaped):
    """Go's escapes, which Prometheus undoes."""
    assert quote_promql(value) == escaped


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """A real Prometheus's URL."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus")
    home = tmp_path_factory.mktemp("prometheus")
    (home / "prometheus.yml").write_text("{}")
    port = free_port()
    with (home / "log").open("w") as log:
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
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not _ready(url):
            assert time.monotonic() < deadline, (home / "log").read_text()
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(40)


def _ready(url):
    try:
        return urllib3.request("GET", f"{url}/-/ready", retries=False, timeout=2).status == 200
    except urllib3.exceptions.HTTPError:
        return False


@pytest.mark.parametrize(
    "value",
    [
        'plain"} or vector(1) # ',
        'back\\slash\\" and \\n',
        "line\nbreak\ttab\r",
        "\x00\x1b\x7f",
        "größe 🚀 � \u2028",
        "`'{{ $labels.b }}",
        "x" * 10_000,
    ],
    ids=["injection", "escapes", "white space", "control", "unicode", "other quotes", "long"],
)
def test_prometheus_reads_the_value_that_the_alert_had(prometheus, value):
    """absent() hands back the matcher's value as the real parser understood it."""
    query = templates.render_query('absent(nothing{a="{{ $labels.a }}"})', {"a": value}, {})
    answer = urllib3.request("POST", f"{prometheus}/api/v1/query", fields={"query": query}, timeout=10).json()
    assert answer["status"] == "success", answer
    assert answer["data"]["result"][0]["metric"] == {"a": value}
