"""HTTP to one Kubernetes API server: time-outs, retries and credentials that rotate; JSON both ways.

The `kubernetes` client finds the configuration and builds the TLS connection pool; requests go straight to
that pool. The client's own request path retries writes blindly, has no default time-out, and builds models
that cost ten times the CPU.
"""

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
import tenacity
import urllib3

from responder.errors import ConfigError, PermanentError, ResponderError, TransientError
from responder.http_body import read_body
from responder.kube.credentials import api_client, authorization
from responder.kube.errors import UnsentError, broken, refused
from responder.kube.objects import ListMeta
from responder.kube.ratelimit import RateLimit
from responder.model import Reason

T = TypeVar("T")
Query = Mapping[str, str]
OnCall = Callable[[str, str, float], None]
"""Told of every request: its method, "ok" or the kind of error, and the seconds it took."""

_log = logging.getLogger(__name__)
_PAGE = "500"
_LARGEST = 64 << 20
"""Bytes of one answer. A page of 500 pods has about 5 MB."""
_REREAD_SECONDS = 5.0
"""How often credentials are read again at most: a server that refuses starts no storm of exec plugins."""
_CONNECT_SECONDS = 5.0
_LEAST_SECONDS = 0.05
"""What a request gets even at the end of its deadline, so that it ends in an answer."""
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_AGAIN = frozenset({"transient", "timeout", "connection", "server", "throttled", "body"})
"""Kinds of transient errors that another try may mend."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `doing` completes the sentence "Cannot …" when it fails."""

    method: str
    path: str
    doing: str
    query: Query | None = None
    data: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"


class Page(msgspec.Struct, Generic[T]):
    """A list, or a page of one."""

    metadata: ListMeta
    items: list[T] | None = None


class Connection:
    """One API server. Thread-safe; share it. Every error is a `responder.errors` one with a clear sentence.

    `timeout` bounds one request, `deadline` a call with its retries; both in seconds. A write is sent once:
    again only if it certainly did not reach the server, or the server turned it away with 429.
    """

    def __init__(
        self,
        kubeconfig: str | None = None,
        *,
        timeout: float = 10.0,
        deadline: float = 20.0,
        qps: float = 100.0,
        burst: int = 200,
        pool_size: int = 32,
        on_call: OnCall | None = None,
    ) -> None:
        self.timeout = timeout
        self.deadline = deadline
        self._load: Callable[[], Any] = partial(api_client, kubeconfig, pool_size)
        self._limit = RateLimit(qps, burst)
        self._on_call = on_call
        self._closed = threading.Event()
        self._watches: set[urllib3.HTTPResponse] = set()
        self._reread_lock = threading.Lock()
        self._reread_at: float | None = None
        self._client = self._load()

    @property
    def server(self) -> str:
        return str(self._client.configuration.host)

    def get(
        self,
        path: str,
        shape: type[T],
        doing: str,
        *,
        query: Query | None = None,
        deadline: float | None = None,
        accept: str = "application/json",
    ) -> T:
        """Read and decode an object or list. Retried within the deadline, honouring Retry-After up to it."""
        return self._repeat(Call("GET", path, doing, query, accept=accept), shape, TransientError, deadline)

    def pages(
        self, path: str, item: type[T], doing: str, *, query: Query | None = None
    ) -> Iterator["Page[T]"]:
        """A list page by page. ExpiredError when the rest of it is no longer to be had."""
        query = dict(query or {}) | {"limit": _PAGE}
        while True:
            page = self.get(path, Page[item], doing, query=query)  # type: ignore[valid-type]
            yield page
            if not page.metadata.more:
                return
            query["continue"] = page.metadata.more

    def items(self, path: str, item: type[T], doing: str, *, query: Query | None = None) -> Iterator[T]:
        """All items of a list, read in pages."""
        for page in self.pages(path, item, doing, query=query):
            yield from page.items or ()

    def send(
        self,
        call: Call,
        shape: type[T],
        *,
        deadline: float | None = None,
    ) -> T:
        """Write once and decode the answer. A TransientError leaves open whether it took effect."""
        return self._repeat(call, shape, UnsentError, deadline)

    def watch(
        self,
        path: str,
        doing: str,
        query: Query,
        silence: float,
        accept: str = "application/json",
        opened: Callable[[], None] = lambda: None,
    ) -> Iterator[bytes]:
        """Lines of a watch, until the server ends it; an error after `silence` seconds without one.

        `opened` is called when the server has begun it.
        """
        call = Call("GET", path, doing, query, accept=accept)
        self._wait_turn(doing, time.monotonic() + self.deadline)
        response = self._open(call, silence)
        self._watches.add(response)
        try:
            if self._closed.is_set():  # while it was being opened, so `close` could not end it
                raise _stopping(doing)
            if response.status != 200:
                raise _refusal(response, call, time.monotonic() + self.timeout)
            opened()
            yield from _lines(response, self._closed)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise broken(error, doing) from error
        finally:
            self._watches.discard(response)
            response.close()
            response.release_conn()

    def close(self) -> None:
        """Stop retries that wait, end watches, and drop the connections."""
        self._closed.set()
        for response in tuple(self._watches):
            with suppress(ValueError, RuntimeError, OSError):  # it may be ending by itself
                response.shutdown()
        self._client.close()

    def _repeat(
        self, call: Call, shape: type[T], repeatable: type[TransientError], deadline: float | None
    ) -> T:
        seconds = self.deadline if deadline is None else deadline
        until = time.monotonic() + seconds
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda e: isinstance(e, repeatable) and e.kind in _AGAIN),
            wait=_wait,
            stop=tenacity.stop_any(
                tenacity.stop_before_delay(seconds), tenacity.stop_when_event_set(self._closed)
            ),
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )
        answer: T = retrying(self._once, call, shape, until)
        return answer

    def _once(self, call: Call, shape: type[T], until: float) -> T:
        self._wait_turn(call.doing, until)
        began = time.monotonic()
        outcome = "ok"
        try:
            body = self._exchange(call, until)
            try:
                return msgspec.json.decode(body, type=shape)
            except msgspec.DecodeError as error:
                raise broken(error, call.doing) from error
        except ResponderError as error:
            outcome = kind_of(error)
            raise
        finally:
            if self._on_call:
                self._on_call(call.method, outcome, time.monotonic() - began)

    def _exchange(self, call: Call, until: float) -> bytes:
        """The body of a 2xx answer."""
        response = self._open(call, self._remaining(until))
        end = time.monotonic() + self._remaining(until)
        try:
            if not 200 <= response.status < 300:
                raise _refusal(response, call, end)
            return read_body(response, _LARGEST, end)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise broken(error, call.doing) from error
        finally:
            response.release_conn()

    def _open(self, call: Call, read_timeout: float) -> urllib3.HTTPResponse:
        """The answer, its body unread. After a 401 the credentials are read again, once: tokens rotate."""
        used = self._client
        response = self._send(used, call, read_timeout)
        if response.status != 401:
            return response
        if not self._reread(used):
            return response
        response.close()
        return self._send(self._client, call, read_timeout)

    def _send(self, client: Any, call: Call, read_timeout: float) -> urllib3.HTTPResponse:
        if not all(map(_SEGMENT.fullmatch, call.path.removeprefix("/").split("/"))):
            # Names come from labels and owner references too, and must lead nowhere else.
            raise PermanentError(f"Cannot {call.doing}: that is no name in Kubernetes.", Reason.INVALID)
        try:
            headers = {"Accept": call.accept, "User-Agent": "gpu-responder", **authorization(client)}
            if call.data is not None:
                headers["Content-Type"] = call.content_type
            query = f"?{urlencode(call.query)}" if call.query else ""
            response: urllib3.HTTPResponse = client.rest_client.pool_manager.request(
                call.method,
                client.configuration.host + call.path + query,
                body=call.data,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(_CONNECT_SECONDS, read_timeout), read=read_timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            return response
        except ConfigError as error:
            raise TransientError(f"Cannot {call.doing}: {error}", kind="unauthorized") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise broken(error, call.doing) from error

    def _remaining(self, until: float) -> float:
        return max(_LEAST_SECONDS, min(self.timeout, until - time.monotonic()))

    def _wait_turn(self, doing: str, until: float) -> None:
        wait = self._limit.reserve(max(0.0, until - time.monotonic()))
        if wait is None:
            raise TransientError(
                f"Cannot {doing}: too many requests of this service wait for its own rate limit.",
                kind="rate_limit",
            )
        if (wait and self._closed.wait(wait)) or self._closed.is_set():
            raise _stopping(doing)

    def _reread(self, used: Any) -> bool:
        """Read the configuration again; True if the caller should try with what is there now."""
        with self._reread_lock:
            if self._client is not used:
                return True  # another thread has just done it
            now = time.monotonic()
            if self._reread_at is not None and now - self._reread_at < _REREAD_SECONDS:
                return False
            self._reread_at = now
            try:
                self._client = self._load()
            except ConfigError as error:
                _log.warning("Keeping the old credentials: %s", error)
                return False
            _log.info("The API server answered 401: the credentials were read again.")
            used.close()
            return True


def kind_of(error: ResponderError) -> str:
    """A short word for metrics: a transient error's kind, a permanent one's reason, or the class."""
    if isinstance(error, TransientError):
        return error.kind
    reason = getattr(error, "reason", None)
    return str(reason) if reason else type(error).__name__.lower()


_backoff = tenacity.wait_exponential(multiplier=0.1, max=3.0) + tenacity.wait_random(0.0, 0.2)


def _wait(state: tenacity.RetryCallState) -> float:
    """Exponential with jitter; at least what the server asked for, spread so that callers do not align."""
    error = state.outcome.exception() if state.outcome else None
    told = error.retry_after if isinstance(error, TransientError) else None
    seconds = float(_backoff(state))
    return seconds if told is None else max(seconds, told * random.uniform(1.0, 1.1))  # noqa: S311


def _stopping(doing: str) -> TransientError:
    return TransientError(f"Cannot {doing}: the service is stopping.", kind="stopping")


def _refusal(response: urllib3.HTTPResponse, call: Call, until: float) -> ResponderError:
    return refused(response.status, response.headers, read_body(response, _LARGEST, until), call.doing)


def _lines(response: urllib3.HTTPResponse, closed: threading.Event) -> Iterator[bytes]:
    rest = b""
    for part in response.stream(1 << 16):
        if closed.is_set():
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from (line for line in lines if line)
