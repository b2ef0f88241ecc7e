"""What a payload would lead to under a policy file, if so many replicas were there. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from responder import alerts, webhook
from responder.decide import decide, sized_triggers
from responder.model import Decision, Notification, Observed, Pods, Record, Span, TargetRef, Value, Workload
from responder.observe import annotated_value
from responder.policy import (
    Policy,
    Rejection,
    Settings,
    allowed,
    governing,
    node_trigger_of,
    policy_of,
    stands_alone,
    target_of,
    trigger_of,
    value_query,
)
from responder.verdicts import unclaimed


@dataclass(frozen=True, slots=True)
class Given:
    """What is supposed of the cluster. Replicas and ready are for every target unless one is named.

    `target` (namespace, kind, name) is for alerts whose target would be looked up in the cluster.
    """

    replicas: int | None = None
    replicas_of: Mapping[str, int] = field(default_factory=dict)
    ready: int | None = None
    ready_of: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    target: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one alert: where it leads, or why it leads nowhere."""

    fingerprint: str
    name: str
    firing: bool
    policy: str = ""
    trigger: str = ""
    target: str = ""
    rejected: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """What would be decided for one target, on what is supposed of it."""

    target: str
    decision: Decision
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    at: datetime
    fates: tuple[Fate, ...]
    decisions: tuple[Explained, ...]


def explain(body: bytes, settings: Settings, given: Given, now: datetime) -> Explanation:
    """What the payload, received now by a service that knows nothing yet, would lead to. Raises BadPayload."""
    parsed = webhook.parse(body, settings, now)
    taken = iter(parsed.delivery.notifications)
    tests = {each.fingerprint: each for each in parsed.tests}
    fates: list[Fate] = []
    records: dict[str, Record] = {}
    standing: dict[str, Span] = {}
    for result, name in zip(parsed.results, _names(body), strict=True):
        if result.error:
            shown = name or result.fingerprint or "an alert without a name"
            fates.append(Fate(result.fingerprint, shown, True, rejected=result.error))
            continue
        if result.fingerprint in tests:
            note = "it only asks whether alerts arrive: nothing acts on it"
            fates.append(Fate(result.fingerprint, name, tests[result.fingerprint].firing, note=note))
            continue
        notification = next(taken)
        alone = stands_alone(settings, notification.labels)
        if alone:
            span = alerts.fold_standing(standing.get(notification.fingerprint), notification, settings, now)
            if span is not None:
                standing[notification.fingerprint] = span
        fate, target = _fate(notification, settings, given, alone)
        fates.append(fate)
        if target is not None:
            record = records.get(target.key) or Record(target)
            records[target.key] = alerts.fold(record, notification, settings, now)
    decisions = tuple(
        _decided(record, settings, given, tuple(standing.values()), now) for record in records.values()
    )
    return Explanation(now, tuple(fates), decisions)


def _names(body: bytes) -> list[str]:
    """What the alerts are called, also those that are rejected."""
    named: list[str] = []
    for alert in json.loads(body)["alerts"]:
        labels = alert.get("labels") if isinstance(alert, dict) else None
        name = labels.get("alertname") if isinstance(labels, dict) else None
        named.append(name if isinstance(name, str) else "")
    return named


def _fate(
    notification: Notification, settings: Settings, given: Given, alone: bool
) -> tuple[Fate, TargetRef | None]:
    labels = notification.labels
    fate = Fate(
        notification.fingerprint, labels.get("alertname", notification.fingerprint), notification.firing
    )
    if alone:
        fate = replace(fate, note="it is a hold or the heartbeat")
    policy = policy_of(settings.policies, labels)
    if policy is None:
        return fate if alone else replace(fate, note="no policy takes it"), None
    fate = replace(fate, policy=policy.name)
    if node_trigger_of(policy, labels) is not None:
        return replace(fate, note="it acts on its node, which is not explained here"), None
    trigger = trigger_of(policy, labels)
    if trigger is not None:
        fate = replace(fate, trigger=trigger.name)
    elif not alone:
        fate = replace(fate, note="no trigger takes it")
    target = target_of(policy, labels, notification.annotations)
    if isinstance(target, Rejection):
        return replace(fate, note=fate.note or target.message), None
    if target is None and given.target is not None:
        namespace, kind, name = given.target
        named = {"namespace": namespace, "workload": name, "workload_type": kind}
        target = target_of(policy, named, {})
        if isinstance(target, Rejection):
            return replace(fate, note=target.message), None
    if target is None:
        return replace(fate, note="its target is looked up in the cluster: say it with --target"), None
    return replace(fate, target=target.key), target


def _decided(
    record: Record, settings: Settings, given: Given, standing: Sequence[Span], now: datetime
) -> Explained:
    key = record.target.key
    policy = governing(settings, record)
    permitted = allowed(settings, record.target.namespace)
    if policy is None or not permitted:
        why = unclaimed(replace(record, replicas=_of(given.replicas_of, key, given.replicas)), permitted)
        if policy is None and permitted:
            # All of it resolved: nothing is known of the target, and nothing is to be done.
            why = replace(why, message="nothing fires that is known of it")
        return Explained(key, why)
    assumed: list[str] = []
    replicas = _of(given.replicas_of, key, given.replicas)
    if replicas is None:
        replicas = policy.min_replicas
        assumed.append(f"{replicas} replicas are there (minReplicas; say otherwise with --replicas)")
    ready = _of(given.ready_of, key, given.ready)
    if ready is None:
        ready = replicas
        assumed.append("all of them are ready (say otherwise with --ready)")
    if settings.heartbeat is not None:
        assumed.append("the heartbeat is fresh")
    record = replace(record, replicas=replicas, ready=ready)
    observed = Observed(
        workload=Workload("", 1, "1", replicas),
        pods=Pods(ready, replicas),
        values=_values(policy, record, given.values, now),
        holds=alerts.holds_on(settings, standing, record, frozenset(), now),
        freeze=settings.freeze,
    )
    decision = decide(policy, observed, record, now)
    return Explained(key, decision, tuple(assumed))


def _of(named: Mapping[str, int], key: str, otherwise: int | None) -> int | None:
    """What is given for this target by any of its names, else what is given for all."""
    namespace, _, name = key.split("/", 2)
    return next((named[form] for form in (key, f"{namespace}/{name}", name) if form in named), otherwise)


def _values(policy: Policy, record: Record, values: Mapping[str, float], now: datetime) -> dict[str, Value]:
    """As given; else from the annotation, which the payload has; else missing."""
    found: dict[str, Value] = {}
    for trigger, span in sized_triggers(policy, record, now):
        name = trigger.name
        if name in values:
            found[name] = Value(values[name], now)
            continue
        query = value_query(trigger, span.labels, span.annotations)
        if isinstance(query, Rejection):
            found[name] = Value(None, now, query.message.rstrip("."))
        elif query is not None:
            found[name] = Value(None, now, f"Prometheus is not asked here: say it with --value {name}=…")
        else:
            found[name] = annotated_value(trigger, span)
    return found
