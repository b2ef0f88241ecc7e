"""The simulated Kubernetes API: from a request to an answer. Knows nothing of sockets."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from responder.sim import (
    discovery,
    errors,
    reads,
    requests,
    reviews,
    scale,
    table,
)
from responder.sim.auth import ADMIN, ANONYMOUS, DEFAULT_TOKENS, Authorizer, User
from responder.sim.deletion import Remover
from responder.sim.objects import Change, Entry, ObjectStore
from responder.sim.requests import Info, Request
from responder.sim.resources import Registry, Resource
from responder.sim.scale import Origin, ScaleLog
from responder.sim.targets import Target, Written
from responder.sim.writes import Writer

Object = dict[str, Any]

_log = logging.getLogger(__name__)

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
NAMESPACES = "namespaces"
_SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_encode = msgspec.json.encode
_UNTABLED = frozenset({"application/json", "*/*", "application/*"})


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: either `body`, or `stream`, whose chunks are sent as they come."""

    code: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Iterator[bytes] | None = None


class Api:
    """Answers requests from a store. `tokens` maps bearer tokens to users."""

    def __init__(self, store: ObjectStore, tokens: Mapping[str, User] | None = None) -> None:
        self.store = store
        self.registry = Registry()
        self.tokens = dict(DEFAULT_TOKENS if tokens is None else tokens)
        self.authorizer = Authorizer(store)
        self.writer = Writer(store, self.registry)
        self.remover = Remover(store)
        self._origin = threading.local()
        self.scales = ScaleLog(self.registry, lambda: getattr(self._origin, "value", Origin()))
        self.stopping = threading.Event()
        with store.lock:
            for name in _SYSTEM_NAMESPACES:
                self._ensure_namespace(name)
            for entry in store.entries(DEFINITIONS):
                self.registry.define(entry.obj)
            store.on_change(self.scales.note)
            store.on_change(self._note_definition)

    def handle(self, request: Request) -> Response:
        """Answer one request; never raises."""
        try:
            user = self.authenticate(request)
            info = requests.locate(request.path)
            self._authorize(user, info, request)
            self._origin.value = Origin(user.name, request.manager)
            try:
                return self._dispatch(user, info, request)
            finally:
                self._origin.value = Origin()
        except errors.PlainNotFoundError:
            return Response(404, b"404 page not found\n", "text/plain; charset=utf-8")
        except errors.ApiError as failure:
            return Response(failure.code, _encode(failure.status), headers=failure.headers)
        except Exception:  # noqa: BLE001 - a defect here must not look like a lost connection
            _log.exception("%s %s failed", request.method, request.path)
            return Response(500, _encode(errors.internal("the simulator failed; its log says how").status))

    def authenticate(self, request: Request) -> User:
        """Who sends this; raises 401 for a token that is not in the table."""
        scheme, _, token = request.header("authorization").partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        user = self.tokens.get(token.strip())
        if user is None:
            raise errors.unauthorized()
        if request.header("impersonate-user") and user is ADMIN:
            return User(request.header("impersonate-user"))
        return user

    def _authorize(self, user: User, info: Info, request: Request) -> None:
        asked = info.attributes(request)
        if self.authorizer.allows(user, asked):
            return
        if asked.path:
            told = f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
            raise errors.ApiError(403, "Forbidden", told, {})
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        why = (
            f'User "{user.name}" cannot {asked.verb} resource "{asked.full_resource}"'
            f' in API group "{asked.group}" {where}'
        )
        raise errors.forbidden(asked.group, asked.resource, asked.name, why)

    # Routing

    def _dispatch(self, user: User, info: Info, request: Request) -> Response:
        if not info.resource:
            return self._document(request)
        requests.check_dry_run(request)
        resource = self.registry.get(info.group, info.version, info.resource)
        if resource is None:
            if not self.registry.of(info.group, info.version):
                raise errors.PlainNotFoundError
            raise errors.no_such_resource()
        if resource.namespaced and not info.namespace and (info.name or request.method != "GET"):
            if request.method == "POST" and resource.verbs == ("create",):
                pass
            else:
                raise errors.method_not_allowed() if not info.name else errors.no_such_resource()
        namespace = info.namespace if resource.namespaced else ""
        target = Target(resource, namespace, info.name, info.subresource)
        if info.subresource:
            return self._subresource(target, request)
        if resource.verbs == ("create",):
            return self._review(user, resource, request)
        return self._object(target, request) if info.name else self._collection(target, request)

    def _collection(self, target: Target, request: Request) -> Response:
        if request.method == "GET":
            return self._watch(target, request) if request.flag("watch") else self._list(target, request)
        if request.method == "POST":
            written = self.writer.create(target, request)
            if target.resource.key == DEFINITIONS and not request.dry_run:
                self._establish(written.obj)
            return self._written(written, request)
        if request.method == "DELETE":
            return self._delete_all(target, request)
        raise errors.method_not_allowed()

    def _object(self, target: Target, request: Request) -> Response:
        method = request.method
        if method in ("GET", "HEAD"):
            if request.flag("watch"):
                return self._watch(target, request)
            return self._one(target, request)
        if method == "PUT":
            return self._written(self.writer.update(target, request), request)
        if method == "PATCH":
            return self._written(self.writer.patch(target, request), request)
        if method == "DELETE":
            written = self.remover.delete(target, requests.read_options(request))
            return self._written(written, request)
        raise errors.method_not_allowed()

    def _subresource(self, target: Target, request: Request) -> Response:
        resource, name, method = target.resource, target.subresource, request.method
        handlers: dict[str, Callable[[], Response]] = {}
        if name == "scale" and resource.scale:
            handlers["GET"] = lambda: Response(200, _encode(scale.read(resource, self._existing(target))))
            handlers["PUT"] = handlers["PATCH"] = lambda: self._written(
                self.writer.write_scale(target, request), request
            )
        elif name == "status" and resource.status:
            handlers["GET"] = lambda: self._one(target, request)
            handlers["PUT"] = lambda: self._written(self.writer.update(target, request), request)
            handlers["PATCH"] = lambda: self._written(self.writer.patch(target, request), request)
        elif resource.key == "pods":
            handlers = self._pod_subresource(target, request)
        elif resource.key == NAMESPACES and name == "finalize":
            handlers["PUT"] = lambda: self._finalize(target, request)
        if not handlers:
            raise errors.no_such_resource()
        if method not in handlers:
            raise errors.method_not_allowed()
        return handlers[method]()

    def _pod_subresource(self, target: Target, request: Request) -> dict[str, Callable[[], Response]]:
        if target.subresource == "eviction":
            return {"POST": lambda: self._written(self.remover.evict(target, request), request)}
        if target.subresource == "binding":
            return {"POST": lambda: self._written(self.remover.bind(target, request), request)}
        if target.subresource == "log":
            return {"GET": lambda: self._log(target)}
        return {}

    def _log(self, target: Target) -> Response:
        self._existing(target)
        return Response(200, b"", "text/plain")

    def _finalize(self, target: Target, request: Request) -> Response:
        self._existing(target)
        self.finish_namespace(target.name)
        return Response(200, request.body)

    # Reading

    def _existing(self, target: Target) -> Entry:
        entry = self.store.entry(target.resource.key, target.namespace, target.name)
        if entry is None:
            raise target.not_found
        return entry

    def _one(self, target: Target, request: Request) -> Response:
        entry = self._existing(target)
        style = _style(request)
        if style == "Table":
            built = table.build(target.resource, [entry], self.store.clock(), request.query)
            return Response(200, _encode(built | {"metadata": {"resourceVersion": str(entry.version)}}))
        if style == "PartialObjectMetadata":
            return Response(200, _encode(table.partial(entry)))
        return _formatted(request, reads.whole(target.resource, entry))

    def _list(self, target: Target, request: Request) -> Response:
        resource = target.resource
        metadata, entries = reads.page(self.store, resource, target.namespace, request)
        style = _style(request)
        if style == "Table":
            built = table.build(resource, entries, self.store.clock(), request.query)
            return Response(200, _encode(built | {"metadata": metadata}))
        if style.startswith("PartialObjectMetadata"):
            kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            return Response(200, _encode(kind | {"items": [table.partial(entry) for entry in entries]}))
        head = {"kind": resource.kind_of_list, "apiVersion": resource.api_version, "metadata": metadata}
        items = b",".join(reads.item(resource, entry) for entry in entries)
        return _formatted(request, _encode(head)[:-1] + b',"items":[' + items + b"]}")

    def _watch(self, target: Target, request: Request) -> Response:
        resource, style = target.resource, _style(request)
        matches = reads.selection(request, resource, target.name)

        def render(_: str, entry: Entry) -> bytes:
            if style == "Table":
                return _encode(table.build(resource, [entry], self.store.clock(), request.query))
            if style == "PartialObjectMetadata":
                return _encode(table.partial(entry))
            return reads.whole(resource, entry)

        stream = reads.watch(
            self.store, resource, target.namespace, matches, request, render, self.stopping.is_set
        )
        return Response(200, stream=stream)

    # Writing

    def _written(self, written: Written, request: Request) -> Response:
        headers = (
            {"Warning": ", ".join(f'299 - "{_escaped(w)}"' for w in written.warnings)}
            if written.warnings
            else {}
        )
        return Response(written.code, _formatted(request, _encode(written.obj)).body, _type(request), headers)

    def _delete_all(self, target: Target, request: Request) -> Response:
        metadata, entries = reads.page(self.store, target.resource, target.namespace, request)
        options = requests.read_options(request)
        items = []
        for entry in entries:
            namespace, name = entry.key
            if self.store.entry(target.resource.key, namespace, name) is not None:
                self.remover.delete(Target(target.resource, namespace, name), options)
                items.append(entry.obj)
        kind = {"kind": target.resource.kind_of_list, "apiVersion": target.resource.api_version}
        return Response(200, _encode(kind | {"metadata": metadata, "items": items}))

    def _review(self, user: User, resource: Resource, request: Request) -> Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        obj, _ = requests.read_object(request, resource)
        answer = reviews.review(obj, user, self.authorizer, request.manager, self.store.clock())
        if answer is None:
            raise errors.no_such_resource()
        return Response(201, _encode(answer))

    def _establish(self, definition: Object) -> None:
        """Accept a definition's names, as the controller inside the real server does a moment later."""
        now = self.store.clock().strftime("%Y-%m-%dT%H:%M:%SZ")

        def accept(obj: Object) -> None:
            obj["status"]["acceptedNames"] = obj["spec"]["names"]
            obj["status"]["conditions"] = [
                {
                    "type": kind,
                    "status": "True",
                    "lastTransitionTime": now,
                    "reason": reason,
                    "message": told,
                }
                for kind, reason, told in (
                    ("NamesAccepted", "NoConflicts", "no conflicts found"),
                    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                )
            ]

        name = definition["metadata"]["name"]
        self.store.mutate(DEFINITIONS, "", name, accept, manager="kube-apiserver", subresource="status")

    def _note_definition(self, change: Change) -> None:
        if change.resource != DEFINITIONS:
            return
        if change.type != "DELETED":
            self.registry.define(change.object)
            return
        spec = change.object["spec"]
        self.registry.undefine(change.object)
        key = f"{spec['names']['plural']}.{spec['group']}"
        for entry in self.store.entries(key):
            self.store.delete(key, *entry.key)

    # Namespaces

    def _ensure_namespace(self, name: str) -> None:
        if self.store.entry(NAMESPACES, "", name) is None:
            labels = {"kubernetes.io/metadata.name": name}
            self.store.create(
                NAMESPACES,
                {
                    "kind": "Namespace",
                    "apiVersion": "v1",
                    "metadata": {"name": name, "labels": labels},
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                },
                manager="kube-apiserver",
            )

    def terminating(self) -> list[str]:
        """Namespaces that are being deleted."""
        entries = self.store.entries(NAMESPACES)
        return [e.obj["metadata"]["name"] for e in entries if "deletionTimestamp" in e.obj["metadata"]]

    def finish_namespace(self, name: str) -> bool:
        """Delete what is in a namespace and, once it is empty, the namespace; whether it is gone."""
        left = 0
        with self.store.lock:
            for resource in self.registry:
                if not resource.namespaced or not resource.storage or "delete" not in resource.verbs:
                    continue
                for entry in self.store.entries(resource.key, name):
                    if entry.obj["metadata"].get("finalizers"):
                        left += 1
                    self.remover.delete(Target(resource, name, entry.key[1]), {"gracePeriodSeconds": 0})
            if not left:
                self.store.delete(NAMESPACES, "", name)
        return not left

    # Documents

    def _document(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        path = request.path.rstrip("/") or "/"
        if path in ("/healthz", "/livez", "/readyz"):
            return Response(200, b"ok", "text/plain; charset=utf-8")
        if path in ("/api", "/apis") and "apidiscovery.k8s.io" in request.header("accept"):
            body = discovery.aggregated(self.registry, core=path == "/api")
            return Response(200, _encode(body), discovery.AGGREGATED)
        document = self._known_document(path)
        if document is None:
            raise errors.PlainNotFoundError
        return Response(200, _encode(document))

    def _known_document(self, path: str) -> Object | None:
        if path == "/version":
            return discovery.VERSION
        if path == "/api":
            return discovery.api_versions()
        if path == "/apis":
            return discovery.group_list(self.registry)
        if path == "/openapi/v3":
            return discovery.openapi_index(self.registry)
        parts = path.removeprefix("/openapi/v3").strip("/").split("/")
        group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else ("", "")
        if parts[0] == "apis" and len(parts) == 2:
            return discovery.group(self.registry, parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            group, version = parts[1], parts[2]
        if not version or not self.registry.of(group, version):
            return None
        if path.startswith("/openapi"):
            return discovery.openapi(self.registry, group, version)
        return discovery.resource_list(self.registry, group, version)


def _style(request: Request) -> str:
    """Which form the client prefers: Table, PartialObjectMetadata(List), or plain."""
    accept = request.header("accept")
    if not accept or accept in _UNTABLED:
        return ""
    for choice in accept.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        found = dict(part.partition("=")[::2] for part in parameters)
        if media in _UNTABLED or media == "application/yaml":
            return found.get("as", "")
    message = "only the following media types are accepted: application/json, application/yaml"
    raise errors.ApiError(406, "NotAcceptable", message, {})


def _type(request: Request) -> str:
    accept = request.header("accept")
    first = accept.partition(",")[0].partition(";")[0].strip()
    return "application/yaml" if first == "application/yaml" else "application/json"


def _formatted(request: Request, body: bytes) -> Response:
    if _type(request) == "application/yaml":
        text = yaml.safe_dump(msgspec.json.decode(body), sort_keys=False)
        return Response(200, text.encode(), "application/yaml")
    return Response(200, body)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


Handler = Callable[[Request], Response]
