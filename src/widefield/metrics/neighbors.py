"""The search for nearest neighbors, and the overlap of two neighbor graphs."""

from collections.abc import Iterator

import torch
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.spectrum import check_features

_SIMILARITIES = 2**22
"""Number of similarities in memory at a time, 16 MiB: more exceed the cache of a processor."""
_MIN_ROWS = 32
"""Minimum number of rows that are compared at a time: fewer would read all others too often."""


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


def nearest_rows(
    queries: Tensor,
    keys: Tensor,
    k: int,
    *,
    bias: Tensor | None = None,
    own: Tensor | None = None,
    groups: tuple[Tensor, Tensor] | None = None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows of `queries` with the k largest similarities to `keys`, and these keys, [rows, k].

    The similarity is the inner product of rows, [m, D] and [n, D]. The largest come first.

    Args:
        queries: rows to find the neighbors of.
        keys: rows among which they are searched.
        k: number of neighbors.
        bias: added to the similarities of each key, [n].
        own: the key that each query is, [m], which is no neighbor.
        groups: groups of the queries and of the keys; those of one group are no neighbors.
    """
    size = max(_MIN_ROWS, _SIMILARITIES // len(keys))
    for start in range(0, len(queries), size):
        rows = slice(start, min(start + size, len(queries)))
        if bias is None:
            similarity = queries[rows] @ keys.T
        else:
            similarity = torch.addmm(bias, queries[rows], keys.T)
        # A mask of groups costs a comparison of all pairs: without groups, one index is enough.
        if groups is not None:
            similarity.masked_fill_(groups[0][rows, None] == groups[1], -torch.inf)
        elif own is not None:
            row = torch.arange(len(similarity), device=keys.device)
            similarity[row, own[rows]] = -torch.inf
        yield rows, *k_nearest(similarity, k)


def k_nearest(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest similarities of each row [n, m], largest first, and their columns."""
    values, columns = similarity.topk(k, dim=1)
    return values, columns


def cosine_topk(
    queries: Tensor, keys: Tensor, k: int, *, groups: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return cosines and indices of the k keys nearest to each query, but not its own row, [n, k].

    Rows of `queries` [n, D] and `keys` [n, D] belong to the same examples and have length 1. The
    others in its group, if there are `groups` [n], are left out too.
    """
    every = torch.arange(len(keys), device=keys.device)
    pairs = None if groups is None else (groups, groups)
    found = list(nearest_rows(queries, keys, k, own=every, groups=pairs))
    return torch.cat([cosine for _, cosine, _ in found]), torch.cat([index for *_, index in found])


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
