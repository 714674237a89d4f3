"""Majority-class baseline: predict the most frequent class of the training labels."""

import torch
from torch import Tensor

from widefield.core.types import Score
from widefield.probes.folds import SplitGroups
from widefield.probes.scores import score_predictions


def majority_hits(train_y: Tensor, test_y: Tensor, classes: int) -> Tensor:
    """Return which test labels are the most frequent training label, bool [n].

    Example:
        >>> majority_hits(torch.tensor([0, 1, 1]), torch.tensor([1, 0]), 2)
        tensor([ True, False])
    """
    return test_y == torch.bincount(train_y, minlength=classes).argmax()


def majority(
    train_labels: dict[str, Tensor],
    test_labels: dict[str, Tensor],
    *,
    classes: dict[str, int],
    groups: SplitGroups | None = None,
) -> dict[str, Score]:
    """Score every task in `classes` (task -> K) without features; labels are int64 [n].

    Intervals are clustered by `groups`.

    Example:
        >>> y = {"kind": torch.tensor([0, 1, 1, 1])}
        >>> majority(y, y, classes={"kind": 2})["kind"].accuracy
        0.75
    """
    scores = {}
    for task, k in classes.items():
        train_y, test_y = train_labels[task], test_labels[task]
        accuracy = float(majority_hits(train_y, test_y, k).double().mean())
        predicted = torch.full_like(test_y, int(torch.bincount(train_y, minlength=k).argmax()))
        scores[task] = score_predictions(
            task,
            predicted,
            test_y,
            classes=k,
            knn=accuracy,
            l2=0.0,
            train_examples=len(train_y),
            groups=None if groups is None else groups[1],
        )
    return scores
