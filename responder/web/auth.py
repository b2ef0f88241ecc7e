"""Who may do what: tokens by their hashes, roles, namespaces, and the loopback rule without tokens."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from responder.errors import ConfigError
from responder.matchers import within

log = logging.getLogger(__name__)

FREE_FAILURES = 10
"""Failed attempts of an address per minute that are told apart from a flood."""
WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 4096
LOOK_EVERY = 1.0


class Role(StrEnum):
    ALERTMANAGER = "alertmanager"
    VIEWER = "viewer"
    OPERATOR = "operator"


_ALLOWS = {
    Role.ALERTMANAGER: {Role.ALERTMANAGER},
    Role.VIEWER: {Role.VIEWER},
    Role.OPERATOR: set(Role),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. `namespaces` are globs that limit what it may reach; None is no limit."""

    name: str
    role: Role
    namespaces: tuple[str, ...] | None = None

    def may(self, role: Role) -> bool:
        return role in _ALLOWS[self.role]

    def may_reach(self, namespace: str) -> bool:
        return within(namespace, self.namespaces)


LOCAL = Identity("local", Role.OPERATOR)
"""Everybody, while no tokens are configured and only this host can connect."""


class Refused(Exception):
    """The request is answered with this status and sentence."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


def generate_token() -> str:
    """A new token of 256 random bits. It is shown once; only its hash is kept."""
    return f"gpur_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """What the token hashes file holds of a token: SHA-256 in hex. A random 256-bit token needs no salt."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def token_entry(name: str, role: Role, token: str, namespaces: tuple[str, ...] | None = None) -> str:
    """The lines to add under `tokens:` in the token hashes file."""
    entry: dict[str, Any] = {"name": name, "role": role.value, "sha256": hash_token(token)}
    if namespaces is not None:
        entry["namespaces"] = list(namespaces)
    text: str = yaml.safe_dump([entry], sort_keys=False)
    return text


def read_token_hashes(path: str) -> dict[bytes, Identity]:
    """The identities by their hashes. Raises ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: see --token-hashes-file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: no UTF-8, or what looks like a date and is none.
        # The message of the parser would quote the file.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path}: it is not YAML{where}: write a list under `tokens:`") from None
    entries = content.get("tokens") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{path}: there is no list under `tokens:`: make one with gpu-responder token create"
        )
    known: dict[bytes, Identity] = {}
    for index, entry in enumerate(entries):
        key, identity = _identity(path, index, entry)
        if key in known:
            raise ConfigError(
                f"{path}: tokens[{index}].sha256 is that of token {known[key].name!r} too: make another token"
            )
        known[key] = identity
    return known


def _identity(path: str, index: int, entry: Any) -> tuple[bytes, Identity]:
    where = f"{path}: tokens[{index}]"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} must have the keys name, role and sha256")
    unknown = sorted(str(key) for key in set(entry) - {"name", "role", "sha256", "namespaces"})
    if unknown:
        raise ConfigError(
            f"{where} has the unknown key {unknown[0]}: name, role, sha256, namespaces are known"
        )
    name, role, digest = entry.get("name"), entry.get("role"), entry.get("sha256")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}.name must say whose token it is")
    if role not in list(Role):
        raise ConfigError(f"{where}.role must be one of {', '.join(Role)}")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ConfigError(f"{where}.sha256 must be the token's SHA-256 as 64 hex digits, in quotes")
    namespaces = entry.get("namespaces")
    if namespaces is not None and not (
        isinstance(namespaces, list) and namespaces and all(isinstance(each, str) for each in namespaces)
    ):
        raise ConfigError(f"{where}.namespaces must be a list of namespaces or globs; leave it out for all")
    return bytes.fromhex(digest), Identity(
        name, Role(role), None if namespaces is None else tuple(namespaces)
    )


class Tokens:
    """The token hashes file, read again when it changes and kept when the new one is wrong.

    Raises ConfigError when made with a file that is wrong.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = self._state()
        self._look_at = time.monotonic() + LOOK_EVERY
        self._known = read_token_hashes(path)
        self.error = ""

    def find(self, token: str) -> Identity | None:
        """The identity that the token proves, in a time that tells nothing of the others."""
        self._refresh()
        digest = bytes.fromhex(hash_token(token))
        found = None
        for known, identity in self._known.items():
            if hmac.compare_digest(known, digest):
                found = identity
        return found

    def first(self, proves: Callable[[bytes], bool]) -> Identity | None:
        """The identity whose token's SHA-256 proves what was signed with it."""
        self._refresh()
        return next((identity for known, identity in self._known.items() if proves(known)), None)

    def _refresh(self) -> None:
        now = time.monotonic()
        if now < self._look_at or not self._lock.acquire(blocking=False):
            return
        try:
            self._look_at = now + LOOK_EVERY
            seen = self._state()
            if seen == self._seen:
                return
            self._seen = seen
            try:
                self._known = read_token_hashes(self._path)
                self.error = ""
                log.info("new token hashes are in force", extra={"tokens": len(self._known)})
            except ConfigError as error:
                self.error = str(error)
                log.error("the token hashes file is not taken, the one before stays in force: %s", error)
        finally:
            self._lock.release()

    def _state(self) -> tuple[int, ...]:
        try:
            stat = os.stat(self._path)
        except OSError:
            return ()
        return (stat.st_mtime_ns, stat.st_ino, stat.st_size)


class Failures:
    """Failed attempts per address, forgotten after a minute; the oldest address goes when there are many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def count(self, address: str) -> int:
        """Count one more and return how many there were within the window."""
        now = time.monotonic()
        with self._lock:
            began, failed = self._counts.pop(address, (now, 0))
            if now - began > WINDOW_SECONDS:
                began, failed = now, 0
            self._counts[address] = (began, failed + 1)
            if len(self._counts) > MOST_ADDRESSES:
                self._counts.popitem(last=False)
            return failed + 1


class Access:
    """Lets a request in as an identity, or raises Refused."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._failures = Failures()

    @property
    def open(self) -> bool:
        """True when no tokens are configured: everybody on this host may do everything."""
        return self._tokens is None

    @property
    def error(self) -> str:
        """Why the token hashes file as it is now is not in force; empty when it is."""
        return self._tokens.error if self._tokens is not None else ""

    def check_host(self, environ: Mapping[str, Any]) -> None:
        """Without tokens a page of the web must not reach us by a name that resolves to this host."""
        if self._tokens is None and not is_loopback_host(environ.get("HTTP_HOST", "")):
            raise Refused(
                403,
                "without tokens this service answers only to the names localhost, 127.0.0.1 and [::1]: "
                "use one of them, or configure --token-hashes-file",
            )

    def check_origin(self, environ: Mapping[str, Any]) -> None:
        """A page of another site must not change anything by the browser of one who may."""
        if environ.get("REQUEST_METHOD") in ("GET", "HEAD", "OPTIONS"):
            return
        site = environ.get("HTTP_SEC_FETCH_SITE", "none")
        origin = environ.get("HTTP_ORIGIN", "")
        ours = not origin or origin.partition("://")[2] == environ.get("HTTP_HOST", "")
        if site not in ("same-origin", "none") or not ours:
            raise Refused(403, "the request comes from a page of another site")

    def identify(self, environ: Mapping[str, Any], role: Role) -> Identity:
        """The identity behind the request's credentials, which may do what `role` may."""
        self.check_host(environ)
        self.check_origin(environ)
        if self._tokens is None:
            return LOCAL
        token = _token_of(environ.get("HTTP_AUTHORIZATION", ""))
        identity = self._tokens.find(token) if token else None
        if identity is None:
            raise self._unknown(environ, bool(token))
        if not identity.may(role):
            raise Refused(403, f"token {identity.name!r} has the role {identity.role}, and this needs {role}")
        return identity

    def signed_by(self, proves: Callable[[bytes], bool]) -> Identity | None:
        """The identity whose token's SHA-256 proves what was signed with it; None without tokens."""
        return self._tokens.first(proves) if self._tokens is not None else None

    def _unknown(self, environ: Mapping[str, Any], tried: bool) -> Refused:
        address = environ.get("REMOTE_ADDR", "")
        failed = self._failures.count(address)
        if failed <= FREE_FAILURES:
            log.warning("a request was refused for its credentials", extra={"address": address})
        elif failed == FREE_FAILURES + 1:
            log.warning("further failures of this address are not logged singly", extra={"address": address})
        # Alertmanager gives a delivery up on 429; a wrong token must stay a 401 to it.
        if failed > FREE_FAILURES and environ.get("PATH_INFO") != "/api/v1/webhooks/alertmanager":
            return Refused(
                429,
                "too many failed attempts from this address: a valid token passes, others wait a minute",
                {"Retry-After": str(int(WINDOW_SECONDS))},
            )
        why = "the token is not known" if tried else "a token is needed"
        return Refused(
            401,
            f"{why}: send `Authorization: Bearer <token>`, or the token as the password of basic "
            "authentication",
            {"WWW-Authenticate": 'Bearer realm="gpu-responder", Basic realm="gpu-responder"'},
        )


def _token_of(authorization: str) -> str:
    """The token of a bearer or basic header. Of basic only the password counts."""
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return ""
    return ""


def is_loopback_host(host: str) -> bool:
    """True for a Host header that names this host and nothing else."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    return name == "localhost" or is_loopback(name)


def is_loopback(address: str) -> bool:
    """True for an address that only this host can reach."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
