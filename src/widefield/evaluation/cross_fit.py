"""Linear-probe and kNN accuracy of labels without a separate test set.

A linear probe predicts each example after being fitted on the folds without it; the kNN vote leaves
out the example itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from widefield.metrics import nearest_neighbors
from widefield.probes import fit_linear

FOLDS = 3
MIN_EXAMPLES = 2 * FOLDS
"""Smallest number of examples of a class, so that every fold has two."""
NEIGHBORS = 20

ClassIds = NDArray[np.int64]
Hits = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """Which examples of one task are predicted correctly, each bool [n]."""

    linear: Hits
    knn: Hits

    @property
    def accuracy(self) -> float:
        """Return the linear-probe accuracy."""
        return float(self.linear.mean())


def cross_fit(h: Tensor, labels: Mapping[str, ClassIds], *, seed: int) -> dict[str, CrossFit]:
    """Return the hits of a linear probe and of a kNN vote for each task.

    Classes of fewer than 6 examples are left out, and tasks with fewer than two classes left.

    Args:
        h: features, [n, D].
        labels: task -> class ids, [n].
        seed: seeds folds and probes.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(12, 1)
        >>> cross_fit(h, {"side": np.arange(24) % 2}, seed=0)["side"].accuracy
        1.0
    """
    results = {}
    for task, y in labels.items():
        rows = rows_of_common_classes(y, MIN_EXAMPLES)
        if len(rows):
            target = np.unique(y[rows], return_inverse=True)[1]
            x, fold = h[torch.from_numpy(rows).to(h.device)], _stratified_folds(target, seed)
            linear = fold_hits(x, target, fold, seed=seed)
            results[task] = CrossFit(linear=linear, knn=knn_hits(h, y, rows))
    return results


def fold_hits(h: Tensor, target: ClassIds, fold: NDArray[np.int64], *, seed: int) -> Hits:
    """Return which examples are predicted by a probe fitted on the other folds, bool [n].

    Features h are [n, D], class ids 0..K-1 and folds 0..2 are [n]; `seed` seeds the probe.
    """
    hits = np.zeros(len(target), dtype=bool)
    classes, t = {"task": int(target.max()) + 1}, torch.from_numpy(target).to(h.device)
    for k in range(FOLDS):
        test = torch.from_numpy(fold == k).to(h.device)
        train_y, test_y = {"task": t[~test]}, {"task": t[test]}
        result = fit_linear(h[~test], train_y, h[test], test_y, classes=classes, seed=seed)
        hits[fold == k] = (result["task"].predicted == t[test]).cpu().numpy()
    return hits


def knn_hits(h: Tensor, y: ClassIds, rows: NDArray[np.int64]) -> Hits:
    """Return for which of the examples `rows` the nearest neighbors vote for the right class.

    Only `rows` vote; features h [n, D] and class ids y [n] are those of all examples.
    """
    _, target = np.unique(y[rows], return_inverse=True)
    x, t = h[torch.from_numpy(rows).to(h.device)], torch.from_numpy(target).to(h.device)
    # Of few examples, more neighbors would outvote any class.
    k = max(1, min(NEIGHBORS, len(rows) // 10))
    counts = functional.one_hot(t)[nearest_neighbors(x, k)].sum(1)
    return (counts.argmax(1) == t).cpu().numpy()


def knn_accuracies(h: Tensor, labels: Mapping[str, ClassIds]) -> dict[str, float]:
    """Return the leave-one-out kNN accuracy of each task with two classes of two examples.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> knn_accuracies(h, {"side": np.array([0, 0, 1, 1]), "one": np.zeros(4, np.int64)})
        {'side': 1.0}
    """
    return {
        task: float(knn_hits(h, y, rows).mean())
        for task, y in labels.items()
        if len(rows := rows_of_common_classes(y, 2))
    }


def rows_of_common_classes(y: ClassIds, min_examples: int) -> NDArray[np.int64]:
    """Return the examples of classes with `min_examples` or more; none for fewer than two classes.

    Example:
        >>> rows_of_common_classes(np.array([0, 1, 1, 0, 2]), 2).tolist()
        [0, 1, 2, 3]
    """
    rows = np.flatnonzero(np.bincount(y)[y] >= min_examples)
    return rows if len(np.unique(y[rows])) > 1 else rows[:0]


def _stratified_folds(target: ClassIds, seed: int) -> NDArray[np.int64]:
    """Return a random fold of each example, [n], of equal size within each class."""
    fold = np.zeros(len(target), dtype=np.int64)
    rng = np.random.default_rng(seed)
    for k in np.unique(target):
        rows = rng.permutation(np.flatnonzero(target == k))
        fold[rows] = np.arange(len(rows)) % FOLDS
    return fold
