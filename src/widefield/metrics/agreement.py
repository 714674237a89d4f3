"""Agreement of nearest neighbors between an image and its view, or between two sets of features."""

import torch
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.neighbors import check_k, cosine_topk
from widefield.metrics.spectrum import check_features

_ROUNDING = 1e-12
"""Largest difference of cosines that count as equal: those of equal rows differ by rounding."""


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
