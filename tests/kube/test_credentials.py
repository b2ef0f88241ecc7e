"""Where the configuration comes from, and credentials that change while the service runs."""

import json
from pathlib import Path

import pytest

from responder.errors import ConfigError, TransientError
from responder.kube import KubeCluster
from responder.kube import credentials as module
from responder.model import TargetRef
from tests.kube.fake_api import FakeApi, recorded

VLLM = TargetRef("rec", "Deployment", "vllm")


def guarded(api: FakeApi, token: str) -> None:
    """Let the server take only this token."""
    inner = dict(api.answers)

    def answer(request: dict) -> object:
        known = request["headers"].get("authorization") == f"Bearer {token}"
        return (
            inner[f"{request['method']} {request['path']}"]
            if known
            else recorded("unauthenticated-bad-token")
        )

    api.answers = dict.fromkeys(inner, answer)


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep this machine's own configuration out."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_token_file_rotates(api: FakeApi, tmp_path: Path) -> None:
    """A 401 reads the token again and tries once more, for a write too: the server did nothing with the first."""
    token = tmp_path / "token"
    token.write_text("old")
    cluster = KubeCluster(api.kubeconfig(tmp_path / "k", tokenFile=str(token)), timeout=20, deadline=20)
    guarded(api, "new")
    token.write_text("new")
    workload = cluster.workload(VLLM)
    assert cluster.scale(VLLM, workload, 3).replicas == 3
    refused = [r for r in api.requests if r["headers"]["authorization"] == "Bearer old"]
    assert len(refused) == 1
    cluster.close()


def test_refused_after_reading_again(api: FakeApi, tmp_path: Path) -> None:
    """Credentials that stay wrong fail after one more try, in a sentence, and are not retried for long."""
    cluster = KubeCluster(api.kubeconfig(tmp_path / "k", token="wrong"), timeout=20, deadline=30)
    guarded(api, "right")
    with pytest.raises(TransientError, match="also after reading them again") as caught:
        cluster.workload(VLLM)
    assert caught.value.kind == "unauthorized"
    assert len(api.requests) == 2
    with pytest.raises(TransientError):
        cluster.workload(VLLM)
    assert len(api.requests) == 3, "not read again at once"
    cluster.close()


def test_file_that_went_bad_keeps_the_old(api: FakeApi, tmp_path: Path) -> None:
    """A kubeconfig that is broken when read again is an error of that call, not a crash."""
    kubeconfig = tmp_path / "k"
    cluster = KubeCluster(api.kubeconfig(kubeconfig, token="wrong"), timeout=20, deadline=20)
    guarded(api, "right")
    kubeconfig.write_text("][")
    with pytest.raises(TransientError, match="credentials"):
        cluster.workload(VLLM)
    cluster.close()


def test_service_account(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod the mounted service account is used, and its token is picked up when it rotates."""
    import kubernetes.config.incluster_config as incluster

    (tmp_path / "token").write_text("old")
    (tmp_path / "ca.crt").write_text("unused")
    monkeypatch.setattr(incluster, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    client = module.api_client(None, 4)
    assert client.configuration.host == "https://10.0.0.1:443"
    assert module.authorization(client) == {"authorization": "bearer old"}
    assert client.configuration.retries is False
    (tmp_path / "token").write_text("new")
    assert module.authorization(module.api_client(None, 4)) == {"authorization": "bearer new"}
    (tmp_path / "token").unlink()
    with pytest.raises(
        ConfigError, match="of the service account cannot be used: Service token file does not"
    ):
        module.api_client(None, 4)


def test_kubeconfig_from_the_environment(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KUBECONFIG is used when no file is named."""
    monkeypatch.setenv("KUBECONFIG", api.kubeconfig(tmp_path / "k"))
    cluster = KubeCluster()
    assert cluster.connection.server == api.url
    cluster.close()


def test_default_file(api: FakeApi, tmp_path: Path) -> None:
    """Without all that, ~/.kube/config is used."""
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    api.kubeconfig(tmp_path / "home" / ".kube" / "config")
    cluster = KubeCluster()
    assert cluster.connection.server == api.url
    cluster.close()


def test_no_configuration() -> None:
    """Nothing found is one sentence that says where was looked and what to do."""
    with pytest.raises(ConfigError, match=r"KUBECONFIG is not set .* name a file with --kubeconfig\.$"):
        KubeCluster()


BROKEN = {
    "a file that is not there": (None, "does not exist; check --kubeconfig or KUBECONFIG"),
    "not YAML": ("][", "cannot be used"),
    "empty": ("", "cannot be used"),
    "no current context": ('{"clusters": [], "contexts": [], "users": []}', "cannot be used"),
    "a user that is not base64": (
        json.dumps(
            {
                "current-context": "a",
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "clusters": [{"name": "a", "cluster": {"server": "https://x"}}],
                "users": [{"name": "a", "user": {"client-certificate-data": "A"}}],
            }
        ),
        "cannot be used",
    ),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
def test_broken_kubeconfig(tmp_path: Path, content: str | None, words: str) -> None:
    """Whatever is wrong with a kubeconfig, the error is one sentence with the file's name."""
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        KubeCluster(str(file))
    assert str(file) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_has_no_home_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user often has neither HOME nor an entry in passwd."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    with pytest.raises(ConfigError, match="name a file with --kubeconfig"):
        KubeCluster()
