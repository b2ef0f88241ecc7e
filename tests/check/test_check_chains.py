"""Chains with one fault each: every fault is found at the line that its file marks, and nothing else is."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from responder.cli import cli

ROOT = Path(__file__).parents[2]
CHAINS = ROOT / "tests" / "data" / "chains"
EXPECTED = re.compile(r"# expect: ([\w-]+)")


def run(*args: str) -> tuple[int, dict]:
    result = CliRunner().invoke(cli, ["check", "-o", "json", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def faults(report: dict) -> set[tuple[str, int, str]]:
    return {
        (Path(found["file"]).name, found["line"], found["code"])
        for found in report["findings"]
        if found["severity"] != "note"
    }


@pytest.mark.parametrize("name", sorted(path.name for path in CHAINS.iterdir()))
def test_each_fault_is_found_at_its_line_and_no_other(name: str) -> None:
    """The marks in a chain's files are its findings: no fewer, no more, each with a mend, and exit status 1."""
    marked = {
        (file.name, number, match[1])
        for file in (CHAINS / name).iterdir()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for match in EXPECTED.finditer(line)
    }
    status, report = run(str(CHAINS / name))
    assert faults(report) == marked
    assert all(found["mend"] for found in report["findings"])
    assert status == (1 if marked else 0)
    assert bool(marked) == (name != "sound")
