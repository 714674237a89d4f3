"""Planted features: an overlay on each image or sound, with its own label.

They show whether an encoder learns only the easier of two features. Positions are given for 32
pixels and scale with the image; the file of each feature says which are published. Options set how
easy a feature is to see (ours): `size` scales it, `color` is white (`fixed`) or `random`,
`place=fixed` uses the same position in each image (`jitter=0` for digits).

Held-out features have the same classes but other sources: other images of digits, another typeface
of letters, and another random stream of colors and positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widefield.data.planted.audio import Background as Background
from widefield.data.planted.audio import Clicks as Clicks
from widefield.data.planted.audio import Tone as Tone
from widefield.data.planted.bits import BitPlanes as BitPlanes
from widefield.data.planted.bits import Bits as Bits
from widefield.data.planted.digits import Digits as Digits
from widefield.data.planted.letters import Letters as Letters
from widefield.data.planted.options import read_options
from widefield.data.planted.overlay import Canvas as Canvas
from widefield.data.planted.overlay import ImageFeature as ImageFeature
from widefield.data.planted.overlay import Overlay as Overlay
from widefield.data.planted.shapes import Shapes as Shapes
from widefield.data.planted.sounds import AudioFeature as AudioFeature
from widefield.data.planted.sounds import SoundOverlay as SoundOverlay
from widefield.data.planted.stacked import DigitChannel as DigitChannel
from widefield.data.planted.stacked import StackedDigits as StackedDigits

Feature = ImageFeature | StackedDigits | Bits | AudioFeature

_CLASSES: tuple[type[Feature], ...] = (
    Digits,
    Shapes,
    Letters,
    StackedDigits,
    Bits,
    Background,
    Tone,
    Clicks,
)

PLANTS = {kind.name: kind for kind in _CLASSES}
"""Every feature of images and sounds by name; its fields are the options that it takes."""


def read_plant(name: str, texts: Mapping[str, str]) -> Feature:
    """Return the feature `name` with options `texts`, option -> value as text.

    Raises:
        ValueError: an unknown name or option, or an invalid value.

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
    """Images with a planted feature, its labels and masks."""

    images: NDArray[np.uint8]
    """uint8 [n, H, W, C]."""
    labels: NDArray[np.int64]
    """Class id of the planted feature, int64 [n]."""
    classes: tuple[str, ...]
    mask: NDArray[np.bool_]
    """Pixels that the overlay covers at least partly, bool [n, H, W]."""


def plant(
    images: NDArray[np.uint8],
    feature: ImageFeature,
    *,
    seed: int = 0,
    index: ArrayLike | None = None,
    held_out: bool = False,
) -> Planted:
    """Draw a feature on a copy of `images`, uint8 [n, H, W, C] with C of 1 or 3.

    `index` [n] are the indices of the examples (default 0..n-1). Equal indices get equal overlays.

    Raises:
        ValueError: other channels, images smaller than 16 pixels, or an index of another shape.

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
    result = np.array(images, order="C")
    mask = overlay.apply(result, positions)
    return Planted(
        images=result, labels=overlay.labels(positions), classes=overlay.classes, mask=mask
    )
