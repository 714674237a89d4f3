"""Stored images of 8 bits, 16 bits or floats: their white, and the way from and to [0, 1]."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def white_of(dtype: Any) -> float:
    """Return the stored value of white in images of this type."""
    dtype = np.dtype(dtype)
    return 1.0 if dtype.kind == "f" else float(np.iinfo(dtype).max)


def to_storage(x: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return images in [0, 1] as they are stored in this type."""
    if np.dtype(dtype).kind == "f":
        return x.astype(dtype)
    return np.rint(x * white_of(dtype)).astype(dtype)


def to_bytes(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return stored images of any type in 8 bits, for pictures."""
    if images.dtype == np.uint8:
        return images
    return to_storage(images.astype(np.float32) / white_of(images.dtype), np.uint8)
