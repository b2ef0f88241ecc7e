"""What is wrong between Prometheus and this service: routes, receivers, inhibition, the heartbeat. Pure."""

from collections.abc import Iterator

from responder import promql
from responder.check import places, routes
from responder.check.chain import SCALES, Alert, Chain, bound, bound_root
from responder.check.findings import Finding, error, note, warning
from responder.check.labels import Labels, Truth, overlap, truth
from responder.check.routes import Inhibition, Receiver, Route, Routing
from responder.deciding.words import seconds

_SAID_BY_RULES = ("severity", "action", "signal", "scope")
_INHIBITS = ("inhibit_scale_up", "inhibit_scale_down")


def check(chain: Chain) -> Iterator[Finding]:
    """Every fault of the routing; nothing if no Alertmanager's configuration was given."""
    for routing in chain.sources.routings:
        yield from _unknown_receivers(routing)
        yield from _inhibitions(chain, routing)
        yield from _namespace_trap(chain, routing)
    if not chain.sources.routings:
        return
    if not chain.ours:
        yield _none_of_ours(chain)
        return
    for _, receiver in chain.ours:
        yield from _webhooks(receiver)
    used = _used(chain)
    for routing, receiver in chain.ours:
        for route in routes.walk(routing.root):
            if route.receiver == receiver.name:
                yield from _timings(chain, route, used.get(id(route), []))
    for alert in chain.alerts:
        yield from _reaches(chain, alert)


def _used(chain: Chain) -> dict[int, list[Alert]]:
    """The alerts that each route of ours can take."""
    used: dict[int, list[Alert]] = {}
    for alert in chain.alerts:
        for _, taken in alert.routes:
            used.setdefault(_original(chain, taken.route), []).append(alert)
    return used


def _original(chain: Chain, route: Route) -> int:
    for routing in chain.sources.routings:
        for known in routes.walk(routing.root):
            if known.at.path == route.at.path and known.at.file == route.at.file:
                return id(known)
    return id(route)


def _unknown_receivers(routing: Routing) -> Iterator[Finding]:
    for route in routes.walk(routing.root):
        written = route.at.text("receiver")
        if written and routing.receiver(written) is None:
            known = ", ".join(receiver.name for receiver in routing.receivers) or "none"
            at = route.at.at("receiver")
            said = f"The route names the receiver {written}, which is not defined (known: {known})."
            yield error(
                at.file, at.line, "unknown-receiver", said, "define it under receivers, or mend the name"
            )
    if not routing.root.receiver and not routing.namespace:
        at = routing.root.at
        yield error(at.file, at.line, "unknown-receiver", "The first route has no receiver.", "name one")


def _none_of_ours(chain: Chain) -> Finding:
    first = chain.sources.routings[0]
    at = first.receivers[0].at if first.receivers else first.root.at
    return error(
        first.file,
        at.line,
        "no-receiver",
        f"No receiver has a webhook with a URL that ends in {routes.ENDPOINT}, so that no alert reaches this service.",
        "add webhook_configs with that URL, or name the receiver with --receiver",
    )


def _webhooks(receiver: Receiver) -> Iterator[Finding]:
    hooks = routes.our_hooks(receiver)
    if not hooks:
        at = receiver.at
        said = f"Receiver {receiver.name} has no webhook."
        yield error(at.file, at.line, "no-webhook", said, "give it webhook_configs")
    for hook in hooks:
        keys = ("send_resolved", "sendResolved")
        key = next((key for key in keys if hook.at.at(key).value is not None), keys[0])
        if not hook.send_resolved:
            yield error(
                hook.at.file,
                hook.at.at(key).line,
                "send-resolved",
                f"Receiver {receiver.name} does not send resolves, so that an alert fires until it times out.",
                f"set {key}: true",
            )
        keys = ("max_alerts", "maxAlerts")
        key = next((key for key in keys if hook.at.at(key).value is not None), keys[0])
        if hook.max_alerts:
            yield error(
                hook.at.file,
                hook.at.at(key).line,
                "max-alerts",
                f"Receiver {receiver.name} leaves out all but {hook.max_alerts} alerts of a group.",
                f"set {key}: 0",
            )


def _timings(chain: Chain, route: Route, alerts: list[Alert]) -> Iterator[Finding]:
    at = _key(route, "repeat_interval", "repeatInterval")
    repeat, group = (promql.format_duration(ms) for ms in (route.repeat_interval, route.group_interval))
    if route.repeat_interval < route.group_interval:
        yield warning(
            *at,
            "repeat-interval",
            f"repeat_interval ({repeat}) is shorter than group_interval ({group}), which is how often it is looked at.",
            "make it a multiple of group_interval",
        )
    settings = chain.settings
    beats = [alert for alert in alerts if alert.heartbeat is not Truth.NO]
    rest = [alert for alert in alerts if alert.heartbeat is Truth.NO and (alert.scaling or alert.holds)]
    if settings and rest and route.repeated >= settings.timing.alert_timeout.total_seconds() * 1000:
        yield warning(
            *at,
            "repeat-after-timeout",
            f"Alerts are repeated every {promql.format_duration(route.repeated)} and are unknown after"
            f" alertTimeoutSeconds ({seconds(settings.timing.alert_timeout)}), so that {rest[0].name} stops acting"
            " in between, unless the service asks Alertmanager (serve --alertmanager-url).",
            "repeat more often, or raise alertTimeoutSeconds in the policy file",
        )
    beat = settings.heartbeat if settings else None
    if beat and beats and route.repeated >= beat.timeout.total_seconds() * 1000:
        yield error(
            *at,
            "heartbeat-slow",
            f"The heartbeat {beats[0].name} is repeated every {promql.format_duration(route.repeated)}, and"
            f" scale-down is held when it has not come for {seconds(beat.timeout)}.",
            "give it a route of its own with a shorter repeat_interval",
        )
    yield from _grouping(route, [alert for alert in alerts if alert.scaling])
    if route.times and (rest or beats):
        mute = _key(
            route, "mute_time_intervals", "muteTimeIntervals", "active_time_intervals", "activeTimeIntervals"
        )
        said = f"This route is silent at times ({', '.join(route.times)}), and alerts that do not come are unknown."
        yield warning(*mute, "muted", said, "remove them; freeze or pause the responder instead")


def _grouping(route: Route, alerts: list[Alert]) -> Iterator[Finding]:
    missing = [name for name in ("namespace", "workload") if name not in route.group_by]
    if not alerts or not missing or route.group_by == ("...",):
        return
    yield warning(
        *_key(route, "group_by", "groupBy"),
        "group-by",
        f"Scaling alerts are grouped without {' and '.join(missing)}, so that one workload's news waits for another's"
        " and a group can grow without bound.",
        "group by cluster, namespace, workload and action",
    )


def _key(route: Route, *keys: str) -> tuple[str, int]:
    """Where a key of the route stands; of the route if it is inherited."""
    for key in keys:
        if route.at.at(key).value is not None:
            return route.at.file, route.at.at(key).line
    return route.at.file, route.at.line


def _reaches(chain: Chain, alert: Alert) -> Iterator[Finding]:
    if alert.routes:
        return
    rule = alert.rule
    if alert.action in SCALES or alert.scaling:
        what = "scales"
    elif alert.holds or alert.action in _INHIBITS:
        what = "holds scaling back"
    elif any(fate.trigger is not None for fate in alert.fates):
        what = "acts on nodes"
    elif alert.heartbeat is not Truth.NO:
        what = "is the heartbeat"
    else:
        return
    takers = sorted({taken.route.receiver for taken in _anywhere(chain, alert.labels)} - {""})
    gone = f"goes to {', '.join(takers)}" if takers else "goes nowhere"
    yield error(
        rule.file,
        rule.line,
        "unrouted",
        f"{alert.name} {what}, but {gone} and to no receiver of this service"
        f" ({', '.join(sorted({receiver.name for _, receiver in chain.ours}))}).",
        f"add a route in {chain.ours[0][0].file} whose matchers take it",
    )


def _anywhere(chain: Chain, labels: Labels) -> Iterator[routes.Taken]:
    for routing in chain.sources.routings:
        yield from routes.match(bound_root(chain.sources, routing), labels)


def _inhibitions(chain: Chain, routing: Routing) -> Iterator[Finding]:
    for rule in routing.inhibitions:
        hit = [alert.name for alert in chain.alerts if _matters(alert) and _inhibits(chain, rule, alert)]
        if hit:
            more = f" and {len(hit) - 1} more" if len(hit) > 1 else ""
            yield warning(
                rule.at.file,
                rule.at.line,
                "inhibited",
                f"This inhibits {hit[0]}{more}: an inhibited alert is neither delivered nor resolved, so nobody could"
                " say why nothing happens.",
                'leave alerts with the label action out (target matcher action=""), and use the policy\'s holds',
            )


def _matters(alert: Alert) -> bool:
    return alert.scaling or bool(alert.holds) or alert.heartbeat is not Truth.NO


def _inhibits(chain: Chain, rule: Inhibition, target: Alert) -> bool:
    # What rules say of themselves, such as severity, their series do not say.
    unsaid = [name for name in _SAID_BY_RULES if name not in target.labels.known]
    if truth(rule.target, target.labels.without(unsaid)) is Truth.NO:
        return False
    if "alertname" not in rule.equal:
        # Its source may be an alert that is not among the rules given, such as InfoInhibitor.
        return all(target.labels.get(name).can_be("") or target.labels.possible(name) for name in rule.equal)
    return any(
        truth(rule.source, source.labels) is not Truth.NO
        and overlap(source.labels, target.labels, rule.equal)
        for source in chain.alerts
        if source.name == target.name and source.rule != target.rule
    )


def _namespace_trap(chain: Chain, routing: Routing) -> Iterator[Finding]:
    if bound(chain.sources, routing) is None:
        yield note(
            routing.file,
            routing.root.at.line,
            "namespace-matcher",
            f'Unless the Alertmanager object says otherwise, the operator adds namespace="{routing.namespace}" to these'
            " routes, and alerts of other namespaces and the heartbeat do not arrive.",
            "set alertmanagerConfigMatcherStrategy: {type: None} there, and give that file too",
        )


def heartbeat(chain: Chain) -> Iterator[Finding]:
    """What is wrong with the heartbeat, apart from its route."""
    settings = chain.settings
    if settings is None or not chain.sources.groups:
        return
    if settings.heartbeat is None:
        at = places.top(chain.sources)
        said = "There is no heartbeat, so that a chain that is broken looks like one that is quiet."
        yield note(
            at.file,
            at.line,
            "no-heartbeat",
            said,
            "add heartbeat with the matcher of an alert that always fires",
        )
    elif chain.sources.whole and all(alert.heartbeat is Truth.NO for alert in chain.alerts):
        at = places.top(chain.sources, "heartbeat", "matchers")
        wanted = ", ".join(map(str, settings.heartbeat.matchers))
        said = f"No alert has {wanted}, so that every scale-down is held for want of the heartbeat."
        yield error(
            at.file, at.line, "heartbeat-unknown", said, "add a rule that always fires, or mend the matcher"
        )


def named(chain: Chain, receivers: tuple[str, ...]) -> Iterator[Finding]:
    """Receivers asked for by name that no configuration has."""
    known = {receiver.name for routing in chain.sources.routings for receiver in routing.receivers}
    for name in receivers:
        if chain.sources.routings and name not in known:
            file = chain.sources.routings[0].file
            said = f"There is no receiver {name} (known: {', '.join(sorted(known)) or 'none'})."
            yield error(file, 0, "unknown-receiver", said, "mend --receiver")
