"""A digit of the example's own class in a channel of its own, stacked on the image's.

Image and digit tell the same class, the digit far more easily: an encoder that drops the harder of
two features shows it as soon as the digit's channel is empty (`masked`). A pure function of
(seed, index, held_out); held-out digits are images of their own.

Source: S-DIET (2025), section 6.1.1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from widefield.core import rng
from widefield.data.overlays import digit_pool, digit_source

NAME = "stacked-digits"


@dataclass(frozen=True, kw_only=True)
class StackedDigits:
    """Which digit belongs to which example."""

    digits: NDArray[np.uint8]
    """All digits of the pool, class by class, [digits, H, W]."""
    first: NDArray[np.int64]
    """Where the digits of each class begin, and where the last ones end, [classes + 1]."""
    class_ids: NDArray[np.int64]
    """Class of each example, [n]."""
    seed: int
    held_out: bool
    masked: bool
    """Whether the channel is left empty."""

    def draw(self, index: ArrayLike) -> NDArray[np.uint8]:
        """Return the last channel of the examples `index`, uint8 [k, H, W]."""
        index = np.asarray(index)
        if self.masked:
            return np.zeros((len(index), *self.digits.shape[1:]), dtype=np.uint8)
        own = self.class_ids[index]
        stream = f"{NAME}/{'held out' if self.held_out else 'train'}"
        count = self.first[own + 1] - self.first[own]
        drawn: NDArray[np.uint8] = self.digits[
            self.first[own] + rng.integers(self.seed, stream, index, count)
        ]
        return drawn


def stacked_digits(
    class_ids: NDArray[np.int64],
    *,
    classes: int,
    size: tuple[int, int],
    source: str | None,
    seed: int,
    held_out: bool,
    masked: bool,
) -> StackedDigits:
    """Prepare a digit of `size` pixels for every example, class_ids [n] of `classes`.

    Raises:
        ValueError: the data have no classes, or more than there are digits.

    Example:
        >>> digits = stacked_digits(
        ...     np.array([3, 1]), classes=4, size=(8, 8),
        ...     source=None, seed=0, held_out=False, masked=False,
        ... )
        >>> digits.draw([1]).shape
        (1, 8, 8)
    """
    images, labels, names = digit_source(source)
    if not 1 <= classes <= len(names):
        raise ValueError(
            f"'+{NAME}' puts a digit of its own class on each image: the images have "
            f"{classes or 'no'} classes, expected 1 to {len(names)}"
        )
    pool = digit_pool(images, held_out)
    pool = pool[np.argsort(labels[pool], kind="stable")]
    height, width = size
    digits = [
        np.asarray(Image.fromarray(images[i]).resize((width, height), Image.Resampling.BICUBIC))
        for i in pool
    ]
    return StackedDigits(
        digits=np.stack(digits),
        first=np.searchsorted(labels[pool], np.arange(len(names) + 1)),
        class_ids=class_ids,
        seed=seed,
        held_out=held_out,
        masked=masked,
    )
