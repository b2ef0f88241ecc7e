"""What the server says it serves: discovery documents and just enough OpenAPI for kubectl to validate."""

import hashlib
from typing import Any

import msgspec

from responder.sim.resources import Registry, Resource, storage_hash

Object = dict[str, Any]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION: Object = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "$Format:%H$",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.27.3",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_SUB_VERBS = ["get", "patch", "update"]
# Subresources that no type definition names: resource, then (name, group, version, kind, verbs).
_EXTRA: dict[str, tuple[tuple[str, str, str, str, list[str]], ...]] = {
    "pods": (
        ("binding", "", "", "Binding", ["create"]),
        ("eviction", "policy", "v1", "Eviction", ["create"]),
        ("log", "", "", "Pod", ["get"]),
    ),
    "namespaces": (("finalize", "", "", "Namespace", ["update"]),),
}


def api_versions() -> Object:
    """GET /api."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(registry: Registry) -> Object:
    """GET /apis."""
    groups = [_group(name, versions) for name, versions in registry.groups().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Object | None:
    """GET /apis/<group>; None if there is no such group."""
    versions = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, versions) if versions else None


def resource_list(registry: Registry, group_name: str, version: str) -> Object | None:
    """GET /api/v1 and /apis/<group>/<version>; None if that is not served."""
    resources = registry.of(group_name, version)
    if not resources:
        return None
    listed: list[Object] = []
    for resource in resources:
        listed += _listed(resource)
    served = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList"} | (
        {"apiVersion": "v1", "groupVersion": served, "resources": listed}
        if group_name
        else {"groupVersion": served, "resources": listed}
    )


def aggregated(registry: Registry, *, core: bool) -> Object:
    """GET /api or /apis by a client that wants everything in one document."""
    groups = {"": ["v1"]} if core else registry.groups()
    items = []
    for name, versions in groups.items():
        served = [
            {
                "version": version,
                "resources": [_aggregated(r) for r in registry.of(name, version)],
                "freshness": "Current",
            }
            for version in versions
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": served})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def openapi_index(registry: Registry) -> Object:
    """GET /openapi/v3."""
    served = {(r.group, r.version) for r in registry}
    paths = {}
    for group_name, version in sorted(served):
        path = f"apis/{group_name}/{version}" if group_name else f"api/{version}"
        document = msgspec.json.encode(openapi(registry, group_name, version))
        paths[path] = {
            "serverRelativeURL": f"/openapi/v3/{path}?hash={hashlib.sha256(document).hexdigest()[:32].upper()}"
        }
    return {"paths": paths}


def openapi(registry: Registry, group_name: str, version: str) -> Object:
    """GET /openapi/v3/…: paths that say fieldValidation is understood, and no schemas."""
    root = f"/apis/{group_name}/{version}" if group_name else f"/api/{version}"
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    paths = {}
    for resource in registry.of(group_name, version):
        within = "/namespaces/{namespace}" if resource.namespaced else ""
        kind = {"group": group_name, "version": version, "kind": resource.kind}
        responses = {"200": {"description": "OK"}}
        change = {"parameters": parameters, "responses": responses, "x-kubernetes-group-version-kind": kind}
        paths[f"{root}{within}/{resource.plural}"] = {
            "post": change | {"x-kubernetes-action": "post"},
            "parameters": [],
        }
        paths[f"{root}{within}/{resource.plural}/{{name}}"] = {
            "patch": change | {"x-kubernetes-action": "patch"},
            "put": change | {"x-kubernetes-action": "put"},
            "parameters": [],
        }
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _group(name: str, versions: list[str]) -> Object:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _listed(resource: Resource) -> list[Object]:
    main: Object = {
        "name": resource.plural,
        "singularName": resource.name,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    if "list" in resource.verbs:
        main["storageVersionHash"] = storage_hash(resource)
    subresources: list[Object] = []
    shared = {"singularName": "", "namespaced": resource.namespaced}
    status = {"name": f"{resource.plural}/status", **shared, "kind": resource.kind, "verbs": _SUB_VERBS}
    if resource.custom and resource.status:
        subresources.append(status)
    for name, group_name, version, kind, verbs in _EXTRA.get(resource.key, ()):
        served = {"group": group_name, "version": version} if group_name else {}
        subresources.append(
            {"name": f"{resource.plural}/{name}", **shared, **served, "kind": kind, "verbs": verbs}
        )
    if resource.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": _SUB_VERBS}
        subresources.append({"name": f"{resource.plural}/scale", **shared, **scale})
    if not resource.custom and resource.status:
        subresources.append(status)
    return [main, *subresources]


def _aggregated(resource: Resource) -> Object:
    def kind(group_name: str, version: str, name: str) -> Object:
        return {"group": group_name, "version": version, "kind": name}

    main, *subresources = _listed(resource)
    found: Object = {
        "resource": resource.plural,
        "responseKind": kind(resource.group, resource.version, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.name,
        "verbs": main["verbs"],
    }
    for field in ("shortNames", "categories"):
        if field in main:
            found[field] = main[field]
    if subresources:
        found["subresources"] = [
            {
                "subresource": sub["name"].partition("/")[2],
                "responseKind": kind(
                    sub.get("group", resource.group), sub.get("version", resource.version), sub["kind"]
                ),
                "verbs": sub["verbs"],
            }
            for sub in subresources
        ]
    return found
