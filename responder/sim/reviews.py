"""Questions about rights: SelfSubjectAccessReview and its kin."""

from datetime import datetime
from typing import Any

from responder.sim import managed_fields, shapes
from responder.sim.auth import Attributes, Authorizer, Rule, User

Object = dict[str, Any]


def review(obj: Object, user: User, authorizer: Authorizer, manager: str, now: datetime) -> Object | None:
    """The answered review; None for a kind that is none."""
    kind = obj["kind"]
    obj.pop("status", None)
    spec = obj.setdefault("spec", {})
    key = f"{kind.lower()}s.authorization.k8s.io"
    if key in shapes.SKELETONS:
        managed_fields.record_update(key, None, obj, manager, "", now)
    if kind == "SelfSubjectAccessReview":
        obj["status"] = {"allowed": authorizer.allows(user, _asked(spec))}
    elif kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
        groups = tuple(spec.get("groups") or ("system:authenticated",))
        obj["status"] = {"allowed": authorizer.allows(User(spec.get("user") or "", groups), _asked(spec))}
    elif kind == "SelfSubjectRulesReview":
        rules = authorizer.rules(user, spec.get("namespace") or "")
        obj["status"] = {
            "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
            "nonResourceRules": [
                {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
                for rule in rules
                if rule.non_resource_urls
            ],
            "incomplete": False,
        }
    elif kind == "SelfSubjectReview":
        del obj["spec"]
        obj["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
    else:
        return None
    return obj


def _asked(spec: Object) -> Attributes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is None:
        return Attributes(verb=(path or {}).get("verb", ""), path=(path or {}).get("path", "/"))
    return Attributes(
        verb=resource.get("verb", ""),
        group=resource.get("group", ""),
        resource=resource.get("resource", ""),
        subresource=resource.get("subresource", ""),
        namespace=resource.get("namespace", ""),
        name=resource.get("name", ""),
    )


def _resource_rule(rule: Rule) -> Object:
    found: Object = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
    }
    if rule.resource_names:
        found["resourceNames"] = list(rule.resource_names)
    return found
