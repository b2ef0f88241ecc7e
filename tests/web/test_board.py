"""The board of all targets: read once for all who look, and so is its failure."""

import pytest

from responder.errors import StoreUnavailable
from responder.web.board import Board, Row


def test_a_store_that_is_down_is_asked_once_for_all_who_look():
    """Else every visitor would wait for a time-out of their own, one after the other, and hold a thread meanwhile."""
    asked: list[int] = []

    def read() -> list[Row]:
        asked.append(1)
        raise StoreUnavailable("the API server does not answer")

    board = Board(read)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            board.rows()
    assert len(asked) == 1


def test_the_failure_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch):
    """A store that is back is read at the next second, however long it took to fail."""
    now = [100.0]
    monkeypatch.setattr("responder.web.board.time.monotonic", lambda: now[0])
    outcomes: list[Exception | None] = [StoreUnavailable("down"), None]

    def read() -> list[Row]:
        now[0] += 8.0
        failure = outcomes.pop(0)
        if failure is not None:
            raise failure
        return []

    board = Board(read)
    with pytest.raises(StoreUnavailable):
        board.rows()
    now[0] += 1.0
    assert board.rows() == []
