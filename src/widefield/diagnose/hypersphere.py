"""How features lie on the unit sphere: views of an image together, different images apart.

Wang and Isola (2020), "Understanding contrastive representation learning through alignment and
uniformity on the hypersphere", section 4. Features are brought to length 1 first.
"""

import torch
from torch import Tensor
from torch.nn import functional

from widefield.diagnose.spectrum import checked

_PAIRS = 2**24
"""Distances held at a time: 128 MiB."""


def alignment(first: Tensor, second: Tensor) -> float:
    """Mean |u_i - v_i|^2 over pairs of rows u, v of length 1, [n, D] each: 0 if views agree.

    Raises `ValueError` for features that are not finite, or of two shapes.

    Example:
        >>> alignment(torch.eye(3), 5 * torch.eye(3)), alignment(torch.eye(2), -torch.eye(2))
        (0.0, 4.0)
    """
    u, v = _unit(first), _unit(second)
    if u.shape != v.shape:
        raise ValueError(
            f"features have shapes {list(u.shape)} and {list(v.shape)}: give two views of each "
            "example, in one order"
        )
    return float((u - v).square().sum(1).mean())


def uniformity(h: Tensor) -> float:
    """log of the mean of exp(-2 |u_i - u_j|^2) over pairs i != j: 0 if all agree, about -4 spread.

    Between 0 and -8; a uniform distribution on a sphere of many dimensions gives -4. Raises
    `ValueError` for anything but finite features [n, D] with n >= 2.

    Example:
        >>> uniformity(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]))
        -8.0
    """
    u = _unit(h)
    total = u.new_zeros(())
    rows = max(1, _PAIRS // len(u))
    for start in range(0, len(u), rows):
        cosine = u[start : start + rows] @ u.T
        here = torch.arange(len(cosine), device=u.device)
        cosine[here, start + here] = -torch.inf  # no pair of a row with itself
        total += (4 * cosine - 4).exp().sum()  # |u - v|^2 = 2 - 2 u.v
    return float((total / (len(u) * (len(u) - 1))).log())


def _unit(h: Tensor) -> Tensor:
    return functional.normalize(checked(h), dim=1)
