"""Overlays on images: a sprite at one or several positions, with random class, color and offset.

An overlay is a function of (seed, index, held_out). With `fresh` it is resampled at each read of an
example, as published: a function of (seed, index, read, held_out). The views of one read share
their overlay.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from annotated_types import Interval
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from widefield.core import rng
from widefield.core.pixels import white_of

Alpha = Annotated[float, Interval(gt=0, le=1)]
"""Opacity."""
RelativeSize = Annotated[float, Interval(ge=0.5, le=1.2), "times the usual size"]
"""Scale; larger plants would touch each other or the border."""

_READ = 2**32  # above the number of examples
_CHUNK = 512  # examples that are drawn on at a time: their floats fit in the CPU cache
_SMALLEST_SIDE = 16  # pixels, chosen by hand
_LUMA = np.array([0.299, 0.587, 0.114])  # of ITU-R BT.601, as Pillow converts to gray

# Chosen by hand: the pixels of an edge have 65 levels of opacity.
OVERSAMPLING = 8
"""Factor by which sprites are drawn larger before they are reduced."""


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """Properties of the images or sounds that a feature is planted on."""

    shape: tuple[int, int, int]
    """Height, width and channels."""
    seed: int
    held_out: bool
    """Whether to use held-out sources."""
    class_ids: NDArray[np.int64] | None = None
    """Class id of each image in the first task, int64 [n]; None without a task."""
    class_count: int = 0
    """Number of classes of that task."""
    rate: int | None = None
    """Sampling rate, Hz, of sounds, which have height 1 and time as width."""

    @property
    def size(self) -> tuple[int, int]:
        return self.shape[:2]

    def sound_rate(self, name: str) -> int:
        if self.rate is None:
            raise ValueError(f"'+{name}' is planted in sounds; these are images or windows")
        return self.rate

    def check(self, name: str) -> None:
        """Check that the feature `name` can be drawn on these images."""
        if self.rate is not None:
            raise ValueError(
                f"'+{name}' is planted in images; these are sounds: choose tone, clicks or "
                "background"
            )
        height, width, channels = self.shape
        if channels not in (1, 3):
            raise ValueError(f"planted features need 1 or 3 channels; these images have {channels}")
        if min(height, width) < _SMALLEST_SIDE:
            raise ValueError(
                f"planted features need images of at least {_SMALLEST_SIDE} pixels a side; "
                f"these are {height}x{width}"
            )


@dataclass(frozen=True, kw_only=True)
class RandomOverlay:
    """Random choices as a function of (seed, index, held_out), and of the read if `fresh`."""

    name: str
    classes: tuple[str, ...]
    seed: int
    held_out: bool
    fresh: bool = False
    """Whether to resample at each read of an example."""
    stream_index: NDArray[np.int64] | None = None
    """Index of each example in the random stream, int64 [n]; None: 0..n-1."""

    def subset(self, index: NDArray[np.int64]) -> Self:
        """Return the overlay of the examples `index`, renumbered from 0."""
        return replace(
            self, stream_index=index if self.stream_index is None else self.stream_index[index]
        )

    def _counter(self, index: ArrayLike, read: int) -> NDArray[np.int64]:
        """Return the positions of the examples `index` in the random streams at this read."""
        index = np.asarray(index, dtype=np.int64)
        index = index if self.stream_index is None else self.stream_index[index]
        return index + (_READ * read if self.fresh else 0)

    def _draw(
        self, stream: str, counter: NDArray[np.int64], high: int | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        # The name of a stream determines its numbers, so it must not change.
        pool = "held out" if self.held_out else "train"
        return rng.integers(self.seed, f"{self.name}/{pool}/{stream}", counter, high)


@dataclass(frozen=True, kw_only=True)
class Overlay(RandomOverlay):
    """A planted feature prepared for images of one size."""

    alpha_mask: NDArray[np.float32]
    """Opacity of the pixels of each sprite, in [0, 1], [sprites, h, w]."""
    intensity: NDArray[np.float32]
    """Brightness of the pixels of each sprite, in [0, 1], [sprites, h, w]."""
    sprite_class: NDArray[np.int64]
    """Class id of each sprite, [sprites]."""
    places: NDArray[np.int64]
    """Smallest top and left of each position, [positions, 2]."""
    jitter_range: NDArray[np.int64]
    """Number of possible tops and lefts at each position, [positions, 2]."""
    shared_offset: bool
    """Whether all positions of an example share one offset."""
    colored: bool
    alpha: float

    def at_fixed_places(self) -> "Overlay":
        """Return the overlay with the central offset at each position."""
        middle = self.places + (self.jitter_range - 1) // 2
        return replace(self, places=middle, jitter_range=np.ones_like(self.jitter_range))

    def labels(self, index: ArrayLike, read: int = 0) -> NDArray[np.int64]:
        """Return the planted class id of each example of `index` at a read, int64 [n]."""
        return self.sprite_class[self._sprites(self._counter(index, read))]

    def mask(self, index: ArrayLike, size: tuple[int, int], read: int = 0) -> NDArray[np.bool_]:
        """Return the pixels that it covers at least partly, bool [n, H, W] for `size` (H, W)."""
        counter = self._counter(index, read)
        mask = np.zeros((len(counter), *size), dtype=np.bool_)
        covered = self.alpha_mask[self._sprites(counter)] > 0
        for k in range(len(self.places)):
            mask.reshape(-1)[self._pixels(counter, k, mask.shape)] |= covered
        return mask

    def apply(self, images: NDArray[Any], index: ArrayLike, read: int = 0) -> NDArray[np.bool_]:
        """Draw on stored `images` [n, H, W, C] in place; return the covered pixels [n, H, W].

        pixel <- pixel + alpha * alpha_mask * (intensity * color - pixel)
        """
        assert images.flags.c_contiguous
        counter = self._counter(index, read)
        mask = np.zeros(images.shape[:3], dtype=np.bool_)
        for first in range(0, len(images), _CHUNK):
            part = slice(first, first + _CHUNK)
            self._blend_chunk(images[part], mask[part], counter[part])
        return mask

    def _blend_chunk(
        self, images: NDArray[Any], mask: NDArray[np.bool_], counter: NDArray[np.int64]
    ) -> None:
        sprite = self._sprites(counter)
        alpha_mask = self.alpha_mask[sprite]
        covered = alpha_mask > 0
        color = self._colors(counter, images.shape[-1])
        color *= np.float32(white_of(images.dtype) / 255)
        target = self.intensity[sprite][..., None] * color[:, None, None, :]
        weight = np.float32(self.alpha) * alpha_mask[..., None]
        for k in range(len(self.places)):
            pixel = self._pixels(counter, k, images.shape)
            below = images.reshape(-1, images.shape[-1])[pixel].astype(np.float32)
            below += weight * (target - below)
            if images.dtype != np.float32:
                np.rint(below, out=below)
            images.reshape(-1, images.shape[-1])[pixel] = below
            mask.reshape(-1)[pixel] |= covered

    def _sprites(self, counter: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._draw("stamp", counter, len(self.sprite_class))

    def _colors(self, counter: NDArray[np.int64], channels: int) -> NDArray[np.float32]:
        if not self.colored:
            return np.full((len(counter), channels), 255, dtype=np.float32)
        # The name of the stream has the old spelling, because it determines the numbers.
        rgb = np.stack([self._draw(f"colour {c}", counter, 256) for c in "rgb"], axis=1)
        return (rgb @ _LUMA[:, None] if channels == 1 else rgb).astype(np.float32)

    def _pixels(
        self, counter: NDArray[np.int64], k: int, shape: tuple[int, ...]
    ) -> NDArray[np.int64]:
        """Return the pixels of a sprite as indices into the flattened [n, H, W], [n, h, w]."""
        stream = 0 if self.shared_offset else k
        (low_top, low_left), (top_range, left_range) = self.places[k], self.jitter_range[k]
        top = low_top + self._draw(f"top {stream}", counter, top_range)
        left = low_left + self._draw(f"left {stream}", counter, left_range)
        count, height, width = shape[:3]
        top_left = (np.arange(count) * height + top) * width + left
        down, right = (np.arange(length) for length in self.alpha_mask.shape[1:])
        pixels: NDArray[np.int64] = top_left[:, None, None] + down[:, None] * width + right
        return pixels


class ImageFeature(ABC):
    """The options of a feature that is drawn over images: the base of their dataclasses."""

    name: ClassVar[str]
    alpha: float
    color: Literal["fixed", "random"]
    fresh: bool

    @classmethod
    @abstractmethod
    def levels(cls) -> tuple[Self, ...]:
        """Return five variants, from hard to easy to see."""

    @abstractmethod
    def draw(self, canvas: Canvas) -> Overlay:
        """Draw a sprite of each class."""

    def overlay(
        self,
        canvas: Canvas,
        classes: tuple[str, ...],
        alpha_mask: NDArray[np.float32],
        *,
        places: NDArray[np.int64],
        jitter_range: NDArray[np.int64],
        intensity: NDArray[np.float32] | None = None,
        sprite_class: NDArray[np.int64] | None = None,
        shared_offset: bool = False,
    ) -> Overlay:
        """Return an overlay of these sprites, by default one for each class, as bright as white.

        The arrays are those of `Overlay`.
        """
        return Overlay(
            name=self.name,
            classes=classes,
            alpha_mask=alpha_mask,
            intensity=np.ones_like(alpha_mask) if intensity is None else intensity,
            sprite_class=np.arange(len(classes)) if sprite_class is None else sprite_class,
            places=places,
            jitter_range=jitter_range,
            shared_offset=shared_offset,
            colored=self.color == "random",
            alpha=self.alpha,
            seed=canvas.seed,
            held_out=canvas.held_out,
            fresh=self.fresh,
        )


def shrunk(canvas: Image.Image, side: int) -> NDArray[np.float32]:
    """Return the share of each pixel that an oversampled drawing covers, [side, side]."""
    small = canvas.resize((side, side), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


def scaled(at_32: float, length: int) -> int:
    """Return a length given for 32 pixels, scaled to an image of `length` pixels."""
    return round(at_32 * length / 32)
