"""Floors and ceiling of a task, between which an audit places an encoder.

Floors are the accuracies of raw pixels, of the untrained architecture and of the commonest class;
the ceiling is that of the architecture trained with labels. They depend on data and architecture
alone, so they are cached on disk for every encoder that is audited on the same examples.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from widefield.audits.stage_map import stage_hits
from widefield.audits.verdict import Outcomes, TaskAudit, audit_task
from widefield.config.resolve import RunContext, resolve
from widefield.core.errors import option
from widefield.core.files import DiskFullError, write_atomically
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.modes import eval_mode, on_device
from widefield.data import Dataset, Loader
from widefield.data.cache import cache_folder
from widefield.data.readers.npz import read_arrays
from widefield.encoders import Encoder, FeatureMap, Projected
from widefield.inference.features import FeatureExtractor, encode
from widefield.inference.splits import TrainTest
from widefield.methods import CEILING
from widefield.probes import pixels
from widefield.probes.features import image_batch
from widefield.probes.floors import constant_outcomes, floors
from widefield.probes.label_free import FeatureFunction
from widefield.probes.outcome import MEASURES, Outcome
from widefield.probes.score import score
from widefield.probes.untrained import keeps_statistics, with_data_statistics
from widefield.probes.wide import has_stages, wide_or_none
from widefield.train.build import DataInfo, build
from widefield.train.distributed import single_process
from widefield.train.loop import Trainer

CEILING_STEPS = 600
"""Training steps of a ceiling."""
BUDGET: dict[str, Any] = {
    "method": CEILING,
    "views": "gentle",
    "batch_size": 64,
    "lr": 3e-3,
}
"""Recipe of a ceiling. Gentle views preserve features that crops and flips would destroy."""
_RANGES = 10
"""Ranges of a number that a ceiling is trained to tell apart."""
_DECIDED = ("learned", "hidden", "easy")
"""Verdicts that the wide readout cannot change."""
NUM_SEEDS = 3
"""Untrained encoders of each initialization where a verdict is unclear."""

_FORMAT = 5
"""Part of every cache key. Increase it when the same settings, or the same readout, give other
results."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Settings that all measurements of an audit share."""

    cache: Path | None
    """Folder of cached floors and ceilings; None for `audits` in widefield's cache."""
    seed: int
    log: Callable[[str], None]
    """Called before what takes long."""


class _Source(NamedTuple):
    """Features of a floor or ceiling, and the cache key of everything that they depend on."""

    kind: str
    features: FeatureFunction
    key: list[Any]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Floors and ceiling of every encoder of one architecture, on one task."""

    floors: Mapping[str, Outcome]
    """`pixels`, `random`, and `majority` or `mean` -> result of the probes."""
    ceiling: Outcome
    """Result of the probes for an encoder that was trained with the labels of the task."""
    stages: Mapping[str, Outcomes] = field(default_factory=dict)
    """Stage and grid -> hits of the untrained network; empty if they were not measured."""


def audit_tasks(
    extractor: FeatureExtractor, data: TrainTest, bounds: Mapping[str, Bounds], *, seed: int
) -> dict[str, TaskAudit]:
    """Return the verdict on every task of `data`, by its bounds.

    Stages of the encoder are measured if the bounds have those of the untrained network, and its
    wide readout too where they do not decide.
    """
    if not data.tasks:
        return {}
    cells: dict[str, dict[str, Outcomes]] = {}
    if any(bound.stages for bound in bounds.values()):
        encoder = replace(extractor, kind="pooled").build(data.train.images)
        cells = stage_hits(encoder, data, seed=seed)
    results = probe_tasks(extractor.features, data, seed=seed)

    def judged(task: str, wide: Outcomes | None = None) -> TaskAudit:
        return audit_task(
            task,
            results[task],
            bounds[task].floors,
            bounds[task].ceiling,
            classes=data.class_counts.get(task, 0),
            measure=_measure(data, task),
            groups=data.test.groups,
            stages={
                cell: (hits[task], bounds[task].stages[cell])
                for cell, hits in cells.items()
                if cell in bounds[task].stages
            },
            wide=wide,
            seed=seed,
        )

    found = {task: judged(task) for task in results}
    open_tasks = [t for t, f in found.items() if f.stages and f.verdict not in _DECIDED]
    wide = _wide_hits(extractor, data, open_tasks, seed=seed)
    return found | {task: judged(task, hits) for task, hits in wide.items()}


def _wide_hits(
    extractor: FeatureExtractor, data: TrainTest, tasks: Sequence[str], *, seed: int
) -> dict[str, Outcomes]:
    """Return task -> hits of a wide readout fitted on `data`, as those of the floors are.

    It is empty where the features audited are wide.
    """
    if not tasks or extractor.kind == "wide":
        return {}
    wide = replace(extractor, kind="wide", readout=None).with_readout(data.train)
    found = probe_tasks(wide.features, data.only(*tasks), seed=seed)
    return {task: result.values for task, result in found.items()}


def untrained_stages(
    extractor: FeatureExtractor, data: TrainTest, *, seed: int
) -> dict[str, dict[str, Outcomes]]:
    """Return task -> stage and grid -> hits of the untrained network; empty for pixels."""
    if extractor.name == "pixels" or not data.tasks:
        return {}
    encoder = replace(extractor, kind="pooled").untrained_encoders(data.train.images)[0]
    cells = stage_hits(encoder, data, seed=seed)
    return {task: {cell: hits[task] for cell, hits in cells.items()} for task in data.tasks}


def with_stages(
    bounds: Mapping[str, Bounds], stages: Mapping[str, Mapping[str, Outcomes]]
) -> dict[str, Bounds]:
    """Return the bounds of each task with the stages of the untrained network."""
    return {task: replace(bound, stages=stages.get(task, {})) for task, bound in bounds.items()}


def measure_bounds(
    extractor: FeatureExtractor, data: TrainTest, options: AuditOptions, *, num_seeds: int = 1
) -> dict[str, Bounds]:
    """Measure floors and ceiling of every task of `data` for the architecture of `extractor`.

    The floor `random` is the best of `num_seeds` untrained encoders of each initialization. The
    first one of each has its wide features too, and the very first also the statistics of the data
    in its BatchNorm layers.
    """
    return {
        task: graded_bounds(extractor, [data.only(task)], options, num_seeds=num_seeds)[0]
        for task in data.tasks
    }


def graded_bounds(
    extractor: FeatureExtractor,
    grades: Sequence[TrainTest],
    options: AuditOptions,
    *,
    num_seeds: int = 1,
) -> list[Bounds]:
    """Measure floors and ceiling of one task at several grades, which have no other task.

    One supervised encoder, trained on a mixture of the grades, is the ceiling of all of them.
    """
    (task,) = grades[0].tasks
    folder = options.cache or cache_folder() / "audits"
    sample = grades[0].train.images[:2]
    mixture = _mixture([grade.train for grade in grades])
    architecture = _architecture(extractor.untrained_encoders(sample)[0], sample)
    digests = mixture.digests().tolist()

    @functools.cache  # trained once for all grades, and not at all if all of them are cached
    def supervised() -> nn.Module:
        options.log(f"training a supervised ceiling for {task}: {CEILING_STEPS} steps, then cached")
        return train_supervised(extractor.untrained_encoders(sample)[0], mixture, seed=options.seed)

    def cached(source: _Source, *, grade: TrainTest) -> dict[str, Outcome]:
        key = _key([source.kind, options.seed, *source.key], grade)
        file = folder / f"{source.kind}-{key}.npz"
        result = _load(file)
        if result is None:
            result = probe_tasks(source.features, grade, seed=options.seed)[task]
            _save(file, result, options.log)
        return {task: result}

    untrained = [
        source
        for seed in range(num_seeds)
        for start, encoder in enumerate(extractor.untrained_encoders(sample, seed=1 + seed))
        for source in _floor_sources(
            encoder,
            mixture,
            digests,
            [_architecture(encoder, sample), seed],
            with_wide=seed == 0,
            with_statistics=seed == start == 0,
        )
    ]
    ceiling = _Source(
        "ceiling",
        lambda images: encode(supervised(), images),
        [architecture, CEILING_STEPS, BUDGET, digests],
    )
    return [
        Bounds(
            floors=floors(
                partial(cached, grade=grade),
                pixels=_Source("pixels", pixels, []),
                untrained=untrained,
                constant=constant_outcomes(grade.train, grade.test),
            )[task],
            ceiling=cached(ceiling, grade=grade)[task],
        )
        for grade in grades
    ]


def _floor_sources(
    encoder: nn.Module,
    dataset: Dataset,
    digests: list[Any],
    key: list[Any],
    *,
    with_wide: bool,
    with_statistics: bool,
) -> Iterator[_Source]:
    """Yield the features of an untrained encoder, and its wide ones if it has stages.

    With the statistics of the data in its BatchNorm layers it is another encoder, with both. What
    depends on the data has `digests`, those of `dataset`, in its key besides `key`.
    """
    yield _Source("random", partial(encode, encoder), key)
    # The accuracy of wide features differs less between draws, and they take longer to probe.
    with_wide = with_wide and has_stages(encoder, dataset.images)
    with_statistics = with_statistics and keeps_statistics(encoder)
    device = choose_device("auto")

    def wide(network: nn.Module) -> nn.Module:
        module = wide_or_none(network, dataset.images, device=device)
        assert module is not None, "it has stages"
        return module

    @functools.cache
    def adapted() -> nn.Module:
        return with_data_statistics(encoder, dataset.images, device=device)

    if with_wide:
        yield _Source("random", _lazily(lambda: wide(encoder)), [*key, "wide", digests])
    if with_statistics:
        key = [*key, "data statistics"]
        yield _Source("random", _lazily(adapted), [*key, digests])
    if with_statistics and with_wide:
        yield _Source("random", _lazily(lambda: wide(adapted())), [*key, "wide", digests])


def _lazily(build_module: Callable[[], nn.Module]) -> FeatureFunction:
    """Return the features of a module that is built at the first call, once for all grades."""
    module = functools.cache(build_module)
    return lambda images: encode(module(), images)


def check_trainable(extractor: FeatureExtractor, sample: NDArray[Any]) -> None:
    """Check that a module can be trained; otherwise its ceiling would be the module itself.

    Raises:
        ValueError: autograd computes no gradient for `sample`, images [n, H, W, C].
    """
    module = extractor.encoder
    if module is None or isinstance(module, Encoder):  # always trainable
        return
    encode(module, sample)  # raises errors that have nothing to do with gradients
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
            x = x.requires_grad_().clone()  # in-place operations fail on a leaf
        try:
            return bool(module(x).requires_grad)
        except RuntimeError:  # a conversion to numpy fails on tensors that require grad
            return False


def probe_tasks(features: FeatureFunction, data: TrainTest, *, seed: int = 0) -> dict[str, Outcome]:
    """Fit a linear probe and a kNN vote to the training images, and score the test images.

    Raises:
        ValueError: a task with fewer than two classes, a class with one example, features that
            are not finite, or not one row for each image.
    """
    train_h, test_h = features(data.train.inputs), features(data.test.inputs)
    return score(train_h, data.train, test_h, data.test, seed=seed)


def _measure(data: TrainTest, task: str) -> str:
    target = data.train.targets.get(task)
    return "accuracy" if target is None else MEASURES[target.kind]


def _with_classes(dataset: Dataset) -> Dataset:
    """Return the dataset with classes in place of its targets, for supervised training.

    These are ten ranges of a number, with equally many examples, and both values of each label.
    """
    labels, classes = dict(dataset.labels), dict(dataset.classes)
    for task, target in dataset.targets.items():
        for name, y in zip(target.labels or ("",), target.values.T, strict=True):
            ends = np.quantile(y, np.linspace(0, 1, _RANGES + 1)[1:-1])
            ids = y.astype(np.int64) if name else np.searchsorted(np.unique(ends), y, side="right")
            labels[f"{task} {name}"] = ids.astype(np.int64)
            classes[f"{task} {name}"] = tuple(map(str, range(int(ids.max()) + 1)))
    return replace(dataset, labels=labels, classes=classes, targets={})


def train_supervised(encoder: nn.Module, dataset: Dataset, *, seed: int) -> nn.Module:
    """Train `encoder` in place on the labels of `dataset` for about `CEILING_STEPS` steps.

    If there are more examples than these steps use, a subset spread over all of them is taken.
    """
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        encoder.requires_grad_()  # the ceiling is what a frozen encoder could learn
    batch_size = min(BUDGET["batch_size"], len(dataset))
    dataset = dataset.subset(dataset.spread_rows(CEILING_STEPS * batch_size)).first_read()
    dataset = _with_classes(dataset)
    device = choose_device("auto")
    loader = Loader(dataset, batch_size=batch_size, device=device, seed=seed)
    epochs = max(1, round(CEILING_STEPS / loader.steps_per_epoch))
    settings = BUDGET | {
        "batch_size": batch_size,
        "epochs": epochs,
        "warmup_epochs": min(1.0, epochs / 10),  # of more than 25,600 examples there is one epoch
        "seed": seed,
    }
    feature_dim = encode(encoder, dataset.images[:1]).shape[1]
    info = RunContext.of(dataset, device=device, feature_dim=feature_dim)
    recipe, _ = resolve("default", settings, info)
    state = build(recipe, DataInfo.of(dataset), device=device, encoder=encoder)
    trainer = Trainer(state, compute=single_process(device), loader=loader)
    trainer.fit(epochs, on_step=lambda metrics: None, on_epoch=lambda metrics: None)
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
    """Return a hash of everything that a result depends on."""
    hash_ = hashlib.blake2b(json.dumps([_FORMAT, *settings]).encode(), digest_size=16)
    for half in (data.train, data.test):
        hash_.update(half.digests().tobytes())
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
    shapes = {key: list(value.shape) for key, value in encoder.state_dict().items()}
    return f"{encoder!r} {shapes} {_output(encoder, sample)}"


def _output(encoder: nn.Module, sample: NDArray[Any]) -> list[list[float]]:
    """Return rounded projections of the features, which distinguish modules of equal shapes."""
    h = encode(encoder, sample).cpu()
    column = torch.arange(h.shape[1])
    projected = functional.normalize(h) @ torch.stack([column.cos(), column.sin()], dim=1)
    return [[round(value, 3) for value in row] for row in projected.tolist()]


def _load(file: Path) -> Outcome | None:
    try:
        arrays = read_arrays(file)
        hits, knn = arrays["hits"], float(arrays["knn"])
        if hits.dtype not in (np.bool_, np.float64):
            return None
        return Outcome(values=hits, knn=None if np.isnan(knn) else knn)
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged or of another program
        return None


def _save(file: Path, result: Outcome, log: Callable[[str], None]) -> None:
    """Cache a result; an error is only logged, because the result is known already."""

    def write(temp_path: Path) -> None:
        with temp_path.open("wb") as f:
            knn = np.nan if result.knn is None else result.knn
            np.savez(f, hits=result.values, knn=np.float64(knn))

    try:
        write_atomically(file, write)
    except (OSError, DiskFullError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        log(
            f"not cached, {file.parent} cannot be written: {reason}; give another {option('cache')}"
        )
