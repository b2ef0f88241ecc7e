"""Who asks, and what they may do: a table of bearer tokens, and the RBAC objects in the store."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from responder.sim.objects import ObjectStore

Object = dict[str, Any]

_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/healthz", "/livez", "/readyz")
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for. `path` alone for a non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Rule:
    """A PolicyRule; `namespaces` None allows it in all and for cluster-wide resources."""

    verbs: tuple[str, ...]
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()
    namespaces: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, rule: Mapping[str, Any], namespaces: Iterable[str] | None = None) -> Self:
        """From the camelCase of RBAC, with `namespaces` as one more key."""
        within = rule.get("namespaces", namespaces)
        return cls(
            verbs=tuple(rule.get("verbs") or ()),
            api_groups=tuple(rule.get("apiGroups") or ()),
            resources=tuple(rule.get("resources") or ()),
            resource_names=tuple(rule.get("resourceNames") or ()),
            non_resource_urls=tuple(rule.get("nonResourceURLs") or ()),
            namespaces=None if within is None else tuple(within),
        )

    def allows(self, asked: Attributes) -> bool:
        """Whether this rule grants what is asked."""
        if not _among(asked.verb, self.verbs):
            return False
        if asked.path:
            return any(_matches_url(pattern, asked.path) for pattern in self.non_resource_urls)
        if self.namespaces is not None and asked.namespace not in self.namespaces:
            return False
        if not _among(asked.group, self.api_groups):
            return False
        if not any(_matches_resource(pattern, asked) for pattern in self.resources):
            return False
        return not self.resource_names or asked.name in self.resource_names


@dataclass(frozen=True, slots=True)
class User:
    """An identity and the rules that its token carries."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    rules: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Self:
        """From {"user": …, "groups": […], "rules": [PolicyRule with optional namespaces]}."""
        groups = (*(table.get("groups") or ()), "system:authenticated")
        return cls(table["user"], groups, tuple(Rule.parse(rule) for rule in table.get("rules") or ()))


ADMIN = User(
    "admin",
    ("system:masters", "system:authenticated"),
    (Rule(verbs=("*",), api_groups=("*",), resources=("*",)), Rule(verbs=("*",), non_resource_urls=("*",))),
)
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
DEFAULT_TOKENS: Mapping[str, User] = {"admin": ADMIN}


class Authorizer:
    """Decides by the token's own rules, what every user may, and RBAC objects in the store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def allows(self, user: User, asked: Attributes) -> bool:
        """Whether `user` may."""
        if any(rule.allows(asked) for rule in user.rules):
            return True
        if asked.path and asked.verb in ("get", "head"):
            patterns = _PUBLIC if user is ANONYMOUS else (*_DISCOVERY, *_PUBLIC)
            if any(_matches_url(pattern, asked.path) for pattern in patterns):
                return True
        if user is not ANONYMOUS and asked.verb == "create" and asked.resource in _REVIEWS:
            return True
        return any(rule.allows(asked) for rule in self._bound(user))

    def rules(self, user: User, namespace: str) -> list[Rule]:
        """Rules that hold for the user in a namespace, for SelfSubjectRulesReview."""
        found = [*user.rules, *self._bound(user)]
        return [rule for rule in found if rule.namespaces is None or namespace in rule.namespaces]

    def _bound(self, user: User) -> Iterator[Rule]:
        for kind in ("clusterrolebindings", "rolebindings"):
            for entry in self._store.entries(f"{kind}.rbac.authorization.k8s.io"):
                binding = entry.obj
                namespace = binding["metadata"].get("namespace") or ""
                if not any(_is_subject(user, s, namespace) for s in binding.get("subjects") or ()):
                    continue
                ref = binding["roleRef"]
                plural = "clusterroles" if ref["kind"] == "ClusterRole" else "roles"
                within = namespace if ref["kind"] == "Role" else ""
                role = self._store.entry(f"{plural}.rbac.authorization.k8s.io", within, ref["name"])
                for rule in (role.obj.get("rules") or ()) if role else ():
                    yield Rule.parse(rule, [namespace] if namespace else None)


def _is_subject(user: User, subject: Object, namespace: str) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    if subject["kind"] == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
    return bool(user.name == subject["name"])


def _among(value: str, allowed: tuple[str, ...]) -> bool:
    return "*" in allowed or value in allowed


def _matches_resource(pattern: str, asked: Attributes) -> bool:
    if pattern in ("*", asked.full_resource):
        return True
    return bool(asked.subresource) and pattern == f"*/{asked.subresource}"


def _matches_url(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
