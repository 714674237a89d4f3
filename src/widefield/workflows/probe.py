"""Score each task with probes on frozen features, beside three floors."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from widefield.core.hardware import choose_device, choose_precision
from widefield.core.input_errors import input_errors
from widefield.core.modes import on_device
from widefield.core.names import check_name
from widefield.core.types import Score
from widefield.data import Dataset
from widefield.data.examples import Examples
from widefield.data.labels import Labels, LabelTable, read_labels
from widefield.data.open import Data
from widefield.data.select import choose
from widefield.data.spec import BUILT_IN, MEMORY, parse, plant_names, spec_text
from widefield.evaluation.floors import floors as measure_floors
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.run_views import first_views, run_views
from widefield.inference.splits import (
    count_leaked,
    leak_note,
    open_train_test,
    reading_notes,
    same_ids,
    scoring_data,
    training_data,
)
from widefield.probes import majority, score, score_sgd
from widefield.probes.features import image_batch
from widefield.views import (
    Augmentation,
    AugmentContext,
    ViewSettings,
    build_views,
    trained_parameters,
)

Protocol = Literal["linear", "feature-dropout"]

EXPERT_VIEWS = "expert:feature-dropout"
"""Training views of the protocol feature-dropout, but of a run whose own views learn."""


@dataclass(frozen=True, kw_only=True)
class TaskProbe:
    """One task: the encoder's score beside the floors."""

    score: Score
    classes: tuple[str, ...]
    """Names of the classes."""
    floor: dict[str, Score]
    """Scores of the same probe on raw `pixels` and on a `random` encoder of the architecture, from
    whichever of its usual starts reads the task better; and of the `majority` class."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        floor = {name: score.accuracy for name, score in self.floor.items()}
        recall = dict(zip(self.classes, self.score.recall, strict=True))
        return {**asdict(self.score), "recall": recall, "floor": floor}


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Scores of every task, and what they were measured on."""

    encoder: str
    protocol: Protocol
    features: FeatureKind
    views: str | None
    """Policy that augmented the training images; None where they were plain."""
    fitted_on: str
    scored_on: str
    train_test_overlap: int
    """How many of the scored images the encoder was trained on, without their labels."""
    notes: tuple[str, ...]
    """Which scored examples the probe was fitted on, which weights were used, and what was skipped
    or chosen in reading the images."""
    tasks: dict[str, TaskProbe]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        return {
            "encoder": self.encoder,
            "protocol": self.protocol,
            "features": self.features,
            "views": self.views,
            "fitted_on": self.fitted_on,
            "scored_on": self.scored_on,
            "train_test_overlap": self.train_test_overlap,
            "notes": list(self.notes),
            "tasks": {task: probe.to_json() for task, probe in self.tasks.items()},
        }


@input_errors
def probe(
    encoder: EncoderSpec,
    data: Data | None = None,
    *,
    train_data: Data | None = None,
    labels: Labels | None = None,
    task: str | None = None,
    max_examples: int | None = None,
    features: FeatureKind | None = None,
    protocol: Protocol = "linear",
    floors: bool = True,
    seed: int = 0,
    quiet: bool = False,
) -> ProbeReport:
    """Fit a linear probe and a kNN classifier on frozen features, and score them beside floors.

    Args:
        encoder: a run's folder, a file of weights, `timm:NAME`, `torchvision:NAME`, `random` or
            `pixels`. In Python also a module; it is never changed.
        data: images or sounds to score on; by default the test split of the run's data.
        train_data: data to fit on; by default the run's own training data. The data to score on
            are divided 80 / 20 instead where these had no labels, and where `labels` are given.
        labels: a `.csv` file in place of the labels of the data: column path, and one for each
            task. Examples without one of them are left out. In Python also a table, as `classify`
            takes it.
        task: score this task alone.
        max_examples: score on a class-balanced first N examples.
        features: pooled, feature-map for those before pooling, or projected for those after the
            projector that the run was trained with; by default pooled, and feature-map under the
            protocol feature-dropout.
        protocol: linear for the best linear probe on features of plain images; feature-dropout for
            100 epochs of SGD on augmented images, as in that paper: by the run's own views if they
            are learned, else by expert:feature-dropout. What is planted `fresh` is drawn anew in
            each epoch.
        floors: score raw pixels, an untrained encoder and the majority class too, which takes most
            of the time.
        seed: seed of the validation split that chooses the L2 strength, or of SGD.
        quiet: show no progress.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.

    Example:
        >>> kind, shade = torch.arange(48) // 24, torch.arange(48) % 24
        >>> brightness = (48 * kind + shade) / 72  # kind 1 is brighter
        >>> data = {"x": brightness.reshape(48, 1, 1, 1).repeat(1, 8, 8, 3), "kind": kind}
        >>> fit, held = ({k: v[i::2] for k, v in data.items()} for i in (0, 1))
        >>> report = probe(torch.nn.Flatten(), held, train_data=fit, floors=False)
        >>> report.tasks["kind"].score.accuracy
        1.0
    """
    check_name("protocol", protocol, get_args(Protocol))
    features = features or ("feature-map" if protocol == "feature-dropout" else "pooled")
    extractor = open_encoder(encoder, features)
    extractor.tell(quiet=quiet)
    table = _labels_of(labels, task)
    divided = table is not None or _needs_division(extractor, data, train_data)
    if divided:
        train, test = _divided(extractor, data, train_data, table, max_examples, quiet=quiet)
    else:
        train = _training_set(extractor, train_data, quiet=quiet)
        test = extractor.open(
            scoring_data(extractor, data),
            like=train,
            quiet=quiet,
            max_examples=max_examples,
            seed=_seed(extractor),
            held_out=True,
        )
    tasks = _shared_tasks(train, test, task)
    _refuse_lone_classes(train, tasks)
    expected = {t: torch.from_numpy(same_ids(train, test, t)) for t in tasks}
    _refuse_unfitted_classes(train, test, expected)
    policy = _training_views(extractor, train) if protocol == "feature-dropout" else None
    examples = _Examples(
        train=train,
        labels={t: torch.from_numpy(train.labels[t]) for t in tasks},
        test=test.images,
        expected=expected,
        classes={t: len(train.classes[t]) for t in tasks},
    )
    scores = _scores if policy is None else partial(_scores_by_sgd, views=policy.views)
    measured = scores(extractor, examples, seed)
    floor_scores: dict[str, dict[str, Score]] = {}
    if floors:
        starts = extractor.untrained_starts(examples.train.images)
        floor_scores = measure_floors(
            partial(scores, examples=examples, seed=seed),
            pixels=FeatureExtractor(name="pixels"),
            untrained=(FeatureExtractor(name="random", encoder=start) for start in starts),
            majority=majority(examples.labels, examples.expected, classes=examples.classes),
        )
    return ProbeReport(
        encoder=extractor.name,
        protocol=protocol,
        features=features,
        views=None if policy is None else policy.name,
        fitted_on=train.spec,
        scored_on=test.spec,
        notes=(*([_division_note(data)] if divided else []), *_notes(extractor, train, test)),
        train_test_overlap=_train_test_overlap(extractor, test),
        tasks={
            t: TaskProbe(
                score=measured[t],
                classes=train.classes[t],
                floor={name: row[t] for name, row in floor_scores.items()},
            )
            for t in tasks
        },
    )


def _notes(extractor: FeatureExtractor, train: Dataset, test: Dataset) -> tuple[str, ...]:
    """Return whether the score says anything, and what was chosen in reading weights and images."""
    return (*leak_note(test, train), *extractor.notes, *reading_notes(train, test))


@dataclass(frozen=True, kw_only=True)
class _Examples:
    """What probes are fitted to and scored on: images uint8 [n, H, W, C], class ids by task."""

    train: Dataset
    labels: dict[str, Tensor]
    test: np.ndarray
    expected: dict[str, Tensor]
    classes: dict[str, int]


def _scores(source: FeatureExtractor, examples: _Examples, seed: int) -> dict[str, Score]:
    """Score the best linear probe on features of plain images."""
    train_h, test_h = source.features(examples.train.images), source.features(examples.test)
    labels = {t: y.to(train_h.device) for t, y in examples.labels.items()}
    expected = {t: y.to(test_h.device) for t, y in examples.expected.items()}
    return score(train_h, labels, test_h, expected, classes=examples.classes, seed=seed)


def _scores_by_sgd(
    source: FeatureExtractor, examples: _Examples, seed: int, *, views: Augmentation
) -> dict[str, Score]:
    """Score by Feature Dropout's protocol, with training images augmented by `views`."""
    device, train = choose_device("auto"), examples.train
    views = views.to(device)

    def draw(
        index: NDArray[np.int64], epoch: int, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        read = epoch + 1  # read 0 is that of plain features and pictures
        images, labels = train.read(index, read)
        context = AugmentContext()
        if views.needs_mask:
            covered = torch.from_numpy(train.masks(index, read)).permute(0, 3, 1, 2)
            context = AugmentContext(mask=covered.to(device))
        with torch.no_grad():
            (x,) = views(image_batch(images, device), 1, generator, context)
        return x, {task: torch.from_numpy(labels[task]).to(device) for task in examples.labels}

    encoder = source.build(train.images)
    with on_device(encoder, device):
        return score_sgd(
            encoder,
            train.images,
            examples.labels,
            examples.test,
            examples.expected,
            classes=examples.classes,
            draw=draw,
            device=device,
            precision=choose_precision("auto", device),
            seed=seed,
        )


class _NamedViews(NamedTuple):
    """An augmentation and what it is called."""

    name: str
    views: Augmentation


def _training_views(extractor: FeatureExtractor, train: Dataset) -> _NamedViews:
    """Return what augments training images: the run's views if they learned, else expert ones.

    Raises:
        ValueError: the run's views need what a probe on these data does not have.
    """
    if extractor.run is not None:
        recipe = extractor.run.recipe()
        views = first_views(extractor.run.path)
        if trained_parameters(views):
            _refuse_views(views, recipe.views.names, train)
            return _NamedViews(recipe.views.names, run_views(extractor.run.path))
    if train.kind == "images":
        return _NamedViews(EXPERT_VIEWS, build_views(EXPERT_VIEWS))
    views = ViewSettings.named("expert").build(
        channels=train.images.shape[3], kind=train.kind, front_end=extractor.front_end
    )
    return _NamedViews("expert", views)


def _refuse_views(views: Augmentation, names: str, train: Dataset) -> None:
    if views.gradient_calls:
        raise ValueError(
            f"views {names!r} attack the loss of the run, and a probe does not have it: "
            "choose --protocol linear"
        )
    if views.needs_mask and not train.masks(np.zeros(1, dtype=np.int64)).any():
        raise ValueError(
            f"views {names!r} go by where an object is planted, and there is none in "
            f"{train.spec!r}: fit on data with one, or choose --protocol linear"
        )


def _labels_of(labels: Labels | None, task: str | None) -> LabelTable | None:
    """Return the table of labels, of one task where it is asked for: others may be missing then."""
    return None if labels is None else read_labels(labels, only=task)


def _needs_division(
    extractor: FeatureExtractor, data: Data | None, train_data: Data | None
) -> bool:
    """Whether there is nothing to fit on but `data`: the run was trained on data without labels.

    What is planted in those has labels, which other data need not have.
    """
    if train_data is not None or data is None or extractor.run is None:
        return False
    settings = extractor.run.settings()
    own, tasks = str(settings["data"]), set(settings.get("tasks", ()))
    has_plants = isinstance(data, str | Path) and bool(plant_names(spec_text(data)))
    if tasks and own != MEMORY and not has_plants:
        tasks -= plant_names(own)
    return not tasks


def _divided(
    extractor: FeatureExtractor,
    data: Data | None,
    train_data: Data | None,
    table: LabelTable | None,
    max_examples: int | None,
    *,
    quiet: bool,
) -> tuple[Dataset, Dataset]:
    """Return both parts of `data`, as an audit divides them; `max_examples` of the scored one.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.
    """
    if max_examples is not None and max_examples < 1:  # before any image is read
        raise ValueError(f"max_examples is {max_examples}; expected at least 1")
    if isinstance(data, str | Path):  # either split stands for both
        data = str(replace(parse(spec_text(data)), split="train"))
    halves = open_train_test(
        extractor,
        data,
        train_data=train_data,
        labels=table,
        max_examples=None,
        seed=_seed(extractor),
        quiet=quiet,
    )
    test = halves.test
    if max_examples is None:
        return halves.train, test
    scored = Examples(names=test.paths, labels=test.labels)
    return halves.train, test.subset(choose(scored, np.arange(len(test)), max_examples))


def _division_note(data: Data | None) -> str:
    """Say which part of `data` was fitted on."""
    if isinstance(data, str | Path) and parse(spec_text(data)).base in BUILT_IN:
        return "fitted on the train split of the data, scored on the test split"
    return "the data are divided 80 / 20: one part is fitted on, the other scored"


def _seed(extractor: FeatureExtractor) -> int:
    """Return the seed of what is planted: that of the run."""
    return 0 if extractor.run is None else extractor.run.recipe().seed


def _training_set(extractor: FeatureExtractor, train_data: Data | None, *, quiet: bool) -> Dataset:
    if train_data is not None:
        return extractor.open(train_data, quiet=quiet)
    if extractor.run is None:
        raise ValueError(
            f"{extractor.name} is no run of ours: say what to fit on with --train-data DATA"
        )
    return training_data(extractor.run, quiet=quiet)


def _shared_tasks(train: Dataset, test: Dataset, task: str | None) -> list[str]:
    """Return the tasks that both sets have labels for, or `task` alone."""
    shared = [t for t in train.labels if t in test.labels]
    if task is not None and task not in shared:
        raise ValueError(f"no task {task!r} in both sets: they share {', '.join(shared) or 'none'}")
    if not shared:
        raise ValueError(
            f"{train.spec} and {test.spec} share no labeled task: give data with first-level "
            "subfolders or label arrays, labels of the data (--labels) or others to fit on "
            "(--train-data), or plant a feature such as +digits in both"
        )
    return shared if task is None else [task]


def _refuse_lone_classes(train: Dataset, tasks: Sequence[str]) -> None:
    """Refuse a class of one example, on which no probe can be fitted and validated.

    Raises:
        ValueError: there is one; the message names it.
    """
    for task in tasks:
        counts = np.bincount(train.labels[task], minlength=len(train.classes[task]))
        for lone in np.flatnonzero(counts == 1)[:1].tolist():
            raise ValueError(
                f"task {task!r}: class {train.classes[task][lone]!r} has one example to fit on in "
                f"{train.spec}: give it a second one, or leave the class or the task out"
            )


def _refuse_unfitted_classes(train: Dataset, test: Dataset, expected: dict[str, Tensor]) -> None:
    """Refuse a class that is scored and has no example to fit on: no probe can ever guess it.

    Raises:
        ValueError: there is one; the message names it.
    """
    for task, ids in expected.items():
        for unfitted in np.setdiff1d(ids, train.labels[task])[:1].tolist():
            raise ValueError(
                f"task {task!r}: class {train.classes[task][unfitted]!r} of {test.spec} has no "
                f"example to fit on in {train.spec}: give it two, or leave it or the task out"
            )


def _train_test_overlap(extractor: FeatureExtractor, test: Dataset) -> int:
    """Count the test images that the encoder has been trained on."""
    run = extractor.run
    if run is None:
        return 0
    data, manifest = str(run.settings()["data"]), run.manifest
    return count_leaked(test, data, manifest.digests(), manifest.paths())
