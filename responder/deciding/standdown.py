"""The rules that come before any trigger: owners, reverts, people's words, a target switched off. Pure.

Promises 7 to 10, in that order. Each returns the Decision that ends the look, or None.
"""

from responder.deciding.look import Look
from responder.deciding.overrides import FOREVER, deciding, pin_of
from responder.deciding.words import count, moment
from responder.model import Decision, Direction, Override, OverrideKind, Reason


def owned(look: Look) -> Decision | None:
    """Another controller decides the replicas, or it is not known whether one does: hold, pins included."""
    ownership = look.case.observed.ownership
    if ownership.owner:
        why = f"its replicas are decided by {ownership.owner}, and two who decide would fight"
        return look.hold("owner", Reason.OTHER_OWNER, why)
    if not ownership.known:
        why = "it cannot be read whether a HorizontalPodAutoscaler or another owner decides its replicas"
        return look.hold("owner", Reason.OWNER_UNKNOWN, why)
    look.step("owner", "nobody else decides the replicas")
    return None


def reverted(look: Look) -> Decision | None:
    """Somebody undoes our writes: back off."""
    reverts = look.case.record.reverts
    if reverts is None or reverts.until is None or look.now >= reverts.until:
        return None
    who = reverts.manager or "somebody"
    why = (
        f"{who} holds spec.replicas and has undone our change {count(reverts.count, 'time')}, "
        f"last at {moment(reverts.last_at, look.now)}; the next try is at {moment(reverts.until, look.now)}"
    )
    return look.hold("reverts", Reason.REVERTED, why)


def told(look: Look) -> Decision | None:
    """A pin, a freeze or a pause decides: the narrowest, then the newest. A pin goes past all that follows."""
    case, now = look.case, look.now
    stops = {way: deciding(case.overrides, way, now) for way in Direction}
    pin = pin_of(case.overrides, now)
    blocker: Override | None = None
    if pin is not None and pin.replicas is not None:
        wanted = pin.replicas if pin.force else case.bounds(now).within(pin.replicas)
        ways = [way for way in Direction if _leads(way, look.current, wanted)] or list(Direction)
        if any(stops[way] is pin for way in ways):
            return _pinned(look, pin, wanted)
        blocker = stops[ways[0]]
    if case.observed.freeze:
        return look.hold("freeze", Reason.FROZEN, f"frozen by the policy file: {case.observed.freeze}")
    if blocker is None and all(stop is not None for stop in stops.values()):
        blocker = stops[Direction.UP]
    return None if blocker is None else stopped(look, blocker)


def stopped(look: Look, override: Override) -> Decision:
    """Hold, because a pause or a freeze says so."""
    look.override = override
    frozen = override.kind is OverrideKind.FREEZE
    done = "frozen" if frozen else "paused"
    if override.kind is OverrideKind.PAUSE_SCALE_UP:
        done = "scaling up is paused"
    elif override.kind is OverrideKind.PAUSE_SCALE_DOWN:
        done = "scaling down is paused"
    reason = Reason.FROZEN if frozen else Reason.PAUSED
    return look.hold("freeze" if frozen else "pause", reason, f"{done} {said(look, override)}")


def said(look: Look, override: Override) -> str:
    """`by anna until 14:00:00Z ("maintenance")`."""
    by = f"by {override.created_by}" if override.source == "api" else f"by {override.source}"
    until = "" if override.end == FOREVER else f" until {moment(override.end, look.now)}"
    comment = f' ("{override.comment}")' if override.comment and override.source == "api" else ""
    if override.comment and override.source != "api":
        comment = f"; {override.comment}"
    return f"{by}{until}{comment}"


def pin_ended(look: Look) -> Decision | None:
    """A 0 that a pin wrote returns to the count before it, at least minReplicas. Nothing else is restored."""
    case, before = look.case, look.case.record.zero_from
    if look.current != 0 or before is None:
        return None
    stop = deciding(case.overrides, Direction.UP, look.now)
    if stop is not None:
        return stopped(look, stop)
    wanted = case.bounds(look.now).within(before)
    if wanted == 0:
        return None
    look.step("pin", f"a pin had replaced {before} by 0", wanted)
    return look.go(Reason.PIN_ENDED, f"the pin at 0 has ended, and {before} were there before it")


def switched_off(look: Look) -> Decision | None:
    """A 0 that is not ours is a person's wish."""
    if look.current != 0 or look.case.policy.wake_from_zero or _zero_is_ours(look):
        return None
    why = "it was switched off by somebody else (0 replicas), and the policy has no wakeFromZero"
    return look.hold("switchedOff", Reason.SWITCHED_OFF, why)


def _zero_is_ours(look: Look) -> bool:
    changes, foreign_at = look.case.record.ledger.changes, look.case.record.foreign_at
    if not changes or changes[-1].to_replicas != 0:
        return False
    return foreign_at is None or foreign_at <= changes[-1].at


def _leads(way: Direction, current: int, wanted: int) -> bool:
    return wanted > current if way is Direction.UP else wanted < current


def _pinned(look: Look, pin: Override, wanted: int) -> Decision:
    look.override = pin
    why = f"pinned to {pin.replicas} {said(look, pin)}"
    if wanted != pin.replicas:
        bounds = look.case.bounds(look.now)
        why += f", which minReplicas {bounds.least} and maxReplicas {bounds.most} make {wanted}"
    if wanted == look.current:
        return look.hold("pin", Reason.PINNED, why)
    look.step("pin", why, wanted)
    return look.go(Reason.PINNED, why)
