"""The service's log: one line per event on standard error, as JSON or for people to read."""

import logging
import sys
from datetime import UTC, datetime

from pythonjsonlogger.json import JsonFormatter

FORMATS = ("json", "human")

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(log_format: str, level: int = logging.INFO) -> None:
    """Send all logs to standard error in this format, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Human())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Every request to the API server at DEBUG would drown the rest.
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    logging.captureWarnings(True)


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
