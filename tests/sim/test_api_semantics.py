"""Answers of the simulated API beyond the recordings: what the real server is known to say and do."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responder.sim import managed_fields
from responder.sim.api import Api
from responder.sim.auth import ADMIN, User
from responder.sim.faults import Faults
from responder.sim.objects import Conflict, Expired, ObjectStore
from responder.sim.patches import PatchError, json_patch, merge_patch, strategic_merge
from responder.sim.requests import Request, go_json_error
from responder.sim.selectors import SelectorError, parse_labels

Object = dict[str, Any]
TEAM = "/api/v1/namespaces/team"
APPS = "/apis/apps/v1/namespaces/team"
POD_SPEC: Object = {"containers": [{"name": "c", "image": "x"}]}
LABELS = {"app": "a"}
TEMPLATE: Object = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
WORKLOAD: Object = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}


class Caller:
    """Asks an Api without sockets."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        content: str = "",
        token: str = "admin",
        manager: str = "me",
    ) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        pairs = dict(pair.split("=", 1) for pair in query.split("&") if pair)
        kind = {"PATCH": "application/merge-patch+json"}.get(method, "application/json")
        headers = {
            "authorization": f"Bearer {token}",
            "content-type": content or kind,
            "user-agent": f"{manager}/1",
        }
        raw = (
            body.encode() if isinstance(body, str) else json.dumps(body).encode() if body is not None else b""
        )
        answer = self.api.handle(Request(method, path, pairs, headers, raw))
        return answer.code, json.loads(answer.body) if answer.body else None


@pytest.fixture
def ask() -> Caller:
    """An API with the namespace team, a ConfigMap and a Deployment in it."""
    api = Api(ObjectStore(), {"admin": ADMIN, "nobody": User("nobody")})
    ask = Caller(api)
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert ask("POST", f"{TEAM}/configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})[0] == 201
    spec = {**WORKLOAD, "replicas": 2}
    assert ask("POST", f"{APPS}/deployments", {"metadata": {"name": "d"}, "spec": spec})[0] == 201
    return ask


REFUSALS: dict[str, tuple[str, str, Any, int, str]] = {
    "a namespace that is not there": (
        "POST",
        "/api/v1/namespaces/absent/configmaps",
        {"metadata": {"name": "x"}},
        404,
        'namespaces "absent" not found',
    ),
    "another namespace in the body": (
        "POST",
        f"{TEAM}/configmaps",
        {"metadata": {"name": "x", "namespace": "other"}},
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
    "no name": (
        "POST",
        f"{TEAM}/secrets",
        {},
        422,
        'Secret "" is invalid: metadata.name: Required value: name or generateName is required',
    ),
    "another version in the body": (
        "POST",
        f"{TEAM}/configmaps",
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}},
        400,
        "the API version in the data (apps/v1) does not match the expected API version (v1)",
    ),
    "a number where a string belongs": (
        "POST",
        f"{TEAM}/configmaps",
        {"metadata": {"name": "x"}, "data": {"a": 1}},
        400,
        (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct'
            " field ConfigMap.data of type string"
        ),
    ),
    "a string for replicas of a Deployment": (
        "POST",
        f"{APPS}/deployments",
        {"metadata": {"name": "x"}, "spec": {"replicas": "2"}},
        400,
        (
            'Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct'
            " field DeploymentSpec.spec.replicas of type int32"
        ),
    ),
    "replicas beyond 32 bits": (
        "PUT",
        f"{APPS}/deployments/d/scale",
        {"metadata": {"name": "d"}, "spec": {"replicas": 3_000_000_000}},
        400,
        (
            'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal number 3000000000'
            " into Go struct field ScaleSpec.spec.replicas of type int32"
        ),
    ),
    "an unknown field, strictly": (
        "POST",
        f"{APPS}/deployments?fieldValidation=Strict",
        {"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": [{"nam": "c"}]}}}},
        400,
        (
            'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field'
            ' "spec.template.spec.containers[0].nam"'
        ),
    ),
    "a selector that its template does not match": (
        "POST",
        f"{APPS}/statefulsets",
        {"metadata": {"name": "x"}, "spec": {**WORKLOAD, "selector": {"matchLabels": {"app": "b"}}}},
        422,
        (
            'StatefulSet.apps "x" is invalid: spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector`'
            " does not match template `labels`"
        ),
    ),
    "a changed selector": (
        "PATCH",
        f"{APPS}/deployments/d",
        {"spec": {"selector": {"matchLabels": {"b": "c"}}, "template": {"metadata": {"labels": {"b": "c"}}}}},
        422,
        (
            'Deployment.apps "d" is invalid: spec.selector: Invalid value: {"matchLabels":{"app":"a","b":"c"}}: field'
            " is immutable"
        ),
    ),
    "replicas below zero in the object": (
        "PATCH",
        f"{APPS}/deployments/d",
        {"spec": {"replicas": -1}},
        422,
        'Deployment.apps "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
    ),
    "a bad label": (
        "PATCH",
        f"{TEAM}/configmaps/c",
        {"metadata": {"labels": {"a": "-"}}},
        422,
        "a valid label must be an empty string or consist of alphanumeric characters",
    ),
    "a lease of no time": (
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/team/leases/l",
        {"metadata": {"name": "l", "uid": "x"}, "spec": {"leaseDurationSeconds": 0}},
        422,
        'Lease.coordination.k8s.io "l" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0',
    ),
    "the wrong uid": (
        "PUT",
        f"{APPS}/deployments/d/scale",
        {"metadata": {"name": "d", "uid": "wrong"}, "spec": {"replicas": 3}},
        409,
        "Precondition failed: UID in precondition: wrong, UID in object meta: ",
    ),
    "a delete of the wrong uid": (
        "DELETE",
        f"{TEAM}/configmaps/c",
        {"preconditions": {"uid": "wrong"}},
        409,
        "the UID in the precondition (wrong) does not match the UID in record",
    ),
    "a broken patch": ("PATCH", f"{TEAM}/configmaps/c", "{", 400, "unexpected end of JSON input"),
    "a body that is no object": (
        "POST",
        f"{TEAM}/configmaps",
        "[]",
        400,
        "cannot unmarshal array into Go value",
    ),
    "an empty body": ("POST", f"{TEAM}/configmaps", "", 400, "unexpected end of JSON input (<empty>)"),
    "a subresource that a kind lacks": (
        "GET",
        f"{TEAM}/configmaps/c/scale",
        None,
        404,
        "the server could not find the requested resource",
    ),
    "a kind that a group lacks": (
        "GET",
        "/apis/apps/v1/namespaces/team/gadgets",
        None,
        404,
        "the server could not find the requested resource",
    ),
    "a method that a collection lacks": (
        "PATCH",
        f"{TEAM}/configmaps",
        {},
        405,
        "the server does not allow this method on the requested resource",
    ),
    "a selector that is none": (
        "GET",
        f"{TEAM}/configmaps?labelSelector=a~b",
        None,
        400,
        "unable to parse requirement",
    ),
    "a page size that is none": ("GET", f"{TEAM}/configmaps?limit=x", None, 400, "invalid syntax"),
    "a token that nobody gave out": (
        "GET",
        f"{TEAM}/configmaps?continue=x",
        None,
        400,
        "continue key is not valid",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(ask: Caller, name: str) -> None:
    """Each is refused with the real server's code and words, and nothing is written."""
    method, path, body, code, told = REFUSALS[name]
    version = ask.api.store.version
    found, answer = ask(method, path, body)
    assert (found, answer["code"], told in answer["message"]) == (code, code, True), answer
    assert ask.api.store.version == version


def test_nobody_may_nothing(ask: Caller) -> None:
    """Rights are checked before existence; lists say the scope."""
    _, answer = ask("GET", "/api/v1/nodes", token="nobody")
    told = (
        'nodes is forbidden: User "nobody" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    assert (answer["message"], answer["details"]) == (told, {"kind": "nodes"})
    assert ask("GET", "/apis/nope.io/v1/things", token="nobody")[0] == 403
    assert ask("GET", "/apis/apps/v1", token="nobody")[0] == 200
    assert ask("GET", "/metrics", token="nobody")[1]["message"] == (
        'forbidden: User "nobody" cannot get path "/metrics"'
    )


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"{APPS}/replicasets", {"spec": WORKLOAD}, {"replicas": 0}),
        (f"{APPS}/statefulsets", {"spec": WORKLOAD}, {"replicas": 0, "availableReplicas": 0}),
        (f"{APPS}/deployments", {"spec": WORKLOAD}, {}),
        (f"{TEAM}/pods", {"spec": POD_SPEC}, {"phase": "Pending", "qosClass": "BestEffort"}),
    ],
    ids=["ReplicaSet", "StatefulSet", "Deployment", "Pod"],
)
def test_a_new_object_has_defaults_and_no_status_of_its_creators(
    ask: Caller, path: str, body: Object, status: Object
) -> None:
    """What the creator says of status is dropped, one replica is the default, generation starts at 1."""
    code, made = ask("POST", path, {"metadata": {"generateName": "x-"}, "status": {"replicas": 7}, **body})
    assert (code, made["status"], made["metadata"]["generation"]) == (201, status, 1)
    assert made["metadata"]["name"].startswith("x-")
    assert made["spec"].get("replicas", 1) == 1
    _, after = ask(
        "PATCH", f"{path}/{made['metadata']['name']}", {"status": {"phase": "Failed", "replicas": 7}}
    )
    assert after["status"] == status


def test_zeros_that_go_leaves_out(ask: Caller) -> None:
    """status.readyReplicas 0 and unschedulable false are absent when read; replicas 0 of the object is there."""
    ask("PATCH", f"{APPS}/deployments/d/status", {"status": {"replicas": 1, "readyReplicas": 0}})
    ask("PATCH", f"{APPS}/deployments/d", {"spec": {"replicas": 0}})
    _, seen = ask("GET", f"{APPS}/deployments/d")
    assert (seen["status"], seen["spec"]["replicas"]) == ({"replicas": 1}, 0)
    ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"unschedulable": True}})
    _, node = ask("PATCH", "/api/v1/nodes/n", {"spec": {"unschedulable": False}})
    assert "unschedulable" not in node["spec"]


def test_generation_moves_with_the_spec(ask: Caller) -> None:
    """A label does not move it, a status neither; a Deployment's annotation does, as in the real server."""

    def generation(subresource: str, patch: Object) -> int:
        ask("PATCH", f"{APPS}/deployments/d{subresource}", patch)
        return int(ask("GET", f"{APPS}/deployments/d")[1]["metadata"]["generation"])

    assert generation("", {"metadata": {"labels": {"a": "b"}}}) == 1
    assert generation("/status", {"status": {"replicas": 2}}) == 1
    assert generation("", {"metadata": {"annotations": {"a": "b"}}}) == 2
    assert generation("/scale", {"spec": {"replicas": 5}}) == 3


@pytest.mark.parametrize("value", ["Foo", "all", "true", ""])
def test_a_dry_run_of_another_kind_is_refused_and_writes_nothing(ask: Caller, value: str) -> None:
    """Who asks for a rehearsal in the wrong words must not get the performance."""
    status, answer = ask("POST", f"{TEAM}/configmaps?dryRun={value}", {"metadata": {"name": "meant"}})
    assert (status, answer["reason"]) == (422, "Invalid")
    assert answer["message"].endswith(f'dryRun: Unsupported value: "{value}": supported values: "All"')
    assert ask("GET", f"{TEAM}/configmaps/meant")[0] == 404


def test_dry_runs_write_nothing(ask: Caller) -> None:
    """Create, patch and delete answer as if they had."""
    version = ask.api.store.version
    assert ask("POST", f"{TEAM}/configmaps?dryRun=All", {"metadata": {"name": "x"}})[0] == 201
    assert ask("PATCH", f"{TEAM}/configmaps/c?dryRun=All", {"data": {"a": "2"}})[1]["data"] == {"a": "2"}
    assert ask("DELETE", f"{TEAM}/configmaps/c?dryRun=All")[1]["status"] == "Success"
    assert ask.api.store.version == version


def test_finalizers_hold_a_deleted_object(ask: Caller) -> None:
    """It is marked, stays while a finalizer is left, and goes with the last one."""
    ask("PATCH", f"{TEAM}/configmaps/c", {"metadata": {"finalizers": ["x/y"]}})
    _, dying = ask("DELETE", f"{TEAM}/configmaps/c")
    assert dying["metadata"]["deletionTimestamp"]
    assert ask("PATCH", f"{TEAM}/configmaps/c", {"metadata": {"finalizers": None}})[0] == 200
    assert ask("GET", f"{TEAM}/configmaps/c")[0] == 404


def test_a_collection_is_deleted_by_selector(ask: Caller) -> None:
    """Only what the selector matches goes."""
    ask("POST", f"{TEAM}/configmaps", {"metadata": {"name": "x", "labels": {"a": "b"}}})
    _, gone = ask("DELETE", f"{TEAM}/configmaps?labelSelector=a=b")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["x"]
    assert ask("GET", f"{TEAM}/configmaps/c")[0] == 200


def test_apply_owns_what_it_names_and_takes_back_what_it_no_longer_names(ask: Caller) -> None:
    """A field that an applier leaves out again goes, unless somebody else holds it too."""
    path, content = f"{TEAM}/configmaps/c?fieldManager=a&force=true", "application/apply-patch+yaml"
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    ask("PATCH", path, {**head, "data": {"a": "1", "b": "2"}}, content)
    _, seen = ask("PATCH", path, {**head, "data": {}}, content)
    assert seen["data"] == {"a": "1"}
    code, again = ask("PATCH", path, {**head, "data": {}}, content)
    assert (code, again["metadata"]["resourceVersion"]) == (200, seen["metadata"]["resourceVersion"])
    told = ask("PATCH", f"{TEAM}/configmaps/c?fieldManager=b", {**head, "data": {"a": "9"}}, content)[1]
    assert told["message"] == 'Apply failed with 1 conflict: conflict with "me" using v1: .data.a'
    assert told["details"]["causes"][0]["reason"] == "FieldManagerConflict"


def test_apply_creates(ask: Caller) -> None:
    """Applying what is not there makes it, held by the applier alone."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": {"k": "v"}}
    code, made = ask("PATCH", f"{TEAM}/configmaps/n?fieldManager=a", body, "application/apply-patch+yaml")
    [entry] = made["metadata"]["managedFields"]
    assert (code, entry["manager"], entry["operation"]) == (201, "a", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:k": {}}}


def test_a_lease_is_created_by_update(ask: Caller) -> None:
    """PUT of a Lease that is not there makes it: the real server allows that for Leases."""
    path = "/apis/coordination.k8s.io/v1/namespaces/team/leases/l"
    assert ask("PUT", path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})[0] == 201


def test_an_autoscaler_in_both_versions(ask: Caller) -> None:
    """What v1 takes, v2 shows with metrics, and the other way round."""
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 70,
    }
    ask(
        "POST",
        "/apis/autoscaling/v1/namespaces/team/horizontalpodautoscalers",
        {"metadata": {"name": "h"}, "spec": spec},
    )
    _, new = ask("GET", "/apis/autoscaling/v2/namespaces/team/horizontalpodautoscalers/h")
    assert new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    _, old = ask("GET", "/apis/autoscaling/v1/namespaces/team/horizontalpodautoscalers/h")
    assert (old["apiVersion"], old["spec"]["targetCPUUtilizationPercentage"]) == ("autoscaling/v1", 70)


def test_a_pod_with_a_node_dies_gracefully(ask: Caller) -> None:
    """It is marked for its grace period; a forced delete removes it; without a node it goes at once."""
    for name, node in (("bound", {"nodeName": "n"}), ("free", {})):
        ask("POST", f"{TEAM}/pods", {"metadata": {"name": name}, "spec": {**POD_SPEC, **node}})
        assert ask("DELETE", f"{TEAM}/pods/{name}")[1]["kind"] == "Pod"
    assert ask("GET", f"{TEAM}/pods/free")[0] == 404
    _, dying = ask("GET", f"{TEAM}/pods/bound")
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 30
    ask("DELETE", f"{TEAM}/pods/bound", {"gracePeriodSeconds": 0})
    assert ask("GET", f"{TEAM}/pods/bound")[0] == 404


def test_watch_starts_with_what_is_there_and_ends_with_a_bookmark(ask: Caller) -> None:
    """sendInitialEvents marks where the initial part ends; timeoutSeconds ends the stream."""
    query = {
        "watch": "true",
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "0.05",
    }
    headers = {"authorization": "Bearer admin"}
    answer = ask.api.handle(Request("GET", f"{TEAM}/configmaps", query, headers))
    assert answer.stream is not None
    events = [json.loads(chunk) for chunk in answer.stream if chunk]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


# The store


def test_the_store_keeps_quiet_writes_quiet() -> None:
    """mutate that changes nothing moves nothing; an update must name the current version."""
    store = ObjectStore()
    made = store.create(
        "configmaps", {"metadata": {"name": "c", "namespace": "n"}, "data": {"a": "1"}}, manager="m"
    )
    assert store.mutate("configmaps", "n", "c", lambda obj: None) == made
    changed = store.mutate("configmaps", "n", "c", lambda obj: {**obj, "data": {"a": "2"}})
    assert changed is not None
    assert int(changed["metadata"]["resourceVersion"]) == int(made["metadata"]["resourceVersion"]) + 1
    with pytest.raises(Conflict):
        store.update("configmaps", made)
    made["data"]["a"] = "mine alone"
    assert store.list("configmaps", "n")[0]["data"] == {"a": "2"}
    assert store.mutate("configmaps", "n", "absent", lambda obj: None) is None


def test_a_status_write_never_moves_generation() -> None:
    """Not even one that binds a pod to its node: the real server's binding leaves generation alone too."""
    store = ObjectStore()
    store.create("pods", {"metadata": {"name": "p"}, "spec": {}})
    bound = {"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}
    after = store.mutate("pods", "", "p", lambda obj: {**obj, **bound}, subresource="status")
    assert after is not None
    assert (after["metadata"]["generation"], after["spec"]) == (1, {"nodeName": "n"})


def test_the_history_is_bounded() -> None:
    """A subscription from before the ring is refused; from within it every change comes once."""
    store = ObjectStore(history=3)
    for number in range(5):
        store.create("configmaps", {"metadata": {"name": f"c{number}"}})
    with pytest.raises(Expired):
        store.subscribe("configmaps", since=store.oldest - 1)
    with store.subscribe("configmaps", since=store.oldest) as changes:
        names = [change.object["metadata"]["name"] for change in iter(lambda: changes.get(0), None)]
    assert names == ["c2", "c3", "c4"]


def test_concurrent_mutations_lose_nothing() -> None:
    """Eight threads count to 800 in one object."""
    store = ObjectStore()
    store.create("configmaps", {"metadata": {"name": "c"}, "count": 0})

    def count(obj: Object) -> None:
        obj["count"] += 1

    def work() -> None:
        for _ in range(100):
            store.mutate("configmaps", "", "c", count)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.get("configmaps", "", "c")
    assert found is not None
    assert found["count"] == 800


# Patches, selectors, field sets

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_merge_patch_is_idempotent_and_leaves_its_input_alone(target: Object, patch: Object) -> None:
    """Applying a patch twice is applying it once."""
    before = json.dumps(target)
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert json.dumps(target) == before


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/l/-", "value": 3}], {"l": [1, 2, 3], "a/b": {"~": 0}}),
        ([{"op": "add", "path": "/l/0", "value": 3}], {"l": [3, 1, 2], "a/b": {"~": 0}}),
        ([{"op": "remove", "path": "/l/1"}], {"l": [1], "a/b": {"~": 0}}),
        ([{"op": "replace", "path": "/a~1b/~0", "value": 1}], {"l": [1, 2], "a/b": {"~": 1}}),
        ([{"op": "move", "from": "/l", "path": "/m"}], {"m": [1, 2], "a/b": {"~": 0}}),
        ([{"op": "copy", "from": "/l/0", "path": "/n"}], {"l": [1, 2], "a/b": {"~": 0}, "n": 1}),
        ([{"op": "test", "path": "/l", "value": [1, 2]}], {"l": [1, 2], "a/b": {"~": 0}}),
        ([{"op": "replace", "path": "/absent", "value": 1}], None),
        ([{"op": "remove", "path": "/absent"}], None),
        ([{"op": "add", "path": "/l/9", "value": 1}], None),
        ([{"op": "leap", "path": "/l"}], None),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, list) else None,
)
def test_json_patch(operations: list[Object], result: Object | None) -> None:
    """RFC 6902, with None for what must fail."""
    target = {"l": [1, 2], "a/b": {"~": 0}}
    if result is None:
        with pytest.raises(PatchError):
            json_patch(target, operations)
    else:
        assert json_patch(target, operations) == result


def test_strategic_merge() -> None:
    """Lists with a key merge by it, are reordered and lose items as directives say; others are replaced."""
    target = {"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}], "finalizers": ["f"]}
    patch = {
        "containers": [{"name": "c"}, {"name": "a", "args": ["y"]}, {"name": "b", "$patch": "delete"}],
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
        "finalizers": ["g"],
    }
    assert strategic_merge(target, patch) == {
        "containers": [{"name": "c"}, {"name": "a", "image": "1", "args": ["y"]}],
        "finalizers": ["f", "g"],
    }


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        ("a=1", {"x"}),
        ("a==1,b", {"x"}),
        ("a!=1", {"y", "z"}),
        ("a in (1, 2)", {"x", "y"}),
        ("a notin (1)", {"y", "z"}),
        ("!a", {"z"}),
        ("a", {"x", "y"}),
        ("", {"x", "y", "z"}),
    ],
)
def test_label_selectors(selector: str, matching: set[str]) -> None:
    """As kubectl -l understands them."""
    labels = {"x": {"a": "1", "b": ""}, "y": {"a": "2"}, "z": {"c": "1"}}
    matches = parse_labels(selector)
    assert {name for name, found in labels.items() if matches(found)} == matching


def test_a_senseless_selector_is_refused() -> None:
    """Not every text is a selector."""
    with pytest.raises(SelectorError):
        parse_labels("a=b c")


@given(OBJECTS)
def test_field_sets_survive_their_encoding(obj: Object) -> None:
    """FieldsV1 decodes to the set it was made of."""
    paths = managed_fields.field_set("configmaps", {"data": obj})
    assert managed_fields.decode(managed_fields.encode(paths)) == paths


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"a":', "unexpected end of JSON input"),
        (b'{"a":1', "unexpected end of JSON input"),
        (b"hello", "invalid character 'h' looking for beginning of value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 2}', "invalid character '2' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"{} x", "invalid character 'x' after top-level value"),
        (b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
    ],
)
def test_broken_json_is_told_in_the_words_of_go(body: bytes, told: str) -> None:
    """Clients show these to people."""
    assert go_json_error(body) == told


def test_no_rule_no_fault() -> None:
    """The common case decides nothing and counts nothing."""
    assert Faults().pick("GET", "/", "", "") is None
