"""`+stacked-digits`: a digit of the example's own class in a channel of its own.

Image and digit tell the same class, the digit far more easily: an encoder that drops the harder of
two features shows it as soon as the digit's channel is empty (`masked`). A pure function of
(seed, index, held_out); held-out digits are images of their own.

Source: S-DIET (2025), section 6.1.1.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.core import rng
from widefield.data.planted.digits import digit_pool, digit_source, refuse_missing, resized
from widefield.data.planted.overlay import Canvas


@dataclass(frozen=True, kw_only=True)
class DigitChannel:
    """Which digit belongs to which example, ready to be drawn as a channel."""

    digits: NDArray[np.uint8]
    """All digits of the pool, class by class, [digits, H, W]."""
    first: NDArray[np.int64]
    """Return where the digits of each class begin, and where the last ones end, [classes + 1]."""
    class_ids: NDArray[np.int64]
    """Class of each example, [n]."""
    seed: int
    held_out: bool
    masked: bool
    """Whether the channel is left empty."""
    drawn_as: NDArray[np.int64] | None = None
    """Index that each example is drawn under, int64 [n]; None: its own."""

    def subset(self, index: NDArray[np.int64]) -> "DigitChannel":
        """Return the channel of the examples `index` alone, numbered anew from 0."""
        drawn_as = index if self.drawn_as is None else self.drawn_as[index]
        return replace(self, class_ids=self.class_ids[index], drawn_as=drawn_as)

    def draw(self, index: ArrayLike) -> NDArray[np.uint8]:
        """Return the last channel of the examples `index`, uint8 [k, H, W]."""
        index = np.asarray(index)
        if self.masked:
            return np.zeros((len(index), *self.digits.shape[1:]), dtype=np.uint8)
        class_ids = self.class_ids[index]
        counter = index if self.drawn_as is None else self.drawn_as[index]
        stream = f"{StackedDigits.name}/{'held out' if self.held_out else 'train'}"
        count = self.first[class_ids + 1] - self.first[class_ids]
        digit = self.first[class_ids] + rng.integers(self.seed, stream, counter, count)
        images: NDArray[np.uint8] = self.digits[digit]
        return images


@dataclass(frozen=True, kw_only=True)
class StackedDigits:
    """Options of `+stacked-digits`."""

    name: ClassVar[str] = "stacked-digits"

    masked: bool = False
    """Leave the channel empty."""
    source: str | None = None
    """A `.npz` pack of gray digits; by default those that scikit-learn ships."""

    def draw(self, canvas: Canvas) -> DigitChannel:
        """Prepare a digit for every example of the canvas.

        Raises:
            ValueError: the data have no classes, or more than there are digits.

        Example:
            >>> y = np.array([3, 1])
            >>> canvas = Canvas(
            ...     shape=(8, 8, 3), seed=0, held_out=False, class_ids=y, class_count=4
            ... )
            >>> StackedDigits().draw(canvas).draw([1]).shape
            (1, 8, 8)
        """
        images, labels, names = digit_source(self.source)
        if canvas.class_ids is None or not 1 <= canvas.class_count <= len(names):
            raise ValueError(
                f"'+{self.name}' puts a digit of its own class on each image: the images have "
                f"{canvas.class_count or 'no'} classes, expected 1 to {len(names)}"
            )
        pool = digit_pool(images, canvas.held_out)
        if not self.masked:
            refuse_missing(labels, pool, np.arange(canvas.class_count), names, self.source)
        pool = pool[np.argsort(labels[pool], kind="stable")]
        return DigitChannel(
            digits=np.stack([resized(images[i], canvas.size) for i in pool]),
            first=np.searchsorted(labels[pool], np.arange(len(names) + 1)),
            class_ids=canvas.class_ids,
            seed=canvas.seed,
            held_out=canvas.held_out,
            masked=self.masked,
        )
