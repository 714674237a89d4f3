"""What linear probes and nearest neighbors find in features: the raw material of every verdict."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.audits.verdict import ProbeResult
from widefield.data import Dataset
from widefield.inference.splits import TrainTest
from widefield.probes import fit_linear, knn

Features = Callable[[NDArray[np.uint8]], Tensor]
"""Images uint8 [n, H, W, C] -> features float [n, D]."""


def probe_tasks(features: Features, data: TrainTest, *, seed: int = 0) -> dict[str, ProbeResult]:
    """Fit a linear probe and let nearest neighbors vote, on every task of `data`.

    Raises:
        ValueError: a task with fewer than two classes, a class with one example, features that
            are not finite, or not one row for each image.
    """
    train_h, test_h = features(data.train.images), features(data.test.images)
    classes = {task: len(names) for task, names in data.train.classes.items()}
    train_y, test_y = _labels(data.train, train_h), _labels(data.test, test_h)
    votes = knn(train_h, train_y, test_h, test_y, classes=classes)
    probes = fit_linear(train_h, train_y, test_h, test_y, classes=classes, seed=seed)
    return {
        task: ProbeResult(hits=(probe.guess == test_y[task]).cpu().numpy(), knn=votes[task])
        for task, probe in probes.items()
    }


def _labels(dataset: Dataset, h: Tensor) -> dict[str, Tensor]:
    return {task: torch.from_numpy(y).to(h.device) for task, y in dataset.labels.items()}
