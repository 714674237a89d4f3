"""What a reader hands to the opener: names, labels, and pixels or encoded files."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.data.readers.recordings import Recordings


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What a reader knows of its source before anything is selected, decoded or planted."""

    names: list[str]
    """[n], in the stable order."""
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pixels: NDArray[Any] | None = None
    """Decoded images, uint8 [n, H, W, C], or windows, float32 [n, 1, T, C]; None where `files`
    holds encoded ones."""
    files: list[Path] | list[memoryview] | None = None
    """Encoded images, [n]."""
    recordings: Recordings | None = None
    """Sounds, which are neither of the two."""
    origin: tuple[Path, ...] = ()
    """Files on disk whose size and time of change identify this content."""
    notes: tuple[str, ...] = ()
