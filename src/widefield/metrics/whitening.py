"""Whitening of features by their principal components."""

import torch
from torch import Tensor

from widefield.metrics.spectrum import check_features


def whitened(h: Tensor, *others: Tensor, ridge: float) -> tuple[Tensor, ...]:
    """Return h [n, D] and others [m, D], whitened by the covariance of h.

    With the mean m of h and its covariance V diag(l) V^T, l_1 the largest of l,

        x -> (x - m) V diag(l + ridge l_1)^(-1/2),   [., min(n, D)],

    so that directions with a variance well above ridge l_1 have equal weight, and weaker ones less.
    Cosines of the original features depend on the few strongest directions only, while a linear
    probe uses the others too. Constant features become zeros. The result is float64.

    Raises:
        ValueError: features that are not finite [n, D] with n >= 2, or of another width than h.

    Example:
        >>> h = torch.cat([torch.eye(2), -torch.eye(2)]) * torch.tensor([100.0, 1.0])
        >>> (white,) = whitened(h, ridge=1e-9)
        >>> white.std(0, correction=0).round(decimals=3)
        tensor([1., 1.], dtype=torch.float64)
    """
    first, *rest = (check_features(x) for x in (h, *others))
    for x in rest:
        if x.shape[1] != first.shape[1]:
            raise ValueError(
                f"features have widths {first.shape[1]} and {x.shape[1]}: give those of one encoder"
            )
    mean = first.mean(0)
    variance, axes = _pca(first - mean)
    rounding = torch.finfo(torch.float32).eps * first.norm()
    if variance[0] <= rounding.square() / len(first):
        return tuple(x.new_zeros(len(x), len(variance)) for x in (first, *rest))
    scaled = axes / (variance + ridge * variance[0]).sqrt()
    return tuple((x - mean) @ scaled for x in (first, *rest))


def _pca(centered: Tensor) -> tuple[Tensor, Tensor]:
    """Return variances [min(n, D)], largest first, and directions [D, min(n, D)]."""
    n, dim = centered.shape
    if dim <= n:  # the smaller matrix, which is faster to decompose
        values, axes = torch.linalg.eigh(centered.T @ centered / n)
        return values.clamp(min=0).flip(0), axes.flip(1)
    _, sigma, axes = torch.linalg.svd(centered, full_matrices=False)
    return sigma.square() / n, axes.T
