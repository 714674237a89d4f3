"""Features of graded ease planted into images: an audit that needs no labels.

An encoder that sees only the easiest plants, which are large, opaque, white and always at one
place, has learned little of the feature. An encoder may also see a plant so well that images with
the same plant become neighbors: it then hides what the images themselves show.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from widefield.audits.bounds import DRAWS, Bounds, Say, audit_tasks, graded_bounds, measure_bounds
from widefield.audits.verdict import TaskAudit
from widefield.data import Dataset
from widefield.data.planted import PLANTS, AudioOverlay, ImageOverlay
from widefield.encoders import Encoder, EncoderSettings
from widefield.inference.features import DEFAULT_ARCHITECTURE, FeatureExtractor
from widefield.inference.splits import TrainTest, subset
from widefield.metrics import neighbor_agreement
from widefield.workflows.pretrain import pretrain

GRADES: dict[str, tuple[ImageOverlay | AudioOverlay, ...]] = {
    plant.name: plant.grades()
    for plant in PLANTS.values()
    if issubclass(plant, ImageOverlay | AudioOverlay)
}
"""Options of each plant from hard to easy to see: size and opacity grow, then the color is the
same in every image, then the place too. At a fixed place raw pixels tell as much as any encoder."""
MIDDLE = 2
"""Position of the grade whose verdict is the plant's."""
_EXAMPLES = {"train": 2000, "test": 1000}
"""How many images are planted at most."""
GRAPH_NEIGHBORS = 10
"""How many nearest neighbors of an image are compared."""
TRAIN_IMAGES = 80_000
"""How many images a short pretraining is shown, counted with repetition."""


@dataclass(frozen=True, kw_only=True)
class PlantAudit:
    """One planted feature at every grade of ease, hard to easy."""

    name: str
    grades: tuple[TaskAudit, ...]
    neighbors_kept: tuple[float, ...]
    """At each grade, the share of its nearest neighbors that an image keeps when all images are
    planted."""
    neighbors_by_chance: float
    """`neighbors_kept` of unrelated features."""

    @property
    def verdict(self) -> TaskAudit:
        """The verdict at the middle grade."""
        return self.grades[MIDDLE]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "grades": [grade.to_json() for grade in self.grades],
            "neighbors_kept": list(self.neighbors_kept),
            "neighbors_by_chance": self.neighbors_by_chance,
        }

    def line(self) -> str:
        """Say in one plain sentence what planting does to the images' own neighbors."""
        middle, easiest = (100 * self.neighbors_kept[i] for i in (MIDDLE, -1))
        return (
            f"{self.name}: with the middle plant an image keeps {middle:.0f} % of "
            f"its {GRAPH_NEIGHBORS} nearest neighbors, with the easiest {easiest:.0f} %"
        )


@dataclass(frozen=True, kw_only=True)
class TrainAudit:
    """The same short pretraining on images as they are and with a plant in each."""

    plant: str
    method: str
    epochs: int
    without: Mapping[str, TaskAudit]
    """Task -> verdict after training on the plain images."""
    planted: Mapping[str, TaskAudit]
    """Task -> verdict after training on the planted images."""
    neighbors_shared: float
    """Share of nearest neighbors, among plain images, that the two encoders agree on."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "plant": self.plant,
            "method": self.method,
            "epochs": self.epochs,
            "without": {task: verdict.to_json() for task, verdict in self.without.items()},
            "planted": {task: verdict.to_json() for task, verdict in self.planted.items()},
            "neighbors_shared": self.neighbors_shared,
        }

    def line(self) -> str:
        """Say in one plain sentence what the plant did to training."""
        parts = [
            f"{task} {_share(self.without[task])} learned without it, {_share(planted)} with it"
            for task, planted in self.planted.items()
        ]
        return f"{self.method} with {self.plant} planted: {'; '.join(parts)}"


def has_room(data: TrainTest, name: str, *, seed: int) -> bool:
    """Return whether a probe can be fitted to the plant `name`, whose classes are drawn by chance.

    It needs two classes or more, and two examples of each that is there.
    """
    y = data.planted_labels(GRADES[name][MIDDLE], seed=seed)
    # Drawn by place, not by image.
    _, sizes = np.unique(y[: _EXAMPLES["train"]], return_counts=True)
    return len(sizes) > 1 and bool(sizes.min() > 1)


def audit_plant(
    extractor: FeatureExtractor,
    data: TrainTest,
    name: str,
    *,
    cache: Path | None,
    seed: int,
    say: Say,
) -> tuple[PlantAudit, Bounds]:
    """Judge the plant `name` at every grade, and what it does to the images' neighbors.

    Where a grade is unclear, all are held against more draws of the untrained floor.

    Returns:
        What was found, and floors and ceiling of the middle grade, for `judge_plant`.
    """
    data = _thinned(data)
    planted = [data.planted(feature, seed=seed) for feature in GRADES[name]]

    def judged(draws: int) -> tuple[list[Bounds], tuple[TaskAudit, ...]]:
        bounds = graded_bounds(extractor, planted, cache=cache, seed=seed, say=say, draws=draws)
        pairs = zip(planted, bounds, strict=True)
        return bounds, tuple(audit_tasks(extractor, *pair, seed=seed)[name] for pair in pairs)

    bounds, grades = judged(draws=1)
    if any(grade.verdict == "unclear" for grade in grades):
        bounds, grades = judged(draws=DRAWS)
    k = min(GRAPH_NEIGHBORS, len(data.test) - 1)
    plain = extractor.features(data.test.images)
    found = PlantAudit(
        name=name,
        grades=grades,
        neighbors_kept=tuple(
            float(neighbor_agreement(plain, extractor.features(grade.test.images), k).mean())
            for grade in planted
        ),
        neighbors_by_chance=k / (len(data.test) - 1),
    )
    return found, bounds[MIDDLE]


def judge_plant(
    extractor: FeatureExtractor, data: TrainTest, name: str, bounds: Bounds, *, seed: int
) -> TaskAudit:
    """Judge the plant `name` at its middle grade, of another encoder of the same architecture."""
    planted = _thinned(data).planted(GRADES[name][MIDDLE], seed=seed)
    return audit_tasks(extractor, planted, bounds, seed=seed)[name]


def audit_training(
    extractor: FeatureExtractor,
    data: TrainTest,
    name: str,
    method: str,
    *,
    cache: Path | None,
    seed: int,
    say: Say,
) -> TrainAudit:
    """Pretrain twice from scratch, without and with the plant, and judge both on all tasks.

    The image's own tasks are probed on the plain images, the plant on the planted ones.
    """
    planted = data.planted(GRADES[name][MIDDLE], seed=seed)
    architecture = EncoderSettings(name=extractor.architecture or DEFAULT_ARCHITECTURE)
    if isinstance(extractor.encoder, Encoder):
        architecture = EncoderSettings.of(extractor.encoder.config)
    epochs = max(1, round(TRAIN_IMAGES / len(data.train)))
    k = min(GRAPH_NEIGHBORS, len(data.test) - 1)
    verdicts, features = [], []
    for shown in (data, planted):
        say(
            f"pretraining {architecture.name} with {method} for {epochs} epochs on "
            f"{shown.train.spec}"
        )
        encoder = _pretrained(shown.train, method, architecture, epochs, seed)
        trained = FeatureExtractor(
            name=method, encoder=encoder, image_size=encoder.config.image_size
        )
        tasks: dict[str, TaskAudit] = {}
        for labeled in (data, planted):
            if labeled.train.labels:
                # Either may be unclear, and both are held against the same floors.
                bounds = measure_bounds(
                    trained, labeled, cache=cache, seed=seed, say=say, draws=DRAWS
                )
                tasks |= audit_tasks(trained, labeled, bounds, seed=seed)
        verdicts.append(tasks)
        features.append(trained.features(data.test.images))
    return TrainAudit(
        plant=name,
        method=method,
        epochs=epochs,
        without=verdicts[0],
        planted=verdicts[1],
        neighbors_shared=float(neighbor_agreement(features[0], features[1], k).mean()),
    )


def _pretrained(
    dataset: Dataset, method: str, architecture: EncoderSettings, epochs: int, seed: int
) -> Encoder:
    with tempfile.TemporaryDirectory() as folder:
        trained = pretrain(
            # Labels go along: a method reads them only if it is supervised.
            dataset.arrays(),
            seconds=None if dataset.rate is None else dataset.images.shape[2] / dataset.rate,
            out=Path(folder) / "run",
            method=method,
            encoder=architecture,
            views="gentle",
            epochs=epochs,
            batch_size=min(256, len(dataset)),
            seed=seed,
            quiet=True,
        )
    if not trained.finished:
        raise KeyboardInterrupt
    return trained.encoder


def _thinned(data: TrainTest) -> TrainTest:
    """Take examples from all over both halves."""

    def some(dataset: Dataset, most: int) -> Dataset:
        return subset(dataset, dataset.spread_rows(most))

    return TrainTest(
        train=some(data.train, _EXAMPLES["train"]), test=some(data.test, _EXAMPLES["test"])
    )


def _share(task: TaskAudit) -> str:
    return "not separable" if task.learned is None else f"{100 * task.learned:.0f} %"
