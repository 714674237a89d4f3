"""A result as a small table for Jupyter."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape


def notebook_html(
    title: str,
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[str]] = (),
    lines: Iterable[str] = (),
) -> str:
    """Return a heading, a table and lines of text; every word is escaped.

    Example:
        >>> notebook_html("run", ["task", "%"], [["a<b", "9"]], ["done"])[:67]
        '<p><b>run</b></p><table cellpadding="6"><tr><th>task</th><th>%</th>'
    """
    parts = [Markup("<p><b>{}</b></p>").format(title)]
    if columns:
        cells = [_row("th", columns), *(_row("td", row) for row in rows)]
        parts.append(Markup('<table cellpadding="6">{}</table>').format(Markup("").join(cells)))
    parts += [Markup("<p>{}</p>").format(line) for line in lines]
    return str(Markup("").join(parts))


def _row(tag: str, cells: Sequence[str]) -> Markup:
    filled = Markup("").join(Markup(f"<{tag}>{escape(cell)}</{tag}>") for cell in cells)
    return Markup("<tr>{}</tr>").format(filled)


def percents(*values: float | None) -> list[str]:
    """Return shares as percent, and nothing for None.

    Example:
        >>> percents(0.4183, 1)
        ['41.8', '100.0']
    """
    return ["" if value is None else f"{100 * value:.1f}" for value in values]
