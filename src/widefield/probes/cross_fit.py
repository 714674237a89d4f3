"""Linear-probe and kNN accuracy of labels without a separate test set.

A linear probe predicts each example after being fitted on the folds without it; the kNN vote leaves
out the example itself. Of examples in groups, both leave out the whole group.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from widefield.metrics.neighbors import nearest_neighbors
from widefield.probes.folds import GroupIds, groups_of_class, smallest_class, stratified_folds
from widefield.probes.linear import fit_linear
from widefield.probes.outcome import Outcome

# Chosen by hand: every network of the floor is probed once a fold.
FOLDS = 3
MIN_EXAMPLES = 2 * FOLDS
"""Smallest number of examples of a class, so that every fold has two."""
# As many as in the kNN vote of probes (`knn.py`).
NEIGHBORS = 20

ClassIds = NDArray[np.int64]
Hits = NDArray[np.bool_]


def cross_fit(
    h: Tensor, labels: Mapping[str, ClassIds], *, groups: GroupIds | None = None, seed: int
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """Return the outcomes of a linear probe and of a kNN vote on h [n, D], each task -> outcome.

    Classes of fewer than 6 examples or 3 groups are left out, and tasks with fewer than two classes
    left.
    """
    linear, knn = {}, {}
    for task, y in labels.items():
        rows = rows_of_common_classes(y, MIN_EXAMPLES, groups)
        if not len(rows):
            continue
        target = np.unique(y[rows], return_inverse=True)[1]
        members = None if groups is None else groups[rows]
        fold = stratified_folds(target, FOLDS, members, seed=seed)
        if smallest_class(target, fold) < 2:  # groups may have kept a class in one fold
            continue
        x = h[torch.from_numpy(rows).to(h.device)]
        hits = fold_hits(x, target, fold, groups=members, seed=seed)
        linear[task] = Outcome(values=hits, groups=members)
        knn[task] = Outcome(values=knn_hits(h, y, rows, groups), groups=members)
    return linear, knn


def fold_hits(
    h: Tensor,
    target: ClassIds,
    fold: NDArray[np.int64],
    *,
    groups: GroupIds | None = None,
    seed: int,
) -> Hits:
    """Return which examples are predicted by a probe fitted on the other folds, bool [n].

    Features h are [n, D], class ids 0..K-1, folds 0..2 and groups are [n]; `seed` seeds the probe.
    """
    hits = np.zeros(len(target), dtype=bool)
    classes, t = {"task": int(target.max()) + 1}, torch.from_numpy(target).to(h.device)
    for k in range(FOLDS):
        if not (fold == k).any():  # fewer groups than folds
            continue
        test = torch.from_numpy(fold == k).to(h.device)
        train_y, test_y = {"task": t[~test]}, {"task": t[test]}
        parts = None if groups is None else (groups[fold != k], groups[fold == k])
        result = fit_linear(
            h[~test], train_y, h[test], test_y, classes=classes, groups=parts, seed=seed
        )
        hits[fold == k] = result["task"].outcome.values
    return hits


def knn_hits(
    h: Tensor, y: ClassIds, rows: NDArray[np.int64], groups: GroupIds | None = None
) -> Hits:
    """Return for which of the examples `rows` the nearest neighbors vote for the right class.

    Only `rows` vote, and not for examples of their own group; features h [n, D], class ids y and
    groups [n] are those of all examples.
    """
    _, target = np.unique(y[rows], return_inverse=True)
    x, t = h[torch.from_numpy(rows).to(h.device)], torch.from_numpy(target).to(h.device)
    # Of few examples, more neighbors would outvote any class: with ten classes of equal size, a
    # tenth of them are of its own class.
    k = max(1, min(NEIGHBORS, len(rows) // 10))
    members = None if groups is None else torch.from_numpy(groups[rows]).to(h.device)
    if members is not None:
        k = min(k, len(rows) - int(torch.unique(members, return_counts=True)[1].max()))
    # Of equal counts, which are frequent, that of the nearest neighbor wins, not the lowest id.
    # What is added to the counts is less than one vote.
    weight = 1 + 0.5 ** torch.arange(1, k + 1, dtype=torch.float64, device=h.device)
    one_hot = functional.one_hot(t)[nearest_neighbors(x, k, groups=members)]
    return ((one_hot * weight[:, None]).sum(1).argmax(1) == t).cpu().numpy()


def knn_accuracies(
    h: Tensor, labels: Mapping[str, ClassIds], groups: GroupIds | None = None
) -> dict[str, float]:
    """Return the leave-one-out kNN accuracy of each task with two classes of two examples.

    With `groups` [n], the group of an example is left out with it.
    """
    return {
        task: float(knn_hits(h, y, rows, groups).mean())
        for task, y in labels.items()
        if len(rows := rows_of_common_classes(y, 2, groups))
    }


def rows_of_common_classes(
    y: ClassIds, min_examples: int, groups: GroupIds | None = None
) -> NDArray[np.int64]:
    """Return the examples of classes with `min_examples` or more; none for fewer than two classes.

    With `groups` [n], classes in fewer than three groups are left out too.
    """
    is_common = np.bincount(y)[y] >= min_examples
    if groups is not None:
        is_common &= groups_of_class(y, groups)[y] >= FOLDS
    rows = np.flatnonzero(is_common)
    return rows if len(np.unique(y[rows])) > 1 else rows[:0]
