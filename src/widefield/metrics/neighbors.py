"""Which examples are neighbors, and how much of that two sets of features share."""

import torch
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.spectrum import checked

_SIMILARITIES = 2**24
"""Cosines held in memory together: 128 MiB."""


def nearest_neighbors(h: Tensor, k: int) -> Tensor:
    """Return the k rows of highest cosine to each row of h [n, D], nearest first, int64 [n, k].

    No row is its own neighbor.
    Raises `ValueError` for features that are not finite, and for k outside 1..n-1.

    Example:
        >>> nearest_neighbors(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 1)[:, 0]
        tensor([1, 0, 1])
    """
    unit = unit_rows(checked(h))
    if not 1 <= k < len(h):
        raise ValueError(f"k is {k} and there are {len(h)} examples: choose 1 to {len(h) - 1}")
    chunks = []
    rows = max(1, _SIMILARITIES // len(unit))
    for start in range(0, len(unit), rows):
        cosine = unit[start : start + rows] @ unit.T
        row = torch.arange(len(cosine), device=h.device)
        cosine[row, start + row] = -torch.inf
        chunks.append(cosine.topk(k, dim=1).indices)
    return torch.cat(chunks)


def graph_overlap(first: Tensor, second: Tensor) -> float:
    """Return the mean share of neighbors that two graphs [n, k] of the same examples share.

    It is 1 for the same neighbors in any order and k / (n - 1) for unrelated graphs. Raises
    `ValueError` for graphs of two shapes.

    Example:
        >>> graph_overlap(torch.tensor([[1, 2], [0, 2]]), torch.tensor([[2, 1], [3, 4]]))
        0.5
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(
            f"graphs have shapes {list(first.shape)} and {list(second.shape)}: give the same "
            "examples with the same number of neighbors"
        )
    shared = first[:, :, None] == second[:, None, :]
    return float(shared.any(2).double().mean())
