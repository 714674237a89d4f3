"""Planted features: something drawn over or beside each image, with a label of its own.

An encoder that learns only the easier of two features of an image shows it here, because the
planted one is known. Positions are stated for 32 pixels and scale with the image; each plant's file
says which of them are published. Options grade how easy a plant is to see (ours): `size` scales it,
`color=fixed` is white and `color=random` a random one, `place=fixed` puts it at the same place in
every image (digits have `jitter=0` for that).

Held-out plants mean the same classes but come from other sources: digits from images of their own,
letters in another face, and all colors and places from another random stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.data.planted.digits import Digits as Digits
from widefield.data.planted.heard import Background as Background
from widefield.data.planted.heard import Clicks as Clicks
from widefield.data.planted.heard import Tone as Tone
from widefield.data.planted.letters import Letters as Letters
from widefield.data.planted.options import read_options
from widefield.data.planted.overlay import Canvas as Canvas
from widefield.data.planted.overlay import ImageOverlay as ImageOverlay
from widefield.data.planted.overlay import Overlay as Overlay
from widefield.data.planted.shapes import Shapes as Shapes
from widefield.data.planted.sounds import AudioOverlay as AudioOverlay
from widefield.data.planted.sounds import SoundOverlay as SoundOverlay
from widefield.data.planted.stacked import DigitChannel as DigitChannel
from widefield.data.planted.stacked import StackedDigits as StackedDigits

Feature = ImageOverlay | StackedDigits | AudioOverlay

_CLASSES: tuple[type[Feature], ...] = (
    Digits,
    Shapes,
    Letters,
    StackedDigits,
    Background,
    Tone,
    Clicks,
)

PLANTS = {kind.name: kind for kind in _CLASSES}
"""Every feature of images and sounds by name; its fields are the options that it takes."""


def read_plant(name: str, texts: Mapping[str, str]) -> Feature:
    """Return the plant `name` with the options that `texts` gives, option -> value as typed.

    Raises:
        ValueError: an unknown name or option, or a value that is not allowed.

    Example:
        >>> read_plant("digits", {"jitter": "2"}).jitter
        2
    """
    if name not in PLANTS:
        matches = get_close_matches(name, PLANTS, n=1)
        hint = f"did you mean '{matches[0]}'? Known" if matches else "known"
        raise ValueError(f"no planted feature named '{name}'; {hint}: {', '.join(PLANTS)}")
    return read_options(PLANTS[name], name, texts)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Images with a planted feature, and the truth about it."""

    images: NDArray[np.uint8]
    """uint8 [n, H, W, C]."""
    labels: NDArray[np.int64]
    """Class id of what was planted in each, int64 [n]."""
    classes: tuple[str, ...]
    mask: NDArray[np.bool_]
    """Pixels that the overlay covers, at least in part, bool [n, H, W]."""


def plant(
    images: NDArray[np.uint8],
    feature: ImageOverlay,
    *,
    seed: int = 0,
    index: ArrayLike | None = None,
    held_out: bool = False,
) -> Planted:
    """Draw a feature over a copy of `images`, uint8 [n, H, W, C] with C of 1 or 3.

    `index` [n] are the examples' indices (default 0..n-1): the same index always gets the same
    overlay.

    Raises:
        ValueError: images of another kind, or smaller than 16 pixels.

    Example:
        >>> planted = plant(np.zeros((4, 32, 32, 3), np.uint8), Digits(alpha=0.5))
        >>> planted.labels.shape, bool(planted.mask.any())
        ((4,), True)
    """
    height, width, channels = images.shape[1:]
    overlay = feature.draw(Canvas(shape=(height, width, channels), seed=seed, held_out=held_out))
    positions = np.arange(len(images)) if index is None else np.asarray(index)
    if positions.shape != (len(images),):
        raise ValueError(
            f"index has shape {positions.shape}; expected one for each of {len(images)} images"
        )
    drawn = np.array(images, order="C")
    mask = overlay.paint(drawn, positions)
    return Planted(
        images=drawn, labels=overlay.labels(positions), classes=overlay.classes, mask=mask
    )
