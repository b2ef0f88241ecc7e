"""Asking the API server what this service may do."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from responder.kube.connection import Call, Connection

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource. An empty namespace is all of them; `resource` is the plural."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {what}{group} in {self.namespace or 'all namespaces'}"


@dataclass(frozen=True, slots=True)
class Access:
    """The server's answer to one right, with its reason when it gives one."""

    right: Right
    allowed: bool
    reason: str = ""


class _Status(msgspec.Struct):
    allowed: bool = False
    reason: str = ""


class _Review(msgspec.Struct):
    status: _Status


def review(connection: Connection, rights: Iterable[Right]) -> list[Access]:
    """Ask for each right by a SelfSubjectAccessReview, which anyone who is known may create."""
    return [_ask(connection, right) for right in rights]


def _ask(connection: Connection, right: Right) -> Access:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    call = Call("POST", _PATH, f"ask whether this service may {right}", data=msgspec.json.encode(body))
    status = connection.send(call, _Review).status
    return Access(right, status.allowed, status.reason)
