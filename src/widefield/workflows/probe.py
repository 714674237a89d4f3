"""How much of each task can be read off the frozen features, beside two floors."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Generator, Tensor

from widefield.data import Dataset, held_out_split, open_dataset, same_images
from widefield.probes import Pixels, score, score_sgd
from widefield.recipe import check_name
from widefield.train.hardware import choose_device, choose_precision
from widefield.types import Score
from widefield.views import build_views
from widefield.workflows.frozen import EncoderSpec, Frozen, open_frozen, training_data
from widefield.workflows.pretrain import Data

Features = Literal["pooled", "prepool"]
Protocol = Literal["linear", "fd"]


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
    protocol: Protocol
    features: Features
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
            "protocol": self.protocol,
            "features": self.features,
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
    features: Features | None = None,
    protocol: Protocol = "linear",
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
        features: pooled, or prepool for the encoder's feature map; by default pooled, and prepool
            under the protocol fd.
        protocol: linear for the best probe on features of plain images, or fd for Feature
            Dropout's: 100 epochs of SGD on augmented images, which takes far longer.
        floors: probe raw pixels and an untrained encoder too, which takes most of the time.
        seed: of the validation split that chooses the L2 strength, or of the SGD.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.

    Example:
        >>> probe("random", "photos:test", fit_on="photos", limit=200).tasks["class"].score.classes
        16
    """
    check_name("protocol", protocol, get_args(Protocol))
    features = features or ("prepool" if protocol == "fd" else "pooled")
    check_name("features", features, get_args(Features))
    frozen = replace(open_frozen(encoder), prepool=features == "prepool")
    train = _training_set(frozen, fit_on)
    test = open_dataset(
        _test_data(frozen, data),
        limit=limit,
        image_size=train.images.shape[1],
        seed=0 if frozen.run is None else frozen.run.recipe().seed,
        held_out=True,
    )
    tasks = _shared_tasks(train, test, task)
    examples = _Examples(
        train=train.images,
        labels={t: torch.from_numpy(train.labels[t]) for t in tasks},
        test=test.images,
        expected={t: _same_ids(train, test, t) for t in tasks},
        classes={t: len(train.classes[t]) for t in tasks},
    )
    scores = _scores_fd if protocol == "fd" else _scores
    measured = scores(frozen, examples, seed)
    beside = {
        name: scores(source, examples, seed)
        for name, source in (_floors(frozen, train.images) if floors else {}).items()
    }
    return ProbeReport(
        encoder=frozen.name,
        protocol=protocol,
        features=features,
        fitted_on=train.spec,
        scored_on=test.spec,
        notes=frozen.notes,
        seen=_seen(frozen, test),
        tasks={
            t: TaskProbe(score=measured[t], floor={name: row[t] for name, row in beside.items()})
            for t in tasks
        },
    )


@dataclass(frozen=True, kw_only=True)
class _Examples:
    """What probes are fitted to and scored on: images uint8 [n, H, W, C], class ids by task."""

    train: np.ndarray
    labels: dict[str, Tensor]
    test: np.ndarray
    expected: dict[str, Tensor]
    classes: dict[str, int]


def _scores(source: Frozen, examples: _Examples, seed: int) -> dict[str, Score]:
    """The best linear probe on features of plain images."""
    train_h, test_h = source.features(examples.train), source.features(examples.test)
    here = {t: y.to(train_h.device) for t, y in examples.labels.items()}
    there = {t: y.to(test_h.device) for t, y in examples.expected.items()}
    return score(train_h, here, test_h, there, classes=examples.classes, seed=seed)


def _scores_fd(source: Frozen, examples: _Examples, seed: int) -> dict[str, Score]:
    """Feature Dropout's protocol, with that paper's views."""
    device, views = choose_device("auto"), build_views("expert:fd")

    def augment(x: Tensor, generator: Generator) -> Tensor:
        view: Tensor = views(x, 1, generator)[0]
        return view

    return score_sgd(
        (source.built_for(examples.train) or Pixels()).to(device),
        examples.train,
        examples.labels,
        examples.test,
        examples.expected,
        classes=examples.classes,
        augment=augment,
        device=device,
        precision=choose_precision("auto", device),
        seed=seed,
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


def _floors(frozen: Frozen, images: np.ndarray) -> dict[str, Frozen]:
    """What an encoder has to beat to have learned something."""
    fresh = Frozen(name="random", encoder=frozen.floor_for(images), prepool=frozen.prepool)
    return {"pixels": Frozen(name="pixels"), "random": fresh}


def _seen(frozen: Frozen, test: Dataset) -> int:
    """Number of test images that the encoder has been trained on."""
    if frozen.run is None:
        return 0
    same = np.isin(test.digests(), frozen.run.digests())
    if same_images(str(frozen.run.settings()["data"]), test.spec):
        # A planted feature that is drawn anew changes the pixels, not the image below it.
        same |= np.isin(test.paths, frozen.run.paths())
    return int(same.sum())
