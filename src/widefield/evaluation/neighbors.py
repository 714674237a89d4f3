"""How often an example's nearest neighbors have its label: what features say without a probe."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from widefield.metrics import nearest_neighbors

NEIGHBORS = 20
RIDGE = 0.1
"""The ridge of `diagnose.whitened` where encoders are compared by which examples are near."""


def of_common_classes(y: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """Return the examples of classes that have at least `least`; none for fewer than two classes.

    Example:
        >>> of_common_classes(np.array([0, 1, 1, 0, 2]), least=2).tolist()
        [0, 1, 2, 3]
    """
    rows = np.flatnonzero(np.bincount(y)[y] >= least)
    return rows if len(np.unique(y[rows])) > 1 else rows[:0]


def right_votes(h: Tensor, y: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for which of the examples `rows` most of the nearest others are of their class.

    Args:
        h: features of all examples, [n, D].
        y: class ids of all examples, [n].
        rows: the examples that vote and are judged.
    """
    _, target = np.unique(y[rows], return_inverse=True)
    x, t = h[torch.from_numpy(rows).to(h.device)], torch.from_numpy(target).to(h.device)
    k = max(1, min(NEIGHBORS, len(rows) // 10))  # where few vote, more would outvote any class
    neighbors = nearest_neighbors(x, k)
    votes = functional.one_hot(t)[neighbors].sum(1)
    return (votes.argmax(1) == t).cpu().numpy()


def named_by_neighbors(h: Tensor, labels: Mapping[str, NDArray[np.int64]]) -> dict[str, float]:
    """Return the share of the examples that their neighbors' vote names, task by task.

    Tasks without two classes of two examples are left out.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> named_by_neighbors(h, {"side": np.array([0, 0, 1, 1]), "one": np.zeros(4, np.int64)})
        {'side': 1.0}
    """
    rows = {task: of_common_classes(y, least=2) for task, y in labels.items()}
    return {
        task: float(right_votes(h, labels[task], some).mean())
        for task, some in rows.items()
        if len(some)
    }
