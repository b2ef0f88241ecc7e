"""What the service may do in Kubernetes, against what its policies need, and the API server's clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any

import urllib3

from responder.check.doctor.servers import ClockReading, reading
from responder.check.findings import Finding, error
from responder.errors import ResponderError
from responder.kube.access import review
from responder.kube.connection import Connection
from responder.kube.credentials import api_client
from responder.kube.discovery import Discovery
from responder.kube.rights import missing_role, rights_needed
from responder.policy import Settings


@dataclass(frozen=True, slots=True)
class Told:
    """What was found, the Role that grants what is missing, and the server's clock."""

    findings: tuple[Finding, ...] = ()
    role: str = ""
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True)
class _Options:
    store: str


def check(settings: Settings, kubeconfig: str | None, store: str, timeout: float) -> Told:
    """Ask the API server for each right that the policies need. Never raises for what it answers."""
    place = "Kubernetes"
    try:
        connection = Connection(kubeconfig, timeout=timeout, deadline=timeout)
    except ResponderError as problem:
        mend = "name a kubeconfig with --kubeconfig"
        return Told((error(place, 0, "unreachable", _sentence(problem), mend),))
    place = f"Kubernetes {connection.server}"
    try:
        discovery = Discovery(connection)
        keda = discovery.serves("keda.sh")
        rights = rights_needed(settings, _Options(store), partial(_plural, discovery), keda=keda)
        answers = review(connection, rights)
        kinds = list(_kinds(settings, discovery, place))
    except ResponderError as problem:
        mend = "check the kubeconfig, the network and that the API server runs"
        return Told((error(place, 0, "unreachable", _sentence(problem), mend),))
    finally:
        connection.close()
    denied = [
        error(
            place,
            0,
            "right-missing",
            f"It does not allow to {answer.right}.",
            "apply the Role that is printed",
        )
        for answer in answers
        if not answer.allowed
    ]
    role = missing_role(answers) if denied else ""
    return Told((*denied, *kinds), role, _clock(kubeconfig, place, timeout))


def _plural(discovery: Discovery, group: str, kind: str) -> str | None:
    found = discovery.find(group, kind)
    return found.plural if found is not None else None


def _kinds(settings: Settings, discovery: Discovery, place: str) -> Iterator[Finding]:
    """Kinds that policies scale and this cluster does not serve, or not with a scale subresource."""
    kinds = {
        (policy.target.api_version.rpartition("/")[0], policy.target.kind): policy.name
        for policy in settings.policies
        if policy.target is not None
    }
    for (group, kind), name in sorted(kinds.items()):
        found = discovery.find(group, kind)
        if found is None:
            said = f"Policy {name} scales {kind} of {group or 'the core API'}, which is not served here."
            yield error(
                place, 0, "kind-unknown", said, "install its CustomResourceDefinition, or mend the policy"
            )
        elif not found.scalable:
            said = f"Policy {name} scales {kind}, which has no scale subresource here."
            yield error(place, 0, "kind-unknown", said, "name a kind that scales")


def _clock(kubeconfig: str | None, place: str, timeout: float) -> ClockReading | None:
    try:
        client: Any = api_client(kubeconfig, 1)
        began = time()
        response = client.rest_client.pool_manager.request(
            "GET", f"{client.configuration.host}/version", timeout=timeout, retries=False
        )
    except (ResponderError, urllib3.exceptions.HTTPError, OSError, AttributeError):
        return None
    return reading(place, response.headers.get("Date", ""), began, time())


def _sentence(problem: ResponderError) -> str:
    text = str(problem).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
