"""Trouble on demand: what the simulated API server does wrong, to whom, and how often.

A rule matches requests by method, path, user and user agent. It either strikes with a probability, or follows a
script, one step per matching request. The first rule that strikes decides.
"""

import random
import re
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from responder.sim import errors

Object = dict[str, Any]

_METHODS = {
    "reads": frozenset({"GET", "HEAD"}),
    "writes": frozenset({"POST", "PUT", "PATCH", "DELETE"}),
    "all": frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}),
}
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    408: "Timeout",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "BadGateway",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_KEYS = frozenset(
    {"methods", "path", "user", "userAgent", "probability", "times", "after", "script"}
    | {"fault", "status", "retryAfterSeconds", "seconds"}
)


class FaultKind(StrEnum):
    """What goes wrong."""

    NONE = "none"
    STATUS = "status"  # answer with a failure, apply nothing
    RESET = "reset"  # cut the connection, apply nothing
    APPLY_RESET = "applyThenReset"  # apply, then cut the connection: the answer is lost
    HANG = "hang"  # wait, then apply and answer
    APPLY_HANG = "applyThenHang"  # apply, wait, then answer


class FaultError(ValueError):
    """A fault rule that makes no sense."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing going wrong. `seconds` is how long a hang lasts."""

    kind: FaultKind
    status: int = 500
    retry_after: float | None = None
    seconds: float = 0.0

    @classmethod
    def parse(cls, value: Any) -> "Fault":
        """From a name or an object with `fault`, `status`, `retryAfterSeconds`, `seconds`."""
        table: Object = {"fault": value} if isinstance(value, str) else dict(value)
        try:
            kind = FaultKind(table.get("fault", "none"))
        except ValueError as problem:
            known = ", ".join(FaultKind)
            raise FaultError(f"fault: {table.get('fault')!r} is none of {known}") from problem
        return cls(
            kind,
            int(table.get("status", 500)),
            table.get("retryAfterSeconds"),
            float(table.get("seconds", 0.0)),
        )

    @property
    def error(self) -> errors.ApiError:
        """The failure that a `status` fault answers with."""
        message = f"injected fault: {self.status}"
        headers = {"Retry-After": f"{self.retry_after:g}"} if self.retry_after is not None else None
        more = {"retryAfterSeconds": int(self.retry_after)} if self.retry_after is not None else {}
        return errors.ApiError(
            self.status, _REASONS.get(self.status, "Unknown"), message, more, headers=headers
        )


@dataclass(slots=True)
class _Rule:
    methods: frozenset[str]
    path: re.Pattern[str]
    user: re.Pattern[str] | None
    agent: re.Pattern[str] | None
    probability: float
    times: int | None
    after: int
    fault: Fault
    script: list[Fault] | None
    source: Object
    matched: int = 0
    struck: int = 0

    def matches(self, method: str, path: str, user: str, agent: str) -> bool:
        return (
            method in self.methods
            and bool(self.path.search(path))
            and (self.user is None or bool(self.user.search(user)))
            and (self.agent is None or bool(self.agent.search(agent)))
        )

    def strike(self, chance: random.Random) -> Fault | None:
        """The fault for one more matching request."""
        self.matched += 1
        if self.matched <= self.after or (self.times is not None and self.struck >= self.times):
            return None
        if self.script is not None:
            at = self.matched - self.after - 1
            fault = self.script[at] if at < len(self.script) else None
        else:
            fault = self.fault if chance.random() < self.probability else None
        if fault is None or fault.kind is FaultKind.NONE:
            return None
        self.struck += 1
        return fault


@dataclass(slots=True)
class Faults:
    """The rules in force. Thread-safe."""

    _rules: list[_Rule] = field(default_factory=list)
    _chance: random.Random = field(default_factory=random.Random)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, rules: "list[Object]", seed: int | None = None) -> None:
        """Replace all rules; raises FaultError, and then changes nothing."""
        parsed = [_parse(rule) for rule in rules]
        with self._lock:
            self._rules = parsed
            if seed is not None:
                self._chance = random.Random(seed)  # noqa: S311 - repeatable trouble, not secrets

    def clear(self) -> None:
        """No more trouble."""
        self.set([])

    def pick(self, method: str, path: str, user: str, agent: str) -> Fault | None:
        """What goes wrong with this request; None for nothing."""
        if not self._rules:
            return None
        with self._lock:
            for rule in self._rules:
                if rule.matches(method, path, user, agent):
                    fault = rule.strike(self._chance)
                    if fault is not None:
                        return fault
        return None

    def describe(self) -> "list[Object]":
        """The rules, with how many requests each has matched and struck."""
        with self._lock:
            return [{**rule.source, "matched": rule.matched, "struck": rule.struck} for rule in self._rules]


def _parse(rule: Object) -> _Rule:
    unknown = set(rule) - _KEYS
    if unknown:
        raise FaultError(f"{min(unknown)}: unknown key; known are {', '.join(sorted(_KEYS))}")
    methods = rule.get("methods", "all")
    if isinstance(methods, str):
        if methods not in _METHODS:
            raise FaultError(f"methods: {methods!r} is none of {', '.join(_METHODS)}, nor a list of methods")
        chosen = _METHODS[methods]
    else:
        chosen = frozenset(str(method).upper() for method in methods)
    script = rule.get("script")
    try:
        return _Rule(
            methods=chosen,
            path=re.compile(rule.get("path", "")),
            user=re.compile(rule["user"]) if "user" in rule else None,
            agent=re.compile(rule["userAgent"]) if "userAgent" in rule else None,
            probability=float(rule.get("probability", 1.0)),
            times=rule.get("times"),
            after=int(rule.get("after", 0)),
            fault=Fault.parse({k: v for k, v in rule.items() if k in _FAULT_KEYS}),
            script=[Fault.parse(step) for step in script] if script is not None else None,
            source=dict(rule),
        )
    except re.error as problem:
        raise FaultError(f"not a regular expression: {problem}") from problem


_FAULT_KEYS = frozenset({"fault", "status", "retryAfterSeconds", "seconds"})
