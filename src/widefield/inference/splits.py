"""Training and test data of probes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.core.errors import option
from widefield.data import Dataset, count_of_source, open_dataset, same_images, to_test_split
from widefield.data.groups import FOLDER, REGEX, held_out_groups
from widefield.data.labels import LabelTable
from widefield.data.open_options import OpenOptions
from widefield.data.plant import draw
from widefield.data.planted import AudioFeature, Canvas, ImageFeature, Overlay, SoundOverlay
from widefield.data.select import balanced_subset
from widefield.data.source import Data
from widefield.data.spec import BUILTIN, MEMORY, parse, spec_text
from widefield.inference.features import FeatureExtractor, images_progress
from widefield.inference.scorable import scorable, with_tasks
from widefield.probes.folds import SplitGroups
from widefield.probes.score import split_groups
from widefield.train.run_dir import RunFolder

# As is usual; `_test_count` keeps the same ratio, one to four.
_TEST_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class TrainTest:
    """Examples to fit probes on, and others to score them on, with the same classes."""

    train: Dataset
    test: Dataset

    @property
    def groups(self) -> SplitGroups | None:
        """Groups of the training and of the test examples; None if they are not grouped."""
        return split_groups(self.train, self.test)

    @property
    def class_counts(self) -> dict[str, int]:
        """Task -> number of classes."""
        return {task: len(names) for task, names in self.train.classes.items()}

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of classes, then those of numbers and of several labels."""
        return (*self.train.labels, *self.train.targets)

    def only(self, *tasks: str) -> "TrainTest":
        """Return the same images, with the labels and targets of some tasks alone."""
        return TrainTest(train=with_tasks(self.train, tasks), test=with_tasks(self.test, tasks))

    def scorable(self) -> "TrainTest":
        """Return the part of the data that probes can be fitted and scored on; see `scorable`."""
        train, test = scorable(self.train, self.test)
        return TrainTest(train=train, test=test)

    def planted_labels(
        self, feature: ImageFeature | AudioFeature, *, seed: int
    ) -> NDArray[np.int64]:
        """Return the class ids of the training images in `planted`, without drawing images."""
        overlay = _overlay(self.train, feature, seed, held_out=False)
        return overlay.labels(np.arange(len(self.train)))

    def planted(self, feature: ImageFeature | AudioFeature, *, seed: int) -> "TrainTest":
        """Return the images with a planted feature, and its labels alone."""
        train, test = (
            half.with_overlay(_overlay(half, feature, seed, held_out=held_out))
            for half, held_out in ((self.train, False), (self.test, True))
        )
        return TrainTest(train=train, test=test).only(feature.name)


def open_train_test(
    extractor: FeatureExtractor,
    data: Data | None,
    *,
    train_data: Data | None = None,
    labels: LabelTable | None = None,
    group: str | None = None,
    max_examples: int | None,
    seed: int,
    quiet: bool = False,
) -> TrainTest:
    """Open training and test data for probes.

    A built-in source has a train and a test split; a path is split 80 / 20 by a hash of each name,
    arrays by a hash of each row. Groups are split whole.

    Args:
        extractor: the encoder, which determines the form of the data.
        data: what to split; by default the data of the run. With `train_data` all of it is the test
            data, by default the test split of the data of the run.
        train_data: other data to fit on.
        labels: labels in place of those of the data; examples without one of them are left out.
        group: which examples belong together; see `data.groups`.
        max_examples: take a class-balanced first N to fit on, and a quarter of that, or all where
            there are fewer, to score on.
        seed: seed of planted features, but those of a run's own data.
        quiet: show no progress.
    """
    group = default_group(extractor, data, group, labels=labels)
    options = OpenOptions(
        labels=labels, group=group, max_examples=max_examples, seed=seed, for_probe=True
    )
    if train_data is not None:
        if labels is not None:
            raise ValueError(
                "labels are for data that are split into training and test data: leave "
                f"{option('train_data')} out"
            )
        train = extractor.open(train_data, options, quiet=quiet)
        source = test_source(extractor, data)
    elif data is not None and not isinstance(data, str | Path):
        whole = extractor.open(data, replace(options, max_examples=None), quiet=quiet)
        return split_by_hash(whole, max_examples).scorable()
    elif data is not None:
        text = _with_split(spec_text(data), labels)
        train, source = extractor.open(text, options, quiet=quiet), to_test_split(text)
    else:
        run = extractor.require_run("give the data")
        run_data = run_source(run, "give the data")
        text = _with_split(run_data, labels)
        options = replace(options, seed=run.recipe().seed, exclude=run.manifest.excluded())
        if max_examples is None and text == run_data and labels is None:
            train = training_data(run, group=group, quiet=quiet)
        else:
            train = extractor.open(text, options, quiet=quiet)
        source = to_test_split(text)
    test_options = replace(options, max_examples=_test_count(source, options), held_out=True)
    test = extractor.open(source, test_options, like=train, quiet=quiet)
    return TrainTest(train=train, test=test).scorable()


def data_notes(train: Dataset, test: Dataset) -> list[str]:
    """Return the notes of both datasets; common notes of two parts of one source only once."""
    same = train.notes == test.notes or same_images(train.spec, test.spec)
    common = [note for note in train.notes if same and note in test.notes]
    return [
        *common,
        *(f"fitted on: {note}" for note in train.notes if note not in common),
        *(f"scored on: {note}" for note in test.notes if note not in common),
    ]


def run_source(run: RunFolder, hint: str) -> str:
    """Return the source of the training data of a run."""
    data = str(run.settings()["data"])
    if data == MEMORY:
        raise ValueError(
            f"{run.path} was trained on arrays in memory, which were not saved: {hint}"
        )
    return data


def default_group(
    extractor: FeatureExtractor,
    data: Data | None,
    group: str | None,
    *,
    labels: LabelTable | None = None,
) -> str | None:
    """Return `group`, by default that of the run if `data` are its own.

    A label array of the run's data is none if `labels` replace them.
    """
    if group is not None or extractor.run is None:
        return group
    group = extractor.run.group()
    is_run_data = data is None or (
        isinstance(data, str | Path)
        and same_images(spec_text(data), str(extractor.run.settings()["data"]))
    )
    replaced = labels is not None and group is not None and not group.startswith((FOLDER, REGEX))
    return group if is_run_data and not replaced else None


def training_data(run: RunFolder, *, group: str | None = None, quiet: bool = False) -> Dataset:
    """Open the training data of a run, and check that they did not change.

    `group` is by default that of the run.
    """
    data = run_source(run, f"give data to fit on, {option('train_data', 'DATA')}")
    default = run.group()
    group, spec = default if group is None else group, parse(data)
    if group != default and spec.split is not None and spec.base not in BUILTIN:
        raise ValueError(
            f"{data} was split without these groups when the run began: give it as "
            f"{option('train_data')}"
        )
    with images_progress(quiet, "reading images") as progress:
        options = run.recipe().data_options() | run.form().options()
        excluded = run.manifest.excluded()
        dataset = open_dataset(data, **options, group=group, exclude=excluded, progress=progress)
    dataset = run.in_order(dataset)
    run.manifest.check_data(dataset)
    return dataset


def test_source(extractor: FeatureExtractor, data: Any | None) -> Any:
    """Return the source of the test data: `data`, by default the test split of a run's data."""
    if data is not None:
        return data
    hint = "give data to score on"
    return to_test_split(run_source(extractor.require_run(hint), hint))


def _test_count(source: Data, options: OpenOptions) -> int | None:
    """Return the number of test examples: a quarter of `max_examples`, or all if they are fewer."""
    if options.max_examples is None:
        return None
    return min(max(1, options.max_examples // 4), count_of_source(source, options))


def split_by_hash(dataset: Dataset, max_examples: int | None = None) -> TrainTest:
    """Split off a fifth of rows or groups for testing, by a hash of each; then take the first."""
    if dataset.groups is not None:
        is_test = held_out_groups(dataset.groups)
    else:
        is_test = rng.bits(0, "audit/test", np.arange(len(dataset))) / 2.0**64 < _TEST_SHARE
    test = np.flatnonzero(is_test)
    if not 0 < len(test) < len(dataset):
        raise ValueError(f"{len(dataset)} examples are too few to split: give at least ten")
    train = np.flatnonzero(~is_test)
    count = None if max_examples is None else min(max(1, max_examples // 4), len(test))
    return TrainTest(
        train=balanced(dataset, train, max_examples).first_read(),
        test=balanced(dataset, test, count).first_read(),
    )


def balanced(dataset: Dataset, rows: NDArray[np.int64], max_examples: int | None) -> Dataset:
    """Return a class-balanced first `max_examples` of the examples `rows`."""
    return dataset.subset(balanced_subset(dataset.labels, rows, max_examples, dataset.groups))


def _with_split(text: str, labels: LabelTable | None) -> str:
    """Return a source with its train split, unless it names a split."""
    spec = parse(text)
    if labels is not None and spec.base in BUILTIN:  # its splits have the same example names
        raise ValueError(f"{spec.base} has labels of its own: leave {option('labels')} out")
    return str(replace(spec, split="train")) if spec.split is None else text


def _overlay(
    dataset: Dataset, feature: ImageFeature | AudioFeature, seed: int, *, held_out: bool
) -> Overlay | SoundOverlay:
    height, width, channels = dataset.images.shape[1:]
    shape = (height, width, channels)
    return draw(feature, Canvas(shape=shape, seed=seed, held_out=held_out, rate=dataset.rate))
