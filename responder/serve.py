"""`gpu-responder serve`: the service's processes under gunicorn, and what each is made of."""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union
from urllib.parse import urlsplit

import click
from gunicorn.app.base import BaseApplication

from responder import config, logs
from responder.errors import ConfigError, ResponderError
from responder.model import Span
from responder.options import credential_options, sent
from responder.policy import Settings
from responder.settings import SettingsSource
from responder.store.sqlite import SYNC, SqliteStore
from responder.web.auth import Access, Tokens, is_loopback
from responder.worker import Actor, GunicornLog, ResponderWorker

if TYPE_CHECKING:
    from flask import Blueprint

    from responder.store.kubernetes import KubernetesStore

Store = Union[SqliteStore, "KubernetesStore"]

SYSTEM_FOLDER = Path("/var/lib/gpu-responder")
DATABASE = "gpu-responder.db"
GRACE_SECONDS = 25
"""For finishing what was begun; Kubernetes grants 30 s by default."""
ADDRESS_SECONDS = 5
STALL_SECONDS = 20
"""A process that gives no sign of life for so long is killed and replaced."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `serve` is told; see its help."""

    policy: str
    bind: str = "127.0.0.1:9099"
    store: str = ""
    store_sync: str = "normal"
    kubeconfig: str | None = None
    token_hashes_file: str = ""
    alertmanager_urls: tuple[str, ...] = ()
    prometheus_urls: tuple[str, ...] = ()
    value_max_age: float = 90.0
    workers: int = 1
    threads: int = 16
    override_max_days: float = 30.0
    log_format: str = "human"
    certfile: str = ""
    keyfile: str = ""
    ca_certs: str = ""
    prometheus_token_file: str = ""
    prometheus_headers: Mapping[str, str] = field(default_factory=dict)
    alertmanager_token_file: str = ""


BuildActor = Callable[[Options, Any, SettingsSource, datetime], Actor]


class Service(BaseApplication):  # type: ignore[misc]
    """gunicorn's application. `folder` is what the service's processes share while it runs."""

    def __init__(self, options: Options, folder: Path, build_actor: BuildActor | None = None) -> None:
        self.options = options
        self.folder = folder
        self.started_at = datetime.now(UTC)
        self._build_actor = build_actor or make_actor
        super().__init__()

    def load_config(self) -> None:
        options = self.options
        values: dict[str, Any] = {
            "bind": [options.bind],
            "workers": options.workers + 1,
            "threads": options.threads,
            "worker_class": ResponderWorker,
            "worker_connections": 1000,
            "logger_class": GunicornLog,
            "timeout": STALL_SECONDS,
            "graceful_timeout": GRACE_SECONDS,
            "keepalive": 75,
            "worker_tmp_dir": str(self.folder),
            "post_fork": _until_it_can_stop,
            "proc_name": "gpu-responder",
            # Nobody is trusted to say where a request came from; nobody needs to.
            "forwarded_allow_ips": "",
            "control_socket_disable": True,
        }
        if options.certfile:
            values.update(certfile=options.certfile, keyfile=options.keyfile or None)
        if options.ca_certs:
            values.update(ca_certs=options.ca_certs, cert_reqs=2)
        for name, value in values.items():
            # Settings come and go with gunicorn's releases.
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> None:
        """Nothing is loaded before the fork; each process makes its own."""

    def roles(self, slot: str) -> "Process":
        """What the worker process in this slot is made of."""
        return Process(self.options, self.folder, slot, self.started_at, self._build_actor)


class Process:
    """One worker process's parts, made after its fork and in it only."""

    def __init__(
        self, options: Options, folder: Path, slot: str, started_at: datetime, build_actor: BuildActor
    ) -> None:
        from responder import metrics  # noqa: PLC0415 - it counts into this process's files

        metrics.use_folder(folder, slot)
        self._options = options
        self._started_at = started_at
        self._build_actor = build_actor
        self._source = SettingsSource(options.policy, config.load, folder / "reload")
        self._store = open_store(options, self._source.current.cluster, start_anyway=True)

    def web(self, draining: Callable[[], bool]) -> Any:
        """The WSGI application."""
        from responder.web.app import Services, create_app  # noqa: PLC0415 - the actor needs no Flask

        options = self._options
        return create_app(
            Services(
                store=self._store,
                source=self._source,
                access=make_access(self._options),
                draining=draining,
                safe_mode=self._safe_mode,
                started_at=self._started_at,
                override_max=timedelta(days=self._options.override_max_days),
                prometheus_urls=self._options.prometheus_urls,
                prometheus_headers=lambda: sent(options.prometheus_headers, options.prometheus_token_file),
            ),
            blueprints(),
        )

    def actor(self) -> tuple[Actor, Callable[[], None]]:
        """The actor, and what wakes it."""
        made = self._build_actor(self._options, self._store, self._source, self._started_at)
        return made, self._store.ring

    def close(self) -> None:
        """Finish what the store was given and close it."""
        self._store.close()

    def _safe_mode(self, settings: Settings, standing: Iterable[Span], now: datetime) -> str:
        from responder.alerts import safe_mode  # noqa: PLC0415

        return safe_mode(settings, standing, now, self._started_at)


def blueprints() -> "Sequence[Blueprint]":
    """The parts of the API besides webhook and operations."""
    # The actor needs no Flask.
    from responder.web.alertmanager import alertmanager  # noqa: PLC0415
    from responder.web.audit import audit  # noqa: PLC0415
    from responder.web.openapi import openapi  # noqa: PLC0415
    from responder.web.overrides import overrides  # noqa: PLC0415
    from responder.web.page_forms import page  # noqa: PLC0415
    from responder.web.read import read  # noqa: PLC0415
    from responder.web.silences import silences  # noqa: PLC0415

    return (read, overrides, silences, alertmanager, audit, openapi, page)


def make_actor(options: Options, store: Store, source: SettingsSource, started_at: datetime) -> Actor:
    """The actor and the clients it works with. Web processes never import these."""
    from responder import actor, observer  # noqa: PLC0415
    from responder.acting.lookup import PodLookup  # noqa: PLC0415
    from responder.acting.reach import Reporting, raising  # noqa: PLC0415
    from responder.alertmanager import AlertmanagerClient  # noqa: PLC0415
    from responder.kube import KubeCluster  # noqa: PLC0415
    from responder.prometheus import PrometheusValues  # noqa: PLC0415
    from responder.store.holder import this_process  # noqa: PLC0415

    cluster = KubeCluster(options.kubeconfig, on_call=observer.called)
    values = PrometheusValues(
        options.prometheus_urls,
        fresh=options.value_max_age,
        bearer_token_file=options.prometheus_token_file,
        headers=options.prometheus_headers,
    )
    bearer = options.alertmanager_token_file or None
    alertmanagers = [AlertmanagerClient(url, bearer_file=bearer) for url in options.alertmanager_urls]
    lookup = PodLookup(cluster, store.ring)
    acting = actor.Actor(
        store,
        cluster,
        values,
        alertmanagers,
        source,
        holder=this_process(),
        observer=observer.Observer(cluster),
        started_at=started_at,
        lookup=lookup,
        nodes=cluster.nodes,
    )
    cluster.keep_current(acting)
    checks = {
        "kubernetes": cluster.check,
        **({"prometheus": values.check} if options.prometheus_urls else {}),
    }
    checks |= {f"alertmanager {each.url}": raising(each.status) for each in alertmanagers}
    return Reporting(acting, store, checks, (lookup.close, cluster.close))


def open_store(options: Options, cluster: str, *, start_anyway: bool = False) -> Store:
    """The store that the options name. Raises ConfigError, StoreUnavailable."""
    kind, _, namespace = options.store.partition(":")
    if kind == "kubernetes":
        # Who keeps a database needs no client of Kubernetes to take deliveries in.
        from responder.observer import called  # noqa: PLC0415
        from responder.store.kubernetes import KubernetesStore  # noqa: PLC0415

        return KubernetesStore(
            namespace, options.kubeconfig, cluster, start_anyway=start_anyway, on_call=called
        )
    return SqliteStore(store_path(options.store), cluster, options.store_sync, start_anyway=start_anyway)


def store_path(store: str) -> Path:
    """The database's path from `--store`; by default in /var/lib/gpu-responder or, failing that, here."""
    if not store:
        if SYSTEM_FOLDER.is_dir() and os.access(SYSTEM_FOLDER, os.W_OK):
            return SYSTEM_FOLDER / DATABASE
        return Path.cwd() / DATABASE
    kind, _, path = store.partition(":")
    if kind != "sqlite" or not path:
        raise ConfigError(f"--store: {store!r} is no store: write sqlite:<path> or kubernetes")
    if not Path(path).absolute().parent.is_dir():
        raise ConfigError(f"--store: the folder of {path} does not exist: make it first")
    return Path(path)


def make_access(options: Options) -> Access:
    """Who may do what. Raises ConfigError."""
    return Access(Tokens(options.token_hashes_file) if options.token_hashes_file else None)


def check(options: Options) -> None:
    """Raise ConfigError or StoreUnavailable for what would keep the service from working, before it starts."""
    host, _, port = options.bind.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--bind: {options.bind!r} is no address: write <address>:<port>")
    if not options.token_hashes_file and not (host == "localhost" or is_loopback(host.strip("[]"))):
        raise ConfigError(
            f"--bind: without tokens only this host may connect, and {host} is reached by others: "
            "bind 127.0.0.1, or give --token-hashes-file (see gpu-responder token create)"
        )
    for name, path in (
        ("--certfile", options.certfile),
        ("--keyfile", options.keyfile),
        ("--ca-certs", options.ca_certs),
    ):
        if path and not os.access(path, os.R_OK):
            raise ConfigError(f"{name}: {path} cannot be read")
    for name, urls in (
        ("--prometheus-url", options.prometheus_urls),
        ("--alertmanager-url", options.alertmanager_urls),
    ):
        for url in urls:
            if not _is_url(url):
                # Not told in full, for it may hold a password.
                raise ConfigError(f"{name}: what is given is no address: write it like http://host:9090")
    if (options.keyfile or options.ca_certs) and not options.certfile:
        raise ConfigError("--certfile: TLS needs the server's own certificate")
    make_access(options)
    settings = config.load(options.policy)
    open_store(options, settings.cluster).close()


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def wait_for_address(bind: str) -> None:
    """Wait while the address is taken, as by processes of a service that was just killed. Raises ConfigError."""
    host, _, port = bind.rpartition(":")
    host = host.strip("[]")
    deadline = time.monotonic() + ADDRESS_SECONDS
    while True:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    why = (
                        "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror
                    )
                    raise ConfigError(f"--bind: {bind} cannot be had: {why}; name another address") from None
        time.sleep(0.1)


def run(options: Options, build_actor: BuildActor | None = None) -> None:
    """Serve until told to stop; does not return. Raises ConfigError, StoreUnavailable before it begins."""
    check(options)
    wait_for_address(options.bind)
    logs.set_up(options.log_format, audit_to_stdout=options.store.startswith("kubernetes"))
    with shared_folder() as folder:
        Service(options, folder, build_actor).run()


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder for what the processes share while they run: slots, metrics. In memory where that can be.

    It goes with the service; one that was left by a killed service goes when the next starts.
    """
    memory = Path("/dev/shm")  # noqa: S108 - each service makes a folder of its own there, for itself only
    parent = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix="gpu-responder-", dir=parent))
    # Every process of the service inherits this descriptor, and the kernel keeps the lock until the last ends.
    owner = os.open(folder / "owner", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(owner, fcntl.LOCK_SH)
    os.set_inheritable(owner, False)
    made_by = os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == made_by:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for left in parent.glob("gpu-responder-*"):
        try:
            owner = os.open(left / "owner", os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(owner)


def _until_it_can_stop(arbiter: Any, worker: Any) -> None:  # noqa: ARG001 - gunicorn's hook
    """A process between its fork and its own handlers would swallow a stop; it has begun nothing yet."""
    for each in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)


def _announce(options: Options) -> None:
    scheme = "https" if options.certfile else "http"
    click.echo(f"Serving on {scheme}://{options.bind}, policies from {options.policy}.", err=True)
    kubernetes = options.store.partition(":")[0] == "kubernetes"
    place = "ConfigMaps of Kubernetes" if kubernetes else store_path(options.store)
    click.echo(f"State is kept in {place}.", err=True)
    if not options.token_hashes_file:
        click.echo(
            "No tokens are configured: only this host can connect, and everybody on it may do everything.",
            err=True,
        )


@click.command(context_settings={"auto_envvar_prefix": "GPU_RESPONDER", "show_default": True})
@click.option("--policy", required=True, envvar="GPU_RESPONDER_POLICY", help="The policy file.")
@click.option("--bind", default="127.0.0.1:9099", envvar="GPU_RESPONDER_BIND", help="<address>:<port>.")
@click.option(
    "--store",
    default="",
    envvar="GPU_RESPONDER_STORE",
    show_default=f"sqlite:{SYSTEM_FOLDER / DATABASE} if it can be written to, else sqlite:{DATABASE}",
    help="sqlite:<path>, or kubernetes:<namespace>; kubernetes alone is the pod's own namespace.",
)
@click.option(
    "--store-sync",
    type=click.Choice(list(SYNC)),
    default="normal",
    envvar="GPU_RESPONDER_STORE_SYNC",
    help="What a delivery survives once it is answered: normal, the death of any process; full, power loss too.",
)
@click.option(
    "--kubeconfig",
    envvar="GPU_RESPONDER_KUBECONFIG",
    show_default="the pod's service account, or KUBECONFIG",
    help="How to reach the cluster.",
)
@click.option(
    "--token-hashes-file",
    default="",
    envvar="GPU_RESPONDER_TOKEN_HASHES_FILE",
    show_default="none: loopback only",
    help="Who may do what; see gpu-responder token create.",
)
@click.option(
    "--alertmanager-url",
    "alertmanager_urls",
    multiple=True,
    envvar="GPU_RESPONDER_ALERTMANAGER_URL",
    help="An Alertmanager to ask about alerts not heard of. Repeatable; in the environment apart by spaces.",
)
@click.option(
    "--prometheus-url",
    "prometheus_urls",
    multiple=True,
    envvar="GPU_RESPONDER_PROMETHEUS_URL",
    help="Where values of sized triggers are asked for. Repeatable: the next is asked when one fails.",
)
@credential_options
@click.option(
    "--value-max-age",
    type=click.FloatRange(min=0, min_open=True),
    default=90.0,
    envvar="GPU_RESPONDER_VALUE_MAX_AGE",
    help="Seconds after which a sample is too old to size by.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    envvar="GPU_RESPONDER_WORKERS",
    help="Processes that answer HTTP; one more acts.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 512),
    default=16,
    envvar="GPU_RESPONDER_THREADS",
    help="Threads of each of them.",
)
@click.option(
    "--override-max-days",
    type=click.FloatRange(min=0, max=3650, min_open=True),
    default=30.0,
    envvar="GPU_RESPONDER_OVERRIDE_MAX_DAYS",
    help="An override must end within so many days.",
)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="json",
    envvar="GPU_RESPONDER_LOG_FORMAT",
    help="On standard error.",
)
@click.option("--certfile", default="", envvar="GPU_RESPONDER_CERTFILE", help="TLS: the certificate, in PEM.")
@click.option("--keyfile", default="", envvar="GPU_RESPONDER_KEYFILE", help="TLS: its key, in PEM.")
@click.option(
    "--ca-certs",
    default="",
    envvar="GPU_RESPONDER_CA_CERTS",
    help="TLS: ask clients for a certificate that one of these authorities has signed.",
)
def serve(**given: Any) -> None:
    """Take alerts from Alertmanager and scale workloads, until told to stop."""
    options = Options(**given)
    try:
        check(options)
        wait_for_address(options.bind)
    except ResponderError as error:
        click.echo(f"gpu-responder: {error}", err=True)
        sys.exit(1)
    _announce(options)
    run(options)
