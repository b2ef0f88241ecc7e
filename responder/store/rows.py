"""The store's nouns as rows of the database, and what is asked of history as SQL."""

from collections.abc import Sequence
from typing import Any

from responder.codec import encode
from responder.model import HistoryEntry, Record
from responder.store import HistoryFilter, heard_at, reason_of

INSERT_HISTORY = (
    "INSERT INTO history (at, namespace, kind, name, reason, outcome, direction, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def history_query(wanted: HistoryFilter, reached: Sequence[str] | None) -> tuple[str, list[Any]]:
    """The statement, which lacks its limit, and its values. `reached` are namespaces to keep to; None is all."""
    exact = {
        "namespace": wanted.namespace or None,
        "kind": wanted.kind.lower() or None,
        "name": wanted.name or None,
        "reason": wanted.reason or None,
        "id": wanted.id,
    }
    given = {column: value for column, value in exact.items() if value is not None}
    clauses = [f"{column} = ?" for column in given]
    values: list[Any] = list(given.values())
    if wanted.since is not None:
        clauses.append("at >= ?")
        values.append(wanted.since.timestamp())
    if reached is not None:
        clauses.append(f"namespace IN ({', '.join('?' * len(reached))})")
        values.extend(reached)
    where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
    # Clauses are constants of this function; what was asked for goes in as values.
    return f"SELECT id, body FROM history {where} ORDER BY id DESC LIMIT ?", values  # noqa: S608


def record_row(record: Record, version: int, body: bytes) -> tuple[Any, ...]:
    return (
        record.target.key,
        version,
        bool(record.open_intents),
        reason_of(record),
        heard_at(record),
        body,
    )


def history_row(entry: HistoryEntry) -> tuple[Any, ...]:
    namespace, kind, name = entry.target.split("/", 2)
    return (
        entry.at.timestamp(),
        namespace,
        kind,
        name,
        entry.reason.value,
        entry.outcome.value if entry.outcome is not None else None,
        entry.direction.value if entry.direction is not None else None,
        encode(entry),
    )
