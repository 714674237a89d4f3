"""Two halves of a data set, and what can be read off an encoder's features of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.audits.verdict import Reading
from widefield.core import rng
from widefield.data import Dataset, held_out_split, open_dataset
from widefield.data.plants import Canvas, Drawn
from widefield.data.spec import parse
from widefield.probes import fit_linear, knn
from widefield.workflows.frozen import Frozen, training_data
from widefield.workflows.pretrain import Data

_TEST_SHARE = 0.2

Features = Callable[[NDArray[np.uint8]], Tensor]
"""Images uint8 [n, H, W, C] -> features float [n, D]."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Examples to fit probes on and others to score them on, with the same classes."""

    train: Dataset
    test: Dataset

    def only(self, task: str) -> "Pair":
        """The same images, with the labels of one task."""
        return Pair(train=_only(self.train, task), test=_only(self.test, task))

    def planted(self, feature: Drawn, *, seed: int) -> "Pair":
        """The same images with a feature drawn over them, and its labels alone."""
        return Pair(
            train=_planted(self.train, feature, seed=seed, held_out=False),
            test=_planted(self.test, feature, seed=seed, held_out=True),
        )


def open_pair(frozen: Frozen, data: Data | None, *, limit: int | None, seed: int) -> Pair:
    """Both halves of `data`, or of what a run was trained on.

    A built-in source gives its train and test splits; a path is divided 80 / 20 by a hash of each
    name, arrays by a hash of each row. `limit` takes a class-balanced first N to fit on, and a
    quarter of that to score on.

    Raises:
        ValueError: an input that cannot work, fewer than two classes, or a class with fewer than
            two examples to fit on; one line says which and what to do.
    """
    size = frozen.image_size
    if data is not None and not isinstance(data, str | Path):
        return _checked(_cut(open_dataset(data, limit=limit, image_size=size, seed=seed)))
    if data is not None:
        text = _with_split(str(data))
        train = open_dataset(text, limit=limit, image_size=size, seed=seed)
    elif frozen.run is None:
        raise ValueError(f"{frozen.name} is no run of ours: say which data to audit it on")
    else:
        text, seed = str(frozen.run.settings()["data"]), frozen.run.recipe().seed
        train = training_data(frozen.run)
        if limit is not None:
            train = open_dataset(text, limit=limit, image_size=size, seed=seed)
    fewer = None if limit is None else max(1, limit // 4)
    side = train.images.shape[1]
    test = open_dataset(
        held_out_split(text), limit=fewer, image_size=side, seed=seed, held_out=True
    )
    return _checked(Pair(train=train, test=test))


def read(features: Features, pair: Pair, *, seed: int = 0) -> dict[str, Reading]:
    """Linear probe and nearest neighbours' vote of every task of `pair`.

    Raises:
        ValueError: a task with fewer than two classes, a class with one example, features that
            are not finite, or not one row for each image.
    """
    train_h, test_h = features(pair.train.images), features(pair.test.images)
    classes = {task: len(names) for task, names in pair.train.classes.items()}
    train_y, test_y = _labels(pair.train, train_h), _labels(pair.test, test_h)
    near = knn(train_h, train_y, test_h, test_y, classes=classes)
    found = {}
    for task in classes:
        # One by one: which images choose the L2 strength must not depend on what is fitted beside,
        # or an encoder and its floor would not be read alike.
        one = ({task: train_y[task]}, test_h, {task: test_y[task]})
        result = fit_linear(train_h, *one, classes={task: classes[task]}, seed=seed)[task]
        guess = (test_h.float() @ result.weight.T + result.bias).argmax(1)
        found[task] = Reading(hits=(guess == test_y[task]).cpu().numpy(), knn=near[task])
    return found


def subset(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """Some examples of a data set as they are at read 0, in the order of `rows`."""
    return dataset.subset(rows).first_read()


def _cut(dataset: Dataset) -> Pair:
    """A fifth of the rows for testing, by a hash of each."""
    share = rng.bits(0, "audit/test", np.arange(len(dataset))) / 2.0**64
    test = np.flatnonzero(share < _TEST_SHARE)
    if not 0 < len(test) < len(dataset):
        raise ValueError(f"{len(dataset)} examples are too few to audit on: give ten at least")
    train = np.flatnonzero(share >= _TEST_SHARE)
    return Pair(train=subset(dataset, train), test=subset(dataset, test))


def _with_split(text: str) -> str:
    """A path without a split means its training split."""
    spec = parse(text)
    return str(replace(spec, split="train")) if spec.split is None else text


def _checked(pair: Pair) -> Pair:
    for task, y in pair.train.labels.items():
        names = pair.train.classes[task]
        if pair.test.classes.get(task) != names:
            raise ValueError(f"task {task!r}: both splits must list the same classes")
        fitted = np.bincount(y, minlength=len(names))
        asked = fitted + np.bincount(pair.test.labels[task], minlength=len(names)) > 0
        if asked.sum() < 2:
            raise ValueError(f"task {task!r}: labels hold one class: an audit needs two")
        lonely = np.flatnonzero(asked & (fitted < 2))
        if len(lonely):
            name, count = names[lonely[0]], int(fitted[lonely[0]])
            raise ValueError(
                f"task {task!r}: class {name!r} has {count} example{'s' * (count != 1)} to fit on: "
                "two are needed, so give more of it or leave it out"
            )
    return pair


def _only(dataset: Dataset, task: str) -> Dataset:
    return replace(
        dataset, labels={task: dataset.labels[task]}, classes={task: dataset.classes[task]}
    )


def _planted(dataset: Dataset, feature: Drawn, *, seed: int, held_out: bool) -> Dataset:
    height, width, channels = dataset.images.shape[1:]
    canvas = Canvas(shape=(height, width, channels), seed=seed, held_out=held_out)
    return _only(dataset.with_overlay(feature.draw(canvas)), feature.name)


def _labels(dataset: Dataset, h: Tensor) -> dict[str, Tensor]:
    return {task: torch.from_numpy(y).to(h.device) for task, y in dataset.labels.items()}
