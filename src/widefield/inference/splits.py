"""The images that probes are fitted on, and those that they are scored on."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.data import Dataset, count_of_source, open_dataset, same_images, to_test_split
from widefield.data.examples import Examples
from widefield.data.labels import LabelTable
from widefield.data.open import Data
from widefield.data.planted import AudioFeature, Canvas, ImageFeature
from widefield.data.select import balanced_subset
from widefield.data.spec import BUILT_IN, MEMORY, parse, spec_text
from widefield.inference.features import FeatureExtractor, images_progress
from widefield.train.run_dir import RunFolder

_TEST_SHARE = 0.2

_FEW_LEAKED = 0.05
"""Share of the scored examples below which those that were fitted on hardly change the score."""


@dataclass(frozen=True, kw_only=True)
class TrainTest:
    """Examples to fit probes on and others to score them on, with the same classes."""

    train: Dataset
    test: Dataset

    def only(self, task: str) -> "TrainTest":
        """Return the same images, with the labels of one task."""
        return TrainTest(train=_only(self.train, task), test=_only(self.test, task))

    def planted_labels(
        self, feature: ImageFeature | AudioFeature, *, seed: int
    ) -> NDArray[np.int64]:
        """Return the class ids that `planted` gives the images to fit on, without drawing any."""
        overlay = feature.draw(_canvas(self.train, seed=seed, held_out=False))
        return overlay.labels(np.arange(len(self.train)))

    def planted(self, feature: ImageFeature | AudioFeature, *, seed: int) -> "TrainTest":
        """Return the same images with a feature drawn over them, and its labels alone."""
        return TrainTest(
            train=_planted(self.train, feature, seed=seed, held_out=False),
            test=_planted(self.test, feature, seed=seed, held_out=True),
        )


def open_train_test(
    extractor: FeatureExtractor,
    data: Data | None,
    *,
    train_data: Data | None = None,
    labels: LabelTable | None = None,
    max_examples: int | None,
    seed: int,
    quiet: bool = False,
) -> TrainTest:
    """Open both halves of `data`; by default those of the data that a run was trained on.

    With `train_data`, all of `data` is to score on; by default the test split of the run's data.

    A built-in source gives its train and test splits; a path is divided 80 / 20 by a hash of each
    name, arrays by a hash of each row. `max_examples` takes a class-balanced first N to fit on, and
    a quarter of that to score on, or all where there are fewer. With `labels`, the examples that
    have all of them are divided.

    Raises:
        ValueError: an input that cannot work, fewer than two classes, or a class with fewer than
            two examples to fit on; one line says which and what to do.
    """
    if max_examples is not None and max_examples < 1:
        raise ValueError(f"max_examples is {max_examples}; expected at least 1")
    opened = partial(extractor.open, quiet=quiet, labels=labels)
    if train_data is not None:
        _refuse_two_sources(labels)
        train = opened(train_data, max_examples=max_examples, seed=seed)
        scored = scoring_data(extractor, data)
        fewer = _fewer(max_examples, scored, None)
        test = opened(scored, like=train, max_examples=fewer, seed=seed, held_out=True)
        return _checked(TrainTest(train=train, test=test))
    if data is not None and not isinstance(data, str | Path):
        return _checked(_divided(opened(data, seed=seed), max_examples))
    if data is not None:
        text = _with_split(spec_text(data), labels)
        train = opened(text, max_examples=max_examples, seed=seed)
    elif extractor.run is None:
        raise ValueError(f"{extractor.name} is no run of ours: say which data to judge it on")
    else:
        own = own_data(extractor.run, "give the data to judge it on")
        text, seed = _with_split(own, labels), extractor.run.recipe().seed
        if max_examples is None and text == own and labels is None:
            train = training_data(extractor.run, quiet=quiet)
        else:
            train = opened(text, max_examples=max_examples, seed=seed)
    fewer = _fewer(max_examples, to_test_split(text), labels)
    test = opened(to_test_split(text), like=train, max_examples=fewer, seed=seed, held_out=True)
    return _checked(TrainTest(train=train, test=test))


def subset(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """Return the examples `rows` of a data set, in that order, as they are at read 0."""
    return dataset.subset(rows).first_read()


def same_ids(train: Dataset, test: Dataset, task: str) -> NDArray[np.int64]:
    """Return the test labels as class ids of the training set, which may list them differently.

    Raises:
        ValueError: the training set does not list one of the classes.
    """
    ids = {name: k for k, name in enumerate(train.classes[task])}
    unknown = [name for name in test.classes[task] if name not in ids]
    if unknown:
        raise ValueError(
            f"task {task!r}: class {unknown[0]!r} of {test.spec} is not in {train.spec}: "
            "score on data with the same classes"
        )
    to_train = np.array([ids[name] for name in test.classes[task]], dtype=np.int64)
    return to_train[test.labels[task]]


def reading_notes(train: Dataset, test: Dataset) -> list[str]:
    """Return what was skipped or chosen in reading; what both parts of one source say, once."""
    alike = train.notes == test.notes or same_images(train.spec, test.spec)
    said = [note for note in train.notes if alike and note in test.notes]
    fitted = [f"fitted on: {note}" for note in train.notes if note not in said]
    return [*said, *fitted, *(f"scored on: {note}" for note in test.notes if note not in said)]


def own_data(run: RunFolder, remedy: str) -> str:
    """Return the name of the data that a run was trained on; `remedy` says what to give instead.

    Raises:
        ValueError: they were arrays in memory.
    """
    data = str(run.settings()["data"])
    if data == MEMORY:
        raise ValueError(
            f"{run.path} was trained on arrays in memory, which were not kept: {remedy}"
        )
    return data


def training_data(run: RunFolder, *, quiet: bool = False) -> Dataset:
    """Open the data that a run was trained on, and refuse them if they changed."""
    data = own_data(run, "say what to fit on with train_data=DATA (--train-data DATA)")
    with images_progress(quiet, "reading images") as progress:
        opening = run.recipe().opening() | run.form()
        dataset = open_dataset(data, **opening, progress=progress)
    dataset = run.manifest.in_order(dataset)
    run.manifest.refuse_other(dataset)
    return dataset


def scoring_data(extractor: FeatureExtractor, data: Any | None) -> Any:
    """Return what to score on: `data`, by default the test split of the data of a run.

    Raises:
        ValueError: there is neither.
    """
    if data is not None:
        return data
    if extractor.run is None:
        raise ValueError(f"{extractor.name} is no run of ours: say what to score on")
    return to_test_split(own_data(extractor.run, "say what to score on"))


def count_leaked(
    test: Dataset, spec: str, digests: NDArray[np.uint64], paths: Collection[str]
) -> int:
    """Count the examples of `test` that are among those of `spec`, whatever is planted on them.

    Args:
        test: examples to score on.
        spec: where the others come from.
        digests: theirs.
        paths: theirs.
    """
    same = np.isin(test.digests(), digests)
    if same_images(spec, test.spec):
        # A planted feature that is drawn anew changes the pixels, not the image below it.
        same |= np.isin(test.paths, list(paths))
    return int(same.sum())


def leak_note(test: Dataset, train: Dataset) -> list[str]:
    """Say of a probe that is scored on examples that it was fitted on what that does."""
    count = count_leaked(test, train.spec, train.digests(), train.paths)
    if not count:
        return []
    some, one = f"{count} of the {len(test)} scored {test.kind}", count == 1
    if count < _FEW_LEAKED * len(test):
        copies = "is a copy of one" if one else "are copies of some"
        raises = "it raises" if one else "they raise"
        return [
            f"{some} {copies} that the probe is fitted on: {raises} the score by "
            f"{100 * count / len(test):.1f} points at most"
        ]
    remedy = "score on others, as DATA:test with --train-data DATA:train does"
    if set(test.paths).isdisjoint(train.paths):  # they are others already, with copies among them
        remedy = "leave out the copies, which widefield explore lists"
    are = "is" if one else "are"
    return [
        f"{some} {are} among those that the probe is fitted on, so the score says little: {remedy}"
    ]


def _fewer(max_examples: int | None, scored: Data, labels: LabelTable | None) -> int | None:
    """Return how many of `scored` to take: a quarter of those fitted on, if there are as many."""
    return (
        None
        if max_examples is None
        else min(_quarter(max_examples), count_of_source(scored, labels))
    )


def _quarter(max_examples: int) -> int:
    return max(1, max_examples // 4)


def _divided(dataset: Dataset, max_examples: int | None) -> TrainTest:
    """Keep a fifth of the rows for testing, chosen by a hash of each; then take the first."""
    share = rng.bits(0, "audit/test", np.arange(len(dataset))) / 2.0**64
    test = np.flatnonzero(share < _TEST_SHARE)
    if not 0 < len(test) < len(dataset):
        raise ValueError(f"{len(dataset)} examples are too few to divide: give ten at least")
    train = np.flatnonzero(share >= _TEST_SHARE)
    fewer = None if max_examples is None else min(_quarter(max_examples), len(test))
    examples = Examples(names=dataset.paths, labels=dataset.labels)
    return TrainTest(
        train=subset(dataset, balanced_subset(examples, train, max_examples)),
        test=subset(dataset, balanced_subset(examples, test, fewer)),
    )


def _refuse_two_sources(labels: LabelTable | None) -> None:
    if labels is not None:
        raise ValueError(
            "labels are those of one set of data, of which a fifth is scored on: leave train_data "
            "out (--train-data)"
        )


def _with_split(text: str, labels: LabelTable | None) -> str:
    """Take a path without a split for its training split.

    Raises:
        ValueError: there are labels for built-in data, whose splits number their examples anew.
    """
    spec = parse(text)
    if labels is not None and spec.base in BUILT_IN:
        raise ValueError(f"{spec.base} has labels of its own: leave labels out (--labels)")
    return str(replace(spec, split="train")) if spec.split is None else text


def _checked(data: TrainTest) -> TrainTest:
    data = replace(data, test=_numbered_as(data.train, data.test))
    for task, y in data.train.labels.items():
        names = data.train.classes[task]
        fitted = np.bincount(y, minlength=len(names))
        present = fitted + np.bincount(data.test.labels[task], minlength=len(names)) > 0
        if present.sum() < 2:
            raise ValueError(f"task {task!r}: labels hold one class: two are needed")
        scarce = np.flatnonzero(present & (fitted < 2))
        if len(scarce):
            name, count = names[scarce[0]], int(fitted[scarce[0]])
            raise ValueError(
                f"task {task!r}: class {name!r} has {count} example{'s' * (count != 1)} to fit on: "
                "two are needed, so give more of it or leave it out"
            )
    return data


def _numbered_as(train: Dataset, test: Dataset) -> Dataset:
    """Return `test` with the class ids of `train`, where both have a task.

    Raises:
        ValueError: `test` lacks a task of `train`, or has a class that `train` does not list.
    """
    missing = [task for task in train.labels if task not in test.labels]
    if missing:
        raise ValueError(
            f"{test.spec} has no labels of task {missing[0]!r}, which {train.spec} has: leave it "
            "out of these, or score on data that have it"
        )
    return replace(
        test,
        labels=test.labels | {task: same_ids(train, test, task) for task in train.labels},
        classes=test.classes | train.classes,
    )


def _only(dataset: Dataset, task: str) -> Dataset:
    return replace(
        dataset, labels={task: dataset.labels[task]}, classes={task: dataset.classes[task]}
    )


def _planted(
    dataset: Dataset, feature: ImageFeature | AudioFeature, *, seed: int, held_out: bool
) -> Dataset:
    overlay = feature.draw(_canvas(dataset, seed=seed, held_out=held_out))
    return _only(dataset.with_overlay(overlay), feature.name)


def _canvas(dataset: Dataset, *, seed: int, held_out: bool) -> Canvas:
    height, width, channels = dataset.images.shape[1:]
    shape = (height, width, channels)
    return Canvas(shape=shape, seed=seed, held_out=held_out, rate=dataset.rate)
