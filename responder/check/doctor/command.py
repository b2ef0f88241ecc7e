"""`gpu-responder doctor`: the running chain, looked at without changing anything."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from responder.check import chain, prometheus_checks, report
from responder.check.chain import Chain, Timings
from responder.check.command import DEEP
from responder.check.doctor import alertmanager, clocks, kubernetes, prometheus, send, series, service
from responder.check.doctor.servers import ClockReading, Server
from responder.check.findings import Finding, error, failing, in_order, note
from responder.check.sources import Sources, gather
from responder.client.connection import connection_options
from responder.client.http import DEFAULT_URL
from responder.client.tables import output_option, print_json
from responder.errors import ConfigError
from responder.options import credential_options

_PATH = click.Path(exists=True, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(slots=True)
class Examined:
    """All that came of it."""

    findings: list[Finding] = field(default_factory=list)
    clocks: list[ClockReading] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    role: str = ""
    hops: tuple[send.Hop, ...] = ()

    def knows(self, server: Server) -> None:
        self.looked_at.append(server.place)
        if server.clock is not None:
            self.clocks.append(server.clock)


@dataclass(frozen=True, slots=True)
class Parts:
    """What is to be looked at; None and empty: not that."""

    sources: Sources
    receivers: tuple[str, ...]
    prometheuses: tuple[Server, ...]
    rulers: tuple[Server, ...]
    alertmanagers: tuple[Server, ...]
    service: Server | None
    kubeconfig: str | None
    kubernetes: bool
    store: str
    timeout: float
    sends: bool
    patience: float
    skew: float


@click.command("doctor")
@click.option(
    "--prometheus-url",
    "prometheus_urls",
    metavar="URL",
    multiple=True,
    envvar="GPU_RESPONDER_PROMETHEUS_URL",
    help="Prometheus, Thanos, Mimir, VictoriaMetrics. Repeatable.",
)
@click.option(
    "--ruler-url",
    "ruler_urls",
    metavar="URL",
    multiple=True,
    help="What evaluates the rules, if that is another (Thanos Ruler, vmalert). Repeatable.",
)
@click.option(
    "--alertmanager-url",
    "alertmanager_urls",
    metavar="URL",
    multiple=True,
    envvar="GPU_RESPONDER_ALERTMANAGER_URL",
    help="Alertmanager. Repeatable.",
)
@connection_options
@click.option("--policy", metavar="FILE", type=_FILE, envvar="GPU_RESPONDER_POLICY", help="The policy file.")
@click.option(
    "--rules",
    "rule_paths",
    metavar="PATH",
    multiple=True,
    type=_PATH,
    help="The rules as they should be loaded. Repeatable.",
)
@click.option(
    "--receiver",
    "receivers",
    metavar="NAME",
    multiple=True,
    help="A receiver that delivers to this service, when its URL does not say so. Repeatable.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    envvar="GPU_RESPONDER_KUBECONFIG",
    help="Ask the API server for the rights that the policies need.",
)
@click.option("--in-cluster", is_flag=True, help="Ask as the service account of the pod that this runs in.")
@click.option("--store", default="sqlite:", envvar="GPU_RESPONDER_STORE", help="The service's --store.")
@credential_options
@click.option(
    "--send-test",
    "sends",
    is_flag=True,
    help="Send a test alert through Alertmanager to the service. Nothing acts on it.",
)
@click.option(
    "--test-timeout",
    "patience",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="How long to wait for it.  [default: the route's group_wait and 15]",
)
@click.option(
    "--max-skew",
    "skew",
    type=click.FloatRange(min=0),
    default=clocks.MAX_SKEW_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="By how much clocks may differ.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Of each question.",
)
@output_option
def doctor(
    prometheus_urls: tuple[str, ...],
    ruler_urls: tuple[str, ...],
    alertmanager_urls: tuple[str, ...],
    url: str | None,
    token_file: str | None,
    ca_file: str | None,
    policy: Path | None,
    rule_paths: tuple[Path, ...],
    receivers: tuple[str, ...],
    kubeconfig: str | None,
    in_cluster: bool,
    store: str,
    prometheus_token_file: str,
    prometheus_headers: Mapping[str, str],
    alertmanager_token_file: str,
    sends: bool,
    patience: float | None,
    skew: float,
    timeout: float,
    output: str,
) -> None:
    """Verify the running chain, without changing anything: Prometheus, Alertmanager, the service, Kubernetes.

    What is not named is not looked at. --send-test alone sends something: an alert that only asks whether
    alerts arrive.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEP))
    if not (prometheus_urls or ruler_urls or alertmanager_urls or url or kubeconfig or in_cluster):
        raise click.UsageError(
            "There is nothing to look at: give --prometheus-url, --alertmanager-url, --url or --kubeconfig."
        )
    if sends and not alertmanager_urls:
        raise click.UsageError("--send-test needs --alertmanager-url.")

    def server(name: str, at: str, token: str | None, headers: Mapping[str, str] | None = None) -> Server:
        try:
            return Server(name, at, timeout, token or "", ca_file or "", headers or {})
        except ConfigError as problem:
            raise click.UsageError(str(problem)) from None

    def prometheus_server(name: str, at: str) -> Server:
        return server(name, at, prometheus_token_file, prometheus_headers)

    parts = Parts(
        sources=gather(policy=policy, rule_paths=rule_paths),
        receivers=receivers,
        prometheuses=tuple(prometheus_server("Prometheus", at) for at in prometheus_urls),
        rulers=tuple(prometheus_server("the ruler", at) for at in ruler_urls),
        alertmanagers=tuple(server("Alertmanager", at, alertmanager_token_file) for at in alertmanager_urls),
        service=server("gpu-responder", url or DEFAULT_URL, token_file) if url or sends else None,
        kubeconfig=kubeconfig,
        kubernetes=bool(kubeconfig) or in_cluster,
        store=store,
        timeout=timeout,
        sends=sends,
        patience=patience or 0,
        skew=skew,
    )
    examined = examine(parts)
    examined.findings = in_order(examined.findings)
    if output == "json":
        print_json(_json(examined))
    else:
        _print(examined)
    sys.exit(1 if failing(examined.findings) else 0)


def examine(parts: Parts) -> Examined:
    """Look at everything that was named."""
    examined = Examined(list(parts.sources.findings))
    timings = prometheus_checks.timings(parts.sources, None, None)
    built = chain.build(parts.sources, parts.receivers, timings)
    for server in parts.prometheuses:
        _prometheus(examined, parts, server, built)
    for server in parts.rulers:
        _ruler(examined, parts, server)
    live = _alertmanagers(examined, parts, timings)
    if parts.service is not None:
        examined.findings += service.check(parts.service)
        examined.knows(parts.service)
    _kubernetes(examined, parts)
    examined.findings += clocks.check(examined.clocks, parts.skew)
    if parts.sends and parts.service is not None:
        _send(examined, parts, parts.service, live)
    return examined


def _prometheus(examined: Examined, parts: Parts, server: Server, built: Chain) -> None:
    wrong = prometheus.reach(server)
    examined.findings += wrong
    examined.knows(server)
    if wrong:
        return
    if not parts.rulers:
        _rules(examined, parts, server)
    examined.findings += series.check(server, built)
    examined.findings += prometheus.partial(server)


def _ruler(examined: Examined, parts: Parts, server: Server) -> None:
    _rules(examined, parts, server)
    examined.knows(server)


def _rules(examined: Examined, parts: Parts, server: Server) -> None:
    now = prometheus.server_time(server, datetime.now(UTC))
    examined.findings += prometheus.rules(server, parts.sources.groups, now)
    examined.findings += prometheus.onward(server, [each.url for each in parts.alertmanagers])


def _alertmanagers(examined: Examined, parts: Parts, timings: Timings) -> dict[str, Chain]:
    """The chain by way of each Alertmanager that answers."""
    live: dict[str, Chain] = {}
    roots: dict[str, Any] = {}
    for server in parts.alertmanagers:
        routing, found = alertmanager.reach(server)
        examined.findings += found
        examined.knows(server)
        if routing is None:
            continue
        live[server.url], wrong = alertmanager.routing(
            server, routing, parts.sources, parts.receivers, timings
        )
        examined.findings += wrong
        examined.findings += alertmanager.deliveries(server)
        examined.findings += alertmanager.silences(server, live[server.url])
        roots[server.place] = routing.root.at.value
    if len({repr(root) for root in roots.values()}) > 1:
        said = "Alertmanagers that should be alike have other routes."
        examined.findings.append(
            error(next(iter(roots)), 0, "routes-differ", said, "give all the same configuration")
        )
    return live


def _kubernetes(examined: Examined, parts: Parts) -> None:
    if not parts.kubernetes:
        return
    settings = parts.sources.settings
    if settings is None:
        said = "Which rights are needed is not known without the policy file."
        examined.findings.append(note("Kubernetes", 0, "rights-unknown", said, "give it with --policy"))
        return
    told = kubernetes.check(settings, parts.kubeconfig, parts.store, parts.timeout)
    examined.findings += told.findings
    examined.role = told.role
    examined.looked_at.append("Kubernetes")
    if told.clock is not None:
        examined.clocks.append(told.clock)


def _send(examined: Examined, parts: Parts, service_: Server, live: Mapping[str, Chain]) -> None:
    for server in parts.alertmanagers:
        if server.url not in live:
            continue
        sent = send.send(server, service_, live[server.url], parts.sources.settings, parts.patience)
        examined.findings += sent.findings
        examined.hops += sent.hops


def _print(examined: Examined) -> None:
    report.print_findings(examined.findings)
    if examined.role:
        click.echo(f"The Role that is missing:\n\n{examined.role}")
    if examined.hops:
        click.echo("Test alert:")
        for hop in examined.hops:
            click.echo(f"  {hop.seconds:7.2f} s  {hop.name}")
        click.echo()
    looked = ", ".join(_each_once(examined.looked_at))
    click.echo(f"{looked}: {report.summary(examined.findings)}")


def _json(examined: Examined) -> dict[str, Any]:
    return report.as_json(
        examined.findings,
        [],
        lookedAt=_each_once(examined.looked_at),
        role=examined.role,
        clocks=[
            {"name": each.name, "aheadSeconds": round(each.ahead, 3), "withinSeconds": round(each.within, 3)}
            for each in examined.clocks
        ],
        testAlert=[{"hop": hop.name, "seconds": round(hop.seconds, 3)} for hop in examined.hops],
    )


def _each_once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
