"""The project's own errors, so that no other module needs to know a client library's.

Each carries one sentence that a person on call can act on.
"""

from responder.model import Reason


class ResponderError(Exception):
    """Base of all below: `str(error)` is one clear sentence."""


class ConfigError(ResponderError):
    """Something a person wrote is wrong: names the file, the key and the mend."""


class TransientError(ResponderError):
    """It may work in a moment: time-outs, 429, 5xx, connections. `retry_after` is in seconds, when told."""

    def __init__(self, message: str, retry_after: float | None = None, kind: str = "transient") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.kind = kind


class PermanentError(ResponderError):
    """It will not work until something changes: 403, 404, 422, a kind without scale."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class Conflict(ResponderError):
    """Somebody else wrote first: a stale resourceVersion or record version."""


class StoreUnavailable(ResponderError):
    """The store cannot take it in durably now: full, read-only, locked or corrupt."""
