"""Linear centered kernel alignment: similarity of the features of two encoders or layers."""

import torch
from torch import Tensor

from widefield.metrics.spectrum import check_features


def linear_cka(first: Tensor, second: Tensor) -> float:
    """Return |Y'X|^2 / (|X'X| |Y'Y|) of centered features X [n, D], Y [n, E] of the same examples.

    It is in [0, 1]: 1 for equal features up to rotation and scale, 0 for uncorrelated ones. If n is
    close to D or E, unrelated features have values near 1 too: use n well above both. Kornblith et
    al. (2019), "Similarity of neural network representations revisited", section 3. Raises
    `ValueError` for features that are not finite, of two lengths, or that do not vary.

    Example:
        >>> import torch
        >>> h = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> round(linear_cka(h, -3 * h.flip(1) + 7), 6)
        1.0
    """
    x, y = check_features(first), check_features(second)
    if len(x) != len(y):
        raise ValueError(
            f"features have {len(x)} and {len(y)} rows: give the same examples to both"
        )
    x, y = _centered(x), _centered(y)
    # |Y'X|^2 = <XX', YY'>: use the smaller matrices.
    if len(x) < max(x.shape[1], y.shape[1]):
        x, y = x @ x.T, y @ y.T
        cross, norms = (x * y).sum(), x.norm() * y.norm()
    else:
        cross = (y.T @ x).square().sum()
        norms = (x.T @ x).norm() * (y.T @ y).norm()
    return float(cross / norms)


def _centered(h: Tensor) -> Tensor:
    centered = h - h.mean(0)
    if centered.norm() <= torch.finfo(torch.float32).eps * h.norm():  # only rounding is left
        raise ValueError("features do not vary: all rows of one side are equal")
    return centered
