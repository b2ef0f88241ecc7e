"""One event is one line, in either format, whatever text from outside is in it."""

import json
import logging
from collections.abc import Iterator

import pytest

from responder import logs

NASTY = "label\n2026 INFO forged\r\x1b[2J\u2028\ud800 ünï ☃"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, audit = logging.getLogger(), logging.getLogger(logs.AUDIT)
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before, level
    audit.handlers[:], audit.propagate = [], True
    logging.captureWarnings(False)


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_hostile_text_stays_on_its_line(log_format: str, capfd: pytest.CaptureFixture[str]) -> None:
    """No newline, no terminal control, and half a surrogate pair does not stop it."""
    logs.set_up(log_format)
    logging.getLogger("x").warning("it says %s", NASTY, extra={"target": NASTY})
    [line] = capfd.readouterr().err.removesuffix("\n").split("\n")
    assert not set(line) & {"\r", "\x1b", "\u2028"}
    assert "forged" in line


def test_json_carries_what_was_given(capfd: pytest.CaptureFixture[str]) -> None:
    """Every key as a machine wants it."""
    logs.set_up("json")
    logging.getLogger("x").error("broken", extra={"target": "a/b/c", "to": 3})
    line = json.loads(capfd.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "x", "broken")
    assert (line["target"], line["to"]) == ("a/b/c", 3)
    assert line["time"].endswith("+00:00")


def test_human_lines_carry_it_too(capfd: pytest.CaptureFixture[str]) -> None:
    """Behind the sentence."""
    logs.set_up("human")
    logging.getLogger("x").info("scaled", extra={"target": "a/b/c", "to": 3})
    assert capfd.readouterr().err.endswith("INFO    x: scaled target=a/b/c to=3\n")


def test_set_up_again_does_not_double_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """One handler, whatever was there."""
    logs.set_up("human")
    logs.set_up("human")
    logging.getLogger("x").info("once")
    assert capfd.readouterr().err.count("once") == 1


def test_the_audit_goes_to_standard_output_where_asked(capfd: pytest.CaptureFixture[str]) -> None:
    """There it is alone and whole; everything else stays on standard error."""
    logs.set_up("json", audit_to_stdout=True)
    logging.getLogger("responder.audit.decisions").info("scaled", extra={"target": "a/b/c"})
    logging.getLogger("responder.audit.people").info("override.put")
    logging.getLogger("responder.actor").info("acts")
    told = capfd.readouterr()
    assert [json.loads(line)["message"] for line in told.out.splitlines()] == ["scaled", "override.put"]
    assert [json.loads(line)["message"] for line in told.err.splitlines()] == ["acts"]


def test_the_audit_is_part_of_the_log_otherwise(capfd: pytest.CaptureFixture[str]) -> None:
    """Also after it was set up the other way."""
    logs.set_up("json", audit_to_stdout=True)
    logs.set_up("json")
    logging.getLogger("responder.audit.decisions").info("scaled")
    told = capfd.readouterr()
    assert not told.out
    assert json.loads(told.err)["message"] == "scaled"
