"""Stored images of 8 bits, 16 bits or floats: their white, the way from and to [0, 1], and the
geometry of bringing them to a size, by default that of timm's `center` crop."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.types import Fit, Size


def white_of(dtype: Any) -> float:
    """Return the stored value of white in images of this type."""
    dtype = np.dtype(dtype)
    return 1.0 if dtype.kind == "f" else float(np.iinfo(dtype).max)


def stored(x: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return images in [0, 1] as they are stored in this type."""
    if np.dtype(dtype).kind == "f":
        return x.astype(dtype)
    return np.rint(x * white_of(dtype)).astype(dtype)


def to_bytes(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return stored images of any type in 8 bits, for pictures."""
    if images.dtype == np.uint8:
        return images
    return stored(images.astype(np.float32) / white_of(images.dtype), np.uint8)


FITS: dict[Fit, str] = {
    "crop": "by the shorter side, cut around the center",
    "pad": "by the longer side, padded with black",
    "squash": "whatever their shape",
}
"""How images are resized, in words."""


def center_fit(before: Size, size: Size, fit: Fit = "crop") -> tuple[Size, Size]:
    """Return (height, width) to resize an image to, and (top, left) of `size` in the result.

    - `crop`: the shorter side fits, and the longer one is cut.
    - `pad`: the longer side fits, and borders are added: (top, left) are negative.
    - `squash`: both sides fit, whatever the shape of the image.

    The other side is rounded down for squares, as by torchvision's `Resize`, and to the nearest for
    other sizes, as by timm's `ResizeKeepRatio`; the cut is that of torchvision's `CenterCrop`. So
    `timm.data.create_transform` does the same as `crop` to each pixel.
    """
    if fit == "squash":
        return size, (0, 0)
    (height, width), (target_height, target_width) = before, size
    nearest = min if fit == "crop" else max
    if target_height == target_width:
        side = nearest(before)
        resized = target_height * height // side, target_width * width // side
    else:
        ratio = nearest(height / target_height, width / target_width)
        resized = round(height / ratio), round(width / ratio)
    resized = max(resized[0], 1), max(resized[1], 1)
    top, left = ((resized[k] - size[k]) / 2 for k in range(2))
    return resized, (round(top), round(left))


def cut_share(before: Size, size: Size, fit: Fit = "crop") -> float:
    """Return the share of the area of an image that `center_fit` cuts off."""
    if fit != "crop":
        return 0.0
    (height, width), _ = center_fit(before, size)
    return 1 - size[0] * size[1] / (height * width)
