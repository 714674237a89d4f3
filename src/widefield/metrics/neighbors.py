"""The search for nearest neighbors, and how many of them two sets of features share."""

from collections.abc import Iterator

import torch
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.spectrum import check_features

_SIMILARITIES = 2**22
"""Number of similarities in memory at a time, 16 MiB: more exceed the cache of a processor."""
_MIN_ROWS = 32
"""Minimum number of rows that are compared at a time: fewer would read all others too often."""
_ROUNDING = 1e-12
"""Largest difference of cosines that count as equal: those of equal rows differ by rounding."""


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
    self_index: Tensor | None = None,
    groups: tuple[Tensor, Tensor] | None = None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows of `queries` with the k largest similarities to `keys`, and these keys, [rows, k].

    The similarity is the inner product of rows, [m, D] and [n, D], with `bias` [n] added to those
    of each key. The largest come first. `self_index` is the key that each query is, [m], and
    `groups` are those of queries and keys: its own key and keys of its group are no neighbors.
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
        elif self_index is not None:
            row = torch.arange(len(similarity), device=keys.device)
            similarity[row, self_index[rows]] = -torch.inf
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
    found = list(nearest_rows(queries, keys, k, self_index=every, groups=pairs))
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


def view_agreement(h: Tensor, views: Tensor, k: int) -> Tensor:
    """Return for each example the share of its k neighbors that its view keeps, float64 [n].

    Row i of `views` [n, D] has the features of a view of example i, row i of `h` those of the
    example. The neighbors of both are the k other rows of `h` of highest cosine. The chance level
    is k / (n - 1), which is also the value where the k-th and the next neighbor are equally near,
    as in constant features.
    Raises `ValueError` for features that are not finite or of two shapes, and for k outside 1..n-1.

    Example:
        >>> h = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        >>> view_agreement(h, 3 * h, 5).mean().item()
        1.0
    """
    if h.shape != views.shape:
        raise ValueError(
            f"features have shapes {list(h.shape)} and {list(views.shape)}: give a view of each"
        )
    keys, queries = (unit_rows(check_features(x)) for x in (h, views))
    return _shared((keys, keys), (queries, keys), k)


def neighbor_agreement(first: Tensor, second: Tensor, k: int) -> Tensor:
    """Return for each example the share of its k neighbors that other features keep, float64 [n].

    Its neighbors by `first` [n, D] and by `second` [n, E] are the k others of highest cosine. The
    chance level is k / (n - 1), which is also the value where the k-th and the next neighbor are
    equally near.
    Raises `ValueError` for features that are not finite or of two lengths, and for k outside
    1..n-1.

    Example:
        >>> h = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        >>> neighbor_agreement(h, h.flip(1), 5).mean().item()
        1.0
    """
    if len(first) != len(second):
        raise ValueError(
            f"there are features of {len(first)} and of {len(second)} examples: give those of the "
            "same ones"
        )
    x, y = (unit_rows(check_features(h)) for h in (first, second))
    return _shared((x, x), (y, y), k)


def _shared(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], k: int) -> Tensor:
    n = len(first[0])
    check_k(k, n)
    (cosine, index), (other_cosine, other_index) = (
        cosine_topk(queries, keys, k + 1) for queries, keys in (first, second)
    )
    is_tie = (cosine[:, k - 1] - cosine[:, k] <= _ROUNDING) | (
        other_cosine[:, k - 1] - other_cosine[:, k] <= _ROUNDING
    )
    shared = torch.stack([(other_index[:, :k] == i[:, None]).any(1) for i in index[:, :k].T], dim=1)
    return torch.where(is_tie, k / (n - 1), shared.double().mean(1))
