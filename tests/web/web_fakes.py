"""A store and a policy source in memory, and the application around them."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from flask import Flask

from responder import config
from responder.errors import ConfigError, StoreUnavailable
from responder.model import AuditEntry, Delivery, Override, Span
from responder.policy import Settings
from responder.store import Status, Summary
from responder.web.app import Services, create_app
from responder.web.auth import Access

POLICIES = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
cluster: prod-eu
heartbeat: {matchers: ['alertname="Watchdog"'], timeoutSeconds: 600}
holds:
- {name: hot, matchers: ['action="hold"', 'workload!=""'], forbid: Down, equal: [namespace, workload]}
- {name: blind, matchers: ['action="hold"', 'scope="node"'], forbid: Down, equal: [node]}
policies:
- name: inference
  matchers: ['workload_type="deployment"']
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    namespace: '{{ $labels.namespace }}'
    name: '{{ $labels.workload }}'
  minReplicas: 1
  maxReplicas: 8
  triggers:
  - name: up
    matchers: ['action="scale_up"']
    scale: {direction: Up, type: Pods, value: 1}
"""
SETTINGS = config.loads(POLICIES)


@dataclass
class FakeStore:
    """Keeps what it is given; `broken` is why it does not."""

    broken: str = ""
    deliveries: list[Delivery] = field(default_factory=list)
    spans: tuple[Span, ...] = ()
    people: tuple[Override, ...] = ()
    told: Summary = field(default_factory=lambda: Summary(0, 0, (), (), 0))
    rung: int = 0
    left: dict[str, Status] = field(default_factory=dict)
    audited: list[AuditEntry] = field(default_factory=list)

    def append(self, delivery: Delivery) -> None:
        self._check()
        self.deliveries.append(delivery)

    def summary(self, now: datetime, alert_timeout: timedelta) -> Summary:
        self._check()
        return self.told

    def standing(self) -> tuple[Span, ...]:
        self._check()
        return self.spans

    def overrides(self, include_ended: bool = False) -> tuple[Override, ...]:
        self._check()
        return self.people

    def statuses(self) -> dict[str, Status]:
        self._check()
        return self.left

    def audit(self, entry: AuditEntry) -> None:
        self._check()
        self.audited.append(entry)

    def ready(self) -> str:
        return self.broken

    def ring(self) -> None:
        self.rung += 1

    def _check(self) -> None:
        if self.broken:
            raise StoreUnavailable(self.broken)


@dataclass
class FakeSource:
    """The policies above; `error` is why a newer file is not in force."""

    current: Settings = SETTINGS
    error: str = ""
    reloads: int = 0

    def reload(self) -> None:
        self.reloads += 1
        if self.error:
            raise ConfigError(self.error)


@dataclass
class Draining:
    now: bool = False

    def __call__(self) -> bool:
        return self.now


def make_app(
    store: FakeStore | None = None,
    source: FakeSource | None = None,
    access: Access | None = None,
    draining: Draining | None = None,
) -> Flask:
    services = Services(
        store=store or FakeStore(),
        source=source or FakeSource(),
        access=access or Access(None),
        draining=draining or Draining(),
    )
    return create_app(services)
