"""Tables of labels as other libraries hold them, and what was read of one."""

from collections.abc import Iterable
from typing import Any

from widefield.data.table import Table


class Frame:
    """What a DataFrame of pandas or polars has of a mapping: columns, each by its name."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]


class Series:
    """What a Series of pandas has: an index and items."""

    def __init__(self, labels: dict[Any, Any]) -> None:
        self._labels = labels
        self.index = list(labels)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._labels.items()


def by_path(table: Table) -> dict[str, dict[str, str]]:
    """Return task -> path -> class of the rows with a label."""
    return {
        task: {
            path: table.classes[task][k]
            for path, k in zip(table.names, ids.tolist(), strict=True)
            if k >= 0
        }
        for task, ids in table.labels.items()
    }
