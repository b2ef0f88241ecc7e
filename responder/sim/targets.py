"""What a write is about, and what it answers."""

from dataclasses import dataclass
from typing import Any

from responder.sim import errors
from responder.sim.resources import Resource

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """An object, existing or not, and the part of it that is meant."""

    resource: Resource
    namespace: str
    name: str
    subresource: str = ""

    @property
    def not_found(self) -> errors.ApiError:
        return errors.not_found(self.resource.group, self.resource.plural, self.name)

    def conflict(self, why: str = "") -> errors.ApiError:
        """The 409 of an update of this object."""
        return errors.conflict(self.resource.group, self.resource.plural, self.name, why)


@dataclass(frozen=True, slots=True)
class Written:
    """What a write answers: the object as its version shows it."""

    obj: Object
    code: int = 200
    warnings: tuple[str, ...] = ()
