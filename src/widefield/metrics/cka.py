"""Do two encoders, or two layers, hold the same thing? Linear centered kernel alignment."""

import torch
from torch import Tensor

from widefield.metrics.spectrum import checked


def linear_cka(first: Tensor, second: Tensor) -> float:
    """Return |Y'X|^2 / (|X'X| |Y'Y|) of centered features X [n, D], Y [n, E] of the same examples.

    It lies in [0, 1]: 1 if they agree up to rotation and scale, 0 if no direction of one follows
    one of the other. If n is near D or E, unrelated features come near 1 too: use n well above
    both. Kornblith et al. (2019), "Similarity of neural network representations revisited", section
    3. Raises `ValueError` for features that are not finite, of two lengths, or that do not vary.

    Example:
        >>> import torch
        >>> h = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> round(linear_cka(h, -3 * h.flip(1) + 7), 6)
        1.0
    """
    x, y = checked(first), checked(second)
    if len(x) != len(y):
        raise ValueError(
            f"features have {len(x)} and {len(y)} rows: give the same examples to both"
        )
    x, y = _centered(x), _centered(y)
    # |Y'X|^2 is also <XX', YY'>: take whichever matrices are smaller.
    if len(x) < max(x.shape[1], y.shape[1]):
        x, y = x @ x.T, y @ y.T
        cross, norms = (x * y).sum(), x.norm() * y.norm()
    else:
        cross = (y.T @ x).square().sum()
        norms = (x.T @ x).norm() * (y.T @ y).norm()
    return float(cross / norms)


def _centered(h: Tensor) -> Tensor:
    centered = h - h.mean(0)
    if centered.norm() <= torch.finfo(torch.float32).eps * h.norm():  # what is left is rounding
        raise ValueError("features do not vary: all rows of one side are equal")
    return centered
