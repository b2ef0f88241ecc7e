"""When to try again after an error, and when an error is over. Pure."""

from datetime import datetime, timedelta

from responder.errors import PermanentError, ResponderError, TransientError
from responder.model import Failure, Reason, Workload

PERMANENT = (timedelta(minutes=5), timedelta(hours=1))
"""First wait and longest after an error that stays until something changes; doubling between."""
TRANSIENT = (timedelta(seconds=2), timedelta(minutes=2))
"""The same after the client's own retries have run out of time."""


def failed_again(
    known: Failure | None, error: ResponderError, now: datetime, generation: int | None = None
) -> Failure:
    """The failure to keep. One that is still waiting for its next try stays as it is.

    `generation` is the target's when a write failed; None when the target could not even be read.
    """
    reason = error.reason if isinstance(error, PermanentError) else Reason.API_UNAVAILABLE
    same = known is not None and known.reason is reason
    if known is not None and same and waits(known, now):
        return known
    attempts = known.attempts + 1 if known is not None and same else 1
    first, longest = TRANSIENT if isinstance(error, TransientError) else PERMANENT
    wait = min(first * 2 ** min(attempts - 1, 16), longest)
    if isinstance(error, TransientError) and error.retry_after is not None:
        wait = max(wait, min(timedelta(seconds=error.retry_after), longest))
    since = known.since if known is not None and same else now
    return Failure(reason, str(error), since, now + wait, attempts, generation)


def waits(failure: Failure, now: datetime) -> bool:
    """True until its next try is due; a time further off than any wait is left by a clock that was set back."""
    return now < failure.retry_at <= now + PERMANENT[1]


def bars_writing(failure: Failure | None, live: Workload, uid: str, now: datetime) -> bool:
    """True while a refused write is not to be tried again: its time has not come and the target is unchanged."""
    return (
        failure is not None
        and failure.generation == live.generation
        and uid == live.uid
        and waits(failure, now)
    )
