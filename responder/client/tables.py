"""What is printed: tables that fit the terminal, whole lines when piped, and nothing that could drive a terminal."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeVar

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

F = TypeVar("F", bound=Callable[..., Any])

ENDLESS = 100_000
"""Columns of what is no terminal: whoever reads a pipe wants whole lines."""
GAP = 2

STYLES = {
    "steady": "green",
    "up": "cyan",
    "down": "cyan",
    "limited": "yellow",
    "held": "yellow",
    "failing": "bold red",
    "pending": "dim",
    "active": "green",
    "ended": "dim",
    "expired": "dim",
    "firing": "red",
    "suppressed": "dim",
    "unknown": "yellow",
    "resolved": "dim",
    "forgotten": "dim",
}


@dataclass(frozen=True, slots=True)
class Column:
    """`give` columns are shortened when space is short, the widest first; `drop` leaves out the greatest first."""

    title: str
    right: bool = False
    give: bool = False
    least: int = 10
    """Of its width, when it gives."""
    middle: bool = False
    """Shortened in the middle: names differ at their ends."""
    drop: int = 0
    usual: str = ""
    """Left out in a terminal if this is what every row has in it."""
    wrap: bool = False
    """Goes on below itself instead of being shortened."""


def output_option(function: F) -> F:
    """`-o json`."""
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
        help="For people, or for programs.",
    )(function)  # fmt: skip


def clean(text: str) -> str:
    """The text without what could drive a terminal: labels and comments come from anywhere."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char in "\n\r\t" else repr(char)[1:-1] for char in text
    )


def console(file: IO[str] | None = None) -> Console:
    """Where to print: a terminal at its width, and anything else without end or colour."""
    file = file or sys.stdout
    width = None if file.isatty() else ENDLESS
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def print_json(body: Any) -> None:
    text = json.dumps(body, indent=2, ensure_ascii=False)
    click.echo(
        "".join(char if char.isprintable() or char == "\n" else f"\\u{ord(char):04x}" for char in text)
    )


def styled(text: str, style: str | None = None) -> Text:
    """Text with a style; a state has its own."""
    return Text(clean(text), style=STYLES.get(text, "") if style is None else style)


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], width: int, *, title: bool = True
) -> Table:
    """The rows as a table that is at most so wide: columns are left out or shortened, lines never wrap."""
    cells = [[cell if isinstance(cell, Text) else styled(cell, "") for cell in row] for row in rows]
    kept, widths = _fit(columns, cells, width, title)
    made = Table(box=None, show_header=title, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for index in kept:
        column = columns[index]
        made.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.wrap,
            overflow="fold",
            width=widths[index],
        )
    for row in cells:
        made.add_row(*(_shortened(row[index], widths[index], columns[index]) for index in kept))
    return made


def show(
    out: Console,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Text]],
    indent: int = 0,
    *,
    title: bool = True,
) -> None:
    """Print a table."""
    if not out.is_terminal:
        for line in _lines(columns, rows, title):
            out.file.write(" " * indent + line + "\n")
        return
    made = table(columns, rows, out.width - indent, title=title)
    out.print(Padding(made, (0, 0, 0, indent)) if indent else made)


def say(out: Console, text: str | Text, indent: int = 0, style: str = "") -> None:
    """Print a sentence: wrapped at words and indented in a terminal, one line elsewhere."""
    line = text if isinstance(text, Text) else styled(text, style)
    if out.is_terminal:
        out.print(Padding(line, (0, 0, 0, indent)) if indent else line)
    else:
        out.file.write(" " * indent + line.plain + "\n")


def facts(out: Console, pairs: Iterable[tuple[str, str | Text]], indent: int = 2) -> None:
    """Print names and what they are, one below the other."""
    pairs = list(pairs)
    widest = max((cell_len(name) for name, _ in pairs), default=0) + GAP
    for name, value in pairs:
        text = value if isinstance(value, Text) else styled(value, "")
        if out.is_terminal:
            grid = Table.grid(padding=0)
            grid.add_column(width=widest, style="dim")
            grid.add_column(overflow="fold")
            grid.add_row(name, text)
            out.print(Padding(grid, (0, 0, 0, indent)))
        else:
            out.file.write(" " * indent + name.ljust(widest) + text.plain + "\n")


def note(text: str) -> None:
    """Say something beside the output."""
    click.echo(fitted(clean(text)), err=True)


def fitted(text: str) -> str:
    """Sentences for standard error: if that is a terminal, its lines end between words."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    wrapper = textwrap.TextWrapper(width, break_on_hyphens=False, break_long_words=False)
    return "\n".join(wrapper.fill(line) for line in text.splitlines())


def _lines(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], title: bool) -> Iterator[str]:
    """The rows as whole lines."""
    plain = [[cell.plain if isinstance(cell, Text) else clean(cell) for cell in row] for row in rows]
    if title:
        plain.insert(0, [column.title for column in columns])
    widths = [max((cell_len(row[index]) for row in plain), default=0) for index, _ in enumerate(columns)]
    for row in plain:
        cells = []
        for column, cell, width in zip(columns, row, widths, strict=True):
            blank = " " * (width - cell_len(cell))
            cells.append(blank + cell if column.right else cell + blank)
        yield (" " * GAP).join(cells).rstrip()


def _fit(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int, title: bool
) -> tuple[list[int], list[int]]:
    widths = [
        max([cell_len(column.title) if title else 0, *(row[index].cell_len for row in rows)])
        for index, column in enumerate(columns)
    ]
    kept = [index for index, column in enumerate(columns) if _tells(column, rows, index)]

    def least(index: int) -> int:
        column = columns[index]
        if not (column.give or column.wrap):
            return widths[index]
        return min(widths[index], column.least)

    def total(each: Callable[[int], int]) -> int:
        return sum(each(index) for index in kept) + GAP * (len(kept) - 1)

    while total(least) > width and any(columns[index].drop for index in kept):
        kept.remove(max(kept, key=lambda index: columns[index].drop))
    while total(lambda index: widths[index]) > width:
        giving = [index for index in kept if widths[index] > least(index)]
        if not giving:
            break
        over = total(lambda index: widths[index]) - width
        widest = max(giving, key=lambda index: (columns[index].drop, widths[index]))
        widths[widest] = max(widths[widest] - over, least(widest))
    return kept, widths


def _tells(column: Column, rows: Sequence[Sequence[Text]], index: int) -> bool:
    return not column.usual or any(row[index].plain != column.usual for row in rows)


def _shortened(cell: Text, width: int, column: Column) -> Text:
    if cell.cell_len <= width or column.wrap:
        return cell
    plain = cell.plain
    if not column.middle:
        return Text(set_cell_size(plain, max(width - 1, 0)).rstrip() + "…", style=cell.style)
    tail = max((width - 1) // 2, 1)
    head = max(width - 1 - tail, 0)
    # Wide characters at the cut may leave a cell free.
    end = plain
    while cell_len(end) > tail:
        end = end[1:]
    return Text(set_cell_size(plain, head) + "…" + end, style=cell.style)
