"""Get, list and watch: what matches, page by page, and as a stream."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from responder.sim import errors, versions
from responder.sim.objects import Change, Entry, Expired, ObjectStore
from responder.sim.requests import Request
from responder.sim.resources import Resource
from responder.sim.selectors import SelectorError, parse_fields, parse_labels

Object = dict[str, Any]
Predicate = Callable[[Object], bool]

_encode = msgspec.json.encode
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "replicasets.apps": ("status.replicas",),
    "jobs.batch": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
    ),
}
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list"
    " without the continue parameter, or use the continue token in this response to retrieve the remainder of the"
    " results. Continuing with the provided token results in an inconsistent list - objects that were created,"
    " modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


def selection(request: Request, resource: Resource, name: str = "") -> Predicate | None:
    """What label and field selectors (and a watch of one name) let through; None for everything."""
    tests: list[Predicate] = []
    try:
        if request.query.get("labelSelector"):
            labels = parse_labels(request.query["labelSelector"])
            tests.append(lambda obj: labels(obj["metadata"].get("labels") or {}))
        terms = parse_fields(request.query.get("fieldSelector", ""))
    except SelectorError as problem:
        raise errors.bad_request(str(problem)) from problem
    if name:
        terms.append(("metadata.name", name, True))
    for path, value, equal in terms:
        if path not in ("metadata.name", "metadata.namespace") and path not in _FIELDS.get(resource.key, ()):
            raise errors.bad_request(f"field label not supported: {path}")
        tests.append(_field_test(path, value, equal))
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def item(resource: Resource, entry: Entry) -> bytes:
    """An object as an item of a list: built-in kinds leave their kind and version out."""
    obj, data = entry.obj, entry.data
    if obj.get("apiVersion") != resource.api_version:
        view = versions.to_view(resource, entry.copy())
        if resource.custom:
            return _encode(view)
        return _encode({k: v for k, v in view.items() if k not in ("kind", "apiVersion")})
    if resource.custom:
        return data
    head = len(f'{{"kind":"{obj["kind"]}","apiVersion":"{obj["apiVersion"]}",')
    return b"{" + data[head:]


def whole(resource: Resource, entry: Entry) -> bytes:
    """An object by itself."""
    if entry.obj.get("apiVersion") == resource.api_version:
        return entry.data
    return _encode(versions.to_view(resource, entry.copy()))


def page(
    store: ObjectStore, resource: Resource, namespace: str, request: Request
) -> tuple[Object, list[Entry]]:
    """The entries of a list or of one page of it, and the list's metadata."""
    matches = selection(request, resource)
    with store.lock:
        entries = store.entries(resource.key, namespace or None, matches)
        version, oldest = store.version, store.oldest
    limit = _limit(request)
    token = request.query.get("continue", "")
    start: tuple[str, str] | None = None
    if token:
        version, start = _read_token(token, bool(namespace), namespace)
        if version < oldest:
            fresh = _token(store.version, start, bool(namespace))
            raise errors.expired(_TOO_OLD, {"continue": fresh})
        entries = [entry for entry in entries if entry.key >= start]
    metadata: Object = {"resourceVersion": str(version)}
    if limit and len(entries) > limit:
        last = entries[limit - 1].key
        metadata["continue"] = _token(version, last, bool(namespace), after=True)
        if matches is None:
            metadata["remainingItemCount"] = len(entries) - limit
        entries = entries[:limit]
    return metadata, entries


def watch(
    store: ObjectStore,
    resource: Resource,
    namespace: str,
    matches: Predicate | None,
    request: Request,
    render: Callable[[str, Entry], bytes],
    stopped: Callable[[], bool],
) -> Iterator[bytes]:
    """Events as they come, one line each; an empty chunk now and then lets the caller notice a dead client."""
    seconds = float(request.query.get("timeoutSeconds") or 1800)
    ends = time.monotonic() + seconds
    bookmarks = request.flag("allowWatchBookmarks")
    given = request.query.get("resourceVersion", "")
    initial = request.flag("sendInitialEvents") or (
        given in ("", "0") and "sendInitialEvents" not in request.query
    )
    with store.lock:
        try:
            since = None if initial else int(given or 0)
            subscription = store.subscribe(resource.key, namespace or None, since=since or None)
        except Expired as expired:
            yield _line("ERROR", _encode(errors.expired(str(expired)).status))
            return
        except ValueError:
            yield _line("ERROR", _encode(errors.bad_request(f"invalid resource version {given}").status))
            return
        first = store.entries(resource.key, namespace or None, matches) if initial else []
        version = store.version
    with subscription:
        for entry in first:
            yield _line("ADDED", render("ADDED", entry))
        if request.flag("sendInitialEvents") and bookmarks:
            yield _bookmark(resource, version, {"k8s.io/initial-events-end": "true"})
        told = time.monotonic()
        while not stopped():
            left = ends - time.monotonic()
            if left <= 0:
                break
            change = subscription.get(min(left, 0.2))
            if change is None:
                if bookmarks and time.monotonic() - told > 10:
                    told = time.monotonic()
                    yield _bookmark(resource, _caught_up(store, subscription, version), {})
                else:
                    yield b""
                continue
            version = change.version
            event = _event(change, matches)
            if event is not None:
                kind, entry = event
                yield _line(kind, render(kind, entry))
        if bookmarks and not stopped():
            yield _bookmark(resource, version, {})


def _caught_up(store: ObjectStore, subscription: Any, version: int) -> int:
    """The latest resourceVersion, if nothing is waiting to be told."""
    with store.lock:
        return store.version if subscription.idle else version


def _event(change: Change, matches: Predicate | None) -> tuple[str, Entry] | None:
    """A change as a watch with a selector sees it: leaving the selection is a deletion."""
    if matches is None:
        return change.type, change.entry
    now = change.type != "DELETED" and matches(change.object)
    before = change.old is not None and matches(change.old.obj)
    if now:
        return ("MODIFIED" if before else "ADDED"), change.entry
    return ("DELETED", change.entry) if before else None


def _line(kind: str, data: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + data + b"}\n"


def _bookmark(resource: Resource, version: int, annotations: dict[str, str]) -> bytes:
    meta: Object = {"resourceVersion": str(version)}
    if not resource.custom:
        meta["creationTimestamp"] = None
    if annotations:
        meta["annotations"] = annotations
    return _line(
        "BOOKMARK", _encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta})
    )


def _field_test(path: str, value: str, equal: bool) -> Predicate:
    parts = path.replace("regarding.", "involvedObject.").split(".")

    def test(obj: Object) -> bool:
        found: Any = obj
        for part in parts:
            found = found.get(part) if isinstance(found, dict) else None
        if path == "source":
            found = (obj.get("source") or {}).get("component") or obj.get("reportingComponent")
        if isinstance(found, bool):
            text = "true" if found else "false"
        elif found is None:
            text = "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
        else:
            text = str(found)
        return (text == value) is equal

    return test


def _limit(request: Request) -> int:
    given = request.query.get("limit") or "0"
    if not given.lstrip("-").isdigit():
        told = f'strconv.ParseInt: parsing "{given}": invalid syntax'
        raise errors.bad_request(told)
    return max(0, int(given))


def _token(version: int, key: tuple[str, str], namespaced: bool, *, after: bool = False) -> str:
    namespace, name = key
    start = (name if namespaced or not namespace else f"{namespace}/{name}") + ("\0" if after else "")
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str, namespaced: bool, namespace: str) -> tuple[int, tuple[str, str]]:
    try:
        found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = int(found["rv"]), str(found["start"])
    except (ValueError, KeyError, TypeError) as problem:
        raise errors.bad_request(f"continue key is not valid: {problem}") from problem
    if namespaced:
        return version, (namespace, start)
    within, slash, name = start.partition("/")
    return version, (within, name) if slash else ("", start)
