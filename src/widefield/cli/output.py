"""Output of commands: JSON, lines and tables."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from widefield.core.names import printable

if TYPE_CHECKING:
    from widefield.report.tables import TabularResult

_MAX_WIDTH = 10_000
"""Width of tables in a file, which has no limit."""


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(values, indent=2))


def print_line(text: str) -> None:
    """Print one plain line on stdout."""
    print("\n".join(map(printable, text.split("\n"))))


class Notes:
    """Notes of a command, each printed once."""

    def __init__(self) -> None:
        self._printed = set[str]()

    def on_note(self, note: str) -> None:
        """Print a note on stderr, before the work."""
        if note not in self._printed:
            self._printed.add(note)
            print(f"note: {printable(note)}", file=sys.stderr, flush=True)

    def print_others(self, notes: Iterable[str]) -> None:
        """Print the notes on stdout that were not printed before."""
        for note in notes:
            if note not in self._printed:
                print_line(f"note: {note}")


def print_result(result: "TabularResult", notes: Notes) -> None:
    """Print the tables of a result, and its notes."""
    for table in result.tables():
        if table.columns:
            print_table(table.title, table.columns, table.rows)
        for line in table.notes:
            print_line(line)
    notes.print_others(result.notes)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout; the first column is text, the others are numbers.

    Long cells are folded in a narrow terminal and complete in a file.
    """
    table = Table(title=_text(title), title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        justify: Literal["left", "right"] = "left" if i == 0 else "right"
        table.add_column(_text(column), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    width = None if sys.stdout.isatty() else _MAX_WIDTH
    Console(width=width).print(table)


def _text(text: str) -> Text:
    """Return literal text, because names may look like rich's markup or an emoji."""
    return Text(printable(text))
