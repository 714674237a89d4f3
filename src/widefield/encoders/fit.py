"""Which sizes of images an encoder can take, found by a pass that computes shapes alone."""

from collections.abc import Callable

import torch

from widefield.core.types import Size
from widefield.encoders.encoder import Encoder

_SIDES = (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 240, 256, 288, 299, 320, 384, 448, 512)
"""Sides of square images that are tried where the wanted size does not fit."""


def infer_dim(build: Callable[[Size], Encoder], size: Size) -> int:
    """Return D, the width of the features of images of `size`, without drawing any weights.

    Args:
        build: returns the encoder for a size of images.
        size: height and width, pixels.

    Raises:
        ValueError: the encoder cannot take that size; the message names the nearest that fits.
    """
    result = _try_size(build, size)
    if not isinstance(result, str):
        return result.dim
    sides = sorted(_SIDES, key=lambda side: abs(side - max(size)))
    nearest = (side for side in sides if not isinstance(_try_size(build, (side, side)), str))
    side = next(nearest, None)
    hint = "choose another encoder" if side is None else f"choose an image_size such as {side}"
    raise ValueError(f"the encoder cannot take images of {size[0]}x{size[1]} ({result}): {hint}")


def _try_size(build: Callable[[Size], Encoder], size: Size) -> Encoder | str:
    """Return the encoder if two images of `size` come through it, else why they do not."""
    try:
        with torch.device("meta"):
            encoder = build(size)
            if encoder.spectrogram is None:  # one of sounds takes its spectrograms' own size
                encoder(torch.empty(2, encoder.config.channels, *size))
    except (AssertionError, RuntimeError) as error:  # what torch and timm say of sizes
        return (str(error).splitlines() or ["it has no layer for them"])[0][:80]
    return encoder
