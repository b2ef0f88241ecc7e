"""The doctor against real programs: Prometheus, Alertmanager, the service, and a simulated cluster's API."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from click.testing import CliRunner

from responder.cli import cli
from responder.demo import run as demo
from responder.policy import TEST_LABEL
from responder.sim.cluster import SimCluster
from responder.sim.spec import ClusterSpec
from tests.check.doctor_world import SOUND

SPEED = 60.0


@dataclass
class World:
    """A running demo, and where its files are."""

    folder: Path
    addresses: Any

    def doctor(self, *args: str) -> tuple[int, dict[str, Any]]:
        return doctor(
            "--prometheus-url", self.addresses.prometheus,
            "--alertmanager-url", self.addresses.alertmanager,
            "--url", self.addresses.responder,
            "--policy", str(self.folder / "policies.yaml"),
            *args,
        )  # fmt: skip


def doctor(*args: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(cli, ["doctor", "-o", "json", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def codes(report: dict[str, Any]) -> set[str]:
    return {each["code"] for each in report["findings"] if each["severity"] != "note"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The whole chain, once its rules have been evaluated and its heartbeat has arrived."""
    folder = tmp_path_factory.mktemp("world")
    with demo.running(demo.Options(speed=SPEED), folder, lambda _: None) as made:
        there = World(folder, made.addresses)
        deadline = time.monotonic() + 60
        while codes(there.doctor()[1]):
            assert time.monotonic() < deadline, there.doctor()
            time.sleep(0.5)
        yield there


def test_a_sound_chain_has_nothing_wrong(world: World) -> None:
    """Rules as in the file, series fresh, routes to us, rights there, clocks alike; a test alert's hops in order."""
    args = ("--rules", str(world.folder / "rules.yml"), "--kubeconfig", str(world.folder / "kubeconfig"))
    status, report = world.doctor(*args, "--send-test")
    assert (status, codes(report)) == (0, set()), report["findings"]
    assert [each["hop"] for each in report["testAlert"]] == [
        "Alertmanager took it",
        "Alertmanager lists it",
        "the service received it",
        "the service told of it",
    ]
    seconds = [each["seconds"] for each in report["testAlert"]]
    assert seconds[0] <= seconds[1] <= seconds[3]  # to the millisecond
    assert len(report["clocks"]) == 4


def test_a_test_alert_comes_to_nothing(world: World) -> None:
    """It was delivered with labels that scale, and there is no target, decision or rejection of it."""
    http = urllib3.PoolManager()
    before = http.request("GET", f"{world.addresses.responder}/api/v1/test-alert").json()["id"]
    world.doctor("--send-test")
    assert http.request("GET", f"{world.addresses.responder}/api/v1/test-alert").json()["id"] != before
    targets = http.request("GET", f"{world.addresses.responder}/api/v1/targets").json()["targets"]
    assert not [each for each in targets if "gpu-responder-test" in str(each)]
    page = http.request("GET", f"{world.addresses.responder}/api/v1/decisions").json()
    assert "gpu-responder-test" not in json.dumps(page)
    listed = http.request(
        "GET", f"{world.addresses.alertmanager}/api/v2/alerts", fields={"filter": f'{TEST_LABEL}!=""'}
    ).json()
    assert listed == [], "it has been resolved"


def test_rules_that_were_edited_and_not_loaded_are_told(world: World, tmp_path: Path) -> None:
    """A changed threshold and a new alert in the file: each at its line."""
    document = yaml.safe_load((world.folder / "rules.yml").read_text())
    group = next(each for each in document["groups"] if each["name"] == "gpu.scaling.alerts")
    group["rules"][0]["expr"] = group["rules"][0]["expr"].replace("0.85", "0.75")
    group["rules"].append({"alert": "New", "expr": "vector(1)"})
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(document))
    _, report = world.doctor("--rules", str(file))
    assert {"rule-differs", "rule-not-loaded"} <= codes(report)
    lines = file.read_text().splitlines()
    for found in report["findings"]:
        if found["code"] == "rule-differs":
            assert "GPUWorkloadScaleUp" in lines[found["line"] - 1] + lines[found["line"]]


@pytest.mark.parametrize("given", [False, True], ids=["without rights", "with the Role that was printed"])
def test_rights_that_are_missing_are_told_with_the_role_that_grants_them(tmp_path: Path, given: bool) -> None:
    """Nobody's rights: each that is needed, and a Role; with that Role's rules there is nothing to say."""
    with SimCluster(ClusterSpec(nodes=1)) as cluster:
        kubeconfig = cluster.server.kubeconfig(tmp_path / "kubeconfig", "limited")
        cluster.server.grant("limited", {"user": "limited"})
        args = ("--policy", str(SOUND / "policies.yaml"), "--kubeconfig", str(kubeconfig))
        status, report = doctor(*args)
        assert status == 1
        assert codes(report) == {"right-missing"}
        rules = [rule for document in yaml.safe_load_all(report["role"]) for rule in document["rules"]]
        assert {
            "apiGroups": ["apps"],
            "resources": ["deployments/scale"],
            "verbs": ["get", "update"],
        } in rules
        if given:
            cluster.server.grant("limited", {"user": "limited", "rules": rules})
            assert codes(doctor(*args)[1]) == set()
