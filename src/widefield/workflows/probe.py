"""How much of each task can be read off the frozen features, beside two floors."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widefield.data import Dataset, held_out_split, open_dataset, same_images
from widefield.probes import score
from widefield.types import Score
from widefield.workflows.frozen import EncoderSpec, Frozen, open_frozen, training_data
from widefield.workflows.pretrain import Data


@dataclass(frozen=True, kw_only=True)
class TaskProbe:
    """One task: the encoder's score beside the two floors."""

    score: Score
    floor: dict[str, Score]
    """The same probe on raw `pixels`, and on a `random` encoder of the same architecture."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `widefield probe --json` prints them."""
        floor = {name: score.accuracy for name, score in self.floor.items()}
        return {**asdict(self.score), "floor": floor}


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Scores of every task, and what they were measured on."""

    encoder: str
    fitted_on: str
    scored_on: str
    seen: int
    """Test images that the encoder was trained on, without their labels."""
    notes: tuple[str, ...]
    """Which weights were used, where that is not plain from the name."""
    tasks: dict[str, TaskProbe]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `widefield probe --json` prints them."""
        return {
            "encoder": self.encoder,
            "fitted_on": self.fitted_on,
            "scored_on": self.scored_on,
            "seen": self.seen,
            "notes": list(self.notes),
            "tasks": {task: probe.to_json() for task, probe in self.tasks.items()},
        }


def probe(
    encoder: EncoderSpec,
    data: Data | None = None,
    *,
    fit_on: Data | None = None,
    task: str | None = None,
    limit: int | None = None,
    floors: bool = True,
    seed: int = 0,
) -> ProbeReport:
    """Fit a linear probe and a nearest-neighbour vote on frozen features, and score them.

    Args:
        encoder: anything that `open_frozen` opens, or a module; it is never changed.
        data: what to score on; by default the test split of the run's data.
        fit_on: what to fit on; by default the run's own training data.
        task: score this task alone.
        limit: score on a class-balanced first N of `data`.
        floors: probe raw pixels and an untrained encoder too, which takes most of the time.
        seed: of the validation split that chooses the L2 strength.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.

    Example:
        >>> probe("random", "photos:test", fit_on="photos", limit=200).tasks["class"].score.classes
        16
    """
    frozen = open_frozen(encoder)
    train = _training_set(frozen, fit_on)
    test = open_dataset(
        _test_data(frozen, data),
        limit=limit,
        image_size=train.images.shape[1],
        seed=0 if frozen.run is None else frozen.run.recipe().seed,
        held_out=True,
    )
    tasks = _shared_tasks(train, test, task)
    labels = {t: torch.from_numpy(train.labels[t]) for t in tasks}
    expected = {t: _same_ids(train, test, t) for t in tasks}
    classes = {t: len(train.classes[t]) for t in tasks}

    def scores(train_h: Tensor, test_h: Tensor) -> dict[str, Score]:
        here = {t: y.to(train_h.device) for t, y in labels.items()}
        there = {t: y.to(test_h.device) for t, y in expected.items()}
        return score(train_h, here, test_h, there, classes=classes, seed=seed)

    measured = scores(frozen.features(train.images), frozen.features(test.images))
    beside = {}
    if floors:
        fresh = Frozen(name="random", encoder=frozen.floor_for(train.images))
        beside = {
            source.name: scores(source.features(train.images), source.features(test.images))
            for source in (Frozen(name="pixels"), fresh)
        }
    return ProbeReport(
        encoder=frozen.name,
        fitted_on=train.spec,
        scored_on=test.spec,
        notes=frozen.notes,
        seen=_seen(frozen, test),
        tasks={
            t: TaskProbe(score=measured[t], floor={name: row[t] for name, row in beside.items()})
            for t in tasks
        },
    )


def _training_set(frozen: Frozen, fit_on: Data | None) -> Dataset:
    if fit_on is not None:
        return open_dataset(fit_on, image_size=frozen.image_size)
    if frozen.run is None:
        raise ValueError(f"{frozen.name} is no run of ours: say what to fit on with --fit-on DATA")
    return training_data(frozen.run)


def _test_data(frozen: Frozen, data: Data | None) -> Data:
    if data is not None:
        return data
    if frozen.run is None:
        raise ValueError(f"{frozen.name} is no run of ours: say what to score on")
    return held_out_split(str(frozen.run.settings()["data"]))


def _shared_tasks(train: Dataset, test: Dataset, task: str | None) -> list[str]:
    """Tasks that both sets have labels for."""
    shared = [t for t in train.labels if t in test.labels]
    if task is not None and task not in shared:
        raise ValueError(f"no task {task!r} in both sets: they share {', '.join(shared) or 'none'}")
    if not shared:
        raise ValueError(
            f"{train.spec} and {test.spec} share no labelled task: give data with first-level "
            "subfolders or label arrays, or plant a feature such as +digits in both"
        )
    return shared if task is None else [task]


def _same_ids(train: Dataset, test: Dataset, task: str) -> Tensor:
    """Test labels by the training set's class ids: the two may list their classes differently."""
    ids = {name: k for k, name in enumerate(train.classes[task])}
    unknown = [name for name in test.classes[task] if name not in ids]
    if unknown:
        raise ValueError(
            f"task {task!r}: class {unknown[0]!r} of {test.spec} is not in {train.spec}: "
            "score on data with the same classes"
        )
    to_train = np.array([ids[name] for name in test.classes[task]], dtype=np.int64)
    return torch.from_numpy(to_train[test.labels[task]])


def _seen(frozen: Frozen, test: Dataset) -> int:
    """Number of test images that the encoder has been trained on."""
    if frozen.run is None:
        return 0
    same = np.isin(test.digests(), frozen.run.digests())
    if same_images(str(frozen.run.settings()["data"]), test.spec):
        # A planted feature that is drawn anew changes the pixels, not the image below it.
        same |= np.isin(test.paths, frozen.run.paths())
    return int(same.sum())
