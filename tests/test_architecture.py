"""What the import contracts cannot say: the core reads no clock, and the stories that the code tells are true."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CORE = next(
    contract["source_modules"] for contract in CONTRACTS if contract["name"].startswith("The core is pure")
)


def path_of(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


@pytest.mark.parametrize("module", CORE)
def test_the_core_reads_no_clock(module: str) -> None:
    """`now` is an argument: nothing in the core asks for the time, which would make a decision unrepeatable."""
    tree = ast.parse(path_of(module).read_text())
    asked = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"now", "utcnow", "today", "monotonic", "time", "perf_counter"}
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"datetime", "date", "time"}
    ]
    assert asked == []


def test_the_core_is_the_whole_of_what_decide_settle_and_alerts_are_made_of() -> None:
    """A new part of the core cannot be left out of the contract that keeps it pure."""
    seen: set[str] = set()
    waiting = ["responder.decide", "responder.settle", "responder.alerts"]
    while waiting:
        module = waiting.pop()
        if module in seen or not path_of(module).exists():
            continue
        seen.add(module)
        for node in ast.walk(ast.parse(path_of(module).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "responder":
                waiting += [f"responder.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("responder."):
                waiting.append(str(node.module))
    assert seen <= set(CORE), seen - set(CORE)


def test_no_module_is_longer_than_a_person_reads_at_once() -> None:
    """Past 500 lines a module is two."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in ROOT.glob("responder/**/*.py")
    }
    exempt = {"responder/model.py"}  # nouns only: a list, read by looking up
    assert {path: lines for path, lines in lengths.items() if lines > 500 and path not in exempt} == {}
