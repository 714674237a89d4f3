"""The reports of a run and of an audit, each one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from widefield.core.files import write_atomically
from widefield.report.figures import chart, png, spectrogram
from widefield.report.parts import (
    SERIES,
    AccuracyTable,
    AudioRows,
    Figure,
    Gallery,
    Lines,
    ScatterPlot,
    Sound,
    TaskVerdict,
)

_EXAMPLES, _IMAGES = 6, 6
"""Rows and columns of the grid of views: what fits on a phone."""
# Chosen by hand: lines of a plot need more pixels than a small image.
_SIDE, _SIGNAL_SIDE = 96, 192
"""Longest side of a view in pixels, for images and for plots of signals."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Content of the page of a run; an empty field omits its section.

    Every string is escaped; text in `backticks` is set in code type.

    Example:
        >>> report = RunReport(title="Tour", summary="Both tasks were learned.")
        >>> "Both tasks were learned." in report.html()
        True
    """

    title: str
    summary: str
    """The result in one paragraph, at the top of the page."""
    details: Sequence[str] = ()
    table: AccuracyTable | None = None
    curves: Sequence[Lines] = ()
    view_grid: np.ndarray | None = None
    """uint8 [examples, 1 + views, H, W, C], the original first; 6 x 6 are shown."""
    example: str = "image"
    """What an example is called."""
    sounds: Sequence[Sound] = ()
    health: Sequence[tuple[int, str]] = ()
    """Epoch and line, "verdict: numbers", as `metrics.Health.line` returns it."""
    next_steps: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Machine, versions, seed, command and wall time, to reproduce the run."""

    def html(self) -> str:
        """Return the page; the same report gives the same text."""
        return render(
            "run.html",
            report=self,
            curves=[_template_data(curve, f"curve{i}-") for i, curve in enumerate(self.curves)],
            views=_view_images(self.view_grid, is_signal=self.example != "image"),
            sounds=_with_spectrograms(self.sounds, "sound"),
        )

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the page to `path`, as `write_page` does."""
        return write_page(self.html(), path, overwrite=overwrite)


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Content of the page of an audit; an empty field omits its section.

    Every string is escaped; text in `backticks` is set in code type.
    """

    title: str
    summary: str
    """The verdicts in one paragraph, at the top of the page."""
    notes: Sequence[str] = ()
    """Caveats of the verdicts."""
    verdicts: Sequence[TaskVerdict] = ()
    """One for each task and encoder, grouped by task on the page."""
    next_steps: Sequence[str] = ()
    example: str = "image"
    """What an example is called."""
    figures: Sequence[Figure] = ()
    diagnostics: Sequence[tuple[str, str, str]] = ()
    """(name, number, meaning)."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Data, machine, versions and seed, to reproduce the audit."""

    def html(self) -> str:
        """Return the page; the same report gives the same text."""
        by_task: dict[str, list[TaskVerdict]] = {}
        for verdict in self.verdicts:
            by_task.setdefault(verdict.task, []).append(verdict)
        return render(
            "audit.html",
            report=self,
            verdicts=by_task,
            figures=[
                _template_data(figure, f"figure{i}-") for i, figure in enumerate(self.figures)
            ],
        )


def write_page(html: str, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a page to `path` atomically; create its folder if needed."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists: delete it, or choose another name")
    # File names may be invalid text, which UTF-8 cannot encode.
    text = html.encode("utf-8", errors="backslashreplace")
    write_atomically(path, lambda temp_path: temp_path.write_bytes(text))
    return path


def render(template: str, **values: Any) -> str:
    """Return the page of `template`, a file of this folder, with every string escaped."""
    return _environment().get_template(template).render(series=list(SERIES.values()), **values)


@cache  # compiling a template takes longer than rendering it
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(
            lambda name: resources.files("widefield.report").joinpath(name).read_text("utf-8")
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template_data(figure: Figure, prefix: str) -> dict[str, Any]:
    """Return a figure and the values that its template needs."""
    values: dict[str, Any] = {"kind": type(figure).__name__, "about": figure}
    match figure:
        case Lines():
            values["chart"] = Markup(chart(figure, prefix=prefix))  # `chart` escapes its strings
        case Gallery():
            values["columns"] = max((len(images) for _, images in figure.rows), default=1)
        case AudioRows():
            values["rows"] = [
                _with_spectrograms(row, f"{prefix}{i}-") for i, row in enumerate(figure.rows)
            ]
        case ScatterPlot():
            values["points"] = _points(figure)
    return values


def _with_spectrograms(sounds: Sequence[Sound], prefix: str) -> list[tuple[Sound, Markup]]:
    return [
        (sound, Markup(spectrogram(sound, prefix=f"{prefix}{i}-")))
        for i, sound in enumerate(sounds)
    ]


def _points(figure: ScatterPlot) -> list[tuple[float, float, str, str, int]]:
    """Return x and y in percent, image, name and color number of each point."""
    points = np.array(figure.points)
    low, high = points.min(0), points.max(0)
    percent = 2 + 96 * (points - low) / np.maximum(high - low, 1e-9)
    return [
        (x, y, picture, name, group % len(SERIES))
        for (x, y), picture, name, group in zip(
            percent.tolist(), figure.images, figure.names, figure.groups, strict=True
        )
    ]


def _view_images(grid: np.ndarray | None, *, is_signal: bool) -> list[list[str]]:
    """Return a PNG in base64 for each example and view; plots of signals are larger."""
    if grid is None:
        return []
    assert grid.ndim == 5
    assert grid.dtype == np.uint8, grid.dtype
    side = _SIGNAL_SIDE if is_signal else _SIDE
    return [[png(image, side) for image in row] for row in grid[:_EXAMPLES, :_IMAGES]]
