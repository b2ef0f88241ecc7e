"""The web application: guards in front, one blueprint per part of the API behind."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar, cast

from flask import Blueprint, Flask, Response, current_app, g, request
from werkzeug.exceptions import ClientDisconnected, HTTPException

from responder import metrics
from responder.errors import ConfigError, StoreUnavailable
from responder.model import AuditEntry, Override, Record, Silence, Span
from responder.policy import Settings
from responder.store import HistoryFilter, Status, StoredEntry
from responder.web.answers import SECURITY_HEADERS, error_answer
from responder.web.auth import Access, Identity, Refused, Role
from responder.web.bodies import LARGEST_BODY, with_body
from responder.web.intake import Inbox, Intake
from responder.web.problems import BadRequest

log = logging.getLogger(__name__)

V = TypeVar("V", bound=Callable[..., Any])


class Store(Inbox, metrics.State, Protocol):
    """What the routes here ask of the store."""

    def ready(self) -> str: ...
    def ring(self) -> None: ...
    def record(self, key: str) -> tuple[Record, int] | None: ...
    def records(self) -> Iterator[tuple[Record, int]]: ...
    def intents(self) -> list[Record]: ...
    def overrides(self, include_ended: bool = False) -> tuple[Override, ...]: ...
    def put_override(self, override: Override, audit: AuditEntry | None = None) -> None: ...
    def silences(self, include_expired: bool = False) -> tuple[Silence, ...]: ...
    def put_silence(self, silence: Silence, audit: AuditEntry | None = None) -> None: ...
    def audit(self, entry: AuditEntry) -> None: ...
    def audits(self, limit: int) -> list[AuditEntry]: ...
    def put_status(self, name: str, body: Mapping[str, str]) -> None: ...
    def statuses(self) -> dict[str, Status]: ...
    def history(self, wanted: HistoryFilter = ..., *, limit: int = ...) -> list[StoredEntry]: ...


class Source(metrics.Source, Protocol):
    def reload(self) -> None: ...


def _no_safe_mode(settings: Settings, standing: Iterable[Span], now: datetime) -> str:  # noqa: ARG001
    return ""


@dataclass(frozen=True)
class Services:
    """What routes work with; `services()` gives it to a view."""

    store: Store
    source: Source
    access: Access
    draining: Callable[[], bool] = lambda: False
    safe_mode: metrics.SafeMode = _no_safe_mode
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    override_max: timedelta = timedelta(days=30)
    """The furthest end of a new override."""
    prometheus_urls: tuple[str, ...] = ()
    """Where the page asks for utilization."""
    prometheus_headers: Callable[[], Mapping[str, str]] = dict
    """What it sends with that, such as a token, as it is now."""


def services() -> Services:
    """The application's services, in a view."""
    return cast("Services", current_app.extensions["gpu-responder"])


def identity() -> Identity:
    """Who asks, in a view."""
    return cast("Identity", g.identity)


def needs(role: Role | None) -> Callable[[V], V]:
    """Say which role a view needs; None opens it to all. A view that says nothing needs an operator."""

    def mark(view: V) -> V:
        view.__dict__["role"] = role
        return view

    return mark


def create_app(services: Services, blueprints: Iterable[Blueprint] = ()) -> Flask:
    """The application with the webhook, the operations routes and whatever blueprints are added."""
    # They use what is defined here.
    from responder.web.openapi import refuse_undescribed  # noqa: PLC0415
    from responder.web.operations import operations  # noqa: PLC0415

    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY
    app.extensions["gpu-responder"] = services
    # A path with doubled slashes is no other name for a route: its redirect would go to what the Host header says.
    app.url_map.merge_slashes = False
    app.register_blueprint(operations)
    for blueprint in blueprints:
        app.register_blueprint(blueprint)
    app.before_request(_guard)
    app.before_request(refuse_undescribed)
    app.after_request(_secure)
    app.register_error_handler(Refused, _refused)
    app.register_error_handler(StoreUnavailable, _unavailable)
    app.register_error_handler(ConfigError, _wrong_config)
    app.register_error_handler(BadRequest, _bad_request)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _fault)
    app.wsgi_app = Intake(  # type: ignore[method-assign]
        with_body(app.wsgi_app), services.store, services.source, services.access, services.draining
    )
    return app


def _guard() -> None:
    access = services().access
    view = current_app.view_functions.get(request.endpoint or "")
    role = getattr(view, "role", Role.OPERATOR)
    if view is None or role is None:
        access.check_host(request.environ)
        access.check_origin(request.environ)
        return
    g.identity = access.identify(request.environ, role)


def _secure(response: Response) -> Response:
    for name, value in SECURITY_HEADERS:
        response.headers.setdefault(name, value)
    return response


def _refused(error: Refused) -> Response:
    metrics.auth_failures.inc()
    return error_answer(request.path, error.status, str(error), error.headers)


def _unavailable(error: StoreUnavailable) -> Response:
    return error_answer(request.path, 503, str(error))


def _wrong_config(error: ConfigError) -> Response:
    return error_answer(request.path, 422, str(error))


def _bad_request(error: BadRequest) -> Response:
    more = {} if error.near is None else {"near": list(error.near)}
    return error_answer(request.path, error.status, str(error), more=more)


def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    headers = {"Allow": ", ".join(sorted(error.valid_methods or ()))} if status == 405 else {}  # type: ignore[attr-defined]
    if isinstance(error, ClientDisconnected):
        # Where the next request would begin is not known.
        headers = {"Connection": "close"}
        return error_answer(
            request.path, status, "the body broke off or could not be read: send it again", headers
        )
    sentences = {
        404: "there is nothing at this path",
        405: "this path does not take that method",
        413: "the body is too large",
        415: "the Content-Type must be application/json",
    }
    return error_answer(request.path, status, sentences.get(status, error.description or error.name), headers)


def _fault(error: Exception) -> Response:
    log.error("a request could not be handled", exc_info=error, extra={"path": request.path})
    return error_answer(request.path, 500, "a fault of this service; its log says more")
