"""The result of a reader: names, labels, and pixels, encoded files or sounds.

This is what all sources have in common: n examples in a stable order, a name for each that does not
depend on the others, columns of class ids, and pixels as an array or one encoded image at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from widefield.data.readers.recordings import Recordings
from widefield.data.skipped import Skipped
from widefield.data.targets import Target

Encoded = Path | memoryview | Image.Image
"""An image: a file, the content of a file, or what Pillow has opened."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Content of a source before selection, decoding and planting."""

    names: Sequence[str]
    """[n], in a stable order."""
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    """Numbers, or several labels, of each example."""
    pixels: NDArray[Any] | None = None
    """Decoded images [n, H, W, C], uint8, or values of more bits; windows, float32 [n, 1, T, C]."""
    files: Sequence[Encoded] | None = None
    """Encoded images, [n]. An item is read when it is asked for, in any thread."""
    as_values: bool = False
    """Whether the files keep their depth and channels (`data.decode.values`), not shown in RGB."""
    recordings: Recordings | None = None
    """Sounds."""
    groups: NDArray[np.int64] | None = None
    """Group of each example, int64 [n]; None if they are not grouped."""
    is_test: NDArray[np.bool_] | None = None
    """Which examples the source assigns to the split `test`, [n]; None to split by names."""
    origin: Callable[[], bytes] | None = None
    """Returns a digest of the names, sizes and times of the files that hold this content."""
    skipped: tuple[Skipped, ...] = ()
    """Rows of the source that are no examples: without an image, repeated, or cut off."""
    excluded: tuple[Skipped, ...] = ()
    """Examples that were left out on request."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectedFiles(Sequence[Encoded]):
    """Some of the images of a source, read when they are asked for."""

    files: Sequence[Encoded]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.files[int(self.rows[index])]
