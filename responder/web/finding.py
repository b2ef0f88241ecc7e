"""Which target a person means: `namespace/kind/name`, or as much of it as names only one that is known. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from responder.matchers import quoted
from responder.templates import is_namespace, is_object_name
from responder.web.problems import BadRequest

_KINDS = {
    "deploy": "deployment",
    "deployments": "deployment",
    "sts": "statefulset",
    "statefulsets": "statefulset",
    "rs": "replicaset",
    "replicasets": "replicaset",
    "rc": "replicationcontroller.",
    "replicationcontroller": "replicationcontroller.",
    "replicationcontrollers": "replicationcontroller.",
    "rollout": "rollout.argoproj.io",
    "rollouts": "rollout.argoproj.io",
    "leaderworkerset": "leaderworkerset.leaderworkerset.x-k8s.io",
    "leaderworkersets": "leaderworkerset.leaderworkerset.x-k8s.io",
    "cloneset": "cloneset.apps.kruise.io",
    "clonesets": "cloneset.apps.kruise.io",
}
"""What kubectl and people say, as target keys have it."""
_KIND = re.compile(r"[a-z][a-z0-9-]{0,62}(\.[a-z0-9.-]{0,253})?")
_NEAR = 3


@dataclass(frozen=True, slots=True)
class Found:
    """A target's key, and whether anything is known of it."""

    key: str
    known: bool


def spelt(kind: str) -> str:
    """The kind as target keys spell it: `deployments` and `deploy` are `deployment`."""
    lower = kind.lower().removesuffix(".apps")
    resource, _, group = lower.partition(".")
    known = _KINDS.get(resource, "")
    return known if known and group in ("", known.partition(".")[2]) else lower


def find(text: str, known: Iterable[str]) -> Found:
    """The target that is meant. Raises BadRequest: 400 if that is no target, 404 or 409 with near ones."""
    parts, keys = text.strip().split("/"), list(known)
    if len(parts) == 3:
        return _whole(parts[0], parts[1], parts[2], keys)
    if len(parts) > 3 or not all(parts):
        raise BadRequest(f"target: {quoted(text)} is no target; write namespace/kind/name")
    meant = [key for key in keys if _fits(key, parts)]
    if len(meant) == 1:
        return Found(meant[0], True)
    if meant:
        many = " and ".join(meant[:_NEAR])
        raise BadRequest(
            f"target: {quoted(text)} may be {many}; write namespace/kind/name", 409, meant[:_NEAR]
        )
    raise not_known(text, keys)


def not_known(text: str, keys: Sequence[str], key: str = "target: ") -> BadRequest:
    """404 that names the targets which may be meant."""
    close = near(text, keys)
    hint = f"; did you mean {close[0]}?" if close else ""
    if not close and text.count("/") < 2:
        hint = "; write namespace/kind/name"
    return BadRequest(f"{key}no target {quoted(text)} is known{hint}", 404, close)


def near(text: str, keys: Sequence[str]) -> list[str]:
    """The known targets that look most like this, whether or not it names its kind."""
    parts = text.lower().split("/")
    of_another_kind = [key for key in keys if len(parts) == 3 and _fits(key, [parts[0], parts[2]])]
    by_text: dict[str, str] = {}
    for key in keys:
        namespace, _, name = key.split("/", 2)
        by_text[{1: name, 2: f"{namespace}/{name}"}.get(len(parts), key)] = key
    # With a namespace in common, any two look alike.
    cutoff = 0.75 if len(parts) > 1 else 0.6
    close = [by_text[text] for text in get_close_matches(text.lower(), by_text, _NEAR, cutoff)]
    return list(dict.fromkeys((*of_another_kind, *close)))[:_NEAR]


def _whole(namespace: str, kind: str, name: str, keys: Sequence[str]) -> Found:
    spelling = spelt(kind)
    resource, dot, group = spelling.partition(".")
    for candidate in (spelling, f"{resource.removesuffix('s')}{dot}{group}"):
        key = f"{namespace}/{candidate}/{name}"
        if key in keys:
            return Found(key, True)
    if not is_namespace(namespace):
        raise BadRequest(f"target: {quoted(namespace)} is not a legal Kubernetes namespace")
    if not _KIND.fullmatch(spelling):
        raise BadRequest(
            f"target: {quoted(kind)} is no kind; write it like deployment or rollout.argoproj.io"
        )
    if not is_object_name(name):
        raise BadRequest(f"target: {quoted(name)} is not a legal name of a Kubernetes object")
    return Found(f"{namespace}/{spelling}/{name}", False)


def _fits(key: str, parts: Sequence[str]) -> bool:
    namespace, _, name = key.split("/", 2)
    return [namespace, name][-len(parts) :] == list(parts)
