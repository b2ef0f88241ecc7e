"""From which age on a count of replicas says how old it is. Pure, and the same for page and command line."""

from datetime import datetime, timedelta

FRESH = timedelta(minutes=2)
"""A target that something keeps from acting is looked at every minute: one look may be late before it is told."""


def stale(counted_at: datetime | None, now: datetime) -> bool:
    """True if a person could take the count for a newer one than it is."""
    return counted_at is not None and now - counted_at >= FRESH
