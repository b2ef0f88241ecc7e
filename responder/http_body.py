"""Reading an HTTP answer that may be endless: bounded in size and, against one that trickles, in time."""

import time

import urllib3


class TooLarge(urllib3.exceptions.HTTPError):
    """The answer has more bytes than its reader wants."""


def read_body(response: urllib3.HTTPResponse, largest: int, until: float) -> bytes:
    """The whole body, which the connection has not preloaded. `until` is a time of time.monotonic().

    Raises TooLarge, TimeoutError and what urllib3 raises; then the connection is closed.
    """
    parts: list[bytes] = []
    size = 0
    # read1 returns what has come; stream would collect a whole block first, however slowly it comes.
    pieces = response.stream(1 << 18) if response.chunked else iter(lambda: response.read1(1 << 18), b"")
    for part in pieces:
        parts.append(part)
        size += len(part)
        if size > largest:
            response.close()
            raise TooLarge(f"the answer is larger than {largest >> 20} MiB")
        if time.monotonic() > until:
            response.close()
            raise TimeoutError
    return b"".join(parts)
