"""Random numbers of what is planted, in images as in sounds."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.core import rng

_READ = 2**32  # more than there are examples


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Draws as a pure function of (seed, index, held_out), and of the read where it is fresh."""

    name: str
    classes: tuple[str, ...]
    seed: int
    held_out: bool
    fresh: bool = False
    """Whether every read of an example is drawn by itself."""
    drawn_as: NDArray[np.int64] | None = None
    """Index that each example is drawn under, int64 [n]; None: its own."""

    def subset(self, index: NDArray[np.int64]) -> Self:
        """Return the overlay of the examples `index` alone, numbered anew from 0."""
        return replace(self, drawn_as=index if self.drawn_as is None else self.drawn_as[index])

    def _counter(self, index: ArrayLike, read: int) -> NDArray[np.int64]:
        """Return where the random numbers of the examples `index` stand at this read."""
        index = np.asarray(index, dtype=np.int64)
        index = index if self.drawn_as is None else self.drawn_as[index]
        return index + (_READ * read if self.fresh else 0)

    def _draw(
        self, what: str, counter: NDArray[np.int64], high: int | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        pool = "held out" if self.held_out else "train"
        return rng.integers(self.seed, f"{self.name}/{pool}/{what}", counter, high)
