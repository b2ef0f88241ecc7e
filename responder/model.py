"""The nouns of the project: frozen dataclasses and enums. Standard library only.

Datetimes are aware UTC. Replicas are whole numbers; a Scale that omits them means 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


class Direction(StrEnum):
    UP = "Up"
    DOWN = "Down"


class ScaleType(StrEnum):
    """How a trigger says how many: steps (Pods, Percent), a number (Replicas), or sized to a value."""

    PODS = "Pods"
    PERCENT = "Percent"
    REPLICAS = "Replicas"
    UTILIZATION = "Utilization"
    AVERAGE_VALUE = "AverageValue"


class Reason(StrEnum):
    """Why a decision is what it is. One vocabulary for API, history, log, metric label, Event and docs."""

    # It acts, or would.
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    PINNED = "Pinned"
    PIN_ENDED = "PinEnded"
    # It does not act, because of a limit. (When a limit only shortens a step, the message says so.)
    AT_MAX_REPLICAS = "AtMaxReplicas"
    AT_MIN_REPLICAS = "AtMinReplicas"
    RATE_LIMITED = "RateLimited"
    STABILIZED = "Stabilized"
    WITHIN_TOLERANCE = "WithinTolerance"
    STEPS_SPENT = "StepsSpent"
    COOLDOWN = "Cooldown"
    WAITING_FOR_READY = "WaitingForReady"
    UNSCHEDULABLE = "Unschedulable"
    NO_CAPACITY = "NoCapacity"
    BUDGET_SPENT = "BudgetSpent"
    DIRECTION_DISABLED = "DirectionDisabled"
    # It holds, because acting would hurt or is not its to do.
    NOTHING_FIRING = "NothingFiring"
    ALREADY_THERE = "AlreadyThere"
    OTHER_OWNER = "OtherOwner"
    OWNER_UNKNOWN = "OwnerUnknown"
    REVERTED = "Reverted"
    FROZEN = "Frozen"
    PAUSED = "Paused"
    SILENCED = "Silenced"
    SWITCHED_OFF = "SwitchedOff"
    HELD = "Held"
    UP_BEATS_DOWN = "UpBeatsDown"
    ALERT_UNKNOWN = "AlertUnknown"
    VALUE_MISSING = "ValueMissing"
    OTHER_POLICY = "OtherPolicy"
    SAFE_MODE = "SafeMode"
    # What became of an intent, or of a target.
    EFFECT_UNCERTAIN = "EffectUncertain"
    INTENT_ABANDONED = "IntentAbandoned"
    FOREIGN_CHANGE = "ForeignChange"
    UNCLAIMED = "Unclaimed"
    TARGET_GONE = "TargetGone"
    NOT_SCALABLE = "NotScalable"
    NOT_ALLOWED = "NotAllowed"
    FORBIDDEN = "Forbidden"
    INVALID = "Invalid"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    API_UNAVAILABLE = "ApiUnavailable"
    WRITE_CONFLICT = "WriteConflict"
    # What was done to a node.
    CORDONED = "Cordoned"
    UNCORDONED = "Uncordoned"
    CORDON_LIMITED = "CordonLimited"


@dataclass(frozen=True, slots=True, order=True)
class TargetRef:
    """A workload with a `scale` subresource. `group` is "" for the core API, `kind` as Kubernetes spells it."""

    namespace: str
    kind: str
    name: str
    group: str = "apps"

    @property
    def key(self) -> str:
        """`namespace/kind/name`, the kind in lower case, with its group unless that is apps."""
        kind = self.kind.lower() if self.group == "apps" else f"{self.kind.lower()}.{self.group}"
        return f"{self.namespace}/{kind}/{self.name}"

    def __str__(self) -> str:
        return self.key


def target_of_key(key: str) -> TargetRef:
    """The target of a key; its kind stays in lower case, as discovery finds it too."""
    namespace, kind, name = key.split("/", 2)
    kind, custom, group = kind.partition(".")
    return TargetRef(namespace, kind, name, group if custom else "apps")


@dataclass(frozen=True, slots=True)
class Notification:
    """One alert of one delivery, as received. `ends_at` is None while it fires."""

    fingerprint: str
    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: datetime
    ends_at: datetime | None
    received_at: datetime
    generator_url: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One accepted webhook. `namespaces` limits the targets that its sender may reach; None is no limit."""

    received_at: datetime
    notifications: tuple[Notification, ...]
    sender: str = ""
    namespaces: tuple[str, ...] | None = None
    receiver: str = ""
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """What is known of one alert: from the first `firing` to a `resolved` not older than it.

    `opened_at` is when this span's first notification was received; a span that re-opens keeps it.
    A firing span with `ends_at` has re-opened after that resolve. `denied_at` is when every Alertmanager
    first said it knows nothing of it; a second read settles that.
    """

    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    firing: bool
    starts_at: datetime
    opened_at: datetime
    last_seen_at: datetime
    ends_at: datetime | None = None
    resolved_received_at: datetime | None = None
    suppressed: bool = False
    denied_at: datetime | None = None
    generator_url: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """A trigger's time of firing on one target, whatever the number of alerts. Steps are counted by its id."""

    id: str
    trigger: str
    started_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """What is about to be written, stored before it is written.

    `manager` is the field manager of `spec.replicas` as read with `resource_version` and `generation`.
    `episode` is charged a step when the intent is found applied; None for a pin.
    """

    id: str
    uid: str
    from_replicas: int
    to_replicas: int
    resource_version: str
    generation: int
    manager: str
    decided_at: datetime
    reason: Reason
    message: str
    policy: str = ""
    trigger: str = ""
    episode: str | None = None
    override: str | None = None
    alerts: tuple[str, ...] = ()

    @property
    def direction(self) -> Direction:
        return Direction.UP if self.to_replicas > self.from_replicas else Direction.DOWN


@dataclass(frozen=True, slots=True)
class Change:
    """A change of ours that took effect, dated from its decision."""

    at: datetime
    from_replicas: int
    to_replicas: int
    intent: str = ""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A step of the recommendation as a function of time: in force until the next one.

    None is "what is there": nothing asks for another number.
    """

    at: datetime
    replicas: int | None


@dataclass(frozen=True, slots=True)
class Ledger:
    """What limits look back on. Dry run keeps one of its own beside the real one."""

    steps: Mapping[str, int] = field(default_factory=dict)
    """Steps taken, by episode id."""
    changes: tuple[Change, ...] = ()
    """Our own changes within the longest rate period."""
    recommendations: tuple[Recommendation, ...] = ()
    """Within the longest stabilization window, and the one in force at its start."""
    last_up_at: datetime | None = None
    last_down_at: datetime | None = None
    last_up_to: int | None = None
    """Replicas that our last scale-up asked for."""


@dataclass(frozen=True, slots=True)
class Reverts:
    """Writes of ours that another field manager undid, and the count that it put back."""

    count: int
    last_at: datetime
    manager: str
    until: datetime | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The last permanent or lasting error on a target, and when to try again."""

    reason: Reason
    message: str
    since: datetime
    retry_at: datetime
    attempts: int = 1
    generation: int | None = None
    """The target's when a write failed, since a change of it is reason to try again; None: it could not be read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The last decision that history has: kept to record changes and not looks."""

    at: datetime
    current: int
    desired: int
    reason: Reason
    message: str
    policy: str = ""
    look_again_at: datetime | None = None
    override: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """All that is kept of one target. `replicas` is `spec.replicas` as last written or seen."""

    target: TargetRef
    uid: str = ""
    replicas: int | None = None
    manager: str = ""
    alerts: Mapping[str, Span] = field(default_factory=dict)
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    """By `policy/trigger`: two policies may use one name."""
    ledger: Ledger = field(default_factory=Ledger)
    shadow: Ledger = field(default_factory=Ledger)
    """The dry run's ledger."""
    intent: Intent | None = None
    outstanding: Intent | None = None
    """Closed as abandoned while its write could still land."""
    foreign_at: datetime | None = None
    """When a change that no intent explains was first seen."""
    zero_from: int | None = None
    """The count that a pin of 0 replaced, to return to when it ends."""
    reverts: Reverts | None = None
    failure: Failure | None = None
    verdict: Verdict | None = None
    namespaces: tuple[str, ...] | None = None
    """The namespaces that the senders of these alerts may reach; None is no limit."""
    ready: int | None = None
    pods_known_at: datetime | None = None
    """When `ready` was last found to be another number."""
    missing: Mapping[str, datetime] = field(default_factory=dict)
    """Since when a firing trigger's value cannot be had, by trigger name."""
    annotated: "tuple[Override, ...]" = ()
    """What annotations on it and its namespace said when it was last looked at."""
    unseen: bool = False
    """News of its alerts was kept that no look has considered: whoever acts next has to, for that wish is not lost
    with the process that had it."""

    @property
    def open_intents(self) -> tuple[Intent, ...]:
        """Those whose write may have landed, or may yet."""
        return tuple(intent for intent in (self.intent, self.outstanding) if intent is not None)


@dataclass(frozen=True, slots=True)
class Workload:
    """A target and its scale at one resourceVersion. `manager` holds `spec.replicas`."""

    uid: str
    generation: int
    resource_version: str
    replicas: int
    manager: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pods:
    """The target's pods. `unschedulable` wait for GPUs; `missing` says in words for what."""

    ready: int
    total: int = 0
    unschedulable: int = 0
    missing: str = ""
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who else decides the replicas. `known` is False when that could not be read; `owner` names them."""

    known: bool = True
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """A trigger's value when deciding. None with an error that says why there is none; 0.0 is a value."""

    value: float | None
    at: datetime
    error: str = ""


@dataclass(frozen=True, slots=True)
class ActiveHold:
    """A hold that binds this target: an alert that forbids a direction. `unknown` when it has not been heard of."""

    name: str
    forbid: Direction
    alert: str
    since: datetime
    unknown: bool = False


class OverrideKind(StrEnum):
    PIN = "pin"
    PAUSE = "pause"
    PAUSE_SCALE_UP = "pauseScaleUp"
    PAUSE_SCALE_DOWN = "pauseScaleDown"
    BOUNDS = "bounds"
    FREEZE = "freeze"


@dataclass(frozen=True, slots=True)
class Override:
    """A person's word on one target (`target`) or many (`matchers` over namespace, kind, name, policy).

    With neither it is for all. `source` is "api" or the annotation it came from.
    """

    id: str
    kind: OverrideKind
    created_by: str
    comment: str
    created_at: datetime
    starts_at: datetime
    ends_at: datetime
    target: str = ""
    """A target key."""
    matchers: tuple[str, ...] = ()
    """In Alertmanager's syntax, over namespace, kind, name and policy."""
    replicas: int | None = None
    force: bool = False
    min_replicas: int | None = None
    max_replicas: int | None = None
    expired_at: datetime | None = None
    """When it was ended early."""
    source: str = "api"

    @property
    def end(self) -> datetime:
        """When it ends or has ended, early or not."""
        return self.ends_at if self.expired_at is None else min(self.ends_at, self.expired_at)

    def in_force(self, now: datetime) -> bool:
        return self.starts_at <= now < self.end


@dataclass(frozen=True, slots=True)
class Silence:
    """As Alertmanager's: alerts that match all matchers trigger nothing until `ends_at`."""

    id: str
    matchers: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str
    updated_at: datetime

    def in_force(self, now: datetime) -> bool:
        return self.starts_at <= now < self.ends_at


@dataclass(frozen=True, slots=True)
class Budget:
    """Actions left in the running period per direction; None is unlimited. The others: when one is given back."""

    up: int | None = None
    down: int | None = None
    up_until: datetime | None = None
    down_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a decision on one target looks at, besides its record."""

    workload: Workload
    pods: Pods
    ownership: Ownership = Ownership()
    values: Mapping[str, Value] = field(default_factory=dict)
    """By trigger name, for firing triggers that are sized by a value."""
    holds: tuple[ActiveHold, ...] = ()
    overrides: tuple[Override, ...] = ()
    """In force or not, those that are for this target."""
    silences: tuple[Silence, ...] = ()
    freeze: str = ""
    """The policy file's `freeze`, as a sentence; empty when there is none."""
    safe_mode: str = ""
    """Why scale-down is held for want of a heartbeat; empty when it is not."""
    budget: Budget = Budget()
    schedulable: int | None = None
    """More replicas than now that could be placed; None when not asked."""
    scarce: str = ""
    """The extended resources that bound `schedulable`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One link of the chain of reasons: what a rule made of the number it was handed."""

    rule: str
    replicas: int
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about one target now, and why. It acts when `desired` differs from `current`."""

    current: int
    desired: int
    reason: Reason
    message: str
    policy: str = ""
    trigger: str = ""
    episode: str | None = None
    override: str | None = None
    alerts: tuple[str, ...] = ()
    recommendation: int | None = None
    """What the triggers ask for before limits, None for what is there; recorded also while held."""
    missing: tuple[str, ...] = ()
    """Firing triggers whose value could not be had."""
    look_again_at: datetime | None = None
    chain: tuple[Step, ...] = ()
    dry_run: bool = False
    remember: timedelta = timedelta(hours=1)
    """How far back the policy's windows and periods look: what the ledger must keep."""

    @property
    def acts(self) -> bool:
        return self.desired != self.current


class Outcome(StrEnum):
    """What became of a write."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    UNCERTAIN = "uncertain"
    GONE = "gone"
    ABANDONED = "abandoned"
    FAILED = "failed"
    DRY_RUN = "dry_run"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of history: a change of (desired, reason), or what became of an intent."""

    at: datetime
    target: str
    current: int
    desired: int
    reason: Reason
    message: str
    policy: str = ""
    trigger: str = ""
    alerts: tuple[str, ...] = ()
    intent: str = ""
    outcome: Outcome | None = None
    dry_run: bool = False
    look_again_at: datetime | None = None
    alert_started_at: datetime | None = None
    """The earliest startsAt among the alerts, for an intent's outcome."""
    inputs: Mapping[str, object] = field(default_factory=dict)
    """What a replay needs to decide this again."""

    @property
    def direction(self) -> Direction | None:
        """None where nothing was to change."""
        if self.desired == self.current:
            return None
        return Direction.UP if self.desired > self.current else Direction.DOWN


@dataclass(frozen=True, slots=True)
class Commit:
    """Changes that the store makes together. Versions are those read; 0 creates. Raises Conflict as one."""

    records: tuple[tuple[Record, int], ...] = ()
    forgotten: tuple[tuple[str, int], ...] = ()
    """Target keys to remove, with the versions read."""
    standing: tuple[Span, ...] = ()
    """Alerts without a target of their own to keep (holds, heartbeats), by fingerprint."""
    standing_gone: tuple[str, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    drained: tuple[str, ...] = ()
    """Ids of inbox deliveries that are folded in."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A person's change: who, when, from where, what before, what after, why."""

    at: datetime
    who: str
    address: str
    action: str
    subject: str
    before: str = ""
    after: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class StandingAlert:
    """An alert as Alertmanager's API has it now. `state` is active, suppressed or unprocessed.

    `ends_at` of a firing alert is when it would end unless Prometheus sends it again.
    """

    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: datetime
    ends_at: datetime
    state: str
    receivers: tuple[str, ...] = ()
    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()
    generator_url: str = ""


@dataclass(frozen=True, slots=True)
class AlertmanagerReading:
    """What one Alertmanager says stands at `read_at`. With an `error` it says nothing at all.

    `up_since` matters because Alertmanager keeps no alerts across a restart.
    """

    url: str
    read_at: datetime
    up_since: datetime | None = None
    alerts: tuple[StandingAlert, ...] = ()
    error: str = ""
