"""What all triggers of a target ask for together. Pure.

Of ups the largest counts, of downs the smallest reduction, and any up trigger forbids down.
"""

from dataclasses import dataclass
from datetime import datetime

from responder.deciding.case import Case
from responder.deciding.claims import Alert, Claim, Standing, standing, standing_of
from responder.deciding.sizing import Ask, ask
from responder.model import Direction, Reason

_WITHOUT_SAY = (Reason.STEPS_SPENT,)
"""Why a down trigger may ask for nothing and yet not stand in the way of another one."""
_TELLING = (Reason.VALUE_MISSING, Reason.STEPS_SPENT, Reason.WITHIN_TOLERANCE, Reason.ALREADY_THERE)
"""Of several reasons to ask for nothing, what a person should hear first."""


@dataclass(frozen=True, slots=True)
class Asks:
    """`ups` and `downs` are the firing triggers' asks; the rest are silenced or unknown, or of other policies."""

    ups: tuple[Ask, ...]
    downs: tuple[Ask, ...]
    silenced: tuple[Claim, ...]
    unknown: tuple[Claim, ...]
    others: tuple[Alert, ...]

    @property
    def up_wanting(self) -> list[Ask]:
        """Those that ask for more, the largest first."""
        asks = [each for each in self.ups if each.replicas is not None]
        return sorted(asks, key=lambda each: -(each.replicas or 0))

    @property
    def smallest_reduction(self) -> Ask | None:
        """The down ask that counts; None when one of them stands in the way by needing what is there."""
        if any(each.replicas is None and each.reason not in _WITHOUT_SAY for each in self.downs):
            return None
        asks = [each for each in self.downs if each.replicas is not None]
        return max(asks, key=lambda each: each.replicas or 0, default=None)

    @property
    def forbids_down(self) -> bool:
        """True if an up trigger is anything but quiet, or another policy's alert stands here."""
        quiet = all(claim.direction is not Direction.UP for claim in (*self.silenced, *self.unknown))
        return bool(self.ups) or not quiet or bool(self.others)

    @property
    def recommendation(self) -> int | None:
        """What the triggers ask for before limits; None for what is there."""
        if self.up_wanting:
            return self.up_wanting[0].replicas
        if self.forbids_down or self.smallest_reduction is None:
            return None
        return self.smallest_reduction.replicas

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(each.trigger.name for each in (*self.ups, *self.downs) if each.value_missing)


def asks_of(case: Case, now: datetime) -> Asks:
    """Ask every trigger that has an alert which is not over."""
    timing = case.policy.timing
    firing: dict[Direction, list[Ask]] = {Direction.UP: [], Direction.DOWN: []}
    silenced: list[Claim] = []
    unknown: list[Claim] = []
    for claim in case.claims.by_trigger:
        found, alerts = standing_of(claim, timing, now)
        if found is Standing.FIRING:
            firing[claim.direction].append(ask(case.sizing, claim.trigger, alerts, now))
        elif found is Standing.SILENCED:
            silenced.append(Claim(claim.trigger, alerts))
        elif found is Standing.UNKNOWN:
            unknown.append(Claim(claim.trigger, alerts))
    others = tuple(
        alert for alert in case.claims.others if standing(alert, timing, now) is not Standing.QUIET
    )
    return Asks(
        tuple(firing[Direction.UP]), tuple(firing[Direction.DOWN]), tuple(silenced), tuple(unknown), others
    )


def telling(asks: tuple[Ask, ...]) -> Ask:
    """Of asks for nothing, the one whose reason a person should hear first."""
    return min(asks, key=lambda each: _TELLING.index(each.reason))


def ups_of(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    return tuple(claim for claim in claims if claim.direction is Direction.UP)
