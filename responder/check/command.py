"""`gpu-responder check`: the chain from rules to targets, verified without a cluster."""

import sys
from pathlib import Path

import click

from responder import promql
from responder.check import (
    chain,
    delays,
    policy_checks,
    prometheus_checks,
    report,
    routes_checks,
    rules_checks,
    tools,
)
from responder.check.findings import Finding, failing, in_order
from responder.check.sources import Sources, gather
from responder.client.tables import output_option, print_json

DEEP = 20_000
"""Calls within one another: an expression of a thousand terms is a tree as deep."""
_LAYOUT = {
    "rules": "rules",
    "alertmanager": "alertmanager/alertmanager.yml",
    "policy": "examples/policies.yaml",
}


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    if not promql.is_duration(text):
        raise click.BadParameter(f"{text!r} is no duration; write 30s, 1m or 1m30s.")
    return promql.duration_ms(text)


_PATH = click.Path(exists=True, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("check")
@click.argument("paths", nargs=-1, type=_PATH)
@click.option("--policy", metavar="FILE", type=_FILE, help="The policy file.")
@click.option("--rules", "rule_paths", metavar="PATH", multiple=True, type=_PATH, help="Rules. Repeatable.")
@click.option(
    "--alertmanager",
    "alertmanagers",
    metavar="FILE",
    multiple=True,
    type=_PATH,
    help="alertmanager.yml or an AlertmanagerConfig. Repeatable.",
)
@click.option(
    "--prometheus", metavar="FILE", type=_FILE, help="prometheus.yml, for its intervals and labels."
)
@click.option(
    "--receiver",
    "receivers",
    metavar="NAME",
    multiple=True,
    help="A receiver that delivers to this service, when its URL does not say so. Repeatable.",
)
@click.option(
    "--scrape-interval",
    callback=_duration,
    metavar="DURATION",
    help="How often Prometheus scrapes.  [default: prometheus.yml's, else 30s]",
)
@click.option(
    "--evaluation-interval",
    callback=_duration,
    metavar="DURATION",
    help="How often it evaluates groups that do not say.  [default: prometheus.yml's, else 30s]",
)
@output_option
def check(
    paths: tuple[Path, ...],
    policy: Path | None,
    rule_paths: tuple[Path, ...],
    alertmanagers: tuple[Path, ...],
    prometheus: Path | None,
    receivers: tuple[str, ...],
    scrape_interval: int | None,
    evaluation_interval: int | None,
    output: str,
) -> None:
    """Verify the chain from rules to targets, without a cluster.

    PATH is a file or directory of any of these: rules (plain or PrometheusRule), alertmanager.yml,
    AlertmanagerConfig, a policy file, or what `helm template` prints. Without any: rules/,
    alertmanager/alertmanager.yml and examples/policies.yaml of the current directory.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEP))
    if not (paths or policy or rule_paths or alertmanagers or prometheus):
        policy, rule_paths, alertmanagers = _layout()
    sources = gather(
        paths, policy=policy, rule_paths=rule_paths, alertmanagers=alertmanagers, prometheus=prometheus
    )
    timings = prometheus_checks.timings(sources, scrape_interval, evaluation_interval)
    built = chain.build(sources, receivers, timings)
    found, used = verify(built, receivers)
    links = chain.links(built)
    if output == "json":
        print_json(report.as_json(found, links, tools=used, checked=_checked(sources)))
    else:
        _print(built, found, links, used)
    sys.exit(1 if failing(found) else 0)


def verify(built: chain.Chain, receivers: tuple[str, ...] = ()) -> tuple[list[Finding], dict[str, str]]:
    """Everything wrong with a chain, and the versions of the tools that were asked."""
    sources = built.sources
    sources.findings += rules_checks.check(built)
    routed = list(routes_checks.check(built))
    sources.findings += routed
    said, used = tools.check(sources)
    found = [
        *sources.findings,
        *said,
        *prometheus_checks.check(sources),
        *routes_checks.heartbeat(built),
        *routes_checks.named(built, receivers),
        *policy_checks.check(built),
        *delays.check(built),
    ]
    return in_order(found), used


def _layout() -> tuple[Path | None, tuple[Path, ...], tuple[Path, ...]]:
    """What stands where this project's own files stand."""
    here = {what: Path(path) for what, path in _LAYOUT.items() if Path(path).exists()}
    if not here:
        wanted = ", ".join(_LAYOUT.values())
        raise click.UsageError(f"There is nothing to check: none of {wanted} is here. Name what to check.")
    rules, alertmanager = here.get("rules"), here.get("alertmanager")
    return here.get("policy"), (rules,) if rules else (), (alertmanager,) if alertmanager else ()


def _checked(sources: Sources) -> dict[str, object]:
    return {
        "policy": sources.settings.source if sources.settings else None,
        "groups": len(sources.groups),
        "rules": sum(len(group.rules) for group in sources.groups),
        "alertmanager": [routing.file for routing in sources.routings],
    }


def _print(built: chain.Chain, found: list[Finding], links: list[chain.Link], used: dict[str, str]) -> None:
    report.print_findings(found)
    if links:
        report.print_links(links)
        click.echo()
    sources = built.sources
    missing = [
        what
        for what, there in (
            ("no policy file", sources.settings),
            ("no rules", sources.groups),
            ("no Alertmanager configuration", sources.routings),
        )
        if not there
    ]
    seen = f"{len(built.alerts)} alerts, {len(built.scaling)} that scale"
    more = "".join(f"; {what} given" for what in missing)
    tools_used = "".join(f" ({version or f'no {tool}'})" for tool, version in used.items())
    click.echo(f"{seen}{more}{tools_used}: {report.summary(found)}")
