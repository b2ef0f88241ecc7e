"""JSON Schemas of what the API takes and gives, for its description."""

import json
from importlib import resources
from typing import Any

from responder.model import Outcome, OverrideKind, Reason
from responder.web.board import STATES
from responder.web.overrides import FORM as OVERRIDE_FORM
from responder.web.silences import FORM as SILENCE_FORM

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def or_null(schema: Schema) -> Schema:
    if "type" not in schema or "enum" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def enum(words: Any) -> Schema:
    return {"type": "string", "enum": [str(word) for word in words]}


def fields(description: str = "", optional: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object whose keys are all there, but for those that are optional."""
    named = {name.rstrip("_"): schema for name, schema in properties.items()}
    return {
        "type": "object",
        **({"description": description} if description else {}),
        "required": [name for name in named if name not in optional],
        "properties": named,
    }


_TARGET: dict[str, Schema] = {
    "target": {**TEXT, "description": "namespace/kind/name"},
    "namespace": TEXT,
    "kind": {**TEXT, "description": "In lower case, with its group unless that is apps."},
    "name": TEXT,
    "group": TEXT,
    "policy": {**TEXT, "description": "Which governs it; empty: none does."},
    "replicas": {**or_null(COUNT), "description": "As last read; null: it was not read yet."},
    "ready": or_null(COUNT),
    "countedAt": {**or_null(TIME), "description": "When the ready ones were counted, if that is over."},
    "desired": or_null(COUNT),
    "state": enum(STATES),
    "reason": or_null(enum(Reason)),
    "message": TEXT,
    "decidedAt": or_null(TIME),
    "lookAgainAt": or_null(TIME),
    "minReplicas": or_null(COUNT),
    "maxReplicas": or_null(COUNT),
    "dryRun": FLAG,
    "alerts": many(ref("Alert")),
    "overrides": many(ref("Override")),
    "intent": {"anyOf": [ref("Intent"), {"type": "null"}]},
    "failure": {"anyOf": [ref("Failure"), {"type": "null"}]},
    "foreignAt": {**or_null(TIME), "description": "When a change that is not ours was first seen."},
}

_OVERRIDE: dict[str, Schema] = {
    "id": TEXT,
    "kind": enum(OverrideKind),
    "target": {**TEXT, "description": "Empty: it is for what the matchers fit, or for all."},
    "matchers": TEXTS,
    "replicas": or_null(COUNT),
    "force": FLAG,
    "minReplicas": or_null(COUNT),
    "maxReplicas": or_null(COUNT),
    "createdBy": TEXT,
    "comment": TEXT,
    "createdAt": {**or_null(TIME), "description": "null: it stands in an annotation."},
    "startsAt": or_null(TIME),
    "endsAt": {**or_null(TIME), "description": "null: until the annotation is removed."},
    "expiredAt": {**or_null(TIME), "description": "When it was ended early."},
    "state": enum(("pending", "active", "ended")),
    "source": {**TEXT, "description": "api, or the annotation that it stands in."},
}

_MATCHER = fields(name=TEXT, value=TEXT, isRegex=FLAG, isEqual=FLAG)


def schemas() -> dict[str, Schema]:
    """All of them by name."""
    return {
        "Error": fields("One sentence that says what is wrong and what to do.", error=TEXT),
        "NotFound": fields(
            "As Error, with what may be meant.", ("near",), error=TEXT, near=TEXTS
        ),
        "AlertmanagerError": {**TEXT, "description": "One sentence, as Alertmanager's API has its errors."},
        "Targets": fields(
            targets=many(ref("Target")),
            asOf=TIME,
            cluster=TEXT,
            dryRun=FLAG,
            freeze={**TEXT, "description": "Why the policy file stops everything; empty: it does not."},
            safeMode={**TEXT, "description": "Why scale-down is held for want of a heartbeat."},
            problems={**TEXTS, "description": "What to know before reading on."},
        ),
        "Target": fields(**_TARGET),
        "TargetInFull": fields(
            **_TARGET, decisions=many(ref("Decision")), timeline=many(ref("Moment")), chain=many(ref("Step"))
        ),
        "Alert": fields(
            fingerprint=TEXT,
            name=TEXT,
            state=enum(("firing", "suppressed", "unknown", "forgotten", "resolved")),
            trigger=TEXT,
            startsAt=TIME,
            lastSeenAt=TIME,
            labels=LABELS,
            annotations=LABELS,
            generatorURL=TEXT,
        ),
        "Intent": fields(
            "A write that was begun and is not settled yet.",
            id=TEXT, from_=COUNT, to=COUNT, decidedAt=TIME, reason=enum(Reason),
        ),
        "Failure": fields(reason=enum(Reason), message=TEXT, since=TIME, retryAt=TIME, attempts=COUNT),
        "Decisions": fields(decisions=many(ref("Decision"))),
        "Decision": fields(
            "A change of (desired, reason), or what became of a write.",
            ("inputs",),
            id=COUNT, at=TIME, target=TEXT, namespace=TEXT, kind=TEXT, name=TEXT, current=COUNT,
            desired=COUNT, reason=enum(Reason), message=TEXT, policy=TEXT, trigger=TEXT, alerts=TEXTS,
            intent=TEXT, outcome=or_null(enum(Outcome)), dryRun=FLAG, lookAgainAt=or_null(TIME),
            alertToScaleSeconds={"type": ["number", "null"]}, inputs={"type": "object"},
        ),
        "Moment": fields(
            at=TIME, current=COUNT, desired=COUNT, ready=or_null(COUNT), reason=enum(Reason), message=TEXT,
            outcome=or_null(enum(Outcome)),
        ),
        "Step": fields("What a rule made of the number.", rule=TEXT, replicas=COUNT, message=TEXT),
        "NewOverride": _without_dialect(OVERRIDE_FORM.schema),
        "Override": fields(**_OVERRIDE),
        "CreatedOverride": fields(
            **_OVERRIDE,
            inFlight={
                **many(fields(target=TEXT, intent=TEXT, from_=COUNT, to=COUNT, decidedAt=TIME)),
                "description": "Writes that were begun before it and may still land.",
            },
            warning={**TEXT, "description": "What may not be meant so; empty: nothing."},
        ),
        "Overrides": fields(overrides=many(ref("Override"))),
        "Audit": fields(
            audit=many(
                fields(
                    at=TIME, who=TEXT, address=TEXT, action=TEXT, subject=TEXT, before=TEXT, after=TEXT,
                    comment=TEXT,
                )
            )
        ),
        "NewSilence": _without_dialect(SILENCE_FORM.schema),
        "SilenceId": fields(silenceID=TEXT),
        "Silence": fields(
            id=TEXT, status=fields(state=enum(("pending", "active", "expired"))), matchers=many(_MATCHER),
            startsAt=TIME, endsAt=TIME, updatedAt=TIME, createdBy=TEXT, comment=TEXT,
        ),
        "AlertmanagerStatus": fields(
            cluster=fields(name=TEXT, status=TEXT, peers=many({"type": "object"})),
            config=fields(original=TEXT),
            uptime=TIME,
        ),
        "AlertmanagerAlert": fields(
            fingerprint=TEXT, labels=LABELS, annotations=LABELS, startsAt=TIME, endsAt=TIME, updatedAt=TIME,
            generatorURL=TEXT, receivers=many(fields(name=TEXT)),
            status=fields(state=enum(("active", "suppressed")), silencedBy=TEXTS, inhibitedBy=TEXTS),
        ),
        "WebhookAnswer": fields(
            accepted=COUNT,
            rejected=COUNT,
            results=many(
                fields(
                    "", ("error",), fingerprint=TEXT, result=enum(("accepted", "rejected")), error=TEXT
                )
            ),
        ),
        "TestAlert": fields("All empty if none has arrived.", id=TEXT, receivedAt=TEXT, receiver=TEXT, sender=TEXT),
        "Health": fields(status=TEXT),
        "Readiness": fields(
            "", ("error",), status=enum(("ready", "not ready")), details=LABELS, error=TEXT
        ),
        "Reloaded": fields(status=TEXT, digest={**TEXT, "description": "Of the policy file in force."}),
        **_webhook(),
    }  # fmt: skip


def _webhook() -> dict[str, Schema]:
    """The webhook's schema, its parts as schemas of their own."""
    text = resources.files("responder").joinpath("schemas/webhook.json").read_text("utf-8")
    whole: Schema = json.loads(text)
    parts = {f"Webhook{name.capitalize()}": part for name, part in whole.pop("$defs").items()}
    named: dict[str, Schema] = {"Webhook": _without_dialect(whole), **parts}
    moved: dict[str, Schema] = json.loads(json.dumps(named), object_hook=_moved)
    return moved


def _moved(schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    return ref("Webhook" + schema["$ref"].rpartition("/")[2].capitalize())


def _without_dialect(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "$schema"}
