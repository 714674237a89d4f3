"""Results as tables, which the command line prints and a notebook shows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A title, a table and lines of text below it.

    Example:
        >>> ResultTable(title="run", columns=["task", "%"], rows=[["a<b", "9"]]).html()[:67]
        '<p><b>run</b></p><table cellpadding="6"><tr><th>task</th><th>%</th>'
    """

    title: str
    columns: Sequence[str] = ()
    """The first column is text, the others are numbers; without columns there is no table."""
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()

    def html(self) -> str:
        """Return the table for Jupyter; every word is escaped."""
        parts = [Markup("<p><b>{}</b></p>").format(self.title)]
        if self.columns:
            cells = [_row("th", self.columns), *(_row("td", row) for row in self.rows)]
            parts.append(Markup('<table cellpadding="6">{}</table>').format(Markup("").join(cells)))
        parts += [Markup("<p>{}</p>").format(line) for line in self.notes]
        return str(Markup("").join(parts))


class TabularResult:
    """What a call returns: the same tables on the command line and in Jupyter."""

    notes: Sequence[str]
    """Notes on the data and the encoder."""

    def tables(self) -> Sequence[ResultTable]:
        """Return the result as tables."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return tables and notes, for Jupyter."""
        notes = Markup("").join(Markup("<p>{}</p>").format(note) for note in self.notes)
        return "".join(table.html() for table in self.tables()) + str(notes)


def notebook_html(
    title: str,
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[str]] = (),
    lines: Iterable[str] = (),
) -> str:
    """Return a heading, a table and lines of text for Jupyter."""
    return ResultTable(title=title, columns=columns, rows=[*rows], notes=[*lines]).html()


def _row(tag: str, cells: Sequence[str]) -> Markup:
    filled = Markup("").join(Markup(f"<{tag}>{escape(cell)}</{tag}>") for cell in cells)
    return Markup("<tr>{}</tr>").format(filled)


def percent(share: float) -> str:
    """Return a share as percent.

    Example:
        >>> percent(0.4183)
        '41.8'
    """
    return f"{100 * share:.1f}"


def percents(*shares: float | None) -> list[str]:
    """Return shares as percent, and nothing for None.

    Example:
        >>> percents(0.4183, None)
        ['41.8', '']
    """
    return ["" if share is None else percent(share) for share in shares]
