"""Sends load: wrk for throughput, one connection for single measurements."""

import http.client
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError

CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of wrk came to; times in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    max: float
    failed: int

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def wrk(url: str, body: Path, seconds: float) -> Run:
    """Post the body over 16 connections for so long."""
    try:
        done = subprocess.run(
            [
                "wrk",
                "-t1",
                f"-c{CONNECTIONS}",
                f"-d{seconds:g}s",
                "-s",
                str(Path(__file__).parent / "post.lua"),
                url,
            ],
            env={**os.environ, "BENCH_BODY": str(body)},
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds + 60,
        )
    except FileNotFoundError:
        raise BenchError("wrk is not installed: apt-get install wrk") from None
    except subprocess.CalledProcessError as error:
        raise BenchError(f"wrk failed: {error.stderr or error.stdout}") from None
    return Run(**json.loads(done.stdout.strip().rpartition("\n")[2]))


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path: str, body: bytes) -> tuple[float, dict[str, Any]]:
        """The seconds until the answer was read, and the answer."""
        began = time.perf_counter()
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            raise BenchError(f"POST {path} was answered {answer.status}: {content[:200]!r}")
        return took, json.loads(content)

    def get(self, path: str) -> Any:
        """The answer's JSON."""
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        content = answer.read()
        return json.loads(content) if answer.status == 200 else None
