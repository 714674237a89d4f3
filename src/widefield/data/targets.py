"""Targets that are not classes: a number of each example, or several labels of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from widefield.data.notes import listed_classes

TargetKind = Literal["number", "labels"]

Cell = float | frozenset[str]
"""The number of an example, or its labels."""

SEPARATORS = ("|", ";")
"""Characters between the labels of one cell."""
MOST_CLASSES = 20
"""Distinct numbers that can be classes."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A number of each example, or which of L labels it has."""

    values: NDArray[np.float64]
    """[n, 1] numbers, or [n, L] of 0 and 1; a row of NaN for an example without a target."""
    labels: tuple[str, ...] = ()
    """Names of the L labels; empty for a number."""

    @property
    def kind(self) -> TargetKind:
        """What the target is."""
        return "labels" if self.labels else "number"

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which examples have a target, bool [n]."""
        known: NDArray[np.bool_] = ~np.isnan(self.values[:, 0])
        return known

    def subset(self, rows: NDArray[np.int64] | slice) -> "Target":
        """Return the targets of the examples `rows`."""
        return replace(self, values=self.values[rows])

    def only(self, columns: NDArray[np.int64]) -> "Target":
        """Return the target with these labels alone."""
        return replace(
            self, values=self.values[:, columns], labels=tuple(self.labels[k] for k in columns)
        )

    def note(self, task: str, *, in_table: bool) -> str:
        """Return what a column of a table, or an array, was taken for, and how to change that."""
        missing = int((~self.known).sum())
        end = f"; {missing} examples without one" if missing else ""
        change = "; for classes, "
        change += f"name the column '{task}:class'" if in_table else "give integers or strings"
        if self.kind == "number":
            low, middle, high = np.quantile(self.values[self.known], (0, 0.5, 1))
            span = f"from {low:.4g} to {high:.4g}, median {middle:.4g}"
            return f"{task!r} is a number of each example, {span}{change}{end}"
        counts = [np.full(int(count), k) for k, count in enumerate(np.nansum(self.values, 0))]
        listed = listed_classes(np.concatenate(counts).astype(np.int64), self.labels)
        return f"{task!r} has several labels an example: {listed}{change}{end}"


def target_of(cells: Mapping[str, Cell], names: Sequence[str]) -> Target:
    """Return the target of the examples `names`, from path -> cell.

    Example:
        >>> target_of({"a": frozenset("xy"), "b": frozenset("y")}, ["b", "a"]).values.tolist()
        [[0.0, 1.0], [1.0, 1.0]]
    """
    sets = [cell for cell in cells.values() if isinstance(cell, frozenset)]
    labels = tuple(sorted(frozenset[str]().union(*sets)))
    values = np.full((len(names), len(labels) or 1), np.nan)
    for row, name in enumerate(names):
        cell = cells.get(name)
        if isinstance(cell, frozenset):
            values[row] = [label in cell for label in labels]
        elif cell is not None:
            values[row] = cell
    return Target(values=values, labels=labels)


def kind_of_cells(labels: Iterable[str]) -> TargetKind | None:
    """Return what the cells of a column are taken for; None for classes.

    A cell with a separator has several labels. More than 20 numbers are no classes, but for whole
    numbers that begin at 0 or 1 and leave out at most half of the numbers up to the largest, as ids
    of classes do.

    Example:
        >>> kind_of_cells(["a|b", "a"]), kind_of_cells(["a", "b"]), kind_of_cells(["1", "2"])
        ('labels', None, None)
    """
    distinct = set(labels)
    if separator_of(distinct) is not None:
        return "labels"
    numbers = numbers_of(distinct)
    if numbers is None or len(set(numbers.values())) <= MOST_CLASSES:
        return None
    values = sorted(set(numbers.values()))
    are_ids = all(map(float.is_integer, values)) and values[0] in (0, 1)
    return None if are_ids and 2 * len(values) > values[-1] else "number"


def separator_of(labels: Iterable[str]) -> str | None:
    """Return the first separator that a cell has."""
    distinct = set(labels)
    return next((mark for mark in SEPARATORS if any(mark in text for text in distinct)), None)


def numbers_of(labels: Iterable[str]) -> dict[str, float] | None:
    """Return text -> finite number; None if a text is none. The comma may be a decimal point.

    Example:
        >>> numbers_of(["1,5", "2"]), numbers_of(["1", "inf"])
        ({'1,5': 1.5, '2': 2.0}, None)
    """
    try:
        numbers = {label: float(label.replace(",", ".")) for label in labels}
    except ValueError:
        return None
    return numbers if np.isfinite(list(numbers.values())).all() else None
