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

from widefield.data import draws
from widefield.data.dataset import Dataset
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
            self.first[own] + draws.integers(self.seed, stream, index, count)
        ]
        return drawn


def stacked_digits(
    dataset: Dataset, *, source: str | None, seed: int, held_out: bool, masked: bool
) -> StackedDigits:
    """Prepare a digit for every example of `dataset`, by its first task.

    Raises:
        ValueError: the data have no classes, or more than there are digits.

    Example:
        >>> labels = np.array([3, 1])
        >>> data = Dataset(
        ...     spec="memory", images=np.zeros((2, 8, 8, 3), np.uint8), paths=["a", "b"],
        ...     labels={"class": labels}, classes={"class": tuple("wxyz")},
        ... )
        >>> stacked_digits(data, source=None, seed=0, held_out=False, masked=False).draw([1]).shape
        (1, 8, 8)
    """
    images, labels, names = digit_source(source)
    own = set(dataset.labels) - {overlay.name for overlay in dataset.planted}
    tasks = [task for task in dataset.labels if task in own]
    if not tasks or len(dataset.classes[tasks[0]]) > len(names):
        found = f"{len(dataset.classes[tasks[0]])} classes" if tasks else "no classes"
        raise ValueError(
            f"'+{NAME}' puts a digit of its own class on each image: {dataset.spec} has {found}, "
            f"expected 1 to {len(names)}"
        )
    pool = digit_pool(images, held_out)
    pool = pool[np.argsort(labels[pool], kind="stable")]
    height, width = dataset.images.shape[1:3]
    digits = [
        np.asarray(Image.fromarray(images[i]).resize((width, height), Image.Resampling.BICUBIC))
        for i in pool
    ]
    return StackedDigits(
        digits=np.stack(digits),
        first=np.searchsorted(labels[pool], np.arange(len(names) + 1)),
        class_ids=dataset.labels[tasks[0]],
        seed=seed,
        held_out=held_out,
        masked=masked,
    )
