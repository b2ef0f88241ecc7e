"""Instant queries to any server with Prometheus's HTTP API: Prometheus, Thanos, Mimir, VictoriaMetrics.

A value decides how many replicas run, so anything but one fresh, finite number is no value: `query` then says
in one sentence why.
"""

import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import promql_parser
import urllib3

from responder.causes import cause
from responder.errors import ConfigError
from responder.http_body import TooLarge, read_body
from responder.model import Value

_LARGEST = 1 << 20
"""Bytes of an answer. One sample has 200; more than this is not an answer to a query for one."""
_HARMLESS = "PromQL info"
"""Prometheus 2.48 to 2.53 sends such remarks among the warnings, which else mean that data may be missing."""


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: Any


class _Answer(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] | None = None


class _NoValue(Exception):
    """Why there is no value, in words that follow the server's name."""


class PrometheusValues:
    """Asks the servers in order until one gives a value. Thread-safe; share it.

    `timeout` bounds each server's answer. A sample older than `fresh` is no value; both in seconds. `fresh`
    wants to be at least twice the scrape or rule interval. `bearer_token_file` is read at each query, so a
    rotated token is picked up. `headers` go with each query, such as Mimir's X-Scope-OrgID.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        timeout: float = 5.0,
        fresh: float = 90.0,
        bearer_token_file: str = "",
        ca_file: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ConfigError(f"{url!r} is not a Prometheus URL; write it as http://host:9090.")
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._timeout = timeout
        self._fresh = fresh
        self._token_file = bearer_token_file
        self._headers = dict(headers or {})
        self._pool = urllib3.PoolManager(maxsize=16, retries=False, ca_certs=ca_file or None)

    def query(self, expr: str, now: datetime) -> Value:
        """The one fresh sample of an instant query, or a Value that says why there is none. Never raises."""
        if not self._urls:
            return Value(None, now, "there is no Prometheus to ask; name one with --prometheus-url")
        errors = []
        for url in self._urls:
            try:
                return self._ask(url, expr)
            except _NoValue as error:
                errors.append(f"{_name(url)} {error}")
        return Value(None, now, "; ".join(errors))

    def check(self) -> str:
        """ "" when at least one server answers a query, else one sentence."""
        value = self.query("vector(1)", datetime.now(UTC))
        return value.error

    def close(self) -> None:
        self._pool.clear()

    def _ask(self, url: str, expr: str) -> Value:
        until = time.monotonic() + self._timeout
        at, value = self._sample(url, expr, until)
        if is_selector(expr):
            # The sample's own time: an instant query stamps its result with the time of evaluation.
            _, taken = self._sample(url, f"timestamp({expr})", until, at)
            age = at - taken
            if age > self._fresh:
                raise _NoValue(
                    f"has only a stale value: {age:.0f} s old, and {self._fresh:g} s are the limit"
                )
            at = taken
        try:
            return Value(value, datetime.fromtimestamp(at, UTC))
        except (OverflowError, ValueError, OSError):
            raise _NoValue(f"gives a sample of an impossible time ({at!r})") from None

    def _sample(self, url: str, expr: str, until: float, at: float | None = None) -> tuple[float, float]:
        """(time of evaluation, value) of exactly one sample."""
        fields = {
            "query": expr,
            "timeout": f"{max(1, int(self._timeout * 1000))}ms",
            # Bounds the age of every selector inside an expression, where the server knows it.
            "lookback_delta": f"{max(1, int(self._fresh * 1000))}ms",
        }
        if at is not None:
            fields["time"] = f"{at:.3f}"
        answer = self._post(url, fields, until)
        if answer.status != "success":
            raise _NoValue(f"cannot evaluate the query: {_first_line(answer.error)}")
        doubts = [w for w in answer.warnings or () if not w.startswith(_HARMLESS)]
        if doubts:
            raise _NoValue(f"warns that the value may be incomplete: {_first_line(doubts[0])}")
        if answer.data is None:
            raise _NoValue("does not answer as Prometheus does: there is no data")
        return self._only(answer.data)

    def _only(self, data: _Data) -> tuple[float, float]:
        match data.result_type, data.result:
            case "vector", []:
                raise _NoValue(f"has no sample for the query (none within {self._fresh:g} s)")
            case "vector", [{"value": [float() | int() as at, str() as text]}]:
                return float(at), _finite(text)
            case "scalar", [float() | int() as at, str() as text]:
                return float(at), _finite(text)
            case "vector", [{"histogram": _}]:
                raise _NoValue("gives a histogram and not a number; use histogram_quantile or histogram_sum")
            case "vector", [_, _, *_] as several:
                raise _NoValue(f"gives {len(several)} samples and not one; aggregate the query, as by sum()")
            case ("matrix" | "string") as kind, _:
                raise _NoValue(f"gives a {kind} and not one sample")
        raise _NoValue("does not answer as Prometheus does")

    def _post(self, url: str, fields: Mapping[str, str], until: float) -> _Answer:
        status, content_type, body = self._exchange(f"{url}/api/v1/query", fields, until)
        if 300 <= status < 400:
            raise _NoValue(f"redirects elsewhere (HTTP {status}); name the server itself")
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.DecodeError:
            if status in (401, 403):
                raise _NoValue(f"refuses this service's credentials (HTTP {status})") from None
            what = "an HTML page" if "html" in content_type or body.lstrip()[:1] == b"<" else "no JSON"
            raise _NoValue(f"does not answer as Prometheus does: {what} (HTTP {status})") from None
        if not 200 <= status < 300:
            raise _NoValue(f"answers HTTP {status}: {_first_line(answer.error) or 'no reason given'}")
        return answer

    def _exchange(self, url: str, fields: Mapping[str, str], until: float) -> tuple[int, str, bytes]:
        remaining = until - time.monotonic()
        if remaining <= 0:
            raise _NoValue(f"did not answer within {self._timeout:g} s")
        try:
            response = self._pool.request(
                "POST",
                url,
                body=urlencode(fields),
                headers=self._all_headers(url),
                timeout=urllib3.Timeout(connect=remaining, read=remaining),
                redirect=False,
                preload_content=False,
            )
            assert isinstance(response, urllib3.HTTPResponse)
            try:
                body = read_body(response, _LARGEST, until)
            finally:
                response.release_conn()
        except TooLarge:
            raise _NoValue(
                "gives an answer too large for one sample; aggregate the query, as by sum()"
            ) from None
        except urllib3.exceptions.NewConnectionError as error:  # a TimeoutError too, by inheritance
            raise _NoValue(f"cannot be reached: {cause(error)}") from None
        except (TimeoutError, urllib3.exceptions.TimeoutError):
            raise _NoValue(f"did not answer within {self._timeout:g} s") from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _NoValue(f"cannot be reached: {cause(error)}") from None
        return response.status, response.headers.get("Content-Type", ""), body

    def _all_headers(self, url: str) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": "gpu-responder",
            **self._headers,
        }
        if auth := urlsplit(url).netloc.rpartition("@")[0]:
            headers |= urllib3.make_headers(basic_auth=auth)
        if self._token_file:
            try:
                token = Path(self._token_file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise _NoValue(f"was not asked: its token cannot be read ({error})") from None
            headers["Authorization"] = f"Bearer {token}"
        return headers


def is_selector(expr: str) -> bool:
    """Whether the expression is a plain selector, for which timestamp() tells the sample's own time."""
    try:
        parsed = promql_parser.parse(expr)
    except ValueError:
        return False  # the server will say what is wrong, or knows more than this parser
    while isinstance(parsed, promql_parser.ParenExpr):
        parsed = parsed.expr
    return isinstance(parsed, promql_parser.VectorSelector) and parsed.offset is None and parsed.at is None


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _NoValue(f"gives {text!r} and not a number") from None
    if not math.isfinite(value):
        raise _NoValue(f"gives {text} and not a finite number")
    return value


def _name(url: str) -> str:
    """The server's address without what may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:300]
