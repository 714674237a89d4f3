"""Dark, over-exposed, blurry, low-information and odd-sized images, from pixels and file sizes.

With g the gray value of a pixel in [0, 1], the measures of an image are

    dark              the 99th percentile of g, at most 0.32
    over-exposed      the 5th percentile of g, at least 0.95
    low-information   the entropy of the histogram of g with 256 bins, at most 3 bits
    blurry            std(Laplacian of g) / std(g), no limit of its own: it depends on the size
    odd-sized         sqrt(width height), 10 times the median or a tenth; or width / height,
                      0.35 times the median or its inverse

The limits are those of CleanVision (Cleanlab 2022). Where all images of a kind are dark or plain,
as digits are, that is no fault: except for sizes, an image is listed only if its measure is also
more than 3.5 robust deviations from the median (Iglewicz and Hoaglin 1993).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.pixels import to_bytes

# Chosen by hand: gray values of a chunk are floats.
_CHUNK = 512
_DEVIATIONS = 3.5
_DARK, _BRIGHT, _ENTROPY = 0.32, 0.95, 3.0
_SIZE, _ASPECT = 10.0, 1 / 0.35
_PLAIN = 2 / 255
"""Standard deviation of gray values up to which an image has no edges to be blurry."""

_Floats = NDArray[np.floating]


def image_quality(images: NDArray[Any], sizes: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return kind -> rows of stored images [n, H, W, C] of poor quality, the most extreme first.

    `sizes` are width and height of the files, [n, 2].
    """
    chunks = [_measures(to_bytes(images[i : i + _CHUNK])) for i in range(0, len(images), _CHUNK)]
    high, low, entropy, sharpness = np.concatenate(chunks, axis=1)
    blur = np.log(sharpness)
    known = blur[~np.isnan(blur)]
    median = np.median(known) if len(known) else 0.0
    size = np.log(np.sqrt(sizes.prod(1)))
    aspect = np.log(sizes[:, 0] / sizes[:, 1])
    odd = np.maximum(_away(size) / np.log(_SIZE), _away(aspect) / np.log(_ASPECT))
    return {
        "dark": _unusual(-high, -_DARK),
        "over-exposed": _unusual(low, _BRIGHT),
        "blurry": _unusual(-np.where(np.isnan(blur), median, blur), -np.inf),
        "low-information": _unusual(-entropy, -_ENTROPY),
        "odd-sized": _descending(odd, odd >= 1),
    }


def _measures(images: NDArray[np.uint8]) -> _Floats:
    """Return 99th and 5th percentile, entropy and sharpness of each image, [4, n]."""
    gray = images[..., :3].mean(-1, dtype=np.float32) / 255
    flat = gray.reshape(len(gray), -1)
    low, high = np.percentile(flat, (5, 99), axis=1)
    bins = np.round(255 * flat).astype(np.int64) + 256 * np.arange(len(flat))[:, None]
    share = np.bincount(bins.ravel(), minlength=256 * len(flat)).reshape(-1, 256) / flat.shape[1]
    entropy = -(share * np.log2(np.where(share > 0, share, 1))).sum(1)
    return np.stack([high, low, entropy, _sharpness(gray)])


def _sharpness(gray: NDArray[Any]) -> _Floats:
    """Return std(Laplacian) / std of each image [n, H, W]; NaN for one without edges."""
    deviation = gray.std((1, 2))
    if min(gray.shape[1:]) < 3:
        return np.full(len(gray), np.nan)
    inner = gray[:, 1:-1, 1:-1]
    neighbors = gray[:, :-2, 1:-1] + gray[:, 2:, 1:-1] + gray[:, 1:-1, :-2] + gray[:, 1:-1, 2:]
    edges = (neighbors - 4 * inner).std((1, 2))
    ratio = np.maximum(edges / np.maximum(deviation, _PLAIN), 1e-6)
    return np.where(deviation > _PLAIN, ratio, np.nan)


def _away(values: _Floats) -> _Floats:
    return np.abs(values - np.median(values))


def _unusual(values: _Floats, limit: float) -> NDArray[np.int64]:
    """Return where values are at least `limit` and far above the median, the highest first."""
    deviation = 1.4826 * float(np.median(_away(values)))
    # Where most values are equal the deviation is 0, and rounding alone would be far.
    far = values - np.median(values) > max(_DEVIATIONS * deviation, 1e-6)
    return _descending(values, far & (values >= limit))


def _descending(values: _Floats, selected: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows = np.flatnonzero(selected)
    return rows[np.argsort(-values[rows], kind="stable")]
