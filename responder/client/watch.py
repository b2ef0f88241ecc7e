"""Keeping output up to date: few requests, fewer while nothing changes, and none that costs the server a body."""

import io
import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from responder.client import times
from responder.client.http import Answer, Api, ApiError, Unreachable
from responder.client.tables import clean, console, say

FASTEST = 2.0
SLOWEST = 15.0
"""Seconds between requests: at first, doubling while nothing changes."""
REDRAW = 1.0

Draw = Callable[[Console, Any, datetime, int | None], None]
"""Prints a body of the API's as of now, in so many lines if that is given."""


class Poller:
    """Asks when it is time to. `trouble` says why the last answer is old; empty while it is not."""

    def __init__(
        self, api: Api, path: str, query: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._path = path
        self._query = query
        self._clock = clock
        self._etag = ""
        self._seen = ""
        self.pause = FASTEST
        self._due = 0.0
        self.body: Any = None
        self.trouble = ""

    def ask(self) -> bool:
        """Ask if it is time. True if there is news. Raises ApiError for what will not mend itself."""
        if self._clock() < self._due:
            return False
        try:
            news = self._news(self._api.poll(self._path, self._query, self._etag))
        except Unreachable as error:
            news = self._troubled(str(error))
        except ApiError as error:
            if self.body is None or (error.status < 500 and error.status != 404):
                raise
            news = self._troubled(str(error))
        self.pause = FASTEST if news and not self.trouble else min(self.pause * 2, SLOWEST)
        self._due = self._clock() + self.pause
        return news

    def left(self) -> float:
        return max(self._due - self._clock(), 0.0)

    def _news(self, answer: Answer) -> bool:
        was_in_trouble, self.trouble = bool(self.trouble), ""
        if not answer.changed:
            return was_in_trouble
        self._etag = answer.etag
        seen = json.dumps(_lasting(answer.body), sort_keys=True)
        news = seen != self._seen or was_in_trouble
        self._seen, self.body = seen, answer.body
        return news

    def _troubled(self, message: str) -> bool:
        if self.body is None:
            raise Unreachable(message)
        news = not self.trouble
        self.trouble = message
        return news


def _lasting(body: Any) -> Any:
    """The body without what moves by itself: a count that is made anew and is the same is no news."""
    if isinstance(body, dict):
        return {key: _lasting(value) for key, value in body.items() if key not in ("asOf", "countedAt")}
    return [_lasting(each) for each in body] if isinstance(body, list) else body


def watch(api: Api, path: str, query: Mapping[str, Any], draw: Draw, *, as_json: bool) -> None:
    """Show what the API has until Ctrl-C: redrawn in a terminal; elsewhere printed anew when it changes."""
    out = console()
    poller = Poller(api, path, query)
    if as_json or not out.is_terminal:
        _print(poller, out, draw, as_json)
    with Live(console=out, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            poller.ask()
            live.update(_screen(out, poller, draw), refresh=True)
            time.sleep(REDRAW)


def _print(poller: Poller, out: Console, draw: Draw, as_json: bool) -> None:
    first = True
    while True:
        if poller.ask():
            if poller.trouble:
                say(console(sys.stderr), f"Note: {poller.trouble}")
            elif as_json:
                print(json.dumps(poller.body), flush=True)
            else:
                if not first:
                    out.print()
                say(out, f"As of {times.now():%Y-%m-%d %H:%M:%SZ}:")
                draw(out, poller.body, times.now(), None)
                out.file.flush()
            first = False
        time.sleep(poller.left())


def _screen(out: Console, poller: Poller, draw: Draw) -> RenderableType:
    """What fits, with the last line telling how old it is and how to end."""
    now = times.now()
    # Not `out` itself, which would draw what is on the screen with it.
    paper = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=out.width,
        color_system=out.color_system,  # type: ignore[arg-type]
        no_color=out.no_color,
        highlight=False,
        markup=False,
        emoji=False,
    )
    room = max(out.height - 1, 1)
    with paper.capture() as captured:
        draw(paper, poller.body, now, room)
    lines = captured.get().splitlines()
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines: see them without --watch"]
    foot = Text(f"{now:%H:%M:%SZ}  every {poller.pause:g} s  Ctrl-C ends", style="dim")
    if poller.trouble:
        foot = Text(clean(f"OLD: {poller.trouble}"), style="bold red", no_wrap=True, overflow="ellipsis")
    body = Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
    return Group(body, foot)
