"""What a person on call should know before reading on: the page's banner."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from responder.acting import reach
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
    own = services()
    settings = own.source.current
    found = [
        *unreached(now),
        *([Notice("alarm", "Store", not_ready)] if (not_ready := _not_ready()) else []),
    ]
    if own.source.error:
        found.append(
            Notice("alarm", "Invalid policy file", f"{own.source.error} The one before stays in force.")
        )
    if own.access.error:
        found.append(
            Notice("alarm", "Invalid token file", f"{own.access.error} The one before stays in force.")
        )
    failed = [row.unreachable for row in rows if row.unreachable]
    if failed and not any(each.title == "Kubernetes" for each in found):
        found.append(
            Notice(
                "alarm",
                "Kubernetes",
                f"The API could not be reached for {_targets(len(failed))}: {failed[0]}",
            )
        )
    if settings.freeze:
        found.append(Notice("stop", "Frozen by the policy file", settings.freeze))
    found += [
        Notice(
            "stop",
            "Frozen",
            f"{', '.join(each.matchers) or 'All targets'}, by {each.created_by}: {each.comment}",
        )
        for each in overrides
        if each.kind is OverrideKind.FREEZE and each.in_force(now)
    ]
    safe_mode = own.safe_mode(settings, own.store.standing(), now)
    if safe_mode:
        found.append(Notice("stop", "Safe mode", safe_mode))
    if settings.dry_run:
        found.append(Notice("note", "Dry run", "Decisions are made and shown; no scale is written."))
    return found


def _targets(number: int) -> str:
    return f"{number} target{'s' if number != 1 else ''}"


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
