"""Runs each *.test.yaml beside this file through promtool, against the shipped rules it names."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from responder import rules

HERE = Path(__file__).parent
PACK = HERE.parents[1] / "rules"
FILES = sorted(HERE.glob("*.test.yaml"))

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def materialise(test_file: Path, pack: Path, folder: Path) -> Path:
    """Write what promtool reads: the named files of the pack as one plain file, groups in dependency order.

    `rule_files` in a test names files of the pack, so that each test loads only what it needs. Top-level keys
    that begin with `x-` hold YAML anchors.
    """
    test = {key: value for key, value in yaml.safe_load(test_file.read_text()).items() if key[:2] != "x-"}
    groups = rules.in_dependency_order(rules.load(pack / name for name in test["rule_files"]))
    (folder / "rules.yml").write_text(rules.export(groups))
    test["rule_files"] = ["rules.yml"]
    test["group_eval_order"] = [group.name for group in groups]
    result = folder / "test.yml"
    result.write_text(yaml.safe_dump(test, sort_keys=False, width=10_000, default_flow_style=False))
    return result


@pytest.mark.parametrize("test_file", FILES, ids=lambda file: file.name.removesuffix(".test.yaml"))
def test_rules_do_what_their_promtool_tests_say(test_file: Path, tmp_path: Path) -> None:
    """promtool finds the expected alerts and values, and silence where silence is expected."""
    test = materialise(test_file, PACK, tmp_path)
    run = subprocess.run(
        ["promtool", "test", "rules", test.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
