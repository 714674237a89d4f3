"""The two reports, of a run and of an audit, and how each becomes one HTML file."""

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
from widefield.report.figures import SERIES, chart, png, spectrogram
from widefield.report.parts import (
    Figure,
    Gallery,
    Lines,
    Listening,
    Places,
    Sound,
    Table,
    TaskVerdict,
)

_EXAMPLES, _IMAGES = 6, 6
"""Rows of the picture of views, and images in a row: what a phone can show."""
_SIDE, _DRAWN = 96, 192
"""Longest side of a view, in pixels: of an image, and of a drawn curve or spectrogram."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything that the page of a run says; a part left empty leaves its section out.

    Every string is shown as it is, whatever is in it; `backticks` set a piece in code type.

    Example:
        >>> report = RunReport(title="Tour", summary="Both tasks were learned.")
        >>> "Both tasks were learned." in report.html()
        True
    """

    title: str
    summary: str
    """How it went, in plain words: the first thing to be read."""
    details: Sequence[str] = ()
    """What that rests on, a line each."""
    table: Table | None = None
    curves: Sequence[Lines] = ()
    """Quantities over training."""
    view_grid: np.ndarray | None = None
    """uint8 [examples, 1 + views, H, W, C], the original first; the first 6 x 6 are shown."""
    example: str = "image"
    """What an example is called."""
    sounds: Sequence[Sound] = ()
    """Examples to listen to."""
    health: Sequence[tuple[int, str]] = ()
    """Epoch and line, "verdict: numbers", as `diagnose.Health.line` writes it."""
    next_steps: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Machine, versions, seed, command, wall time: what it takes to do it again."""

    def html(self) -> str:
        """Return the page; the same report gives the same text."""
        return render(
            "run.html",
            report=self,
            curves=[_drawn(curve, f"curve{i}-") for i, curve in enumerate(self.curves)],
            views=_view_pictures(self.view_grid, drawn=self.example != "image"),
            sounds=_with_spectrograms(self.sounds, "sound"),
        )

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the page to `path`, as `write_page` does."""
        return write_page(self.html(), path, overwrite=overwrite)


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Everything that the page of an audit says; a part left empty leaves its section out.

    Every string is shown as it is, whatever is in it; `backticks` set a piece in code type.
    """

    title: str
    summary: str
    """The verdicts, in plain words: the first thing to be read."""
    notes: Sequence[str] = ()
    """What to know before believing them."""
    verdicts: Sequence[TaskVerdict] = ()
    """Tasks in order, each with its encoders one below the other."""
    next_steps: Sequence[str] = ()
    example: str = "image"
    """What an example is called."""
    figures: Sequence[Figure] = ()
    diagnostics: Sequence[tuple[str, str, str]] = ()
    """(name, number, meaning)."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Data, machine, versions, seed: what it takes to do it again."""

    def html(self) -> str:
        """Return the page; the same report gives the same text."""
        return render(
            "audit.html",
            report=self,
            verdicts=_by_task(self.verdicts),
            figures=[_drawn(figure, f"figure{i}-") for i, figure in enumerate(self.figures)],
        )


def write_page(html: str, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a page to `path`, whole or not at all; its folder is made where it is missing.

    Raises:
        ValueError: `path` exists and `overwrite` is false.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists: delete it, or choose another name")
    # Names of files need not be valid text, and a page that is finished must not fail by one.
    text = html.encode("utf-8", errors="backslashreplace")
    write_atomically(path, lambda draft: draft.write_bytes(text))
    return path


def render(template: str, **values: Any) -> str:
    """Return a page: `template` of this folder, filled in with every string escaped."""
    return _environment().get_template(template).render(series=list(SERIES.values()), **values)


@cache  # compiling a template takes longer than filling it in
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


def _by_task(verdicts: Sequence[TaskVerdict]) -> dict[str, list[TaskVerdict]]:
    """Return task -> its rows, in the order in which tasks first appear."""
    tasks: dict[str, list[TaskVerdict]] = {}
    for verdict in verdicts:
        tasks.setdefault(verdict.task, []).append(verdict)
    return tasks


def _drawn(figure: Figure, prefix: str) -> dict[str, Any]:
    """Return a figure with what the template cannot make of it."""
    facts: dict[str, Any] = {"kind": type(figure).__name__, "about": figure}
    match figure:
        case Lines():
            svg = chart(
                figure.series,
                x_label=figure.x_label,
                y_label=figure.y_label,
                y_range=figure.y_range,
                logarithmic=figure.logarithmic,
                prefix=prefix,
            )
            facts["chart"] = Markup(svg)  # `chart` escapes every string that it gets
        case Gallery():
            facts["most"] = max((len(pictures) for _, pictures in figure.rows), default=1)
        case Listening():
            facts["rows"] = [
                _with_spectrograms(row, f"{prefix}{i}-") for i, row in enumerate(figure.rows)
            ]
        case Places():
            facts["points"] = _points(figure)
    return facts


def _with_spectrograms(sounds: Sequence[Sound], prefix: str) -> list[tuple[Sound, Markup]]:
    """Return each sound with its spectrogram, whose strings are escaped."""
    return [
        (sound, Markup(spectrogram(sound, prefix=f"{prefix}{i}-")))
        for i, sound in enumerate(sounds)
    ]


def _points(figure: Places) -> list[tuple[float, float, str, str, int]]:
    """Return x and y in percent of the map, picture, name and color of each point."""
    places = np.array(figure.places)
    low, high = places.min(0), places.max(0)
    percent = 2 + 96 * (places - low) / np.maximum(high - low, 1e-9)
    return [
        (x, y, picture, name, group % len(SERIES))
        for (x, y), picture, name, group in zip(
            percent.tolist(), figure.pictures, figure.names, figure.groups, strict=True
        )
    ]


def _view_pictures(grid: np.ndarray | None, *, drawn: bool) -> list[list[str]]:
    """Return PNG files in base64 by example and view, the original first; `drawn` ones larger."""
    if grid is None:
        return []
    if grid.ndim != 5 or grid.dtype != np.uint8:
        raise ValueError(
            f"view_grid has dtype {grid.dtype} and shape {list(grid.shape)}: "
            "give uint8 of shape [examples, 1 + views, H, W, C]"
        )
    side = _DRAWN if drawn else _SIDE
    return [[png(image, side) for image in row] for row in grid[:_EXAMPLES, :_IMAGES]]
