"""What is known of the examples of a source besides their content: names, labels, groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from widefield.data.columns import take
from widefield.data.skipped import Skipped
from widefield.data.targets import Target


@dataclass(frozen=True, kw_only=True)
class Table:
    """One row for each of n examples, in a stable order."""

    names: Sequence[str]
    """[n]; a name does not depend on the other examples."""
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Task -> class ids, int64 [n]; -1 for no label."""
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Task -> class names."""
    targets: dict[str, Target] = field(default_factory=dict)
    """Task -> numbers, or several labels, of each example."""
    groups: NDArray[np.int64] | None = None
    """Group of each example, int64 [n]; None if they are not grouped."""
    skipped: tuple[Skipped, ...] = ()
    """Rows of the source that are no examples: without an image, repeated, or cut off."""
    notes: tuple[str, ...] = ()

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return these rows, in this order.

        Example:
            >>> table = Table(names=["a", "b"], labels={"class": np.array([0, 1])})
            >>> table.take(np.array([1])).names
            ['b']
        """
        return replace(
            self,
            names=take(self.names, rows),
            labels={task: ids[rows] for task, ids in self.labels.items()},
            targets={task: target.subset(rows) for task, target in self.targets.items()},
            groups=None if self.groups is None else self.groups[rows],
        )

    def with_notes(self, *notes: str) -> Self:
        """Return the same rows with further notes to the user."""
        return replace(self, notes=(*self.notes, *notes))
