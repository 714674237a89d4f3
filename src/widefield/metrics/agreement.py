"""Do the neighbors of an image stay, when it is seen through a view?"""

import torch
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.spectrum import checked

_SIMILARITIES = 2**24
"""Cosines held in memory together: 128 MiB."""
_ROUNDING = 1e-12
"""Cosines that differ by no more are equal: those of equal rows differ by the order of sums."""


def view_agreement(h: Tensor, views: Tensor, k: int) -> Tensor:
    """Return for each example the share of its k neighbors that its view keeps, float64 [n].

    Row i of `views` [n, D] holds the features of a view of example i, whose own are row i of `h`.
    The neighbors of both are the k other rows of `h` of highest cosine. By chance k / (n - 1) of
    them stay, and so many count where the k-th and the next are equally near, as all rows are in
    constant features.
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
    keys, queries = (unit_rows(checked(x)) for x in (h, views))
    return _shared((keys, keys), (queries, keys), k)


def neighbor_agreement(first: Tensor, second: Tensor, k: int) -> Tensor:
    """Return for each example the share of its k neighbors that other features keep, float64 [n].

    Its neighbors by either, `first` [n, D] and `second` [n, E], are the k others of highest
    cosine by these features. By chance k / (n - 1) are shared, and so many count where the k-th
    and the next are equally near.
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
    own, other = (unit_rows(checked(x)) for x in (first, second))
    return _shared((own, own), (other, other), k)


def _shared(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], k: int) -> Tensor:
    """Return the share of the k keys nearest to each query that two pairs of both agree on."""
    n = len(first[0])
    if not 1 <= k < n:
        raise ValueError(f"k is {k} and there are {n} examples: choose 1 to {n - 1}")
    shares = []
    rows = max(1, _SIMILARITIES // n)
    for start in range(0, n, rows):
        (own, tie), (other, tied) = (
            _neighbors(queries[start : start + rows], keys, start, k)
            for queries, keys in (first, second)
        )
        kept = (own[:, :, None] == other[:, None, :]).any(2).double().mean(1)
        shares.append(torch.where(tie | tied, k / (n - 1), kept))
    return torch.cat(shares)


def _neighbors(queries: Tensor, keys: Tensor, start: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the k rows nearest to each query, and whether the next one is as near as the k-th.

    The row that a query was made from is none of them.
    """
    cosine = queries @ keys.T
    row = torch.arange(len(queries), device=keys.device)
    cosine[row, start + row] = -torch.inf
    nearest = cosine.topk(min(k + 1, len(keys)), dim=1)
    gap = nearest.values[:, k - 1] - nearest.values[:, k]
    return nearest.indices[:, :k], gap <= _ROUNDING
