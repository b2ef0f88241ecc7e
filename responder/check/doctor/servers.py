"""Asking a server over HTTP: bounded in time and size, with every failure as a sentence, and its clock noted."""

import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import urllib3

from responder.causes import cause
from responder.check.findings import Finding, error
from responder.errors import ConfigError, ResponderError
from responder.http_body import TooLarge, read_body

_LARGEST = 64 << 20


class Unanswered(ResponderError):
    """There is no answer that can be used; `status` is the HTTP status if there was one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What a server's clock is ahead of ours, in seconds, give or take `within`."""

    name: str
    ahead: float
    within: float


@dataclass(slots=True)
class Server:
    """One server. `url` may carry a user and password, which are sent and never shown."""

    name: str
    """As people know it: `Prometheus`."""
    url: str
    timeout: float = 10.0
    token_file: str = ""
    ca_file: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    clock: ClockReading | None = None
    partial: dict[str, None] = field(default_factory=dict)
    """What it said of answers that lack a part, as Thanos does when a store is away."""
    _pool: Any = None
    _auth: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"{self.name}: {self.url.rpartition('@')[2]!r} is no URL; write it as http://host:port."
            )
        self._auth, _, host = parts.netloc.rpartition("@")
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigError(f"{self.ca_file}: cannot be used as CA file ({why}).") from None
        self._pool = urllib3.PoolManager(retries=False, ssl_context=context)

    @property
    def place(self) -> str:
        return f"{self.name} {self.url}"

    def json(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """The JSON at a path. Raises Unanswered."""
        return self._decoded(path, self.text(path, query))

    def text(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """What is at a path. Raises Unanswered."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, body: Any) -> None:
        """Send JSON. Raises Unanswered."""
        self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        began, until = time.time(), time.monotonic() + self.timeout
        try:
            response: Any = self._pool.request(
                method,
                self.url + path,
                body=body,
                headers=self._headers(body is not None),
                timeout=urllib3.Timeout(total=self.timeout),
                redirect=False,
                preload_content=False,
            )
            self._note_clock(response.headers.get("Date", ""), began, time.time())
            raw = read_body(response, _LARGEST, until)
            response.release_conn()
        except urllib3.exceptions.NewConnectionError as error:
            raise Unanswered(f"cannot be reached: {cause(error)}") from None
        except (TimeoutError, urllib3.exceptions.TimeoutError):
            raise Unanswered(f"did not answer within {self.timeout:g} s") from None
        except TooLarge:
            raise Unanswered(f"gives an endless answer at {path.partition('?')[0]}") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unanswered(f"cannot be reached: {cause(error)}") from None
        if response.status >= 300:
            raise Unanswered(_refusal(response.status, path, raw), response.status)
        return raw

    def _decoded(self, path: str, raw: bytes) -> Any:
        try:
            return json.loads(raw)
        except ValueError:
            raise Unanswered(f"does not answer {path} as {self.name} does: it is no JSON") from None

    def _headers(self, sends: bool) -> dict[str, str]:
        headers = {"Accept": "application/json, text/plain", "User-Agent": "gpu-responder", **self.headers}
        if sends:
            headers["Content-Type"] = "application/json"
        if self._auth:
            headers |= urllib3.make_headers(basic_auth=self._auth)
        if self.token_file:
            try:
                headers["Authorization"] = f"Bearer {Path(self.token_file).read_text('utf-8').strip()}"
            except (OSError, ValueError):
                raise Unanswered(f"was not asked: its token file {self.token_file} cannot be read") from None
        return headers

    def _note_clock(self, date: str, began: float, ended: float) -> None:
        found = reading(self.place, date, began, ended)
        if found is not None and (self.clock is None or found.within < self.clock.within):
            self.clock = found


def unreachable(server: Server, problem: Unanswered) -> Finding:
    """That a server does not answer as it should, and what to look at first."""
    mend = "check its URL, its token and that it runs"
    if "CERTIFICATE_VERIFY" in str(problem):
        mend = "give the CA of its certificate with --ca-file, or the name that stands in the certificate"
    elif problem.status == 404:
        mend = "check its URL, and any prefix in it"
    return error(server.place, 0, "unreachable", f"{server.name} {str(problem).rstrip('.')}.", mend)


def reading(name: str, date: str, began: float, ended: float) -> ClockReading | None:
    """What a Date header tells of a clock; `began` and `ended` are when it was asked, by time.time()."""
    try:
        told = parsedate_to_datetime(date).astimezone(UTC)
    except (TypeError, ValueError):
        return None
    middle = datetime.fromtimestamp((began + ended) / 2, UTC)
    # The header has whole seconds, cut: on average half a second has gone since.
    return ClockReading(name, (told - middle).total_seconds() + 0.5, 0.5 + (ended - began) / 2)


def _refusal(status: int, path: str, raw: bytes) -> str:
    where = path.partition("?")[0]
    said = " ".join(raw[:200].decode("utf-8", "replace").split())
    if status in (401, 403):
        return f"refuses these credentials (HTTP {status} at {where})"
    if status < 400:
        return f"redirects elsewhere (HTTP {status} at {where})"
    return f"answers HTTP {status} at {where}: {said or 'nothing more'}"
