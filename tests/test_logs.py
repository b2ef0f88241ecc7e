"""One event is one line, in either format, whatever text from outside is in it."""

import json
import logging
from collections.abc import Iterator

import pytest

from responder import logs

NASTY = "label\n2026 INFO forged\r\x1b[2J\u2028\ud800 ünï ☃"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before, level
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
