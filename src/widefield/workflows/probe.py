"""Linear probes of frozen features on each task, with three floors."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from widefield.core.hardware import choose_device, choose_precision
from widefield.core.input_errors import input_errors
from widefield.core.modes import on_device
from widefield.core.names import check_name
from widefield.core.types import ImageSize, OnNote, Score
from widefield.data import Dataset
from widefield.data.labels import Labels, LabelTable, read_labels
from widefield.data.open import Data
from widefield.data.spec import BUILT_IN, MEMORY, parse, plant_names, spec_text
from widefield.encoders import Wide
from widefield.evaluation.floors import floors as measure_floors
from widefield.evaluation.target_scores import (
    MEASURES,
    TargetScore,
    mean_floor,
    probe_targets,
)
from widefield.evaluation.wide import wide_or_none
from widefield.inference.features import FeatureExtractor, FeatureKind, send_notes
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.run_views import run_views, untrained_views
from widefield.inference.splits import (
    TrainTest,
    apart,
    balanced,
    checked,
    count_overlap,
    data_notes,
    open_train_test,
    overlap_note,
    own_group,
    test_source,
    training_data,
)
from widefield.probes import majority, score, score_sgd
from widefield.probes.features import image_batch
from widefield.report.notebook import notebook_html, percents
from widefield.views import (
    Augmentation,
    AugmentContext,
    ViewSettings,
    trained_parameters,
)

Protocol = Literal["linear", "feature-dropout"]
AnyScore = Score | TargetScore
"""Scores of classes, or of a number or several labels."""
TaskScores = dict[str, AnyScore]
"""Task -> score."""
Readouts = tuple[FeatureExtractor, FeatureExtractor | None]
"""An encoder, and the same with its wide readout if it has one."""
ScoreReadouts = Callable[..., tuple[TaskScores, TaskScores]]
"""Scores the pooled features of an encoder and, if they are given too, its wide ones."""

_COLUMNS = ("task", "linear probe %", "low", "high", "kNN %")
"""Columns of the table in Jupyter, without floors."""


EXPERT_VIEWS = "expert:feature-dropout"
"""Training views of the protocol feature-dropout, unless the run has trainable views."""


@dataclass(frozen=True, kw_only=True)
class TaskProbe:
    """Scores of the encoder and the floors on one task."""

    score: Score
    wide: Score | None
    """Score of wide features, beside that of pooled ones; None for other features, without floors
    and for encoders without stages."""
    classes: tuple[str, ...]
    floor: dict[str, Score]
    """Scores of the same probe on raw `pixels`, on a `random` encoder of the architecture, of the
    better of its usual initializations and the better of its pooled and wide features, and of
    the `majority` class."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        floor = {name: score.accuracy for name, score in self.floor.items()}
        recall = dict(zip(self.classes, self.score.recall, strict=True))
        wide = None if self.wide is None else self.wide.accuracy
        return {**asdict(self.score), "recall": recall, "wide": wide, "floor": floor}


@dataclass(frozen=True, kw_only=True)
class TargetProbe:
    """Scores of the encoder and the floors on a number, or several labels, of each example."""

    score: TargetScore
    wide: TargetScore | None
    """Score of wide features, as in `TaskProbe`."""
    floor: dict[str, TargetScore]
    """Scores of the same probe on raw `pixels` and on the best `random` encoder, and of predicting
    the `mean` of the training examples."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        floor = {name: score.to_json() for name, score in self.floor.items()}
        wide = None if self.wide is None else self.wide.accuracy
        return {**self.score.to_json(), "wide": wide, "floor": floor}


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Scores on every task, and what they were measured on."""

    encoder: str
    protocol: Protocol
    features: FeatureKind
    views: str | None
    """Policy that augmented the training images; None if they were plain."""
    fitted_on: str
    scored_on: str
    train_test_overlap: int
    """Number of test images that the encoder was trained on, without their labels."""
    notes: tuple[str, ...]
    """Overlap of training and test examples, which weights these are, and what was skipped in
    reading the images."""
    tasks: dict[str, TaskProbe]
    """Tasks of classes."""
    targets: dict[str, TargetProbe]
    """Tasks of a number, or of several labels, of each example."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        tasks = {task: probe.to_json() for task, probe in self.tasks.items()}
        targets = {task: probe.to_json() for task, probe in self.targets.items()}
        return {**vars(self), "notes": list(self.notes), "tasks": tasks, "targets": targets}

    def _repr_html_(self) -> str:
        """Return the scores as a table, for Jupyter."""
        rows = [
            [
                name,
                *percents(task.score.accuracy, task.score.low, task.score.high, task.score.knn),
                *percents(*(floor.accuracy for floor in task.floor.values())),
            ]
            for name, task in self.tasks.items()
        ] + [
            [
                f"{name} ({MEASURES[target.score.kind]})",
                *percents(*target.score.score),
                "",
                *percents(*(floor.accuracy for floor in target.floor.values())),
            ]
            for name, target in self.targets.items()
        ]
        last = " or ".join(["majority"] * bool(self.tasks) + ["mean"] * bool(self.targets))
        has_floors = bool(rows) and len(rows[0]) > len(_COLUMNS)
        floors = [f"{name} %" for name in ("pixels", "random", last)] * has_floors
        columns = [*_COLUMNS, *floors]
        title = f"{self.encoder}, {self.features} features, scored on {self.scored_on}"
        return notebook_html(title, columns, rows, self.notes)


@input_errors
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
        encoder: a run's folder, a file of weights, `timm:NAME`, `torchvision:NAME`, `random` or
            `pixels`. In Python also a module; it is never changed.
        data: images or sounds to score on; by default the test split of the run's data.
        train_data: data to fit on; by default the run's own training data. The data to score on
            are split 80 / 20 instead if these had no labels, or if `labels` are given.
        labels: a `.csv` file in place of the labels of the data: column path, and one for each
            task. Examples without one of them are left out. In Python also a table, as `classify`
            takes it.
        group: examples that belong together, such as frames of a video: a column of the labels, a
            label array, folder:1 for the first folder of a path, or regex:PATTERN for what its
            first ( ) matches. No group is divided, and intervals count groups; by default as in
            the run, for its data.
        task: score this task alone.
        max_examples: score on a class-balanced first N examples.
        image_size: side of square images, or HEIGHTxWIDTH, for an encoder that no run trained; by
            default the size of the encoder, or of the data.
        features: pooled, wide for these and directions of earlier stages that pooling hides,
            feature-map for those before pooling, or projected for those after the projector of the
            run; by default pooled, and feature-map under the
            protocol feature-dropout.
        dim: width of wide features; by default 384 more than the pooled ones.
        protocol: linear for the best linear probe on features of plain images; feature-dropout for
            100 epochs of SGD on augmented images, as in that paper: by the run's own views if they
            are trainable, else by expert:feature-dropout. Plants with the option `fresh` are drawn
            again in each epoch.
        floors: also score raw pixels, an untrained encoder and the majority class, which takes
            most of the time.
        seed: seed of the validation split that chooses the L2 strength, or of SGD.
        quiet: show no progress.
        on_note: called before the work with each note on the data and the encoder, such as `print`.

    Raises:
        ValueError: invalid input; the message names the remedy.

    Example:
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
                f"{extractor.name} is not a widefield run: give data to fit on, --train-data DATA"
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
    policy, score_readouts = None, _score_readouts
    if protocol == "feature-dropout":
        if train.targets:
            raise ValueError(
                "the protocol feature-dropout takes classes only: choose --protocol linear, or a "
                "--task of classes"
            )
        policy, views = _training_views(extractor, train)
        score_readouts = partial(_score_readouts_by_sgd, views=views)
    extractor.check(train)
    early = (*extractor.notes, *overlap_note(test, train), *data_notes(train, test))
    send_notes(early, on_note)
    extractor = extractor.with_readout(train, quiet=quiet)
    wide = _wide_of(extractor, train) if floors else None
    scores, wide_scores = score_readouts(extractor, wide, sets, seed)
    floor_scores: dict[str, TaskScores] = {}
    if floors:
        floor_scores = measure_floors(
            partial(_best_readout, score_readouts=score_readouts, data=sets, seed=seed),
            pixels=(FeatureExtractor(name="pixels"), None),
            untrained=_untrained(extractor, train),
        )
        floor_scores["majority"] = dict(
            majority(*sets.class_ids(), classes=sets.class_counts, groups=sets.groups)
        )
        floor_scores["mean"] = dict(mean_floor(train.targets, test.targets, groups=sets.groups))
    copies = apart(sets)
    if copies is not None:
        found = {} if copies.data is None else score_readouts(extractor, None, copies.data, seed)[0]
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


def _wide_of(extractor: FeatureExtractor, train: Dataset) -> FeatureExtractor | None:
    """Return the extractor of wide features beside one of pooled ones; None without stages."""
    if extractor.kind != "pooled":
        return None
    wide = replace(extractor, kind="wide").with_readout(train, or_pooled=True)
    return wide if wide.kind == "wide" else None


def _untrained(extractor: FeatureExtractor, train: Dataset) -> Iterator[Readouts]:
    """Yield the untrained encoders, with their wide readouts: the floor is the best of them."""
    device = choose_device("auto")
    for encoder in extractor.untrained_encoders(train.images):
        wide = wide_or_none(encoder, train.images, device=device)
        yield (
            FeatureExtractor(name="random", encoder=encoder),
            None if wide is None else FeatureExtractor(name="random", encoder=wide),
        )


def _best_readout(
    readouts: Readouts, *, score_readouts: ScoreReadouts, data: TrainTest, seed: int
) -> TaskScores:
    """Score the better of pooled and wide features, task by task, for a floor."""
    pooled, others = score_readouts(*readouts, data, seed, with_knn=False)
    return {
        task: max((score, others.get(task, score)), key=lambda score: score.accuracy)
        for task, score in pooled.items()
    }


def _score_readouts(
    encoder: FeatureExtractor,
    wide: FeatureExtractor | None,
    data: TrainTest,
    seed: int,
    *,
    with_knn: bool = True,
) -> tuple[TaskScores, TaskScores]:
    """Score the best linear probe on features of plain images, and on wide ones if there are any.

    The encoder passes once over the images for both. Of wide features kNN is left out.
    """
    if wide is None:
        train_h, test_h = (encoder.features(half.inputs) for half in (data.train, data.test))
        return _score(train_h, test_h, encoder.pooled, data, seed, with_knn=with_knn), {}
    module = wide.build(data.train.images)
    assert isinstance(module, Wide)
    dim = module.readout.config.pooled
    both = FeatureExtractor(name=encoder.name, encoder=_PooledAndWide(module))
    train_h, test_h = (both.features(half.inputs) for half in (data.train, data.test))
    pooled, others = (
        _score(train_h[:, part], test_h[:, part], count, data, seed, with_knn=knn)
        for part, count, knn in (
            (slice(None, dim), None, with_knn),
            (slice(dim, None), dim, False),
        )
    )
    return pooled, others


def _score(
    train_h: Tensor,
    test_h: Tensor,
    pooled: int | None,
    data: TrainTest,
    seed: int,
    *,
    with_knn: bool,
) -> TaskScores:
    """Score the best linear probe on features, of which the first `pooled` may be pooled ones."""
    train_h, test_h = train_h.contiguous(), test_h.contiguous()
    train_y, test_y = data.class_ids(train_h.device)
    given: dict[str, Any] = {"pooled": pooled, "groups": data.groups, "seed": seed}
    targets = probe_targets(train_h, data.train.targets, test_h, data.test.targets, **given)
    if not train_y:
        return dict(targets)
    classes = score(
        train_h, train_y, test_h, test_y, classes=data.class_counts, with_knn=with_knn, **given
    )
    return classes | targets


class _PooledAndWide(nn.Module):
    """An encoder with a wide readout: x[B, C, H, W] -> its pooled features, then the wide ones."""

    def __init__(self, wide: Wide) -> None:
        super().__init__()
        self.wide = wide

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.wide.with_pooled(x), dim=1)


def _score_readouts_by_sgd(
    encoder: FeatureExtractor,
    wide: FeatureExtractor | None,
    data: TrainTest,
    seed: int,
    *,
    views: Augmentation,
    with_knn: bool = True,
) -> tuple[TaskScores, TaskScores]:
    """Score by Feature Dropout's protocol each of the readouts that there are."""
    pooled = _score_by_sgd(encoder, data, seed, views=views)
    return pooled, {} if wide is None else _score_by_sgd(wide, data, seed, views=views)


def _score_by_sgd(
    encoder: FeatureExtractor, data: TrainTest, seed: int, *, views: Augmentation
) -> TaskScores:
    """Score by Feature Dropout's protocol, with training images augmented by `views`."""
    device, train = choose_device("auto"), data.train
    views = views.to(device)

    def draw(
        index: NDArray[np.int64], epoch: int, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        read = epoch + 1  # read 0 is for plain features and figures
        images, labels = train.read(index, read)
        mask = None
        if views.needs_mask:
            mask = torch.from_numpy(train.masks(index, read)).permute(0, 3, 1, 2).to(device)
        with torch.no_grad():
            (x,) = views(image_batch(images, device), 1, generator, AugmentContext(mask=mask))
        return x, {task: torch.from_numpy(labels[task]).to(device) for task in train.labels}

    module, (train_y, test_y) = encoder.build(train.images), data.class_ids()
    with on_device(module, device):
        scores = score_sgd(
            module,
            train.inputs,
            train_y,
            data.test.inputs,
            test_y,
            classes=data.class_counts,
            groups=data.groups,
            draw=draw,
            device=device,
            precision=choose_precision("auto", device),
            seed=seed,
        )
    return dict(scores)


def _training_views(extractor: FeatureExtractor, train: Dataset) -> tuple[str, Augmentation]:
    """Return name and augmentation of the views of the run if they are trainable, else expert."""
    if extractor.run is not None:
        recipe = extractor.run.recipe()
        views = untrained_views(extractor.run.path, kept=train.bits)
        if trained_parameters(views):
            _check_views(views, recipe.views.names, train)
            return recipe.views.names, run_views(extractor.run.path, kept=train.bits)
    name = EXPERT_VIEWS if train.kind == "images" else "expert"
    views = ViewSettings.named(name).build(
        channels=train.images.shape[3],
        kept=train.bits,
        kind=train.kind,
        front_end=extractor.front_end,
    )
    return name, views


def _check_views(views: Augmentation, names: str, train: Dataset) -> None:
    if views.gradient_calls:
        raise ValueError(
            f"views {names!r} need the gradient of the loss of the run, which a probe lacks: "
            "choose --protocol linear"
        )
    if views.needs_mask and not train.masks(np.zeros(1, dtype=np.int64)).any():
        raise ValueError(
            f"views {names!r} need the mask of a planted object, and there is none in "
            f"{train.spec!r}: fit on data with one, or choose --protocol linear"
        )


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
        raise ValueError(f"max_examples is {max_examples}; expected at least 1")
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
            "subfolders or label arrays, --labels, or other data to fit on, --train-data DATA, or "
            "plant a feature such as +digits in both"
        )
    return checked(data.only(*(shared if task is None else [task])))


def _train_test_overlap(extractor: FeatureExtractor, test: Dataset) -> int:
    """Count the test images that the encoder has been trained on."""
    run = extractor.run
    if run is None:
        return 0
    data, manifest = str(run.settings()["data"]), run.manifest
    return count_overlap(test, data, manifest.digests(), manifest.paths())
