"""Accuracy and recall of predictions."""

import torch
from torch import Tensor

from widefield.core.types import Score
from widefield.probes.folds import GroupIds
from widefield.probes.paired import share_interval


def score_predictions(
    task: str,
    predicted: Tensor,
    truth: Tensor,
    *,
    classes: int,
    knn: float,
    l2: float,
    train_examples: int,
    groups: GroupIds | None = None,
) -> Score:
    """Return the score of `predicted` against `truth`, class ids int64 [n].

    The interval is clustered by `groups` [n].

    Example:
        >>> p, y = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 0])
        >>> score_predictions("y", p, y, classes=2, knn=1.0, l2=0.1, train_examples=9).recall
        (0.75, None)
    """
    truth = truth.to(predicted.device)
    hits = torch.bincount(truth[predicted == truth], minlength=classes).tolist()
    counts = torch.bincount(truth, minlength=classes).tolist()
    recall = tuple(x / count if count else None for x, count in zip(hits, counts, strict=True))
    present = [share for share in recall if share is not None]
    low, high = share_interval((predicted == truth).cpu().numpy(), groups)
    return Score(
        task=task,
        accuracy=sum(hits) / len(truth),
        low=low,
        high=high,
        balanced_accuracy=sum(present) / len(present),
        recall=recall,
        knn=knn,
        l2=l2,
        classes=classes,
        train_examples=train_examples,
        test_examples=len(truth),
    )
