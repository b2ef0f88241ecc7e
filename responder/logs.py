"""The service's log: one line per event on standard error, as JSON or for people to read.

The audit, which is what was decided, what became of it and what people changed, can go to standard output instead:
where the store keeps only the newest of it, whoever collects the logs keeps the rest.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from pythonjsonlogger.json import JsonFormatter

FORMATS = ("json", "human")

AUDIT = "responder.audit"
"""The logger of the audit, and the parent of its parts."""
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(log_format: str, level: int = logging.INFO, *, audit_to_stdout: bool = False) -> None:
    """Send all logs to standard error in this format, and nowhere else; the audit to standard output where asked."""
    root, audit = logging.getLogger(), logging.getLogger(AUDIT)
    root.handlers[:] = [_handler(sys.stderr, log_format)]
    root.setLevel(level)
    audit.handlers[:] = [_handler(sys.stdout, log_format)] if audit_to_stdout else []
    audit.propagate = not audit_to_stdout
    # Every request to the API server at DEBUG would drown the rest.
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _handler(stream: TextIO, log_format: str) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Json() if log_format == "json" else _Human())
    return handler


class _Json(JsonFormatter):
    def __init__(self) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(process)d %(message)s",
            rename_fields={"levelname": "level", "name": "logger", "process": "pid"},
            timestamp="time",
            json_ensure_ascii=True,
        )


class _Human(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        extra = "".join(
            f" {key}={_printable(str(value))}"
            for key, value in sorted(record.__dict__.items())
            if key not in _STANDARD
        )
        line = f"{at[:-6]}Z {record.levelname:<7} {record.name}: {_printable(record.getMessage())}{extra}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _printable(text: str) -> str:
    """Escape what could end the line or steer a terminal: labels come from outside."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )
