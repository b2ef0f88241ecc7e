"""The page that a person on call opens at night. Made here whole, so that it can be read without JavaScript.

Its script asks for the same page again and puts in place what has changed; see static/page.js.
"""

import contextlib
import hashlib
import mimetypes
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec
from flask import Blueprint, Response, current_app, g, redirect, render_template, request
from werkzeug.exceptions import HTTPException

from responder.errors import ResponderError, StoreUnavailable
from responder.matchers import Matcher, all_match, parse
from responder.model import Override, Record, target_of_key
from responder.observe import overrides_of
from responder.policy import governing
from responder.store import HistoryFilter
from responder.web import ages, charts, overrides, silences, utilization
from responder.web.app import Services, identity, needs, services
from responder.web.auth import Refused, Role
from responder.web.board import STATES, Board, Row, counted, ordered, row_of
from responder.web.chain import chain_of
from responder.web.notices import notices
from responder.web.page_words import (
    KINDS,
    ago,
    clock,
    line_view,
    lines_of,
    override_line,
    short,
    silence_line,
)
from responder.web.problems import BadRequest
from responder.web.session import form_token, sign_in, sign_out, visitor
from responder.web.views import is_link, stamp, target_view

page = Blueprint("page", __name__, template_folder="templates")

PER_PAGE = 100
LAST_DECISIONS = 12
MOMENTS = 200
HOURS = (1, 6, 24, 72)
LENGTHS = (("1800", "30 minutes"), ("3600", "1 hour"), ("7200", "2 hours"), ("14400", "4 hours"),
           ("28800", "8 hours"), ("86400", "1 day"), ("259200", "3 days"))  # fmt: skip
_LONGEST_ADDRESS = 4096
_LARGEST_SIGN_IN = 16 * 1024
_STATIC = resources.files("responder").joinpath("web/static")
_NOT_SHOWN = frozenset({"decided_at", "counted_at", "unreachable"})
_OPEN = frozenset({"page.static", "page.sign_in_form", "page.signed_in"})


@page.before_request
def _let_in() -> Any:
    """Everything but the form to sign in is for those who may read."""
    if request.endpoint in _OPEN:
        return None
    found = visitor()
    if found is None:
        if request.headers.get("X-Live"):
            return Response("Your session has ended.", 401, content_type="text/plain")
        return redirect("/sign-in?" + urlencode({"next": request.full_path.rstrip("?")}), 303)
    g.identity = found
    return None


@page.get("/")
@needs(None)
def overview() -> Response:
    """All targets, what binds them, and what was decided last."""
    return show_overview()


@page.get("/targets/<namespace>/<kind>/<name>")
@needs(None)
def target(namespace: str, kind: str, name: str) -> Response:
    """One target: why it is as it is, how it came to that, and what can be done about it."""
    return show_target(f"{namespace}/{kind}/{name}")


@page.get("/targets/<namespace>/<kind>/<name>/utilization.svg")
@needs(None)
def utilization_chart(namespace: str, kind: str, name: str) -> Response:
    """GPU utilization, as an image of its own: Prometheus may be slow, and the page does not wait for it."""
    record = _record(f"{namespace}/{kind}/{name}")
    now = datetime.now(UTC)
    own = services()
    series = utilization.read(own.prometheus_urls, own.prometheus_headers(), record.target, _hours(), now)
    start = now - timedelta(hours=_hours())
    labels = charts.labels_of(record, services().source.current.timing, start, now)
    answer = Response(charts.utilization(series, labels, start, now), mimetype="image/svg+xml")
    answer.headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    answer.headers["Cache-Control"] = "private, max-age=30"
    return answer


@page.get("/sign-in")
@needs(None)
def sign_in_form() -> Response:
    """The form that takes a token."""
    if services().access.open:
        return cast("Response", redirect("/", 303))
    return _rendered("sign_in.html", next=_local(request.args.get("next", "")))


@page.post("/sign-in")
@needs(None)
def signed_in() -> Response:
    """Take the token."""
    if "Transfer-Encoding" in request.headers or (request.content_length or 0) > _LARGEST_SIGN_IN:
        # Nobody's body is read for long before it is known whose it is.
        raise BadRequest("the form is too large", 413)
    forward = _local(request.form.get("next", ""))
    answer = cast("Response", redirect(forward, 303))
    try:
        sign_in(request.form.get("token", "").strip(), answer)
    except Refused as error:
        said = str(error) if error.status != 401 else "This token is not known."
        return _rendered("sign_in.html", error.status, next=forward, fault=said)
    return answer


@page.post("/sign-out")
@needs(None)
def signed_out() -> Response:
    """Forget the session in this browser."""
    answer = cast("Response", redirect("/sign-in", 303))
    sign_out(answer)
    return answer


@page.get("/static/<name>")
@needs(None)
def static(name: str) -> Response:
    """Style, script and icon."""
    if name not in {"page.css", "page.js", "icon.svg"}:
        raise BadRequest("there is nothing at this path", 404)
    answer = Response(_STATIC.joinpath(name).read_bytes(), mimetype=mimetypes.guess_type(name)[0])
    answer.headers["Cache-Control"] = "no-cache"
    answer.add_etag()
    answer.make_conditional(request)
    return answer


# Below: what is shown


def show_overview(fault: str = "", given: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """The list of targets; with what is wrong with a form that was sent, and what was in it."""
    own, now = services(), datetime.now(UTC)
    wanted = {key: request.args.get(key, "") for key in ("q", "state", "namespace")}
    who = identity()
    seen = [row for row in board().rows() if who.may_reach(row.namespace)]
    near = [row for row in seen if _fits(row, wanted["q"], wanted["namespace"])]
    found = [row for row in near if wanted["state"] in ("", row.state)]
    first = _page(len(found)) * PER_PAGE
    binding = overrides.visible(own.store.overrides())
    silenced = silences.visible(own.store.silences(), now)
    shown = found[first : first + PER_PAGE]
    history = own.store.history(HistoryFilter(namespaces=who.namespaces), limit=2 * LAST_DECISIONS)
    view = {
        "targets": [_row_view(row, binding, now) for row in shown],
        "counts": counted(near),
        "total": len(near),
        "found": len(found),
        "first": first,
        "namespaces": sorted({row.namespace for row in seen}),
        "wanted": wanted,
        "notices": [[each.level, each.title, each.text] for each in notices(seen, binding, now)],
        "overrides": [override_line(each, now) for each in binding[:PER_PAGE]],
        "all_overrides": len(binding),
        "silences": [silence_line(each, now) for each in silenced[:PER_PAGE]],
        "all_silences": len(silenced),
        "decisions": [line_view(line) for line in lines_of(history)[:LAST_DECISIONS]],
        "cluster": own.source.current.cluster,
        "done": _done(now),
    }
    return _live("overview.html", view, now, status, fault=fault, given=given or {}, states=STATES)


def show_target(
    asked: str, fault: str = "", given: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """One target's page; with what is wrong with a form that was sent, and what was in it."""
    own, now, hours = services(), datetime.now(UTC), _hours()
    record = _record(asked)
    settings, everything = own.source.current, own.store.overrides()
    policy = governing(settings, record)
    bound = overrides_of(everything, record.target, policy.name if policy else "")
    history = own.store.history(HistoryFilter.of(record.target.key), limit=MOMENTS)
    lines = lines_of(history)
    last = next((stored.entry for stored in history if stored.entry.outcome is None), None)
    binding = [*bound, *(record.annotated if policy else ())]
    view = {
        "target": {**target_view(record, settings, everything, now), "overrides": None, "alerts": None},
        "row": _row_view(row_of(record, settings, everything, now), overrides.visible(everything), now),
        "alerts": target_view(record, settings, everything, now)["alerts"],
        "overrides": [override_line(each, now) for each in binding],
        "silences": _silences_of(record, now),
        "decisions": [line_view(line) for line in lines],
        "chain": chain_of(last, settings) if last is not None else [],
        "notices": [[each.level, each.title, each.text] for each in _notices_of(record, bound, now)],
        "cluster": settings.cluster,
        "hours": hours,
        # The chart's right edge is the present.
        "minute": f"{now:%H:%M}",
        "done": _done(now),
    }
    drawn = charts.timeline(record, lines[::-1], settings.timing, now - timedelta(hours=hours), now)
    more = {
        "chart": drawn,
        "all_hours": HOURS,
        "utilization": bool(own.prometheus_urls),
        "silencing": _matchers_of(record, request.args.get("silence", "")),
    }
    return _live("target.html", view, now, status, fault=fault, given=given or {}, **more)


def board() -> Board:
    """The rows of all targets, which this process reads once for all its visitors."""
    known: Board | None = current_app.extensions.get("gpu-responder-board")
    if known is None:
        known = current_app.extensions["gpu-responder-board"] = Board(_reader(services()))
    return known


def _reader(own: Services) -> Any:
    def read() -> list[Row]:
        settings, people, now = own.source.current, own.store.overrides(), datetime.now(UTC)
        return ordered(row_of(record, settings, people, now) for record, _ in own.store.records())

    return read


def _row_view(row: Row, binding: list[Override], now: datetime) -> dict[str, Any]:
    mine = [
        each
        for each in binding
        if each.in_force(now) and (not each.target or each.target == row.key) and _bears_on(each, row)
    ]
    return {
        **{name: getattr(row, name) for name in row.__slots__ if name not in _NOT_SHOWN},
        "at": stamp(row.decided_at),
        # The moment and never the age, so that a page is not another for having grown older.
        "countedAt": stamp(row.counted_at),
        "href": f"/targets/{quote(row.key)}",
        "overrides": [
            *(KINDS[each.kind.value] for each in mine),
            *(f"{KINDS[kind]} by annotation" for kind in row.annotated),
        ],
    }


def _bears_on(override: Override, row: Row) -> bool:
    return bool(overrides_of((override,), target_of_key(row.key), row.policy))


def _silences_of(record: Record, now: datetime) -> list[dict[str, Any]]:
    return [
        silence_line(silence, now)
        for silence in silences.visible(services().store.silences(), now)
        if any(all_match(tuple(map(parse, silence.matchers)), span.labels) for span in record.alerts.values())
    ]


def _notices_of(record: Record, bound: tuple[Override, ...], now: datetime) -> Any:
    return notices([row_of(record, services().source.current, bound, now)], bound, now)


def _record(asked: str) -> Record:
    """The target's record. Raises BadRequest."""
    found = services().store.record(asked)
    if found is None or not identity().may_reach(found[0].target.namespace):
        raise BadRequest(f"No target {asked[:120]} is known.", 404)
    return found[0]


def _matchers_of(record: Record, fingerprint: str) -> str:
    """What to silence an alert by, and those that are like it: its name, and whom it is about."""
    span = record.alerts.get(fingerprint)
    if span is None:
        return ""
    about = (
        ("alertname", "namespace", "workload")
        if "workload" in span.labels
        else ("alertname", "namespace", "node")
    )
    return "\n".join(str(Matcher(name, "=", span.labels[name])) for name in about if name in span.labels)


def _done(now: datetime) -> str:
    """What the form that led here has done, read from the store and never from the address."""
    own, asked = services(), request.args
    for each in overrides.visible(own.store.overrides(include_ended=True)):
        what = override_line(each, now)
        if each.id == asked.get("override"):
            landing = overrides.in_flight(each)
            late = " A write begun before it may still land: " if landing else ""
            late += ", ".join(f"{one['target']} from {one['from']} to {one['to']}" for one in landing)
            return f"{what['what']} of {what['whom']} is in force until {clock(each.ends_at, now)} UTC.{late}"
        if each.id == asked.get("ended"):
            return f"{what['what']} of {what['whom']} has ended."
    for silence in silences.visible(own.store.silences(include_expired=True), now):
        if silence.id == asked.get("silenced"):
            return f"Alerts with {', '.join(silence.matchers)} are silenced until {clock(silence.ends_at, now)} UTC."
        if silence.id == asked.get("ended"):
            return f"The silence of {', '.join(silence.matchers)} has ended."
    return ""


def _fits(row: Row, text: str, namespace: str) -> bool:
    if namespace and row.namespace != namespace:
        return False
    if not text:
        return True
    words = f"{row.key} {row.state} {row.reason} {row.policy} {' '.join(row.firing)}".lower()
    return all(word in words for word in text.lower().split())


def _page(found: int) -> int:
    text = request.args.get("page", "0")
    asked = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
    return min(asked, max(found - 1, 0) // PER_PAGE)


def _hours() -> int:
    text = request.args.get("hours", "")
    return int(text) if text in map(str, HOURS) else 6


def _local(address: str) -> str:
    """The address if it is one of this page; else the front."""
    # Browsers, and what writes the header, leave out control characters: what is left may begin with `//`.
    ours = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if ours and len(address) <= _LONGEST_ADDRESS else "/"


# Below: how it is sent


def _live(template: str, view: dict[str, Any], now: datetime, status: int, **more: Any) -> Response:
    """The page, or 304 for a script that has all that it would show."""
    csrf = form_token()
    tag = hashlib.sha256(msgspec.json.encode([view, csrf, request.full_path])).hexdigest()[:32]
    tag = f'"{tag}"'
    if request.headers.get("If-None-Match") == tag and status == 200:
        return Response(status=304, headers={"ETag": tag})
    answer = _rendered(template, status, now=now, csrf=csrf, lengths=LENGTHS, **view, **more)
    answer.headers["ETag"] = tag
    return answer


def _rendered(template: str, status: int = 200, **values: Any) -> Response:
    now = values.setdefault("now", datetime.now(UTC))
    who = g.get("identity")
    text = render_template(
        template,
        who=who,
        may=who is not None and who.may(Role.OPERATOR),
        open=services().access.open,
        asked=request.full_path.rstrip("?"),
        address=_address,
        moment=datetime.fromisoformat,
        fresh_seconds=round(ages.FRESH.total_seconds()),
        stale=lambda text: ages.stale(datetime.fromisoformat(text), now),
        ago=lambda text: ago(datetime.fromisoformat(text), now),
        clock=lambda text: clock(datetime.fromisoformat(text), now),
        link=lambda text: bool(text) and is_link(text),
        left_of=lambda text: short(datetime.fromisoformat(text) - now),
        span_of=lambda seconds: short(timedelta(seconds=seconds)),
        **values,
    )
    answer = Response(text, status, content_type="text/html; charset=utf-8")
    # Under no-referrer a browser sends a form with the origin `null`, and it would be refused as another site's.
    answer.headers["Referrer-Policy"] = "same-origin"
    return answer


def _address(**changes: Any) -> str:
    """This list with other filters."""
    have = {key: request.args.get(key, "") for key in ("q", "state", "namespace", "page")}
    kept = {key: value for key, value in {**have, "page": "", **changes}.items() if value}
    return "/?" + urlencode(kept) if kept else "/"


def failed(error: Exception) -> Response:
    """A page that says what is wrong, in one sentence."""
    status = getattr(error, "status", None) or getattr(error, "code", None) or 500
    if isinstance(error, StoreUnavailable):
        status = 503
    said = str(error)
    if isinstance(error, HTTPException):
        said = error.description or error.name
    elif not isinstance(error, ResponderError | Refused):
        current_app.logger.error("the page could not be made", exc_info=error)
        said = "A fault of this service; its log says more."
    near = list(getattr(error, "near", None) or ())
    csrf = ""
    if "identity" in g:
        with contextlib.suppress(StoreUnavailable):
            csrf = form_token()
    return _rendered("problem.html", status, said=said, near=near, csrf=csrf)


for _kind in (BadRequest, Refused, StoreUnavailable, HTTPException, Exception):
    page.register_error_handler(_kind, failed)
