"""What a request did wrong, as errors that become answers."""

from responder.errors import ResponderError


class BadRequest(ResponderError):
    """400, or another status of its kind: the sentence names the key and the mend."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
