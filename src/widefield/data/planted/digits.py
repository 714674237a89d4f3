"""`+digits`: a handwritten digit at four positions of the image.

A white digit, 10 of 32 pixels high, is drawn at x, y in {4, 16}; its zeros are transparent.
`jitter=J` (ours) shifts all four by one sample from -J..J in each direction: at fixed positions, a
linear classifier on pixels finds the digit. Held-out digits are other images.

Source: the added features of Tamkin et al., "Feature Dropout" (2022), section 3.1.
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray
from PIL import Image

from widefield.data.planted.options import Alpha, RelativeSize
from widefield.data.planted.overlay import Canvas, ImageFeature, Overlay, scaled

_SIDE = 10
_CORNERS = [(y, x) for y in (4, 16) for x in (4, 16)]
_HELD_OUT_SHARE = 0.2


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
    """Options of `+digits`."""

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
        """Return five variants, from hard to easy to see."""
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
        images, labels, classes = pack or default_digits()
        pool = digit_pool(images, canvas.held_out)
        check_classes(labels, pool, np.unique(labels), classes, self.source)
        height, width = canvas.size
        side = scaled(self.size * _SIDE, min(canvas.size))
        sprites = np.stack([resized(images[i], (side, side)) for i in pool])
        low = np.array(
            [(scaled(y - self.jitter, height), scaled(x - self.jitter, width)) for y, x in _CORNERS]
        )
        # Position and size are rounded separately and might exceed the image by a pixel.
        low = np.minimum(low, np.array(canvas.size) - side)
        free = (np.array(canvas.size) - side - low).min(0) + 1
        ranges = np.minimum(1 + 2 * scaled(self.jitter, min(canvas.size)), free)
        return Overlay(
            name=self.name,
            classes=classes,
            alpha_mask=(sprites > 0).astype(np.float32),
            intensity=sprites.astype(np.float32) / np.float32(255),
            sprite_class=labels[pool],
            places=low,
            jitter_range=np.tile(ranges.astype(np.int64), (len(_CORNERS), 1)),
            shared_offset=True,
            colored=self.color == "random",
            alpha=self.alpha,
            seed=canvas.seed,
            held_out=canvas.held_out,
            fresh=self.fresh,
        )


def default_digits() -> DigitPack:
    """Return the digits of scikit-learn."""
    from sklearn.datasets import load_digits

    data = load_digits()
    gray = np.round(data.images * (255 / 16)).astype(np.uint8)
    return DigitPack(gray, data.target.astype(np.int64), tuple("0123456789"))


def digit_pool(images: NDArray[np.uint8], held_out: bool) -> NDArray[np.int64]:
    """Return the digit images of a pool, 80 / 20 by a hash of their pixels.

    The hash keeps copies of an image in the same pool.
    """
    hashes = [hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in images]
    share = np.frombuffer(b"".join(hashes), dtype="<u8") / 2.0**64
    return np.flatnonzero((share < _HELD_OUT_SHARE) == held_out)


def check_classes(
    labels: NDArray[np.int64],
    pool: NDArray[np.int64],
    needed: NDArray[np.int64],
    classes: tuple[str, ...],
    source: str | None,
) -> None:
    """Check that a pool of digits has all classes that are `needed`.

    Raises:
        ValueError: a class is missing.
    """
    missing = np.setdiff1d(needed, labels[pool])
    if len(missing):
        raise ValueError(
            f"'{source}' has too few digits of class {classes[missing[0]]!r}: a fifth of all, by a "
            "hash, is held out, and none is left on one side; give a pack with more of them"
        )


def resized(digit: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a gray digit uint8 [h, w] resized to `size`, (height, width)."""
    return np.asarray(Image.fromarray(digit).resize(size[::-1], Image.Resampling.BICUBIC))
