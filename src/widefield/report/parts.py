"""Figures that a page can hold: what they show, and one sentence on how to read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widefield.report.figures import SERIES


@dataclass(frozen=True, kw_only=True)
class Verdict:
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
    """Curves over one axis, each with its name.

    Raises:
        ValueError: no curve, more than a reader can tell apart, or x and y of two lengths.
    """

    title: str
    how: str
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    """Name -> (x, y)."""
    x_label: str
    y_label: str
    y_range: tuple[float, float] | None = None
    logarithmic: bool = False
    """Both axes count in powers of ten."""

    def __post_init__(self) -> None:
        """Check numbers and lengths."""
        if not 1 <= len(self.series) <= len(SERIES):
            raise ValueError(f"a figure has {len(self.series)} curves: give 1 to {len(SERIES)}")
        for name, (x, y) in self.series.items():
            if len(x) != len(y) or len(x) == 0:
                raise ValueError(f"curve {name!r} has {len(x)} x and {len(y)} y: give as many")


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Shares in [0, 1], one bar each."""

    title: str
    how: str
    shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Rows of images, each row with a name; the first image of a row may stand apart."""

    title: str
    how: str
    rows: Mapping[str, Sequence[np.ndarray]]
    """Name -> images uint8 [H, W, C]."""
    first_apart: bool = False


@dataclass(frozen=True, kw_only=True)
class Places:
    """Images as points in the plane; the image shows when the pointer is over its point."""

    title: str
    how: str
    places: np.ndarray
    """Float [n, 2]."""
    images: np.ndarray
    """uint8 [n, H, W, C]."""
    names: Sequence[str]
    """[n], what each is."""
    groups: Sequence[int]
    """[n], points of one number have one colour."""

    def __post_init__(self) -> None:
        """Check that everything is there for every point."""
        lengths = {len(self.places), len(self.images), len(self.names), len(self.groups)}
        if len(lengths) != 1 or len(self.places) == 0:
            raise ValueError(f"points have {sorted(lengths)} places, images, names and groups")


Figure = Lines | Bars | Gallery | Places
