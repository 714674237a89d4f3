"""What an encoder makes of images, example by example: what two encoders are compared by.

Without labels: how many of its nearest neighbors an image keeps when it is seen through a view,
how many directions the features use, and whether features that are planted into the images can be
read. With labels: a linear probe and a vote of neighbors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.data import Dataset
from widefield.data.planted import Digits, ImageFeature, Shapes, plant
from widefield.evaluation.neighbors import NEIGHBORS, of_common_classes, right_votes
from widefield.metrics import Health, health, view_agreement
from widefield.probes import fit_linear
from widefield.probes.features import image_batch
from widefield.views import build_views

FOLDS = 3
EACH = 2 * FOLDS
"""Examples that a class needs, so that every fold has enough of them."""
VIEWS = "gentle"
"""Views that leave an image what it is, whichever the run was trained with."""
PLANTED: tuple[type[Shapes] | type[Digits], ...] = (Shapes, Digits)
SMALLEST_SIDE = 16
"""Pixels below which nothing is planted."""
_BATCH = 256
GRADE = 2
"""Which of a plant's grades, from hard to easy: the middle one."""


Features = Callable[[NDArray[np.uint8]], Tensor]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one encoder makes of the images, example by example."""

    features: Tensor
    health: Health
    agreement: NDArray[np.float64]
    linear: dict[str, NDArray[np.bool_]]
    """Planted feature or task -> which examples a linear probe reads that was fitted on others."""
    knn: dict[str, NDArray[np.bool_]]


class Examination:
    """The same questions to any encoder about the same images.

    Args:
        data: images, with labels or without.
        seed: seeds views, plants and folds.
        labels: whether the tasks of the data are asked for too.
    """

    def __init__(self, data: Dataset, *, seed: int, labels: bool) -> None:
        self.data, self.seed = data, seed
        self.plants = _plants(data)
        self.tasks = judging_tasks(data) if labels else {}
        self._views = through_views(data.images, seed)

    def of(self, features: Features) -> Evidence:
        """Ask for features, images [n, H, W, C] -> h [n, D]."""
        data, h = self.data, features(self.data.images)
        linear, knn = {}, {}
        for name, feature in self.plants.items():
            planted = plant(data.images, feature, seed=self.seed)
            rows = of_common_classes(planted.labels, EACH)
            if len(rows):
                linear[name] = read_task(
                    features(planted.images), planted.labels, rows, seed=self.seed
                )
        for task, rows in self.tasks.items():
            y = data.labels[task]
            linear[task], knn[task] = read_task(h, y, rows, seed=self.seed), right_votes(h, y, rows)
        kept = view_agreement(h, features(self._views), min(NEIGHBORS, len(h) - 1))
        return Evidence(
            features=h, health=health(h), agreement=kept.cpu().numpy(), linear=linear, knn=knn
        )


def _plants(data: Dataset) -> dict[str, ImageFeature]:
    """Return what can be planted on these images: nothing over what is planted already."""
    _, height, width, channels = data.images.shape
    if channels not in (1, 3) or min(height, width) < SMALLEST_SIDE:
        return {}
    return {kind.name: kind.levels()[GRADE] for kind in PLANTED if kind.name not in data.labels}


def judging_tasks(data: Dataset) -> dict[str, NDArray[np.int64]]:
    """Return the tasks with two classes of enough examples for every fold, and those examples."""
    rows = {task: of_common_classes(y, EACH) for task, y in data.labels.items()}
    return {task: some for task, some in rows.items() if len(some)}


def through_views(images: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Return one view of each image, uint8 [n, H, W, C]."""
    views = build_views(VIEWS, channels=images.shape[3], seed=seed)
    generator = torch.Generator().manual_seed(seed)
    seen = []
    for first in range(0, len(images), _BATCH):
        x = image_batch(images[first : first + _BATCH], torch.device("cpu"))
        (view,) = views(x, 1, generator)
        seen.append((255 * view.clamp(0, 1)).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
    return np.concatenate(seen)


def read_task(
    h: Tensor, y: NDArray[np.int64], rows: NDArray[np.int64], *, seed: int
) -> NDArray[np.bool_]:
    """Return which of the examples `rows` a linear probe reads, each one fitted on other folds."""
    target = np.unique(y[rows], return_inverse=True)[1]
    of_rows = h[torch.from_numpy(rows).to(h.device)]
    return read_in_folds(of_rows, target, _folds(target, seed), seed=seed)


def read_in_folds(
    h: Tensor, target: NDArray[np.int64], fold: NDArray[np.int64], *, seed: int
) -> NDArray[np.bool_]:
    """Return for which examples a linear probe that is fitted on other folds names the target.

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
        hits[fold == held] = (result["task"].guess == t[out]).cpu().numpy()
    return hits


def _folds(target: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Deal the examples of every class, shuffled, over the folds."""
    fold = np.zeros(len(target), dtype=np.int64)
    rng = np.random.default_rng(seed)
    for k in np.unique(target):
        rows = rng.permutation(np.flatnonzero(target == k))
        fold[rows] = np.arange(len(rows)) % FOLDS
    return fold
