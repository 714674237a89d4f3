"""Floor and ceiling of a task: what raw pixels, an untrained and a supervised encoder hold of it.

All three depend on the data and the architecture alone, so they are kept on disk and serve every
encoder that is audited on the same examples.
"""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import nn

from widefield.audits.read import Features, Pair, read, subset
from widefield.audits.verdict import Reading, TaskAudit, judge
from widefield.data import Dataset, Loader
from widefield.data.cache import cache_folder
from widefield.encoders import Encoder, VisionEncoder
from widefield.methods.supervised import Supervised
from widefield.probes import pixels
from widefield.recipe import Recipe
from widefield.train.checkpoint import write_atomically
from widefield.train.hardware import choose_device
from widefield.train.loop import Objective, Training, train
from widefield.train.optim import build_optimizer, learning_rates
from widefield.train.ranks import lone_fabric
from widefield.views import build_views
from widefield.workflows.frozen import Frozen, encode

STEPS = 600
"""Supervised steps that a ceiling is trained for."""
BUDGET: dict[str, Any] = {
    "method": "supervised",
    "views": "gentle",
    "batch_size": 64,
    "lr": 3e-3,
    "warmup_epochs": 1.0,
}
"""The rest of a ceiling's recipe; gentle views keep what a crop or a mirror would destroy."""

_FORMAT = 1
"""Part of every key; raised when the same settings come to mean another reading."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What lies below and above every encoder of one architecture, on each task."""

    floors: Mapping[str, Mapping[str, Reading]]
    """`pixels` or `random` -> task -> reading."""
    ceiling: Mapping[str, Reading]
    """Task -> reading of an encoder trained with that task's labels."""


def audit_tasks(frozen: Frozen, pair: Pair, limits: Bounds, *, seed: int) -> dict[str, TaskAudit]:
    """The verdict of every task of `pair`, between its floor and its ceiling."""
    return {
        task: judge(
            task,
            reading,
            {name: row[task] for name, row in limits.floors.items()},
            limits.ceiling[task],
            classes=len(pair.train.classes[task]),
            seed=seed,
        )
        for task, reading in read(frozen.features, pair, seed=seed).items()
    }


def bounds(frozen: Frozen, pair: Pair, *, cache: Path | None, seed: int, say: Say) -> Bounds:
    """Floors and ceilings of every task of `pair` for the architecture of `frozen`.

    `cache` is the folder that keeps them, by default `audits` in widefield's cache; `say` is told
    what takes long.
    """
    found = {
        task: graded_bounds(frozen, [pair.only(task)], cache=cache, seed=seed, say=say)[0]
        for task in pair.train.labels
    }
    return Bounds(
        floors={
            name: {task: one.floors[name][task] for task, one in found.items()}
            for name in ("pixels", "random")
        },
        ceiling={task: one.ceiling[task] for task, one in found.items()},
    )


def graded_bounds(
    frozen: Frozen, pairs: Sequence[Pair], *, cache: Path | None, seed: int, say: Say
) -> list[Bounds]:
    """Floors and ceilings of one task at several grades: each pair has the task alone.

    One supervised encoder, trained on a mixture of the grades, is the ceiling of all of them.
    """
    (task,) = pairs[0].train.labels
    folder = cache_folder() / "audits" if cache is None else cache
    sample = pairs[0].train.images[:2]
    teach = _mixture([pair.train for pair in pairs])

    def random() -> Features:
        encoder = frozen.floor_for(sample)
        return lambda images: encode(encoder, images)

    @functools.cache
    def supervised() -> Features:
        say(f"training a supervised ceiling for {task}: {STEPS} steps, kept for later")
        encoder = train_supervised(frozen.floor_for(sample), teach, seed=seed)
        return lambda images: encode(encoder, images)

    sources: dict[str, Callable[[], Features]] = {
        "pixels": lambda: pixels,
        "random": random,
        "ceiling": supervised,
    }
    architecture = _architecture(frozen.floor_for(sample))
    found = []
    for pair in pairs:
        readings = {}
        for kind, source in sources.items():
            facts = {"pixels": [], "random": [architecture]}.get(
                kind, [architecture, STEPS, BUDGET, teach.digests().tolist()]
            )
            file = folder / f"{kind}-{_key([kind, seed, *facts], pair)}.npz"
            kept = _load(file)
            if kept is None:
                kept = read(source(), pair, seed=seed)[task]
                _save(file, kept)
            readings[kind] = {task: kept}
        floors = {"pixels": readings["pixels"], "random": readings["random"]}
        found.append(Bounds(floors=floors, ceiling=readings["ceiling"]))
    return found


def train_supervised(encoder: nn.Module, dataset: Dataset, *, seed: int) -> nn.Module:
    """Train `encoder` in place on the labels of `dataset` for about `STEPS` steps; return it.

    More examples than the budget can show once are thinned out evenly.
    """
    batch_size = min(BUDGET["batch_size"], len(dataset))
    thin = math.ceil(len(dataset) / (STEPS * batch_size))
    dataset = subset(dataset, np.arange(0, len(dataset), thin))
    device = choose_device("auto")
    loader = Loader(dataset, batch_size=batch_size, device=device, seed=seed)
    epochs = max(1, round(STEPS / loader.steps_per_epoch))
    recipe = Recipe(**BUDGET | {"batch_size": batch_size, "epochs": epochs, "seed": seed})
    total = epochs * loader.steps_per_epoch
    warmup = round(min(recipe.warmup_epochs, epochs / 2) * loader.steps_per_epoch)
    encoder = encoder.to(device).to(memory_format=torch.channels_last)
    labels = {task: torch.from_numpy(y) for task, y in dataset.labels.items()}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        width = encode(encoder, dataset.images[:2]).shape[1]
        method = Supervised(labels=labels, feature_dim=width).to(device)
        rates = learning_rates(recipe.lr, steps=total, warmup_steps=warmup)
        training = Training(
            objective=Objective(encoder, method),
            optimizer=build_optimizer(encoder, method, recipe),
            views=build_views(recipe.views, recipe=recipe).to(device),
            generator=torch.Generator(device).manual_seed(seed),
        )
        train(
            training,
            fabric=lone_fabric(device),
            loader=loader,
            rates=rates,
            epochs=epochs,
            on_step=lambda pulse: None,
            on_epoch=lambda pulse: None,
        )
    return encoder.eval()


def _mixture(grades: Sequence[Dataset]) -> Dataset:
    """Example i as it is in grade i mod the number of grades; the labels are the same in all."""
    if len(grades) == 1:
        return grades[0]
    images = np.array(grades[0].images)
    for place, grade in enumerate(grades):
        images[place :: len(grades)] = grade.images[place :: len(grades)]
    return replace(grades[0], images=images)


def _key(settings: list[Any], pair: Pair) -> str:
    """A name for everything that decides a reading."""
    digest = hashlib.blake2b(json.dumps([_FORMAT, *settings]).encode(), digest_size=16)
    for half in (pair.train, pair.test):
        digest.update(half.digests().tobytes())
        for task, y in half.labels.items():
            digest.update(f"{task}/{len(half.classes[task])}".encode() + y.tobytes())
    return digest.hexdigest()


def _architecture(encoder: nn.Module) -> str:
    if isinstance(encoder, Encoder):
        return json.dumps(asdict(encoder.config))
    if isinstance(encoder, VisionEncoder):
        return f"torchvision:{encoder.name}"
    shapes = {key: list(value.shape) for key, value in encoder.state_dict().items()}
    return f"{encoder!r} {shapes}"


def _load(file: Path) -> Reading | None:
    try:
        with np.load(file, allow_pickle=False) as kept:
            return Reading(hits=kept["hits"], knn=float(kept["knn"]))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):  # absent, or half of a file
        return None


def _save(file: Path, reading: Reading) -> None:
    def write(draft: Path) -> None:
        with draft.open("wb") as opened:
            np.savez(opened, hits=reading.hits, knn=np.float64(reading.knn))

    try:
        write_atomically(file, write)
    except OSError as error:
        raise ValueError(
            f"cannot write to the cache {file.parent}: {error.strerror}; choose another folder "
            "with --cache"
        ) from None
