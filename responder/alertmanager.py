"""Alertmanager's API v2 over HTTP: what stands there, and new silences. Its webhook is read in `webhook`.

What it answers is bounded in size and time, and nothing is retried here: the callers ask again by themselves.
"""

import json
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, NewConnectionError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

from responder.causes import cause
from responder.errors import ConfigError, PermanentError, TransientError
from responder.http_body import read_body
from responder.matchers import Matcher
from responder.model import AlertmanagerReading, Reason, StandingAlert

# 100,000 alerts of 2 kB; more than that is no answer to act on.
_MAX_BYTES = 256 * 1024 * 1024
_MAX_COMPLAINT = 200

_Aware = Annotated[datetime, msgspec.Meta(tz=True)]
_Answer = TypeVar("_Answer")


class _Status(msgspec.Struct):
    uptime: _Aware


class _AlertStatus(msgspec.Struct, rename="camel"):
    state: str
    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()


class _Receiver(msgspec.Struct):
    name: str


class _Alert(msgspec.Struct, rename="camel"):
    fingerprint: str
    labels: dict[str, str]
    starts_at: _Aware
    ends_at: _Aware
    status: _AlertStatus
    annotations: dict[str, str] = {}
    receivers: tuple[_Receiver, ...] = ()
    generator_url: str = msgspec.field(name="generatorURL", default="")


class _SilenceId(msgspec.Struct):
    silence_id: str = msgspec.field(name="silenceID")


def _now() -> datetime:
    return datetime.now(UTC)


class AlertmanagerClient:
    """One Alertmanager. `timeout` is in seconds and bounds each request as a whole.

    A user and password in the URL are sent, and are in no sentence. `bearer_file` is read for every request,
    because tokens rotate. Raises ConfigError for a URL or a `ca_file` that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 5.0,
        bearer_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.url, self._user = _split_url(url)
        self._timeout = timeout
        self._bearer_file = bearer_file
        self._clock = clock
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            why = error.strerror or "it holds no certificate"
            raise ConfigError(f"{ca_file}: cannot be used as CA file for Alertmanager: {why}.") from None
        self._pool = urllib3.PoolManager(retries=False, maxsize=4, ssl_context=context)

    def status(self) -> datetime:
        """Since when it has been up. Raises TransientError or PermanentError."""
        return self._get("/api/v2/status", _Status).uptime.astimezone(UTC)

    def alerts(self) -> AlertmanagerReading:
        """Every alert that stands, suppressed ones too; never raises.

        With any trouble the reading has an `error` and says nothing about alerts.
        """
        read_at = self._clock()
        fields = dict.fromkeys(("active", "silenced", "inhibited", "unprocessed"), "true")
        try:
            up_since = self.status()
            found = self._get("/api/v2/alerts", tuple[_Alert, ...], fields)
        except (TransientError, PermanentError) as error:
            return AlertmanagerReading(self.url, read_at, error=str(error))
        return AlertmanagerReading(self.url, read_at, up_since, tuple(map(_standing, found)))

    def create_silence(
        self,
        matchers: Sequence[Matcher],
        *,
        starts_at: datetime,
        ends_at: datetime,
        created_by: str,
        comment: str,
    ) -> str:
        """Create a silence; its id. Raises TransientError or PermanentError."""
        body = {
            "matchers": [matcher.as_json() for matcher in matchers],
            "startsAt": starts_at.isoformat(),
            "endsAt": ends_at.isoformat(),
            "createdBy": created_by,
            "comment": comment,
        }
        raw = self._ask("POST", "/api/v2/silences", body=json.dumps(body).encode())
        return self._decode(raw, _SilenceId, "/api/v2/silences").silence_id

    def _get(self, path: str, kind: type[_Answer], fields: dict[str, str] | None = None) -> _Answer:
        return self._decode(self._ask("GET", path, fields=fields), kind, path)

    def _decode(self, raw: bytes, kind: type[_Answer], path: str) -> _Answer:
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = f"{self.url}{path} did not answer as Alertmanager's API v2 does; check the URL."
            raise PermanentError(message, Reason.INVALID) from None

    def _ask(
        self, method: str, path: str, *, fields: dict[str, str] | None = None, body: bytes | None = None
    ) -> bytes:
        deadline = time.monotonic() + self._timeout
        try:
            response: Any = self._pool.request(
                method,
                self.url + path,
                fields=fields,
                body=body,
                headers=self._headers(),
                timeout=urllib3.Timeout(total=self._timeout),
                redirect=False,
                preload_content=False,
            )
            try:
                raw = read_body(response, _MAX_BYTES, deadline)
            finally:
                response.release_conn()
        except NewConnectionError as error:
            # Of the time-outs' class in urllib3, and none.
            raise self._unreachable(error) from None
        except (HTTPTimeoutError, TimeoutError):
            message = f"Alertmanager {self.url} did not answer within {self._timeout:g} s."
            raise TransientError(message, kind="timeout") from None
        except HTTPError as error:
            raise self._unreachable(error) from None
        if response.status >= 300:
            raise self._refusal(response, raw, method, path)
        return raw

    def _unreachable(self, error: HTTPError) -> TransientError:
        message = f"Alertmanager {self.url} cannot be reached: {cause(error)}."
        return TransientError(message, kind="connection")

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._user:
            headers["Authorization"] = urllib3.util.make_headers(basic_auth=self._user)["authorization"]
        if self._bearer_file is not None:
            try:
                token = Path(self._bearer_file).read_text("utf-8").strip()
            except (OSError, ValueError):
                message = f"{self._bearer_file}: cannot be read; Alertmanager {self.url} needs its token."
                raise TransientError(message, kind="token") from None
            if not (token.isascii() and token.isprintable() and token):
                message = f"{self._bearer_file}: holds no token that can be sent to Alertmanager {self.url}."
                raise TransientError(message, kind="token")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _refusal(self, response: Any, raw: bytes, method: str, path: str) -> TransientError | PermanentError:
        status = response.status
        said = " ".join(raw[:_MAX_COMPLAINT].decode("utf-8", "replace").split())
        message = f"Alertmanager {self.url} answered {status} to {method} {path}: {said or 'nothing more'}"
        if status == 429 or status >= 500:
            after = response.headers.get("Retry-After", "")
            return TransientError(message, float(after) if after.isdigit() else None, kind=f"http_{status}")
        if status in (401, 403):
            return PermanentError(f"{message}; check its credentials", Reason.FORBIDDEN)
        if status < 400:
            return PermanentError(f"{message}; give the URL that it redirects to", Reason.INVALID)
        return PermanentError(message, Reason.INVALID)


def _split_url(url: str) -> tuple[str, str]:
    """The URL without its credentials and last slash, and `user:password`."""
    try:
        parts = urllib3.util.parse_url(url)
    except LocationParseError:
        parts = urllib3.util.Url()
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ConfigError("--alertmanager-url is not a URL; write it as http://alertmanager:9093.")
    bare = parts._replace(auth=None, query=None, fragment=None).url
    return bare.rstrip("/"), parts.auth or ""


def _standing(alert: _Alert) -> StandingAlert:
    return StandingAlert(
        fingerprint=alert.fingerprint,
        labels=alert.labels,
        annotations=alert.annotations,
        starts_at=alert.starts_at.astimezone(UTC),
        ends_at=alert.ends_at.astimezone(UTC),
        state=alert.status.state,
        receivers=tuple(receiver.name for receiver in alert.receivers),
        silenced_by=alert.status.silenced_by,
        inhibited_by=alert.status.inhibited_by,
        generator_url=alert.generator_url,
    )
