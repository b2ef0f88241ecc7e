"""The image's steps without Docker: what the Dockerfile builds, run by another user from a tree it cannot write to."""

import base64
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from charting import ROOT, objects_in, one, render

NOBODY = 65534
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


def as_nobody() -> dict[str, object]:
    """How to start a program as another user, where this one may."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


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
        rest for word, rest in instructions(1) if word == "RUN" and re.search(r"pip|apt|gcc|curl", rest)
    ]
    assert re.search(r"(?m)^ARG BASE=python:[\d.]+-slim-\w+$", DOCKERFILE)


# --- The chart's policy, tokens and test, with what the image holds -----------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(url: str, program: subprocess.Popen[bytes], seconds: float = 30) -> None:
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


def test_helm_test_passes_and_scales_nothing(image: Path):
    """The chart's policy and tokens, served from the image's tree, answer the chart's own test in dry run."""
    values = {"fullnameOverride": "vllm", "targetNamespaces": ["inference"]}
    options = {"name": "vllm", "namespace": "inference"}
    found = objects_in(render({"x": {"values": values, "options": options}})["x"]["manifests"])
    script = one(found, "ConfigMap", "vllm-test")["data"]["dry_run.py"]
    tokens = one(found, "Secret", "vllm-tokens")["data"]
    files = image / "mounted"
    files.mkdir()
    (files / "policies.yaml").write_text(one(found, "ConfigMap", "vllm-policy")["data"]["policies.yaml"])
    (files / "tokens.yaml").write_text(one(found, "Secret", "vllm-token-hashes")["stringData"]["tokens.yaml"])
    (files / "dry_run.py").write_text(script)
    data = image / "data"
    data.mkdir()
    data.chmod(0o777)
    sim_port, port = free_port(), free_port()
    sim = f"http://127.0.0.1:{sim_port}"
    sim_command = [sys.executable, "-m", "responder", "sim", "--port", str(sim_port), "--hold-load"]
    with started(
        [*sim_command, "--kubeconfig-out", str(files / "kubeconfig")], image / "sim.log", cwd=ROOT
    ) as cluster:
        until(f"{sim}/sim/truth", cluster)
        (files / "kubeconfig").chmod(0o644)
        before = truth(sim)
        serve = [
            "gpu-responder", "serve", f"--policy={files}/policies.yaml", f"--bind=0.0.0.0:{port}",
            f"--token-hashes-file={files}/tokens.yaml", f"--store=sqlite:{data}/responder.db",
            f"--kubeconfig={files}/kubeconfig",
        ]  # fmt: skip
        log = image / "serve.log"
        with started(serve, log, env=environment(image), cwd="/", **as_nobody()) as service:
            until(f"http://127.0.0.1:{port}/-/ready", service)
            told = {
                "RESPONDER_URL": f"http://127.0.0.1:{port}",
                "TARGET_NAMESPACE": "inference",
                "TARGET_NAME": "vllm",
                "DELIVER_TOKEN": decoded(tokens["alertmanager"]),
                "VIEW_TOKEN": decoded(tokens["viewer"]),
            }
            for _ in range(2):  # It can be run again.
                done = subprocess.run(
                    ["python", files / "dry_run.py"],
                    env=environment(image) | told, cwd="/", capture_output=True, text=True, check=False, timeout=90,
                    **as_nobody(),
                )  # fmt: skip
                assert done.returncode == 0, done.stdout + done.stderr + log.read_text()[-3000:]
                assert "PASSED: in dry run" in done.stdout
            wrong = subprocess.run(
                ["python", files / "dry_run.py"], env=environment(image) | told | {"DELIVER_TOKEN": "gpur_x"},
                cwd="/", capture_output=True, text=True, check=False, timeout=90,
            )  # fmt: skip
            assert wrong.returncode == 1
            assert "FAILED: /api/v1/webhooks/alertmanager was answered with 401" in wrong.stderr
        assert truth(sim) == before


def truth(sim: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{sim}/sim/truth", timeout=5) as answer:
        found = json.load(answer)
    return {f"{each['namespace']}/{each['name']}": each["replicasWanted"] for each in found["workloads"]}


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()
