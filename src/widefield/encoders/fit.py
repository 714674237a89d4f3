"""Which sizes of images an encoder can take, found by a pass that computes shapes alone."""

from collections.abc import Callable

import torch

from widefield.core.types import Size
from widefield.encoders.encoder import Encoder

_SIDES = (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 240, 256, 288, 299, 320, 384, 448, 512)
"""Sides of square images that are tried where the wanted size does not fit."""


def fitting_width(build: Callable[[Size], Encoder], size: Size) -> int:
    """Return D, the width of the features of images of `size`, without drawing any weights.

    Args:
        build: returns the encoder for a size of images.
        size: height and width, pixels.

    Raises:
        ValueError: the encoder cannot take that size; the message names the nearest that fits.
    """
    tried = _tried(build, size)
    if not isinstance(tried, str):
        return tried.dim
    sides = sorted(_SIDES, key=lambda side: abs(side - max(size)))
    fits = next((side for side in sides if not isinstance(_tried(build, (side, side)), str)), None)
    remedy = "choose another encoder" if fits is None else f"choose an image_size such as {fits}"
    raise ValueError(f"the encoder cannot take images of {size[0]}x{size[1]} ({tried}): {remedy}")


def _tried(build: Callable[[Size], Encoder], size: Size) -> Encoder | str:
    """Return the encoder if two images of `size` come through it, else why they do not."""
    try:
        with torch.device("meta"):
            encoder = build(size)
            if encoder.spectrogram is None:  # one of sounds takes its spectrograms' own size
                encoder(torch.empty(2, encoder.config.channels, *size))
    except (AssertionError, RuntimeError) as error:  # what torch and timm say of sizes
        return (str(error).splitlines() or ["it has no layer for them"])[0][:80]
    return encoder
