"""What commands print: one JSON object, or tables for people."""

import json
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from widefield.core.names import printable


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(values, indent=2))


def print_line(text: str) -> None:
    """Print one plain line on stdout."""
    print("\n".join(map(printable, text.split("\n"))))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table on stdout; the first column is text, the others are numbers."""
    table = Table(title=printable(title), title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(printable, row))
    Console().print(table, markup=False)


def percent(value: float) -> str:
    """Return a share as percent: 0.4183 gives 41.8."""
    return f"{100 * value:.1f}"
