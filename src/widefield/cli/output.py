"""Output of commands: JSON, lines and tables."""

import sys
from collections.abc import Iterable, Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widefield.core.names import printable

if TYPE_CHECKING:
    from widefield.report.tables import ResultTable, TabularResult


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(dumps(values, indent=2))


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


def print_result(
    result: "TabularResult", notes: Notes, *lines: str, json: bool, **files: Path | None
) -> None:
    """Print a result as one JSON object, with its files, or its tables, notes and more lines."""
    if json:
        names = {name: None if file is None else str(file) for name, file in files.items()}
        print_json({**result.to_json(), **names})
        return
    print_tables(*result.tables())
    notes.print_others(result.notes)
    for line in lines:
        print_line(line)


def print_tables(*tables: "ResultTable") -> None:
    """Print tables on stdout; long cells are folded in a terminal and complete in a file."""
    from rich.console import Console

    from widefield.report.tables import FILE_WIDTH

    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    for table in tables:
        table.print_to(console)
