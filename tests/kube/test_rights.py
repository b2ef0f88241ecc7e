"""Rights: what a policy file needs, and that it is enough on a server that enforces it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from responder.config import loads
from responder.kube import Access, KubeCluster, Right
from responder.kube.rights import missing_role, rights_needed
from responder.model import Commit, Delivery, Record, TargetRef
from responder.sim.auth import ADMIN, Rule, User
from responder.sim.objects import ObjectStore
from responder.sim.server import SimServer
from responder.store.kubernetes import KubernetesStore

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
allowedNamespaces: [inference]
policies:
- name: all
  matchers: ['action!=""']
  scaleTargetRef: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, namespace: '{{ $labels.namespace }}', name: x}
  maxReplicas: 8
  triggers:
  - name: up
    matchers: ['action="scale_up"']
    scale: {direction: Up, type: Pods, value: 1}
"""
NODES = """
apiVersion: gpu-responder.io/v1alpha1
kind: ResponderPolicy
policies:
- name: faults
  matchers: ['node!=""']
  triggers: [{name: lost, matchers: ['a="b"'], node: {action: Cordon}}]
"""


@dataclass(frozen=True)
class Options:
    store: str = ""


def words(text: str, store: str = "") -> list[str]:
    return [str(right) for right in rights_needed(loads(text), Options(store))]


def test_of_a_policy_with_a_target() -> None:
    """The target's kind and its scale, and what is read around it, in the namespace that is allowed."""
    assert words(POLICY) == [
        "create events in inference",
        "get namespaces in inference",
        "get rollouts.argoproj.io in inference",
        "get rollouts/scale.argoproj.io in inference",
        "list pods in inference",
        "list rollouts.argoproj.io in inference",
        "list horizontalpodautoscalers.autoscaling in inference",
        "patch events in inference",
        "update rollouts/scale.argoproj.io in inference",
        "watch pods in inference",
        "watch rollouts.argoproj.io in inference",
        "watch horizontalpodautoscalers.autoscaling in inference",
    ]


@pytest.mark.parametrize(
    ("change", "more"),
    [
        pytest.param(
            ("[inference]", "['team-*']"), "get rollouts.argoproj.io in all namespaces", id="globs are all"
        ),
        pytest.param(
            ("  maxReplicas", "  capacity: Clip\n  maxReplicas"),
            "list nodes in all namespaces",
            id="capacity: nodes",
        ),
        pytest.param(
            ("  maxReplicas", "  capacity: Clip\n  maxReplicas"),
            "list pods in all namespaces",
            id="capacity: all pods",
        ),
    ],
)
def test_grow_with_the_file(change: tuple[str, str], more: str) -> None:
    """Each feature brings its own rights and no others do."""
    assert more not in words(POLICY)
    assert more in words(POLICY.replace(*change))


def test_of_nodes_only() -> None:
    """Who acts on nodes alone needs no right on any workload."""
    assert words(NODES) == [f"{verb} nodes in all namespaces" for verb in ("get", "list", "patch", "watch")]


def test_the_missing_role() -> None:
    """Only what is denied, as a Role that can be applied; nothing when all is there."""
    denied = [
        Access(Right(verb, "apps", "deployments", "scale", "inference"), False) for verb in ("get", "update")
    ]
    denied += [
        Access(Right("list", "", "nodes"), False),
        Access(Right("get", "", "pods", "", "inference"), True),
    ]
    cluster_role, role = yaml.safe_load_all(missing_role(denied))
    assert (cluster_role["kind"], cluster_role["rules"]) == (
        "ClusterRole",
        [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
    )
    assert role["metadata"] == {"name": "gpu-responder", "namespace": "inference"}
    assert role["rules"] == [
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "update"]}
    ]
    assert missing_role([replace(each, allowed=True) for each in denied]) == ""


@pytest.fixture
def server() -> Iterator[SimServer]:
    objects = ObjectStore()
    with SimServer(objects, tokens={"admin": ADMIN}) as started:
        objects.create(
            "namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu"}},
            manager="test",
        )
        yield started


def grant(server: SimServer, rights: list[Right]) -> None:
    rules = tuple(
        Rule(
            (right.verb,),
            (right.group,),
            (f"{right.resource}/{right.subresource}" if right.subresource else right.resource,),
        )
        for right in rights
    )
    server.grant("limited", User("limited", rules=rules))


def test_the_stores_rights_are_enough(server: SimServer, tmp_path: Path) -> None:
    """Everything that the store does works with them, and the server denies whatever is not among them."""
    rights = [right for right in rights_needed(loads(NODES), Options("kubernetes:gpu")) if right.namespace]
    grant(server, rights)
    kubeconfig = str(server.kubeconfig(tmp_path / "limited", "limited"))
    store = KubernetesStore("gpu", kubeconfig, "c")
    try:
        assert store.lease("actor", "a/1/1", timedelta(seconds=10), NOW)
        assert store.lease("actor", "a/1/1", timedelta(seconds=10), NOW)
        store.append(Delivery(NOW, ()))
        [(identity, _)] = store.inbox(1)
        record = Record(TargetRef("n", "Deployment", "w"))
        store.commit(Commit(records=((record, 0),), drained=(identity,)))
        store.commit(Commit(records=((replace(record, uid="u"), 1),)))
        assert store.wait(60)
        assert len(list(store.records())) == 1
        assert (store.overrides(), store.silences(), store.standing()) == ((), (), ())
        assert store.ready() == ""
        store.release("actor", "a/1/1")
    finally:
        store.close()
    cluster = KubeCluster(kubeconfig)
    try:
        assert all(access.allowed for access in cluster.access(rights))
        assert not cluster.access([Right("get", "", "secrets", "", "gpu")])[0].allowed
    finally:
        cluster.close()
    used = {(each["method"], "leases" in each["path"]) for each in server.requests if each["code"] == 403}
    assert not used
