"""Results as tables, which the command line prints and notebooks and pages show."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

from markupsafe import Markup, escape
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from widefield.core.names import printable

FILE_WIDTH = 10_000
"""Characters of a line where there is no terminal: cells are complete."""


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A title, a table and lines of text below it."""

    title: str = ""
    columns: Sequence[str] = ()
    """The first column is text, the others are numbers; without columns there is no table."""
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()

    def html(self) -> Markup:
        """Return title, table and lines for a notebook or a page; every word is escaped."""
        parts = [Markup("<p><b>{}</b></p>").format(self.title)] if self.title else []
        if self.columns:
            cells = [_row("th", self.columns), *(_row("td", row) for row in self.rows)]
            parts.append(Markup('<table class="scored">{}</table>').format(Markup("").join(cells)))
        return Markup("").join([*parts, *map(Markup("<p>{}</p>").format, self.lines)])

    def print_to(self, console: Console) -> None:
        """Print title, table and lines as plain text; long cells are folded to the width."""
        if self.title:
            _print_line(self.title, console)  # not of the table, whose width would fold it
        if self.columns:
            console.print(self._table())
        for line in self.lines:
            _print_line(line, console)

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        for i, column in enumerate(self.columns):
            justify: Literal["left", "right"] = "left" if i == 0 else "right"
            table.add_column(_text(column), justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*map(_text, row))
        return table


class TabularResult:
    """What a call returns: the same tables on the command line, in Jupyter and on its page.

    Dataclasses of this class leave their own repr out.
    """

    notes: Sequence[str] = ()

    def tables(self) -> Sequence[ResultTable]:
        """Return the result as tables."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as the command prints them with `--json`."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        tables = (*self.tables(), ResultTable(lines=self.notes))
        return str(Markup("").join(table.html() for table in tables))

    def __repr__(self) -> str:
        """Return the tables as text: the arrays of a result would fill the screen."""
        text = StringIO()
        for table in self.tables():
            table.print_to(Console(file=text, width=FILE_WIDTH))
        return text.getvalue().rstrip()


def _row(tag: str, cells: Sequence[str]) -> Markup:
    content = Markup("").join(Markup(f"<{tag}>{escape(cell)}</{tag}>") for cell in cells)
    return Markup("<tr>{}</tr>").format(content)


def _text(text: str) -> Text:
    """Return literal text, because names may look like rich's markup or an emoji."""
    return Text(printable(text))


def _print_line(text: str, console: Console) -> None:
    # The terminal wraps it, so that a command is copied as one line.
    console.print(_text(text), soft_wrap=True)


def percent(share: float) -> str:
    """Return a share as percent."""
    return f"{100 * share:.1f}"


def percents(*shares: float | None) -> list[str]:
    """Return shares as percent, and nothing for None."""
    return ["" if share is None else percent(share) for share in shares]
