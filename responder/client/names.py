"""Targets by the names that people use: `inference/vllm` for `inference/deployment/vllm`, or just `vllm`."""

from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from responder.client.connection import completing
from responder.client.http import Api, ApiError, segment
from responder.client.tables import clean
from responder.errors import ConfigError, ResponderError
from responder.web.finding import near, spelt

_NAMED = 5


class UnknownTarget(ResponderError):
    """No known target has the name."""


def parts_of(name: str) -> tuple[str, str, str]:
    """Namespace, kind and name of a name in any form; what is not said is empty. Raises ConfigError."""
    parts = name.strip().split("/")
    if not all(parts) or len(parts) > 3:
        raise ConfigError(
            f"{clean(name)!r} names no target: write namespace/kind/name, namespace/name or name"
        )
    if len(parts) == 1:
        return "", "", parts[0]
    if len(parts) == 2:
        return parts[0], "", parts[1]
    return parts[0], spelt(parts[1]), parts[2]


def resolve(api: Api, name: str) -> str:
    """The key of the known target with this name. Raises UnknownTarget, ConfigError when it may mean several."""
    namespace, kind, short = parts_of(name)
    found = _known(api, namespace=namespace, kind=kind, name=short)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
        raise ConfigError(f"{clean(name)} may mean {listed}: say which")
    raise UnknownTarget(unknown(name, _known(api)))


def unknown(name: str, known: Sequence[str]) -> str:
    """What to say of a name that no target has."""
    if not known:
        return (
            f"no target {clean(name)} is known, nor any other: one is known once an alert for it has arrived."
        )
    meant = nearest(name, known)
    if not meant:
        return f"no target {clean(name)} is known: gpu-responder targets lists those that are."
    return f"no target {clean(name)} is known; did you mean {' or '.join(meant)}?"


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """Up to three known keys that may be meant: those that look like it, then the same name elsewhere."""
    same = [key for key in known if key.rpartition("/")[2] == name.rpartition("/")[2]]
    return list(dict.fromkeys([*near(name, known), *same]))[:3]


def brief(key: str) -> str:
    """The key without its kind if that is Deployment, as most are; every other kind is said."""
    namespace, kind, name = key.split("/", 2)
    return f"{namespace}/{name}" if kind == "deployment" else key


def complete_target(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of known targets that begin so, or nothing if the service cannot be asked just now."""
    try:
        keys = _known(completing(ctx))
    except Exception:  # noqa: BLE001 - a shell that completes has no place for errors
        return []
    forms = [*(brief(key) for key in keys if incomplete.count("/") < 2), *keys]
    found = list(dict.fromkeys(form for form in forms if form.startswith(incomplete)))
    if not found:
        # `vllm` for `inference/vllm`.
        found = [brief(key) for key in keys if key.rpartition("/")[2].startswith(incomplete)]
    return [CompletionItem(form) for form in found]


def path_of(key: str) -> str:
    """Where the API has this target."""
    return "/api/v1/targets/" + "/".join(segment(part) for part in key.split("/", 2))


def target(api: Api, key: str) -> dict[str, Any] | None:
    """The target, or None if it is not known."""
    try:
        found: dict[str, Any] = api.get(path_of(key))
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return found


def _known(api: Api, **query: str) -> list[str]:
    asked = {key: _literal(value) for key, value in query.items()}
    return [view["target"] for view in api.get("/api/v1/targets", asked)["targets"]]


def _literal(text: str) -> str:
    """The text as a glob of itself."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)
