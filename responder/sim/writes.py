"""Create, update, patch, apply and delete, as the real server does them to objects of any kind."""

import copy
from typing import Any

import msgspec

from responder.sim import (
    applying,
    defaults,
    errors,
    managed_fields,
    requests,
    scale,
    types,
    validation,
    versions,
)
from responder.sim.objects import AlreadyExists, Entry, ObjectStore
from responder.sim.patches import PatchError, json_patch, merge_patch, strategic_merge
from responder.sim.requests import Request
from responder.sim.resources import Registry, Resource
from responder.sim.targets import Target, Written

Object = dict[str, Any]

_CREATED_BY_UPDATE = frozenset({"leases.coordination.k8s.io", "events", "endpoints"})
_UNCONDITIONAL_FORBIDDEN = frozenset(
    {
        "leases.coordination.k8s.io",
        "poddisruptionbudgets.policy",
        "customresourcedefinitions.apiextensions.k8s.io",
    }
)
_NAMESPACES = "namespaces"
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class Writer:
    """All writes. Each runs under the store's lock, so nothing changes between its read and its write."""

    def __init__(self, store: ObjectStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    # Create

    def create(self, target: Target, request: Request) -> Written:
        """POST on a collection."""
        obj, warnings = requests.read_object(request, target.resource)
        with self._store.lock:
            entry = self._create(target, obj, request)
        return Written(self._view(target.resource, entry), 201, tuple(warnings))

    def _create(self, target: Target, obj: Object, request: Request) -> Entry:
        resource, meta = target.resource, obj["metadata"]
        _place(target, meta)
        if resource.namespaced:
            self._check_namespace(resource, target.namespace, meta)
        meta.pop("managedFields", None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + defaults.suffix()
        if resource.status and resource.key != "nodes":
            obj.pop("status", None)
        if resource.custom:
            obj = validation.prune(obj, resource.schema, root=True)
        defaults.apply_defaults(resource.key, obj)
        now = self._store.clock()
        managed_fields.record_update(resource.key, None, obj, request.manager, "", now)
        defaults.prepare_for_create(resource.key, obj)
        defaults.admit(resource.key, obj)
        validation.check(resource, obj)
        try:
            return self._store.create_entry(
                resource.key, self._storable(resource, obj), manager=request.manager, dry_run=request.dry_run
            )
        except AlreadyExists as exists:
            raise errors.already_exists(resource.group, resource.plural, meta["name"]) from exists

    def _check_namespace(self, resource: Resource, name: str, meta: Object) -> None:
        namespace = self._store.entry(_NAMESPACES, "", name)
        if namespace is None:
            raise errors.not_found("", _NAMESPACES, name)
        if "deletionTimestamp" in namespace.obj["metadata"]:
            cause = errors.field_error(
                "metadata.namespace", "NamespaceTerminating", f"namespace {name} is being terminated"
            )
            raise errors.forbidden(
                resource.group,
                resource.plural,
                meta.get("name") or "",
                f"unable to create new content in namespace {name} because it is being terminated",
                causes=[cause],
            )

    # Update

    def update(self, target: Target, request: Request) -> Written:
        """PUT of an object or its status."""
        obj, warnings = requests.read_object(request, target.resource)
        with self._store.lock:
            _match(target, obj["metadata"])
            entry = self._store.entry(target.resource.key, target.namespace, target.name)
            if entry is None:
                if target.resource.key in _CREATED_BY_UPDATE and not target.subresource:
                    created = self._create(target, obj, request)
                    return Written(self._view(target.resource, created), 201, tuple(warnings))
                raise target.not_found
            self._check_preconditions(target, entry, obj["metadata"])
            entry = self._save(target, entry, obj, request)
        return Written(self._view(target.resource, entry), warnings=tuple(warnings))

    def _check_preconditions(self, target: Target, entry: Entry, meta: Object) -> None:
        _check_uid(target, entry, meta)
        version = meta.get("resourceVersion")
        if version and version != str(entry.version):
            raise target.conflict()
        resource = target.resource
        if not version and (resource.custom or resource.key in _UNCONDITIONAL_FORBIDDEN):
            cause = errors.invalid_value("metadata.resourceVersion", "0x0", "must be specified for an update")
            raise errors.invalid(resource.group, resource.plural, target.name, [cause])

    def _save(self, target: Target, entry: Entry, new: Object, request: Request) -> Entry:
        """Store `new` (as its version shows it) in place of `entry`, keeping what this endpoint cannot change."""
        old = self._view(target.resource, entry)
        new = self._settled(target, old, new)
        now = self._store.clock()
        managed_fields.record_update(target.resource.key, old, new, request.manager, target.subresource, now)
        return self._put(target, entry, new, request)

    def _settled(self, target: Target, old: Object, new: Object) -> Object:
        resource = target.resource
        if resource.custom:
            new = validation.prune(new, resource.schema, root=True)
        new = _kept(target, old, new)
        defaults.apply_defaults(resource.key, new)
        validation.check(resource, new, old)
        return new

    def _put(self, target: Target, entry: Entry, new: Object, request: Request) -> Entry:
        resource, meta = target.resource, new["metadata"]
        stored = self._storable(resource, new)
        put = self._store.put(
            resource.key,
            entry,
            stored,
            request.manager,
            target.subresource,
            track=False,
            dry_run=request.dry_run,
        )
        finished = "deletionTimestamp" in meta and not meta.get("finalizers")
        if finished and entry.obj["metadata"].get("finalizers") and not request.dry_run:
            self._store.delete(resource.key, target.namespace, target.name)
        return put

    # Patch

    def patch(self, target: Target, request: Request) -> Written:
        """PATCH of an object or its status, in any of the four types."""
        kind = requests.PATCH_TYPES.get(request.content_type)
        if kind is None or (kind == "strategic" and target.resource.custom):
            raise errors.unsupported_media_type()
        patch = requests.load_patch(request)
        with self._store.lock:
            entry = self._store.entry(target.resource.key, target.namespace, target.name)
            if kind == "apply":
                return self._apply(target, entry, patch, request)
            if entry is None:
                raise target.not_found
            old = self._view(target.resource, entry)
            new, warnings = patched(old, patch, kind, target.resource, request)
            meta = new["metadata"]
            if meta.get("resourceVersion") and meta["resourceVersion"] != str(entry.version):
                raise target.conflict()
            entry = self._save(target, entry, new, request)
        return Written(self._view(target.resource, entry), warnings=tuple(warnings))

    def _apply(self, target: Target, entry: Entry | None, applied: Any, request: Request) -> Written:
        resource, manager = target.resource, request.query.get("fieldManager", "")
        applied = _appliable(target, applied, manager)
        warnings = requests.settle(applied, resource.kind, request, custom=resource.custom)
        if entry is None:
            if target.subresource:
                raise target.not_found
            return self._create_by_apply(target, applied, request, warnings)
        version = applied["metadata"].get("resourceVersion")
        if version and version != str(entry.version):
            raise target.conflict()
        old = self._view(resource, entry)
        identity = (manager, "Apply", target.subresource)
        merged = applying.merged(resource.key, old, applied, identity)
        wanted = managed_fields.field_set(resource.key, applied)
        added, modified, _ = managed_fields.compare(resource.key, old, merged, target.subresource)
        changing = (added | modified) & wanted
        causes = [
            errors.field_error(
                managed_fields.describe(path), "FieldManagerConflict", f"conflict with {_told(owner)}"
            )
            for owner, owned in managed_fields.owners(old, skip=identity)
            for path in sorted(owned & changing)
        ]
        if causes and not request.flag("force"):
            raise errors.apply_conflict(causes)
        new = self._settled(target, old, merged)
        now = self._store.clock()
        managed_fields.drop_from_others(resource.key, new, changing, manager, target.subresource)
        managed_fields.record_apply(resource.key, new, applied, manager, target.subresource, now, old)
        put = self._put(target, entry, new, request)
        return Written(self._view(resource, put), warnings=tuple(warnings))

    def _create_by_apply(
        self, target: Target, applied: Object, request: Request, warnings: list[str]
    ) -> Written:
        resource, obj = target.resource, copy.deepcopy(applied)
        quiet = Request(request.method, request.path, {**request.query, "fieldManager": ""}, {}, b"")
        _place(target, obj["metadata"])
        if resource.namespaced:
            self._check_namespace(resource, target.namespace, obj["metadata"])
        if resource.custom:
            obj = validation.prune(obj, resource.schema, root=True)
        if resource.status and resource.key != "nodes":
            obj.pop("status", None)
        now = self._store.clock()
        manager = request.query["fieldManager"]
        defaults.apply_defaults(resource.key, obj)
        managed_fields.record_apply(resource.key, obj, applied, manager, "", now)
        defaults.prepare_for_create(resource.key, obj)
        defaults.admit(resource.key, obj)
        validation.check(resource, obj)
        entry = self._store.create_entry(
            resource.key, self._storable(resource, obj), manager=manager, dry_run=quiet.dry_run
        )
        return Written(self._view(resource, entry), 201, tuple(warnings))

    # Scale

    def write_scale(self, target: Target, request: Request) -> Written:
        """PUT or PATCH of a scale."""
        resource = target.resource
        if request.method == "PUT":
            wanted, warnings = requests.read_scale(request)
            with self._store.lock:
                return self._put_scale(target, wanted, request, warnings)
        kind = requests.PATCH_TYPES.get(request.content_type)
        if kind is None or (kind == "strategic" and resource.custom):
            raise errors.unsupported_media_type()
        patch = requests.load_patch(request)
        with self._store.lock:
            entry = self._existing(target)
            replicas = scale.lookup(entry.obj, resource.scale.spec) if resource.scale else 0
            old = scale.render(resource, entry.obj, replicas or 0)
            if kind == "apply":
                kind = "merge"
            wanted, warnings = patched(old, patch, kind, None, request)
            return self._put_scale(target, wanted, request, warnings)

    def _put_scale(self, target: Target, wanted: Object, request: Request, warnings: list[str]) -> Written:
        resource, meta = target.resource, wanted.get("metadata") or {}
        _match(target, meta)
        entry = self._existing(target)
        _check_uid(target, entry, meta)
        validation.check_replicas(wanted, target.name)
        if meta.get("resourceVersion") and meta["resourceVersion"] != str(entry.version):
            raise target.conflict()
        replicas = (wanted.get("spec") or {}).get("replicas") or 0
        if not request.dry_run:
            entry = scale.write(self._store, resource, entry, replicas, request.manager)
        return Written(scale.render(resource, entry.obj, replicas), warnings=tuple(warnings))

    # Inside

    def _existing(self, target: Target) -> Entry:
        entry = self._store.entry(target.resource.key, target.namespace, target.name)
        if entry is None:
            raise target.not_found
        return entry

    def _view(self, resource: Resource, entry: Entry) -> Object:
        return versions.to_view(resource, entry.copy())

    def _storable(self, resource: Resource, obj: Object) -> Object:
        stored = self._registry.by_key(resource.key) or resource
        return versions.to_storage(resource, stored, obj)


def patched(
    old: Object, patch: Any, kind: str, resource: Resource | None, request: Request
) -> tuple[Object, list[str]]:
    """`old` (an object, or a Scale when `resource` is None) with the patch applied, checked like a body."""
    try:
        if kind == "json":
            new = json_patch(old, patch)
        elif not isinstance(patch, dict):
            raise errors.bad_request("error decoding patch: a patch is an object")
        else:
            new = (strategic_merge if kind == "strategic" else merge_patch)(copy.deepcopy(old), patch)
    except PatchError as problem:
        message = "the server rejected our request due to an error in our request"
        raise errors.ApiError(422, "Invalid", message, {}) from problem
    told = resource.kind if resource else "Scale"
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise errors.bad_request(f"error decoding patch: the result is not a {told}")
    warnings: list[str] = []
    if resource is None or not resource.custom:
        try:
            unknown = types.conform(new, told)
        except types.MismatchError as mismatch:
            cause = errors.invalid_value("patch", _compact(new), str(mismatch))
            raise errors.invalid("", "", "", [cause]) from mismatch
        warnings = [f'unknown field "{path}"' for path in unknown]
        if warnings and request.query.get("fieldValidation") == "Strict":
            cause = errors.invalid_value(
                "patch", _compact(new), f"strict decoding error: {', '.join(warnings)}"
            )
            raise errors.invalid("", "", "", [cause])
    return new, warnings if request.query.get("fieldValidation", "Warn") == "Warn" else []


def _check_uid(target: Target, entry: Entry, meta: Object) -> None:
    have = entry.obj["metadata"]["uid"]
    if meta.get("uid") and meta["uid"] != have:
        resource = target.resource
        at = "/".join(
            filter(None, (resource.group if resource.custom else "", resource.plural, target.namespace))
        )
        raise target.conflict(
            f"StorageError: invalid object, Code: 4, Key: /registry/{at}/{target.name}, ResourceVersion: 0,"
            f" AdditionalErrorMsg: Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {have}"
        )


def _compact(obj: Object) -> str:
    return msgspec.json.encode(obj).decode()


def _place(target: Target, meta: Object) -> None:
    """Put a new object into the namespace of its URL."""
    if target.name and meta.get("name") not in (None, "", target.name):
        raise errors.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
        )
    if target.name:
        meta["name"] = target.name
    if not target.resource.namespaced:
        meta.pop("namespace", None)
        return
    if meta.get("namespace") not in (None, "", target.namespace):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta["namespace"] = target.namespace


def _match(target: Target, meta: Object) -> None:
    """Check that an object is the one of the URL."""
    name = meta.get("name") or ""
    if not name:
        raise errors.bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    if target.resource.namespaced and meta.get("namespace") not in (None, "", target.namespace):
        raise errors.bad_request(
            f"the namespace of the object ({meta['namespace']}) does not match the namespace on the request"
            f" ({target.namespace})"
        )
    if target.resource.namespaced:
        meta["namespace"] = target.namespace


def _kept(target: Target, old: Object, new: Object) -> Object:
    """`new` with the parts that this endpoint cannot change taken from `old`."""
    resource, before = target.resource, old["metadata"]
    if target.subresource == "status":
        kept = {**old, "status": new.get("status")} if new.get("status") is not None else dict(old)
        if not resource.custom:
            meta = dict(new["metadata"])
            for field in ("labels",) if resource.key == "deployments.apps" else ():
                _restore(meta, before, field)
            kept["metadata"] = meta
        new = copy.deepcopy(kept)
    elif resource.status:
        _restore(new, old, "status")
    meta = new["metadata"]
    for field in (
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "generation",
        "selfLink",
    ):
        _restore(meta, before, field)
    for field in ("namespace", "name", "uid", "creationTimestamp", "resourceVersion"):
        if not meta.get(field):
            _restore(meta, before, field)
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in meta and not meta[field]:
            del meta[field]
    if resource.key == _NAMESPACES and not target.subresource:
        _restore(new, old, "spec")
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = before["name"]
    return new


def _restore(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = copy.deepcopy(old[field])
    else:
        new.pop(field, None)


def _appliable(target: Target, applied: Any, manager: str) -> Object:
    resource = target.resource
    if not isinstance(applied, dict):
        raise errors.bad_request("error decoding YAML: an applied configuration is an object")
    if not manager:
        told = "PatchOptions.meta.k8s.io"
        cause = errors.required("fieldManager", "is required for apply patch")
        raise errors.invalid("meta.k8s.io", told.partition(".")[0], "", [cause])
    meta = applied.setdefault("metadata", {})
    if meta.get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if (applied.get("apiVersion"), applied.get("kind")) != (resource.api_version, resource.kind):
        told = f"{applied.get('apiVersion')}, Kind={applied.get('kind')}"
        raise errors.bad_request(
            f"the applied object is a {told}, not a {resource.api_version}, Kind={resource.kind}"
        )
    if meta.get("name") not in (None, target.name):
        raise errors.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
        )
    return applied


def _told(owner: Object) -> str:
    told = f'"{owner["manager"]}"'
    if owner.get("subresource"):
        told += f' with subresource "{owner["subresource"]}"'
    if owner["operation"] == "Update":
        told += f" using {owner['apiVersion']}"
    return told
