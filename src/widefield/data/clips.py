"""Recordings longer than an example, and their segments: centered, or random at each read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng


@dataclass(frozen=True, kw_only=True)
class Clips:
    """Concatenated sounds of at least `steps` samples each."""

    samples: NDArray[np.int16]
    """[total], in memory or a read-only memory map."""
    starts: NDArray[np.int64]
    """Start of each sound, [n]."""
    lengths: NDArray[np.int64]
    """Length of each sound, [n]."""
    steps: int
    """Length of a segment, T."""
    seed: int
    stream_index: NDArray[np.int64] | None = None
    """Index of each sound in the random stream, int64 [n]; None: 0..n-1."""

    @property
    def longer(self) -> bool:
        """Whether some sound is longer than a segment."""
        return bool((self.lengths > self.steps).any())

    def centered(self) -> NDArray[np.int16]:
        """Return the center of each sound, int16 [n, 1, T, 1]."""
        return self._cut(np.arange(len(self.starts)), (self.lengths - self.steps) // 2)

    def whole(self) -> Iterator[bytes]:
        """Yield all samples of each sound that is longer than a segment, as their bytes.

        Nothing of one that is as long: its middle is all of it.
        """
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            taken = length if length > self.steps else 0
            yield self.samples[start : start + taken].tobytes()

    def sample(self, index: NDArray[np.int64], read: int) -> NDArray[np.int16]:
        """Return a random segment of each sound of `index` at a read, int16 [k, 1, T, 1]."""
        counter = index if self.stream_index is None else self.stream_index[index]
        count = self.lengths[index] - self.steps + 1
        return self._cut(index, rng.integers(self.seed, f"segment {read}", counter, count))

    def _cut(self, index: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int16]:
        out = np.empty((len(index), 1, self.steps, 1), dtype=np.int16)
        starts = self.starts[index] + first
        for row, start in enumerate(starts.tolist()):
            out[row, 0, :, 0] = self.samples[start : start + self.steps]
        return out

    def subset(self, index: NDArray[np.int64]) -> "Clips":
        """Return the sounds `index`, renumbered from 0."""
        return replace(
            self,
            starts=self.starts[index],
            lengths=self.lengths[index],
            stream_index=index if self.stream_index is None else self.stream_index[index],
        )
