"""The way up and the way down: the rules that follow once it is known what the triggers ask for. Pure.

Promises 9 to 18, in that order, as far as they depend on the direction.
"""

from responder.deciding.asks import Asks, telling, ups_of
from responder.deciding.claims import Claim, silence_of
from responder.deciding.limits import Cooldown, cooldown, rate, rules_of, stabilized, waits_for_ready
from responder.deciding.look import Look
from responder.deciding.overrides import deciding
from responder.deciding.sizing import Ask, names
from responder.deciding.standdown import said, stopped
from responder.deciding.words import count, moment, seconds
from responder.model import ActiveHold, Decision, Direction, Override, Reason
from responder.policy import Capacity, SelectPolicy


def nothing(look: Look, asks: Asks) -> Decision:
    """No trigger fires: hold, and say what would trigger if it could."""
    if asks.silenced:
        look.subject = asks.silenced[0]
        return look.hold("silence", Reason.SILENCED, _silenced(look, asks.silenced[0]))
    if asks.unknown:
        look.subject = asks.unknown[0]
        return look.hold("unknown", Reason.ALERT_UNKNOWN, _unknown(look, asks.unknown[0]))
    if asks.others:
        name = asks.others[0].name
        why = f"{name} fires, but falls under another policy than this target, {look.case.policy.name}"
        return look.hold("triggers", Reason.OTHER_POLICY, why)
    return look.hold("triggers", Reason.NOTHING_FIRING, "no trigger fires")


def up(look: Look, asks: Asks) -> Decision:
    """An up trigger fires."""
    wanting = asks.up_wanting
    look.subject = ask = wanting[0] if wanting else telling(asks.ups)
    look.step("triggers", ask.text, ask.replicas)
    return (
        _paused(look, Direction.UP)
        or _held(look, Direction.UP, ask)
        or _asks_nothing(look, asks, ask)
        or _cooling(look, Direction.UP)
        or _unready(look, wanting)
        or _stabilized(look)
        or _rated(look, Direction.UP)
        or _bounded_above(look)
        or _placed(look)
        or _budgeted(look, Direction.UP)
        or look.go(Reason.SCALED_UP, _subject_text(look))
    )


def down(look: Look, asks: Asks) -> Decision:
    """Down triggers fire, and no up trigger does."""
    ask = asks.smallest_reduction
    subject = ask or telling(tuple(each for each in asks.downs if each.replicas is None))
    look.subject = subject
    look.step("triggers", subject.text, subject.replicas)
    return (
        _paused(look, Direction.DOWN)
        or _up_silenced(look, asks, subject)
        or _held(look, Direction.DOWN, subject)
        or _up_unknown(look, asks, subject)
        or (look.hold("steps", subject.reason, subject.text) if ask is None else None)
        or _cooling(look, Direction.DOWN)
        or _stabilized(look)
        or _rated(look, Direction.DOWN)
        or _bounded_below(look)
        or _budgeted(look, Direction.DOWN)
        or _safe(look)
        or look.go(Reason.SCALED_DOWN, _subject_text(look))
    )


def _subject_text(look: Look) -> str:
    return look.subject.text if isinstance(look.subject, Ask) else ""


def _paused(look: Look, way: Direction) -> Decision | None:
    stop = deciding(look.case.overrides, way, look.now)
    return None if stop is None else stopped(look, stop)


def _held(look: Look, way: Direction, ask: Ask) -> Decision | None:
    for hold in look.case.observed.holds:
        # Of an alert that is not heard of any more, only the caution stays.
        if hold.forbid is way and not (hold.unknown and way is Direction.UP):
            return look.hold("holds", Reason.HELD, f"{ask.text}, but {_hold(look, hold)}")
    return None


def _hold(look: Look, hold: ActiveHold) -> str:
    way = "up" if hold.forbid is Direction.UP else "down"
    heard = ", which has not been heard of lately," if hold.unknown else ""
    return f"hold {hold.name} forbids scaling {way}: {hold.alert}{heard} fires since {moment(hold.since, look.now)}"


def _asks_nothing(look: Look, asks: Asks, ask: Ask) -> Decision | None:
    """No up trigger asks for more. That a down trigger would like less changes nothing."""
    if ask.replicas is not None:
        return None
    less = asks.smallest_reduction
    if less is None:
        return look.hold("steps", ask.reason, ask.text)
    why = f"{less.text}, but any up trigger beats it: {ask.text}"
    return look.hold("upBeatsDown", Reason.UP_BEATS_DOWN, why)


def _up_silenced(look: Look, asks: Asks, ask: Ask) -> Decision | None:
    silenced = ups_of(asks.silenced)
    if not silenced:
        return None
    why = f"{ask.text}, but {_silenced(look, silenced[0])}, and a silenced up trigger still forbids scaling down"
    return look.hold("silence", Reason.SILENCED, why)


def _up_unknown(look: Look, asks: Asks, ask: Ask) -> Decision | None:
    unknown = ups_of(asks.unknown)
    if unknown:
        why = f"{ask.text}, but {_unknown(look, unknown[0])}, and an unknown up trigger forbids scaling down"
        return look.hold("upBeatsDown", Reason.ALERT_UNKNOWN, why)
    if asks.others:
        why = f"{ask.text}, but {asks.others[0].name} of another policy stands here too and forbids scaling down"
        return look.hold("upBeatsDown", Reason.OTHER_POLICY, why)
    return None


def _silenced(look: Look, claim: Claim) -> str:
    silence = silence_of(claim.alerts[0], look.now)
    if silence is None:
        return f"{names(claim.alerts)} is silenced or inhibited in Alertmanager"
    comment = f' ("{silence.comment}")' if silence.comment else ""
    until = moment(silence.ends_at, look.now)
    return f"{names(claim.alerts)} is silenced by {silence.created_by} until {until}{comment}"


def _unknown(look: Look, claim: Claim) -> str:
    last = max(alert.span.last_seen_at for alert in claim.alerts)
    return f"{names(claim.alerts)} has not been heard of since {moment(last, look.now)}"


def _cooling(look: Look, way: Direction) -> Decision | None:
    case, now = look.case, look.now
    found = cooldown(case.policy, case.ledger, case.record.foreign_at, way)
    if found is None or now >= found.until:
        look.step("cooldown", "no cooldown runs")
        return None
    return look.hold("cooldown", Reason.COOLDOWN, f"{_subject_text(look)}, but {_waits(look, found)}")


def _waits(look: Look, found: Cooldown) -> str:
    until, at = moment(found.until, look.now), moment(found.at, look.now)
    return f"the cooldown of {seconds(found.length)} after {found.after} at {at} is over at {until} only"


def _unready(look: Look, wanting: list[Ask]) -> Decision | None:
    """Pods and Percent wait until what was asked for last is ready; the others only for pods that fit nowhere."""
    case, pods = look.case, look.case.observed.pods
    needed = waits_for_ready(case.policy, case.ledger, case.current, pods.ready, look.now)
    free = [ask for ask in wanting if (needed is None if ask.step else pods.unschedulable == 0)]
    if free:
        if free[0] is not look.subject:
            look.subject = free[0]
            look.step("readiness", f"only {free[0].text} need not wait for pods", free[0].replicas)
        return None
    missing = f" ({pods.missing})" if pods.missing else ""
    stuck = f"{count(pods.unschedulable, 'pod')} cannot be scheduled for want of GPUs{missing}"
    if not wanting[0].step:
        why = f"{_subject_text(look)}, but {stuck}, and more would only wait beside them"
        return look.hold("readiness", Reason.UNSCHEDULABLE, why)
    started = case.ledger.last_up_at or look.now
    until = moment(started + case.policy.ready_timeout, look.now)
    why = (
        f"{_subject_text(look)}, but of the {needed} replicas that the last scale-up asked for "
        f"{pods.ready} are ready, and the next step waits for them until {until} at most"
    )
    if pods.unschedulable:
        why += f"; {stuck}"
    return look.hold("readiness", Reason.WAITING_FOR_READY, why)


def _stabilized(look: Look) -> Decision | None:
    case, asked = look.case, look.replicas
    found = stabilized(case.policy, case.ledger, case.current, asked, look.now)
    way = Direction.UP if asked > case.current else Direction.DOWN
    window = rules_of(case.policy, way).stabilization_window
    by = f"scale{way}.stabilizationWindowSeconds of {seconds(window)}"
    if found == case.current:
        than = "more" if way is Direction.UP else "fewer"
        why = f"{_subject_text(look)}, but {by} have not passed since no {than} than {found} were wanted"
        return look.hold("stabilization", Reason.STABILIZED, why)
    if found != asked:
        look.limit("stabilization", found, by)
    return None


def _rated(look: Look, way: Direction) -> Decision | None:
    case = look.case
    rules = rules_of(case.policy, way)
    if rules.select_policy is SelectPolicy.DISABLED:
        why = f"{_subject_text(look)}, but scale{way}.selectPolicy is Disabled"
        return look.hold("rate", Reason.DIRECTION_DISABLED, why)
    found = rate(rules, case.ledger, way, case.current, look.now, dry_run=case.policy.dry_run)
    if found is None:
        return None
    bound = min if way is Direction.UP else max
    limit = bound(look.replicas, found.limit)
    if limit == case.current and not (way is Direction.UP and case.current < case.bounds(look.now).least):
        why = f"{_subject_text(look)}, but scale{way} allows {found.text}, and that is used up"
        return look.hold("rate", Reason.RATE_LIMITED, why)
    if limit != look.replicas:
        look.limit("rate", limit, found.text)
    return None


def _bounded_above(look: Look) -> Decision | None:
    bounds = look.case.bounds(look.now)
    if look.replicas < bounds.least:
        look.step("bounds", f"raised to minReplicas {bounds.least}", bounds.least)
        look.limits.append(f"raised to minReplicas {bounds.least}{_by(look, bounds.least_by)}")
    if look.replicas <= bounds.most:
        return None
    by = f"maxReplicas {bounds.most}{_by(look, bounds.most_by)}"
    if bounds.most <= look.current:
        look.report = ""
        where = "are there" if bounds.most == look.current else "is exceeded already"
        return look.hold("bounds", Reason.AT_MAX_REPLICAS, f"{_subject_text(look)}, but {by} {where}")
    look.limit("bounds", bounds.most, by)
    return None


def _bounded_below(look: Look) -> Decision | None:
    bounds = look.case.bounds(look.now)
    if look.replicas >= bounds.least:
        return None
    by = f"minReplicas {bounds.least}{_by(look, bounds.least_by)}"
    if bounds.least >= look.current:
        look.report = ""
        where = "are there" if bounds.least == look.current else "are not there even now"
        return look.hold("bounds", Reason.AT_MIN_REPLICAS, f"{_subject_text(look)}, but {by} {where}")
    look.limit("bounds", bounds.least, by)
    return None


def _by(look: Look, override: Override | None) -> str:
    if override is None:
        return ""
    look.override = override
    return f" set {said(look, override)}"


def _placed(look: Look) -> Decision | None:
    case, room = look.case, look.case.observed.schedulable
    if room is None or case.policy.capacity is Capacity.IGNORE or look.replicas - look.current <= room:
        return None
    scarce = case.observed.scarce or "GPUs"
    if case.policy.capacity is Capacity.REPORT:
        told = f"only {room} of them can be placed now for want of {scarce}"
        look.limits.append(told)
        look.step("capacity", told)
        return None
    if room <= 0:
        why = f"{_subject_text(look)}, but no further replica can be placed for want of {scarce}"
        return look.hold("capacity", Reason.NO_CAPACITY, why)
    look.limit("capacity", look.current + room, f"the free {scarce} ({room} more can be placed)")
    return None


def _budgeted(look: Look, way: Direction) -> Decision | None:
    budget = look.case.observed.budget
    up = way is Direction.UP
    left, until = (budget.up, budget.up_until) if up else (budget.down, budget.down_until)
    if left is None or left > 0 or (until is not None and look.now >= until):
        return None
    spent = (
        "kept for those who have waited longer" if until is None else f"spent until {moment(until, look.now)}"
    )
    why = f"{_subject_text(look)}, but the actionBudget for scale{way} is {spent}"
    return look.hold("budget", Reason.BUDGET_SPENT, why)


def _safe(look: Look) -> Decision | None:
    missing = look.case.observed.safe_mode
    if not missing:
        return None
    why = f"{_subject_text(look)}, but scaling down is held in safe mode: {missing.rstrip('.')}"
    return look.hold("safeMode", Reason.SAFE_MODE, why)
