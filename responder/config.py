"""The policy file: YAML, JSON Schema, cross-checks, Settings. camelCase ends here.

All faults are found at once; each is one line that names the file, the line, the key and the mend.
"""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from responder import config_yaml, matchers
from responder.config_checks import check_all
from responder.config_schema import check_schema, with_defaults
from responder.config_yaml import Fault
from responder.errors import ConfigError
from responder.matchers import Matcher
from responder.model import Direction, ScaleType
from responder.policy import (
    ActionBudget,
    Capacity,
    Fallback,
    Heartbeat,
    Hold,
    NodeAction,
    NodeTrigger,
    Policy,
    RatePolicy,
    Rules,
    Scale,
    SelectPolicy,
    Settings,
    TargetTemplate,
    Timing,
    Trigger,
    ValueFrom,
)

MAX_BYTES = 4 * 1024 * 1024
_MAX_FAULTS = 50

Map = Mapping[str, Any]


def load(path: str | Path) -> Settings:
    """Read and check a policy file. Raises ConfigError with a line for every fault."""
    return loads(_text(path), str(path))


def loads(text: str, name: str = "policies.yaml") -> Settings:
    """Check the text of a policy file; `name` stands for it in sentences. Raises ConfigError."""
    document = config_yaml.read(text)
    if document.value is not None:
        check_schema(document)
        check_all(document)
    if document.faults:
        raise ConfigError(_report(document.faults, name))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return _settings(with_defaults(document.value), name, digest)


def scale_durations(document: Map, factor: float) -> dict[str, Any]:
    """The document with its defaults written out and every duration divided by the factor."""
    scaled: dict[str, Any] = _scale_in(with_defaults(document), factor)
    return scaled


def _scale_in(value: Any, factor: float) -> Any:
    if isinstance(value, dict):
        return {
            key: item / factor
            if key.endswith("Seconds") and isinstance(item, int | float)
            else _scale_in(item, factor)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_scale_in(item, factor) for item in value]
    return value


def _text(path: str | Path) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: does not exist; name the policy file with --policy") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory; name the policy file in it") from None
    except PermissionError:
        raise ConfigError(f"{path}: may not be read by this user; change its mode or owner") from None
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read: {cause}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_BYTES // 1024**2} MiB; it is no policy file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8; save the file as UTF-8") from None


def _report(faults: list[Fault], name: str) -> str:
    lines = [fault.text(name) for fault in sorted(set(faults))]
    more = len(lines) - _MAX_FAULTS
    if more > 0:
        lines = [*lines[:_MAX_FAULTS], f"{name}: and {more} more faults"]
    return "\n".join(lines)


def _settings(doc: Map, name: str, digest: str) -> Settings:
    timing = Timing(
        alert_timeout=_seconds(doc["alertTimeoutSeconds"]),
        stale_after=_seconds(doc["staleAfterSeconds"]),
        forget_after=_seconds(doc["forgetAfterSeconds"]),
    )
    beat = doc.get("heartbeat")
    budgets = doc["actionBudget"]
    return Settings(
        policies=tuple(_policy(policy, doc["dryRun"], timing) for policy in doc["policies"]),
        holds=tuple(
            Hold(hold["name"], _matchers(hold), Direction(hold["forbid"]), tuple(hold["equal"]))
            for hold in doc["holds"]
        ),
        cluster=doc.get("cluster", ""),
        dry_run=doc["dryRun"],
        allowed_namespaces=tuple(doc.get("allowedNamespaces", ())),
        budgets={
            direction: ActionBudget(int(budgets[key]["maxActions"]), _seconds(budgets[key]["periodSeconds"]))
            for key, direction in (("scaleUp", Direction.UP), ("scaleDown", Direction.DOWN))
            if key in budgets
        },
        heartbeat=Heartbeat(_matchers(beat), _seconds(beat["timeoutSeconds"])) if beat is not None else None,
        timing=timing,
        freeze=_freeze(doc["freeze"], name),
        source=name,
        digest=digest,
    )


def _freeze(value: bool | str, name: str) -> str:
    if isinstance(value, str):
        return value.strip()
    return f"{name} says freeze: true." if value else ""


def _policy(doc: Map, dry_run: bool, timing: Timing) -> Policy:
    target = doc.get("scaleTargetRef")
    triggers = [trigger for trigger in doc["triggers"] if "scale" in trigger]
    nodes = [
        _node_trigger(trigger, before=sum("scale" in ahead for ahead in doc["triggers"][:index]))
        for index, trigger in enumerate(doc["triggers"])
        if "node" in trigger
    ]
    # A policy that acts on nodes only has no maxReplicas, and governs no replicas.
    high = int(doc.get("maxReplicas", doc["minReplicas"]))
    return Policy(
        name=doc["name"],
        matchers=_matchers(doc),
        min_replicas=min(int(doc["minReplicas"]), high),
        max_replicas=high,
        triggers=tuple(_trigger(trigger) for trigger in triggers),
        scale_up=_rules(doc["behavior"]["scaleUp"]),
        scale_down=_rules(doc["behavior"]["scaleDown"]),
        target=_target(target) if target is not None else None,
        dry_run=dry_run or doc["dryRun"],
        wake_from_zero=doc["wakeFromZero"],
        ready_timeout=_seconds(doc["readyTimeoutSeconds"]),
        capacity=Capacity(doc["capacity"]),
        timing=timing,
        node_triggers=tuple(nodes),
    )


def _target(doc: Map) -> TargetTemplate:
    return TargetTemplate(doc["apiVersion"], doc["kind"], doc["namespace"], doc["name"])


def _rules(doc: Map) -> Rules:
    return Rules(
        cooldown=_seconds(doc["cooldownSeconds"]),
        stabilization_window=_seconds(doc["stabilizationWindowSeconds"]),
        policies=tuple(
            RatePolicy(ScaleType(rate["type"]), int(rate["value"]), _seconds(rate["periodSeconds"]))
            for rate in doc["policies"]
        ),
        select_policy=SelectPolicy(doc["selectPolicy"]),
        tolerance=float(doc["tolerance"]),
    )


def _trigger(doc: Map) -> Trigger:
    # Types that are no steps are not counted, so nothing limits them.
    steps = doc.get("maxStepsPerEpisode")
    more = {"evaluation": _seconds(doc["evaluationSeconds"])} if "evaluationSeconds" in doc else {}
    return Trigger(
        name=doc["name"],
        matchers=_matchers(doc),
        scale=_scale(doc["scale"]),
        max_steps=None if steps is None else int(steps),
        **more,
    )


def _node_trigger(doc: Map, before: int) -> NodeTrigger:
    node = doc["node"]
    after = node.get("uncordonAfterSeconds")
    action = NodeAction(
        action=node["action"],
        max_nodes=int(node["maxNodes"]),
        max_percent=float(node["maxPercent"]),
        uncordon_after=None if after is None else _seconds(after),
    )
    return NodeTrigger(doc["name"], _matchers(doc), action, before)


def _scale(doc: Map) -> Scale:
    source, fallback = doc.get("valueFrom"), doc.get("fallback")
    return Scale(
        direction=Direction(doc["direction"]),
        type=ScaleType(doc["type"]),
        value=float(doc.get("value", 0)),
        target=float(doc.get("target", 0)),
        value_from=ValueFrom(**source) if source is not None else None,
        fallback=Fallback(
            ScaleType(fallback["type"]), float(fallback["value"]), _seconds(fallback["afterSeconds"])
        )
        if fallback is not None
        else None,
    )


def _matchers(doc: Map) -> tuple[Matcher, ...]:
    return tuple(matchers.parse(text) for text in doc["matchers"])


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)
