"""Alignment and uniformity of features on the unit sphere.

Wang and Isola (2020), "Understanding contrastive representation learning through alignment and
uniformity on the hypersphere", section 4. Features are normalized to length 1 first.
"""

import torch
from torch import Tensor

from widefield.metrics.spectrum import Spectrum, spectrum_of

_PAIRS = 2**24
"""Maximum number of distances in memory: 128 MiB."""


def alignment(first: Tensor, second: Tensor) -> float:
    """Return the mean of |u_i - v_i|^2 over pairs of rows u, v of length 1: 0 if views agree.

    Both are [n, D]. Raises `ValueError` for features that are not finite, or of two shapes.

    Example:
        >>> alignment(torch.eye(3), 5 * torch.eye(3)), alignment(torch.eye(2), -torch.eye(2))
        (0.0, 4.0)
    """
    u, v = spectrum_of(first).unit, spectrum_of(second).unit
    if u.shape != v.shape:
        raise ValueError(
            f"features have shapes {list(u.shape)} and {list(v.shape)}: give two views of each "
            "example, in one order"
        )
    return float((u - v).square().sum(1).mean())


def uniformity(h: Tensor | Spectrum) -> float:
    """Return log of the mean of exp(-2 |u_i - u_j|^2) over pairs i != j of rows of length 1.

    It lies between -8 and 0: equal rows give 0, a uniform distribution on a sphere of many
    dimensions gives -4. Raises `ValueError` for anything but finite features [n, D] with n >= 2.

    Example:
        >>> uniformity(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]))
        -8.0
    """
    u = spectrum_of(h).unit
    squares = u.square().sum(1)  # 1, or 0 for a row of zeros
    total = u.new_zeros(())
    rows = max(1, _PAIRS // len(u))
    for start in range(0, len(u), rows):
        part = slice(start, start + rows)
        distance = squares[part, None] + squares - 2 * u[part] @ u.T
        row = torch.arange(len(distance), device=u.device)
        distance[row, start + row] = torch.inf  # exclude pairs of a row with itself
        total += (-2 * distance).exp().sum()
    return float((total / (len(u) * (len(u) - 1))).log())
