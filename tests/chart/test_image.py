"""The image's steps without Docker: what the Dockerfile builds, run by another user from a tree it cannot write to."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from functools import cache, reduce
from pathlib import Path

import pytest

from responder.sim.auth import User
from responder.sim.cluster import SimCluster
from responder.sim.server import SimServer
from tests.serving import free_port

sys.path.insert(0, str(Path(__file__).parent))
from charting import NAMESPACE, ROOT, Object, decoded, objects_in, one, render

NOBODY = 65532
"""The user of image and chart."""
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions(stage: int) -> list[tuple[str, str]]:
    """The instructions of a stage, with their arguments on one line."""
    plain = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", DOCKERFILE))
    stages = re.split(r"(?m)^FROM .*\n", plain)[1:]
    return [(word, rest) for word, rest in re.findall(r"(?m)^([A-Z]+) (.*)$", stages[stage])]


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """A folder with `opt/gpu-responder` as the first stage makes it, readable by all and writable by none."""
    folder = Path(tempfile.mkdtemp(prefix="gpu-responder-image-"))
    try:
        folder.chmod(0o755)
        source = folder / "src"
        source.mkdir()
        for word, rest in instructions(0):
            if word == "COPY":
                *names, _ = rest.split()
                for name in names:
                    _copy(ROOT / name, source / name)
            elif word == "RUN":
                command = rest.replace("/opt/", f"{folder}/opt/").replace("/src", str(source))
                command = re.sub(r"^python ", f"{interpreter()} ", command)
                done = subprocess.run(
                    command, shell=True, cwd=source, capture_output=True, text=True, check=False, timeout=240
                )
                assert done.returncode == 0, done.stdout + done.stderr
        subprocess.run(["chmod", "-R", "a+rX,a-w", folder / "opt"], check=True)
        yield folder
    finally:
        subprocess.run(["chmod", "-R", "u+w", folder], check=False)
        shutil.rmtree(folder)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def as_nobody(user: int = NOBODY) -> dict[str, object]:
    """How to start a program as another user, where this one may."""
    return {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}


@cache
def interpreter() -> str:
    """A Python for the image that the other user may start too: one below /root is not."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [candidate, "-c", "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"],
                check=False,
                cwd="/",
                **as_nobody(),
            )
            if done.returncode == 0:
                return candidate
    raise AssertionError("no Python 3.11 that every user may start: apt-get install python3 python3-venv")


def environment(image: Path) -> dict[str, str]:
    return {
        "PATH": f"{image}/opt/gpu-responder/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/",
    }


def run(image: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(image),
        cwd="/",
        check=False,
        timeout=60,
        **as_nobody(),
    )


def test_another_user_runs_it(image: Path):
    """The command is there, knows its version, and carries the files that it ships."""
    done = run(image, "gpu-responder", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.1.0" in done.stdout
    rules = str(image / "opt/gpu-responder/share/gpu-responder/rules")
    assert "GPUWorkloadScaleUp" in run(image, "gpu-responder", "rules", "export", rules).stdout


def test_the_tree_cannot_be_written_to_and_installs_nothing(image: Path):
    """What runs cannot change itself: no right to write, no installer, no compiler's leavings."""
    if os.geteuid() == 0:
        assert run(image, "sh", "-c", f"touch {image}/opt/gpu-responder/x").returncode != 0
    names = {path.name for path in (image / "opt/gpu-responder").rglob("*")}
    assert not names & {"pip", "setuptools", "pytest", "ruff"}
    assert run(image, "python", "-c", "import responder, sys; print(responder.__file__)").stdout.startswith(
        str(image)
    )


def test_the_final_stage_is_confined():
    """The second stage builds nothing, runs as a numbered user, and says how it is."""
    words = dict(instructions(1))
    assert words["USER"] == "65532:65532"
    assert words["ENTRYPOINT"] == '["gpu-responder"]'
    assert "/-/healthy" in words["HEALTHCHECK"]
    assert "org.opencontainers.image.licenses" in words["LABEL"]
    assert not [
        rest
        for word, rest in instructions(1)
        if word == "RUN" and re.search(r"pip (?!uninstall)|apt|gcc|curl", rest)
    ]
    assert re.search(r"(?m)^ARG BASE=python:[\d.]+-slim-\w+$", DOCKERFILE)


def test_the_base_loses_its_installer(tmp_path: Path):
    """What the second stage runs takes pip out of the base image, and leaves the standard library."""
    library = tmp_path / "lib/python3.11"
    for name in ("site-packages/pip/x.py", "site-packages/setuptools/x.py", "ensurepip/x.whl", "json/x.py"):
        (library / name).parent.mkdir(parents=True)
        (library / name).touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("pip", "pip3.11", "python3.11"):
        (programs / name).touch()
    for word, rest in instructions(1):
        if word == "RUN" and "/usr/local" in rest:
            subprocess.run(rest.replace("/usr/local", str(tmp_path)), shell=True, check=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"bin/python3.11", "lib/python3.11/json/x.py"}


def test_a_scanner_finds_what_is_inside(image: Path):
    """Each package that the service needs has its metadata beside it, and no other version than the constraints'."""
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().lower().splitlines()
        if "==" in line
    )
    found = {}
    for path in (image / "opt/gpu-responder").rglob("*.dist-info/METADATA"):
        fields = dict(re.findall(r"(?m)^(Name|Version): (.*)$", path.read_text(encoding="utf-8")))
        found[re.sub(r"[-_.]+", "-", fields["Name"]).lower()] = fields["Version"]
    assert found.pop("gpu-responder") == "0.1.0"
    assert {"flask", "kubernetes", "gunicorn"} <= found.keys()
    same = {re.sub(r"[-_.]+", "-", name): version for name, version in pinned.items()}
    assert {name: version for name, version in found.items() if same.get(name) != version.lower()} == {}


# --- The chart's policy, tokens and test, with what the image holds -----------------------------------------


def until(url: str, program: subprocess.Popen[bytes], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert program.poll() is None, f"{url}: its program has ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.1)
    raise AssertionError(f"{url} did not answer in {seconds} s")


@contextlib.contextmanager
def started(command: list[str], log: Path, **how: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        program = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, **how)  # type: ignore[call-overload]
        try:
            yield program
        finally:
            program.terminate()
            try:
                program.wait(40)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


def readable(folder: Path) -> None:
    """For the image's user, whatever the umask is."""
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)


def mounted(found: list[Object], container: Object, volumes: list[Object], root: Path) -> None:
    """Lay under `root` what the pod would find mounted from ConfigMaps and Secrets."""
    sources = {each["name"]: each for each in volumes}
    for mount in container["volumeMounts"]:
        folder = root / mount["mountPath"].lstrip("/")
        folder.mkdir(parents=True)
        source = sources[mount["name"]]
        texts: dict[str, str] = {}
        if "configMap" in source:
            texts = one(found, "ConfigMap", source["configMap"]["name"])["data"]
        elif "secret" in source:
            data = one(found, "Secret", source["secret"]["secretName"])["data"]
            texts = {name: decoded(text) for name, text in data.items()}
        for name, text in texts.items():
            (folder / name).write_text(text)
    readable(root)


def create(server: SimServer, each: Object) -> None:
    """Make one object, as `helm install` would."""
    group = each["apiVersion"] if "/" in each["apiVersion"] else ""
    base = f"/apis/{group}" if group else f"/api/{each['apiVersion']}"
    if namespace := each["metadata"].get("namespace"):
        base += f"/namespaces/{namespace}"
    headers = {"Authorization": "Bearer admin", "Content-Type": "application/json"}
    plural = {"PodDisruptionBudget": "poddisruptionbudgets"}.get(each["kind"], each["kind"].lower() + "s")
    request = urllib.request.Request(f"{server.url}{base}/{plural}", json.dumps(each).encode(), headers)
    urllib.request.urlopen(request, timeout=10).close()


TRIED_FIRST = re.compile(r"GET (/api/v1|/apis/[a-z.]+/\w+)/[a-z]+")
"""Lists over the whole cluster: where the rights end at namespaces, those are read one by one afterwards."""


@pytest.mark.parametrize(
    ("name", "user"),
    [("by namespace", NOBODY), ("over the cluster", 1_000_680_000)],
    ids=["by namespace, as the chart's user", "over the cluster, as a user that the platform chose"],
)
def test_installed_as_rendered_it_passes_its_test_and_scales_nothing(name: str, user: int, image: Path):
    """With the Deployment's own arguments and the rendered rights: helm test passes, in dry run.

    Nothing that the service asks the API server for in a target's namespace or its own is refused.
    """
    cluster_wide = name == "over the cluster"
    values = {
        "targetNamespaces": ["inference"],
        "rbac": {"clusterWide": cluster_wide, "capacity": cluster_wide},
    }
    found = objects_in(render({"x": {"values": values}})["x"]["manifests"])
    pod = one(found, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    root = image / name.replace(" ", "-")
    mounted(found, container, pod["volumes"], root)
    port = free_port()
    moved = {"/etc/gpu-responder": f"{root}/etc/gpu-responder", "0.0.0.0:9099": f"0.0.0.0:{port}"}
    arguments = [
        reduce(lambda text, pair: text.replace(*pair), moved.items(), each) for each in container["args"]
    ]
    with SimCluster() as cluster:
        server = cluster.server
        create(server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for each in found:
            if each["kind"] != "Pod":
                create(server, each)
        account = one(found, "ServiceAccount")["metadata"]["name"]
        server.grant("account", User(f"system:serviceaccount:{NAMESPACE}:{account}"))
        kubeconfig = server.kubeconfig(root / "kubeconfig", "account")
        kubeconfig.chmod(0o644)
        before, log = wanted(cluster), root / "serve.log"
        # As in the pod, who it is comes from outside of the arguments.
        surroundings = environment(image) | {"KUBECONFIG": str(kubeconfig)}
        command = ["gpu-responder", *arguments]
        server.requests.clear()
        with started(command, log, env=surroundings, cwd="/", **as_nobody(user)) as service:
            until(f"http://127.0.0.1:{port}/-/ready", service)
            for _ in range(2):  # It can be run again.
                done = helm_test(found, image, root, port)
                assert done.returncode == 0, done.stdout + done.stderr + log.read_text()[-3000:]
                assert "PASSED: in dry run" in done.stdout
            wrong = helm_test(found, image, root, port, DELIVER_TOKEN="gpur_x")
            assert wrong.returncode == 1
            assert "FAILED: /api/v1/webhooks/alertmanager was answered with 401" in wrong.stderr
        refused = {f"{each['method']} {each['path']}" for each in server.requests if each["code"] == 403}
        assert wanted(cluster) == before
        assert server.scales() == []
    unexplained = {each for each in refused if cluster_wide or not TRIED_FIRST.fullmatch(each)}
    assert unexplained == set()


def helm_test(
    found: list[Object], image: Path, root: Path, port: int, **other: str
) -> subprocess.CompletedProcess[str]:
    """Run the container of the test's pod, with its environment."""
    (container,) = one(found, "Pod")["spec"]["containers"]
    told = {}
    for each in container["env"]:
        told[each["name"]] = each.get("value", "")
        if "valueFrom" in each:
            reference = each["valueFrom"]["secretKeyRef"]
            told[each["name"]] = decoded(one(found, "Secret", reference["name"])["data"][reference["key"]])
    told |= {"RESPONDER_URL": f"http://127.0.0.1:{port}", **other}
    program, path = container["command"]
    script = root / "test" / Path(path).name
    script.parent.mkdir(exist_ok=True)
    script.write_text(one(found, "ConfigMap", "gpu-responder-test")["data"][script.name])
    readable(script.parent)
    return subprocess.run(
        [program, script], env=environment(image) | told, cwd="/", capture_output=True, text=True, check=False,
        timeout=90, **as_nobody(),
    )  # fmt: skip


def wanted(cluster: SimCluster) -> dict[str, int]:
    found = cluster.truth()["workloads"]
    return {f"{each['namespace']}/{each['name']}": each["replicasWanted"] for each in found}
