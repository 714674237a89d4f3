"""Floors and ceiling of a task, between which an audit places an encoder.

Floors are the accuracies of raw pixels, of the untrained architecture and of the commonest class;
the ceiling is that of the architecture trained with labels. They depend on data and architecture
alone, so they are cached on disk for every encoder that is audited on the same examples.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from widefield.config.resolve import RunContext, resolve
from widefield.core.devices import eval_mode, on_device
from widefield.core.errors import option
from widefield.core.files import DiskFullError, write_atomically
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.types import Inputs, ProgressCallback
from widefield.data import Dataset, Loader
from widefield.data.cache import cache_folder
from widefield.data.readers.npz import read_arrays
from widefield.encoders import Encoder, FeatureMap, Projected
from widefield.inference.features import FeatureExtractor, images_progress
from widefield.inference.scorable import with_tasks
from widefield.inference.splits import TrainTest
from widefield.methods import CEILING
from widefield.probes import extract, pixels
from widefield.probes.features import DictionaryFeatures, image_batch
from widefield.probes.floors import constant_outcomes, floors
from widefield.probes.label_free import FeatureFunction
from widefield.probes.outcome import MEASURES, Outcome
from widefield.probes.score import score
from widefield.probes.untrained import Untrained, untrained_floor
from widefield.train.build import DataInfo, build
from widefield.train.distributed import single_process
from widefield.train.loop import Trainer
from widefield.train.step import StepMetrics

# Steps, batch size and rate are chosen by hand, and no study compares them. The training is short:
# a long pretraining may reach the ceiling (docs/audit.md).
CEILING_STEPS = 600
BUDGET: dict[str, Any] = {
    "method": CEILING,
    # Stronger views would destroy features such as a position or a side, and lower the ceiling.
    "views": "gentle",
    "batch_size": 64,
    "lr": 3e-3,
}
# Chosen by hand. The ranges have equally many examples, so that none is rare.
_RANGES = 10
"""Ranges of a number that a ceiling is trained to tell apart."""

_encode = partial(extract, device="auto", precision="auto")

_FORMAT = 6
"""Part of every cache key. Increase it when the same settings, or the same readout, give other
results."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Settings that all measurements of an audit share."""

    cache: Path | None
    """Folder of cached floors and ceilings; None for `audits` in widefield's cache."""
    seed: int
    quiet: bool
    """Whether nothing is logged on stderr."""

    def log(self, text: str) -> None:
        """Log a line before what takes long."""
        console = Console(stderr=True, quiet=self.quiet)
        console.print(text, highlight=False, markup=False, soft_wrap=True)


class _Source(NamedTuple):
    """Features of a floor or ceiling, and the cache key of everything that they depend on."""

    kind: str
    features: FeatureFunction
    key: list[Any]


_PIXELS = _Source("pixels", pixels, [])


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Floors and ceiling of every encoder of one architecture, on one task."""

    floors: Mapping[str, Outcome]
    """`pixels`, `random`, `dictionary`, and `majority` or `mean` -> outcome of the probe."""
    ceiling: Outcome
    """Outcome of the probe for an encoder that was trained with the labels of the task."""


def graded_bounds(
    extractor: FeatureExtractor,
    grades: Sequence[TrainTest],
    options: AuditOptions,
    *,
    num_seeds: int = 1,
) -> list[dict[str, Bounds]]:
    """Measure floors and ceiling of each task at several grades, which have the same tasks.

    The floor `random` is the best of `num_seeds` untrained encoders of each initialization. The
    first seed also has what `untrained_floor` adds: wide features, and the statistics of the data.
    One supervised encoder a task, trained on a mixture of the grades, is the ceiling of all grades.
    """
    tasks = grades[0].tasks
    if not tasks:
        return [{} for _ in grades]
    mixture = _mixture([grade.train for grade in grades])
    untrained = list(_untrained_sources(extractor, mixture, num_seeds))
    dictionary = _dictionary_source(mixture)
    ceilings = {
        task: _ceiling(extractor, with_tasks(mixture, [task]), task, options) for task in tasks
    }
    found = []
    for grade in grades:
        by_task = floors(
            partial(_outcomes, grade=grade, options=options),
            pixels=_PIXELS,
            untrained=untrained,
            dictionary=dictionary,
            constant=constant_outcomes(grade.train, grade.test),
        )
        tops = {task: _outcomes(ceilings[task], grade.only(task), options)[task] for task in tasks}
        found.append({t: Bounds(floors=by_task[t], ceiling=tops[t]) for t in tasks})
    return found


def _ceiling(
    extractor: FeatureExtractor, dataset: Dataset, task: str, options: AuditOptions
) -> _Source:
    sample = dataset.images[:2]
    architecture = _architecture(extractor.untrained_encoders(sample)[0], sample)
    key = [architecture, CEILING_STEPS, BUDGET, dataset.digests().tolist()]

    @functools.cache  # trained once for all grades, and not at all if all of them are cached
    def trained() -> nn.Module:
        options.log(f"training a supervised ceiling for {task}: {CEILING_STEPS} steps, then cached")
        encoder = extractor.untrained_encoders(sample)[0]
        with images_progress(options.quiet, "training the ceiling, steps") as progress:
            return train_supervised(encoder, dataset, seed=options.seed, progress=progress)

    return _Source("ceiling", lambda images: _encode(trained(), images), key)


def _untrained_sources(
    extractor: FeatureExtractor, dataset: Dataset, num_seeds: int
) -> Iterator[_Source]:
    """Yield the features of the untrained encoders; what depends on the data has it in its key."""
    images, digests, device = dataset.images, dataset.digests().tolist(), choose_device("auto")
    for seed in range(num_seeds):
        starts = extractor.untrained_encoders(images[:2], seed=1 + seed)
        for network in untrained_floor(starts, images, device=device):
            key = [_architecture(network.start, images[:2]), seed]
            if network.with_statistics:
                if seed > 0:
                    continue
                key += ["data statistics", digests]
            yield _Source("random", partial(_pooled, network), key)
            # The accuracy of wide features differs less between seeds than that of pooled ones, and
            # they take longer to probe.
            if seed == 0 and network.has_wide:
                yield _Source("random", partial(_wide, network), [*key, "wide", digests])


def _dictionary_source(dataset: Dataset) -> _Source:
    module = functools.cache(lambda: DictionaryFeatures.of(dataset.inputs))
    return _Source(
        "dictionary", lambda images: _encode(module(), images), [dataset.digests().tolist()]
    )


def _pooled(network: Untrained, images: Inputs) -> Tensor:
    return _encode(network.pooled, images)


def _wide(network: Untrained, images: Inputs) -> Tensor:
    assert network.wide is not None, "it has stages"
    return _encode(network.wide, images)


def _outcomes(source: _Source, grade: TrainTest, options: AuditOptions) -> dict[str, Outcome]:
    """Return the outcome of each task, from the cache if it is there."""
    folder = options.cache or cache_folder() / "audits"
    settings = [source.kind, options.seed, *source.key]
    files = {
        task: folder / f"{source.kind}-{_key(settings, grade.only(task))}.npz"
        for task in grade.tasks
    }
    cached = {task: _load(file) for task, file in files.items()}
    found = {task: outcome for task, outcome in cached.items() if outcome is not None}
    new = [task for task in files if task not in found]
    if new:
        found |= probe_tasks(source.features, grade.only(*new), seed=options.seed)
    for task in new:
        _save(files[task], found[task], options.log)
    measures = {task: MEASURES[target.kind] for task, target in grade.test.targets.items()}
    return {
        task: replace(outcome, groups=grade.test.groups, measure=measures.get(task, "accuracy"))
        for task, outcome in found.items()
    }


def check_trainable(extractor: FeatureExtractor, sample: NDArray[Any]) -> None:
    """Check that a module can be trained; otherwise its ceiling would be the module itself."""
    module = extractor.encoder
    if module is None or isinstance(module, Encoder):  # always trainable
        return
    # Without gradients first: errors that have nothing to do with them are raised as they are.
    _encode(module, sample)
    if not _passes_gradient(module, sample):
        raise ValueError(
            f"no gradient passes {extractor.name}, so that no ceiling can be trained: leave "
            "torch.no_grad() out of its forward, or give it to probe (floors=False), which trains "
            "no encoder"
        )


def _passes_gradient(module: nn.Module, sample: NDArray[Any]) -> bool:
    """Return whether autograd traces features of a module to its weights, or to the images."""
    device = choose_device("auto")
    bf16 = choose_precision("auto", device) == "bf16-mixed"
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=bf16)
    with on_device(module, device), eval_mode(module), torch.enable_grad(), mixed:
        x = image_batch(sample, device)
        if not any(parameter.requires_grad for parameter in module.parameters()):
            # A copy, because in-place operations fail on a leaf.
            x = x.requires_grad_().clone()
        try:
            return bool(module(x).requires_grad)
        except RuntimeError:
            # A conversion to numpy fails on tensors that require grad.
            return False


def probe_tasks(features: FeatureFunction, data: TrainTest, *, seed: int = 0) -> dict[str, Outcome]:
    """Fit a linear probe and a kNN vote to the training images, and score the test images."""
    train_h, test_h = features(data.train.inputs), features(data.test.inputs)
    return score(train_h, data.train, test_h, data.test, seed=seed)


def _with_classes(dataset: Dataset) -> Dataset:
    """Return the dataset with classes in place of its targets, for supervised training.

    These are ten ranges of a number, with equally many examples, and both values of each label.
    """
    labels, classes = dict(dataset.labels), dict(dataset.classes)
    for task, target in dataset.targets.items():
        for name, y in zip(target.labels or ("",), target.values.T, strict=True):
            if name:
                ids = y.astype(np.int64)
            else:
                ends = np.quantile(y, np.linspace(0, 1, _RANGES + 1)[1:-1])
                # Equal ends, of a value that is frequent, are one.
                ids = np.searchsorted(np.unique(ends), y, side="right").astype(np.int64)
            labels[f"{task} {name}"] = ids
            classes[f"{task} {name}"] = tuple(map(str, range(int(ids.max()) + 1)))
    return replace(dataset, labels=labels, classes=classes, targets={})


def train_supervised(
    encoder: nn.Module, dataset: Dataset, *, seed: int, progress: ProgressCallback | None = None
) -> nn.Module:
    """Train `encoder` in place on the labels of `dataset` for about `CEILING_STEPS` steps.

    If there are more examples than these steps use, a subset spread over all of them is taken.
    `progress` is called after each step with the number of steps done and in all.
    """
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        # Frozen for use: the ceiling is what its architecture could learn.
        encoder.requires_grad_()
    batch_size = min(BUDGET["batch_size"], len(dataset))
    dataset = dataset.subset(dataset.spread_rows(CEILING_STEPS * batch_size)).first_read()
    dataset = _with_classes(dataset)
    device = choose_device("auto")
    loader = Loader(dataset, batch_size=batch_size, device=device, seed=seed)
    epochs = max(1, round(CEILING_STEPS / loader.steps_per_epoch))
    settings = BUDGET | {
        "batch_size": batch_size,
        "epochs": epochs,
        # Of more than 25,600 examples there is one epoch, and a warm-up has to be shorter.
        "warmup_epochs": min(1.0, epochs / 10),
        "seed": seed,
    }
    feature_dim = _encode(encoder, dataset.images[:1]).shape[1]
    info = RunContext.of(dataset, device=device, feature_dim=feature_dim)
    recipe, _ = resolve("default", settings, info)
    state = build(recipe, DataInfo.of(dataset), device=device, encoder=encoder)
    trainer = Trainer(state, compute=single_process(device), loader=loader)

    def on_step(metrics: StepMetrics) -> None:
        if progress is not None:
            progress(metrics.step, len(state.rates))

    trainer.fit(epochs, on_step=on_step, on_epoch=lambda metrics: None)
    return encoder.eval()


def _mixture(grades: Sequence[Dataset]) -> Dataset:
    """Return a dataset whose example i is that of grade i modulo the number of grades."""
    if len(grades) == 1:
        return grades[0]
    images = np.array(grades[0].images)
    for i, grade in enumerate(grades):
        images[i :: len(grades)] = grade.images[i :: len(grades)]
    # Long sounds are reduced to their loudest segment: new segments would be of one grade.
    return replace(grades[0], images=images, plain=None, clips=None)


def _key(settings: list[Any], data: TrainTest) -> str:
    hash_ = hashlib.blake2b(json.dumps([_FORMAT, *settings]).encode(), digest_size=16)
    for half in (data.train, data.test):
        hash_.update(half.digests().tobytes())
        if half.clips is not None and half.clips.weighting != "equal":
            hash_.update(half.clips.weighting.encode())
        # Penalties are chosen on a split that keeps groups whole.
        if half.groups is not None:
            hash_.update(b"groups" + half.groups.tobytes())
        for task, y in half.labels.items():
            hash_.update(f"{task}/{len(half.classes[task])}".encode() + y.tobytes())
        for task, target in half.targets.items():
            hash_.update(f"{task}/{target.labels}".encode() + target.values.tobytes())
    return hash_.hexdigest()


def _architecture(encoder: nn.Module, sample: NDArray[Any]) -> str:
    if isinstance(encoder, Encoder):
        return json.dumps(asdict(encoder.config))
    if isinstance(encoder, FeatureMap):
        return f"feature-map of {_architecture(encoder.encoder, sample)}"
    if isinstance(encoder, Projected):
        return f"{_architecture(encoder.encoder, sample)} with {encoder.projector!r}"
    # Two modules of other code may have one name and equal shapes: their outputs differ.
    shapes = {key: list(value.shape) for key, value in encoder.state_dict().items()}
    return f"{encoder!r} {shapes} {_output(encoder, sample)}"


def _output(encoder: nn.Module, sample: NDArray[Any]) -> list[list[float]]:
    """Return rounded projections of the features, which distinguish modules of equal shapes."""
    h = _encode(encoder, sample).cpu()
    column = torch.arange(h.shape[1])
    projected = functional.normalize(h) @ torch.stack([column.cos(), column.sin()], dim=1)
    return [[round(value, 3) for value in row] for row in projected.tolist()]


def _load(file: Path) -> Outcome | None:
    """Return a cached outcome without its groups and measure, which the data have."""
    try:
        arrays = read_arrays(file)
        values, knn = arrays["hits"], float(arrays["knn"])
        if values.dtype not in (np.bool_, np.float64):
            return None
        return Outcome(values=values, knn=None if np.isnan(knn) else knn)
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged or of another program
        return None


def _save(file: Path, outcome: Outcome, log: Callable[[str], None]) -> None:
    """Cache an outcome; an error is only logged, because the outcome is known already."""

    def write(temp_path: Path) -> None:
        with temp_path.open("wb") as f:
            knn = np.nan if outcome.knn is None else outcome.knn
            np.savez(f, hits=outcome.values, knn=np.float64(knn))

    try:
        write_atomically(file, write)
    except (OSError, DiskFullError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        log(
            f"not cached, {file.parent} cannot be written: {reason}; give another {option('cache')}"
        )
