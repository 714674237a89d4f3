"""`+digits`, a handwritten digit at four positions of the image, and `+stacked-digits`.

A white digit, 10 of 32 pixels high, is drawn at x, y in {4, 16}; its zeros are transparent.
`jitter=J` (ours) shifts all four by one sample from -J..J in each direction: at fixed positions, a
linear classifier on pixels finds the digit. Held-out digits are other images.

`+stacked-digits` is a digit of the class of the example, in an additional channel. Image and digit
have the same class, but the digit is far easier. An encoder that learned only the easier feature
fails when the channel is empty (`masked`).

Sources: Tamkin et al., "Feature Dropout" (2022), section 3.1; S-DIET (2025), section 6.1.1.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Interval
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from widefield.core import rng
from widefield.data.planted.overlay import (
    Alpha,
    Canvas,
    ImageFeature,
    Overlay,
    RelativeSize,
    scaled,
)

# Pixels of an image of 32, scaled for others: the largest digits stay inside at a jitter of 4.
_SIDE = 10
_CORNERS = [(y, x) for y in (4, 16) for x in (4, 16)]
_HELD_OUT_SHARE = 0.2  # as of a split of examples


class DigitPack(NamedTuple):
    """Gray digits to draw."""

    images: NDArray[np.uint8]
    """[m, h, w]."""
    labels: NDArray[np.int64]
    """Class id of each, [m]."""
    classes: tuple[str, ...]
    """Class names."""


@dataclass(frozen=True, kw_only=True)
class Digits(ImageFeature):
    name: ClassVar[str] = "digits"

    alpha: Alpha = 1.0
    color: Literal["fixed", "random"] = "fixed"
    fresh: bool = False
    # A shift of 5 pixels would move digits out of an image of 32.
    jitter: Annotated[int, Interval(ge=0, le=4), "pixels"] = 0
    size: RelativeSize = 1.0
    source: str | None = None
    """A `.npz` pack of gray digits; default: the digits of scikit-learn."""

    @classmethod
    def levels(cls) -> "tuple[Digits, ...]":
        return (
            cls(size=0.8, alpha=0.6, color="random", jitter=4),
            cls(color="random", jitter=4),
            cls(size=1.2, color="random", jitter=4),
            cls(size=1.2, jitter=4),
            cls(size=1.2, jitter=0),
        )

    def draw(self, canvas: Canvas, pack: DigitPack | None = None) -> Overlay:
        """Return an overlay with a sprite for each digit of the pool; `source` holds the pack."""
        canvas.check(self.name)
        pack = pack or _default_digits()
        pool = digit_pool(pack.images, canvas.held_out)
        _check_classes(pack, pool, np.unique(pack.labels), self.source)
        height, width = canvas.size
        side = scaled(self.size * _SIDE, min(canvas.size))
        sprites = _resized(pack.images[pool], (side, side))
        low = np.array(
            [(scaled(y - self.jitter, height), scaled(x - self.jitter, width)) for y, x in _CORNERS]
        )
        # Position and size are rounded separately and might exceed the image by a pixel.
        low = np.minimum(low, np.array(canvas.size) - side)
        free = (np.array(canvas.size) - side - low).min(0) + 1
        ranges = np.minimum(1 + 2 * scaled(self.jitter, min(canvas.size)), free)
        return self.overlay(
            canvas,
            pack.classes,
            (sprites > 0).astype(np.float32),
            intensity=sprites.astype(np.float32) / np.float32(255),
            sprite_class=pack.labels[pool],
            places=low,
            jitter_range=np.tile(ranges.astype(np.int64), (len(_CORNERS), 1)),
            shared_offset=True,
        )


def _default_digits() -> DigitPack:
    from sklearn.datasets import load_digits

    data = load_digits()
    # Values of scikit-learn's digits are 0 to 16.
    gray = np.round(data.images * (255 / 16)).astype(np.uint8)
    return DigitPack(gray, data.target.astype(np.int64), tuple("0123456789"))


def digit_pool(images: NDArray[np.uint8], held_out: bool) -> NDArray[np.int64]:
    """Return the digit images of a pool, 80 / 20 by a hash of their pixels.

    The hash keeps copies of an image in the same pool.
    """
    share = rng.hash_items(image.tobytes() for image in images) / 2.0**64
    return np.flatnonzero((share < _HELD_OUT_SHARE) == held_out)


def _check_classes(
    pack: DigitPack, pool: NDArray[np.int64], needed: NDArray[np.int64], source: str | None
) -> None:
    missing = np.setdiff1d(needed, pack.labels[pool])
    if len(missing):
        raise ValueError(
            f"'{source}' has too few digits of class {pack.classes[missing[0]]!r}: a fifth of all, "
            "by a hash, is held out, and none is left on one side; give a pack with more of them"
        )


def _resized(digits: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return digits [n, h, w] at a size, [n, H, W]."""
    images = (Image.fromarray(digit) for digit in digits)
    return np.stack([np.asarray(i.resize(size[::-1], Image.Resampling.BICUBIC)) for i in images])


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
    name: ClassVar[str] = "stacked-digits"

    masked: bool = False
    """Leave the channel empty."""
    source: str | None = None
    """A `.npz` pack of gray digits; default: the digits of scikit-learn."""

    def draw(self, canvas: Canvas, pack: DigitPack | None = None) -> DigitChannel:
        """Return a digit for each example of the canvas; `source` holds the pack."""
        pack = pack or _default_digits()
        most = len(pack.classes)
        if canvas.class_ids is None or not 1 <= canvas.class_count <= most:
            raise ValueError(
                f"'+{self.name}' draws a digit of the class of each image: the images have "
                f"{canvas.class_count or 'no'} classes, expected 1 to {most}"
            )
        pool = digit_pool(pack.images, canvas.held_out)
        if not self.masked:
            _check_classes(pack, pool, np.arange(canvas.class_count), self.source)
        pool = pool[np.argsort(pack.labels[pool], kind="stable")]
        return DigitChannel(
            digits=_resized(pack.images[pool], canvas.size),
            first=np.searchsorted(pack.labels[pool], np.arange(most + 1)),
            class_ids=canvas.class_ids,
            seed=canvas.seed,
            held_out=canvas.held_out,
            masked=self.masked,
        )
