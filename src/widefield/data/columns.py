"""Names of examples as one column of text, without a Python object for each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Chosen by hand: Python objects of a chunk are in memory at once.
_CHUNK = 65_536


class Names(Sequence[str]):
    """A sequence of names that takes the bytes of its text and 8 more for each of them."""

    def __init__(self, names: Iterable[str] | pa.Array | pa.ChunkedArray) -> None:
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.cast(pa.large_string()).chunks or [pa.array([], "str")])
        column: Any = names if isinstance(names, pa.Array) else pa.array(names, pa.large_string())
        self.column: pa.LargeStringArray = column.cast(pa.large_string())

    @classmethod
    def of_rows(cls, count: int) -> "Names":
        """Return "row 0", "row 1", ..."""
        numbers = pa.array(np.arange(count)).cast(pa.large_string())
        prefix, separator = (pa.scalar(text, pa.large_string()) for text in ("row", " "))
        return cls(pc.binary_join_element_wise(prefix, numbers, separator))

    def take(self, rows: NDArray[np.int64]) -> "Names":
        """Return the names of some rows."""
        return Names(self.column.take(pa.array(rows)))

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Names": ...
    def __getitem__(self, index: int | slice) -> "str | Names":
        if isinstance(index, slice):
            return Names(self.column[index])
        return str(self.column[int(index)].as_py())

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _CHUNK):
            yield from self.column[first : first + _CHUNK].to_pylist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return bool(self.column.equals(other.column))
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Sequence[str]) -> list[str]:
        return [*self, *other]

    def __repr__(self) -> str:
        return repr(list(self))


def take(names: Sequence[str], rows: NDArray[np.int64]) -> Names:
    """Return the names of some rows as a column."""
    return (names if isinstance(names, Names) else Names(names)).take(rows)
