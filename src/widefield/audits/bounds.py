"""Floors and ceiling of a task: raw pixels, an untrained encoder, the commonest class; supervision.

All depend on the data and the architecture alone, so they are cached on disk and serve every
encoder that is audited on the same examples.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from widefield.audits.verdict import ProbeResult, TaskAudit, verdict
from widefield.config.resolve import Facts, resolve
from widefield.core.files import DiskFullError, write_atomically
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.modes import eval_mode, on_device
from widefield.data import Dataset, Loader
from widefield.data.cache import cache_folder
from widefield.data.readers.npz import read_arrays
from widefield.encoders import Encoder, FeatureMap, Projected
from widefield.evaluation.floors import FLOORS, floors
from widefield.evaluation.label_free import FeatureFunction
from widefield.inference.features import FeatureExtractor, encode
from widefield.inference.splits import TrainTest, subset
from widefield.methods import CEILING
from widefield.probes import fit_linear, knn, majority_hits, pixels
from widefield.probes.features import image_batch
from widefield.train.build import DataFacts, build
from widefield.train.distributed import lone_fabric
from widefield.train.loop import Trainer

CEILING_STEPS = 600
"""Steps that a ceiling is trained for."""
BUDGET: dict[str, Any] = {
    "method": CEILING,
    "views": "gentle",
    "batch_size": 64,
    "lr": 3e-3,
    "warmup_epochs": 1.0,
}
"""What else a ceiling's recipe sets; gentle views keep what a crop or a mirror would destroy."""
DRAWS = 3
"""Untrained encoders from each start that an unclear verdict is held against."""

_FORMAT = 2
"""A part of every key; it grows when the same settings come to give other results."""

Say = Callable[[str], None]


class _Source(NamedTuple):
    """Features that probes are fitted to, and everything that decides them."""

    kind: str
    features: Callable[[], FeatureFunction]
    facts: list[Any]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Floors and ceiling of every encoder of one architecture, on each task."""

    floors: Mapping[str, Mapping[str, ProbeResult]]
    """`pixels`, `random` or `majority` -> task -> what probes find in these features."""
    ceiling: Mapping[str, ProbeResult]
    """Task -> what probes find in an encoder that was trained with that task's labels."""


def audit_tasks(
    extractor: FeatureExtractor, data: TrainTest, bounds: Bounds, *, seed: int
) -> dict[str, TaskAudit]:
    """Judge every task of `data`, each between its floor and its ceiling."""
    return {
        task: verdict(
            task,
            result,
            {name: row[task] for name, row in bounds.floors.items()},
            bounds.ceiling[task],
            classes=len(data.train.classes[task]),
            seed=seed,
        )
        for task, result in probe_tasks(extractor.features, data, seed=seed).items()
    }


def measure_bounds(
    extractor: FeatureExtractor,
    data: TrainTest,
    *,
    cache: Path | None,
    seed: int,
    say: Say,
    draws: int = 1,
) -> Bounds:
    """Measure floors and ceiling of every task of `data` for the architecture of `extractor`.

    The floor `random` is the best of `draws` untrained encoders from each start. `cache` is the
    folder that keeps what was measured, by default `audits` in widefield's cache; `say` is told
    what takes long.
    """
    by_task = {
        task: graded_bounds(
            extractor, [data.only(task)], cache=cache, seed=seed, say=say, draws=draws
        )[0]
        for task in data.train.labels
    }
    return Bounds(
        floors={
            name: {task: bounds.floors[name][task] for task, bounds in by_task.items()}
            for name in FLOORS
        },
        ceiling={task: bounds.ceiling[task] for task, bounds in by_task.items()},
    )


def graded_bounds(
    extractor: FeatureExtractor,
    grades: Sequence[TrainTest],
    *,
    cache: Path | None,
    seed: int,
    say: Say,
    draws: int = 1,
) -> list[Bounds]:
    """Measure floors and ceiling of one task at several grades, each of which has it alone.

    One supervised encoder, trained on a mixture of the grades, is the ceiling of all of them.
    """
    (task,) = grades[0].train.labels
    folder = cache_folder() / "audits" if cache is None else cache
    sample = grades[0].train.images[:2]
    mixture = _mixture([grade.train for grade in grades])
    architecture = _architecture(extractor.untrained(sample), sample)

    @functools.cache  # one training for all grades, and none if all of them are in the cache
    def supervised() -> FeatureFunction:
        say(f"training a supervised ceiling for {task}: {CEILING_STEPS} steps, kept for later")
        encoder = train_supervised(extractor.untrained(sample), mixture, seed=seed)
        return _features_of(encoder)

    def measured(source: _Source, *, grade: TrainTest) -> dict[str, ProbeResult]:
        file = folder / f"{source.kind}-{_key([source.kind, seed, *source.facts], grade)}.npz"
        result = _load(file)
        if result is None:
            result = probe_tasks(source.features(), grade, seed=seed)[task]
            _save(file, result, say)
        return {task: result}

    untrained = [
        _Source("random", partial(_features_of, encoder), [_architecture(encoder, sample), draw])
        for draw in range(draws)
        for encoder in extractor.untrained_starts(sample, seed=1 + draw)
    ]
    facts = [architecture, CEILING_STEPS, BUDGET, mixture.digests().tolist()]
    return [
        Bounds(
            floors=floors(
                partial(measured, grade=grade),
                pixels=_Source("pixels", lambda: pixels, []),
                untrained=untrained,
                majority={task: _majority(grade, task)},
            ),
            ceiling=measured(_Source("ceiling", supervised, facts), grade=grade),
        )
        for grade in grades
    ]


def refuse_untrainable(extractor: FeatureExtractor, sample: NDArray[Any]) -> None:
    """Refuse a module that no gradient passes: its ceiling would be itself, without a word.

    Raises:
        ValueError: `sample`, images [n, H, W, C], passes without a trace for autograd.
    """
    module = extractor.encoder
    if module is None or isinstance(module, Encoder):  # those of ours can be trained
        return
    encode(module, sample)  # what is wrong apart from gradients is told by itself
    if not _passes_gradient(module, sample):
        raise ValueError(
            f"no gradient passes {extractor.name}, so that no ceiling can be trained: leave "
            "torch.no_grad() out of its forward, or give it to probe (floors=False), which trains "
            "no encoder"
        )


def _passes_gradient(module: nn.Module, sample: NDArray[Any]) -> bool:
    """Return whether features of a module depend on its weights, or on images, for autograd."""
    device = choose_device("auto")
    bf16 = choose_precision("auto", device) == "bf16-mixed"
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=bf16)
    with on_device(module, device), eval_mode(module), torch.enable_grad(), mixed:
        x = image_batch(sample, device)
        if not any(parameter.requires_grad for parameter in module.parameters()):
            x = x.requires_grad_().clone()  # a leaf could not be normalized in place
        try:
            return bool(module(x).requires_grad)
        except RuntimeError:  # an array of numpy cannot be made of what needs a gradient
            return False


def probe_tasks(
    features: FeatureFunction, data: TrainTest, *, seed: int = 0
) -> dict[str, ProbeResult]:
    """Fit a linear probe and a kNN vote to the training images, and score the test images.

    Raises:
        ValueError: a task with fewer than two classes, a class with one example, features that
            are not finite, or not one row for each image.
    """
    train_h, test_h = features(data.train.images), features(data.test.images)
    classes = {task: len(names) for task, names in data.train.classes.items()}
    train_y, test_y = _labels(data.train, train_h), _labels(data.test, test_h)
    probes = fit_linear(train_h, train_y, test_h, test_y, classes=classes, seed=seed)
    votes = knn(train_h, train_y, test_h, test_y, classes=classes)
    return {
        task: ProbeResult(hits=(probe.predicted == test_y[task]).cpu().numpy(), knn=votes[task])
        for task, probe in probes.items()
    }


def _labels(dataset: Dataset, h: Tensor) -> dict[str, Tensor]:
    return {task: torch.from_numpy(y).to(h.device) for task, y in dataset.labels.items()}


def _features_of(encoder: nn.Module) -> FeatureFunction:
    return partial(encode, encoder)


def _majority(data: TrainTest, task: str) -> ProbeResult:
    """Return what is right of saying the commonest class of the training images every time."""
    y, expected = (torch.from_numpy(half.labels[task]) for half in (data.train, data.test))
    hits = majority_hits(y, expected, len(data.train.classes[task])).numpy()
    return ProbeResult(hits=hits, knn=float(hits.mean()))


def train_supervised(encoder: nn.Module, dataset: Dataset, *, seed: int) -> nn.Module:
    """Train `encoder` in place on the labels of `dataset` for about `CEILING_STEPS` steps.

    If there are more examples than those steps can show once, some from all over them are taken.
    """
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        encoder.requires_grad_()  # it was frozen for use, and its ceiling is what it can learn
    batch_size = min(BUDGET["batch_size"], len(dataset))
    dataset = subset(dataset, dataset.spread_rows(CEILING_STEPS * batch_size))
    device = choose_device("auto")
    loader = Loader(dataset, batch_size=batch_size, device=device, seed=seed)
    epochs = max(1, round(CEILING_STEPS / loader.steps_per_epoch))
    settings = BUDGET | {"batch_size": batch_size, "epochs": epochs, "seed": seed}
    facts = Facts.of(dataset, device=device, feature_dim=_width(encoder, dataset))
    recipe, _ = resolve("default", settings, facts)
    state = build(recipe, DataFacts.of(dataset), device=device, encoder=encoder)
    trainer = Trainer(state, fabric=lone_fabric(device), loader=loader)
    trainer.fit(epochs, on_step=lambda metrics: None, on_epoch=lambda metrics: None)
    return encoder.eval()


def _width(encoder: nn.Module, dataset: Dataset) -> int:
    return int(encode(encoder, dataset.images[:1]).shape[1])


def _mixture(grades: Sequence[Dataset]) -> Dataset:
    """Take example i from grade i mod the number of grades; the labels are the same in all."""
    if len(grades) == 1:
        return grades[0]
    images = np.array(grades[0].images)
    for i, grade in enumerate(grades):
        images[i :: len(grades)] = grade.images[i :: len(grades)]
    # Of long sounds the middle, which probes hear: segments drawn anew would be of one grade.
    return replace(grades[0], images=images, plain=None, clips=None)


def _key(settings: list[Any], data: TrainTest) -> str:
    """Return a name for everything that decides a result."""
    digest = hashlib.blake2b(json.dumps([_FORMAT, *settings]).encode(), digest_size=16)
    for half in (data.train, data.test):
        digest.update(half.digests().tobytes())
        for task, y in half.labels.items():
            digest.update(f"{task}/{len(half.classes[task])}".encode() + y.tobytes())
    return digest.hexdigest()


def _architecture(encoder: nn.Module, sample: NDArray[Any]) -> str:
    if isinstance(encoder, Encoder):
        return json.dumps(asdict(encoder.config))
    if isinstance(encoder, FeatureMap):
        return f"feature-map of {_architecture(encoder.encoder, sample)}"
    if isinstance(encoder, Projected):
        return f"{_architecture(encoder.encoder, sample)} with {encoder.projector!r}"
    shapes = {key: list(value.shape) for key, value in encoder.state_dict().items()}
    return f"{encoder!r} {shapes} {_output(encoder, sample)}"


def _output(encoder: nn.Module, sample: NDArray[Any]) -> list[list[float]]:
    """Return a few numbers that tell the features of untrained modules apart, but for rounding.

    A module that is not ours may have the name and the shapes of another, and other code.
    """
    h = encode(encoder, sample).cpu()
    column = torch.arange(h.shape[1])
    seen = functional.normalize(h) @ torch.stack([column.cos(), column.sin()], dim=1)
    return [[round(value, 3) for value in row] for row in seen.tolist()]


def _load(file: Path) -> ProbeResult | None:
    try:
        arrays = read_arrays(file)
        return ProbeResult(hits=arrays["hits"].astype(np.bool_), knn=float(arrays["knn"]))
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged, or somebody else's
        return None


def _save(file: Path, result: ProbeResult, say: Say) -> None:
    """Keep a result for later; where that fails, say so, because the work is done already."""

    def write(draft: Path) -> None:
        with draft.open("wb") as opened:
            np.savez(opened, hits=result.hits, knn=np.float64(result.knn))

    try:
        write_atomically(file, write)
    except (OSError, DiskFullError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        say(f"not kept for later, {file.parent} cannot be written: {reason}; --cache names another")
