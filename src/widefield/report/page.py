"""The report of a run: what it holds, and how it becomes one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from widefield.core.files import write_atomically
from widefield.report.figures import SERIES, image_uri, line_chart, lines_chart, thumbnail
from widefield.report.parts import Figure, Gallery, Lines, Places, Verdict

_EXAMPLES, _IMAGES = 6, 6
"""Rows of the picture of views, and images in a row: what a phone can show."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Accuracies by task and by where the features came from, each with its interval.

    Raises:
        ValueError: a cell of no row or column, or an accuracy that is not low <= value <= high
            within [0, 1].
    """

    rows: Sequence[str]
    """Tasks."""
    columns: Sequence[str]
    """Sources of features, the floor first."""
    cells: Mapping[tuple[str, str], tuple[float, float, float]]
    """(task, column) -> (accuracy, low, high), in [0, 1]; what is missing was not measured."""
    focus: str = ""
    """The column that this report is about."""

    def __post_init__(self) -> None:
        """Check every cell."""
        for (row, column), (value, low, high) in self.cells.items():
            if row not in self.rows or column not in self.columns:
                raise ValueError(f"cell {(row, column)} lies in no row and column of the table")
            if not 0 <= low <= value <= high <= 1:
                raise ValueError(
                    f"cell {(row, column)} is {value} in [{low}, {high}]: "
                    "give 0 <= low <= value <= high <= 1"
                )


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One quantity over training.

    Raises:
        ValueError: x and y differ in length, or are empty.
    """

    x: Sequence[float]
    y: Sequence[float]
    """Values; a NaN leaves a gap."""
    caption: str
    """How to read it, in one sentence."""
    x_label: str = "epoch"
    from_zero: bool = False
    """Start the scale at zero, where only large changes matter."""

    def __post_init__(self) -> None:
        """Check the lengths."""
        if len(self.x) != len(self.y) or len(self.x) == 0:
            raise ValueError(
                f"a curve has {len(self.x)} x and {len(self.y)} y: give as many, one at least"
            )


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that the page says; a part left empty leaves its section out.

    Every string is shown as it is, whatever is in it; `backticks` set a piece in code type.

    Example:
        >>> report = Report(title="Tour", summary="Both tasks were learned.")
        >>> "Both tasks were learned." in report.html()
        True
    """

    title: str
    summary: str
    """The verdict, in plain words: the first thing to be read."""
    notes: Sequence[str] = ()
    """What to know before believing it."""
    verdicts: Sequence[Verdict] = ()
    """Tasks in order, each with its encoders one below the other."""
    figures: Sequence[Figure] = ()
    table: Table | None = None
    curves: Mapping[str, Curve] = field(default_factory=dict)
    view_grid: np.ndarray | None = None
    """uint8 [examples, 1 + views, H, W, C], the original first; the first 6 x 6 are shown."""
    health: Sequence[tuple[int, str]] = ()
    """Epoch and line, "verdict: numbers", as `diagnose.Health.line` writes it."""
    next_steps: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Machine, versions, seed, command, wall time: what it takes to do it again."""

    def html(self) -> str:
        """The page; the same report gives the same text."""
        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        source = resources.files("widefield.report").joinpath("report.html").read_text("utf-8")
        charts = {
            # line_chart escapes every string that it is given
            name: Markup(line_chart(curve.x, curve.y, curve.x_label, curve.from_zero, f"curve{i}-"))
            for i, (name, curve) in enumerate(self.curves.items())
        }
        return environment.from_string(source).render(
            report=self,
            charts=charts,
            views=_view_images(self.view_grid),
            verdicts=_by_task(self.verdicts),
            figures=[_drawn(figure, f"figure{i}-") for i, figure in enumerate(self.figures)],
            series=list(SERIES.values()),
        )

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the page to `path`, whole or not at all.

        Raises:
            ValueError: `path` exists and `overwrite` is false, or its folder does not exist.
        """
        path = Path(path)
        if path.exists() and not overwrite:
            raise ValueError(f"{path} exists: delete it, or choose another name")
        if not path.parent.is_dir():
            raise ValueError(f"folder {path.parent} does not exist: make it first")
        page = self.html()
        write_atomically(path, lambda draft: draft.write_text(page, encoding="utf-8"))
        return path


def _by_task(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Task -> its rows, in the order in which tasks first appear."""
    tasks: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        tasks.setdefault(verdict.task, []).append(verdict)
    return tasks


def _drawn(figure: Figure, prefix: str) -> dict[str, Any]:
    """A figure with what the template cannot make of it itself."""
    facts: dict[str, Any] = {"kind": type(figure).__name__, "about": figure}
    match figure:
        case Lines():
            # lines_chart escapes every string that it is given
            facts["chart"] = Markup(
                lines_chart(
                    figure.series,
                    figure.x_label,
                    figure.y_label,
                    figure.y_range,
                    figure.logarithmic,
                    prefix,
                )
            )
        case Gallery():
            facts["rows"] = {
                name: [image_uri(thumbnail(image)) for image in images]
                for name, images in figure.rows.items()
            }
            facts["most"] = max((len(images) for images in figure.rows.values()), default=1)
        case Places():
            low, high = figure.places.min(0), figure.places.max(0)
            percent = 2 + 96 * (figure.places - low) / np.maximum(high - low, 1e-9)
            facts["points"] = [
                (x, y, image_uri(thumbnail(image, 32)), name, group % len(SERIES))
                for (x, y), image, name, group in zip(
                    percent.tolist(), figure.images, figure.names, figure.groups, strict=True
                )
            ]
    return facts


def _view_images(grid: np.ndarray | None) -> list[list[str]]:
    """Data URIs by example and view, the original first."""
    if grid is None:
        return []
    if grid.ndim != 5 or grid.dtype != np.uint8:
        raise ValueError(
            f"view_grid has dtype {grid.dtype} and shape {list(grid.shape)}: "
            "give uint8 of shape [examples, 1 + views, H, W, C]"
        )
    return [[image_uri(thumbnail(x)) for x in row] for row in grid[:_EXAMPLES, :_IMAGES]]
