"""metadata.managedFields: which manager wrote which field last, as the real server keeps it.

A field set is a set of paths; a path is a tuple of the elements that FieldsV1 is made of: `f:spec`,
`k:{"name":"c"}` for an item of a list with keys, `v:"x"` for an item of a set. The rules follow
structured-merge-diff: comparing two objects gives the added, modified and removed paths; the writer gains the
first two, everybody else loses them.
"""

import json
from datetime import UTC, datetime
from typing import Any

from responder.sim.shapes import SKELETONS, Path, is_atomic, item_element, list_keys

Object = dict[str, Any]
Paths = set[Path]

# Recorded from a real server: objects of this resource carry no managedFields.
UNTRACKED = frozenset({"nodes"})

_UNTRACKED_META = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
    }
)


def same(old: Object, new: Object) -> bool:
    """Whether two versions of an object are equal, the times in managedFields aside."""
    if old == new:
        return True
    before, after = old["metadata"], new["metadata"]
    if _timeless(before.get("managedFields")) != _timeless(after.get("managedFields")):
        return False
    bare_old = {k: v for k, v in before.items() if k != "managedFields"}
    bare_new = {k: v for k, v in after.items() if k != "managedFields"}
    return bare_old == bare_new and {**old, "metadata": 0} == {**new, "metadata": 0}


def record_update(
    resource: str, old: Object | None, new: Object, manager: str, subresource: str, now: datetime
) -> None:
    """Note in `new` that `manager` wrote whatever differs from `old` (None: a new object)."""
    if resource in UNTRACKED or not manager:
        return
    if old is not None and not old["metadata"].get("managedFields"):
        return  # skipNonApplied: an object that nobody's fields are kept for stays so.
    added, modified, removed = compare(resource, old, new, subresource)
    written = added | modified
    if not written and not removed:
        return
    entries = _Entries(new)
    entries.take(written, removed, unless=(manager, "Update", subresource))
    if written:
        entries.give(manager, "Update", new.get("apiVersion", ""), subresource, written, now)
    entries.store(new)


def record_scale(new: Object, path: str, manager: str, replicas: int) -> None:
    """Note that `manager` wrote the replicas through the scale subresource; that entry has no time.

    A Scale leaves out a zero, so writing zero removes the field from everybody, the writer included; and where
    nobody holds the field, the server does not begin to keep it. So after a scale to zero nobody holds replicas,
    through any number of scale writes, until somebody writes the object itself. Recorded so.
    """
    field = tuple(f"f:{part}" for part in path.split("."))
    entries = _Entries(new)
    if not entries.held(field):
        return
    entries.take({field}, set(), unless=None)
    if replicas:
        entries.give(manager, "Update", new["apiVersion"], "scale", {field}, None)
    entries.store(new)


def record_apply(
    resource: str,
    new: Object,
    applied: Object,
    manager: str,
    subresource: str,
    now: datetime,
    before_first: Object | None = None,
) -> None:
    """Note that `manager` owns exactly the fields of `applied`; `new` is the merged object.

    `before_first` is the object before: if nobody's fields were kept for it, they become before-first-apply's.
    """
    if resource in UNTRACKED:
        return
    owned = field_set(resource, applied)
    entries = _Entries(new)
    if before_first is not None and entries.empty:
        added, _, _ = compare(resource, None, before_first, subresource)
        version = before_first.get("apiVersion", "")
        entries.give("before-first-apply", "Update", version, subresource, added, now)
    before = entries.owned(manager, "Apply", subresource)
    entries.replace(manager, "Apply", new["apiVersion"], subresource, owned, now if owned != before else None)
    entries.store(new)


def drop_from_others(resource: str, new: Object, fields: Paths, manager: str, subresource: str) -> None:
    """Take `fields` from everybody but this applier, as a forced apply does."""
    if resource not in UNTRACKED:
        entries = _Entries(new)
        entries.take(fields, set(), unless=(manager, "Apply", subresource))
        entries.store(new)


def compare(
    resource: str, old: Object | None, new: Object, subresource: str = ""
) -> tuple[Paths, Paths, Paths]:
    """Added, modified and removed paths that managers can own through this endpoint."""
    walk = _Comparison(resource in SKELETONS)
    before = {**SKELETONS.get(resource, {}), "metadata": {}} if old is None else old
    walk.maps(_tracked(before, subresource), _tracked(new, subresource), ())
    return walk.added, walk.modified, walk.removed


def field_set(resource: str, obj: Object) -> Paths:
    """All paths an applied object speaks of."""
    found: Paths = set()
    tracked = _tracked(obj, "")
    if not tracked["metadata"]:
        del tracked["metadata"]
    _collect(tracked, (), found, typed=resource in SKELETONS)
    return found


def owners(obj: Object, *, skip: tuple[str, str, str]) -> list[tuple[Object, Paths]]:
    """Entries with their paths, but for the one of (manager, operation, subresource) `skip`."""
    entries = obj["metadata"].get("managedFields") or []
    return [(entry, decode(entry.get("fieldsV1") or {})) for entry in entries if identity(entry) != skip]


def manager_of(obj: Object, path: str) -> str:
    """Who holds a dotted path such as spec.replicas; empty if nobody does."""
    wanted = tuple(f"f:{part}" for part in path.split("."))
    for entry in obj["metadata"].get("managedFields") or []:
        if wanted in decode(entry.get("fieldsV1") or {}):
            return str(entry["manager"])
    return ""


def encode(paths: Paths) -> Object:
    """FieldsV1 of a field set."""
    root: Object = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    _prune(root)
    return root


def decode(fields: Object, prefix: Path = ()) -> Paths:
    """The field set of a FieldsV1."""
    found: Paths = set()
    for element, below in fields.items():
        if element == ".":
            found.add(prefix)
            continue
        path = (*prefix, element)
        if below:
            found |= decode(below, path)
        else:
            found.add(path)
    return found


def describe(path: Path) -> str:
    """A path as conflicts name it: .spec.template.spec.containers[name="c"].image."""
    told = ""
    for element in path:
        kind, value = element[0], element[2:]
        if kind == "f":
            told += f".{value}"
        elif kind == "k":
            keys = json.loads(value)
            told += "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in sorted(keys.items())) + "]"
        else:
            told += f"[={value}]"
    return told


class _Entries:
    """The managedFields of one object, taken apart to be changed."""

    def __init__(self, obj: Object) -> None:
        self._entries: list[tuple[Object, Paths]] = [
            (dict(entry), decode(entry.get("fieldsV1") or {}))
            for entry in obj["metadata"].get("managedFields") or []
        ]

    def take(self, fields: Paths, removed: Paths, *, unless: tuple[str, str, str] | None) -> None:
        kept = []
        for entry, paths in self._entries:
            left = paths if unless is not None and identity(entry) == unless else paths - fields
            if removed:
                left = {path for path in left if not _below(path, removed)}
            if left:
                kept.append((entry, left))
        self._entries = kept

    @property
    def empty(self) -> bool:
        return not self._entries

    def held(self, field: Path) -> bool:
        return any(field in paths for _, paths in self._entries)

    def owned(self, manager: str, operation: str, subresource: str) -> Paths:
        wanted = (manager, operation, subresource)
        return next((paths for entry, paths in self._entries if identity(entry) == wanted), set())

    def give(
        self,
        manager: str,
        operation: str,
        api_version: str,
        subresource: str,
        fields: Paths,
        now: datetime | None,
    ) -> None:
        owned = fields | self.owned(manager, operation, subresource)
        self._entries = [e for e in self._entries if identity(e[0]) != (manager, operation, subresource)]
        self._entries.append((_entry(manager, operation, api_version, subresource, now), owned))

    def replace(
        self,
        manager: str,
        operation: str,
        api_version: str,
        subresource: str,
        fields: Paths,
        now: datetime | None,
    ) -> None:
        wanted = (manager, operation, subresource)
        old = next((entry for entry, _ in self._entries if identity(entry) == wanted), None)
        self._entries = [e for e in self._entries if identity(e[0]) != wanted]
        if fields:
            entry = _entry(manager, operation, api_version, subresource, now)
            if now is None and old is not None and "time" in old:
                entry["time"] = old["time"]
            self._entries.append((entry, fields))

    def store(self, obj: Object) -> None:
        self._entries.sort(key=lambda pair: _order(pair[0]))
        fields = []
        for entry, paths in self._entries:
            subresource = entry.pop("subresource", "")
            entry["fieldsV1"] = encode(paths)
            fields.append(entry | ({"subresource": subresource} if subresource else {}))
        if fields:
            obj["metadata"]["managedFields"] = fields
        else:
            obj["metadata"].pop("managedFields", None)


class _Comparison:
    def __init__(self, typed: bool) -> None:
        self._typed = typed
        self.added: Paths = set()
        self.modified: Paths = set()
        self.removed: Paths = set()

    def maps(self, old: Object, new: Object, path: Path) -> None:
        for key, value in new.items():
            at = (*path, f"f:{key}")
            if key not in old:
                self._whole(value, key, at, self.added)
            elif old[key] != value:
                self._values(old[key], value, key, at)
        for key, value in old.items():
            if key not in new:
                self._whole(value, key, (*path, f"f:{key}"), self.removed)

    def _values(self, old: Any, new: Any, key: str, path: Path) -> None:
        if isinstance(new, dict) and isinstance(old, dict | None) and not is_atomic(key, path, self._typed):
            if new or old:
                self.maps(old or {}, new, path)
                return
        elif isinstance(new, list) and isinstance(old, list | None) and (new or old):
            keys = list_keys(key, [*(old or []), *new], path, self._typed)
            if keys is not None:
                self._lists(old or [], new, keys, path)
                return
        self.modified.add(path)

    def _lists(self, old: list[Any], new: list[Any], keys: tuple[str, ...], path: Path) -> None:
        before = {item_element(keys, item): item for item in old}
        after = {item_element(keys, item): item for item in new}
        for element, item in after.items():
            at = (*path, element)
            if element not in before:
                self._whole(item, "", at, self.added)
            elif before[element] != item:
                if keys == ("uid",) or not isinstance(item, dict):
                    self.modified.add(at)
                else:
                    self.maps(before[element], item, at)
        for element, item in before.items():
            if element not in after:
                self._whole(item, "", (*path, element), self.removed)

    def _whole(self, value: Any, key: str, path: Path, into: Paths) -> None:
        into.add(path)
        if (
            isinstance(value, dict)
            and not is_atomic(key, path, self._typed)
            and not path[-1].startswith('k:{"uid"')
        ):
            for field, below in value.items():
                self._whole(below, field, (*path, f"f:{field}"), into)
        elif isinstance(value, list) and value:
            keys = list_keys(key, value, path, self._typed)
            for item in value if keys is not None else ():
                self._whole(item, "", (*path, item_element(keys or (), item)), into)


def _collect(value: Object, path: Path, found: Paths, *, typed: bool) -> None:
    for key, below in value.items():
        at = (*path, f"f:{key}")
        keys = list_keys(key, below, at, typed) if isinstance(below, list) and below else None
        if isinstance(below, dict) and below and not is_atomic(key, at, typed):
            _collect(below, at, found, typed=typed)
        elif keys is not None:
            for item in below:
                inner = (*at, item_element(keys, item))
                found.add(inner)
                if isinstance(item, dict) and keys != ("uid",):
                    _collect(item, inner, found, typed=typed)
        else:
            found.add(at)


def _tracked(obj: Object, subresource: str) -> Object:
    tracked = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    if subresource == "status":
        tracked.pop("spec", None)
    meta = obj.get("metadata") or {}
    tracked["metadata"] = {key: value for key, value in meta.items() if key not in _UNTRACKED_META}
    return tracked


def _below(path: Path, roots: Paths) -> bool:
    return any(path[:length] in roots for length in range(1, len(path) + 1))


def identity(entry: Object) -> tuple[str, str, str]:
    """What tells an entry from others: manager, operation, subresource."""
    return entry["manager"], entry["operation"], entry.get("subresource") or ""


def _entry(manager: str, operation: str, api_version: str, subresource: str, now: datetime | None) -> Object:
    entry: Object = {"manager": manager, "operation": operation, "apiVersion": api_version}
    if now is not None:
        entry["time"] = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": {}}
    return entry | ({"subresource": subresource} if subresource else {})


def _order(entry: Object) -> tuple[str, str, str, str, str]:
    # Apply before Update, no time first, then by manager: sortEncodedManagedFields.
    return (
        entry["operation"],
        entry.get("time") or "",
        entry["manager"],
        entry.get("apiVersion") or "",
        entry.get("subresource") or "",
    )


def _prune(node: Object) -> None:
    if len(node) == 1:
        node.pop(".", None)
    for key, below in node.items():
        if key != ".":
            _prune(below)


def _timeless(entries: list[Object] | None) -> list[Object]:
    return [{k: v for k, v in entry.items() if k != "time"} for entry in entries or []]
