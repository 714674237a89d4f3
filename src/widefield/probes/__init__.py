"""Probes: accuracy of linear, kNN and other classifiers on frozen features."""

import math

from torch import Tensor

from widefield.core.types import Score
from widefield.probes.features import Pixels as Pixels
from widefield.probes.features import extract as extract
from widefield.probes.features import pixels as pixels
from widefield.probes.folds import SplitGroups
from widefield.probes.knn import knn as knn
from widefield.probes.linear import LinearResult as LinearResult
from widefield.probes.linear import fit_linear as fit_linear
from widefield.probes.majority import majority as majority
from widefield.probes.majority import majority_hits as majority_hits
from widefield.probes.scores import score_predictions as score_predictions
from widefield.probes.sgd import score_sgd as score_sgd


def score(
    train_h: Tensor,
    train_labels: dict[str, Tensor],
    test_h: Tensor,
    test_labels: dict[str, Tensor],
    *,
    classes: dict[str, int],
    pooled: int | None = None,
    groups: SplitGroups | None = None,
    with_knn: bool = True,
    seed: int = 0,
) -> dict[str, Score]:
    """Score every task in `classes` (task -> K) by a linear probe and, unless left out, kNN.

    Features are float [n, D] on one device, labels int64 [n]. The L2 strength is selected on a
    validation split of the training examples, sampled by `seed`. `groups` of the training and of
    the test examples are kept whole there, and intervals are clustered by them. `pooled` is the
    number of pooled features among wide ones.
    Raises `ValueError` as `fit_linear` does.

    Example:
        >>> import torch
        >>> h = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
        >>> y = {"sign": (h[:, 0] > 0).long()}
        >>> score(h, y, h, y, classes={"sign": 2})["sign"].train_examples
        300
    """
    probes = fit_linear(
        train_h,
        train_labels,
        test_h,
        test_labels,
        classes=classes,
        pooled=pooled,
        groups=groups,
        seed=seed,
    )
    votes = dict.fromkeys(classes, math.nan)
    if with_knn:
        votes = knn(train_h, train_labels, test_h, test_labels, classes=classes)
    return {
        task: score_predictions(
            task,
            linear.predicted,
            test_labels[task],
            classes=classes[task],
            knn=votes[task],
            l2=linear.l2,
            train_examples=len(train_h),
            groups=None if groups is None else groups[1],
        )
        for task, linear in probes.items()
    }
