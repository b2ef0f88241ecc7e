"""The chart as Helm's own engine renders it: what is there, what must not be, and what it may do."""

import copy
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from responder import config
from responder.kube.rights import rights_needed
from responder.serve import Options, serve
from responder.web.auth import Role, read_token_hashes

sys.path.insert(0, str(Path(__file__).parent))
from charting import (
    CHART,
    NAMESPACE,
    ROOT,
    SETS,
    Object,
    decoded,
    objects,
    objects_in,
    one,
    render,
    settled,
    values_of,
)

SELECTOR = {"app.kubernetes.io/name": "gpu-responder", "app.kubernetes.io/instance": "gpu-responder"}


def merged(base: Object, change: Object) -> Object:
    """Values with a change, as Helm merges them."""
    made = copy.deepcopy(base)
    for key, value in change.items():
        made[key] = merged(made[key], value) if isinstance(made.get(key), dict) and value else value
    return made


def test_generated_files_are_as_their_sources_say():
    """Rules, policy schema, values schema and README in the chart cannot drift from what they are made of."""
    done = subprocess.run(
        [sys.executable, ROOT / "helm" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_holds_what_an_installation_needs(tmp_path: Path):
    """Rules, dashboards, schema and README are in it; sources of these and values for tests are not."""
    program = "import sys, helm_python; helm_python.package(sys.argv[1], destination=sys.argv[2])"
    subprocess.run([sys.executable, "-c", program, CHART, tmp_path], check=True, timeout=60)
    (made,) = tmp_path.glob("*.tgz")
    with tarfile.open(made) as archive:
        names = {name.removeprefix("gpu-responder/") for name in archive.getnames()}
    assert {
        "README.md",
        "values.schema.json",
        "rules/nvidia.yaml",
        "dashboards/fleet.json",
        "files/dry_run.py",
    } <= names
    assert not [name for name in names if name.startswith("ci/") or name == "README.head.md"]


def undescribed(schema: Object, path: str = "") -> list[str]:
    """Keys without a description, and mappings that take keys which nobody has described."""
    found = []
    for key, value in schema.get("properties", {}).items():
        where = f"{path}.{key}"
        if "description" not in value and "$ref" not in value:
            found.append(where)
        if "properties" in value and value.get("additionalProperties") is not False:
            found.append(f"{where} is open")
        found += undescribed(value, where) + undescribed(value.get("items", {}), f"{where}[]")
    return found


def test_every_value_is_described_and_none_is_unknown():
    """The schema is closed, and says of each key what it is for."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["additionalProperties"] is False
    assert undescribed(schema) == []


@pytest.mark.parametrize("name", SETS)
def test_golden(name: str):
    """What is rendered changes only on purpose: UPDATE_GOLDEN=1 writes the files anew."""
    path = Path(__file__).parent / "golden" / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(settled(name), encoding="utf-8")
    assert settled(name) == path.read_text(encoding="utf-8")


def test_lint():
    """Helm's linter has nothing to warn of, for any set of values."""
    answers = render({name: {"values": values_of(name), "lint": True} for name in SETS})
    for answer in answers.values():
        assert answer["lint"]["errors"] == []
        # Severity 1 is a hint: the chart has no icon.
        assert [each for each in answer["lint"]["messages"] if each["severity"] > 1] == []


def test_default_is_dry_run_and_nothing_optional():
    """Installed with no values at all, it writes nothing, and needs no operator's definitions."""
    found = objects("default")
    assert sorted({each["kind"] for each in found}) == [
        "ConfigMap",
        "Deployment",
        "Pod",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
    ]
    assert policy_of(found)["dryRun"] is True
    assert one(found, "Deployment")["spec"]["replicas"] == 2


def test_minimal_has_nothing_but_what_it_needs():
    """With everything off there are the service, the store's Role and one Role for the target's namespace."""
    kinds = sorted((each["kind"], each["metadata"]["name"]) for each in objects("minimal"))
    assert kinds == [
        ("ConfigMap", "gpu-responder-policy"),
        ("Deployment", "gpu-responder"),
        ("Role", "gpu-responder"),
        ("Role", "gpu-responder-targets"),
        ("RoleBinding", "gpu-responder"),
        ("RoleBinding", "gpu-responder-targets"),
        ("Service", "gpu-responder"),
        ("ServiceAccount", "gpu-responder"),
    ]


@pytest.mark.parametrize("name", SETS)
def test_labels(name: str):
    """Every object has the recommended labels, and the test's pod is not one that the Service selects."""
    for each in objects(name):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "gpu-responder"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/part-of"] == "gpu-responder"
        if each["kind"] == "Pod":
            assert labels["app.kubernetes.io/name"] != SELECTOR["app.kubernetes.io/name"]
        else:
            assert labels["helm.sh/chart"] == "gpu-responder-0.1.0"
            assert labels["app.kubernetes.io/version"] == "0.1.0"
        for value in labels.values():
            assert re.fullmatch(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", value)
    pod = one(objects(name), "Deployment")["spec"]["template"]
    assert pod["metadata"]["labels"].items() >= SELECTOR.items()
    assert one(objects(name), "Deployment")["spec"]["selector"]["matchLabels"] == SELECTOR


# --- Rights ---------------------------------------------------------------------------------------------

READING = {"get", "list", "watch"}
WRITES = {
    ("apps", "deployments/scale"): {"update"},
    ("apps", "statefulsets/scale"): {"update"},
    ("argoproj.io", "rollouts/scale"): {"update"},
    ("", "events"): {"create", "patch"},
}
STORE = {
    ("", "configmaps"): {"create", "patch", "delete"},
    ("coordination.k8s.io", "leases"): {"create", "update"},
}


def writes(role: Object) -> dict[tuple[str, str], set[str]]:
    """Resources that a role lets change, with the verbs."""
    made: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                if verbs := set(rule["verbs"]) - READING:
                    made.setdefault((group, resource), set()).update(verbs)
    return made


@pytest.mark.parametrize("name", SETS)
def test_rights_are_least(name: str):
    """Only scales and Events are written where targets are; nothing can change a pod template or read a Secret."""
    roles = [each for each in objects(name) if each["kind"] in ("Role", "ClusterRole")]
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "secrets" not in rule["resources"]
        made = writes(role)
        if role["metadata"]["name"].endswith("-targets"):
            assert all(verbs <= WRITES[key] for key, verbs in made.items())
        elif role["metadata"]["name"].endswith("-nodes"):
            assert made == {("", "nodes"): {"patch"}}
        else:
            assert role["metadata"]["namespace"] == NAMESPACE
            assert made == STORE


@pytest.mark.parametrize("name", SETS)
def test_rights_suffice(name: str, tmp_path: Path):
    """The Roles grant each right that the service itself says it needs for this policy and store."""
    found = objects(name)
    path = tmp_path / "policies.yaml"
    path.write_text(one(found, "ConfigMap", "gpu-responder-policy")["data"]["policies.yaml"])
    store = "sqlite:x" if name == "sqlite" else f"kubernetes:{NAMESPACE}"
    keda, events = (name != "minimal",) * 2
    granted = {
        (verb, group, resource, each["metadata"].get("namespace", ""))
        for each in found
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = rights_needed(config.load(str(path)), Options(policy=str(path), store=store), keda=keda)
    assert needed
    for right in needed:
        resource = "/".join(filter(None, (right.resource, right.subresource)))
        where = {right.namespace, ""}
        if resource == "events" and not events:
            continue
        assert any((right.verb, right.group, resource, namespace) in granted for namespace in where), str(
            right
        )


def test_no_alert_can_scale_the_responder_itself():
    """Where its namespace is no target, the first policy takes all alerts of it, and that one never writes."""
    policy = policy_of(objects("sqlite"))["policies"][0]
    assert policy["matchers"] == [f'namespace="{NAMESPACE}"']
    assert policy["dryRun"] is True
    assert policy["scaleTargetRef"]["name"] == "gpu-responder"


def test_rights_are_where_targets_are():
    """Each target namespace has a Role, and its own for the test, and no other; nothing is cluster-wide."""
    found = objects("sqlite")
    targets = [each for each in found if each["metadata"]["name"] == "gpu-responder-targets"]
    assert {(each["kind"], each["metadata"]["namespace"]) for each in targets} == {
        (kind, namespace)
        for kind in ("Role", "RoleBinding")
        for namespace in ("inference", "team-a", NAMESPACE)
    }
    assert not [each for each in found if each["kind"].startswith("Cluster")]
    for each in targets:
        if each["kind"] == "RoleBinding":
            assert each["subjects"] == [
                {"kind": "ServiceAccount", "name": "gpu-responder", "namespace": NAMESPACE}
            ]


def test_rights_on_nodes_only_when_asked():
    """Reading nodes comes with capacity, changing them with node actions, both by a ClusterRole."""
    answers = render({
        "off": {"values": {}},
        "capacity": {"values": {"rbac": {"capacity": True}}},
        "nodes": {"values": {"rbac": {"nodeActions": True}}},
        "none": {"values": {"rbac": {"create": False}}},
    })  # fmt: skip
    found = {name: objects_in(answer["manifests"]) for name, answer in answers.items()}
    assert "ClusterRole" not in {each["kind"] for each in found["off"]}
    assert writes(one(found["capacity"], "ClusterRole")) == {}
    assert writes(one(found["nodes"], "ClusterRole")) == {("", "nodes"): {"patch"}}
    assert not {"Role", "RoleBinding"} & {each["kind"] for each in found["none"]}


# --- The pod --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_pod_is_confined(name: str):
    """Every pod runs as nobody in particular, with no privilege, on a root that it cannot write to."""
    deployment = one(objects(name), "Deployment")["spec"]["template"]["spec"]
    for pod in [deployment, *(each["spec"] for each in objects(name) if each["kind"] == "Pod")]:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


@pytest.mark.parametrize("name", SETS)
def test_arguments_are_taken_by_the_command(name: str):
    """`gpu-responder serve` knows every argument, and paths lie in what is mounted."""
    container = one(objects(name), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    command, *arguments = container["args"]
    assert command == "serve"
    context = serve.make_context("serve", arguments)
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for key in ("policy", "token_hashes_file", "certfile", "keyfile"):
        path = context.params[key]
        assert not path or str(Path(path).parent) in mounts


def test_termination_outlasts_a_delivery():
    """A pod has longer to end than the service takes, and the schema takes no less."""
    from responder.serve import GRACE_SECONDS

    spec = one(objects("default"), "Deployment")["spec"]["template"]["spec"]
    (wait,) = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1:]
    assert spec["terminationGracePeriodSeconds"] > GRACE_SECONDS + int(wait)
    assert "error" in render({"x": {"values": {"terminationGracePeriodSeconds": 30}}})["x"]


def test_probes():
    """Liveness and readiness ask the service's own routes, by HTTPS when it serves that."""
    for name, scheme in (("default", "HTTP"), ("everything", "HTTPS")):
        container = one(objects(name), "Deployment")["spec"]["template"]["spec"]["containers"][0]
        assert container["livenessProbe"]["httpGet"] == {
            "path": "/-/healthy",
            "port": "http",
            "scheme": scheme,
        }
        assert container["readinessProbe"]["httpGet"] == {
            "path": "/-/ready",
            "port": "http",
            "scheme": scheme,
        }


def test_drains_are_bounded_but_never_stuck():
    """At most one pod is evicted at a time; pods that are not ready, as while the store is down, may always go."""
    budget = one(objects("default"), "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_replicas_may_be_left_to_others():
    """Null leaves the number out, for whoever else sets it; the budget stays, and SQLite is refused."""
    answers = render({
        "kubernetes": {"values": {"replicaCount": None}},
        "sqlite": {"values": {"replicaCount": None, "store": {"type": "sqlite"}}},
    })  # fmt: skip
    found = objects_in(answers["kubernetes"]["manifests"])
    assert "replicas" not in one(found, "Deployment")["spec"]
    assert one(found, "PodDisruptionBudget")
    assert "set replicaCount to 1" in answers["sqlite"]["error"]


def test_pods_of_one_release_spread_by_revision():
    """While a new revision rolls out, pods of the old one do not count, so that the new ones end up apart."""
    spec = one(objects("default"), "Deployment")["spec"]["template"]["spec"]
    for each in spec["topologySpreadConstraints"]:
        assert each["labelSelector"] == {"matchLabels": SELECTOR}
        assert each["matchLabelKeys"] == ["pod-template-hash"]


def test_a_platform_may_choose_the_user():
    """Null takes a default out, as OpenShift needs that gives each namespace users of its own."""
    values = {"podSecurityContext": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))}
    found = objects_in(render({"x": {"values": values}})["x"]["manifests"])
    for pod in (one(found, "Deployment")["spec"]["template"]["spec"], one(found, "Pod")["spec"]):
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_further_objects_are_as_given():
    """What the chart does not know is made beside it, braces and all, and the same with what else was asked for."""
    made = {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": {"name": "tokens", "labels": {"a": "{{ .Release.Name }}"}},
    }
    values = {
        "extraObjects": [made],
        "annotations": {"reloader.stakater.com/auto": "true"},
        "dashboards": {"enabled": True, "namespace": "grafana"},
        "serviceMonitor": {"enabled": True, "metricRelabelings": [{"action": "labeldrop", "regex": "pod"}]},
        "networkPolicy": {
            "enabled": True,
            "ingressFrom": [{"podSelector": {}}],
            "egress": {"dnsPorts": [5353]},
        },
        "helmTest": {"resources": {"limits": {"cpu": 1}}},
    }
    found = objects_in(render({"x": {"values": values}})["x"]["manifests"])
    assert one(found, "ExternalSecret") == made
    assert one(found, "Deployment")["metadata"]["annotations"] == values["annotations"]
    dashboards = [each for each in found if "-dashboard-" in each["metadata"]["name"]]
    assert {each["metadata"]["namespace"] for each in dashboards} == {"grafana"}
    (endpoint,) = one(found, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["metricRelabelings"] == [{"action": "labeldrop", "regex": "pod"}]
    names, _ = one(found, "NetworkPolicy")["spec"]["egress"]
    assert names == {"ports": [{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}]}
    (test,) = one(found, "Pod")["spec"]["containers"]
    assert test["resources"] == {
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"cpu": 1, "memory": "128Mi"},
    }


def test_service_says_what_it_speaks():
    """A mesh or a Gateway that goes by appProtocol learns of HTTPS, which the port's name does not say."""
    for name, protocol in (("default", "http"), ("everything", "https")):
        (port,) = one(objects(name), "Service")["spec"]["ports"]
        assert (port["name"], port["appProtocol"]) == ("http", protocol)


def test_sqlite_is_one_replica_with_a_volume():
    """The old pod ends before the new one starts, and the database lies on the claim."""
    found = objects("sqlite")
    spec = one(found, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "gpu-responder-data"}} in spec["template"][
        "spec"
    ]["volumes"]
    claim = one(found, "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "PodDisruptionBudget" not in {each["kind"] for each in found}


def checksums(values: Object) -> dict[str, str]:
    answer = render({"x": {"values": values}})["x"]
    pod = one(objects_in(answer["manifests"]), "Deployment")["spec"]["template"]
    return {
        key: value for key, value in pod["metadata"]["annotations"].items() if key.startswith("checksum/")
    }


def test_configuration_rolls_pods():
    """A change of policy or tokens changes the pod template, anything else does not, and neither does chance."""
    before = checksums({})
    assert checksums({"service": {"port": 80}}) == before
    assert checksums({"dryRun": False})["checksum/policy"] != before["checksum/policy"]
    assert checksums({"targetNamespaces": ["a"]})["checksum/policy"] != before["checksum/policy"]
    entry = {"name": "x", "role": "viewer", "sha256": "0" * 64}
    assert checksums({"tokens": {"entries": [entry]}})["checksum/tokens"] != before["checksum/tokens"]


# --- What the service reads -------------------------------------------------------------------------------


def policy_of(found: list[Object]) -> Object:
    policy: Object = yaml.safe_load(one(found, "ConfigMap", "gpu-responder-policy")["data"]["policies.yaml"])
    return policy


@pytest.mark.parametrize("name", SETS)
def test_policy_is_taken_by_the_service(name: str, tmp_path: Path):
    """The policy file in the ConfigMap is one that the service loads, with Prometheus' braces whole."""
    path = tmp_path / "policies.yaml"
    path.write_text(one(objects(name), "ConfigMap", "gpu-responder-policy")["data"]["policies.yaml"])
    settings = config.load(str(path))
    assert settings.policies
    wanted = values_of(name).get("targetNamespaces") or [NAMESPACE]
    assert [each for each in policy_of(objects(name))["allowedNamespaces"] if each != NAMESPACE] == [
        each for each in wanted if each != NAMESPACE
    ]
    if name != "minimal":
        assert "{{ $labels.workload }}" in path.read_text()


def test_default_policy_is_the_example():
    """The policy in values.yaml is examples/policies.yaml, but for the namespaces, which are a value here."""
    example = yaml.safe_load((ROOT / "examples" / "policies.yaml").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["policy"]
    for key in ("apiVersion", "kind", "allowedNamespaces"):
        del example[key]
    example["policies"][0]["matchers"] = ['workload_type="deployment"']
    assert values == example


def test_tokens_are_those_of_their_hashes(tmp_path: Path):
    """Each generated token is random, and the service finds it under its role."""
    secrets = [
        objects_in(answer["manifests"])
        for answer in render({"a": {"values": {}}, "b": {"values": {}}}).values()
    ]
    made = [one(found, "Secret", "gpu-responder-tokens")["data"] for found in secrets]
    assert not set(made[0].values()) & set(made[1].values())
    path = tmp_path / "tokens.yaml"
    path.write_text(decoded(one(secrets[0], "Secret", "gpu-responder-token-hashes")["data"]["tokens.yaml"]))
    known = read_token_hashes(str(path))
    assert len(known) == 3
    for role in Role:
        token = decoded(made[0][role.value])
        assert re.fullmatch(r"gpur_[A-Za-z0-9]{43}", token)
        (identity,) = [
            each
            for key, each in known.items()
            if key
            in (hashlib.sha256(token.encode()).digest(), hashlib.sha256(token.encode()).hexdigest().encode())
        ]
        assert identity.role is role


# --- Rules ------------------------------------------------------------------------------------------------


def packed(values: Object) -> dict[str, Object]:
    """The PrometheusRules of the chart by the file that they come from."""
    answer = render({"x": {"values": merged({"prometheusRule": {"enabled": True}}, values)}})["x"]
    rules = [each for each in objects_in(answer["manifests"]) if each["kind"] == "PrometheusRule"]
    return {each["metadata"]["name"].removeprefix("gpu-responder-"): each["spec"] for each in rules}


def rule(pack: dict[str, Object], name: str) -> Object:
    every = [each for spec in pack.values() for group in spec["groups"] for each in group["rules"]]
    (found,) = [each for each in every if name in (each.get("alert"), each.get("record"))]
    return found


def test_the_test_passes_the_network_policy():
    """Whoever else may connect, the test's pod may, by labels that it bears."""
    found = objects("everything")
    pod = one(found, "Pod")["metadata"]["labels"]
    peers = one(found, "NetworkPolicy")["spec"]["ingress"][0]["from"]
    allowed = [peer["podSelector"]["matchLabels"] for peer in peers if "podSelector" in peer]
    assert [labels for labels in allowed if labels.items() <= pod.items()]


def test_rules_are_the_pack():
    """Untouched, the chart's rules are rules/ to the letter."""
    pack = packed({})
    files = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (ROOT / "rules").glob("*.yaml")
    }
    assert pack == {name: content["spec"] for name, content in files.items()}


def test_rules_by_vendor_and_group():
    """A switch leaves out its file, and XIDs go with NVIDIA."""
    every = set(packed({}))
    vendors = {"vendors": {"nvidia": False, "amd": False}}
    assert every - set(packed({"prometheusRule": vendors})) == {"nvidia", "xid", "amd"}
    groups = {"groups": {"scaling": False, "responder": False}}
    assert every - set(packed({"prometheusRule": groups})) == {"scaling", "responder"}


def test_rules_by_value(tmp_path: Path):
    """Thresholds, for, labels, runbooks and job names are set by values, and promtool takes what comes out."""
    pack = packed(values_of("everything"))
    up = rule(pack, "GPUWorkloadScaleUp")
    assert up["expr"].endswith("> 0.8")
    assert (up["for"], up["labels"]["team"]) == ("5m", "gpu-platform")
    assert up["annotations"]["runbook_url"] == "https://runbooks.example.com/GPUWorkloadScaleUp.md"
    assert up["annotations"]["value"] == "{{ $value }}"
    assert rule(pack, "LLMTimeToFirstTokenHigh")["expr"].endswith("> 1")
    assert 'up{job=~"gpu/(dcgm|amd).*"}' in rule(pack, "gpu_exporter:up:min")["expr"]
    with pytest.raises(ValueError, match="unpack"):
        rule(pack, "GPUWorkloadIdle")
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [group for spec in pack.values() for group in spec["groups"]]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_has_its_rights_is_taken():
    """A custom resource with its rights, and any kind where rights are made by others, render."""
    rollout = {"policy": {"policies": [policy_for("argoproj.io/v1alpha1", "Rollout")]}}
    answers = render({
        "with rights": {
            "values": {**rollout, "rbac": {"customResources": [{"apiGroup": "argoproj.io", "resource": "rollouts"}]}}
        },
        "by others": {"values": {**rollout, "rbac": {"create": False}}},
    })  # fmt: skip
    assert {name: answer.get("error") for name, answer in answers.items()} == dict.fromkeys(answers)


def test_every_threshold_changes_its_alert_and_only_it():
    """Each key of prometheusRule.thresholds moves one number of one alert."""
    literals = yaml.safe_load((CHART / "files" / "thresholds.yaml").read_text(encoding="utf-8"))
    before, after = packed({}), packed({"prometheusRule": {"thresholds": dict.fromkeys(literals, 0.1234)}})
    for name, spec in before.items():
        for group, other in zip(spec["groups"], after[name]["groups"], strict=True):
            for old, new in zip(group["rules"], other["rules"], strict=True):
                if old.get("alert") in literals:
                    operator = literals[old["alert"]].split()[0]
                    assert new["expr"] == old["expr"].replace(literals[old["alert"]], f"{operator} 0.1234")
                    assert new["expr"] != old["expr"]
                else:
                    assert new == old


def test_alertmanager_config_is_the_shipped_one():
    """The routes are those of alertmanager/alertmanagerconfig.yaml; address and token are the release's."""
    values = {"alertmanagerConfig": {"enabled": True}}
    found = objects_in(render({"x": {"values": values}})["x"]["manifests"])
    shipped = yaml.safe_load((ROOT / "alertmanager" / "alertmanagerconfig.yaml").read_text(encoding="utf-8"))
    hook = shipped["spec"]["receivers"][1]["webhookConfigs"][0]
    hook["url"] = "http://gpu-responder.gpu-responder.svc:9099/api/v1/webhooks/alertmanager"
    hook["httpConfig"]["authorization"]["credentials"] = {
        "name": "gpu-responder-tokens",
        "key": "alertmanager",
    }
    assert one(found, "AlertmanagerConfig")["spec"] == shipped["spec"]


def test_the_chain_that_the_chart_makes_is_whole(tmp_path: Path):
    """`gpu-responder check` has no error and no warning for rules, routes and policy as they come from the chart."""
    path = tmp_path / "rendered.yaml"
    path.write_text("\n---\n".join(yaml.safe_dump(each) for each in objects("everything")))
    done = subprocess.run(
        [sys.executable, "-m", "responder", "check", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"LLMQueueBacklog .* inference/backlog ", done.stdout)


def values_in(page: str) -> dict[str, Object]:
    """The YAML of a page that is values of the chart, by its first line and place."""
    known = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")).keys()
    text, found = (ROOT / "docs" / page).read_text(encoding="utf-8"), {}
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)):
        values = yaml.safe_load(block)
        if isinstance(values, dict) and values.keys() <= known:
            found[f"{page} {number}: {block.partition(chr(10))[0]}"] = values
    return found


def test_values_in_the_docs_are_taken():
    """What a page tells a person to put into values renders."""
    cases = {**values_in("install.md"), **values_in("security.md"), **values_in("faq.md")}
    assert len(cases) >= 6
    digest = {"image": {"digest": f"sha256:{'0' * 64}"}}  # Pages write an ellipsis.
    wanted = {
        name: {"values": merged(values, digest if "digest" in values.get("image", {}) else {})}
        for name, values in cases.items()
    }
    answers = render(wanted)
    assert {name: answer["error"] for name, answer in answers.items() if "error" in answer} == {}


# --- Wrong and hostile values -----------------------------------------------------------------------------


def policy_for(api_version: str, kind: str) -> Object:
    return {
        "name": "p",
        "matchers": [],
        "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "namespace": "inference", "name": "x"},
        "maxReplicas": 2,
        "triggers": [{"name": "t", "matchers": [], "scale": {"direction": "Up", "type": "Pods", "value": 1}}],
    }


VIEWER = {"name": "x", "role": "viewer", "sha256": "0" * 64}
WRONG = {
    "an unknown key": ({"replicas": 2}, "additional properties 'replicas' not allowed"),
    "an unknown key of the policy": (
        {"policy": {"policies": [{"name": "x", "matchers": [], "triggers": [], "cooldown": 3}]}},
        "additional properties 'cooldown' not allowed",
    ),
    "SQLite with two replicas": ({"store": {"type": "sqlite"}}, "SQLite is for one replica, not 2: set"),
    "a store that is none": ({"store": {"type": "redis"}}, "value must be one of 'kubernetes', 'sqlite'"),
    "no token at all": ({"tokens": {"generate": False}}, "without a token nobody can deliver: set tokens.generate"),
    "hashes in two places": (
        {"tokens": {"existingHashesSecret": {"name": "x"}, "entries": [VIEWER]}},
        "put the entries there",
    ),
    "a token in place of its hash": (
        {"tokens": {"entries": [{"name": "x", "role": "viewer", "sha256": "gpur_abc"}]}},
        "'gpur_abc' does not match pattern",
    ),
    "a glob without rights on the cluster": (
        {"targetNamespaces": ["team-*"]},
        'there can be no Role for the glob "team-*": name the namespaces, or set rbac.clusterWide to true',
    ),
    "scraping without a token": (
        {"serviceMonitor": {"enabled": True}, "tokens": {"existingHashesSecret": {"name": "x"}}},
        "give tokens.viewerSecret.name",
    ),
    "routes without a token": (
        {"alertmanagerConfig": {"enabled": True}, "tokens": {"existingHashesSecret": {"name": "x"}}},
        "give tokens.alertmanagerSecret.name",
    ),
    "capacity without its rights": (
        {"policy": {"policies": [{"name": "p", "matchers": [], "maxReplicas": 2, "capacity": "Clip", "triggers": [
            {"name": "t", "matchers": [], "scale": {"direction": "Up", "type": "Pods", "value": 1}}]}]}},
        "p has capacity Clip, which needs to see nodes: set rbac.capacity to true",
    ),
    "cordons without their rights": (
        {"policy": {"policies": [{"name": "p", "matchers": [], "triggers": [
            {"name": "t", "matchers": [], "node": {"action": "Cordon"}}]}]}},
        "p acts on nodes: set rbac.nodeActions to true",
    ),
    "scaling without workloads": (
        {"prometheusRule": {"enabled": True, "groups": {"workload": False}}},
        "set prometheusRule.groups.workload to true",
    ),
    "a threshold of an alert that has none": (
        {"prometheusRule": {"thresholds": {"Watchdog": 1}}},
        "additional properties 'Watchdog' not allowed",
    ),
    "an Ingress in clear": ({"ingress": {"enabled": True, "hosts": ["x"]}}, "tokens would pass in clear"),
    "egress that keeps it from Prometheus": (
        {"networkPolicy": {"enabled": True}, "prometheusUrls": ["http://prometheus:9090"]},
        "networkPolicy.egress.to: Prometheus and Alertmanager could not be asked",
    ),
    "a network policy that keeps Prometheus out": (
        {"networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "only pods of the namespace gpu-responder could connect, so not whoever scrapes: name who may",
    ),
    "a network policy that keeps Alertmanager out": (
        {"networkPolicy": {"enabled": True}, "alertmanagerConfig": {"enabled": True}},
        "so not Alertmanager: name",
    ),
    "a second store by extraArgs": (
        {"extraArgs": ["--store=sqlite:/var/lib/x.db"]},
        'extraArgs: "--store" is for the chart to say',
    ),
    "bounds the wrong way round": (
        {"policy": {"policies": [{"name": "p", "matchers": [], "minReplicas": 9, "maxReplicas": 2, "triggers": [
            {"name": "t", "matchers": [], "scale": {"direction": "Up", "type": "Pods", "value": 1}}]}]}},
        "p has minReplicas 9 above maxReplicas 2: raise maxReplicas or lower minReplicas",
    ),
    "a kind without its rights": (
        {"rbac": {"workloads": ["deployments"]}, "policy": {"policies": [policy_for("apps/v1", "StatefulSet")]}},
        "p scales a StatefulSet: add statefulsets to rbac.workloads",
    ),
    "a custom resource without its rights": (
        {"policy": {"policies": [policy_for("argoproj.io/v1alpha1", "Rollout")]}},
        "a Rollout of argoproj.io: add {apiGroup: argoproj.io, resource: <its plural>} to rbac.customResources",
    ),
    "a registry as a link": ({"image": {"registry": "https://registry.example.com"}}, "does not match pattern"),
    "an object without a kind": ({"extraObjects": [{"metadata": {"name": "x"}}]}, "missing properties"),
    "a digest that is none": ({"image": {"digest": "latest"}}, '"latest" is no digest'),
    "a route to nowhere": ({"httpRoute": {"enabled": True}}, "name the Gateway"),
    "dryRun as text": ({"dryRun": "true"}, "got string, want boolean"),
    "no replicas": ({"replicaCount": 0}, "minimum: got 0, want 1"),
}  # fmt: skip


def test_wrong_values_fail_with_a_sentence():
    """Each fault ends the installation and names the key and the mend."""
    answers = render({name: {"values": values} for name, (values, _) in WRONG.items()})
    for name, (_, sentence) in WRONG.items():
        assert sentence in answers[name].get("error", "it rendered"), name


INJECTION = "x\n        hostNetwork: true\n---\nkind: ClusterRoleBinding\nmetadata: {name: evil}\n"
HOSTILE = {
    "cluster": {"cluster": INJECTION},
    "label": {"commonLabels": {"a": INJECTION}},
    "annotation": {"podAnnotations": {"a": INJECTION}},
    "argument": {"extraArgs": [INJECTION]},
    "url": {"prometheusUrls": ["http://x/" + INJECTION]},
    "template in an annotation": {"podAnnotations": {"a": '{{ lookup "v1" "Secret" "kube-system" "x" }}'}},
    "policy": {"policy": {"freeze": INJECTION}},
    "image tag": {"image": {"tag": INJECTION}},
    "image registry": {"image": {"registry": INJECTION}},
    "account": {"serviceAccount": {"name": INJECTION}},
    "class": {"priorityClassName": INJECTION},
    "claim": {"store": {"type": "sqlite", "persistence": {"existingClaim": INJECTION}}, "replicaCount": 1},
    "storage class": {
        "store": {"type": "sqlite", "persistence": {"storageClassName": INJECTION}},
        "replicaCount": 1,
    },
    "secret": {"tokens": {"existingHashesSecret": {"name": INJECTION}}},
    "secret's key": {"tokens": {"existingHashesSecret": {"key": INJECTION}}},
    "certificate": {"tls": {"existingSecret": INJECTION}},
    "name": {"fullnameOverride": INJECTION},
    "namespace": {"targetNamespaces": [INJECTION]},
    "host": {"ingress": {"enabled": True, "hosts": [INJECTION], "tls": [{"secretName": "x"}]}},
    "token's name": {"tokens": {"entries": [{"name": INJECTION, "role": "viewer", "sha256": "0" * 64}]}},
    "alert label": {"prometheusRule": {"enabled": True, "alertLabels": {"a": INJECTION}}},
    "exporter's job": {"prometheusRule": {"enabled": True, "exporterJobs": 'x"} or vector(1) #' + INJECTION}},
    "runbooks": {"prometheusRule": {"enabled": True, "runbookBaseUrl": INJECTION}},
    "address": {"bindAddress": INJECTION},
    "custom resource": {"rbac": {"customResources": [{"apiGroup": "*", "resource": "*"}]}},
}


def test_hostile_values_change_nothing_but_their_place():
    """A value cannot become YAML, a template or a right: it is refused, or stands as the text that it is."""
    answers = render({name: {"values": values} for name, values in HOSTILE.items()})
    expected = {each["kind"] for each in objects("default")} | {
        "PrometheusRule",
        "Ingress",
        "PersistentVolumeClaim",
    }
    refused = set()
    for name, answer in answers.items():
        if "error" in answer:
            refused.add(name)
            continue
        found = objects_in(answer["manifests"])
        assert {each["kind"] for each in found} <= expected, name
        assert "hostNetwork" not in one(found, "Deployment")["spec"]["template"]["spec"], name
        assert len({each["metadata"]["name"] for each in found} & {"evil"}) == 0, name
    assert refused == set(HOSTILE) - {
        "label", "annotation", "argument", "template in an annotation", "policy", "host", "token's name", "alert label",
        "exporter's job", "runbooks",
    }  # fmt: skip
    braces = objects_in(answers["template in an annotation"]["manifests"])
    assert one(braces, "Deployment")["spec"]["template"]["metadata"]["annotations"]["a"].startswith(
        "{{ lookup"
    )


def test_another_release_in_another_namespace_keeps_apart():
    """Two releases share no name of a cluster-wide object, and names stay within what Kubernetes takes."""
    values = {"rbac": {"clusterWide": True, "capacity": True}}
    long = "a" * 53
    answers = render({
        "one": {"values": values, "options": {"name": "r", "namespace": "a"}},
        "two": {"values": values, "options": {"name": "r", "namespace": "b"}},
        "long": {"values": values, "options": {"name": long, "namespace": "b" * 63}},
    })  # fmt: skip
    names = [
        {
            each["metadata"]["name"]
            for each in objects_in(answers[name]["manifests"])
            if "Cluster" in each["kind"]
        }
        for name in ("one", "two")
    ]
    assert not names[0] & names[1]
    for each in objects_in(answers["long"]["manifests"]):
        assert len(each["metadata"]["name"]) <= (63 if each["kind"] == "Service" else 253)


def test_notes_say_what_to_do_next():
    """The notes name the mode, the namespaces and the commands, whatever is on."""
    answers = render({name: {"values": values_of(name)} for name in SETS})
    notes = {
        name: answer["manifests"]["gpu-responder/templates/NOTES.txt"] for name, answer in answers.items()
    }
    assert "DRY RUN" in notes["default"]
    assert "It ACTS" in notes["everything"]
    assert "alertmanagerConfigMatcherStrategy" in notes["everything"]
    assert "helm test gpu-responder" in notes["default"]
    assert "helm test needs a token" in notes["minimal"]
    assert "dryRun: false" in notes["default"]


@pytest.mark.parametrize(
    ("targets", "wide", "said"),
    [
        ([], False, "In gpu-responder only, the release's own namespace"),
        ([], True, "In gpu-responder only, the release's own namespace"),
        (["team-*"], True, "In team-* by the policy; its rights reach every namespace"),
        (["inference", "team-a"], False, "In inference, team-a."),
    ],
    ids=["none named", "none named, with rights on the cluster", "a glob", "two by name"],
)
def test_notes_tell_where_it_may_scale(targets: list[str], wide: bool, said: str):
    """They name the namespaces that the policy allows, which rights on the whole cluster do not widen."""
    values = {"targetNamespaces": targets, "rbac": {"clusterWide": wide}}
    notes = render({"x": {"values": values}})["x"]["manifests"]["gpu-responder/templates/NOTES.txt"]
    assert said in notes


def test_notes_have_no_blank_lines_in_a_row():
    """Whatever is left out, paragraphs are one line apart, and no note sticks to what stands above it."""
    cases = {name: {"values": values_of(name)} for name in SETS}
    cases["prometheus"] = {"values": {"prometheusUrls": ["http://prometheus:9090"]}}
    for name, answer in render(cases).items():
        notes = answer["manifests"]["gpu-responder/templates/NOTES.txt"]
        assert "\n\n\n" not in notes, name
        assert not re.search(r"\n  .*\nNOTE", notes), name
