"""Recorded history, from the service's database or from the service."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from responder.client import times
from responder.client.http import Api
from responder.errors import ConfigError
from responder.model import HistoryEntry, Outcome, Reason
from responder.store import HistoryFilter, StoredEntry


def from_store(store: str, since: datetime | None, limit: int) -> Sequence[StoredEntry]:
    """Newest first. Raises ConfigError, StoreUnavailable."""
    from responder.serve import store_path  # noqa: PLC0415 - it loads gunicorn
    from responder.store.sqlite import SqliteStore  # noqa: PLC0415

    if store.partition(":")[0] == "kubernetes":
        raise ConfigError("--store: what is kept in Kubernetes is asked of the service: leave --store out")
    path = store_path(store)
    if not path.is_file():
        raise ConfigError(f"--store: there is no database {path}: name the one that serve was given")
    opened = SqliteStore(path)
    try:
        return opened.history(HistoryFilter(since=since), limit=limit)
    finally:
        opened.close()


def from_api(api: Api, since: datetime | None, limit: int) -> Sequence[StoredEntry]:
    """Newest first. Raises ConfigError when the service gives no inputs, and what the client raises."""
    query = {"since": times.stamp(since) if since else None, "limit": limit, "inputs": "true"}
    decisions = api.get("/api/v1/decisions", query)["decisions"]
    if decisions and not any("inputs" in each for each in decisions):
        raise ConfigError(
            f"{api.url} does not give what its decisions were made from: use --store sqlite:<path>"
        )
    return [_entry(each) for each in decisions]


def _entry(view: Any) -> StoredEntry:
    inputs = view.get("inputs") or {}
    # The inputs have it in full, and a cooldown may end within the millisecond.
    at = times.parse(inputs.get("at") or view["at"])
    assert at is not None
    return StoredEntry(
        view["id"],
        HistoryEntry(
            at=at,
            target=view["target"],
            current=view["current"],
            desired=view["desired"],
            reason=Reason(view["reason"]),
            message=view["message"],
            policy=view["policy"],
            trigger=view["trigger"],
            intent=view["intent"],
            outcome=Outcome(view["outcome"]) if view["outcome"] else None,
            dry_run=view["dryRun"],
            inputs=inputs,
        ),
    )
