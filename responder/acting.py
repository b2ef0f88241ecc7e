"""The acting process, put together: the actor, its clients, and who is told what it does."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from responder import metrics
from responder.actor import Actor
from responder.alertmanager import AlertmanagerClient
from responder.kube import KubeCluster
from responder.lookup import PodLookup
from responder.model import Failure, HistoryEntry, Intent, Outcome, Record, TargetRef, Workload
from responder.prometheus import PrometheusValues
from responder.settings import SettingsSource
from responder.store.holder import this_process
from responder.store.sqlite import SqliteStore

log = logging.getLogger("responder.decisions")


class Options(Protocol):
    """What of the service's options concerns the clients."""

    @property
    def kubeconfig(self) -> str | None: ...
    @property
    def alertmanager_urls(self) -> tuple[str, ...]: ...
    @property
    def prometheus_urls(self) -> tuple[str, ...]: ...
    @property
    def value_max_age(self) -> float: ...


def build(options: Options, store: SqliteStore, source: SettingsSource, started_at: datetime) -> Actor:
    """The actor of this process. Raises ConfigError when a client cannot be made from the options."""
    cluster = KubeCluster(options.kubeconfig, on_call=_count_call)
    return Actor(
        store,
        cluster,
        PrometheusValues(options.prometheus_urls, fresh=options.value_max_age),
        [AlertmanagerClient(url) for url in options.alertmanager_urls],
        source,
        holder=this_process(),
        observer=Witness(cluster.events),
        started_at=started_at,
        lookup=PodLookup(cluster, store.ring),
    )


def _count_call(method: str, result: str, seconds: float) -> None:  # noqa: ARG001 - the client tells all three
    if result != "ok":
        metrics.api_errors.labels(result).inc()


Tell = Callable[[TargetRef, Workload, str, str, str], None]
"""Records an Event on a target: who, as what, reason, sentence, Normal or Warning."""


class Witness:
    """Logs, counts and tells Kubernetes what has been stored; never asks, never fails."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def recorded(self, entry: HistoryEntry) -> None:
        """A line of history."""
        metrics.decisions.labels(entry.reason.value).inc()
        if entry.outcome is not None:
            metrics.scale_operations.labels(entry.outcome.value).inc()
        log.info(entry.message, extra=_fields(entry))

    def scaled(self, record: Record, intent: Intent, at: datetime) -> None:
        """A write took effect."""
        causes = [record.alerts[alert] for alert in intent.alerts if alert in record.alerts]
        if causes:
            metrics.alert_to_scale.observe(_seconds(min(span.starts_at for span in causes), at))
            metrics.receipt_to_scale.observe(_seconds(max(span.last_seen_at for span in causes), at))
        self._tell(record.target, _known(record), intent.reason.value, intent.message, "Normal")

    def failed(self, target: TargetRef, failure: Failure) -> None:
        """A target cannot be read or written for now."""
        log.warning(
            failure.message,
            extra={
                "target": target.key,
                "reason": failure.reason.value,
                "attempts": failure.attempts,
                "retry_at": failure.retry_at.isoformat(),
            },
        )


def _fields(entry: HistoryEntry) -> Mapping[str, object]:
    fields: dict[str, object] = {
        "target": entry.target,
        "reason": entry.reason.value,
        "current": entry.current,
        "desired": entry.desired,
    }
    if entry.policy:
        fields["policy"] = entry.policy
    if entry.outcome is not None:
        fields |= {"outcome": Outcome(entry.outcome).value, "intent": entry.intent}
    if entry.dry_run:
        fields["dry_run"] = True
    return fields


def _known(record: Record) -> Workload:
    """Enough of the workload to name it in an Event."""
    return Workload(record.uid, 0, "", record.replicas or 0, record.manager)


def _seconds(begin: datetime, end: datetime) -> float:
    """Clocks of several machines take part, so it may come out negative; that is 0."""
    return max(0.0, (end - begin).total_seconds())
