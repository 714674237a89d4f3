"""Folds of examples, for cross-validation and for validation splits.

Examples of a group, such as the frames of a video, resemble each other: a fold has all of a group
or nothing of it.
"""

import numpy as np
from numpy.typing import NDArray

GroupIds = NDArray[np.int64]
"""Group of each example, [n]."""
SplitGroups = tuple[GroupIds, GroupIds]
"""Groups of the training and of the test examples."""


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
