"""Nearest neighbors by cosine, and the overlap of two neighbor graphs."""

import torch
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.spectrum import check_features

_SIMILARITIES = 2**24
"""Maximum number of cosines in memory: 128 MiB."""


def nearest_neighbors(h: Tensor, k: int, *, groups: Tensor | None = None) -> Tensor:
    """Return the k rows of highest cosine to each row of h [n, D], nearest first, int64 [n, k].

    No row is its own neighbor, or of its group of `groups` [n], where k others must exist.
    Raises `ValueError` for features that are not finite, and for k outside 1..n-1.

    Example:
        >>> nearest_neighbors(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 1)[:, 0]
        tensor([1, 0, 1])
    """
    unit = unit_rows(check_features(h))
    check_k(k, len(h))
    return cosine_topk(unit, unit, k, groups=groups)[1]


def check_k(k: int, examples: int) -> None:
    """Raise `ValueError` unless each of so many examples has k neighbors."""
    if not 1 <= k < examples:
        raise ValueError(f"k is {k} and there are {examples} examples: choose 1 to {examples - 1}")


def cosine_topk(
    queries: Tensor, keys: Tensor, k: int, *, groups: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return cosines and indices of the k keys nearest to each query, but not its own row, [n, k].

    Rows of `queries` [n, D] and `keys` [n, D] belong to the same examples and have length 1. The
    others in its group, if there are `groups` [n], are left out too.
    """
    cosines, indices = [], []
    rows = max(1, _SIMILARITIES // len(keys))
    for start in range(0, len(queries), rows):
        cosine = queries[start : start + rows] @ keys.T
        row = torch.arange(len(cosine), device=keys.device)
        cosine[row, start + row] = -torch.inf
        if groups is not None:
            own = groups[start : start + rows, None] == groups
            cosine.masked_fill_(own, -torch.inf)
        nearest = cosine.topk(k, dim=1)
        cosines.append(nearest.values)
        indices.append(nearest.indices)
    return torch.cat(cosines), torch.cat(indices)


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
