"""Parts that a page can hold: what each shows, and one sentence on how to read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widefield.report.figures import SERIES


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
class TaskVerdict:
    """One task of one encoder: the word, the bar and the numbers behind it."""

    task: str
    encoder: str
    word: str
    learned: tuple[float, float, float] | None
    """Value and interval, in [0, 1]; None where it cannot be told."""
    numbers: str
    """What was measured, in words."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One curve, or a few over one axis, each with its name.

    Raises:
        ValueError: no curve, more than a reader can tell apart, or x and y of two lengths.
    """

    title: str
    how: str
    """How to read it, in a sentence."""
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    """Name -> (x, y); a NaN in y leaves a gap."""
    x_label: str
    y_label: str = ""
    """What the title leaves open of y."""
    y_range: tuple[float, float | None] | None = None
    """Ends of the axis of y, where the data do not decide them."""
    logarithmic: bool = False
    """Both axes count in powers of ten."""

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
    how: str
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Rows of pictures, each row with a name; the first picture of a row may stand apart."""

    title: str
    how: str
    rows: Sequence[tuple[str, Sequence[str]]]
    """(name, PNG files in base64)."""
    first_apart: bool = False


@dataclass(frozen=True, kw_only=True)
class Places:
    """Pictures as points in the plane; a picture shows when the pointer is over its point.

    Raises:
        ValueError: no points, or not everything for each.
    """

    title: str
    how: str
    places: Sequence[tuple[float, float]]
    """[n] points (x, y)."""
    pictures: Sequence[str]
    """[n] PNG files in base64."""
    names: Sequence[str]
    """[n], what each is."""
    groups: Sequence[int]
    """[n], points of one number have one color."""

    def __post_init__(self) -> None:
        """Check that everything is there for every point."""
        lengths = {len(self.places), len(self.pictures), len(self.names), len(self.groups)}
        if len(lengths) != 1 or len(self.places) == 0:
            raise ValueError(f"points have {sorted(lengths)} places, pictures, names and groups")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One sound as a file to be played."""

    name: str
    wav: str
    """A WAV file in base64."""


@dataclass(frozen=True, kw_only=True)
class Sound:
    """One sound to listen to, with its spectrogram."""

    name: str
    wav: str
    """A WAV file in base64."""
    spectrogram: np.ndarray
    """Float [bands, frames] in [0, 1], the lowest band first."""
    hertz: np.ndarray
    """Center of each band, [bands]."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Rows of sounds to listen to; the first of a row is what the others are compared with."""

    title: str
    how: str
    rows: Sequence[Sequence[Sound]]


Figure = Lines | Bars | Gallery | Listening | Places
