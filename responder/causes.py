"""Why a request over HTTP failed, in a few words: the operating system's, which urllib3 wraps in its own."""

import errno
import socket


def cause(error: BaseException) -> str:
    """`connection refused`, `its name is not known`; else the first line of the innermost error."""
    inner = _innermost(error)
    if isinstance(inner, socket.gaierror):
        return "its name is not known"
    if isinstance(inner, OSError) and inner.errno in errno.errorcode and inner.strerror:
        return inner.strerror[:1].lower() + inner.strerror[1:]
    words = (str(inner) or type(inner).__name__).split("\n")[0].strip()
    # Before the words stands the address of a pool or a connection.
    return words.split(": ", 1)[1] if words.startswith("HTTP") and ": " in words else words


def _innermost(error: BaseException) -> BaseException:
    for _ in range(8):
        nested = next((part for part in error.args if isinstance(part, BaseException)), error.__cause__)
        if nested is None:
            break
        error = nested
    return error
