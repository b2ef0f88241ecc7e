"""Configuration files of the demo's programs: what is shipped, with its durations divided by the speed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from responder import promql, rules
from responder.demo.processes import DemoError
from responder.sim.telemetry import JOBS

SCRAPE_SECONDS = 15.0
EVALUATION_SECONDS = 15.0
LOOKBACK_SECONDS = 300.0
"""Prometheus's default --query.lookback-delta."""
RESEND_SECONDS = 60.0
"""Prometheus's default --rules.alert.resend-delay."""

VALUE_MAX_AGE_SECONDS = 90.0
"""The service's default --value-max-age: a demand reading older than this is no value."""

_TIMINGS = ("group_wait", "group_interval", "repeat_interval")


def duration(seconds: float) -> str:
    """A duration as Prometheus writes it; never less than a millisecond."""
    return promql.format_duration(max(1, round(seconds * 1000)))


def prometheus_config(
    sim_url: str, alertmanager: str, responder: str, rule_file: Path, speed: float
) -> dict[str, Any]:
    """prometheus.yml for the simulated cluster: targets come and go with pods, through HTTP discovery."""
    interval = duration(SCRAPE_SECONDS / speed)

    def job(name: str) -> dict[str, Any]:
        return {
            "job_name": name,
            "honor_labels": name != "vllm",
            "http_sd_configs": [
                {"url": f"{sim_url}/sim/http_sd/{name}", "refresh_interval": duration(max(0.5, 15 / speed))}
            ],
        }

    return {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": duration(EVALUATION_SECONDS / speed),
        },
        "rule_files": [str(rule_file)],
        "alerting": {
            "alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}],
        },
        "scrape_configs": [
            *(job(name) for name in JOBS),
            {"job_name": "gpu-responder", "static_configs": [{"targets": [responder]}]},
        ],
    }


def compressed_rules(paths: tuple[Path, ...], speed: float) -> str:
    """The shipped rules as one plain file, their time divided by `speed`."""
    return rules.export(rules.compress(rules.load(paths), speed))


def alertmanager_config(shipped: Path, webhook_url: str, speed: float) -> dict[str, Any]:
    """The shipped alertmanager.yml, delivering to `webhook_url`, its timings divided by `speed`."""
    try:
        config = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise DemoError(f"{shipped}: cannot be used ({error}); restore the shipped file.") from None
    _scale_route(config["route"], speed)
    for receiver in config["receivers"]:
        for webhook in receiver.get("webhook_configs", []):
            webhook["url"] = webhook_url
    return dict(config)


def _scale_route(route: dict[str, Any], speed: float) -> None:
    for key in _TIMINGS:
        if key in route:
            # A group_wait of 0s means at once and stays so.
            milliseconds = promql.duration_ms(route[key])
            route[key] = duration(milliseconds / 1000 / speed) if milliseconds else "0s"
    for child in route.get("routes", []):
        _scale_route(child, speed)


def write_yaml(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False), encoding="utf-8")
    return path
