"""The API over HTTP, with errors as sentences that say what to do."""

import json
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, NewConnectionError
from urllib3.exceptions import SSLError as HTTPSSLError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

from responder.causes import cause
from responder.client.tables import clean
from responder.errors import ConfigError, ResponderError
from responder.http_body import read_body

DEFAULT_URL = "http://127.0.0.1:9099"
TIMEOUT = 10.0
LARGEST = 256 * 1024 * 1024
_LONGEST_COMPLAINT = 500
_MISNAMED = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class ApiError(ResponderError):
    """The service refused. `status` is its HTTP status, and `near` what it thinks was meant."""

    def __init__(self, message: str, status: int, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.near = near


class Unreachable(ResponderError):
    """There was no answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered; `changed` is False when the server says that it is what it was."""

    body: Any
    etag: str = ""
    changed: bool = True


class Api:
    """One service. Raises ConfigError for a URL, token file or CA file that cannot be used."""

    def __init__(
        self, url: str = DEFAULT_URL, token_file: str = "", ca_file: str = "", timeout: float = TIMEOUT
    ) -> None:
        self.url = _checked(url)
        self.token_file = token_file
        self.ca_file = ca_file
        self.timeout = timeout
        self._token = _read_token(token_file) if token_file else ""
        self._pool = urllib3.PoolManager(retries=False, ssl_context=_context(ca_file) if ca_file else None)

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """The JSON at a path. Raises ApiError, Unreachable."""
        return self._ask("GET", path, query).body

    def poll(self, path: str, query: Mapping[str, Any] | None, etag: str) -> Answer:
        """The same, unless it is what it was when it had this ETag."""
        return self._ask("GET", path, query, headers={"If-None-Match": etag} if etag else {})

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._ask("POST", path, body=body).body

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._ask("DELETE", path, query).body

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        asked = {key: value for key, value in (query or {}).items() if value not in (None, "")}
        url = f"{self.url}{path}{'?' + urlencode(asked) if asked else ''}"
        sent = {"Accept": "application/json", "User-Agent": "gpu-responder", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            response: Any = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=sent,
                timeout=urllib3.Timeout(total=self.timeout),
                redirect=False,
                preload_content=False,
            )
            raw = read_body(response, LARGEST, time.monotonic() + self.timeout)
            response.release_conn()
        except (HTTPError, OSError) as error:
            raise self._unreachable(error) from None
        if response.status == 304:
            return Answer(None, sent.get("If-None-Match", ""), changed=False)
        return Answer(self._read(method, path, response, raw), response.headers.get("ETag", ""))

    def _read(self, method: str, path: str, response: Any, raw: bytes) -> Any:
        status = response.status
        if 300 <= status < 400:
            where = clean(response.headers.get("Location", "elsewhere"))
            raise ApiError(f"{self.url} redirects to {where}: give that with --url", status)
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body, status = None, status if status in (401, 403) or status >= 500 else 0
        if 200 <= status < 300 and (body is not None or not raw):
            return body
        raise self._refused(method, path, status, body)

    def _refused(self, method: str, path: str, status: int, body: Any) -> ApiError:
        said = ""
        near: tuple[str, ...] = ()
        if isinstance(body, str):
            said = body
        elif isinstance(body, dict):
            said = str(body.get("error", ""))
            near = tuple(clean(str(name)) for name in body.get("near") or ())
        said = clean(said)[:_LONGEST_COMPLAINT].strip().rstrip(".")
        if status == 401:
            return ApiError(self._unknown(), status)
        if status == 403:
            return ApiError(f"{self.url} does not allow it: {said or 'it says no more'}", status)
        if status == 429:
            return ApiError(f"{self.url} has had too many failed attempts from here: wait a minute", status)
        if status >= 500:
            what = said or "it says no more; see its log"
            return ApiError(f"{self.url} cannot do it now ({status}): {what}", status)
        if not said:
            message = f"{self.url} does not answer {method} {path} as gpu-responder does: check --url"
            return ApiError(message, status)
        return ApiError(said, status, near)

    def _unknown(self) -> str:
        if not self._token:
            return (
                f"{self.url} needs a token: give --token-file or set GPU_RESPONDER_TOKEN_FILE "
                "(an operator makes one with gpu-responder token create)"
            )
        return (
            f"{self.url} does not know the token in {self.token_file}: it may have been replaced; "
            "get a new one, or add its hash to the service's --token-hashes-file"
        )

    def _unreachable(self, error: BaseException) -> Unreachable:
        if isinstance(error, NewConnectionError):
            return Unreachable(
                f"cannot reach {self.url}: {clean(cause(error))}; is gpu-responder serve running there? "
                "Another place is named with --url or GPU_RESPONDER_URL"
            )
        if isinstance(error, HTTPTimeoutError | TimeoutError):
            return Unreachable(f"{self.url} did not answer within {self.timeout:g} s: try again in a moment")
        if isinstance(error, HTTPSSLError | ssl.SSLError):
            return Unreachable(self._distrust(error))
        hint = ", write https:// if it speaks TLS" if self.url.startswith("http:") else ""
        return Unreachable(
            f"{self.url} broke off: {clean(cause(error))}; check that --url is right{hint}, and try again"
        )

    def _distrust(self, error: BaseException) -> str:
        found = _of(error, ssl.SSLCertVerificationError)
        if isinstance(found, ssl.SSLCertVerificationError):
            why = clean(found.verify_message or "it cannot be verified").rstrip(".")
            mend = (
                "use a name that it is made for"
                if found.verify_code in _MISNAMED
                else "give its CA with --ca-file"
            )
            return f"the certificate of {self.url} is not to be trusted ({why}): {mend}"
        if "WRONG_VERSION_NUMBER" in str(error):
            return f"{self.url} does not speak TLS: write http:// instead of https://"
        return f"no TLS connection with {self.url}: {clean(cause(error))}"


def segment(text: str) -> str:
    """A part of a path."""
    return quote(text, safe="")


def _checked(url: str) -> str:
    try:
        parts = urllib3.util.parse_url(url)
    except LocationParseError:
        parts = urllib3.util.Url()
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ConfigError(f"--url: {clean(url)!r} is no address: write it like {DEFAULT_URL}")
    if parts.auth:
        raise ConfigError(
            "--url: a token does not belong in an address, which others can see: use --token-file"
        )
    return parts._replace(query=None, fragment=None).url.rstrip("/")


def home_expanded(path: str) -> Path:
    """The path with ~ put in full; as it is for a user without HOME and without an entry in /etc/passwd."""
    return Path(os.path.expanduser(path))


def _read_token(path: str) -> str:
    try:
        token = home_expanded(path).read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"--token-file: {path}: {error.strerror or 'cannot be read'}") from None
    except ValueError:
        token = ""
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"--token-file: {path} holds no token: it must be one line, such as gpur_…")
    return token


def _context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=home_expanded(ca_file))
    except OSError as error:
        cause = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"--ca-file: {ca_file}: {cause or 'cannot be read'}") from None


def _of(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The first of this kind among the error, its causes and what it wraps."""
    seen: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting:
        at = waiting.pop(0)
        if not isinstance(at, BaseException) or at in seen:
            continue
        if isinstance(at, kind):
            return at
        seen.append(at)
        waiting += [at.__cause__, at.__context__, *at.args]
    return None
