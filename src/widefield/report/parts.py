"""Parts of a page: tables, figures, and rows of images or sounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

SERIES = {
    "#040506": "var(--accent)",
    "#070809": "var(--second)",
    "#0a0b0c": "var(--third)",
    "#0d0e0f": "var(--fourth)",
}
"""Placeholder -> color of the page, for up to four curves."""


@dataclass(frozen=True, kw_only=True)
class AccuracyTable:
    """Accuracies by task and source of the features, each with its interval."""

    rows: Sequence[str]
    columns: Sequence[str]
    """Sources of features, the baseline first."""
    cells: Mapping[tuple[str, str], tuple[float, float, float]]
    """(task, column) -> (accuracy, low, high) in [0, 1]; missing ones were not measured."""
    focus: str = ""

    def __post_init__(self) -> None:
        assert self.cells.keys() <= {*product(self.rows, self.columns)}, "a row and a column"
        assert all(0 <= low <= x <= high <= 1 for x, low, high in self.cells.values()), "shares"


@dataclass(frozen=True, kw_only=True)
class TaskVerdict:
    """The verdict on one task of one encoder."""

    task: str
    encoder: str
    word: str
    learned: tuple[float, float, float] | None
    """Value and interval in [0, 1]; None if there is none."""
    numbers: str
    no_bar: str = ""
    """Why there is none."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One to four named curves over one axis."""

    title: str
    caption: str
    """How to interpret it, in one sentence."""
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    """Name -> (x, y); a NaN in y leaves a gap."""
    x_label: str
    y_label: str = ""
    """Label of the y axis, if the title does not name it."""
    y_range: tuple[float, float | None] | None = None
    """Limits of the y axis; default: from the data."""
    log_scale: bool = False

    def __post_init__(self) -> None:
        assert 1 <= len(self.series) <= len(SERIES), "a color for each curve"
        assert all(len(x) == len(y) > 0 for x, y in self.series.values()), "as many x as y"


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Shares in [0, 1], one bar each."""

    title: str
    caption: str
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Shares in [0, 1] by row and column, each beside that of a reference."""

    title: str
    caption: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], tuple[float, float, float, float]]
    """(row, column) -> (share, low, high, reference); missing ones are left empty."""
    reference: str
    in_percent: bool = True

    def __post_init__(self) -> None:
        assert self.cells.keys() <= {*product(self.rows, self.columns)}, "a row and a column"
        assert all(0 <= x <= 1 for shares in self.cells.values() for x in shares), "shares"

    def text(self, share: float) -> str:
        """Return a share in whole percent, or as a number."""
        return f"{100 * share:.0f}" if self.in_percent else f"{share:.2f}"


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Rows of images, each with a name; the first of a row may be set off from the others."""

    title: str
    caption: str
    rows: Sequence[tuple[str, Sequence[str]]]
    """(name, PNG files in base64)."""
    separate_first: bool = False


@dataclass(frozen=True, kw_only=True)
class ScatterPlot:
    """Images as points in the plane, each shown while the pointer is over its point."""

    title: str
    caption: str
    points: Sequence[tuple[float, float]]
    """[n] points (x, y)."""
    images: Sequence[str]
    """[n] PNG files in base64."""
    names: Sequence[str]
    """[n]."""
    groups: Sequence[int]
    """[n], color numbers."""

    def __post_init__(self) -> None:
        n = len(self.points)
        assert 0 < n == len(self.images) == len(self.names) == len(self.groups), n


@dataclass(frozen=True, kw_only=True)
class Sound:
    """One sound to play, with its spectrogram."""

    name: str
    wav: str
    """A WAV file in base64."""
    spectrogram: np.ndarray
    """Float [bands, frames] in [0, 1], the lowest band first."""
    hertz: np.ndarray
    """Center of each band, [bands]."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class AudioRows:
    """Rows of sounds; the first of a row is compared with the others."""

    title: str
    caption: str
    rows: Sequence[Sequence[Sound]]


Figure = Lines | Bars | HeatMap | Gallery | AudioRows | ScatterPlot
