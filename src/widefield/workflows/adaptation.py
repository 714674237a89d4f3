"""What a run made of the encoder that it started from: before and after, and a verdict.

Both encoders see the same images, so what changed is judged example by example. Without labels:
how many of its nearest neighbours an image keeps when it is seen through a view, how many
directions the features use, how alike they are to those of the start, and whether features that are
planted into the images can be read. With labels: a linear probe and a vote of neighbours.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from widefield.core.files import write_atomically
from widefield.data import Dataset
from widefield.data.plants import Digits, Drawn, Shapes, plant
from widefield.diagnose import Health, health, linear_cka, view_agreement
from widefield.probes import extract, fit_linear
from widefield.probes.features import image_batch
from widefield.views import build_views
from widefield.workflows.change import (
    Change,
    Verdict,
    change,
    judged_by_labels,
    judged_without_labels,
)
from widefield.workflows.neighbours import (
    NEIGHBOURS,
    of_common_classes,
    right_votes,
)

FORMAT = 1
EXAMPLES = 2000
"""Images that are compared, at most."""
LEAST = 30
"""Images without which nothing is compared."""
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


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """A start and what a run made of it, compared on the run's own images."""

    verdict: Verdict
    why: str
    without_labels: Verdict
    """What the verdict would be without labels."""
    examples: int
    agreement: Change
    """Share of its neighbours that an image keeps when it is seen through a view."""
    rank: tuple[float, float]
    """Effective rank before and after."""
    health: tuple[str, str]
    """`healthy`, `collapsing` or `collapsed`, before and after."""
    alignment: float | None
    """Linear CKA of the features before and after; None where one side does not vary."""
    planted: Mapping[str, Change]
    """Planted feature -> how often a linear probe reads it."""
    linear: Mapping[str, Change]
    """Task of the data -> how often a linear probe reads it; empty without labels."""
    knn: Mapping[str, Change]
    """Task of the data -> how often the nearest neighbours' vote is right."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"format": FORMAT, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        write_atomically(path, lambda draft: draft.write_text(text, "utf-8"))

    def lines(self) -> list[str]:
        """Return what changed in plain lines, the verdict last."""
        tasks = [
            f"{task}, {how}: {changes[task].line()}"
            for task in self.linear
            for how, changes in (("linear probe", self.linear), ("neighbours' vote", self.knn))
        ]
        alike = "" if self.alignment is None else f", {100 * self.alignment:.0f} % like the start's"
        return [
            f"neighbours kept through views: {self.agreement.line()}",
            f"effective rank: {self.rank[0]:.0f} to {self.rank[1]:.0f}; features {self.health[1]}"
            f"{alike} (linear CKA)",
            *(f"planted {name}: {c.line()}" for name, c in self.planted.items()),
            *tasks,
            f"verdict: {self.verdict}: {self.why}",
        ]


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """What one encoder makes of the images, example by example."""

    features: Tensor
    health: Health
    agreement: NDArray[np.float64]
    linear: dict[str, NDArray[np.bool_]]
    """Planted feature or task -> which examples a linear probe reads that was fitted on others."""
    knn: dict[str, NDArray[np.bool_]]


def compare_with_start(
    start: nn.Module,
    encoder: nn.Module,
    dataset: Dataset,
    *,
    seed: int,
    device: torch.device,
    labels_unseen: bool = True,
) -> Adaptation | None:
    """Compare an encoder with its start on up to 2,000 images; None for fewer than 30.

    Args:
        start: x[B, C, H, W] in [0, 1] -> h[B, D].
        encoder: what became of it.
        dataset: images, with labels or without.
        seed: seeds views, plants, folds and intervals.
        device: where the encoders run.
        labels_unseen: whether the encoder was trained without the labels, so that they can judge.
    """
    if len(dataset) < LEAST:
        return None
    rows = dataset.spread_rows(EXAMPLES)
    data = dataset.subset(rows).first_read()
    tasks = _judging_tasks(data) if labels_unseen else {}
    plants = _plants(data)
    old, new = (
        _evidence(e.to(device), data, plants, tasks, seed, device) for e in (start, encoder)
    )
    agreement = change(old.agreement, new.agreement, seed=seed)
    linear = {name: change(old.linear[name], new.linear[name], seed=seed) for name in old.linear}
    knn = {name: change(old.knn[name], new.knn[name], seed=seed) for name in old.knn}
    planted = {name: linear.pop(name) for name in plants if name in linear}
    sick = old.health.verdict == "healthy" != new.health.verdict
    rank = old.health.effective_rank, new.health.effective_rank
    without_labels, why = judged_without_labels(agreement, planted, rank=rank, sick=sick)
    verdict = without_labels
    if linear and not sick:
        verdict, why = judged_by_labels([*linear.values(), *knn.values()])
    return Adaptation(
        verdict=verdict,
        why=why,
        without_labels=without_labels,
        examples=len(rows),
        agreement=agreement,
        rank=rank,
        health=(old.health.verdict, new.health.verdict),
        alignment=_alignment(old.features, new.features),
        planted=planted,
        linear=linear,
        knn=knn,
    )


def _evidence(
    encoder: nn.Module,
    data: Dataset,
    plants: Mapping[str, Drawn],
    tasks: Mapping[str, NDArray[np.int64]],
    seed: int,
    device: torch.device,
) -> _Evidence:
    h = extract(encoder, data.images, device=device)
    seen = extract(encoder, _through_views(data.images, seed), device=device)
    linear, knn = {}, {}
    for name, feature in plants.items():
        planted = plant(data.images, feature, seed=seed)
        rows = of_common_classes(planted.labels, EACH)
        if len(rows):
            read = extract(encoder, planted.images, device=device)
            linear[name] = _read(read, planted.labels, rows, seed)
    for task, rows in tasks.items():
        y = data.labels[task]
        linear[task], knn[task] = _read(h, y, rows, seed), right_votes(h, y, rows)
    k = min(NEIGHBOURS, len(h) - 1)
    return _Evidence(
        features=h,
        health=health(h),
        agreement=view_agreement(h, seen, k).cpu().numpy(),
        linear=linear,
        knn=knn,
    )


def _plants(data: Dataset) -> dict[str, Drawn]:
    """Return what can be planted on these images: nothing over what is planted already."""
    _, height, width, channels = data.images.shape
    if channels not in (1, 3) or min(height, width) < SMALLEST_SIDE:
        return {}
    return {kind.name: kind.grades()[GRADE] for kind in PLANTED if kind.name not in data.labels}


def _judging_tasks(data: Dataset) -> dict[str, NDArray[np.int64]]:
    """Return the tasks with two classes of enough examples for every fold, and those examples."""
    rows = {task: of_common_classes(y, EACH) for task, y in data.labels.items()}
    return {task: some for task, some in rows.items() if len(some)}


def _through_views(images: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Return one view of each image, uint8 [n, H, W, C]."""
    views = build_views(VIEWS, channels=images.shape[3], seed=seed)
    generator = torch.Generator().manual_seed(seed)
    seen = []
    for first in range(0, len(images), _BATCH):
        x = image_batch(images[first : first + _BATCH], torch.device("cpu"))
        (view,) = views(x, 1, generator)
        seen.append((255 * view.clamp(0, 1)).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
    return np.concatenate(seen)


def _read(h: Tensor, y: NDArray[np.int64], rows: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """Return which of the examples `rows` a linear probe reads, each one fitted on other folds."""
    classes, target = np.unique(y[rows], return_inverse=True)
    fold = _folds(target, seed)
    hits = np.zeros(len(rows), dtype=bool)
    x, t = h[torch.from_numpy(rows).to(h.device)], torch.from_numpy(target).to(h.device)
    for held in range(FOLDS):
        out = torch.from_numpy(fold == held).to(h.device)
        fit, test = {"task": t[~out]}, {"task": t[out]}
        result = fit_linear(x[~out], fit, x[out], test, classes={"task": len(classes)}, seed=seed)
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


def _alignment(old: Tensor, new: Tensor) -> float | None:
    try:
        return linear_cka(old, new)
    except ValueError:  # one of them does not vary
        return None
