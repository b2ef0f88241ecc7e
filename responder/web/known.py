"""What the asking person may see, and which target a text means."""

from collections.abc import Iterable, Sequence

from responder.matchers import parse
from responder.model import Record
from responder.web.app import identity, services
from responder.web.finding import Found, find, spelt
from responder.web.problems import BadRequest


def may_see(record: Record) -> bool:
    """True if the request's identity may reach the target."""
    return identity().may_reach(record.target.namespace)


def bound_to(matchers: Iterable[str]) -> list[str] | None:
    """The namespaces that what has such matchers cannot leave; None if it is not bound to any."""
    exact = [
        matcher.value
        for matcher in map(parse, matchers)
        if (matcher.name, matcher.op) == ("namespace", "=") and matcher.value
    ]
    return exact or None


def may_see_of(namespaces: Sequence[str] | None) -> bool:
    """True if the request's identity may reach all of these; what is for all namespaces concerns everybody."""
    return namespaces is None or all(map(identity().may_reach, namespaces))


def check_sees_all(what: str) -> None:
    """Raise BadRequest for a token that is limited to namespaces, where `what` is asked for, which is of all."""
    if identity().namespaces is not None:
        raise BadRequest(f"{what} of all namespaces, and this token is limited to some", 403)


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
