"""The random numbers of overlays, on images and on sounds."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.core import rng

_READ = 2**32  # above the number of examples


@dataclass(frozen=True, kw_only=True)
class RandomOverlay:
    """Random choices as a function of (seed, index, held_out), and of the read if `fresh`."""

    name: str
    classes: tuple[str, ...]
    seed: int
    held_out: bool
    fresh: bool = False
    """Whether to resample at each read of an example."""
    stream_index: NDArray[np.int64] | None = None
    """Index of each example in the random stream, int64 [n]; None: 0..n-1."""

    def subset(self, index: NDArray[np.int64]) -> Self:
        """Return the overlay of the examples `index`, renumbered from 0."""
        return replace(
            self, stream_index=index if self.stream_index is None else self.stream_index[index]
        )

    def _counter(self, index: ArrayLike, read: int) -> NDArray[np.int64]:
        """Return the positions of the examples `index` in the random streams at this read."""
        index = np.asarray(index, dtype=np.int64)
        index = index if self.stream_index is None else self.stream_index[index]
        return index + (_READ * read if self.fresh else 0)

    def _draw(
        self, stream: str, counter: NDArray[np.int64], high: int | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        # The name of a stream determines its numbers, so it must not change.
        pool = "held out" if self.held_out else "train"
        return rng.integers(self.seed, f"{self.name}/{pool}/{stream}", counter, high)
