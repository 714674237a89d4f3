"""Features of graded ease planted into somebody's own images: the test that needs no labels.

An encoder that sees a plant only where it is large, opaque, white and always at the same place
has learned little of it. One that sees it so well that images become neighbours by their plant
alone hides what the image itself shows.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from widefield.audits.bounds import Say, audit_tasks, bounds, graded_bounds
from widefield.audits.read import Pair, subset
from widefield.audits.verdict import TaskAudit
from widefield.data import Dataset
from widefield.data.plants import PLANTS, Drawn
from widefield.diagnose import graph_overlap, nearest_neighbours
from widefield.encoders import Encoder
from widefield.workflows.frozen import DEFAULT_ARCHITECTURE, Frozen
from widefield.workflows.pretrain import pretrain

GRADES: dict[str, tuple[Drawn, ...]] = {
    plant.name: plant.grades() for plant in PLANTS.values() if issubclass(plant, Drawn)
}
"""Options of each plant from hard to easy to see: size and opacity grow, then the colour is the
same in every image, then the place too, where raw pixels tell as much as any encoder."""
MIDDLE = 2
"""The grade whose verdict is the plant's."""
EXAMPLES = {"train": 2000, "test": 1000}
"""Most images that are planted."""
NEIGHBOURS = 10
TRAIN_IMAGES = 80_000
"""Images that a short pretraining with and without a plant is shown."""


@dataclass(frozen=True, kw_only=True)
class PlantAudit:
    """One planted feature at every grade of ease, hard to easy."""

    name: str
    grades: tuple[TaskAudit, ...]
    kept: tuple[float, ...]
    """Share of an image's nearest neighbours that it keeps when all images are planted."""
    chance: float
    """`kept` of unrelated features."""

    @property
    def verdict(self) -> TaskAudit:
        """At the middle grade."""
        return self.grades[MIDDLE]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "learned": [grade.learned for grade in self.grades],
            "verdicts": [grade.verdict for grade in self.grades],
            "neighbours_kept": list(self.kept),
            "neighbours_kept_by_chance": self.chance,
        }

    def line(self) -> str:
        """What planting does to the images' own neighbours, in one plain sentence."""
        return (
            f"{self.name}: with the middle plant an image keeps {100 * self.kept[MIDDLE]:.0f} % of "
            f"its {NEIGHBOURS} nearest neighbours, with the easiest {100 * self.kept[-1]:.0f} %"
        )


@dataclass(frozen=True, kw_only=True)
class TrainAudit:
    """The same short pretraining on images as they are and with a plant in each."""

    plant: str
    method: str
    epochs: int
    without: dict[str, TaskAudit]
    """Task -> what training on the plain images learned of it."""
    planted: dict[str, TaskAudit]
    """Task -> what training on the planted images learned of it."""
    shared: float
    """Share of nearest neighbours, among plain images, that the two encoders agree on."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "plant": self.plant,
            "method": self.method,
            "epochs": self.epochs,
            "learned_without": {task: found.learned for task, found in self.without.items()},
            "learned_with": {task: found.learned for task, found in self.planted.items()},
            "neighbours_shared": self.shared,
        }

    def line(self) -> str:
        """What the plant did to training, in one plain sentence."""
        parts = [
            f"{task} {_share(self.without[task])} learned without it, {_share(found)} with it"
            for task, found in self.planted.items()
        ]
        return f"{self.method} with {self.plant} planted: {'; '.join(parts)}"


def audit_plant(
    frozen: Frozen, pair: Pair, name: str, *, cache: Path | None, seed: int, say: Say
) -> PlantAudit:
    """Judge the plant `name` at every grade, and what it does to the images' neighbours."""
    pair = _thinned(pair)
    planted = [pair.planted(feature, seed=seed) for feature in GRADES[name]]
    limits = graded_bounds(frozen, planted, cache=cache, seed=seed, say=say)
    k = min(NEIGHBOURS, len(pair.test) - 1)
    plain = nearest_neighbours(frozen.features(pair.test.images), k)
    grades, kept = [], []
    for one, bound in zip(planted, limits, strict=True):
        grades.append(audit_tasks(frozen, one, bound, seed=seed)[name])
        near = nearest_neighbours(frozen.features(one.test.images), k)
        kept.append(graph_overlap(plain, near))
    return PlantAudit(
        name=name, grades=tuple(grades), kept=tuple(kept), chance=k / (len(pair.test) - 1)
    )


def audit_training(
    frozen: Frozen,
    pair: Pair,
    name: str,
    method: str,
    *,
    cache: Path | None,
    seed: int,
    say: Say,
) -> TrainAudit:
    """Pretrain twice from scratch, without and with the plant, and judge both on all tasks.

    The image's own tasks are read off the plain images, the plant off the planted ones.
    """
    planted = pair.planted(GRADES[name][MIDDLE], seed=seed)
    config = frozen.encoder.config if isinstance(frozen.encoder, Encoder) else None
    architecture = DEFAULT_ARCHITECTURE if config is None else config.name
    epochs = max(1, round(TRAIN_IMAGES / len(pair.train)))
    found, graphs = [], []
    for half in (pair, planted):
        say(f"pretraining {architecture} with {method} for {epochs} epochs on {half.train.spec}")
        encoder = _pretrained(half.train, method, architecture, epochs, seed)
        trained = Frozen(name=method, encoder=encoder, image_size=encoder.config.image_size)
        verdicts: dict[str, TaskAudit] = {}
        for one in (pair, planted):
            if one.train.labels:
                limits = bounds(trained, one, cache=cache, seed=seed, say=say)
                verdicts |= audit_tasks(trained, one, limits, seed=seed)
        found.append(verdicts)
        k = min(NEIGHBOURS, len(pair.test) - 1)
        graphs.append(nearest_neighbours(trained.features(pair.test.images), k))
    return TrainAudit(
        plant=name,
        method=method,
        epochs=epochs,
        without=found[0],
        planted=found[1],
        shared=graph_overlap(*graphs),
    )


def _pretrained(
    dataset: Dataset, method: str, architecture: str, epochs: int, seed: int
) -> Encoder:
    labels: dict[str, Any] = dict(dataset.labels) if method == "supervised" else {}
    with tempfile.TemporaryDirectory() as folder:
        done = pretrain(
            {"x": dataset.images, **labels},
            out=Path(folder) / "run",
            method=method,
            encoder=architecture,
            views="gentle",
            epochs=epochs,
            batch_size=min(256, len(dataset)),
            seed=seed,
            quiet=True,
        )
    if not done.finished:
        raise KeyboardInterrupt
    return done.encoder


def _thinned(pair: Pair) -> Pair:
    """Evenly spaced examples of both halves."""

    def some(dataset: Dataset, most: int) -> Dataset:
        rows = np.linspace(0, len(dataset) - 1, min(most, len(dataset)), dtype=np.int64)
        return subset(dataset, rows)

    return Pair(train=some(pair.train, EXAMPLES["train"]), test=some(pair.test, EXAMPLES["test"]))


def _share(found: TaskAudit) -> str:
    return "cannot be told" if found.learned is None else f"{100 * found.learned:.0f} %"
