"""Alertmanager's routing: its tree, which receivers an alert takes, and with which timings. Pure.

Semantics as in Alertmanager's dispatch package: children inherit what they do not say; an alert goes to every
child that matches until one without `continue`, and to the route itself only if no child matched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from responder import matchers, promql
from responder.check.findings import Finding, error
from responder.check.labels import Labels, Truth, assume, impossible, truth
from responder.check.located import Located
from responder.matchers import Matcher

ENDPOINT = "/api/v1/webhooks/alertmanager"


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str
    """Empty when a file or a Secret holds it; Alertmanager itself may tell `<secret>`."""
    send_resolved: bool
    max_alerts: int
    at: Located


@dataclass(frozen=True, slots=True)
class Receiver:
    name: str
    at: Located
    webhooks: tuple[Webhook, ...] = ()
    others: tuple[str, ...] = ()
    """Other integrations, such as `slack_configs`."""


@dataclass(frozen=True, slots=True)
class Route:
    """A node of the tree with what it inherits filled in; durations in milliseconds."""

    at: Located
    receiver: str = ""
    matchers: tuple[Matcher, ...] = ()
    go_on: bool = False
    """`continue`."""
    group_by: tuple[str, ...] = ()
    """`("...",)` is by all labels."""
    group_wait: int = 30_000
    group_interval: int = 300_000
    repeat_interval: int = 4 * 3_600_000
    times: tuple[str, ...] = ()
    """Names of its mute and active time intervals."""
    routes: tuple["Route", ...] = ()

    @property
    def repeated(self) -> int:
        """How often it repeats in fact: looked at once each group_interval."""
        ticks = -(-self.repeat_interval // self.group_interval) if self.group_interval else 1
        return max(ticks, 1) * self.group_interval


@dataclass(frozen=True, slots=True)
class Inhibition:
    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]
    at: Located


@dataclass(frozen=True, slots=True)
class Routing:
    """One Alertmanager's configuration, or one AlertmanagerConfig's share of it."""

    file: str
    root: Route
    receivers: tuple[Receiver, ...]
    inhibitions: tuple[Inhibition, ...] = ()
    namespace: str = ""
    """Of an AlertmanagerConfig: the operator may bind its routes to it."""
    name: str = ""
    """Of an AlertmanagerConfig too."""

    def receiver(self, name: str) -> Receiver | None:
        return next((receiver for receiver in self.receivers if receiver.name == name), None)


@dataclass(frozen=True, slots=True)
class Taken:
    """A route that an alert takes, surely or perhaps, and the labels that it has when it does."""

    route: Route
    certain: bool
    labels: Labels


def walk(route: Route) -> Iterator[Route]:
    """The route and all below it."""
    yield route
    for child in route.routes:
        yield from walk(child)


def match(route: Route, labels: Labels) -> list[Taken]:
    """Every route that an alert with such labels can take; a certain one is taken whatever the labels are."""
    if truth(route.matchers, labels) is Truth.NO:
        return []
    return _match(route, assume(labels, route.matchers), truth(route.matchers, labels) is Truth.YES)


def _match(route: Route, labels: Labels, certain: bool) -> list[Taken]:
    found: list[Taken] = []
    # Whether each child before may have kept the alert to itself, and whether one took it for sure.
    perhaps_kept = taken = False
    rest = labels
    for child in route.routes:
        answer = truth(child.matchers, rest)
        if answer is Truth.NO:
            continue
        sure = certain and answer is Truth.YES and not perhaps_kept
        found += _match(child, assume(rest, child.matchers), sure)
        if answer is Truth.YES:
            taken = True
            if not child.go_on:
                return found
        elif not child.go_on:
            perhaps_kept = True
            if len(child.matchers) == 1:
                rest = assume(rest, (opposite(child.matchers[0]),))
                if impossible(rest):
                    return found
    if not taken:
        found.append(Taken(route, certain and not found, labels))
    return found


def opposite(matcher: Matcher) -> Matcher:
    """The matcher that holds where this one does not."""
    return Matcher(matcher.name, {"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}[matcher.op], matcher.value)


# --- Reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Words:
    """How one of the two formats spells what both say."""

    group_by: str = "group_by"
    group_wait: str = "group_wait"
    group_interval: str = "group_interval"
    repeat_interval: str = "repeat_interval"
    mute: str = "mute_time_intervals"
    active: str = "active_time_intervals"
    webhooks: str = "webhook_configs"
    configs: str = "_configs"
    send_resolved: str = "send_resolved"
    max_alerts: str = "max_alerts"
    inhibit_rules: str = "inhibit_rules"
    source: tuple[str, ...] = ("source_matchers", "source_match", "source_match_re")
    target: tuple[str, ...] = ("target_matchers", "target_match", "target_match_re")


_PLAIN = _Words()
_OBJECT = _Words(
    "groupBy", "groupWait", "groupInterval", "repeatInterval", "muteTimeIntervals", "activeTimeIntervals",
    "webhookConfigs", "Configs", "sendResolved", "maxAlerts", "inhibitRules", ("sourceMatch",), ("targetMatch",),
)  # fmt: skip


@dataclass(slots=True)
class _Reader:
    words: _Words
    findings: list[Finding] = field(default_factory=list)

    def route(self, at: Located, parent: Route) -> Route:
        words = self.words
        own = Route(
            at=at,
            receiver=at.text("receiver") or parent.receiver,
            matchers=self.matchers(at, ("matchers", "match", "match_re")),
            go_on=at.at("continue").value is True,
            group_by=_names(at.at(words.group_by)) or parent.group_by,
            group_wait=self.duration(at.at(words.group_wait), parent.group_wait),
            group_interval=self.duration(at.at(words.group_interval), parent.group_interval),
            repeat_interval=self.duration(at.at(words.repeat_interval), parent.repeat_interval),
            times=(*_names(at.at(words.mute)), *_names(at.at(words.active))),
        )
        return replace(own, routes=tuple(self.route(child, own) for child in at.items("routes")))

    def matchers(self, at: Located, keys: Sequence[str]) -> tuple[Matcher, ...]:
        found: list[Matcher] = []
        for place, name, op in _written(at, keys):
            try:
                found += (Matcher(name, op, place.text()),) if op else _matcher(place)
            except ValueError as problem:
                self.findings.append(error(place.file, place.line, "matcher", str(problem), "mend it"))
        return tuple(found)

    def duration(self, at: Located, inherited: int) -> int:
        text = at.text()
        if not text:
            return inherited
        if not promql.is_duration(text):
            self.findings.append(
                error(at.file, at.line, "duration", f"{text!r} is no duration.", "write 30s, 5m or 1m30s")
            )
            return inherited
        return promql.duration_ms(text)

    def receiver(self, at: Located) -> Receiver:
        words = self.words
        hooks = tuple(
            Webhook(
                url=hook.text("url"),
                send_resolved=hook.at(words.send_resolved).value is not False,
                max_alerts=_number(hook.at(words.max_alerts)),
                at=hook,
            )
            for hook in at.items(words.webhooks)
        )
        keys = at.value if isinstance(at.value, dict) else {}
        others = tuple(
            str(key)
            for key in keys
            if str(key).endswith(words.configs) and key != words.webhooks and keys[key]
        )
        return Receiver(at.text("name"), at, hooks, others)

    def inhibition(self, at: Located) -> Inhibition:
        return Inhibition(
            source=self.matchers(at, self.words.source),
            target=self.matchers(at, self.words.target),
            equal=_names(at.at("equal")),
            at=at,
        )

    def routing(self, at: Located, root: Route, namespace: str = "", name: str = "") -> Routing:
        return Routing(
            file=at.file,
            root=root,
            receivers=tuple(self.receiver(item) for item in at.items("receivers")),
            inhibitions=tuple(self.inhibition(item) for item in at.items(self.words.inhibit_rules)),
            namespace=namespace,
            name=name,
        )


def _written(at: Located, keys: Sequence[str]) -> Iterator[tuple[Located, str, str]]:
    """Where matchers stand, with label and operator where the old maps `match` and `match_re` name them."""
    for key in keys:
        here = at.at(key)
        if isinstance(here.value, dict):
            op = "=~" if key.endswith("_re") else "="
            yield from ((here.at(str(name)), str(name), op) for name in here.value)
        elif isinstance(here.value, str):
            yield here, "", ""
        else:
            yield from ((item, "", "") for item in at.items(key))


def _matcher(at: Located) -> tuple[Matcher, ...]:
    if isinstance(at.value, dict):
        # An AlertmanagerConfig's: {name, value, matchType}, and `regex: true` of old.
        op = at.text("matchType") or ("=~" if at.at("regex").value is True else "=")
        return (Matcher(at.text("name"), op, at.text("value")),)
    return matchers.parse_all(at.text())


def is_alertmanager(document: Located) -> bool:
    """Whether this is an Alertmanager's own configuration."""
    return isinstance(document.value, dict) and "kind" not in document.value and "route" in document.value


def read(document: Located) -> tuple[Routing, list[Finding]]:
    """An Alertmanager configuration, or an AlertmanagerConfig object of prometheus-operator."""
    if document.text("kind") == "AlertmanagerConfig":
        reader = _Reader(_OBJECT)
        spec = document.at("spec")
        # The operator puts `continue: true` on the object's first route, below a root that is not ours.
        root = reader.route(spec.at("route"), Route(spec))
        names = (document.text("metadata", key) for key in ("namespace", "name"))
        return reader.routing(spec, root, *names), reader.findings
    reader = _Reader(_PLAIN)
    root = reader.route(document.at("route"), Route(document))
    return reader.routing(document, replace(root, matchers=())), reader.findings


def _number(at: Located) -> int:
    return at.value if isinstance(at.value, int) else 0


def _names(at: Located) -> tuple[str, ...]:
    return tuple(str(item) for item in at.value) if isinstance(at.value, list) else ()


def ours(routing: Routing, names: Sequence[str] = ()) -> tuple[Receiver, ...]:
    """The receivers that deliver to this service: those named, else those whose webhook has its path."""
    if names:
        return tuple(receiver for receiver in routing.receivers if receiver.name in names)
    return tuple(receiver for receiver in routing.receivers if any(map(_to_us, _hooks(receiver))))


def our_hooks(receiver: Receiver) -> tuple[Webhook, ...]:
    """The webhooks of one of our receivers that deliver to us: all, if its name alone made it ours."""
    return tuple(filter(_to_us, _hooks(receiver))) or receiver.webhooks


def _hooks(receiver: Receiver) -> Iterator[Webhook]:
    named = "gpu-responder" in receiver.name
    for hook in receiver.webhooks:
        # An address in a file or a Secret cannot be read; the receiver's name is what there is to go by.
        hidden = hook.url in ("", "<secret>")
        yield replace(hook, url=ENDPOINT) if named and hidden else hook


def _to_us(hook: Webhook) -> bool:
    return hook.url.split("?")[0].rstrip("/").endswith(ENDPOINT)
