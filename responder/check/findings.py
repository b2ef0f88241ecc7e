"""What a check finds: one sentence, where it stands, and the mend."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error breaks the chain, a warning lets it go wrong, a note is worth knowing and fails nothing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. `line` 0 is the file as a whole; `code` names the kind of fault and stays the same."""

    file: str
    line: int
    severity: Severity
    code: str
    message: str
    mend: str = ""


def in_order(findings: list[Finding]) -> list[Finding]:
    """Each once, by file and line, the worse first."""
    return sorted(
        set(findings), key=lambda f: (f.file, f.line, _ORDER.index(f.severity), f.code, f.message, f.mend)
    )


def failing(findings: Sequence[Finding]) -> bool:
    """Whether any of them is more than a note."""
    return any(finding.severity is not Severity.NOTE for finding in findings)


def error(file: str, line: int, code: str, message: str, mend: str = "") -> Finding:
    return Finding(file, line, Severity.ERROR, code, message, mend)


def warning(file: str, line: int, code: str, message: str, mend: str = "") -> Finding:
    return Finding(file, line, Severity.WARNING, code, message, mend)


def note(file: str, line: int, code: str, message: str, mend: str = "") -> Finding:
    return Finding(file, line, Severity.NOTE, code, message, mend)
