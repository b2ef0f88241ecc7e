"""What is printed: it fits, it is whole when piped, and it drives no terminal."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from responder.client.decisions import show_decisions
from responder.client.tables import Column, clean, console, fitted, print_json, say, show

COLUMNS = (
    Column("TARGET", give=True, middle=True, least=12),
    Column("STATE", usual="active"),
    Column("N", right=True),
    Column("WHY", give=True, drop=1, least=16),
)
LONG = "inference/llama-3-70b-instruct-batch-a"
ROWS = [[LONG, "held", "3", "a sentence that is as long as sentences are"], ["a/b", "active", "12", "short"]]


def drawn(width: int, rows: list[list[Any]] = ROWS, **more: Any) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    show(out, COLUMNS, rows, **more)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", range(30, 140, 5))
def test_no_line_is_wider_than_the_terminal_and_none_wraps(width: int) -> None:
    """At any width there is one line for each row, and it fits."""
    lines = drawn(width)
    assert len(lines) == 3
    assert all(cell_len(line) <= width for line in lines)


def test_what_does_not_fit_is_dropped_or_shortened() -> None:
    """The sentence goes first, then the name is cut in its middle: names differ at their ends."""
    assert drawn(110)[1].split()[-1] == "are"
    assert "WHY" not in drawn(40)[0]
    assert "…" in drawn(40)[1]
    assert drawn(40)[1].startswith("inference/")
    assert "batch-a" in drawn(40)[1]


def test_a_column_that_says_the_same_everywhere_is_left_out() -> None:
    """State is not worth its width when everything is active."""
    assert "STATE" not in drawn(110, [["a", "active", "1", ""], ["b", "active", "2", ""]])[0]


def test_wide_characters_are_measured_by_their_cells() -> None:
    """A name in Chinese takes two cells for each character, and still fits."""
    lines = drawn(40, [["名前" * 20, "held", "1", "理由" * 20]])
    assert all(cell_len(line) <= 40 for line in lines)
    assert "…" in lines[1]


def test_a_pipe_gets_whole_lines_without_colour() -> None:
    """No width, no escape, no padding behind: for grep and awk."""
    file = io.StringIO()
    show(console(file), COLUMNS, ROWS, indent=2)
    lines = file.getvalue().splitlines()
    assert lines[1] == f"  {LONG}  held     3  a sentence that is as long as sentences are"
    assert "\x1b" not in file.getvalue()
    assert lines[2] == f"  {'a/b':{len(LONG)}}  active  12  short"


def test_a_sentence_that_two_lines_share_is_shown_once() -> None:
    """A decision and its outcome say the same; two holds that happen to are told apart by it."""
    base = {
        "at": "2026-11-30T12:00:00.000Z", "target": "a/deployment/b", "current": 3, "desired": 5, "reason": "ScaledUp",
        "message": "Scaling a/deployment/b from 3 to 5: Busy fires.", "outcome": None, "intent": "i",
    }  # fmt: skip
    out = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    lines = [{**base, "id": 2, "outcome": "applied"}, {**base, "id": 1}]
    show_decisions(out, lines, datetime(2026, 11, 30, 12, 1, tzinfo=UTC))
    assert out.file.getvalue().count("Busy fires.") == 1  # type: ignore[attr-defined]
    assert "Scaling" not in out.file.getvalue()  # type: ignore[attr-defined]
    show_decisions(out, [{**base, "id": 2, "intent": ""}, {**base, "id": 1, "intent": ""}], datetime.now(UTC))
    assert out.file.getvalue().count("Busy fires.") == 3  # type: ignore[attr-defined]


def test_labels_cannot_drive_the_terminal() -> None:
    """Escape, bell, C1 controls and marks that turn writing around are shown and not sent."""
    evil = "a\x1b]0;owned\x07b\x9b31mc\u202ed\ne"
    assert clean(evil) == "a\\x1b]0;owned\\x07b\\x9b31mc\\u202ed e"
    assert clean("naïve → 名") == "naïve → 名"
    assert "\x1b" not in "".join(drawn(110, [[evil, "held", "1", evil]]))


def test_json_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read back the very text, and it drives no terminal either."""
    body = {"comment": "naïve\x1b[31m\x9b\n", "n": 1}
    print_json(body)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert json.loads(shown) == body


def test_sentences_are_wrapped_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log keeps one line; a terminal gets lines that end between words."""
    text = "gpu-responder: " + "word " * 30
    assert fitted(text) == text
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert all(len(line) <= 40 for line in fitted(text).splitlines())
    file = io.StringIO()
    say(console(file), "word " * 60)
    assert file.getvalue().count("\n") == 1
