"""What Prometheus knows of a target's GPUs, over hours: asked with little patience and kept for a while."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec
import urllib3

from responder.http_body import TooLarge, read_body
from responder.model import TargetRef

QUERY = 'namespace_workload:gpu_utilization_ratio:avg{{namespace="{namespace}",workload="{name}"}}'
"""Recorded by the rules that are shipped."""
POINTS = 240
_SECONDS = 2.0
_KEPT_SECONDS = 30.0
_MOST_KEPT = 500
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class Series:
    """A ratio over time, or why there is none."""

    points: tuple[tuple[datetime, float | None], ...] = ()
    error: str = ""


_pool = urllib3.PoolManager(maxsize=4, retries=False)
_lock = threading.Lock()
_kept: OrderedDict[tuple[str, int], tuple[float, Series]] = OrderedDict()


def read(
    urls: tuple[str, ...], sent: Mapping[str, str], target: TargetRef, hours: int, now: datetime
) -> Series:
    """Utilization of the target's GPUs over the last hours. Never raises, and takes two seconds at most."""
    key = (target.key, hours)
    with _lock:
        until, series = _kept.get(key, (0.0, Series()))
    if time.monotonic() < until:
        return series
    series = Series(error="No Prometheus is configured")
    for url in urls:
        series = _ask(url, sent, target, hours, now)
        if not series.error:
            break
    with _lock:
        _kept[key] = (time.monotonic() + _KEPT_SECONDS, series)
        if len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    return series


def _ask(url: str, sent: Mapping[str, str], target: TargetRef, hours: int, now: datetime) -> Series:
    step = max(15, hours * 3600 // POINTS)
    fields = {
        "query": QUERY.format(namespace=target.namespace, name=target.name),
        "start": f"{(now - timedelta(hours=hours)).timestamp():.0f}",
        "end": f"{now.timestamp():.0f}",
        "step": str(step),
        "timeout": f"{_SECONDS:g}s",
    }
    headers = {"Accept": "application/json"}
    if auth := urlsplit(url).netloc.rpartition("@")[0]:
        headers |= urllib3.make_headers(basic_auth=auth)
    headers |= sent
    until = time.monotonic() + _SECONDS
    try:
        answer: Any = _pool.request(
            "GET", f"{url.rstrip('/')}/api/v1/query_range", fields=fields, headers=headers, redirect=False,
            timeout=urllib3.Timeout(total=_SECONDS), preload_content=False,
        )  # fmt: skip
        try:
            body = msgspec.json.decode(read_body(answer, _LARGEST, until))
        finally:
            answer.release_conn()
        return Series(_points(body, step))
    except TooLarge:
        return Series(error="Prometheus answers with more than can be drawn")
    except (urllib3.exceptions.HTTPError, OSError):  # a TimeoutError too
        return Series(error="Prometheus cannot be reached")
    except (msgspec.MsgspecError, ValueError, KeyError, IndexError, TypeError):
        return Series(error="Prometheus does not answer this")


def _points(body: Any, step: int) -> tuple[tuple[datetime, float | None], ...]:
    """The first series' points, and a gap where there are none."""
    result = body["data"]["result"]
    found: list[tuple[datetime, float | None]] = []
    before = math.inf
    for at, text in result[0]["values"] if result else ():
        value = float(text)
        if at - before > 1.5 * step:
            found.append((datetime.fromtimestamp(before + step, UTC), None))
        found.append((datetime.fromtimestamp(at, UTC), value if math.isfinite(value) else None))
        before = at
    return tuple(found)
