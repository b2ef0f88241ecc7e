"""The patch types of the Kubernetes API, on plain JSON values."""

import copy
from typing import Any

Object = dict[str, Any]

# patchMergeKey of the types that people patch. Lists that are not named here are replaced whole.
MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "conditions": ("type",),
    "addresses": ("type",),
    "taints": ("key",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey",),
    "secrets": ("name",),
    "podIPs": ("ip",),
}
SETS = frozenset({"finalizers"})


class PatchError(Exception):
    """The patch cannot be applied."""


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902; raises PatchError, also when a test fails."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, TypeError, ValueError) as problem:
            raise PatchError(f"{operation}: {problem}") from problem
    return document


def strategic_merge(target: Any, patch: Any, key: str = "") -> Any:
    """A strategic merge patch: objects merge, lists merge by their key, lists without one are replaced."""
    if isinstance(patch, dict):
        return _strategic_object(target if isinstance(target, dict) else {}, patch)
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, key)
    return patch


def merge_key(field: str, items: list[Any]) -> str | None:
    """The key by which a list's items are told apart, if it has one."""
    for candidate in MERGE_KEYS.get(field, ()):
        if items and all(isinstance(item, dict) and candidate in item for item in items):
            return candidate
    return None


def _strategic_object(target: Object, patch: Object) -> Object:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge(merged.get(key), value, key)
    for key, values in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field) or [] if item not in values]
        elif key == "$retainKeys":
            merged = {field: value for field, value in merged.items() if field in values}
    for key, values in patch.items():
        if key.startswith("$setElementOrder/"):
            field = key.partition("/")[2]
            if isinstance(merged.get(field), list):
                merged[field] = _in_order(merged[field], values, field)
    return merged


def _strategic_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    if field in SETS:
        return [*target, *(item for item in patch if item not in target)]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    key = merge_key(field, [*patch, *target])
    if key is None:
        return copy.deepcopy(patch)
    merged = list(target)
    for item in patch:
        at = next((i for i, have in enumerate(merged) if have[key] == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [have for have in merged if have[key] != item[key]]
        elif at is None:
            merged.append(strategic_merge({}, item))
        else:
            merged[at] = strategic_merge(merged[at], item)
    return merged


def _in_order(items: list[Any], order: list[Any], field: str) -> list[Any]:
    key = merge_key(field, items) if items and isinstance(items[0], dict) else None

    def rank(item: Any) -> int:
        for at, wanted in enumerate(order):
            if (item[key] == wanted.get(key)) if key and isinstance(wanted, dict) else item == wanted:
                return at
        return len(order)

    return sorted(items, key=rank)


def _operate(document: Any, operation: Object) -> Any:
    op, path = operation["op"], _pointer(operation["path"])
    if op == "test":
        if _read(document, path) != operation.get("value"):
            raise PatchError(f"testing value {operation['path']} failed")
        return document
    if op == "remove":
        return _write(document, path, None, "remove")
    if op in ("add", "replace"):
        return _write(document, path, copy.deepcopy(operation["value"]), op)
    if op in ("move", "copy"):
        source = _pointer(operation["from"])
        value = copy.deepcopy(_read(document, source))
        if op == "move":
            document = _write(document, source, None, "remove")
        return _write(document, path, value, "add")
    raise PatchError(f"unexpected kind: {op}")


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _read(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_index(part)] if isinstance(document, list) else document[part]
    return document


def _index(part: str) -> int:
    at = int(part)
    if at < 0:
        raise PatchError(f"invalid index {part}")
    return at


def _write(document: Any, path: list[str], value: Any, op: str) -> Any:
    if not path:
        return value
    parent, last = _read(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        if op == "add":
            at = len(parent) if last == "-" else _index(last)
            if at > len(parent):
                raise PatchError(f"index {last} is past the end")
            parent.insert(at, value)
        elif op == "replace":
            parent[_index(last)] = value
        else:
            del parent[_index(last)]
    elif op == "remove":
        del parent[last]
    elif op == "replace" and last not in parent:
        raise PatchError(f"replace operation does not apply: {'/'.join(path)} is missing")
    else:
        parent[last] = value
    return document
