"""The webhook: validate, keep, answer. Bare WSGI in front of Flask, for this is the path that has to be fast."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from responder import metrics, webhook
from responder.errors import StoreUnavailable
from responder.model import Delivery, Notification
from responder.policy import TEST_LABEL
from responder.web.answers import SECURITY_HEADERS, reason_phrase
from responder.web.auth import Access, Identity, Refused, Role

log = logging.getLogger(__name__)

PATH = "/api/v1/webhooks/alertmanager"

TEST_STATUS = "test-alert"
"""The document in the store that tells of the last test alert that arrived."""

LARGE = 2**20
"""Bytes; larger bodies, and those whose length is not told, are taken in two at a time."""
LARGE_AT_ONCE = 2
LARGE_WAIT_SECONDS = 8

StartResponse = Callable[..., Any]
WsgiApp = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

_encode = msgspec.json.Encoder().encode


class Inbox(Protocol):
    """Where deliveries are kept. Durable on return, StoreUnavailable otherwise."""

    def append(self, delivery: Delivery) -> None: ...

    def put_status(self, name: str, body: Mapping[str, str]) -> None: ...


class Intake:
    """Answers deliveries; everything else goes on to `app`."""

    def __init__(
        self,
        app: WsgiApp,
        inbox: Inbox,
        source: metrics.Source,
        access: Access,
        draining: Callable[[], bool],
    ) -> None:
        self._app = app
        self._inbox = inbox
        self._source = source
        self._access = access
        self._draining = draining
        self._large = threading.BoundedSemaphore(LARGE_AT_ONCE)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return self._app(environ, start_response)
        began = time.perf_counter()
        try:
            answer = self._take(environ)
            status, headers = 200, {}
        except Refused as refused:
            status, headers = refused.status, refused.headers
            answer = {"error": str(refused)}
            if status in (401, 403):
                metrics.auth_failures.inc()
            metrics.deliveries.labels("unavailable" if status == 503 else "rejected").inc()
        except Exception:
            log.exception("a delivery could not be handled")
            status, headers, answer = 500, {}, {"error": "a fault of this service; its log says more"}
            metrics.deliveries.labels("unavailable").inc()
        body = _encode(answer)
        start_response(
            f"{status} {reason_phrase(status)}",
            [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                *SECURITY_HEADERS,
                *headers.items(),
            ],
        )
        metrics.webhook_duration.observe(time.perf_counter() - began)
        return [body]

    def _take(self, environ: Mapping[str, Any]) -> dict[str, Any]:
        if environ["REQUEST_METHOD"] != "POST":
            raise Refused(405, "deliveries are sent by POST", {"Allow": "POST"})
        identity = self._access.identify(environ, Role.ALERTMANAGER)
        if self._draining():
            raise Refused(503, "the service is stopping: send it again in a moment", {"Connection": "close"})
        _check_type(environ)
        if not _is_large(environ):
            return self._keep(environ, identity)
        # A thread for each connection and 32 MiB for each thread would be a lot of memory.
        if not self._large.acquire(timeout=LARGE_WAIT_SECONDS):
            raise Refused(503, "other large deliveries are being taken in: send it again in a moment")
        try:
            return self._keep(environ, identity)
        finally:
            self._large.release()

    def _keep(self, environ: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
        body = read_body(environ, webhook.MAX_BYTES)
        try:
            parsed = webhook.parse(
                body,
                self._source.current,
                datetime.now(UTC),
                sender=identity.name,
                namespaces=identity.namespaces,
            )
        except webhook.BadPayload as error:
            log.warning("a delivery was refused: %s", error, extra={"sender": identity.name})
            raise Refused(error.status, str(error)) from None
        if parsed.delivery.notifications or parsed.tests:
            try:
                if parsed.delivery.notifications:
                    self._inbox.append(parsed.delivery)
                for test in parsed.tests:
                    self._note(test, parsed.delivery)
            except StoreUnavailable as error:
                log.error("a delivery could not be kept: %s", error)
                raise Refused(503, str(error)) from None
        return _answer(parsed)

    def _note(self, test: Notification, delivery: Delivery) -> None:
        """The last test that arrived, for whoever sent it to ask for."""
        if test.firing:
            log.info("a test alert arrived", extra={"test": test.labels[TEST_LABEL]})
            self._inbox.put_status(TEST_STATUS, _note_of(test, delivery))


def _note_of(test: Notification, delivery: Delivery) -> dict[str, str]:
    return {
        "id": test.labels[TEST_LABEL],
        "receivedAt": delivery.received_at.isoformat(),
        "receiver": delivery.receiver,
        "sender": delivery.sender,
    }


def _is_large(environ: Mapping[str, Any]) -> bool:
    declared = environ.get("CONTENT_LENGTH") or ""
    return not declared.isdecimal() or int(declared) > LARGE


def _check_type(environ: Mapping[str, Any]) -> None:
    content_type = environ.get("CONTENT_TYPE", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "the Content-Type must be application/json")
    if environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
        raise Refused(415, "the body must be sent as it is, without a Content-Encoding")


def read_body(environ: Mapping[str, Any], limit: int) -> bytes:
    """The body, whether its length was told or it comes in chunks. Raises Refused above `limit` bytes."""
    declared = environ.get("CONTENT_LENGTH") or ""
    if declared and (not declared.isdecimal() or int(declared) > limit):
        raise _too_large(limit)
    if not declared and not environ.get("wsgi.input_terminated"):
        return b""
    wanted = int(declared) if declared else limit + 1
    try:
        body: bytes = environ["wsgi.input"].read(wanted)
    except Exception as error:  # noqa: BLE001 - the server's errors on bad chunks, slow and broken connections
        raise Refused(400, f"the body could not be read: {error}", {"Connection": "close"}) from None
    if declared and len(body) < wanted:
        raise Refused(400, "the body ended before its Content-Length", {"Connection": "close"})
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> Refused:
    return Refused(
        413,
        f"the body is larger than {limit // 2**20} MiB: set `max_alerts` of Alertmanager's webhook_config",
        {"Connection": "close"},
    )


def _answer(parsed: webhook.Parsed) -> dict[str, Any]:
    results = parsed.results
    accepted = sum(not result.error for result in results)
    rejected = len(results) - accepted
    counts = Counter(
        "rejected" if result.error else "accepted" if result.claimed else "unclaimed" for result in results
    )
    for result, count in counts.items():
        metrics.alerts.labels(result).inc(count)
    metrics.deliveries.labels(
        "partial" if rejected and accepted else "rejected" if rejected else "accepted"
    ).inc()
    if rejected:
        first = next(result for result in results if result.error)
        log.warning(
            "alerts were rejected: %s",
            first.error,
            extra={"fingerprint": first.fingerprint, "rejected": rejected, "accepted": accepted},
        )
    return {
        "accepted": accepted,
        "rejected": rejected,
        "results": [
            {"fingerprint": result.fingerprint, "result": "rejected", "error": result.error}
            if result.error
            else {"fingerprint": result.fingerprint, "result": "accepted"}
            for result in results
        ],
    }
