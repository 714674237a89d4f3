"""Recordings that are longer than an example: segments of them, centered or drawn at each read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng


@dataclass(frozen=True, kw_only=True)
class Clips:
    """Sounds of any length from `steps` on, all end to end."""

    samples: NDArray[np.int16]
    """[total], in memory or a read-only memory map."""
    starts: NDArray[np.int64]
    """First sample of each, [n]."""
    lengths: NDArray[np.int64]
    """Samples of each, [n]."""
    steps: int
    """Length of a segment, T."""
    seed: int
    drawn_as: NDArray[np.int64] | None = None
    """Index that each sound's segments are drawn under, int64 [n]; None: its own."""

    @property
    def longer(self) -> bool:
        """Whether there is anything to draw: some sound is longer than a segment."""
        return bool((self.lengths > self.steps).any())

    def centered(self) -> NDArray[np.int16]:
        """Return the middle of each sound, int16 [n, 1, T, 1]."""
        return self._cut(np.arange(len(self.starts)), (self.lengths - self.steps) // 2)

    def whole(self) -> Iterator[bytes]:
        """Yield all samples of each sound that is longer than a segment, as their bytes.

        Nothing of one that is as long: its middle is all of it.
        """
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            taken = length if length > self.steps else 0
            yield self.samples[start : start + taken].tobytes()

    def drawn(self, index: NDArray[np.int64], read: int) -> NDArray[np.int16]:
        """Return a random segment of each sound of `index`, of its read, int16 [k, 1, T, 1]."""
        counter = index if self.drawn_as is None else self.drawn_as[index]
        room = self.lengths[index] - self.steps + 1
        return self._cut(index, rng.integers(self.seed, f"segment {read}", counter, room))

    def _cut(self, index: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int16]:
        out = np.empty((len(index), 1, self.steps, 1), dtype=np.int16)
        begins = self.starts[index] + first
        for row, begin in enumerate(begins.tolist()):
            out[row, 0, :, 0] = self.samples[begin : begin + self.steps]
        return out

    def subset(self, index: NDArray[np.int64]) -> "Clips":
        """Return the sounds `index` alone, numbered anew from 0."""
        return replace(
            self,
            starts=self.starts[index],
            lengths=self.lengths[index],
            drawn_as=index if self.drawn_as is None else self.drawn_as[index],
        )
