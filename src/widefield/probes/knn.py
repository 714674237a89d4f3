"""Weighted k-nearest-neighbor classification.

Wu et al. (2018), "Unsupervised feature learning via non-parametric instance discrimination",
section 3.4: the k training examples of highest cosine s_i vote for their class with weight
exp(s_i / T).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.neighbors import nearest_rows
from widefield.probes.checks import check_rows

_ROWS = 4096
"""Test rows that are converted to floats at a time: pixels of all would take gigabytes."""


def knn(
    train_h: Tensor,
    train_labels: dict[str, Tensor],
    test_h: Tensor,
    test_labels: dict[str, Tensor],
    *,
    classes: dict[str, int],
    k: int = 20,
    temperature: float = 0.07,
) -> dict[str, float]:
    """Return the accuracy of the weighted cosine vote for every task.

    Features are [n, D], labels int64 [n]; with fewer than `k` training examples all of them vote.
    The lowest id wins a tie. The neighbors are computed once for all tasks.

    Raises:
        ValueError: features and labels do not match, or k is below 1.

    Example:
        >>> import torch
        >>> h, y = torch.eye(4), {"shape": torch.tensor([0, 1, 2, 3])}
        >>> knn(h, y, 5 * h, y, classes={"shape": 4}, k=1)
        {'shape': 1.0}
    """
    check_rows(train_h, train_labels, test_h, test_labels, classes)
    if k < 1:
        raise ValueError(f"k is {k}: give the number of neighbors that vote, 1 or more")
    correct = dict.fromkeys(classes, 0)
    for rows, cosine, neighbor in _neighbors(train_h, test_h, k):
        weight = ((cosine - 1) / temperature).exp()  # a common factor e^(-1/T) keeps it in range
        for task, count in classes.items():
            scores = weight.new_zeros(len(weight), count)
            scores.scatter_add_(1, train_labels[task].to(neighbor.device)[neighbor], weight)
            truth = test_labels[task].to(neighbor.device)[rows]
            correct[task] += int((scores.argmax(1) == truth).sum())
    return {task: hits / len(test_h) for task, hits in correct.items()}


def _neighbors(train_h: Tensor, test_h: Tensor, k: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield chunks of test rows with the cosines and indices, [rows, k], of their neighbors."""
    keys, first = unit_rows(train_h.float()), 0
    k = min(k, len(keys))
    for part in torch.split(test_h, _ROWS):
        for rows, cosine, neighbor in nearest_rows(unit_rows(part.to(keys)), keys, k):
            yield slice(first + rows.start, first + rows.stop), cosine, neighbor
        first += len(part)
