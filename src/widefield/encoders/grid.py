"""Means of maps over the cells of a grid, and the random filters of readouts of older versions."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

_COUNT, _SIDE = 16, 3
"""Number of the random filters, and height and width of their patches."""


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


def filter_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the shape of the filters for inputs of shape C, h, w."""
    channels, height, width = shape
    rows, columns = (_SIDE if side >= _SIDE else 1 for side in (height, width))
    return _COUNT, channels, rows, columns


def patch_features(x: Tensor, filters: Tensor, offset: Tensor, side: int) -> Tensor:
    """Return the means [n, 16 g g'] of filtered inputs x[n, C, h, w] over a grid, see `grid_of`."""
    padding = (filters.shape[2] // 2, filters.shape[3] // 2)
    x = x.contiguous(memory_format=torch.channels_last)  # an eighth of the time on a CPU
    return grid_means(functional.conv2d(x, filters, offset, padding=padding).relu_(), side)
