"""Features of any scale: divided by a power of two first, which changes no digit of them.

Squares of float32 overflow above 1e19 and vanish below 1e-23, and encoders without a normalization
at their end give such features.
"""

import torch
from torch import Tensor


def power_of_two(size: Tensor) -> Tensor:
    """Return the power of two just below each of these sizes >= 0; 1/2 for 0.

    Example:
        >>> power_of_two(torch.tensor([1.0, 7.0, 0.3]))
        tensor([1.0000, 4.0000, 0.2500])
    """
    return torch.ldexp(torch.ones_like(size), size.frexp().exponent - 1)


def near_one(h: Tensor) -> Tensor:
    """Return h [n, D] with each row times a power of two: its largest magnitude is in [1, 2).

    Rows of zeros stay.

    Example:
        >>> near_one(torch.tensor([[0.0, 3e30], [-3.0, 1.0], [0.0, 0.0]]))
        tensor([[ 0.0000,  1.1833],
                [-1.5000,  0.5000],
                [ 0.0000,  0.0000]])
    """
    return h / power_of_two(h.abs().amax(1, keepdim=True))


def unit_rows(h: Tensor) -> Tensor:
    """Return h [n, D] with each row scaled to length 1, whatever its length; rows of zeros stay.

    Example:
        >>> unit_rows(torch.tensor([[3e-30, 4e-30], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    near = near_one(h)
    # In place, for there may be millions of rows. No row but one of zeros is shorter than 1 here.
    return near.div_(near.norm(dim=1, keepdim=True).clamp(min=1))
