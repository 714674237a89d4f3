"""Linear probes of frozen features on each task, with three floors."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

import numpy as np

from widefield.core.errors import input_errors, option
from widefield.core.names import check_name
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote, Score
from widefield.data import Dataset
from widefield.data.labels import Labels, LabelTable, read_labels
from widefield.data.source import Data
from widefield.data.spec import BUILT_IN, MEMORY, parse, plant_names, spec_text
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.overlap import apart, count_overlap, overlap_note
from widefield.inference.splits import (
    TrainTest,
    balanced,
    data_notes,
    open_train_test,
    own_group,
    scorable,
    test_source,
    training_data,
)
from widefield.probes import majority
from widefield.probes.floors import floors as measure_floors
from widefield.probes.target_scores import MEASURES, TargetScore, mean_floor
from widefield.workflows.probe_report import (
    AnyScore,
    ProbeReport,
    Protocol,
    TargetProbe,
    TaskProbe,
    TaskScores,
)
from widefield.workflows.probe_scores import (
    ScoreReadouts,
    best_readout,
    score_readouts,
    score_readouts_by_sgd,
    training_views,
    untrained_readouts,
    wide_of,
)


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
    features: FeatureKind | None = None,
    dim: int | None = None,
    protocol: Protocol = "linear",
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
        features: pooled, wide for these and directions of earlier stages and of the input,
            feature-map for those before pooling, or projected for those after the projector of the
            run; by default pooled, and feature-map under the
            protocol feature-dropout.
        protocol: linear for the best linear probe on features of plain images; feature-dropout for
            100 epochs of SGD on augmented images, as in that paper: by the run's own views if they
            are trainable, else by expert:feature-dropout. Plants with the option `fresh` are drawn
            again in each epoch.
        floors: also score raw pixels, an untrained encoder and the majority class, which takes
            most of the time.
        seed: seed of the validation split that chooses the L2 strength, or of SGD.

    Raises:
        ValueError: invalid input; the message names the remedy.

    Example:
        >>> import torch
        >>> kind, shade = torch.arange(48) // 24, torch.arange(48) % 24
        >>> brightness = (48 * kind + shade) / 72  # kind 1 is brighter
        >>> data = {"x": brightness.reshape(48, 1, 1, 1).repeat(1, 8, 8, 3), "kind": kind}
        >>> train, test = ({k: v[i::2] for k, v in data.items()} for i in (0, 1))
        >>> report = probe(torch.nn.Flatten(), test, train_data=train, floors=False)
        >>> report.tasks["kind"].score.accuracy
        1.0
    """
    check_name("protocol", protocol, get_args(Protocol))
    features = features or ("feature-map" if protocol == "feature-dropout" else "pooled")
    extractor = open_encoder(encoder, features, dim=dim).at_size(image_size)
    table = None if labels is None else read_labels(labels, only=task, group=group, targets=True)
    group = own_group(extractor, data, group, labels=table)
    split = table is not None or _needs_split(extractor, data, train_data)
    if split:
        sets = _split(extractor, data, train_data, table, group, max_examples, quiet=quiet)
    else:
        if train_data is not None:
            train = extractor.open(train_data, group=group, quiet=quiet)
        elif extractor.run is not None:
            train = training_data(extractor.run, group=group, quiet=quiet)
        else:
            raise ValueError(
                f"{extractor.name} is not a widefield run: give data to fit on, "
                f"{option('train_data', 'DATA')}"
            )
        test = extractor.open(
            test_source(extractor, data),
            like=train,
            group=group,
            quiet=quiet,
            max_examples=max_examples,
            seed=_seed(extractor),
            held_out=True,
        )
        sets = TrainTest(train=train, test=test)
    sets = _with_shared_tasks(sets, task)
    train, test = sets.train, sets.test
    policy: str | None = None
    score_both: ScoreReadouts = score_readouts
    if protocol == "feature-dropout":
        if train.targets:
            raise ValueError(
                "the protocol feature-dropout takes classes only: choose "
                f"{option('protocol', 'linear')}, or a {option('task')} of classes"
            )
        policy, views = training_views(extractor, train)
        score_both = partial(score_readouts_by_sgd, views=views)
    early = (*extractor.notes, *overlap_note(test, train), *data_notes(train, test))
    extractor = extractor.ready(train, notes=early, on_note=on_note, quiet=quiet)
    wide = wide_of(extractor, train) if floors else None
    scores, wide_scores = score_both(extractor, wide, sets, seed)
    floor_scores: dict[str, TaskScores] = {}
    if floors:
        floor_scores = measure_floors(
            partial(best_readout, score_readouts=score_both, data=sets, seed=seed),
            pixels=(FeatureExtractor(name="pixels"), None),
            untrained=untrained_readouts(extractor, train),
        )
        floor_scores["majority"] = dict(
            majority(*sets.class_ids(), classes=sets.class_counts, groups=sets.groups)
        )
        floor_scores["mean"] = dict(mean_floor(train.targets, test.targets, groups=sets.groups))
    copies = apart(sets)
    if copies is not None:
        found = {} if copies.data is None else score_both(extractor, None, copies.data, seed)[0]
        copies_note = copies.note(dict(map(_interval_of, found.values())))
    return ProbeReport(
        encoder=extractor.name,
        protocol=protocol,
        features=features,
        views=policy,
        fitted_on=train.spec,
        scored_on=test.spec,
        notes=(
            *([_split_note(data)] if split else []),
            *overlap_note(test, train),
            *([] if copies is None else [copies_note]),
            *extractor.notes,
            # Of a readout that was fitted here: on which examples.
            *([] if wide is None or extractor.readout else [wide.notes[-1]]),
            *data_notes(train, test),
        ),
        train_test_overlap=_train_test_overlap(extractor, test),
        tasks={
            t: TaskProbe(
                score=score,
                wide=cast(Score | None, wide_scores.get(t)),
                classes=train.classes[t],
                floor={name: cast(Score, row[t]) for name, row in floor_scores.items() if t in row},
            )
            for t, score in scores.items()
            if isinstance(score, Score)
        },
        targets={
            t: TargetProbe(
                score=score,
                wide=cast(TargetScore | None, wide_scores.get(t)),
                floor={
                    name: cast(TargetScore, row[t])
                    for name, row in floor_scores.items()
                    if t in row
                },
            )
            for t, score in scores.items()
            if isinstance(score, TargetScore)
        },
    )


def _interval_of(score: AnyScore) -> tuple[str, tuple[float, float, float]]:
    """Return the task, with the measure unless it is the accuracy, and the score's interval."""
    if isinstance(score, Score):
        return score.task, (score.accuracy, score.low, score.high)
    return f"{score.task} {MEASURES[score.kind]}", score.score


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
    table: LabelTable | None,
    group: str | None,
    max_examples: int | None,
    *,
    quiet: bool,
) -> TrainTest:
    """Split `data` as `open_train_test` does, but take `max_examples` test examples."""
    if max_examples is not None and max_examples < 1:  # checked before images are read
        raise ValueError(f"{option('max_examples')} is {max_examples}; expected at least 1")
    if isinstance(data, str | Path):  # `open_train_test` adds the other split
        data = str(replace(parse(spec_text(data)), split="train"))
    sets = open_train_test(
        extractor,
        data,
        train_data=train_data,
        labels=table,
        group=group,
        max_examples=None,
        seed=_seed(extractor),
        quiet=quiet,
    )
    if max_examples is None:
        return sets
    test = sets.test
    return replace(sets, test=balanced(test, np.arange(len(test)), max_examples))


def _split_note(data: Data | None) -> str:
    if isinstance(data, str | Path) and parse(spec_text(data)).base in BUILT_IN:
        return "fitted on the train split of the data, scored on the test split"
    return "the data are split 80 / 20: fitted on one part, scored on the other"


def _seed(extractor: FeatureExtractor) -> int:
    """Return the seed of planted features."""
    return 0 if extractor.run is None else extractor.run.recipe().seed


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
    return scorable(data.only(*(shared if task is None else [task])))


def _train_test_overlap(extractor: FeatureExtractor, test: Dataset) -> int:
    """Count the test images that the encoder has been trained on."""
    run = extractor.run
    if run is None:
        return 0
    data, manifest = str(run.settings()["data"]), run.manifest
    return count_overlap(test, data, manifest.digests(), manifest.paths())
