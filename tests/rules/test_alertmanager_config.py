"""The shipped Alertmanager configurations, judged by amtool."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from responder import rules

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "alertmanager").glob("*.yml"))
ALERTS = rules.alerts(rules.load([ROOT / "rules"]))

needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False, timeout=60)


def receivers(file: Path, labels: dict[str, str]) -> list[str]:
    """Where Alertmanager would send an alert with these labels."""
    pairs = [f"{key}={value}" for key, value in labels.items()]
    run = amtool("config", "routes", "test", f"--config.file={file}", *pairs)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip().split(",")


@needs_amtool
@each_file
def test_amtool_takes_the_file(file: Path) -> None:
    """Every shipped file loads."""
    run = amtool("check-config", str(file))
    assert run.returncode == 0, run.stdout + run.stderr


@needs_amtool
@each_file
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"alertname": "Watchdog"}, ["gpu-responder"], id="the heartbeat"),
        pytest.param({"action": "scale_up"}, ["gpu-responder"], id="up"),
        pytest.param({"action": "scale_down"}, ["gpu-responder"], id="down"),
        pytest.param({"action": "inhibit_scale_up"}, ["gpu-responder", "people"], id="hold up"),
        pytest.param({"action": "inhibit_scale_down"}, ["gpu-responder", "people"], id="hold down"),
        pytest.param({"action": "cordon"}, ["gpu-responder", "people"], id="cordon"),
        pytest.param({"action": "drain"}, ["gpu-responder", "people"], id="drain"),
        pytest.param({"action": "notify"}, ["people"], id="notify is for people"),
        pytest.param({"alertname": "DiskFull"}, ["people"], id="others' alerts are for people"),
        pytest.param({"action": "scale_upwards"}, ["people"], id="matchers are anchored"),
    ],
)
def test_routes(file: Path, labels: dict[str, str], expected: list[str]) -> None:
    """Each kind of alert reaches whom it should, and nobody else."""
    assert receivers(file, labels) == expected


@needs_amtool
@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule.alert)
def test_every_shipped_alert_reaches_somebody_fit(rule: rules.Rule) -> None:
    """Scaling alerts the responder alone, faults that hold or cordon both, the rest people."""
    action = rule.labels.get("action", "")
    found = receivers(ROOT / "alertmanager" / "alertmanager.yml", {"alertname": rule.name, **rule.labels})
    if rule.name == "Watchdog" or action.startswith("scale_"):
        assert found == ["gpu-responder"]
    elif action == "notify":
        assert found == ["people"]
    else:
        assert found == ["gpu-responder", "people"]


@each_file
def test_no_inhibition_no_truncation_and_resolves_are_sent(file: Path) -> None:
    """What the responder must hear is neither inhibited nor cut off, and its end is told."""
    config = yaml.safe_load(file.read_text())
    assert not config["inhibit_rules"]
    (ours,) = [each for each in config["receivers"] if each["name"] == "gpu-responder"]
    (webhook,) = ours["webhook_configs"]
    assert webhook["send_resolved"] is True
    assert webhook["max_alerts"] == 0
    assert webhook["url"].endswith("/api/v1/webhooks/alertmanager")


def test_the_two_files_differ_in_the_webhook_only() -> None:
    """One file is the other with TLS and a token."""
    plain, token = (yaml.safe_load(file.read_text()) for file in FILES)
    if "http_config" in plain["receivers"][0]["webhook_configs"][0]:
        plain, token = token, plain
    assert plain["route"] == token["route"]
    http = token["receivers"][0]["webhook_configs"][0]["http_config"]
    assert http["authorization"]["credentials_file"].startswith("/")
    assert http["tls_config"]["ca_file"].startswith("/")


def test_the_operators_object_routes_as_the_file_does() -> None:
    """AlertmanagerConfig in the operator's own words: the same matchers, groups and times."""
    wanted = yaml.safe_load((ROOT / "alertmanager" / "alertmanager.yml").read_text())["route"]["routes"]
    document = yaml.safe_load((ROOT / "alertmanager" / "alertmanagerconfig.yaml").read_text())
    routes = document["spec"]["route"]["routes"]
    mine = [route for route in wanted if route["receiver"] == "gpu-responder"]
    assert len(routes) == len(mine)
    for route, plain in zip(routes, mine, strict=True):
        assert [f'{m["name"]} {m["matchType"]} "{m["value"]}"' for m in route["matchers"]] == plain[
            "matchers"
        ]
        assert route["repeatInterval"] == plain["repeat_interval"]
    assert document["spec"]["route"]["receiver"] == "nobody"
    nobody, ours = document["spec"]["receivers"]
    assert nobody == {"name": "nobody"}
    (webhook,) = ours["webhookConfigs"]
    assert webhook["sendResolved"] is True
    assert webhook["maxAlerts"] == 0
