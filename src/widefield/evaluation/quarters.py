"""Do the quarters of an image know each other? What features tell of a whole from a part.

What two distant parts of an image share is what the image shows: its kind, its light, its texture,
and not the pixels of either. Features that tell of it put opposite quarters near each other.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from widefield.evaluation.cross_fit import Features
from widefield.evaluation.neighbors import RIDGE
from widefield.metrics import whitened

Images = NDArray[np.uint8]

OPPOSITE = ((0, 3), (1, 2))
"""Pairs of quarters that have one corner in common: above left, above right, below left, right."""
_ROUNDING = 1e-12
"""Cosines that differ by no more are equal: those of equal rows differ by the order of sums."""


def quarters_found(features: Features, images: Images, k: int) -> NDArray[np.float64]:
    """Return for each image how many of its quarters find the opposite one, a share, float64 [n].

    A quarter finds the opposite one if this is among the k nearest of the n that lie where it lies,
    by the cosine of features that all quarters whiten. By chance k / n do, and so many count where
    all are equally near, as in constant features.

    Args:
        features: images [n, H, W, C] -> h [n, D]; they are shown quarters as large as the images.
        images: uint8 [n, H, W, C], of 2 x 2 pixels or more.
        k: 1 to n.

    Example:
        >>> shades = np.arange(0, 200, 2, dtype=np.uint8)[:, None, None, None]
        >>> tinted = shades * np.ones((1, 8, 8, 3), dtype=np.uint8)
        >>> tinted[..., 1] = 255 - tinted[..., 1]
        >>> wave = lambda x: torch.from_numpy(x[:, 0, 0, 0] * 0.03)
        >>> on_circle = lambda x: torch.stack([wave(x).sin(), wave(x).cos()], 1)
        >>> float(quarters_found(on_circle, tinted, 1).mean())
        1.0
    """
    h = torch.cat([features(quarter) for quarter in _quarters(images)])
    (white,) = whitened(h, ridge=RIDGE)
    unit = functional.normalize(white, dim=1).chunk(4)
    pairs = [*OPPOSITE, *((b, a) for a, b in OPPOSITE)]
    return torch.stack([_found(unit[a], unit[b], k) for a, b in pairs]).mean(0).cpu().numpy()


def _quarters(images: Images) -> list[Images]:
    """Return the four quarters of each image, enlarged to the size of the image."""
    _, height, width, _ = images.shape
    rows, columns = (np.arange(side) // 2 for side in (height, width))
    corners = [(0, 0), (0, width // 2), (height // 2, 0), (height // 2, width // 2)]
    return [
        np.ascontiguousarray(images[:, top + rows[:, None], left + columns])
        for top, left in corners
    ]


def _found(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """Return how surely row i of `keys` is among the k nearest to row i of `queries`.

    Of keys that are equally near each is as likely the nearer one.
    """
    cosine = queries @ keys.T
    own = cosine.diagonal()[:, None]
    nearer = (cosine > own + _ROUNDING).sum(1)
    as_near = ((cosine - own).abs() <= _ROUNDING).sum(1)  # itself among them
    return ((k - nearer) / as_near).clamp(0, 1).double()
