"""What a request did wrong, as errors that become answers."""

from collections.abc import Sequence

from responder.errors import ResponderError


class BadRequest(ResponderError):
    """400, or another status of its kind: the sentence names the key and the mend. `near` are what may be meant."""

    def __init__(self, message: str, status: int = 400, near: Sequence[str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.near = near
