"""Tokens: shown once, known by their hash, and in force as soon as the service rereads its file."""

import stat
from pathlib import Path

import pytest
import yaml

from responder.web.auth import Identity, Role, hash_token, read_token_hashes
from tests.client.client_world import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_token_and_the_lines_that_let_it_in(shell: Shell, tmp_path: Path) -> None:
    """The lines are what the service's file wants, and hold the hash and not the token."""
    shown = shell.run("token", "create", "--role", "operator", "--name", "ana", "-n", "team-*").stdout
    token = next(line.strip() for line in shown.splitlines() if line.startswith("  gpur_"))
    entry = shown[shown.index("- name:") :]
    assert token not in entry
    path = tmp_path / "hashes"
    path.write_text("tokens:\n" + entry)
    known = read_token_hashes(str(path))
    assert known == {bytes.fromhex(hash_token(token)): Identity("ana", Role.OPERATOR, ("team-*",))}


def test_no_two_are_alike(shell: Shell) -> None:
    """And programs get it as JSON; without a name it is called by its role."""
    made = [shell.json("token", "create", "--role", "viewer") for _ in range(2)]
    assert made[0]["token"] != made[1]["token"]
    assert made[0]["entry"] == {"name": "viewer", "role": "viewer", "sha256": hash_token(made[0]["token"])}


def test_files_are_written_where_asked(shell: Shell, tmp_path: Path) -> None:
    """The token in a file of its own that only its user can read, its hash behind those that are there."""
    hashes, token = tmp_path / "hashes.yaml", tmp_path / "token"
    hashes.write_text(
        "# for people\ntokens:\n  - name: old\n    role: viewer\n    sha256: '" + "0" * 64 + "'"
    )
    hashes.chmod(0o640)
    shown = shell.run(
        "token", "create", "--role", "operator", "--write-token", str(token), "--add-to", str(hashes)
    ).stdout
    assert "gpur_" not in shown
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(hashes.stat().st_mode) == 0o640
    known = read_token_hashes(str(hashes))
    assert [identity.name for identity in known.values()] == ["old", "operator"]
    assert bytes.fromhex(hash_token(token.read_text().strip())) in known
    assert hashes.read_text().startswith("# for people\n")
    shell.run("token", "create", "--role", "viewer", "--add-to", str(tmp_path / "new.yaml"))
    assert len(yaml.safe_load((tmp_path / "new.yaml").read_text())["tokens"]) == 1


def test_a_file_is_left_alone_rather_than_spoilt(shell: Shell, tmp_path: Path) -> None:
    """Not YAML, keys behind the list, a token file that exists: each is told, and nothing is left behind."""
    hashes, token = tmp_path / "hashes.yaml", tmp_path / "token"
    base = ["token", "create", "--role", "viewer", "--write-token", str(token), "--add-to", str(hashes)]
    for text, told in (
        ("tokens: [", "it is not YAML"),
        (f"tokens: [{{name: a, role: viewer, sha256: '{'0' * 64}'}}]\n", "add the lines by hand"),
    ):
        hashes.write_text(text)
        assert told in shell.fails(*base)
        assert hashes.read_text() == text
        assert not token.exists()
    token.write_text("mine")
    assert "exists: name a new file" in shell.fails(*base)
    assert token.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hashes.yaml", "token"]


def test_an_unknown_role_is_wrong_usage(shell: Shell) -> None:
    """The known ones are listed."""
    assert "'alertmanager', 'viewer', 'operator'" in shell.fails(
        "token", "create", "--role", "root", status=2
    )
