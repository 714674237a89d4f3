"""Parts of a page: tables, figures, and rows of images or sounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """Accuracies by task and source of the features, each with its interval.

    Raises:
        ValueError: a cell of no row or column, or an accuracy that is not low <= value <= high
            within [0, 1].
    """

    rows: Sequence[str]
    """Tasks."""
    columns: Sequence[str]
    """Sources of features, the baseline first."""
    cells: Mapping[tuple[str, str], tuple[float, float, float]]
    """(task, column) -> (accuracy, low, high) in [0, 1]; missing ones were not measured."""
    focus: str = ""
    """The column to highlight."""

    def __post_init__(self) -> None:
        """Check every cell."""
        for (row, column), (value, low, high) in self.cells.items():
            if row not in self.rows or column not in self.columns:
                raise ValueError(
                    f"cell {(row, column)} is not in the rows and columns of the table"
                )
            if not 0 <= low <= value <= high <= 1:
                raise ValueError(
                    f"cell {(row, column)} is {value} in [{low}, {high}]: "
                    "give 0 <= low <= value <= high <= 1"
                )


@dataclass(frozen=True, kw_only=True)
class TaskVerdict:
    """The verdict on one task of one encoder."""

    task: str
    encoder: str
    word: str
    learned: tuple[float, float, float] | None
    """Value and interval in [0, 1]; None if there is none."""
    numbers: str
    """The measurements, as text."""
    no_bar: str = ""
    """Why there is none."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One to four named curves over one axis.

    Raises:
        ValueError: no curve, more than four, or x and y of different lengths.
    """

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
    """Whether both axes are logarithmic."""

    def __post_init__(self) -> None:
        """Check numbers and lengths."""
        if not 1 <= len(self.series) <= len(SERIES):
            raise ValueError(f"a figure has {len(self.series)} curves: give 1 to {len(SERIES)}")
        for name, (x, y) in self.series.items():
            if len(x) != len(y) or len(x) == 0:
                raise ValueError(
                    f"curve {name!r} has {len(x)} x and {len(y)} y: give as many, one at least"
                )


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Shares in [0, 1], one bar each."""

    title: str
    caption: str
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Shares in [0, 1] by row and column, each beside that of a reference.

    Raises:
        ValueError: a cell of no row or column, or a share outside [0, 1].
    """

    title: str
    caption: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], tuple[float, float, float, float]]
    """(row, column) -> (share, low, high, reference); missing ones are left empty."""
    reference: str
    """What the reference is."""

    def __post_init__(self) -> None:
        """Check every cell."""
        for (row, column), shares in self.cells.items():
            if row not in self.rows or column not in self.columns:
                raise ValueError(f"cell {(row, column)} is not in the rows and columns of the map")
            if not all(0 <= share <= 1 for share in shares):
                raise ValueError(f"cell {(row, column)} is {shares}: give shares in [0, 1]")


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
    """Images as points in the plane, each shown while the pointer is over its point.

    Raises:
        ValueError: no points, or fields of different lengths.
    """

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
        """Check lengths."""
        lengths = {len(self.points), len(self.images), len(self.names), len(self.groups)}
        if len(lengths) != 1 or len(self.points) == 0:
            raise ValueError(
                f"a scatter plot has {sorted(lengths)} points, images, names and groups: give "
                "as many of each, one at least"
            )


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One sound as a file to play."""

    name: str
    wav: str
    """A WAV file in base64."""


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
