"""Recordings longer than an example, and their segments: one, all of them, or random ones.

Data sets pad recordings with silence, or record for long until something happens. A part is silent
if its variance is below `SILENCE` times that of the loudest one. Silent segments are neither shown
nor averaged, and training draws them seldom.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng

# Chosen by hand: an hour of examples of the default length.
MAX_SEGMENTS = 3600
"""Default number of segments of one recording whose features are averaged, at most."""
# Chosen by hand: 36 dB above one step of 16 bits, at full scale.
SILENCE = 1e-6
"""Limit of the variance of silence, as a share of that of the loudest part: -60 dB."""
# Chosen by hand.
_BLOCKS = 8
"""Blocks in a segment, the resolution of `Clips.sample` and `Clips.loudest`."""


Weighting = Literal["equal", "energy"]
"""What the features of a recording are: the mean over its segments, or that by their variances."""


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
    max_segments: int = MAX_SEGMENTS
    """Maximum number of segments of a sound for `segments`."""
    weighting: Weighting = "equal"
    stream_index: NDArray[np.int64] | None = None
    """Index of each sound in the random stream, int64 [n]; None: 0..n-1."""
    _variance: dict[int, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    """Start of a sound -> variance of each of its blocks; shared by all subsets."""

    @property
    def longer(self) -> NDArray[np.int64]:
        """Index of the sounds that are longer than a segment."""
        return np.flatnonzero(self.lengths > self.steps)

    def loudest(self) -> NDArray[np.int16]:
        """Return the loudest segment of each sound, to a block, int16 [n, 1, T, 1]."""
        index = np.arange(len(self.starts))
        return self._cut(index, np.array([self._loudest(row) for row in index.tolist()], int))

    def silence(self) -> NDArray[np.float64]:
        """Return the share that is silent of each sound that is longer than a segment."""
        return np.array([1 - self._sounding(row).mean() for row in self.longer.tolist()])

    def skipped(self) -> float:
        """Return the share of the time of longer sounds that `max_segments` leaves out."""
        counts = -(-self.lengths[self.longer] // self.steps)
        return float(1 - np.minimum(counts, self.max_segments).sum() / max(1, counts.sum()))

    def whole(self) -> Iterator[bytes]:
        """Yield all samples of each sound that is longer than a segment, as their bytes.

        Nothing of one that is as long: its segment is all of it.
        """
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            count = length if length > self.steps else 0
            yield self.samples[start : start + count].tobytes()

    def segments(self, row: int) -> NDArray[np.int16]:
        """Return the segments of a sound that are not silent, int16 [k, 1, T, 1].

        They are ceil(length / T) in number, evenly spaced from its start to its end. Of more than
        `max_segments`, as many are taken, evenly spaced again.
        """
        last = int(self.lengths[row]) - self.steps
        first = np.linspace(0, last, -(-last // self.steps) + 1).round().astype(np.int64)
        starts = (self.starts[row] + first).tolist()
        variance = np.array([self.samples[at : at + self.steps].var() for at in starts])
        first = first[_is_sounding(variance)]
        if len(first) > self.max_segments:
            first = first[np.linspace(0, len(first) - 1, self.max_segments).round().astype(int)]
        return self._cut(np.full(len(first), row), first)

    def weights(self, segments: NDArray[np.int16]) -> NDArray[np.float32]:
        """Return the weight of each segment [k, 1, T, 1] of one sound, at most 1, [k]."""
        energy = segments.astype(np.float64).var(axis=(1, 2, 3))
        if self.weighting == "equal" or not energy.any():
            return np.ones(len(segments), dtype=np.float32)
        return (energy / energy.max()).astype(np.float32)

    def sample(self, index: NDArray[np.int64], read: int) -> NDArray[np.int16]:
        """Return a random segment of each sound of `index` at a read, int16 [k, 1, T, 1].

        Its probability is proportional to the share of it that is not silent: without silence, all
        starts are equally probable.
        """
        counter = index if self.stream_index is None else self.stream_index[index]
        bin_position, within = (
            rng.uniforms(self.seed, f"{name} {read}", counter) for name in ("segment", "start")
        )
        draws = zip(index.tolist(), bin_position.tolist(), within.tolist(), strict=True)
        return self._cut(index, np.array([self._draw(*draw) for draw in draws], dtype=np.int64))

    def _draw(self, row: int, bin_position: float, within: float) -> int:
        """Return the start of a segment for two uniform numbers: its bin, and its place in it."""
        bounds, share = self._bins(row)
        total = share.cumsum()
        # Rounding may place the last numbers beyond the end.
        k = min(int(np.searchsorted(total, bin_position * total[-1], side="right")), len(share) - 1)
        return int(bounds[k] + within * (bounds[k + 1] - bounds[k]))

    def _bins(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return bins of starts, about as long as a block, and the share that sounds from each."""
        count, block = int(self.lengths[row]) - self.steps + 1, self._block
        bounds = np.linspace(0, count, -(-count // block) + 1).astype(np.int64)
        total = np.concatenate([[0], self._sounding(row).cumsum()])
        first, end = bounds[:-1] // block, -(-(bounds[1:] - 1 + self.steps) // block)
        end = np.minimum(end, len(total) - 1)
        return bounds, (total[end] - total[first]) / (end - first)

    def _loudest(self, row: int) -> int:
        last = int(self.lengths[row]) - self.steps
        if last == 0:
            return 0
        total = np.concatenate([[0], self._blocks(row).cumsum()])
        width = self.steps // self._block
        first = int((total[width:] - total[:-width]).argmax()) * self._block
        return min(first, last)

    def _sounding(self, row: int) -> NDArray[np.bool_]:
        return _is_sounding(self._blocks(row))

    @property
    def _block(self) -> int:
        return max(1, self.steps // _BLOCKS)

    def _blocks(self, row: int) -> NDArray[np.float64]:
        """Return the variance of each block of a sound; the last has the remainder too."""
        start, length = int(self.starts[row]), int(self.lengths[row])
        if start not in self._variance:
            x = self.samples[start : start + length].astype(np.float32)
            first = np.arange(length // self._block) * self._block
            count = np.diff(first, append=length)
            mean = np.add.reduceat(x, first, dtype=np.float64) / count
            x *= x  # in place, because a sound may be an hour long
            square = np.add.reduceat(x, first, dtype=np.float64) / count
            self._variance[start] = np.maximum(square - mean**2, 0)
        return self._variance[start]

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


def _is_sounding(variance: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which parts of a sound, by their variances, are not silent; all, if all are 0."""
    return variance >= SILENCE * variance.max()
