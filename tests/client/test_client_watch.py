"""Watching: few requests, fewer while nothing changes, an old picture rather than none."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from responder.client import targets, watch
from responder.client.http import Api, ApiError, Unreachable
from tests.client.client_world import Scripted, scripted


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def poller(service: Scripted) -> tuple[watch.Poller, Clock]:
    clock = Clock()
    return watch.Poller(Api(service.url), "/api/v1/targets", {}, clock), clock


def run(made: watch.Poller, clock: Clock, seconds: float) -> list[bool]:
    """Ask ten times a second for so long; what came of the times at which it did ask."""
    news = []
    for _ in range(round(seconds * 10)):
        if made.left() == 0:
            news.append(made.ask())
        else:
            assert made.ask() is False
        clock.now += 0.1
    return news


def test_asks_seldom_while_nothing_changes() -> None:
    """Twelve times in two minutes, at most, where each second would be a hundred and twenty."""
    with scripted() as service:
        service.always(200, {"targets": []})
        made, clock = poller(service)
        news = run(made, clock, 120)
        assert news == [True] + [False] * (len(news) - 1)
        assert len(service.asked) == len(news) <= 12
        assert made.pause == watch.SLOWEST


def test_sends_the_etag_and_keeps_what_it_has() -> None:
    """A server that says 304 sends no body, and nothing is lost by it."""
    with scripted() as service:

        def answer(handler: Any) -> tuple[int, dict[str, str], bytes]:
            if handler.headers.get("If-None-Match") == '"a"':
                return 304, {}, b""
            return 200, {"ETag": '"a"'}, json.dumps({"targets": ["x"]}).encode()

        service.answers[""] = answer
        made, clock = poller(service)
        assert run(made, clock, 20)[:3] == [True, False, False]
        assert made.body == {"targets": ["x"]}
        assert [asked[2].get("If-None-Match") for asked in service.asked[:2]] == [None, '"a"']


def test_a_change_quickens_it() -> None:
    """What moves is watched closely; that time passes is no change, nor that the same was counted again."""
    body: dict[str, Any] = {"targets": [{"ready": 1, "countedAt": 0}], "asOf": 0}
    with scripted() as service:

        def answer(_: Any) -> tuple[int, dict[str, str], bytes]:
            body["asOf"] += 1
            body["targets"][0]["countedAt"] += 1
            return 200, {}, json.dumps(body).encode()

        service.answers[""] = answer
        made, clock = poller(service)
        run(made, clock, 60)
        assert made.pause == watch.SLOWEST
        assert made.body["targets"][0]["countedAt"] > 1
        body["targets"][0]["ready"] = 2
        clock.now += made.left()
        assert made.ask() is True
        assert made.body["targets"][0]["ready"] == 2
        assert made.pause == watch.FASTEST


def test_trouble_keeps_the_old_picture_and_mends_itself() -> None:
    """The service restarts: what was last known stays, marked as old, until it answers again."""
    with scripted() as service:
        service.always(200, {"targets": ["x"]})
        made, clock = poller(service)
        made.ask()
        service.always(503, {"error": "draining"})
        clock.now += 10
        assert made.ask() is True
        assert (made.body, "draining" in made.trouble) == ({"targets": ["x"]}, True)
        service.always(200, {"targets": ["x"]})
        clock.now += 60
        assert made.ask() is True
        assert made.trouble == ""


def test_what_will_not_mend_itself_ends_it() -> None:
    """A token that was taken away, and a service that never was there."""
    with scripted() as service:
        service.always(200, {"targets": []})
        made, clock = poller(service)
        made.ask()
        service.always(401, {"error": "x"})
        clock.now += 10
        with pytest.raises(ApiError, match="needs a token"):
            made.ask()
        url = service.url
    fresh = watch.Poller(Api(url), "/", {}, Clock())
    with pytest.raises(Unreachable, match="cannot reach"):
        fresh.ask()


@pytest.mark.parametrize("rows", [5, 12, 40])
def test_many_targets_fill_the_screen_and_no_more(rows: int) -> None:
    """What does not fit is counted, the urgent come first, and all are counted in the last line."""
    view = {
        "state": "steady", "ready": 1, "replicas": 2, "desired": 2, "minReplicas": 1, "maxReplicas": 8,
        "reason": "NothingFiring", "dryRun": False, "decidedAt": None, "failure": None, "message": "nothing fires",
    }  # fmt: skip
    found = [{**view, "target": f"team/deployment/w{number:04}"} for number in range(1000)]
    found.append({**view, "target": "zoo/deployment/last", "state": "failing"})
    out = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    targets.show_all(out, {"targets": found, "freeze": "moving racks"}, datetime.now(UTC), rows)
    lines = [line.rstrip() for line in out.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert len(lines) <= max(rows, 5)
    assert lines[2].startswith("zoo/last")
    assert f"… and {1001 - (len(lines) - 4)} more" in lines[-2]
    assert lines[-1] == "1001 targets: 1 failing, 1000 steady"
