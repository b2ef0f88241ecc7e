"""Cordons on the simulated API server: notes, rivals, dry run, and what history has."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from responder.acting.cordons import Cordons
from responder.config import loads
from responder.errors import StoreUnavailable
from responder.kube import KubeCluster
from responder.kube.connection import Call
from responder.kube.news import Nobody
from responder.model import Commit, HistoryEntry, Reason, Span
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from tests.serving import until

POLICY = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: faults
  matchers: ['alertname="GPUDeviceLost"']
  triggers:
  - name: lost
    matchers: ['node!=""']
    node: {action: Cordon, maxNodes: 1, maxPercent: 50, uncordonAfterSeconds: 600}
"""


class Store:
    """Standing alerts, and what was committed."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.history: list[HistoryEntry] = []
        self.down = False

    def standing(self) -> tuple[Span, ...]:
        return tuple(self.spans)

    def overrides(self) -> tuple[()]:
        return ()

    def silences(self) -> tuple[()]:
        return ()

    def commit(self, commit: Commit) -> None:
        if self.down:
            raise StoreUnavailable("the disk is full")
        self.history += commit.history

    def recorded(self, entry: HistoryEntry) -> None:
        assert entry in self.history, "it is told after it was stored"


class World:
    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster, self.store = cluster, Store()
        self.now = datetime(2026, 11, 30, 12, tzinfo=UTC)
        self.leads = True
        self.settings = loads(POLICY, "policies.yaml")
        self.cordons = Cordons(
            self.store, cluster.nodes, lambda: self.settings, lambda: self.now, lambda: self.leads, self.store
        )

    def fires(self, node: str) -> None:
        labels = {"alertname": "GPUDeviceLost", "node": node}
        self.store.spans = [Span(f"f-{node}", labels, {}, True, self.now, self.now, self.now)]

    def resolves(self) -> None:
        [span] = self.store.spans
        self.store.spans = [_resolved(span, self.now)]

    def reasons(self) -> list[Reason]:
        return [entry.reason for entry in self.store.history]


def _resolved(span: Span, at: datetime) -> Span:
    return replace(span, firing=False, ends_at=at, resolved_received_at=at)


@pytest.fixture
def server() -> Iterator[SimServer]:
    objects = ObjectStore()
    for number in range(4):
        objects.create(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{number}"},
                "spec": {},
                "status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"}},
            },
            manager="kubelet",
        )
    with SimServer(objects) as started:
        yield started


@pytest.fixture
def world(server: SimServer, tmp_path: Path) -> Iterator[World]:
    cluster = KubeCluster(str(server.kubeconfig(tmp_path / "kubeconfig")), timeout=20, deadline=30)
    yield World(cluster)
    cluster.close()


def read(server: SimServer, name: str) -> Any:
    return server.store.entry("nodes", "", name).obj


def patch(world: World, name: str, spec: dict[str, Any], manager: str = "kubectl") -> None:
    call = Call(
        "PATCH",
        f"/api/v1/nodes/{name}",
        "be a person",
        {"fieldManager": manager},
        msgspec.json.encode({"spec": spec}),
        "application/merge-patch+json",
    )
    world.cluster.connection.send(call, msgspec.Raw)


def test_a_fault_from_cordon_to_lift(server: SimServer, world: World) -> None:
    """Cordoned once with a note that says who and why, and lifted without a trace when its time has come."""
    world.fires("n1")
    world.cordons.look()
    world.cordons.look()
    node = read(server, "n1")
    assert node["spec"]["unschedulable"] is True
    note = msgspec.json.decode(node["metadata"]["annotations"]["gpu-responder.io/cordoned"])
    assert (note["by"], note["trigger"]) == ("gpu-responder", "lost")
    assert note["message"] == "Cordoning node n1: GPUDeviceLost fires on node n1."
    assert [entry.target for entry in world.store.history] == ["/node/n1"]
    world.resolves()
    world.now += timedelta(seconds=599)
    world.cordons.look()
    assert read(server, "n1")["spec"].get("unschedulable")
    world.now += timedelta(seconds=2)
    world.cordons.look()
    after = read(server, "n1")
    assert not after["spec"].get("unschedulable")
    assert "gpu-responder.io/cordoned" not in after["metadata"].get("annotations", {})
    assert world.reasons() == [Reason.CORDONED, Reason.UNCORDONED]


def test_a_person_goes_first(server: SimServer, world: World) -> None:
    """A person's uncordon stands, and the cordon that they make then is theirs for good."""
    world.fires("n1")
    world.cordons.look()
    patch(world, "n1", {"unschedulable": None})
    world.cordons.look()
    assert not read(server, "n1")["spec"].get("unschedulable")
    patch(world, "n1", {"unschedulable": True})
    world.resolves()
    world.now += timedelta(hours=2)
    world.cordons.look()
    assert read(server, "n1")["spec"]["unschedulable"] is True
    assert world.reasons() == [Reason.CORDONED]


def test_limits_are_told_once(server: SimServer, world: World) -> None:
    """A second fault waits, and history says so once, not at every look."""
    world.fires("n1")
    world.cordons.look()
    first = world.store.spans
    world.fires("n2")
    world.store.spans = [*first, *world.store.spans]
    for _ in range(3):
        world.cordons.look()
    assert not read(server, "n2")["spec"].get("unschedulable")
    assert world.reasons() == [Reason.CORDONED, Reason.CORDON_LIMITED]


def test_a_cordon_that_history_could_not_take_is_told_later(server: SimServer, world: World) -> None:
    """The node is cordoned already when the store is down for a moment, and somebody will ask who did it."""
    world.store.down = True
    world.fires("n1")
    with pytest.raises(StoreUnavailable):
        world.cordons.look()
    assert read(server, "n1")["spec"]["unschedulable"]
    world.store.down = False
    world.cordons.look()
    assert world.reasons() == [Reason.CORDONED]


def test_a_dry_run_changes_nothing(server: SimServer, world: World) -> None:
    """The server checks it, history has it once, and the node is as it was."""
    world.settings = loads(POLICY.replace("policies:", "dryRun: true\npolicies:", 1), "policies.yaml")
    world.fires("n1")
    for _ in range(3):
        world.cordons.look()
    assert not read(server, "n1")["spec"].get("unschedulable")
    assert [(entry.reason, entry.dry_run) for entry in world.store.history] == [(Reason.CORDONED, True)]
    assert [r["query"].get("dryRun") for r in server.requests if r["method"] == "PATCH"] == ["All"]


def test_who_does_not_lead_writes_nothing(server: SimServer, world: World) -> None:
    """The lease's fence is asked before each node."""
    world.leads = False
    world.fires("n1")
    world.cordons.look()
    assert not [r for r in server.requests if r["method"] == "PATCH"]
    assert world.store.history == []


def test_a_rival_write_is_looked_at_anew(server: SimServer, world: World) -> None:
    """A node that changed since it was read is not written; the next look sees what is there."""
    world.fires("n1")
    server.faults.set([{"methods": ["PATCH"], "fault": "status", "status": 409, "times": 1}])
    world.cordons.look()
    assert world.store.history == []
    world.cordons.look()
    assert world.reasons() == [Reason.CORDONED]


def test_without_such_triggers_nothing_is_asked(server: SimServer, world: World) -> None:
    """Off by default: a policy file without node triggers costs no request and needs no right."""
    world.settings = loads(
        POLICY.replace(
            "node: {action: Cordon, maxNodes: 1, maxPercent: 50, uncordonAfterSeconds: 600}",
            "scale: {direction: Up, type: Pods, value: 1}",
        ).replace("  triggers:", "  maxReplicas: 2\n  triggers:"),
        "policies.yaml",
    )
    world.fires("n1")
    world.cordons.look()
    assert not list(server.requests)


def test_the_pool_is_counted_from_the_watch(server: SimServer, world: World) -> None:
    """While nodes are kept current, counting them costs no request, and limits hold as they do without."""
    world.cluster.keep_current()
    end = time.monotonic() + 60
    while world.cluster._mirrors.nodes() is None:  # type: ignore[union-attr]
        assert time.monotonic() < end
        time.sleep(0.01)
    world.settings = loads(POLICY.replace("maxPercent: 50", "maxPercent: 20"), "policies.yaml")
    server.requests.clear()
    world.fires("n1")
    world.cordons.look()
    assert world.reasons() == [Reason.CORDON_LIMITED]
    assert "1 of the 4 nodes" in world.store.history[0].message
    asked = [
        each["path"]
        for each in server.requests
        if "/nodes" in each["path"] and not each["query"].keys() & {"labelSelector", "watch"}
    ]
    assert asked == ["/api/v1/nodes/n1"]


class Notes(Nobody):
    """Looks at once when it is told, as the actor's thread does a moment later."""

    def __init__(self, world: World) -> None:
        self._world = world

    def cordon_lifted(self) -> None:
        self._world.cordons.look()


def test_a_person_who_lifts_our_cordon_may_make_their_own_at_once(server: SimServer, world: World) -> None:
    """The watch tells of the first, so that the second is not taken for ours and lifted."""
    world.fires("n1")
    world.cordons.look()
    world.cluster.keep_current(Notes(world))
    # What was lifted before the watch began is no news of it.
    until(lambda: world.cluster._mirrors.nodes() is not None, what="the watch is current")  # type: ignore[union-attr]
    patch(world, "n1", {"unschedulable": None})
    until(lambda: "lifted by a person" in str(read(server, "n1")["metadata"]), what="the note says so")
    patch(world, "n1", {"unschedulable": True})
    world.resolves()
    world.now += timedelta(seconds=601)
    world.cordons.look()
    assert read(server, "n1")["spec"]["unschedulable"] is True


def test_a_label_that_names_no_node_is_not_asked_for(server: SimServer, world: World) -> None:
    """Not even where it would lead to something else that this service may read; the others' faults go on."""
    asked = len(server.requests)
    assert world.cluster.nodes.read(["../namespaces/default", "10.0.0.1:9400", "", "a?b"]) == {}
    assert len(server.requests) == asked
