"""What an answer of the API server, or its absence, means to the caller: one sentence and the right class."""

import re
from collections.abc import Mapping

import msgspec
import urllib3.exceptions as http

from responder.causes import cause
from responder.errors import Conflict, PermanentError, ResponderError, TransientError
from responder.model import Reason

# A custom resource whose replicas field is unset answers its scale with 500, which no retry will mend.
_UNSET_REPLICAS = re.compile(r'the spec replicas field "(?P<path>[^"]*)" does not exist')
_REASONS = {400: Reason.INVALID, 403: Reason.FORBIDDEN, 404: Reason.TARGET_GONE, 405: Reason.NOT_SCALABLE}
_WORDS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "too large",
    429: "Too Many Requests",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class UnsentError(TransientError):
    """The server has certainly not acted: it was not reached, or it turned the request away unread."""


class NotServedError(PermanentError):
    """The API server serves no such group, version, resource or subresource."""


class ExpiredError(TransientError):
    """410: the resourceVersion or continue token is too old; list again."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    causes: list[_Cause] = []
    retry_after_seconds: float | None = None


class Status(msgspec.Struct):
    """The body of an error, as Kubernetes writes it."""

    message: str = ""
    reason: str = ""
    details: _Details | None = None


def _status_of(body: bytes) -> Status:
    """The Status in a body; a proxy's page or a plain text becomes its message."""
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        pass
    text = body[:2000].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return Status(message="the answer is an HTML page, as a proxy in between writes it")
    return Status(message=text.splitlines()[0][:200] if text else "")


def _retry_after(headers: Mapping[str, str], status: Status) -> float | None:
    told = headers.get("Retry-After", "")
    if told.isdigit():
        return float(told)
    return status.details.retry_after_seconds if status.details else None


def refused(code: int, headers: Mapping[str, str], body: bytes, doing: str) -> ResponderError:
    """The error for an answer that is not 2xx. `doing` completes "Cannot …"."""
    status = _status_of(body)
    message = status.message.strip().rstrip(".") or "no reason given"
    sentence = f"Cannot {doing}: {message} (HTTP {code}{' ' + _WORDS[code] if code in _WORDS else ''})."
    unset = _UNSET_REPLICAS.search(status.message)
    if unset:
        return PermanentError(
            f"Cannot {doing}: its replicas field {unset['path']} is not set, so it has no scale to read or "
            "change; set that field once.",
            Reason.NOT_SCALABLE,
        )
    if code == 401:
        return TransientError(
            f"Cannot {doing}: the API server does not accept this service's credentials, also after reading "
            "them again (HTTP 401 Unauthorized).",
            kind="unauthorized",
        )
    if code == 409:
        return Conflict(sentence)
    if code == 410:
        return ExpiredError(sentence, kind="expired")
    if code == 429:
        return UnsentError(sentence, _retry_after(headers, status), kind="throttled")
    if code >= 500 or code == 408:
        kind = "timeout" if code in (408, 504) else "server"
        return TransientError(sentence, _retry_after(headers, status), kind=kind)
    if 300 <= code < 400:
        where = headers.get("Location", "elsewhere")
        return PermanentError(
            f"Cannot {doing}: the address redirects to {where} (HTTP {code}); name the API server itself.",
            Reason.API_UNAVAILABLE,
        )
    return _permanent(code, status, doing, sentence)


def _permanent(code: int, status: Status, doing: str, sentence: str) -> PermanentError:
    if code == 404 and not (status.details and status.details.name):
        return NotServedError(
            f"Cannot {doing}: the API server serves no such resource (HTTP 404).", Reason.NOT_SCALABLE
        )
    causes = status.details.causes if status.details else []
    if code == 403 and any(cause.reason == "NamespaceTerminating" for cause in causes):
        return PermanentError(sentence, Reason.NAMESPACE_TERMINATING)
    return PermanentError(sentence, _REASONS.get(code, Reason.INVALID))


def broken(error: Exception, doing: str) -> TransientError:
    """The error for a request that got no whole answer."""
    match error:
        case http.NewConnectionError():  # a ConnectTimeoutError too, by inheritance
            return UnsentError(
                f"Cannot {doing}: the API server cannot be reached ({cause(error)}).", kind="connection"
            )
        case http.ConnectTimeoutError():
            return UnsentError(f"Cannot {doing}: connecting to the API server took too long.", kind="timeout")
        case http.SSLError():
            return TransientError(
                f"Cannot {doing}: no trusted TLS connection to the API server ({cause(error)}).", kind="tls"
            )
        case http.ReadTimeoutError() | TimeoutError():
            return TransientError(f"Cannot {doing}: the API server did not answer in time.", kind="timeout")
        case msgspec.DecodeError():
            return TransientError(
                f"Cannot {doing}: the answer is not the JSON that Kubernetes writes ({error}).", kind="body"
            )
        case _:
            return TransientError(
                f"Cannot {doing}: the connection to the API server broke off ({cause(error)}).",
                kind="connection",
            )
