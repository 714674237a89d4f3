"""Linear probes of frozen features on each task, with three floors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from widefield.core.errors import input_errors, option
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote
from widefield.data import Dataset
from widefield.data.labels import Labels, read_labels
from widefield.data.notes import BY_COLUMN
from widefield.data.open_options import OpenOptions
from widefield.data.source import Data
from widefield.data.spec import BUILTIN, MEMORY, parse, plant_names, spec_text
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.overlap import copy_note, count_overlap, overlap_note
from widefield.inference.splits import (
    TrainTest,
    balanced,
    data_notes,
    default_group,
    open_train_test,
    test_source,
    training_data,
)
from widefield.probes.floors import FLOORS
from widefield.probes.outcome import Outcome
from widefield.train.progress import print_line
from widefield.workflows.probe_report import ProbedTask, ProbeReport
from widefield.workflows.probe_scores import score_floors, score_pair, wide_of
from widefield.workflows.segments import with_best_weights


@input_errors
@describe_arguments
def probe(
    encoder: EncoderSpec,
    data: Data | None = None,
    *,
    train_data: Data | None = None,
    labels: Labels | None = None,
    group: str | None = None,
    task: str | None = None,
    max_examples: int | None = None,
    image_size: ImageSize | None = None,
    features: FeatureKind = "pooled",
    dim: int | None = None,
    floors: bool = True,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> ProbeReport:
    """Fit a linear probe and a kNN classifier on frozen features, and compare them with floors.

    A column of labels with numbers gets ridge regression, with R^2 and the mean absolute error, and
    one of cells such as a|b a ridge probe for each label, with its average precision.

    Args:
        data: images or sounds to score on; by default the test split of the run's data.
        train_data: data to fit on; by default the run's own training data. The data to score on
            are split 80 / 20 instead if these had no labels, or if `labels` are given.
        task: score this task alone.
        max_examples: score on a class-balanced first N examples.
        floors: also score raw pixels, an untrained encoder and the majority class, which takes
            most of the time.
        seed: seed of the validation split that chooses the L2 strength.

    Example:
        >>> import torch
        >>> kind, shade = torch.arange(48) // 24, torch.arange(48) % 24
        >>> brightness = (48 * kind + shade) / 72  # kind 1 is brighter
        >>> data = {"x": brightness.reshape(48, 1, 1, 1).repeat(1, 8, 8, 3), "kind": kind}
        >>> train, test = ({k: v[i::2] for k, v in data.items()} for i in (0, 1))
        >>> report = probe(torch.nn.Flatten(), test, train_data=train, floors=False)
        >>> report.tasks["kind"].score.value
        1.0
    """
    extractor = open_encoder(encoder, features, dim=dim).at_size(image_size)
    table = None if labels is None else read_labels(labels, only=task, group=group, targets=True)
    options = OpenOptions(
        labels=table,
        group=default_group(extractor, data, group, labels=table),
        max_examples=max_examples,
        for_probe=True,
        seed=0 if extractor.run is None else extractor.run.recipe().seed,  # of planted features
    )
    split = table is not None or _needs_split(extractor, data, train_data)
    splits = (_split if split else _open)(extractor, data, train_data, options, quiet=quiet)
    splits = _with_shared_tasks(splits, task)
    overlap = overlap_note(splits.test, splits.train)
    notes = (*extractor.notes, *overlap, *data_notes(splits.train, splits.test))
    extractor = extractor.ready(splits.train, notes=notes, on_note=on_note, quiet=quiet)
    (train, test), choice = with_best_weights(extractor, splits.train, splits.test, seed=seed)
    splits = TrainTest(train=train, test=test)
    wide = wide_of(extractor, train) if floors else None
    outcomes, wide_outcomes = score_pair((extractor, wide), splits, seed)
    floor = _floors(extractor, splits, seed, quiet=quiet) if floors else {}
    return ProbeReport(
        encoder=extractor.name,
        features=features,
        fitted_on=train.spec,
        scored_on=test.spec,
        notes=(
            *([_split_note(data, train)] if split else []),
            *choice,
            *overlap,
            *copy_note(splits, lambda x: score_pair((extractor, None), x, seed)[0]),
            *extractor.notes,
            # Of a readout that was fitted here: on which examples.
            *([] if wide is None or extractor.readout else [wide.notes[-1]]),
            *data_notes(train, test),
        ),
        train_test_overlap=_train_test_overlap(extractor, test),
        tasks={
            name: ProbedTask(score=outcome, wide=wide_outcomes.get(name), floor=floor.get(name, {}))
            for name, outcome in outcomes.items()
        },
    )


def _open(
    extractor: FeatureExtractor,
    data: Data | None,
    train_data: Data | None,
    options: OpenOptions,
    *,
    quiet: bool,
) -> TrainTest:
    """Open the data to fit on, by default those of the run, and others to score on."""
    if train_data is not None:
        train = extractor.open(
            train_data, OpenOptions(group=options.group, for_probe=True), quiet=quiet
        )
    elif extractor.run is not None:
        train = training_data(extractor.run, group=options.group, quiet=quiet)
    else:
        raise ValueError(
            f"{extractor.name} is not a widefield run: give data to fit on, "
            f"{option('train_data', 'DATA')}"
        )
    source = test_source(extractor, data)
    test = extractor.open(source, replace(options, held_out=True), like=train, quiet=quiet)
    return TrainTest(train=train, test=test)


def _needs_split(extractor: FeatureExtractor, data: Data | None, train_data: Data | None) -> bool:
    """Return whether to fit on a part of `data`, as the training data of the run have no labels.

    Labels of planted features do not count unless `data` have plants too.
    """
    if train_data is not None or data is None or extractor.run is None:
        return False
    settings = extractor.run.settings()
    source, tasks = str(settings["data"]), set(settings.get("tasks", ()))
    planted = isinstance(data, str | Path) and bool(plant_names(spec_text(data)))
    if tasks and source != MEMORY and not planted:
        tasks -= plant_names(source)
    return not tasks


def _split(
    extractor: FeatureExtractor,
    data: Data | None,
    train_data: Data | None,
    options: OpenOptions,
    *,
    quiet: bool,
) -> TrainTest:
    """Split `data` as `open_train_test` does, but take `max_examples` test examples."""
    if isinstance(data, str | Path):  # `open_train_test` adds the other split
        data = str(replace(parse(spec_text(data)), split="train"))
    splits = open_train_test(
        extractor,
        data,
        train_data=train_data,
        labels=options.labels,
        group=options.group,
        max_examples=None,
        seed=options.seed,
        quiet=quiet,
    )
    if options.max_examples is None:
        return splits
    test = splits.test
    return replace(splits, test=balanced(test, np.arange(len(test)), options.max_examples))


def _split_note(data: Data | None, train: Dataset) -> str:
    if any(note.endswith(BY_COLUMN) for note in train.notes):
        return f"the data are split {BY_COLUMN}: fitted on one part, scored on the other"
    if isinstance(data, str | Path) and parse(spec_text(data)).base in BUILTIN:
        return "fitted on the train split of the data, scored on the test split"
    return "the data are split 80 / 20: fitted on one part, scored on the other"


def _floors(
    extractor: FeatureExtractor, splits: TrainTest, seed: int, *, quiet: bool
) -> dict[str, dict[str, Outcome]]:
    line = f"scoring the floors: {', '.join(FLOORS.values())}"
    print_line(Console(stderr=True, quiet=quiet), line)
    return score_floors(extractor, splits, seed)


def _with_shared_tasks(data: TrainTest, task: str | None) -> TrainTest:
    """Return the data with the tasks that both sets have labels for, or `task` alone."""
    train, test = data.train, data.test
    shared = [t for t in data.tasks if t in {**test.labels, **test.targets}]
    if task is not None and task not in shared:
        raise ValueError(f"no task {task!r} in both sets: they share {', '.join(shared) or 'none'}")
    if not shared:
        raise ValueError(
            f"{train.spec} and {test.spec} share no labeled task: give data with first-level "
            f"subfolders or label arrays, {option('labels')}, or other data to fit on, "
            f"{option('train_data', 'DATA')}, or plant a feature such as +digits in both"
        )
    return data.only(*(shared if task is None else [task])).scorable()


def _train_test_overlap(extractor: FeatureExtractor, test: Dataset) -> int:
    run = extractor.run
    if run is None:
        return 0
    data, manifest = str(run.settings()["data"]), run.manifest
    return count_overlap(test, data, manifest.digests(), manifest.paths())
