"""What becomes of each scaling alert: route, receiver, policy, trigger, target, and of its resolve. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from responder import promql, templates
from responder.check import routes
from responder.check.expressions import Records, interval_ms
from responder.check.labels import ANYTHING, Label, Labels, Truth, assume, impossible, truth
from responder.check.located import Located
from responder.check.routes import Receiver, Routing, Taken
from responder.check.sources import Sources
from responder.matchers import Matcher
from responder.model import Direction
from responder.policy import Hold, NodeTrigger, Policy, Settings, Trigger
from responder.rules import Group, Rule

SCALES = ("scale_up", "scale_down")
_OUTER = frozenset({"cluster", "region", "environment", "env", "datacenter", "prometheus"})
"""What external_labels commonly hold."""
PLACED = "x"
"""What stands for a label's value where none is known."""


@dataclass(frozen=True, slots=True)
class Fate:
    """A policy that an alert can fall under, and the trigger that takes it there; None when none does."""

    policy: Policy
    trigger: Trigger | NodeTrigger | None
    certain: bool
    labels: Labels
    """What the alert's labels are when it does."""

    @property
    def direction(self) -> Direction | None:
        """Which way it scales; None where it does not."""
        return self.trigger.scale.direction if isinstance(self.trigger, Trigger) else None


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule, and all that is known of its way."""

    rule: Rule
    group: Group
    labels: Labels
    fates: tuple[Fate, ...] = ()
    holds: tuple[Hold, ...] = ()
    heartbeat: Truth = Truth.NO
    routes: tuple[tuple[Routing, Taken], ...] = ()
    """Those that lead to a receiver of ours."""

    @property
    def name(self) -> str:
        return self.rule.alert or ""

    @property
    def action(self) -> str:
        return self.labels.sure("action") or ""

    @property
    def scaling(self) -> bool:
        """Whether it means to change replicas, or would."""
        return self.action in SCALES or any(fate.direction for fate in self.fates)


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds that Prometheus's configuration says, and no rule does."""

    scrape: int = 30_000
    evaluation: int = 30_000


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain from rules to targets."""

    sources: Sources
    records: Records
    alerts: tuple[Alert, ...]
    ours: tuple[tuple[Routing, Receiver], ...]
    timings: Timings = Timings()

    @property
    def settings(self) -> Settings | None:
        return self.sources.settings

    @property
    def scaling(self) -> list[Alert]:
        return [alert for alert in self.alerts if alert.scaling]

    def delay(self, alert: Alert, group_wait: int) -> int:
        """Milliseconds from a change at the workload to the first notification of it."""
        firing = promql.duration_ms(alert.rule.for_) if alert.rule.for_ else 0
        return self.seen_after(alert) + firing + group_wait

    def seen_after(self, alert: Alert) -> int:
        """Milliseconds of a scrape and of every evaluation that must follow it, one after the other."""
        way = self.records.behind(alert.group, alert.rule)
        # Rules of one group see one another within one evaluation.
        intervals = {
            (group.file, group.name): interval_ms(group, self.timings.evaluation) for group, _ in way
        }
        return self.timings.scrape + sum(intervals.values())

    def route_of(self, alert: Alert) -> Taken | None:
        """The likeliest of the routes that bring the alert to us."""
        taken = sorted((taken for _, taken in alert.routes), key=lambda taken: not taken.certain)
        return taken[0] if taken else None


def build(sources: Sources, receivers: Sequence[str] = (), timings: Timings = Timings()) -> Chain:
    """Follow every alert. `receivers` are the names of those that deliver to us, when their URL does not say."""
    records = Records.of(sources.groups)
    ours = tuple(
        (routing, receiver) for routing in sources.routings for receiver in routes.ours(routing, receivers)
    )
    alerts = tuple(
        _alert(sources, records, ours, group, rule)
        for group in sources.groups
        for rule in group.rules
        if rule.alert
    )
    return Chain(sources, records, alerts, ours, timings)


def _alert(
    sources: Sources,
    records: Records,
    ours: Sequence[tuple[Routing, Receiver]],
    group: Group,
    rule: Rule,
) -> Alert:
    labels = _outside(sources, records.rule_labels(group, rule))
    settings = sources.settings
    names = {(id(routing), receiver.name) for routing, receiver in ours}
    return Alert(
        rule=rule,
        group=group,
        labels=labels,
        fates=tuple(fates(settings, labels)) if settings else (),
        holds=tuple(h for h in settings.holds if truth(h.matchers, labels) is not Truth.NO)
        if settings
        else (),
        heartbeat=truth(settings.heartbeat.matchers, labels) if settings and settings.heartbeat else Truth.NO,
        routes=tuple(
            (routing, taken)
            for routing in sources.routings
            for taken in routes.match(bound_root(sources, routing), labels)
            if (id(routing), taken.route.receiver) in names
        ),
    )


def _outside(sources: Sources, labels: Labels) -> Labels:
    """With what Prometheus itself adds where an alert has no such label."""
    if sources.prometheus is None:
        return replace(labels, outer=_OUTER)
    added = sources.prometheus.at("global", "external_labels")
    for name in added.value if isinstance(added.value, dict) else ():
        here, value = labels.get(str(name)), added.text(str(name))
        if here.values is not None and "" in here.values:
            # ${…} is filled in from the server's environment.
            found = ANYTHING if "$" in value else Label(here.values - {""} | {value})
            labels = labels.with_label(str(name), found)
    return labels


def bound_root(sources: Sources, routing: Routing) -> routes.Route:
    """The root, with the namespace that prometheus-operator binds an AlertmanagerConfig to, if it does."""
    if not bound(sources, routing):
        return routing.root
    own = Matcher("namespace", "=", routing.namespace)
    return replace(routing.root, matchers=(*routing.root.matchers, own))


def bound(sources: Sources, routing: Routing) -> bool | None:
    """Whether prometheus-operator binds an AlertmanagerConfig to its namespace; None: nothing given says."""
    if not routing.namespace:
        return False
    if not sources.operated:
        return None
    return all(_binds(alertmanager, routing) for alertmanager in sources.operated)


def _binds(alertmanager: Located, routing: Routing) -> bool:
    spec = alertmanager.at("spec")
    strategy = spec.text("alertmanagerConfigMatcherStrategy", "type")
    home = alertmanager.text("metadata", "namespace") == routing.namespace
    if home and spec.text("alertmanagerConfiguration", "name") == routing.name:
        return False  # its configuration as a whole
    return strategy != "None" and not (home and strategy == "OnNamespaceExceptForAlertmanagerNamespace")


def fates(settings: Settings, labels: Labels) -> Iterator[Fate]:
    """Every policy that an alert with such labels can fall under, in file order, and its triggers there."""
    if settings.cluster:
        labels = assume(labels, (Matcher("cluster", "=~", f"|{_quoted(settings.cluster)}"),))
        if impossible(labels):
            return
    certain = True
    for policy in settings.policies:
        answer = truth(policy.matchers, labels)
        if answer is Truth.NO:
            continue
        sure = certain and answer is Truth.YES
        yield from _under(policy, assume(labels, policy.matchers), sure)
        if answer is Truth.YES:
            return
        certain = False
        labels = _rest(labels, policy.matchers)


def _under(policy: Policy, labels: Labels, certain: bool) -> Iterator[Fate]:
    for trigger in in_file_order(policy):
        answer = truth(trigger.matchers, labels)
        if answer is Truth.NO:
            continue
        yield Fate(policy, trigger, certain and answer is Truth.YES, assume(labels, trigger.matchers))
        if answer is Truth.YES:
            return
        certain = False
        labels = _rest(labels, trigger.matchers)
    yield Fate(policy, None, certain, labels)


def in_file_order(policy: Policy) -> list[Trigger | NodeTrigger]:
    """A policy's triggers of both kinds, as they stand in the file."""
    ordered: list[Trigger | NodeTrigger] = []
    nodes = list(policy.node_triggers)
    for index, trigger in enumerate(policy.triggers):
        ordered += [node for node in nodes if node.before == index]
        ordered.append(trigger)
    return [*ordered, *(node for node in nodes if node.before >= len(policy.triggers))]


def _rest(labels: Labels, taken: Sequence[Matcher]) -> Labels:
    """The labels of the alerts that one matcher's owner leaves; of several, nothing can be said."""
    open_ones = [matcher for matcher in taken if truth((matcher,), labels) is Truth.MAYBE]
    if len(open_ones) != 1:
        return labels
    return assume(labels, (routes.opposite(open_ones[0]),))


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() else f"\\{char}" for char in text)


# --- Targets ---------------------------------------------------------------------------------------


def placeholders(text: str) -> list[templates.Placeholder]:
    try:
        return [part for part in templates.parse(text) if isinstance(part, templates.Placeholder)]
    except ValueError:
        return []


def parseable(query: str) -> str:
    """A query template with a word in each of its places, for a parser that knows no templates."""
    return "".join(part if isinstance(part, str) else PLACED for part in templates.parse(query))


def target_words(fate: Fate) -> str:
    """The target in words, with `<label>` where a label's value will stand."""
    labels = fate.labels
    if isinstance(fate.trigger, NodeTrigger):
        return f"node {_word(labels, 'node')}"
    target = fate.policy.target
    if target is not None:
        namespace, name = _filled(target.namespace, labels), _filled(target.name, labels)
        return f"{target.kind} {namespace}/{name}"
    if labels.possible("workload") and labels.possible("workload_type"):
        namespace = "exported_namespace" if "exported_namespace" in labels.known else "namespace"
        kind = _word(labels, "workload_type")
        return f"{kind} {_word(labels, namespace)}/{_word(labels, 'workload')}"
    if labels.possible("pod"):
        return f"what owns pod {_word(labels, 'namespace')}/{_word(labels, 'pod')}"
    return "none"


def _filled(text: str, labels: Labels) -> str:
    try:
        parts = templates.parse(text)
    except ValueError:
        return text
    return "".join(
        part
        if isinstance(part, str)
        else (_word(labels, part.name) if part.source == "labels" else f"<annotation {part.name}>")
        for part in parts
    )


def _word(labels: Labels, name: str) -> str:
    value = labels.sure(name)
    if value:
        return value
    values = labels.get(name).values
    if values is not None and 1 < len(values - {""}) <= 3:
        return "|".join(sorted(values - {""}))
    return f"<{name}>"


@dataclass(frozen=True, slots=True)
class Link:
    """One row of the table: a scaling alert's way."""

    alert: str
    file: str
    line: int
    route: str
    receiver: str
    policy: str
    trigger: str
    target: str
    delay_seconds: float | None
    resolve: str
    labels: tuple[str, ...] = field(default=())


def links(chain: Chain) -> list[Link]:
    """The way of each scaling alert, one row for each trigger that can take it."""
    rows: list[Link] = []
    for alert in chain.scaling:
        takers = [fate for fate in alert.fates if fate.trigger is not None]
        rows += [_link(chain, alert, fate) for fate in takers] or [_link(chain, alert, None)]
    return rows


def _link(chain: Chain, alert: Alert, fate: Fate | None) -> Link:
    taken = chain.route_of(alert)
    wait = taken.route.group_wait if taken else None
    return Link(
        alert=alert.name,
        file=alert.rule.file,
        line=alert.rule.line,
        route=_route_words(taken),
        receiver=taken.route.receiver if taken else "",
        policy=fate.policy.name if fate else "",
        trigger=fate.trigger.name if fate and fate.trigger else "",
        target=target_words(fate) if fate else "",
        delay_seconds=chain.delay(alert, wait) / 1000 if wait is not None else None,
        resolve=_resolve_words(alert, fate, taken),
        labels=tuple(sorted(name for name in alert.labels.known if alert.labels.possible(name))),
    )


def _route_words(taken: Taken | None) -> str:
    if taken is None:
        return ""
    wanted = ", ".join(map(str, taken.route.matchers)) or "the root"
    return wanted if taken.certain else f"perhaps {wanted}"


def _resolve_words(alert: Alert, fate: Fate | None, taken: Taken | None) -> str:
    if fate is None or fate.trigger is None:
        return ""
    within = taken.route.group_interval if taken else 0
    keep = promql.duration_ms(alert.rule.keep_firing_for) if alert.rule.keep_firing_for else 0
    told = f"told within {promql.format_duration(within + keep)}" if within + keep else ""
    if isinstance(fate.trigger, NodeTrigger):
        after = fate.trigger.node.uncordon_after
        what = "node stays cordoned" if after is None else f"uncordoned after {after.total_seconds():g} s"
    elif fate.trigger.scale.direction is Direction.UP:
        what = "episode ends, replicas stay"
    else:
        what = "no further step down"
    return f"{what}; {told}" if told else what
