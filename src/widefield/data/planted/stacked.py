"""`+stacked-digits`: a digit of the class of the example, in an additional channel.

Image and digit have the same class, but the digit is far easier. An encoder that learned only the
easier feature fails when the channel is empty (`masked`). A function of (seed, index, held_out);
held-out digits are other images.

Source: S-DIET (2025), section 6.1.1.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.core import rng
from widefield.data.planted.digits import (
    DigitPack,
    check_classes,
    default_digits,
    digit_pool,
    resized,
)
from widefield.data.planted.overlay import Canvas


@dataclass(frozen=True, kw_only=True)
class DigitChannel:
    """The digit of each example, prepared as a channel of images of one size."""

    digits: NDArray[np.uint8]
    """Digits of the pool sorted by class, [digits, H, W]."""
    first: NDArray[np.int64]
    """Start of each class in `digits`, and the end of the last, [classes + 1]."""
    class_ids: NDArray[np.int64]
    """Class id of each example, [n]."""
    seed: int
    held_out: bool
    masked: bool
    """Whether the channel is empty."""
    count: ClassVar[int] = 1
    """Number of channels."""
    stream_index: NDArray[np.int64] | None = None
    """Index of each example in the random stream, int64 [n]; None: 0..n-1."""

    def subset(self, index: NDArray[np.int64]) -> "DigitChannel":
        """Return the channel of the examples `index`, renumbered from 0."""
        stream_index = index if self.stream_index is None else self.stream_index[index]
        return replace(self, class_ids=self.class_ids[index], stream_index=stream_index)

    def draw(self, index: ArrayLike) -> NDArray[np.uint8]:
        """Return the channel of the examples `index`, uint8 [k, H, W, 1]."""
        index = np.asarray(index)
        if self.masked:
            return np.zeros((len(index), *self.digits.shape[1:], 1), dtype=np.uint8)
        class_ids = self.class_ids[index]
        counter = index if self.stream_index is None else self.stream_index[index]
        stream = f"{StackedDigits.name}/{'held out' if self.held_out else 'train'}"
        count = self.first[class_ids + 1] - self.first[class_ids]
        digit = self.first[class_ids] + rng.integers(self.seed, stream, counter, count)
        images: NDArray[np.uint8] = self.digits[digit][..., None]
        return images


@dataclass(frozen=True, kw_only=True)
class StackedDigits:
    """Options of `+stacked-digits`."""

    name: ClassVar[str] = "stacked-digits"

    masked: bool = False
    """Leave the channel empty."""
    source: str | None = None
    """A `.npz` pack of gray digits; default: the digits of scikit-learn."""

    def draw(self, canvas: Canvas, pack: DigitPack | None = None) -> DigitChannel:
        """Return a digit for each example of the canvas; `source` holds the pack.

        Raises:
            ValueError: the data have no classes, or more classes than digits.

        Example:
            >>> y = np.array([3, 1])
            >>> canvas = Canvas(
            ...     shape=(8, 8, 3), seed=0, held_out=False, class_ids=y, class_count=4
            ... )
            >>> StackedDigits().draw(canvas).draw([1]).shape
            (1, 8, 8, 1)
        """
        images, labels, names = pack or default_digits()
        if canvas.class_ids is None or not 1 <= canvas.class_count <= len(names):
            raise ValueError(
                f"'+{self.name}' draws a digit of the class of each image: the images have "
                f"{canvas.class_count or 'no'} classes, expected 1 to {len(names)}"
            )
        pool = digit_pool(images, canvas.held_out)
        if not self.masked:
            check_classes(labels, pool, np.arange(canvas.class_count), names, self.source)
        pool = pool[np.argsort(labels[pool], kind="stable")]
        return DigitChannel(
            digits=np.stack([resized(images[i], canvas.size) for i in pool]),
            first=np.searchsorted(labels[pool], np.arange(len(names) + 1)),
            class_ids=canvas.class_ids,
            seed=canvas.seed,
            held_out=canvas.held_out,
            masked=self.masked,
        )
