"""Matchers read and hold as Alertmanager's do."""

import contextlib
import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.matchers import Matcher, all_match, parse, parse_all

LABEL_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('a="b"', Matcher("a", "=", "b"), id="quoted value"),
        pytest.param("a=b", Matcher("a", "=", "b"), id="bare value"),
        pytest.param("a=", Matcher("a", "=", ""), id="empty bare value"),
        pytest.param(' a != "b" ', Matcher("a", "!=", "b"), id="spaces around the parts"),
        pytest.param("a=b c", Matcher("a", "=", "b c"), id="classic bare value with a space"),
        pytest.param('a=~"b|c"', Matcher("a", "=~", "b|c"), id="regular expression"),
        pytest.param("a!~b.+", Matcher("a", "!~", "b.+"), id="bare negated regular expression"),
        pytest.param(r'a="b\"c\\d\ne"', Matcher("a", "=", 'b"c\\d\ne'), id="escapes"),
        pytest.param(r'a=~"\d+"', Matcher("a", "=~", r"\d+"), id="classic keeps an escape it does not know"),
        pytest.param('a="b,c}"', Matcher("a", "=", "b,c}"), id="separators within quotes"),
        pytest.param('a="=~"', Matcher("a", "=", "=~"), id="operators within quotes"),
        pytest.param('a=="b"', None, id="two equals signs are one and an unescaped quote"),
        pytest.param("a==b", Matcher("a", "=", "=b"), id="a bare value may start with an equals sign"),
        pytest.param('"na me"="b"', Matcher("na me", "=", "b"), id="quoted name"),
        pytest.param("größe=b", Matcher("größe", "=", "b"), id="bare name in UTF-8"),
        pytest.param(r'"a.b"="\u00e9\x41\xc3\xa9\101"', Matcher("a.b", "=", "éAéA"), id="Go escapes"),
        pytest.param("ns:x=b", Matcher("ns:x", "=", "b"), id="colon in a name"),
    ],
)
def test_reads_what_alertmanager_reads(text, expected):
    """Both grammars are read, the classic one first."""
    if expected is None:
        with pytest.raises(ValueError, match="double quote"):
            parse(text)
    else:
        assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "empty", id="nothing"),
        pytest.param("  ", "empty", id="blanks"),
        pytest.param("alert", "is not a matcher", id="no operator"),
        pytest.param('="b"', "is not a matcher", id="no name"),
        pytest.param('""="b"', "empty label name", id="empty quoted name"),
        pytest.param('a="b', "not closed", id="open quote"),
        pytest.param('a=b"', "not closed or not escaped", id="stray quote"),
        pytest.param(r'"a b"="\q"', "escape", id="unknown escape in the UTF-8 grammar"),
        pytest.param(r'"a b"="\ud800"', "escape", id="half a character"),
        pytest.param(r'"a b"="\xff"', "escape", id="bytes that are not UTF-8"),
        pytest.param('a=~"("', "RE2", id="broken regular expression"),
        pytest.param('a=~"(?=b)"', "RE2", id="lookahead, which backtracks"),
        pytest.param(r'a=~"(b)\\1"', "RE2", id="back-reference"),
        pytest.param("{a=b}", "is not a matcher", id="braces belong to lists"),
    ],
)
def test_says_in_a_sentence_what_is_wrong(text, words):
    """An unreadable matcher is a ValueError with one sentence."""
    with pytest.raises(ValueError) as caught:
        parse(text)
    sentence = str(caught.value)
    assert words in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        pytest.param('a="b"', "b", True, id="equal"),
        pytest.param('a="b"', "B", False, id="equality knows case"),
        pytest.param('a=""', None, True, id="absent is empty"),
        pytest.param('a!=""', None, False, id="absent is not something"),
        pytest.param('a!="b"', None, True, id="absent differs from a value"),
        pytest.param('a=~"b"', "abc", False, id="anchored at both ends"),
        pytest.param('a=~"b|abc"', "abc", True, id="alternatives are anchored together"),
        pytest.param('a=~".*"', None, True, id="absent matches a pattern of the empty string"),
        pytest.param('a=~".+"', None, False, id="absent is not a character"),
        pytest.param('a!~"b.*"', "bc", False, id="negated"),
        pytest.param('a!~"b.*"', "c", True, id="negated and different"),
        pytest.param('a=~"."', "é", True, id="a character is not a byte"),
        pytest.param('a=~"a.b"', "a\nb", False, id="a dot is not a newline"),
        pytest.param('a=~"b"', "b\n", False, id="no newline before the end"),
        pytest.param('a=~"b"', "\ud800", False, id="half a character is only a mismatch"),
    ],
)
def test_holds_as_alertmanagers_do(text, value, holds):
    """Absent labels are empty, regular expressions are anchored."""
    labels = {} if value is None else {"a": value}
    assert parse(text).matches(labels) is holds


@given(
    name=LABEL_TEXT.filter(bool),
    op=st.sampled_from(["=", "!="]),
    value=LABEL_TEXT,
)
def test_text_round_trips(name, op, value):
    """What a matcher says of itself is read back as itself, whatever its name and value."""
    matcher = Matcher(name, op, value)
    assert parse(str(matcher)) == matcher
    assert parse_all(f"{{{matcher},{matcher}}}") == (matcher, matcher)


@given(st.text(max_size=30))
def test_any_text_is_a_matcher_or_a_sentence(text):
    """No input makes another error than ValueError."""
    for read in (parse, parse_all):
        with contextlib.suppress(ValueError):
            read(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param('{a="b", c=~"d.*"}', 2, id="braces"),
        pytest.param('a="b",c="d",', 2, id="no braces and a last comma"),
        pytest.param('{a="b,c=\\"d"}', 1, id="comma within quotes"),
        pytest.param("{}", 0, id="none"),
        pytest.param("", 0, id="nothing"),
    ],
)
def test_reads_lists(text, count):
    """A list is split at commas outside quotes."""
    assert len(parse_all(text)) == count


@pytest.mark.parametrize("text", ['{a="b"', 'a="b"}', 'a="b",,c="d"', ",", "{"])
def test_refuses_broken_lists(text):
    """Half a pair of braces or nothing between commas is an error."""
    with pytest.raises(ValueError):
        parse_all(text)


def test_is_never_slow_on_a_hostile_pattern():
    """A pattern that ruins a backtracking engine stays linear."""
    matcher = parse('a=~"(x+x+)+y"')
    started = time.process_time()
    assert not matcher.matches({"a": "x" * 100_000})
    assert time.process_time() - started < 5


def test_all_must_hold():
    """Matchers are joined by and; none at all holds."""
    both = parse_all('a="b",c="d"')
    assert all_match(both, {"a": "b", "c": "d"})
    assert not all_match(both, {"a": "b"})
    assert all_match((), {})


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool")
def test_amtool_reads_what_we_write(tmp_path):
    """Alertmanager's own tool accepts the text of our matchers in a route and routes by it."""
    value = 'a "quoted" \\ value, with {braces}\nand a line'
    matcher = Matcher("job", "=", value)
    config = tmp_path / "alertmanager.yml"
    quoted = str(matcher).replace("'", "''")
    config.write_text(
        "route:\n  receiver: other\n  routes:\n  - receiver: ours\n"
        f"    matchers:\n    - '{quoted}'\nreceivers:\n- name: ours\n- name: other\n"
    )
    done = subprocess.run(
        ["amtool", "config", "routes", "test", f"--config.file={config}", str(Matcher("job", "=", value))],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "ours", done.stderr
