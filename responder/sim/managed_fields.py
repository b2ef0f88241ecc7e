"""metadata.managedFields, as the real server keeps them."""

from datetime import datetime
from typing import Any

Object = dict[str, Any]


def same(old: Object, new: Object) -> bool:
    """Whether two versions are equal but for their managedFields' times."""
    return old == new


def record_update(
    resource: str, old: Object | None, new: Object, manager: str, subresource: str, now: datetime
) -> None:
    """Note in `new` that `manager` wrote what differs from `old`."""
