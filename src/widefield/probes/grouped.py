"""Folds and intervals for examples in groups, such as the frames of a video.

Examples of a group resemble each other. A fold has all of a group or nothing of it, and an interval
counts how many independent examples their hits are worth.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

GroupIds = NDArray[np.int64]
"""Group of each example, [n]."""
SplitGroups = tuple[GroupIds, GroupIds]
"""Groups of the training and of the test examples."""

QUANTILE = 1.959964
"""The normal quantile at 0.975."""


def wilson(hits: float, trials: float) -> tuple[float, float]:
    """Return the 95 % interval of a proportion (Wilson 1927), in [0, 1] even at 0 and 1.

    Example:
        >>> [round(end, 3) for end in wilson(10, 10)]
        [0.722, 1.0]
    """
    share, spread = hits / trials, QUANTILE * QUANTILE / trials
    center = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    # The share itself must be inside despite rounding.
    return min(share, max(0.0, center - half)), max(share, min(1.0, center + half))


def share_interval(hits: NDArray[np.bool_], groups: GroupIds | None = None) -> tuple[float, float]:
    """Return the 95 % interval of the share of hits [n], clustered by `groups`.

    It is Wilson's interval for the effective number of examples, with G groups of m_g examples and
    h_g hits, p the share of hits, and t the quantile of Student's distribution with G - 1 degrees
    of freedom, which replaces that of the normal, z (Korn and Graubard 1998; Dean and Pagano 2015):

        1 / n_eff = (t / z)^2 [(1 - w) v / (p (1 - p)) + w sum_g m_g^2 / n^2],
        v = G / (G - 1)  sum_g (h_g - p m_g)^2 / n^2,    w = 1 / (1 + 2 p (1 - p) G),

    and n_eff is n at most. Few groups, or few errors, tell little of how alike the hits of a group
    are: the weight w is that of hits that are equal within each. With one group the interval is
    [0, 1].

    Example:
        >>> hits = np.arange(80) < 40
        >>> [round(end, 2) for end in share_interval(hits)]
        [0.39, 0.61]
        >>> [round(end, 2) for end in share_interval(hits, np.arange(80) // 8)]
        [0.2, 0.8]
    """
    n, share = len(hits), float(hits.mean())
    if groups is None:
        return wilson(int(hits.sum()), n)
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    count = len(sizes)
    if count == 1:
        return 0.0, 1.0
    deviation = np.bincount(group, hits) - share * sizes
    variance, binary = (
        count / (count - 1) * float(deviation @ deviation) / n**2,
        share * (1 - share),
    )
    weight = 1 / (1 + 2 * binary * count)
    measured = variance / binary if binary else 0.0
    inverse = (1 - weight) * measured + weight * float(sizes @ sizes) / n**2
    effective = min(n, 1 / (inverse * small_sample_factor(count) ** 2))
    return wilson(share * effective, effective)


def small_sample_factor(groups: int) -> float:
    """Return the quantile of Student's distribution for so many groups over the normal one.

    Example:
        >>> round(small_sample_factor(6), 2)
        1.31
    """
    return float(stdtrit(groups - 1, 0.975)) / QUANTILE


def group_folds(y: GroupIds, groups: GroupIds, folds: int, *, seed: int) -> GroupIds:
    """Return a fold of each example, int64 [n], the same one for all of a group.

    Folds are balanced by class: the largest groups come first, in random order among equals, and
    each joins the fold with the fewest examples of its most common class.

    Args:
        y: class ids, 0..K-1.
        groups: group of each example.
        folds: number of folds.
        seed: seed of the order.

    Example:
        >>> fold = group_folds(np.arange(8) // 4, np.arange(8) // 2, 2, seed=0)
        >>> sorted(fold[:4].tolist()), bool((fold[::2] == fold[1::2]).all())
        ([0, 0, 1, 1], True)
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    by_group = np.split(y[np.argsort(group, kind="stable")], np.cumsum(sizes)[:-1])
    order = np.random.default_rng(seed).permutation(len(sizes))
    counts = np.zeros((folds, int(y.max()) + 1), dtype=np.int64)
    fold_of = np.empty(len(sizes), dtype=np.int64)
    for k in order[np.argsort(-sizes[order], kind="stable")].tolist():
        own = np.bincount(by_group[k], minlength=counts.shape[1])
        chosen = int(np.lexsort((counts.sum(1), counts[:, own.argmax()]))[0])
        counts[chosen] += own
        fold_of[k] = chosen
    result: GroupIds = fold_of[group]
    return result


def groups_of_class(y: GroupIds, groups: GroupIds) -> NDArray[np.int64]:
    """Return the number of groups that each class 0..K-1 occurs in, [K].

    Example:
        >>> groups_of_class(np.array([0, 0, 1, 1]), np.array([5, 5, 5, 7])).tolist()
        [1, 2]
    """
    pairs = np.unique(np.stack([y, groups]), axis=1)
    return np.bincount(pairs[0], minlength=int(y.max()) + 1)


def smallest_class(y: GroupIds, fold: GroupIds) -> int:
    """Return the fewest examples of a class outside of a fold: what its probe is fitted on.

    Example:
        >>> smallest_class(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 0]))
        0
    """
    counts = np.zeros((int(fold.max()) + 1, int(y.max()) + 1), dtype=np.int64)
    np.add.at(counts, (fold, y), 1)
    return int((counts.sum(0) - counts).min())
