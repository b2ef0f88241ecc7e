"""The targets that the asking person may see, and which of them a text means."""

from responder.model import Record
from responder.web.app import identity, services
from responder.web.finding import Found, find, spelt


def may_see(record: Record) -> bool:
    """True if the request's identity may reach the target."""
    return identity().may_reach(record.target.namespace)


def keys() -> list[str]:
    """The targets known, in order."""
    return [record.target.key for record, _ in services().store.records() if may_see(record)]


def meant(text: str) -> Found:
    """The target that is meant. Raises BadRequest; see `find`."""
    parts = text.strip().split("/")
    if len(parts) == 3:
        # With thousands of targets, reading all of them to find one takes its time.
        found = services().store.record(f"{parts[0]}/{spelt(parts[1])}/{parts[2]}")
        if found is not None and may_see(found[0]):
            return Found(found[0].target.key, True)
    return find(text, keys())
