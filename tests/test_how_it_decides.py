"""docs/how-it-decides.md against the code."""

import re
from pathlib import Path

from responder.deciding.overrides import PREFIX, Annotations
from responder.model import Reason

PAGE = (Path(__file__).parent.parent / "docs" / "how-it-decides.md").read_text()


def test_the_page_tells_of_every_reason_once() -> None:
    """What it means and what to do, and of no reason that does not exist."""
    rows = re.findall(
        r"^\| `([A-Z][A-Za-z]+)` \| ([^|]+) \| ([^|]+) \|$", PAGE.split("## Reasons")[1], re.MULTILINE
    )
    assert [name for name, _, _ in rows] == [reason.value for reason in Reason]
    assert all(meaning.strip() and advice.strip() for _, meaning, advice in rows)


def test_the_page_tells_of_every_annotation() -> None:
    """With the prefix they are read by."""
    assert Annotations() == Annotations((), None, ())
    for name in ("paused", "paused-until", "pinned-replicas", "min-replicas", "target"):
        assert f"`{PREFIX}{name}`" in PAGE
