"""The documentation is true: what it names exists, what exists is named, and its examples are legal."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from responder import config
from responder.cli import cli

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("helm/**/*.md"))
    if "node_modules" not in path.parts
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands(
    group: click.Group, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))


COMMANDS = dict(commands(cli))


WORDS = re.findall(
    r"^\| ([^|]+) \|.*\| `([\w.]+)` \|$", (ROOT / "docs" / "words.md").read_text(), flags=re.MULTILINE
)


@pytest.mark.parametrize("where", [where for _, where in WORDS], ids=[word for word, _ in WORDS])
def test_every_word_is_where_it_is_said_to_be(where: str) -> None:
    """Whoever looks a word up finds it in the code."""
    module, _, name = where.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    """A file that is named in a link is there, and so is the heading after the #."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.read_text()), f"{name_of(page)} links to {target}"


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_named_exists_with_its_options(page: Path) -> None:
    """What a page tells a person to type is a command of ours, and its options are that command's."""
    for line in re.findall(r"gpu-responder((?: +[^\s`|;&)]+)+)", page.read_text()):
        words = line.split()
        known: tuple[str, ...] = ()
        while words and (*known, words[0]) in COMMANDS:
            known = (*known, words.pop(0))
        if not known:
            continue  # prose, such as "gpu-responder is" or "gpu-responder.io"
        options = {
            name
            for parameter in COMMANDS[known].params
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words:
            option = word.partition("=")[0].rstrip(".,:")
            if option.startswith("--") and len(option) > 2:
                assert option in options | {"--help"}, (
                    f"{name_of(page)}: gpu-responder {' '.join(known)} {option}"
                )


def test_every_command_is_documented() -> None:
    """Nobody has to find a command by --help."""
    text = "\n".join(page.read_text() for page in PAGES)
    missing = [
        " ".join(words)
        for words, command in COMMANDS.items()
        if not isinstance(command, click.Group)
        and not command.hidden
        and f"gpu-responder {' '.join(words)}" not in text
    ]
    assert missing == []


def test_the_command_names_that_stay_put_are_there() -> None:
    """The interface of the command line."""
    wanted = {
        "serve", "demo", "sim", "check", "doctor", "explain", "targets", "history", "freeze", "undo",
        "override add", "override list", "override expire", "silence add", "silence list", "silence expire",
        "rules export", "token create",
    }  # fmt: skip
    assert wanted <= {" ".join(words) for words in COMMANDS}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_beside_a_figure_can_be_run(page: Path) -> None:
    """A benchmark, a test or a target of make that a page names is there."""
    text = page.read_text()
    for name in re.findall(r"python -m (bench(?:\.\w+)?)", text):
        path = ROOT / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), f"{name_of(page)}: python -m {name}"
    for name, chosen in re.findall(r"pytest (tests[\w/.]*)(?: -k (\w+))?", text):
        assert (ROOT / name).exists(), f"{name_of(page)}: pytest {name}"
        assert not chosen or chosen in (ROOT / name).read_text(), (
            f"{name_of(page)}: pytest {name} -k {chosen}"
        )
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for name in re.findall(r"`make (\w+)|^\$ make (\w+)", text, flags=re.MULTILINE):
        assert "".join(name) in targets, f"{name_of(page)}: make {''.join(name)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_yaml_example_is_yaml(page: Path) -> None:
    """And what looks like a whole policy file is one that loads."""
    for block in re.findall(r"^ *```ya?ml\n(.*?)^ *```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
        documents = list(yaml.safe_load_all(block))
        for document in documents:
            if (
                isinstance(document, dict)
                and document.get("kind") == "ResponderPolicy"
                and "policies" in document
            ):
                config.loads(block, name_of(page))


def test_the_readme_shows_what_the_demo_prints() -> None:
    """Real output: each line of the summary in the README is one that the demo's summary can print."""
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"<!-- demo output -->\n```\n(.*?)```", readme, flags=re.DOTALL)
    assert shown, "the README shows no demo output"
    for word in (
        "scale-ups",
        "scale-downs",
        "replicas",
        "alert to scale-up",
        "deliveries",
        "ScaledUp: Scaling",
    ):
        assert word in shown[1]


def test_every_test_that_a_promise_names_exists() -> None:
    """A promise whose test was renamed or dropped is a promise without a test."""
    rows = re.findall(r"^\| (\d+) \| .*$", (ROOT / "docs" / "promises.md").read_text(), flags=re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 31))
    for named in re.findall(r"`(tests/[^`]+)`", (ROOT / "docs" / "promises.md").read_text()):
        file, *names = named.split("::")
        tree = ast.parse((ROOT / file).read_text())
        for name in names:
            found = [
                node
                for node in ast.iter_child_nodes(tree)
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
            ]
            assert found, named
            tree = found[0]  # type: ignore[assignment]
