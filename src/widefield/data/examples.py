"""The result of a reader: a table, and the content of each row that is not decoded yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from widefield.data.cache import digest
from widefield.data.readers.recordings import Recordings
from widefield.data.table import Skipped, Table

Encoded = Path | memoryview | Image.Image
"""An image: a file, the content of a file, or what Pillow has opened."""


@dataclass(frozen=True, kw_only=True)
class Examples(Table):
    """A table with the content of its rows: `pixels`, `files` or `recordings`."""

    pixels: NDArray[Any] | None = None
    """Decoded images [n, H, W, C], uint8, or values of more bits; windows, float32 [n, 1, T, C]."""
    files: Sequence[Encoded] | None = None
    """Encoded images, [n]. An item is read when it is asked for, in any thread."""
    as_values: bool = False
    """Whether the files keep their depth and channels (`data.decode.values`), not shown in RGB."""
    recordings: Recordings | None = None
    """Sounds."""
    is_test: NDArray[np.bool_] | None = None
    """Which examples the source assigns to the split `test`, [n]; None to split by names."""
    origin: Callable[[], bytes] | None = None
    """Returns a digest of the names, sizes and times of the files that hold this content."""
    excluded: tuple[Skipped, ...] = ()
    """Examples that were left out on request."""

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return these rows with their content; pixels in memory are copied."""
        origin, pixels = self.origin, self.pixels
        if isinstance(pixels, np.ndarray):
            pixels = pixels[rows]
        elif pixels is not None:
            pixels = pixels.subset(rows)  # they stay in an HDF5 or Zarr file
        return replace(
            self,
            **self.columns(rows),
            pixels=pixels,
            files=None if self.files is None else selected(self.files, rows),
            recordings=None if self.recordings is None else self.recordings.take(rows),
            is_test=None if self.is_test is None else self.is_test[rows],
            origin=None if origin is None else lambda: digest(origin(), rows),
        )


@dataclass(frozen=True)
class LazyFiles(Sequence[Any]):
    """Images or sounds of a source, each of which `read` returns when it is asked for."""

    size: int
    read: Callable[[int], Any]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return self.read(int(index))


def selected(files: Sequence[Encoded], rows: NDArray[np.int64]) -> LazyFiles:
    return LazyFiles(len(rows), lambda index: files[int(rows[index])])
