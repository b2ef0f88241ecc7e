"""Where the service is and who asks: options, environment, config file, in this order."""

import functools
import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import yaml

from responder.client.http import DEFAULT_URL, TIMEOUT, Api, home_expanded
from responder.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

KEYS = ("url", "tokenFile", "caFile", "alertmanagerUrl")


def connection_options(function: F) -> F:
    """`--url`, `--token-file` and `--ca-file`."""
    for option in (
        click.option(
            "--ca-file",
            metavar="FILE",
            envvar="GPU_RESPONDER_CA_FILE",
            help="The CA of the service's certificate.",
        ),
        click.option(
            "--token-file", metavar="FILE", envvar="GPU_RESPONDER_TOKEN_FILE", help="Holds the bearer token."
        ),
        click.option(
            "--url", metavar="URL", envvar="GPU_RESPONDER_URL", help=f"The service.  [default: {DEFAULT_URL}]"
        ),
    ):
        function = option(function)
    return function


def with_api(function: Callable[Concatenate[Api, P], R]) -> Callable[P, R]:
    """Give a command the connection options, and the API they lead to as its first argument."""

    @connection_options
    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        url, token_file, ca_file = (kwargs.pop(name, None) for name in ("url", "token_file", "ca_file"))
        return function(connect(url, token_file, ca_file), *args, **kwargs)

    return wrapped


def connect(url: Any, token_file: Any, ca_file: Any, timeout: float = TIMEOUT) -> Api:
    """The API as told. Raises ConfigError."""
    kept = config()
    return Api(
        url or kept.get("url") or DEFAULT_URL,
        token_file or kept.get("tokenFile", ""),
        ca_file or kept.get("caFile", ""),
        timeout,
    )


def completing(ctx: click.Context) -> Api:
    """The API for a shell that completes, and waits only so long."""
    given = ctx.params
    return connect(given.get("url"), given.get("token_file"), given.get("ca_file"), timeout=1.5)


def config_path() -> Path:
    """The config file's place: GPU_RESPONDER_CONFIG, or in XDG_CONFIG_HOME, by default ~/.config."""
    named = os.environ.get("GPU_RESPONDER_CONFIG")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return home_expanded(home) / "gpu-responder" / "config.yaml"


def config() -> dict[str, str]:
    """What the config file says; empty if there is none. Raises ConfigError."""
    path = config_path()
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if os.environ.get("GPU_RESPONDER_CONFIG"):
            raise ConfigError(f"{path}: does not exist, and GPU_RESPONDER_CONFIG names it") from None
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path}{where}: it is not YAML: write lines like url: {DEFAULT_URL}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: it must hold keys and values: write lines like url: {DEFAULT_URL}")
    for key, value in content.items():
        if key not in KEYS:
            near = get_close_matches(str(key), KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"{', '.join(KEYS)} are known"
            raise ConfigError(f"{path}: unknown key {key}: {hint}")
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {key} must be text")
    return content
