"""Who is told of what watches see."""

from typing import Protocol

from responder.model import TargetRef


class News(Protocol):
    """Told from the watches' threads, so each must return at once."""

    def changed(self, target: TargetRef) -> None:
        """Somebody else has changed a target, or what scales it."""

    def pods_changed(self, target: TargetRef) -> None:
        """Pods of a target have become ready or are so no more, or no place is found for them."""

    def cordon_lifted(self) -> None:
        """A person has made a node schedulable that this service had cordoned."""


class Nobody:
    """For who only wants to be kept current."""

    def changed(self, target: TargetRef) -> None: ...

    def pods_changed(self, target: TargetRef) -> None: ...

    def cordon_lifted(self) -> None: ...
