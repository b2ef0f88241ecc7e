"""What a person on call should know before reading on: the page's banner."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from responder.acting import reach
from responder.deciding.words import count
from responder.errors import StoreUnavailable
from responder.model import Override, OverrideKind
from responder.web.app import services
from responder.web.board import Row
from responder.web.page_words import short


@dataclass(frozen=True, slots=True)
class Notice:
    """`level` is alarm (something is broken), stop (people or rules hold it back) or note."""

    level: str
    title: str
    text: str


def notices(rows: Iterable[Row], overrides: Sequence[Override], now: datetime) -> list[Notice]:
    """All that holds now, the worst first. Raises StoreUnavailable."""
    return [*_broken(rows, now), *_stopping(overrides, now), *_dry_run()]


def _broken(rows: Iterable[Row], now: datetime) -> list[Notice]:
    own = services()
    found = unreached(now)
    if not_ready := _not_ready():
        found.append(Notice("alarm", "Store", not_ready))
    for what, error in (("policy", own.source.error), ("token", own.access.error)):
        if error:
            found.append(Notice("alarm", f"Invalid {what} file", f"{error} The one before stays in force."))
    failed = [row.unreachable for row in rows if row.unreachable]
    if failed and not any(each.title == "Kubernetes" for each in found):
        said = f"The API could not be reached for {count(len(failed), 'target')}: {failed[0]}"
        found.append(Notice("alarm", "Kubernetes", said))
    return found


def _stopping(overrides: Sequence[Override], now: datetime) -> Iterator[Notice]:
    own = services()
    settings = own.source.current
    if settings.freeze:
        yield Notice("stop", "Frozen by the policy file", settings.freeze)
    for each in overrides:
        if each.kind is OverrideKind.FREEZE and each.in_force(now):
            whom = ", ".join(each.matchers) or "All targets"
            yield Notice("stop", "Frozen", f"{whom}, by {each.created_by}: {each.comment}")
    safe_mode = own.safe_mode(settings, own.store.standing(), now)
    if safe_mode:
        yield Notice("stop", "Safe mode", safe_mode)


def _dry_run() -> Iterator[Notice]:
    if services().source.current.dry_run:
        yield Notice("note", "Dry run", "Decisions are made and shown; no scale is written.")


def _not_ready() -> str:
    try:
        return services().store.ready()
    except StoreUnavailable as error:
        return str(error)


def said_by_actor(now: datetime) -> Mapping[str, str] | None:
    """What the acting process cannot reach and why, as far as it has said; None if nobody acts.

    Raises StoreUnavailable. What an earlier service has left says nothing.
    """
    own = services()
    said = own.store.statuses().get(reach.STATUS)
    of_this_service = said is not None and said.at >= own.started_at
    since = said.at if said is not None and of_this_service else own.started_at
    if now - since > reach.SILENT:
        return None
    return said.body if said is not None and of_this_service else {}


def unreached(now: datetime) -> list[Notice]:
    """The same as notices. Raises StoreUnavailable."""
    said = said_by_actor(now)
    if said is None:
        text = (
            f"No process has acted for more than {short(reach.SILENT)}: nothing is scaled. "
            "The service's log says why."
        )
        return [Notice("alarm", "Nobody acts", text)]
    titles = {"kubernetes": "Kubernetes", "prometheus": "Prometheus"}
    return [
        Notice("alarm", titles.get(name, "Alertmanager"), f"{sentence[:1].upper()}{sentence[1:]}")
        for name, sentence in sorted(said.items())
    ]
