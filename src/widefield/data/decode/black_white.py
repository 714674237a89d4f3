"""Black and white of images of more than 8 bits, once for a data set.

A file stores the bits of a value, but not which values the camera used: 12 bits in a file of 16, a
CT with an offset of 32768, or a thermal image between 51000 and 52000 would become a few levels of
gray. Black and white are therefore the 0.1 and 99.9 percentiles of the values of a sample of the
files, of all channels of a color image, or of each channel where channels are kept. A run stores
them with its encoder for all later data.

Up to four distinct values at each end are left out if a gap that is wider than the span of all
others separates them: a padding of -9999, or the 65535 of pixels that a sensor does not read.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.core.types import BlackWhite, Range
from widefield.data.cache import DecodingJournal, Record
from widefield.data.decode.decoding import in_parallel
from widefield.data.decode.eight_bits import fixed_black_white
from widefield.data.select import spread_rows

# Chosen by hand: hot pixels are left out, and an object of more than 0.1 % of the pixels is not.
_PERCENTILES = 0.1, 99.9
# 1 million values in all: the error of a percentile of them is below the 0.1 % itself.
_SAMPLE_FILES, _SAMPLE_PIXELS = 256, 4096
# Chosen by hand: paddings and marks are one or two values; those of a dark image are more.
_OUTLIERS = 4
"""Distinct values at each end that may be left out."""
_MIN_UNIQUE = 16
"""Fewer distinct values, such as those of label images, are all kept."""
_MAX_OUTSIDE = 0.25
"""Largest share of values outside a given black and white; with more, the scale is another one."""


class ValueRange:
    """Black and white of the images of a data set: as given, or found in a sample of them."""

    black_white: BlackWhite | None
    sampled: int
    """Number of images whose values gave them; 0 if they were given."""

    def __init__(
        self,
        specified: BlackWhite | None,
        sample: Callable[[int], NDArray[Any]],
        journal: DecodingJournal | None = None,
        *,
        names: Sequence[str] = (),
        eight_bits: bool = False,
    ) -> None:
        """`sample` returns values of an image, [k], or [k, C] of channels that are kept.

        `names` are those of the images, for messages. `eight_bits` is whether they are for an
        encoder that was trained on 8 bits.
        """
        self.black_white, self.sampled = specified, 0
        self._find = fixed_black_white if eight_bits else find_black_white
        self._sample, self._names, self._journal = sample, names, journal
        if specified is None and journal is not None and "black_white" in journal.shared:
            shared = journal.shared
            self.black_white, self.sampled = shared["black_white"], shared["sampled"]

    def find(self, rows: Sequence[int]) -> None:
        """Find black and white from a sample of the images `rows`."""
        sample = [rows[i] for i in spread_rows(len(rows), _SAMPLE_FILES)]
        read = [(row, x) for row, x in in_parallel(self._sample, sample) if not isinstance(x, str)]
        found = [x for _, x in read]
        if self._names:
            _check_one_scale([self._names[row] for row, _ in read], found)
        # Without one that is readable, all of them fail when they are decoded, on any scale.
        self.black_white = self._find(found) if found else (0.0, 1.0)
        self.sampled = len(found)
        if self._journal is not None:
            self._journal.state(self.record())

    def record(self) -> Record:
        """Return black and white as the cache keeps them, JSON values."""
        return {"black_white": self.black_white, "sampled": self.sampled}


def sample_pixels(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return some of the pixels [k, ...] of an image."""
    return pixels[spread_rows(len(pixels), _SAMPLE_PIXELS)]


def find_black_white(samples: Sequence[NDArray[Any]]) -> BlackWhite:
    """Return black and white for images with these values, [k] or [k, C] of each."""
    values = np.concatenate(samples).astype(np.float64)
    if values.ndim == 1:
        return _range(values)
    return tuple(_range(channel) for channel in values.T)


def _check_one_scale(names: Sequence[str], samples: Sequence[NDArray[Any]]) -> None:
    pairs = [*zip(names, samples, strict=True)]
    floats = [n for n, x in pairs if x.dtype.kind == "f" and x.max() <= 1 and (x % 1).any()]
    integers = [n for n, x in pairs if x.dtype.kind != "f" and x.max() > 1]
    if floats and integers:
        few = min(floats, integers, key=len)
        raise ValueError(
            f"{printable(floats[0])} is floats in [0, 1], and {printable(integers[0])} integers"
            f": {len(few)} of {len(pairs)} images that were compared are as {printable(few[0])}; "
            "bring them to one scale, or leave these out"
        )


def _range(values: NDArray[np.float64]) -> Range:
    low, high = np.percentile(_without_outliers(values), _PERCENTILES).tolist()
    return low, high if high > low else low + 1


def _without_outliers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values without the last few distinct ones beyond a gap wider than all others."""
    unique = np.unique(values)
    if len(unique) < _MIN_UNIQUE:
        return values
    steps, k = np.diff(unique), _OUTLIERS
    span = unique[-1 - k] - unique[k]
    below, above = np.flatnonzero(steps[:k] > span), np.flatnonzero(steps[-k:] > span)
    low = unique[below[-1] + 1] if len(below) else unique[0]
    high = unique[len(steps) - k + above[0]] if len(above) else unique[-1]
    return values[(values >= low) & (values <= high)]


def share_outside(values: NDArray[Any], black: Any, white: Any) -> float:
    """Return the share of values outside black and white, without the smallest and largest value.

    These two may be padding or saturated pixels, which are black or white in any case.
    """
    below = (values < black) & (values > values.min())
    above = (values > white) & (values < values.max())
    return float((below | above).mean())


def check_scale(outside: Sequence[float], black_white: BlackWhite) -> None:
    """Check that images have the scale of a given black and white."""
    share = sum(outside) / max(len(outside), 1)
    if share > _MAX_OUTSIDE:
        ranges = np.array(black_white).reshape(-1, 2)
        black, white = ranges[:, 0].min(), ranges[:, 1].max()
        raise ValueError(
            f"{share:.0%} of the values of {len(outside)} images are outside {black:.7g} to "
            f"{white:.7g}, which are black and white here: bring them to that scale"
        )
