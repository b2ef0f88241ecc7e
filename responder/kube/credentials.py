"""Where the API server is and how to be known to it: a kubeconfig file, or the pod's service account."""

import os
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config

from responder.errors import ConfigError

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def api_client(kubeconfig: str | None, pool_size: int) -> Any:
    """The kubernetes client's ApiClient, of which only configuration and connection pool are used.

    In order: `kubeconfig`, KUBECONFIG, the service account, ~/.kube/config. Raises ConfigError.
    """
    configuration = kubernetes.client.Configuration()
    # By default urllib3 sends even a PUT up to four times and sleeps through Retry-After.
    configuration.retries = False
    configuration.connection_pool_maxsize = pool_size
    file = kubeconfig or os.environ.get("KUBECONFIG", "") or _default_file()
    try:
        if file:
            _check_there(file)
            kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
                file, client_configuration=configuration, persist_config=False
            )
        else:
            kubernetes.config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except ConfigError:
        raise
    except Exception as error:  # whatever YAML, base64, files and plugins raise
        words = str(error).split("\n")[0].rstrip(".")
        raise ConfigError(
            f"Kubernetes configuration {file or 'of the service account'} cannot be used: {words}."
        ) from error
    return kubernetes.client.ApiClient(configuration)


def authorization(client: Any) -> dict[str, str]:
    """The headers that carry the credentials; a service account's token is read again every minute."""
    try:
        settings = client.configuration.auth_settings().values()
    except (kubernetes.config.ConfigException, OSError) as error:
        raise ConfigError(f"the credentials cannot be read ({error}).") from error
    return {s["key"]: s["value"] for s in settings if s["in"] == "header" and s["value"]}


def own_namespace() -> str:
    """The namespace of the pod's service account; empty where this is no pod."""
    try:
        return _NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _default_file() -> str:
    """~/.kube/config where there is neither KUBECONFIG nor a service account."""
    if os.environ.get(_IN_CLUSTER):
        return ""
    file = _expanded("~/.kube/config")
    if not file.is_file():
        raise ConfigError(
            "No Kubernetes configuration: this is not a pod with a service account, KUBECONFIG is not set "
            "and ~/.kube/config does not exist; name a file with --kubeconfig."
        )
    return str(file)


def _check_there(files: str) -> None:
    """KUBECONFIG may name several files; the client skips missing ones silently, so insist on one."""
    names = [name for name in files.split(os.pathsep) if name]
    if not any(_expanded(name).is_file() for name in names):
        raise ConfigError(
            f"Kubernetes configuration {files} does not exist; check --kubeconfig or KUBECONFIG."
        )


def _expanded(file: str) -> Path:
    # Path.expanduser raises where there is no home.
    return Path(os.path.expanduser(file))
