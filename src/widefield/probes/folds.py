"""Folds of examples, for cross-validation and for validation splits.

Examples of a group, such as the frames of a video, resemble each other: a fold has all of a group
or nothing of it.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GroupIds = NDArray[np.int64]
"""Group of each example, [n]."""
SplitGroups = tuple[GroupIds, GroupIds]
"""Groups of the training and of the test examples."""


# Chosen by hand, as is usual.
_PARTS = 5
"""One of so many parts of the training examples selects the penalty of a probe; of few labels,
each of them in turn."""


def random_folds(n: int, folds: int, groups: GroupIds | None = None, *, seed: int) -> GroupIds:
    """Return a random fold of each of n examples, int64 [n], of whole groups if there are any."""
    if groups is not None:
        return group_folds(np.zeros(n, dtype=np.int64), groups, folds, seed=seed)
    return np.random.default_rng(seed).permutation(n) % folds


def stratified_folds(
    y: GroupIds, folds: int, groups: GroupIds | None = None, *, seed: int
) -> GroupIds:
    """Return a random fold of each example, int64 [n], stratified by class, or of whole groups.

    Example:
        >>> fold = stratified_folds(np.array([0, 0, 1, 1]), 2, seed=0)
        >>> sorted(fold[:2].tolist()), sorted(fold[2:].tolist())
        ([0, 1], [0, 1])
    """
    if groups is not None:
        return group_folds(y, groups, folds, seed=seed)
    fold = np.zeros(len(y), dtype=np.int64)
    rng = np.random.default_rng(seed)
    for k in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == k))
        fold[rows] = np.arange(len(rows)) % folds
    return fold


def group_folds(y: GroupIds, groups: GroupIds, folds: int, *, seed: int) -> GroupIds:
    """Return a fold of each example, int64 [n], the same one for all of a group.

    Folds are balanced by class, y in 0..K-1: the largest groups come first, in random order among
    equals, and each joins the fold with the fewest examples of its most common class.
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    by_group = np.split(y[np.argsort(group, kind="stable")], np.cumsum(sizes)[:-1])
    order = np.random.default_rng(seed).permutation(len(sizes))
    counts = np.zeros((folds, int(y.max()) + 1), dtype=np.int64)
    fold_of = np.empty(len(sizes), dtype=np.int64)
    for k in order[np.argsort(-sizes[order], kind="stable")].tolist():
        group_counts = np.bincount(by_group[k], minlength=counts.shape[1])
        selected = int(np.lexsort((counts.sum(1), counts[:, group_counts.argmax()]))[0])
        counts[selected] += group_counts
        fold_of[k] = selected
    result: GroupIds = fold_of[group]
    return result


def groups_of_class(y: GroupIds, groups: GroupIds) -> NDArray[np.int64]:
    """Return the number of groups that each class 0..K-1 occurs in, [K]."""
    pairs = np.unique(np.stack([y, groups]), axis=1)
    return np.bincount(pairs[0], minlength=int(y.max()) + 1)


def smallest_class(y: GroupIds, fold: GroupIds) -> int:
    """Return the fewest examples of a class outside of a fold: what its probe is fitted on."""
    counts = np.zeros((int(fold.max()) + 1, int(y.max()) + 1), dtype=np.int64)
    np.add.at(counts, (fold, y), 1)
    return int((counts.sum(0) - counts).min())


def class_splits(
    y: GroupIds, groups: GroupIds | None = None, *, seed: int
) -> list[tuple[GroupIds, GroupIds]]:
    """Return the rows to fit on and to validate on of each of five folds, of few labels.

    There are fewer folds where a class has fewer labels, or groups, and none if a class would be
    left out of a fit. A class with one label is in every fit, as is a group with all of a class.

    Example:
        >>> sorted(rest.tolist() for _, rest in class_splits(np.array([0, 0, 1, 1, 2]), seed=0))
        [[0, 3], [1, 2]]
    """
    from sklearn.model_selection import StratifiedKFold  # takes long to import

    if groups is None:
        counts = np.bincount(y)
        single, others = (np.flatnonzero(selected) for selected in (counts[y] == 1, counts[y] > 1))
        if len(np.unique(y[others])) < 2:
            return []
        folds = min(_PARTS, int(counts[counts > 1].min()))
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
        parts = splitter.split(np.zeros((len(others), 1)), y[others])
        return [(np.concatenate([others[fit], single]), others[rest]) for fit, rest in parts]
    counts = groups_of_class(y, groups)
    free = np.flatnonzero(~np.isin(groups, groups[counts[y] == 1]))
    if len(np.unique(y[free])) < 2:
        return []
    fold = np.full(len(y), _PARTS)  # the part of no fold
    folds = min(_PARTS, int(counts[counts > 1].min()))
    fold[free] = group_folds(y[free], groups[free], folds, seed=seed)
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold[free])]
    complete = all(len(np.unique(y[fit])) == len(counts) for fit, _ in splits)
    return splits if complete and len(splits) > 1 else []


def validation_split(target: Tensor, seed: int, groups: GroupIds | None = None) -> Tensor:
    """Mark a fifth of each class of each task, at least one and never all; bool [tasks, n].

    With `groups` it is a fold of groups outside of which every class remains, if there is one.
    """
    validation = torch.zeros_like(target, dtype=torch.bool)
    for j, labels in enumerate(target.cpu()):
        if (
            groups is not None
            and (part := _grouped_fifth(labels.numpy(), groups, seed)) is not None
        ):
            validation[j] = torch.from_numpy(part)
            continue
        # A generator for each task: its score must not depend on the other tasks.
        generator = torch.Generator().manual_seed(seed)
        for label in torch.unique(labels):
            members = (labels == label).nonzero()[:, 0]
            shuffled = members[torch.randperm(len(members), generator=generator)]
            validation[j, shuffled[: max(1, round(len(members) / _PARTS))]] = True
    return validation


def _grouped_fifth(y: GroupIds, groups: GroupIds, seed: int) -> NDArray[np.bool_] | None:
    """Return a fifth in whole groups, bool [n]; None if a class would be left out of the rest."""
    y = np.unique(y, return_inverse=True)[1]
    fold = group_folds(y, groups, _PARTS, seed=seed)
    for k in range(_PARTS):
        part = fold == k
        if part.any() and len(np.unique(y[~part])) == y.max() + 1:
            return part
    return None
