"""Features whose strong directions count alike: distances that see what a linear probe can read."""

import torch
from torch import Tensor

from widefield.metrics.spectrum import checked


def whitened(h: Tensor, *others: Tensor, ridge: float) -> tuple[Tensor, ...]:
    """Return h [n, D] and others [m, D], scaled along each direction by how h varies there.

    With the mean m of h and its covariance V diag(l) V^T, l_1 the largest of l,

        x -> (x - m) V diag(l + ridge l_1)^(-1/2),   [., min(n, D)],

    so that directions whose variance is well above ridge l_1 count alike, and those below it less
    and less. Cosines of features as they are see the few strongest directions alone, and a linear
    probe reads the others too. Constant features become zeros. The result is float64.

    Raises:
        ValueError: features that are not finite [n, D] with n >= 2, or of another width than h.

    Example:
        >>> h = torch.cat([torch.eye(2), -torch.eye(2)]) * torch.tensor([100.0, 1.0])
        >>> (white,) = whitened(h, ridge=1e-9)
        >>> white.std(0, correction=0).round(decimals=3)
        tensor([1., 1.], dtype=torch.float64)
    """
    first, *rest = (checked(x) for x in (h, *others))
    for x in rest:
        if x.shape[1] != first.shape[1]:
            raise ValueError(
                f"features have widths {first.shape[1]} and {x.shape[1]}: give those of one encoder"
            )
    mean = first.mean(0)
    variances, directions = _principal(first - mean)
    rounding = torch.finfo(torch.float32).eps * first.norm()
    if variances[0] <= rounding.square() / len(first):
        return tuple(x.new_zeros(len(x), len(variances)) for x in (first, *rest))
    scaled = directions / (variances + ridge * variances[0]).sqrt()
    return tuple((x - mean) @ scaled for x in (first, *rest))


def _principal(centered: Tensor) -> tuple[Tensor, Tensor]:
    """Return variances [min(n, D)], largest first, and directions [D, min(n, D)]."""
    n, dim = centered.shape
    if dim <= n:  # the smaller matrix, which is far quicker to take apart
        values, directions = torch.linalg.eigh(centered.T @ centered / n)
        return values.clamp(min=0).flip(0), directions.flip(1)
    _, sigma, directions = torch.linalg.svd(centered, full_matrices=False)
    return sigma.square() / n, directions.T
