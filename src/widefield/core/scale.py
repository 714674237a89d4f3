"""Scaling of features by powers of two, which is exact, so that squares stay in range.

Squares of float32 overflow above 1e19 and vanish below 1e-23, and encoders without a normalization
at their end give such features.
"""

import torch
from torch import Tensor


def power_of_two(size: Tensor) -> Tensor:
    """Return the largest power of two <= each size >= 0; 1/2 for 0."""
    return torch.ldexp(torch.ones_like(size), size.frexp().exponent - 1)


def scale_rows(h: Tensor) -> Tensor:
    """Return h [n, D], each row scaled by a power of two to a maximum magnitude in [1, 2).

    Rows of zeros are unchanged.
    """
    return h / power_of_two(h.abs().amax(1, keepdim=True))


def unit_rows(h: Tensor) -> Tensor:
    """Return h [n, D] with each row scaled to length 1; rows of zeros are unchanged."""
    scaled = scale_rows(h)
    # In place: there may be millions of rows. Only rows of zeros are shorter than 1 here.
    return scaled.div_(scaled.norm(dim=1, keepdim=True).clamp(min=1))
