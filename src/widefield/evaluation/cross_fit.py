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
"""Examples that a class needs, so that every fold has enough of them."""
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

    Classes of fewer than 6 examples are left out, and tasks with fewer than two other classes.

    Args:
        h: features, [n, D].
        labels: task -> class ids, [n].
        seed: seeds folds and probes.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(12, 1)
        >>> cross_fit(h, {"side": np.arange(24) % 2}, seed=0)["side"].accuracy
        1.0
    """
    rows = {task: of_common_classes(y, MIN_EXAMPLES) for task, y in labels.items()}
    return {
        task: CrossFit(
            linear=_linear_hits(h, labels[task], some, seed), knn=knn_hits(h, labels[task], some)
        )
        for task, some in rows.items()
        if len(some)
    }


def fold_hits(h: Tensor, target: ClassIds, fold: NDArray[np.int64], *, seed: int) -> Hits:
    """Return which examples a linear probe predicts that was fitted on the other folds, bool [n].

    Args:
        h: features, [n, D].
        target: class ids 0..K-1, [n].
        fold: ids 0..2, [n].
        seed: the probe's.
    """
    hits = np.zeros(len(target), dtype=bool)
    classes, t = {"task": int(target.max()) + 1}, torch.from_numpy(target).to(h.device)
    for held in range(FOLDS):
        out = torch.from_numpy(fold == held).to(h.device)
        fit, test = {"task": t[~out]}, {"task": t[out]}
        result = fit_linear(h[~out], fit, h[out], test, classes=classes, seed=seed)
        hits[fold == held] = (result["task"].predicted == t[out]).cpu().numpy()
    return hits


def knn_hits(h: Tensor, y: ClassIds, rows: NDArray[np.int64]) -> Hits:
    """Return for which of the examples `rows` most of their nearest neighbors share their class.

    Args:
        h: features of all examples, [n, D].
        y: class ids of all examples, [n].
        rows: the examples that vote and are judged.
    """
    _, target = np.unique(y[rows], return_inverse=True)
    x, t = h[torch.from_numpy(rows).to(h.device)], torch.from_numpy(target).to(h.device)
    k = max(1, min(NEIGHBORS, len(rows) // 10))  # where few vote, more would outvote any class
    votes = functional.one_hot(t)[nearest_neighbors(x, k)].sum(1)
    return (votes.argmax(1) == t).cpu().numpy()


def knn_accuracies(h: Tensor, labels: Mapping[str, ClassIds]) -> dict[str, float]:
    """Return the leave-one-out kNN accuracy of each task with two classes of two examples.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> knn_accuracies(h, {"side": np.array([0, 0, 1, 1]), "one": np.zeros(4, np.int64)})
        {'side': 1.0}
    """
    rows = {task: of_common_classes(y, least=2) for task, y in labels.items()}
    return {
        task: float(knn_hits(h, labels[task], some).mean())
        for task, some in rows.items()
        if len(some)
    }


def of_common_classes(y: ClassIds, least: int) -> NDArray[np.int64]:
    """Return the examples of classes that have at least `least`; none for fewer than two classes.

    Example:
        >>> of_common_classes(np.array([0, 1, 1, 0, 2]), least=2).tolist()
        [0, 1, 2, 3]
    """
    rows = np.flatnonzero(np.bincount(y)[y] >= least)
    return rows if len(np.unique(y[rows])) > 1 else rows[:0]


def _linear_hits(h: Tensor, y: ClassIds, rows: NDArray[np.int64], seed: int) -> Hits:
    target = np.unique(y[rows], return_inverse=True)[1]
    of_rows = h[torch.from_numpy(rows).to(h.device)]
    return fold_hits(of_rows, target, _stratified_folds(target, seed), seed=seed)


def _stratified_folds(target: ClassIds, seed: int) -> NDArray[np.int64]:
    """Deal the examples of every class, shuffled, over the folds."""
    fold = np.zeros(len(target), dtype=np.int64)
    rng = np.random.default_rng(seed)
    for k in np.unique(target):
        rows = rng.permutation(np.flatnonzero(target == k))
        fold[rows] = np.arange(len(rows)) % FOLDS
    return fold
