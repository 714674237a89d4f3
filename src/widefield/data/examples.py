"""The result of a reader: names, labels, and pixels, encoded files or sounds."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.data.readers.recordings import Recordings
from widefield.data.skipped import Skipped
from widefield.data.targets import Target


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Content of a source before selection, decoding and planting."""

    names: list[str]
    """[n], in a stable order."""
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    """Numbers, or several labels, of each example."""
    pixels: NDArray[Any] | None = None
    """Decoded images, uint8 [n, H, W, C], or windows, float32 [n, 1, T, C]."""
    files: list[Path] | list[memoryview] | None = None
    """Encoded images, [n]."""
    recordings: Recordings | None = None
    """Sounds."""
    groups: NDArray[np.int64] | None = None
    """Group of each example, int64 [n]; None if they are not grouped."""
    origin: tuple[Path, ...] = ()
    """Files whose size and modification time identify this content."""
    excluded: tuple[Skipped, ...] = ()
    """Examples that were left out on request."""
    notes: tuple[str, ...] = ()
