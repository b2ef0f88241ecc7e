"""The service's own metrics: counted where things happen, or read from the store when scraped.

Names are part of the interface: docs/operations.md lists them. Several processes count into files of one
folder (`use_folder`), and whichever is scraped adds them up.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, multiprocess, values
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from responder.errors import StoreUnavailable
from responder.matchers import all_match
from responder.model import Override, Reason, Span
from responder.policy import Settings
from responder.store import Summary

registry = CollectorRegistry()

_SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def use_folder(folder: Path, slot: str) -> None:
    """Count into files of `folder` under this name, which no other running process has.

    To be called before anything is counted, so first thing in a process.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
    _define()


def _define() -> None:
    """Make the metrics anew, on the kind of value that is in use."""
    global registry, deliveries, alerts, decisions, scale_operations, auth_failures, api_errors  # noqa: PLW0603
    global alert_to_scale, receipt_to_scale, webhook_duration  # noqa: PLW0603
    registry = CollectorRegistry()
    deliveries = Counter(
        "gpu_responder_deliveries",
        "Webhook deliveries, by result: accepted, partial, rejected, unavailable.",
        ["result"],
        registry=registry,
    )
    alerts = Counter(
        "gpu_responder_alerts",
        "Alerts delivered, by result: accepted, unclaimed (no policy, hold or heartbeat takes it), rejected.",
        ["result"],
        registry=registry,
    )
    decisions = Counter(
        "gpu_responder_decisions", "Decisions that history records, by reason.", ["reason"], registry=registry
    )
    scale_operations = Counter(
        "gpu_responder_scale_operations", "Writes of a scale, by outcome.", ["outcome"], registry=registry
    )
    auth_failures = Counter(
        "gpu_responder_auth_failures", "Requests refused for their credentials or host.", registry=registry
    )
    api_errors = Counter(
        "gpu_responder_api_errors",
        "Requests to the Kubernetes API that failed, by kind.",
        ["kind"],
        registry=registry,
    )
    alert_to_scale = Histogram(
        "gpu_responder_alert_to_scale_seconds",
        "From an alert's startsAt to the scale it caused.",
        buckets=_SLOW,
        registry=registry,
    )
    receipt_to_scale = Histogram(
        "gpu_responder_receipt_to_scale_seconds",
        "From the receipt of a delivery to the scale it caused.",
        buckets=_SLOW,
        registry=registry,
    )
    webhook_duration = Histogram(
        "gpu_responder_webhook_duration_seconds",
        "Time taken to answer a webhook delivery.",
        buckets=_FAST,
        registry=registry,
    )


deliveries: Counter
alerts: Counter
decisions: Counter
scale_operations: Counter
auth_failures: Counter
api_errors: Counter
alert_to_scale: Histogram
receipt_to_scale: Histogram
webhook_duration: Histogram
_define()


class State(Protocol):
    """What of the store is told when scraped."""

    def summary(self, now: datetime, alert_timeout: timedelta) -> Summary: ...
    def standing(self) -> tuple[Span, ...]: ...
    def overrides(self, include_ended: bool = False) -> tuple[Override, ...]: ...


class Source(Protocol):
    """The policy file in force; `error` says why a newer one is not."""

    @property
    def current(self) -> Settings: ...
    @property
    def error(self) -> str: ...


SafeMode = Callable[[Settings, Iterable[Span], datetime], str]


def exposition(accept: str, state: State, source: Source, safe_mode: SafeMode) -> tuple[bytes, str]:
    """What a scraper gets: the page and its content type."""
    everything = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        multiprocess.MultiProcessCollector(everything)  # type: ignore[no-untyped-call]
    else:
        everything.register(_Registered(registry))
    everything.register(_StateCollector(state, source, safe_mode, datetime.now(UTC)))
    encoder, content_type = choose_encoder(accept)
    return encoder(everything), content_type


class _Registered(Collector):
    def __init__(self, inner: CollectorRegistry) -> None:
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        return iter(self._inner.collect())


class _StateCollector(Collector):
    """Gauges computed from the store, the same whichever process answers."""

    def __init__(self, state: State, source: Source, safe_mode: SafeMode, now: datetime) -> None:
        self._state = state
        self._source = source
        self._safe_mode = safe_mode
        self._now = now

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        settings = self._source.current
        valid = not self._source.error
        yield _gauge("policy_valid", "1 while the policy file in force is the newest.", valid)
        try:
            summary = self._state.summary(self._now, settings.timing.alert_timeout)
            standing = self._state.standing()
            overrides = [each for each in self._state.overrides() if each.in_force(self._now)]
        except StoreUnavailable:
            yield _gauge("store_up", "1 while the store can be read.", 0)
            return
        yield _gauge("store_up", "1 while the store can be read.", 1)
        yield from self._of_records(summary)
        yield from self._of_heartbeat(settings, standing)
        yield from _of_overrides(overrides)

    def _of_records(self, summary: Summary) -> Iterator[Metric]:
        yield _gauge("inbox_deliveries", "Deliveries taken in and not yet looked at.", summary.inbox)
        yield _gauge("targets", "Targets with a record.", summary.records)
        yield _gauge("pending_intents", "Scale writes whose outcome is not known yet.", len(summary.pending))
        ages = [(self._now - decided_at).total_seconds() for _, decided_at in summary.pending]
        oldest = max(ages, default=0)
        yield _gauge("pending_intent_age_seconds", "Age of the oldest pending intent; 0 without one.", oldest)
        yield _gauge("unknown_alerts", "Firing alerts not heard of for too long.", summary.unknown_alerts)
        at_max = GaugeMetricFamily(
            "gpu_responder_target_at_max",
            "1 for each target that maxReplicas keeps from being scaled up.",
            labels=["namespace", "kind", "name"],
        )
        held = GaugeMetricFamily(
            "gpu_responder_target_held",
            "1 for each target that is held though something asks, with the reason of its last decision.",
            labels=["namespace", "kind", "name", "reason"],
        )
        for key, reason in summary.held:
            held.add_metric([*key.split("/", 2), reason], 1)
            if reason == Reason.AT_MAX_REPLICAS:
                at_max.add_metric(key.split("/", 2), 1)
        yield at_max
        yield held

    def _of_heartbeat(self, settings: Settings, standing: tuple[Span, ...]) -> Iterator[Metric]:
        heartbeat = settings.heartbeat
        if heartbeat is not None:
            heard = [span.last_seen_at for span in standing if all_match(heartbeat.matchers, span.labels)]
            if heard:
                age = (self._now - max(heard)).total_seconds()
                yield _gauge("heartbeat_age_seconds", "Since the heartbeat alert was last heard of.", age)
        why = self._safe_mode(settings, standing, self._now)
        yield _gauge("safe_mode", "1 while scale-down is held for want of a heartbeat.", bool(why))


def _of_overrides(overrides: list[Override]) -> Iterator[Metric]:
    active = GaugeMetricFamily(
        "gpu_responder_active_overrides", "Overrides in force, by kind.", labels=["kind"]
    )
    for kind in sorted({override.kind for override in overrides}):
        active.add_metric([kind], sum(override.kind == kind for override in overrides))
    yield active
    ends = GaugeMetricFamily(
        "gpu_responder_override_ends_timestamp_seconds",
        "When each override in force ends, in seconds since 1970.",
        labels=["id", "kind", "target"],
    )
    for override in overrides:
        ends.add_metric([override.id, override.kind, override.target], override.ends_at.timestamp())
    yield ends


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gpu_responder_{name}", help_text, value=float(value))
