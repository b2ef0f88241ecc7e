"""The doctor against servers that answer as when something is wrong: each fault is found, and nothing else."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from responder.check.doctor import clocks
from responder.check.doctor.servers import ClockReading
from responder.cli import cli
from responder.policy import TEST_LABEL
from tests.check.doctor_world import (
    SOUND,
    Canned,
    alertmanager,
    loaded_rules,
    prometheus,
    queries,
    served,
    service,
    vector,
)

ROOT = SOUND.parents[3]
FILES = ("--policy", str(SOUND / "policies.yaml"), "--rules", str(SOUND / "rules.yaml"))


def run(*args: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(cli, ["doctor", "-o", "json", *FILES, *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def codes(report: dict[str, Any], *, notes: bool = False) -> list[str]:
    return [each["code"] for each in report["findings"] if notes or each["severity"] != "note"]


@contextlib.contextmanager
def examined(option: str, canned: Canned, *args: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with served(canned):
        yield run(option, canned.url, *args)


def without_group(name: str) -> dict[str, Any]:
    told = loaded_rules()
    told["data"]["groups"] = [each for each in told["data"]["groups"] if each["name"] != name]
    return told


def without_rule(name: str) -> dict[str, Any]:
    told = loaded_rules()
    for group in told["data"]["groups"]:
        group["rules"] = [each for each in group["rules"] if each["name"] != name]
    return told


def with_rule(name: str) -> dict[str, Any]:
    told = loaded_rules()
    group = told["data"]["groups"][-1]
    group["rules"].append({**group["rules"][-1], "name": name})
    return told


def with_namesake() -> dict[str, Any]:
    told = loaded_rules()
    groups = told["data"]["groups"]
    namesake = {**groups[-1], "file": "other.yaml"}
    namesake["rules"] = [{**groups[-1]["rules"][-1], "name": "Other"}]
    told["data"]["groups"] = [namesake, *groups]
    return told


def with_interval(seconds: int) -> dict[str, Any]:
    told = loaded_rules()
    told["data"]["groups"][-1]["interval"] = seconds
    return told


def with_words() -> dict[str, Any]:
    told = loaded_rules()
    for rule in told["data"]["groups"][-1]["rules"]:
        rule["annotations"] = {
            **rule.get("annotations", {}),
            "summary": "other",
            "runbook_url": "https://wiki",
        }
    return told


AGE = "time() - max(timestamp(namespace_workload:busy_ratio:avg))"
PROMETHEUS: dict[str, tuple[Callable[[], Canned], list[str]]] = {
    "nothing wrong": (prometheus, []),
    "not Prometheus": (lambda: Canned({"/api/v1/query": "<html>"}), ["unreachable"]),
    "credentials refused": (lambda: Canned({"/api/v1/query": 401}), ["unreachable"]),
    "an error page": (lambda: Canned({"/api/v1/query": 502}), ["unreachable"]),
    "a redirect to a login page": (lambda: Canned({"/api/v1/query": 302}), ["unreachable"]),
    "rules that it does not tell": (lambda: prometheus(rules=404), ["rules-unknown"]),
    "a group not loaded": (lambda: prometheus(rules=without_group("alerts")), ["rule-not-loaded"]),
    "a rule not loaded": (lambda: prometheus(rules=without_rule("Quiet")), ["rule-not-loaded"]),
    "a rule that is in no file": (lambda: prometheus(rules=with_rule("Old")), ["rule-differs"]),
    "another expression": (lambda: prometheus(rules=loaded_rules(query="vector(2)")), ["rule-differs"]),
    "another `for`": (lambda: prometheus(rules=loaded_rules(duration=600)), ["rule-differs"]),
    "another label": (lambda: prometheus(rules=loaded_rules(labels={"action": "none"})), ["rule-differs"]),
    "another interval": (lambda: prometheus(rules=with_interval(60)), ["rule-differs"]),
    "another annotation to size by": (
        lambda: prometheus(rules=loaded_rules(annotations={"value": "1"})),
        ["rule-differs"],
    ),
    "other words": (lambda: prometheus(rules=with_words()), []),
    "a rule kept firing": (lambda: prometheus(rules=loaded_rules(keepFiringFor=60)), ["rule-differs"]),
    "a rule that fails": (
        lambda: prometheus(rules=loaded_rules(health="err", lastError="many-to-many matching")),
        ["rule-failing"],
    ),
    "rules that are late": (
        lambda: prometheus(rules=loaded_rules(lastEvaluation="2026-01-01T00:00:00Z")),
        ["rules-late"],
    ),
    "no Alertmanager": (
        lambda: prometheus(alertmanagers={"data": {"activeAlertmanagers": []}}),
        ["no-alertmanager"],
    ),
    "alerts dropped": (
        lambda: prometheus(query=queries({"notifications_dropped": vector(({}, 7))})),
        ["alerts-dropped"],
    ),
    "a replica label": (
        lambda: prometheus(config="global: {external_labels: {prometheus_replica: a}}\n"),
        ["replica-label"],
    ),
    "a replica label that is dropped": (
        lambda: prometheus(
            config="global: {external_labels: {prometheus_replica: a}}\n"
            "alerting: {alert_relabel_configs: [{action: labeldrop, regex: prometheus_replica}]}\n"
        ),
        [],
    ),
    "no series at all": (lambda: prometheus(query=queries({AGE: vector()})), ["series-missing"]),
    "a stale series": (lambda: prometheus(query=queries({AGE: vector(({}, 200))})), ["series-stale"]),
    "nodes whose GPUs are not seen": (
        lambda: prometheus(query=queries({"kube_node_status_allocatable": vector(({"node": "n1"}, 8))})),
        ["gpus-unseen"],
    ),
    "an exporter down": (
        lambda: prometheus(query=queries({"gpu_exporter_up": vector(({"node": "n1"}, 0))})),
        ["exporter-down"],
    ),
    "workloads whose GPUs are not seen": (
        lambda: prometheus(query=queries({"group by (namespace, workload)": vector(({"workload": "w"}, 1))})),
        ["workloads-unseen"],
    ),
    "answers that lack a part": (
        lambda: prometheus(
            query=queries(
                {AGE: {**vector(({}, 1)), "warnings": ["receive series from store-2: unavailable"]}}
            )
        ),
        ["answers-partial"],
    ),
    "what Prometheus says of a query": (
        lambda: prometheus(
            query=queries({AGE: {**vector(({}, 1)), "warnings": ["PromQL warning: x"], "infos": []}})
        ),
        [],
    ),
    "another file's group of the same name": (lambda: prometheus(rules=with_namesake()), []),
    "no groups, as some say it": (
        lambda: prometheus(rules={"status": "success", "data": {"groups": None}}),
        ["rule-not-loaded"] * 2,
    ),
    "a query that it cannot evaluate": (
        lambda: prometheus(query=queries({"timestamp": {"status": "error", "error": "too many samples"}})),
        ["series-unknown"],
    ),
}


@pytest.mark.parametrize(("made", "expected"), PROMETHEUS.values(), ids=PROMETHEUS.keys())
def test_prometheus_faults(made: Callable[[], Canned], expected: list[str]) -> None:
    """Each fault of a Prometheus is one finding with a mend, and a healthy one has none."""
    with examined("--prometheus-url", made()) as (status, report):
        assert codes(report) == expected
        assert status == (1 if expected else 0)
        assert all(each["mend"] and each["message"].endswith(".") for each in report["findings"])


def silence(matcher: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"state": "active"}, "createdBy": "ana", "comment": "move", "matchers": [matcher]}


ALERTMANAGER: dict[str, tuple[Callable[[], Canned], list[str]]] = {
    "nothing wrong": (alertmanager, []),
    "not Alertmanager": (lambda: alertmanager(status={"hello": "world"}), ["unreachable"]),
    "no receiver of ours": (
        lambda: alertmanager(
            changed=[
                ("api/v1/webhooks/alertmanager", "hook"),
                ("name: gpu-responder", "name: x"),
                ("receiver: gpu-responder", "receiver: x"),
            ]
        ),
        ["no-receiver"],
    ),
    "a URL that it hides": (
        lambda: alertmanager(changed=[("http://127.0.0.1:9099/api/v1/webhooks/alertmanager", "<secret>")]),
        [],
    ),
    "scaling alerts that go elsewhere": (
        lambda: alertmanager(changed=[("scale_up|scale_down|inhibit", "scale_up|inhibit")]),
        ["unrouted"],
    ),
    "resolves not sent": (
        lambda: alertmanager(changed=[("send_resolved: true", "send_resolved: false")]),
        ["send-resolved"],
    ),
    "notifications that fail": (
        lambda: alertmanager(
            metrics='alertmanager_notifications_total{integration="webhook"} 10\n'
            'alertmanager_notifications_failed_total{integration="webhook",reason="clientError"} 3\n'
        ),
        ["deliveries-failing"],
    ),
    "a silence on a scaling alert": (
        lambda: alertmanager(
            silences=[
                {
                    "status": {"state": "active"},
                    "createdBy": "ana",
                    "comment": "migration",
                    "matchers": [{"name": "alertname", "value": "Busy", "isRegex": False}],
                }
            ]
        ),
        ["silenced"],
    ),
    "a silence by a pattern": (
        lambda: alertmanager(silences=[silence({"name": "alertname", "value": "Bu.*", "isRegex": True})]),
        ["silenced"],
    ),
    "a silence on a severity": (
        lambda: alertmanager(silences=[silence({"name": "severity", "value": "warning", "isRegex": False})]),
        ["silenced"],
    ),
    "a silence on a namespace": (
        lambda: alertmanager(silences=[silence({"name": "namespace", "value": "inference"})]),
        ["silenced"],
    ),
    "a silence on all else": (
        lambda: alertmanager(
            silences=[silence({"name": "action", "value": "scale_.*", "isRegex": True, "isEqual": False})]
        ),
        [],
    ),
    "a silence on a node": (
        lambda: alertmanager(silences=[silence({"name": "node", "value": "n1"})]),
        [],
    ),
    "a silence that has expired": (
        lambda: alertmanager(
            silences=[{"status": {"state": "expired"}, "matchers": [{"name": "alertname", "value": "Busy"}]}]
        ),
        [],
    ),
}


@pytest.mark.parametrize(("made", "expected"), ALERTMANAGER.values(), ids=ALERTMANAGER.keys())
def test_alertmanager_faults(made: Callable[[], Canned], expected: list[str]) -> None:
    """Each fault of the running Alertmanager is one finding with a mend, and a healthy one has none."""
    with examined("--alertmanager-url", made()) as (status, report):
        assert codes(report) == expected
        assert status == (1 if expected else 0)
        assert all(each["mend"] for each in report["findings"])


def test_alertmanagers_that_differ_are_told() -> None:
    """Two of a cluster with other routes: what one would deliver, the other would not."""
    other = alertmanager(changed=[("group_wait: 10s", "group_wait: 20s")])
    with served(alertmanager()) as one, served(other) as two:
        _, report = run("--alertmanager-url", one.url, "--alertmanager-url", two.url)
    assert codes(report) == ["routes-differ"]


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({}, []),
        ({"safeMode": "the heartbeat has not arrived since 12:00:00Z"}, ["not-well"]),
        ({"policy": "policies.yaml:3: unknown key"}, ["not-well"]),
    ],
    ids=["nothing wrong", "safe mode", "a policy file that is not taken"],
)
def test_service_says_what_is_amiss(details: dict[str, str], expected: list[str]) -> None:
    """What /-/ready tells beside its status is a finding."""
    with examined("--url", service(ready={"status": "ready", "details": details})) as (_, report):
        assert codes(report) == expected


def test_a_service_that_is_not_ready_is_an_error() -> None:
    """503 with its reason."""
    body = {"http": 503, "body": {"status": "not ready", "error": "the disk is full", "details": {}}}
    with examined("--url", service(ready=body)) as (status, report):
        assert (status, codes(report)) == (1, ["unreachable"])
        assert "the disk is full" in report["findings"][0]["message"]


def test_a_rule_that_was_to_be_kept_firing_and_is_not(tmp_path: Path) -> None:
    """Rules older than the file: the server says 0 where the file says 2m."""
    file = tmp_path / "rules.yaml"
    file.write_text((SOUND / "rules.yaml").read_text().replace("for: 1m", "for: 1m\n    keep_firing_for: 2m"))
    with served(prometheus()) as canned:
        result = CliRunner().invoke(
            cli, ["doctor", "--prometheus-url", canned.url, "--rules", str(file), *FILES[:2]]
        )
    assert (
        "Busy in Prometheus differs from the file in keep_firing_for (0 s there). [rule-differs]"
        in result.output
    )


def test_what_does_not_listen_is_told_in_one_sentence() -> None:
    """A refused connection to each server: an error for each, no traceback, exit status 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        status, report = run("--prometheus-url", url, "--alertmanager-url", url, "--url", url)
    assert (status, codes(report)) == (1, ["unreachable"] * 3)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(0.0, []), (1.0, []), (30.0, ["clock-skew"]), (-30.0, ["clock-skew"])],
    ids=["alike", "a second, which a Date cannot tell", "ahead", "behind"],
)
def test_clock_skew(ahead: float, expected: list[str]) -> None:
    """A clock is off if it surely is: the Date header's second and the way there count for it."""
    made = service()
    made.ahead = ahead
    with examined("--url", made) as (_, report):
        assert codes(report) == expected


# --- The test alert ---------------------------------------------------------------------------------


def test_a_test_alert_is_timed_and_resolved() -> None:
    """Its hops come in order, it carries the label by which nothing acts on it, and it is resolved in the end."""
    ours = service()
    made = alertmanager(ours)
    with served(ours), served(made):
        status, report = run("--alertmanager-url", made.url, "--url", ours.url, "--send-test")
    assert (status, codes(report)) == (0, [])
    assert [each["hop"] for each in report["testAlert"]][-1] == "the service told of it"
    assert len(report["testAlert"]) == 4
    assert all(0 <= each["seconds"] < 10 for each in report["testAlert"])
    sent, resolved = (body[0] for path, body in made.posted if path == "/api/v2/alerts")
    assert sent["labels"] == resolved["labels"]
    assert sent["labels"][TEST_LABEL]
    assert sent["endsAt"] > resolved["endsAt"]


SENT: dict[str, tuple[Callable[[], Canned], dict[str, Any], list[str]]] = {
    "it never arrives": (alertmanager, {}, ["test-lost"]),
    "Alertmanager refuses it": (lambda: alertmanager(alerts=400), {}, ["test-lost"]),
    "no route takes it": (
        lambda: alertmanager(changed=[("scale_up|scale_down", "scale_down")]),
        {},
        ["unrouted", "test-unrouted"],
    ),
    "the service asks for a token": (alertmanager, {"test": 401}, ["test-unknown"]),
    "an older test is all that arrived": (
        alertmanager,
        {"test": {"id": "another", "receivedAt": "2026-01-01T00:00:00+00:00", "receiver": "", "sender": ""}},
        ["test-lost"],
    ),
}


@pytest.mark.parametrize(("made", "answers", "expected"), SENT.values(), ids=SENT.keys())
def test_a_test_alert_that_is_lost(
    made: Callable[[], Canned], answers: dict[str, Any], expected: list[str]
) -> None:
    """Where it was last seen is told, and it is not left firing."""
    with served(service(**answers)) as ours, served(made()) as theirs:
        status, report = run(
            "--alertmanager-url", theirs.url, "--url", ours.url, "--send-test", "--test-timeout", "1"
        )
        assert status == 1
        assert sorted(codes(report)) == sorted(expected)
        posts = [body for path, body in theirs.posted if path == "/api/v2/alerts"]
        assert len(posts) == (0 if "test-unrouted" in expected else 2)


def test_nothing_is_sent_unless_asked() -> None:
    """Without --send-test not one request changes anything."""
    with served(prometheus()) as one, served(alertmanager()) as two, served(service()) as three:
        run("--prometheus-url", one.url, "--alertmanager-url", two.url, "--url", three.url)
        assert [one.posted, two.posted, three.posted] == [[], [], []]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--send-test", "--url", "http://127.0.0.1:1"],
        ["--prometheus-url", "http://x", "--prometheus-header", "a"],
        ["--prometheus-url", "htp://u:secret@x"],
    ],
    ids=["nothing named", "a test without Alertmanager", "a header without a value", "no URL"],
)
def test_wrong_usage_is_exit_status_2(args: list[str]) -> None:
    """One sentence of what to give."""
    result = CliRunner().invoke(cli, ["doctor", *args])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert "secret" not in result.output


# --- With the shipped policy, which is sized by a query ------------------------------------------------

DEMAND = "namespace_workload:llm_requests_inflight:sum"


@pytest.mark.parametrize(
    ("special", "expected"),
    [
        ({}, []),
        ({f"timestamp({DEMAND})": vector()}, ["value-unseen"]),
        ({f"timestamp({DEMAND})": vector(({}, 300))}, ["series-stale"]),
        ({f'{DEMAND}{{workload=""}}': vector(({}, 2))}, ["series-unlabelled"]),
    ],
    ids=["there", "not there", "stale", "without the label that the query asks by"],
)
def test_what_policies_size_by(special: dict[str, Any], expected: list[str]) -> None:
    """The demand series must be there, fresh, and have the labels by which the policy asks for it."""
    made = prometheus(query=queries(special), rules=404)
    with served(made):
        result = CliRunner().invoke(
            cli,
            ["doctor", "-o", "json", "--prometheus-url", made.url, "--policy", str(ROOT / "examples/policies.yaml"),
             "--rules", str(ROOT / "rules")],
        )  # fmt: skip
    assert [code for code in codes(json.loads(result.stdout)) if code != "rules-unknown"] == expected


def test_people_read_findings_hops_and_what_was_looked_at() -> None:
    """Without -o json: sentences, the hops of the test alert, and a last line."""
    ours = service()
    made = alertmanager(ours)
    with served(ours), served(made):
        args = ["doctor", "--alertmanager-url", made.url, "--url", ours.url, "--send-test"]
        result = CliRunner().invoke(cli, args)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "Test alert:"
    assert lines[-1] == f"Alertmanager {made.url}, gpu-responder {ours.url}: all well"


def test_a_password_in_a_url_is_sent_and_not_shown() -> None:
    """`user:password@` becomes basic authentication, and no line of the output has it."""
    made = Canned({"/api/v1/query": 401})
    with served(made):
        result = CliRunner().invoke(
            cli, ["doctor", "--prometheus-url", made.url.replace("http://", "http://ana:hush@")]
        )
    assert result.exit_code == 1
    assert "hush" not in result.output
    assert made.authorizations == ["Basic YW5hOmh1c2g="]


@pytest.mark.parametrize(
    ("readings", "found"),
    [
        ([("a", 2.4, 0.5)], 0),
        ([("a", 2.6, 0.5)], 1),
        ([("a", -2.6, 0.5)], 1),
        ([("a", 1.6, 0.2), ("b", -1.6, 0.2)], 1),
        ([("a", 1.6, 0.7), ("b", -1.6, 0.7)], 0),
    ],
    ids=["perhaps", "surely ahead", "surely behind", "apart from one another", "perhaps apart"],
)
def test_only_what_is_surely_off_counts_as_skew(readings: list[tuple[str, float, float]], found: int) -> None:
    """Beyond 2 s even in the best case: a Date header has whole seconds, and the way there takes time."""
    assert len(list(clocks.check(ClockReading(*each) for each in readings))) == found


def test_a_ca_file_that_is_none_is_named(tmp_path: Path) -> None:
    """Before anybody is asked: it is the option that is wrong, and no server."""
    empty = tmp_path / "ca.crt"
    empty.touch()
    for file, why in ((empty, "it holds no certificate"), (tmp_path / "none", "No such file or directory")):
        result = CliRunner().invoke(cli, ["doctor", "--url", "https://127.0.0.1:1", "--ca-file", str(file)])
        assert f"{file}: cannot be used as CA file ({why})." in result.output
        assert result.exit_code == 2
