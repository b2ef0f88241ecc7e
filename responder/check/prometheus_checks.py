"""What prometheus.yml says of the chain: how often it looks, and the labels that it puts on alerts. Pure."""

import re
from collections.abc import Iterator

from responder import promql
from responder.check.chain import Timings
from responder.check.findings import Finding, error, warning
from responder.check.located import Located
from responder.check.sources import Sources

_REPLICA = re.compile(r".*replica.*|prometheus_server|ha_.*")


def timings(sources: Sources, scrape: int | None, evaluation: int | None) -> Timings:
    """Intervals in milliseconds: those given, else those of prometheus.yml, else 30 s."""
    # Prometheus's own default is a minute; without a file, prometheus-operator's is the likelier.
    default = "30s" if sources.prometheus is None else "1m"
    globe = (sources.prometheus or Located(None, "")).at("global")

    def of(key: str) -> int:
        text = globe.text(key) or default
        return promql.duration_ms(text if promql.is_duration(text) else default)

    return Timings(
        scrape=of("scrape_interval") if scrape is None else scrape,
        evaluation=of("evaluation_interval") if evaluation is None else evaluation,
    )


def check(sources: Sources) -> Iterator[Finding]:
    """Labels that part one alert into two; nothing if no prometheus.yml was given."""
    document = sources.prometheus
    if document is None:
        return
    yield from replica_labels(document)
    if not list(document.items("alerting", "alertmanagers")):
        said = "This Prometheus sends its alerts to no Alertmanager."
        yield error(document.file, document.line, "no-alertmanager", said, "add alerting.alertmanagers")


def replica_labels(document: Located) -> Iterator[Finding]:
    """External labels that differ between the servers of a pair, and are not dropped from alerts."""
    labels = document.at("global", "external_labels")
    for name in labels.value if isinstance(labels.value, dict) else ():
        if _REPLICA.fullmatch(str(name)) and not _dropped(document, str(name)):
            at = labels.at(str(name))
            yield warning(
                at.file,
                at.line,
                "replica-label",
                f"Each Prometheus of a pair puts its own {name} on alerts, so that one alert arrives as two.",
                f"add alerting.alert_relabel_configs with {{action: labeldrop, regex: {name}}}",
            )


def _dropped(document: Located, name: str) -> bool:
    for item in document.items("alerting", "alert_relabel_configs"):
        if item.text("action") != "labeldrop":
            continue
        try:
            if re.fullmatch(item.text("regex"), name):
                return True
        except re.error:
            continue
    return False
