"""Image sizes that an encoder can take, found by a forward pass without data."""

from collections.abc import Callable

import torch

from widefield.core.errors import option
from widefield.core.types import Size
from widefield.encoders.encoder import Encoder

_SIDES = (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 240, 256, 288, 299, 320, 384, 448, 512)
"""Sides of square images that are tried if a size does not fit."""


def infer_dim(build: Callable[[Size], Encoder], size: Size) -> int:
    """Return D, the width of the features of images of `size`, without drawing any weights.

    Raises:
        ValueError: the encoder cannot take that size; the message names the nearest that fits.
    """
    result = _try_size(build, size)
    if not isinstance(result, str):
        return result.dim
    sides = sorted(_SIDES, key=lambda side: abs(side - max(size)))
    nearest = (side for side in sides if not isinstance(_try_size(build, (side, side)), str))
    side = next(nearest, None)
    hint = (
        "choose another encoder"
        if side is None
        else f"choose {option('image_size', side)}, for example"
    )
    raise ValueError(f"the encoder cannot take images of {size[0]}x{size[1]} ({result}): {hint}")


def _try_size(build: Callable[[Size], Encoder], size: Size) -> Encoder | str:
    """Return the encoder if it takes two images of `size`, else the reason as text."""
    try:
        with torch.device("meta"):
            encoder = build(size)
            if encoder.spectrogram is None:  # which has a constant size
                encoder(torch.empty(2, encoder.config.channels, *size))
    except (AssertionError, RuntimeError) as error:  # of torch and timm
        return (str(error).splitlines() or ["it has no layer for them"])[0][:80]
    return encoder
