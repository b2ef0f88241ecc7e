"""Server-side apply: merging an applied configuration into an object."""

import copy
import json
from typing import Any

from responder.sim.managed_fields import Paths, decode, field_set, identity
from responder.sim.shapes import SKELETONS, Path, is_atomic, item_element, list_keys

Object = dict[str, Any]


def merged(resource: str, old: Object, applied: Object, applier: tuple[str, str, str]) -> Object:
    """`old` with `applied` merged in, and without what this applier once set, sets no more and nobody else holds."""
    typed = resource in SKELETONS
    result: Object = _merge(
        old, {k: v for k, v in applied.items() if k not in ("apiVersion", "kind")}, (), typed
    )
    before: Paths = set()
    others: Paths = set()
    for entry in old["metadata"].get("managedFields") or []:
        paths = decode(entry.get("fieldsV1") or {})
        if identity(entry) == applier:
            before = paths
        else:
            others |= paths
    gone = before - field_set(resource, applied) - others
    for path in sorted(gone, key=len, reverse=True):
        if not any(other[: len(path)] == path for other in others):
            _remove(result, path)
    return result


def _merge(old: Any, new: Any, path: Path, typed: bool) -> Any:
    field = path[-1][2:] if path else ""
    if isinstance(new, dict) and isinstance(old, dict) and not (path and is_atomic(field, path, typed)):
        result = dict(old)
        for key, value in new.items():
            if key not in old:
                result[key] = copy.deepcopy(value)
            else:
                result[key] = _merge(old[key], value, (*path, f"f:{key}"), typed)
        return result
    if isinstance(new, list) and isinstance(old, list) and path:
        keys = list_keys(field, [*old, *new], path, typed)
        if keys is not None:
            return _merge_lists(old, new, keys, path, typed)
    return copy.deepcopy(new)


def _merge_lists(old: list[Any], new: list[Any], keys: tuple[str, ...], path: Path, typed: bool) -> list[Any]:
    before = {item_element(keys, item): item for item in old}
    after = {item_element(keys, item): item for item in new}
    result = []
    for element, item in before.items():
        wanted = after.pop(element, None)
        result.append(item if wanted is None else _merge(item, wanted, (*path, element), typed))
    return [*result, *(copy.deepcopy(item) for item in after.values())]


def _remove(obj: Any, path: Path) -> None:
    for element in path[:-1]:
        obj = _step(obj, element)
        if obj is None:
            return
    last = path[-1]
    if last.startswith("f:") and isinstance(obj, dict):
        obj.pop(last[2:], None)
    elif isinstance(obj, list):
        found = _step(obj, last)
        if found is not None:
            obj.remove(found)


def _step(obj: Any, element: str) -> Any:
    if element.startswith("f:"):
        return obj.get(element[2:]) if isinstance(obj, dict) else None
    wanted = json.loads(element[2:])
    for item in obj if isinstance(obj, list) else ():
        if item == wanted or (
            isinstance(item, dict)
            and isinstance(wanted, dict)
            and all(item.get(k, "TCP" if k == "protocol" else None) == v for k, v in wanted.items())
        ):
            return item
    return None
