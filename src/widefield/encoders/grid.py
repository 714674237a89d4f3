"""Means of maps over the cells of a grid."""

from torch import Tensor
from torch.nn import functional


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
