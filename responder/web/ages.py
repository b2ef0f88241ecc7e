"""How old a count of replicas is, and from which age on it says so. Pure, and the same for page and command line."""

from datetime import datetime, timedelta

from responder.model import Reason, Record

FRESH = timedelta(minutes=2)
_NOT_READ = frozenset({Reason.UNCLAIMED, Reason.NOT_ALLOWED})
"""Nobody looks at the pods of such targets."""


def counted_at(record: Record) -> datetime | None:
    """When its pods were last counted, if they are counted no more; None while each change of them brings a look."""
    if record.ready is None:
        return None
    if record.failure is not None:
        return record.failure.since
    left_alone = record.verdict is not None and record.verdict.reason in _NOT_READ
    return record.pods_known_at if left_alone else None


def stale(counted_at: datetime | None, now: datetime) -> bool:
    """True if a person could take the count for a newer one than it is."""
    return counted_at is not None and now - counted_at >= FRESH
