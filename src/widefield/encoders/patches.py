"""Random filters of whitened patches of the input: local features that do not depend on training.

For patches p in R^K of 3 x 3 positions of the input, minus their mean, scaled so that the mean of
their K variances is 1:

    C = E[p p^T] + epsilon I                           covariance
    f_j(p) = max(0, q_j^T C^(-1/2) p)                  q_1, q_2, ... random unit vectors

The q are orthogonal, as far as patches have enough dimensions. A source of the wide readout has the
mean of each f_j over the cells of a grid, of inputs padded with 0. Neighboring pixels are nearly
equal, so without C^(-1/2) all filters would respond to brightness.

Source: Coates, Ng & Lee (2011), with random filters in place of learned ones.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

# Chosen by hand; on a grid of 4 x 4 they are 256 features.
COUNT = 16
"""Number of filters."""
_SIDE = 3
"""Height and width of a patch; 1 where the input is smaller, as the height of windows is."""
# Whitening amplifies noise where patches hardly vary: this limits it to a factor of ten.
_EPSILON = 1e-2
"""Added to the eigenvalues of the covariance, relative to their mean."""
_BATCH = 50
"""Inputs whose patches are in memory at a time."""
# Chosen by hand: images have some hundred patches each, and a covariance 27 x 27 numbers.
_FITTED_ON = 1_000
"""Largest number of inputs that the covariance is taken from."""


def fit_patch_filters(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return filters [16, C, 3, 3] and offsets [16] for inputs x[n, C, h, w].

    Example:
        >>> x = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> filters, offset = fit_patch_filters(x)
        >>> filters.shape, offset.shape
        (torch.Size([16, 3, 3, 3]), torch.Size([16]))
    """
    x = x[:: -(-len(x) // _FITTED_ON)]
    shape = filter_shape(x.shape[1:])
    mean, covariance = _moments(x, shape[2:])
    values, vectors = torch.linalg.eigh(covariance)
    scale = values.mean().clamp_min(torch.finfo(x.dtype).tiny)  # constant inputs have 0
    # Without it the class is up to three points less accurate (study readout-sources).
    whitening = (vectors * (values / scale + _EPSILON).rsqrt()) @ vectors.T / scale.sqrt()
    filters = _orthonormal(COUNT, len(mean)).to(whitening) @ whitening
    return filters.float().reshape(shape), -(filters @ mean).float()


def _moments(x: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return mean [K] and covariance [K, K], in double precision, of all patches of inputs x."""

    def patches(part: Tensor) -> Tensor:
        return functional.unfold(part, size).mT.flatten(0, 1).double()  # [n P, K]

    parts = torch.split(x, _BATCH)
    count = len(x) * math.prod(x.shape[2 + i] - size[i] + 1 for i in range(2))
    mean = torch.stack([patches(part).sum(0) for part in parts]).sum(0) / count
    covariance = torch.zeros_like(mean.outer(mean))
    for part in parts:
        centered = patches(part) - mean
        covariance += centered.T @ centered / count
    return mean, covariance


def filter_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the shape of the filters for inputs of shape C, h, w."""
    channels, height, width = shape
    rows, columns = (_SIDE if side >= _SIDE else 1 for side in (height, width))
    return COUNT, channels, rows, columns


def patch_features(x: Tensor, filters: Tensor, offset: Tensor, side: int) -> Tensor:
    """Return the means [n, 16 g g'] of filtered inputs x[n, C, h, w] over a grid, see `grid_of`."""
    padding = (filters.shape[2] // 2, filters.shape[3] // 2)
    x = x.contiguous(memory_format=torch.channels_last)  # an eighth of the time on a CPU
    return grid_means(functional.conv2d(x, filters, offset, padding=padding).relu_(), side)


def _orthonormal(count: int, dim: int) -> Tensor:
    """Return random unit vectors [count, dim]; each `dim` of them in turn are orthogonal."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for start in range(0, count, dim):
        square = torch.randn(dim, min(dim, count - start), generator=generator).double()
        parts.append(torch.linalg.qr(square)[0].T)
    return torch.cat(parts)


def grid_of(height: int, width: int, side: int) -> tuple[int, int]:
    """Return rows and columns of the grid of at most `side` x `side` cells of a map.

    Maps of height 1, of windows and waveforms, have as many cells in a row.
    """
    if height == 1:
        return 1, min(width, side**2)
    return min(height, side), min(width, side)


def grid_means(x: Tensor, side: int) -> Tensor:
    """Return the means over the cells of a grid, [B, K g g'], of a map [B, K, h, w]."""
    height, width = x.shape[-2:]
    rows, columns = grid_of(height, width, side)
    if height % rows or width % columns:
        return functional.adaptive_avg_pool2d(x, (rows, columns)).flatten(1)
    if (rows, columns) == (height, width):
        return x.flatten(1)
    # The same means where cells have equal sizes, in less time.
    return functional.avg_pool2d(x, (height // rows, width // columns)).flatten(1)
