"""Resizing of arrays of images."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.core.center_fit import center_fit
from widefield.core.types import Fit, Size


def resize_array(images: NDArray[Any], size: Size, fit: Fit = "crop") -> NDArray[Any]:
    """Bring images [n, H, W, C], uint8 or floats, to a size by `fit`."""
    (height, width), (top, left) = center_fit(images.shape[1:3], size, fit)
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    x = torch.nn.functional.interpolate(x, size=(height, width), mode="bicubic", antialias=True)
    # A negative width of a border cuts.
    borders = (-left, left + size[1] - width, -top, top + size[0] - height)
    x = torch.nn.functional.pad(x, borders)
    return np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
