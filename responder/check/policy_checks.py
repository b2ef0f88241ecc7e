"""What is wrong between the alerts and the policies that are to take them. Pure."""

import re
from collections.abc import Iterator

from responder.check import places
from responder.check.chain import SCALES, Alert, Chain, Fate, in_file_order, parseable, placeholders
from responder.check.expressions import matchers_of, parse, selectors
from responder.check.findings import Finding, error, note, warning
from responder.check.labels import assume
from responder.deciding.words import seconds
from responder.model import Direction, ScaleType
from responder.policy import Hold, Policy, Rules, SelectPolicy, Settings, Trigger, allowed

_ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_WORDS = re.compile(r"\bhumanize|\bprintf\s+\"(?!%[-+ #0]*\d*(?:\.\d+)?[bdeEfFgGsv]\")")
"""What makes words of a number within a template's action."""
_A_VALUE = re.compile(r"\b[vV]alue\b")
_NUMBER = re.compile(r"\s*(?:[\d.eE+-]+\s*)?")
_MEANT = {"scale_up": Direction.UP, "scale_down": Direction.DOWN}


def check(chain: Chain) -> Iterator[Finding]:
    """Every fault between alerts and policies; nothing if no policy file was given."""
    settings = chain.settings
    if settings is None:
        return
    yield from _stopped(chain, settings)
    for policy in settings.policies:
        yield from _behavior(chain, policy)
    if not chain.alerts:
        return
    for alert in chain.alerts:
        yield from _taken(chain, alert)
    for policy in settings.policies if chain.sources.whole else ():
        yield from _reached(chain, policy)
        yield from _zero(chain, policy)
    yield from _holds(chain, settings)


# --- Alerts -----------------------------------------------------------------------------------------


def _taken(chain: Chain, alert: Alert) -> Iterator[Finding]:
    rule = alert.rule
    takers = [fate for fate in alert.fates if fate.trigger is not None]
    if alert.action in SCALES and not takers:
        policies = sorted({fate.policy.name for fate in alert.fates})
        if policies:
            said = f"{alert.name} falls under policy {', '.join(policies)}, and no trigger there takes it."
            yield error(rule.file, rule.line, "no-trigger", said, "add a trigger whose matchers take it")
        else:
            said = f"{alert.name} falls under no policy, so that nothing is ever scaled for it."
            yield error(rule.file, rule.line, "no-policy", said, "add a policy whose matchers take it")
    for fate in takers:
        if isinstance(fate.trigger, Trigger):
            yield from _direction(alert, fate, fate.trigger)
            yield from _target_labels(chain, alert, fate, fate.trigger)
            yield from _value(chain, alert, fate, fate.trigger)
            yield from _namespace(chain, alert, fate)


def _direction(alert: Alert, fate: Fate, trigger: Trigger) -> Iterator[Finding]:
    meant = _MEANT.get(alert.action)
    if meant is not None and trigger.scale.direction is not meant:
        said = (
            f"{alert.name} says {alert.action}, and trigger {trigger.name} of policy {fate.policy.name} that takes it"
            f" scales {trigger.scale.direction}."
        )
        yield error(
            alert.rule.file, alert.rule.line, "direction", said, "mend the trigger's matchers or direction"
        )


def _target_labels(chain: Chain, alert: Alert, fate: Fate, trigger: Trigger) -> Iterator[Finding]:
    target = fate.policy.target
    source = trigger.scale.value_from
    texts = [(target.namespace, "target"), (target.name, "target")] if target is not None else []
    if source is not None and source.query:
        texts.append((source.query, "query"))
    needs = {(part.source, part.name, what) for text, what in texts for part in placeholders(text)}
    if target is None:
        needs |= _needed_without(alert)
    for kind, name, what in sorted(needs):
        there = alert.labels.possible(name) if kind == "labels" else name in alert.rule.annotations
        if not there:
            yield _lacking(chain, alert, fate, trigger, kind, name, what)


def _needed_without(alert: Alert) -> set[tuple[str, str, str]]:
    """What the target is found by when the policy does not say: workload and its type, or a pod, and a namespace."""
    labels = alert.labels
    named = ("deployment", "statefulset", "replicaset", "pod", "exported_pod", "replicationcontroller")
    needs: set[tuple[str, str, str]] = set()
    if not any(map(labels.possible, named)):
        needs = {("labels", "workload", "target"), ("labels", "workload_type", "target")}
    if not labels.possible("exported_namespace"):
        needs.add(("labels", "namespace", "target"))
    return needs


def _lacking(
    chain: Chain, alert: Alert, fate: Fate, trigger: Trigger, kind: str, name: str, what: str
) -> Finding:
    key = "expr" if kind == "labels" else "annotations"
    line = chain.sources.line_of(alert.rule.file, alert.rule.line, key)
    noun = "label" if kind == "labels" else "annotation"
    whose = "target" if what == "target" else f"query of trigger {trigger.name}"
    cannot = "its expression cannot have it" if kind == "labels" else "it has none"
    mend = (
        f"keep {name} in the expression, as in `by ({name}, …)`"
        if kind == "labels"
        else f"add the annotation {name} to the alert"
    )
    said = f"{alert.name} needs the {noun} {name} for the {whose} of policy {fate.policy.name}, and {cannot}."
    return error(alert.rule.file, line, "label-missing", said, mend)


def _value(chain: Chain, alert: Alert, fate: Fate, trigger: Trigger) -> Iterator[Finding]:
    source = trigger.scale.value_from
    if source is None:
        return
    if source.annotation:
        yield from _annotation(chain, alert, trigger, source.annotation)
        return
    at = places.of_trigger(chain.sources, fate.policy, trigger, "scale", "valueFrom")
    for name, labels in _asked(source.query):
        if ":" not in name or name.startswith(("vllm:", "sglang:")):
            continue
        if name not in chain.records.by_name:
            if not chain.sources.whole:
                continue
            said = f"The query of trigger {trigger.name} asks for {name}, which no rule records."
            yield warning(
                at.file, at.line, "value-unknown", said, "give the rules that record it, or mend the name"
            )
            continue
        found = chain.records.labels(parse(name))
        for label in labels:
            if not found.possible(label):
                said = f"The query of trigger {trigger.name} asks {name} by {label}, a label that it cannot have."
                yield error(at.file, at.line, "value-unknown", said, "mend the query")


def _asked(query: str) -> Iterator[tuple[str, list[str]]]:
    try:
        for selector in selectors(parse(parseable(query))):
            if selector.name:
                yield selector.name, [matcher.name for matcher in matchers_of(selector) if matcher.op == "="]
    except ValueError:
        return


def _annotation(chain: Chain, alert: Alert, trigger: Trigger, name: str) -> Iterator[Finding]:
    rule = alert.rule
    text = rule.annotations.get(name)
    if text is None:
        line = chain.sources.line_of(rule.file, rule.line, "annotations")
        said = f"Trigger {trigger.name} is sized by the annotation {name}, and {alert.name} has none."
        yield error(
            rule.file, line, "value-missing", said, f"add {name}: '{{{{ $value }}}}' to its annotations"
        )
    elif not _is_number(text):
        line = chain.sources.line_of(rule.file, rule.line, name)
        said = f"Trigger {trigger.name} is sized by the annotation {name}, which in {alert.name} is no bare number."
        yield error(rule.file, line, "value-missing", said, f"write {name}: '{{{{ $value }}}}'")


def _is_number(text: str) -> bool:
    """Whether a template can render a bare number: values alone in its actions, and nothing else around them."""
    actions, around = _ACTION.findall(text), _ACTION.sub("", text)
    if not _NUMBER.fullmatch(around) or any(map(_WORDS.search, actions)):
        return False
    return any(map(_A_VALUE.search, actions)) if actions else bool(around.strip())


def _namespace(chain: Chain, alert: Alert, fate: Fate) -> Iterator[Finding]:
    settings = chain.settings
    values = fate.labels.get("namespace").values
    if settings is None or not values or fate.policy.target is None:
        return
    if "labels.namespace" not in fate.policy.target.namespace.replace(" ", ""):
        return
    if not any(allowed(settings, value) for value in values if value):
        said = f"{alert.name} is about namespace {' or '.join(sorted(values))}, which allowedNamespaces does not allow."
        yield error(
            alert.rule.file, alert.rule.line, "namespace-not-allowed", said, "add it to allowedNamespaces"
        )


# --- Policies ---------------------------------------------------------------------------------------


def _reached(chain: Chain, policy: Policy) -> Iterator[Finding]:
    mine = [fate for alert in chain.alerts for fate in alert.fates if fate.policy is policy]
    # One that only tries things out may wait for alerts that come from elsewhere.
    found = note if policy.dry_run else warning
    if not any(fate.trigger is not None for fate in mine):
        at = places.of_policy(chain.sources, policy, "matchers")
        said = f"No alert can reach policy {policy.name}, so that it never acts."
        yield found(
            at.file, at.line, "policy-unreached", said, "mend its matchers, or give the rules it is for"
        )
        return
    for trigger in in_file_order(policy):
        if any(fate.trigger is trigger for fate in mine):
            continue
        at = places.of_trigger(chain.sources, policy, trigger, "matchers")
        said = f"No alert can reach trigger {trigger.name} of policy {policy.name}."
        yield found(at.file, at.line, "trigger-unreached", said, "mend its matchers, or remove it")


def _zero(chain: Chain, policy: Policy) -> Iterator[Finding]:
    if policy.min_replicas > 0:
        return
    downs = [trigger for trigger in policy.triggers if trigger.scale.direction is Direction.DOWN]
    ups = [
        alert
        for alert in chain.alerts
        if any(fate.direction is Direction.UP for fate in alert.fates if fate.policy is policy)
    ]
    if not downs or any(_survives(chain, alert) for alert in ups):
        return
    at = places.of_policy(chain.sources, policy, "minReplicas")
    names = ", ".join(alert.name for alert in ups[:3]) or "none"
    yield error(
        at.file,
        at.line,
        "erases-signal",
        f"Policy {policy.name} scales to 0, and every alert that would scale it up again ({names}) is measured on its"
        " own pods, of which there are then none.",
        "set minReplicas: 1, or add an up alert on what waits elsewhere, such as a gateway's queue",
    )


def _survives(chain: Chain, alert: Alert) -> bool:
    try:
        return chain.records.survives_zero(parse(alert.rule.expr))
    except ValueError:
        return True


def _stopped(chain: Chain, settings: Settings) -> Iterator[Finding]:
    if settings.freeze:
        at = places.top(chain.sources, "freeze")
        said = "The policy file freezes everything, so that nothing is scaled."
        yield warning(at.file, at.line, "frozen", said, "remove freeze when it is over")
    scaling = [policy for policy in settings.policies if policy.triggers]
    if scaling and all(policy.dry_run for policy in scaling):
        at = places.top(chain.sources, "dryRun")
        said = "Every policy is a dry run: decisions are made and recorded, and nothing is scaled."
        yield note(at.file, at.line, "dry-run", said, "set dryRun: false to act")


def _behavior(chain: Chain, policy: Policy) -> Iterator[Finding]:
    """Behaviours that can never act."""
    if policy.triggers and policy.min_replicas == policy.max_replicas:
        at = places.of_policy(chain.sources, policy, "maxReplicas")
        said = f"Policy {policy.name} has minReplicas and maxReplicas both {policy.max_replicas}: it can never scale."
        yield warning(at.file, at.line, "never-acts", said, "raise maxReplicas, or lower minReplicas")
    for direction, key, rules in (
        (Direction.UP, "scaleUp", policy.scale_up),
        (Direction.DOWN, "scaleDown", policy.scale_down),
    ):
        triggers = [trigger for trigger in policy.triggers if trigger.scale.direction is direction]
        if triggers:
            yield from _never(chain, policy, key, rules, triggers)


def _never(
    chain: Chain, policy: Policy, key: str, rules: Rules, triggers: list[Trigger]
) -> Iterator[Finding]:
    names = ", ".join(trigger.name for trigger in triggers)
    at = places.of_policy(chain.sources, policy, "behavior", key)
    if rules.select_policy is SelectPolicy.DISABLED:
        place = at.at("selectPolicy")
        said = f"behavior.{key} of policy {policy.name} is Disabled, so that trigger {names} can never act."
        yield warning(
            place.file, place.line, "never-acts", said, "remove the triggers, or selectPolicy: Disabled"
        )
    if rules.stabilization_window >= policy.timing.forget_after:
        place = at.at("stabilizationWindowSeconds")
        said = (
            f"behavior.{key} of policy {policy.name} waits {seconds(rules.stabilization_window)}, longer than"
            f" an alert is remembered, so that trigger {names} hardly ever acts."
        )
        yield warning(place.file, place.line, "never-acts", said, "shorten stabilizationWindowSeconds")
    for trigger in triggers:
        yield from _own_bounds(chain, policy, trigger)


def _own_bounds(chain: Chain, policy: Policy, trigger: Trigger) -> Iterator[Finding]:
    scale = trigger.scale
    if scale.type is not ScaleType.REPLICAS:
        return
    useless = (
        scale.value <= policy.min_replicas
        if scale.direction is Direction.UP
        else scale.value >= policy.max_replicas
    )
    if useless:
        at = places.of_trigger(chain.sources, policy, trigger, "scale", "value")
        said = (
            f"Trigger {trigger.name} scales {scale.direction} to {scale.value:g}, where policy {policy.name}"
            f" ({policy.min_replicas} to {policy.max_replicas}) always is."
        )
        yield warning(at.file, at.line, "never-acts", said, "mend value, minReplicas or maxReplicas")


# --- Holds ------------------------------------------------------------------------------------------


def _holds(chain: Chain, settings: Settings) -> Iterator[Finding]:
    for alert in chain.alerts:
        yield from _inhibitors(alert)
    for hold in settings.holds:
        takers = [alert for alert in chain.alerts if hold in alert.holds]
        at = places.of_hold(chain.sources, hold, "matchers")
        if not takers and chain.sources.whole:
            said = f"No alert of these rules can make hold {hold.name} hold."
            yield note(
                at.file, at.line, "hold-unreached", said, "mend its matchers, or leave it for rules to come"
            )
        for alert in takers:
            yield from _untied(chain, hold, alert)
    yield from _no_hold(chain, settings)


def _untied(chain: Chain, hold: Hold, alert: Alert) -> Iterator[Finding]:
    labels = assume(alert.labels, hold.matchers)
    for name in hold.equal:
        if name != "cluster" and not labels.possible(name):
            line = chain.sources.line_of(alert.rule.file, alert.rule.line, "expr")
            said = (
                f"Hold {hold.name} ties {alert.name} to targets by the label {name}, which its expression cannot have,"
                " so that it holds nothing."
            )
            yield error(alert.rule.file, line, "hold-label", said, f"keep {name} in the expression")


def _inhibitors(alert: Alert) -> Iterator[Finding]:
    if alert.action not in ("inhibit_scale_up", "inhibit_scale_down") or alert.holds:
        return
    if any(fate.trigger is not None for fate in alert.fates):
        return
    said = f"{alert.name} is to hold scaling back ({alert.action}), and no hold of the policy file takes it."
    yield warning(alert.rule.file, alert.rule.line, "no-hold", said, "add a hold whose matchers take it")


def _no_hold(chain: Chain, settings: Settings) -> Iterator[Finding]:
    """Scale-down that nothing ever forbids. (Of scale-up, the alerts that ask to hold it are checked.)"""
    scaling = [
        policy
        for policy in settings.policies
        if any(trigger.scale.direction is Direction.DOWN for trigger in policy.triggers)
    ]
    if scaling and all(hold.forbid is not Direction.DOWN for hold in settings.holds):
        at = places.of_policy(chain.sources, scaling[0])
        said = (
            f"Policy {scaling[0].name} scales down, and no hold forbids that while telemetry is missing or hardware"
            " is in trouble."
        )
        yield warning(at.file, at.line, "no-hold", said, "add holds, as in examples/policies.yaml")
