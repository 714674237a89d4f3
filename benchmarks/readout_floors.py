"""Is a feature ever below its floor in the wide readout?

    python benchmarks/readout_floors.py DATA_FOLDER --runs FOLDER \
        --json benchmarks/results/readout_floors.json

Data: CIFAR-10, with the dominant hue as second task; with a planted digit, a planted shape, or a
square whose quadrant is the task; MNIST; photographs; spoken digits, with the speaker. 2,000
examples train and fit the probe, and 2,000 of the test file score it; 1,000 of the recordings and
of the photographs.

Encoders: resnet-tiny trained on the data by view-contrast, three seeds; resnet-tiny, resnet18 and
vit_tiny_patch16_224 trained on labels of CIFAR-100, one seed, the two large ones on fewer of the
data sets; and all untrained. Those trained on labels take images of three channels, not sounds.

The floor of a task is the best of raw pixels, the majority class, and pooled and wide features of
the untrained network. The control has as many columns as the wide readout: the pooled features and
random ReLU features of them. Criteria, on means over seeds:

- wide is nowhere more than 2 points below the floor;
- class of wide is nowhere more than 1 point below that of the pooled features;
- the control fails the first.

A run stays in FOLDER and is not trained again while it is there. The file of results is rewritten
after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from readout import kept_or_trained
from study import Results
from widefield.config.recipes import make_recipe
from widefield.data import Dataset, open_dataset
from widefield.data.open import Data
from widefield.encoders import Encoder, Wide
from widefield.evaluation.wide import fit_on_dataset
from widefield.probes import extract, fit_linear, majority, pixels
from widefield.train.build import DataInfo, build_run_encoder

TRAIN = TEST = 2000
HUES = 6
SQUARE = 8
"""Side of the square whose quadrant is a task, in pixels."""
EPOCHS = 12
CIFAR = ("cifar10", "cifar10+digits", "cifar10+shapes", "cifar10+square")
DATA = (*CIFAR, "mnist", "photos", "spoken")
LARGE = ("resnet18", "vit_tiny_patch16_224")
LARGE_DATA = ("cifar10", "cifar10+digits", "cifar10+square", "mnist")
LABEL_EPOCHS = {"resnet-tiny": 8, "resnet18": 2, "vit_tiny_patch16_224": 2}
LABEL_IMAGES = {"resnet-tiny": 20_000, "resnet18": 10_000, "vit_tiny_patch16_224": 10_000}
UNTRAINED, LABELS = "untrained", "labels"
STARTS = (UNTRAINED, "view-contrast", LABELS)
SEEDS = (0, 1, 2)
CPU = torch.device("cpu")
COMMAND = "python benchmarks/readout_floors.py DATA_FOLDER --runs FOLDER"


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Examples to train and fit on, as `pretrain` takes them and opened, and others to score."""

    source: Data
    train: Dataset
    test: Dataset

    def with_channels(self, channels: int) -> "Sets":
        """Return gray images with as many channels as an encoder takes."""
        if self.train.images.shape[3] == channels:
            return self
        train, test = (
            open_dataset({"x": d.images.repeat(channels, axis=3), **d.labels})
            for d in (self.train, self.test)
        )
        return replace(self, train=train, test=test)


def open_sets(folder: Path, name: str, seed: int) -> Sets:
    """Open one of `DATA`; the seed is that of planted features, and of the split of sounds."""
    if name == "spoken":
        return _of_arrays(*_spoken(folder, seed))
    if name == "photos":
        return Sets(
            source="photos",
            train=open_dataset("photos", max_examples=TRAIN),
            test=open_dataset("photos:test"),
        )
    base, _, plant = name.partition("+")
    spec = f"+{plant}" if plant in ("digits", "shapes") else ""
    train, test = (
        open_dataset(
            f"{folder}/{base}_{split}.npz{spec}",
            max_examples=count,
            image_size=32,
            seed=seed,
            held_out=split == "test",
        )
        for split, count in (("train", TRAIN), ("test", TEST))
    )
    if name == "cifar10":
        return _of_arrays(*(d.arrays() | {"hue": hues(d.images)} for d in (train, test)))
    if plant == "square":
        return _of_arrays(_with_square(train, seed), _with_square(test, seed + len(SEEDS)))
    return _of_arrays(train.arrays(), test.arrays())


def hues(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the bin of the hue circle that most of the saturation of each image is in, [n].

    Red is the middle of bin 0.
    """
    n, height, width, _ = images.shape
    column = Image.fromarray(images.reshape(n * height, width, 3)).convert("HSV")
    hue, saturation, _ = np.moveaxis(np.asarray(column).reshape(n, -1, 3).astype(float), 2, 0)
    bins = np.floor(hue / 256 * HUES + 0.5).astype(int) % HUES
    weight = np.stack([(saturation * (bins == k)).sum(1) for k in range(HUES)], axis=1)
    result: NDArray[np.int64] = weight.argmax(1)
    return result


def _with_square(dataset: Dataset, seed: int) -> dict[str, Any]:
    """Return arrays with a square of one color at a random place; the task is its quadrant."""
    rng, images = np.random.default_rng(seed), dataset.images.copy()
    half = images.shape[1] // 2
    quadrant = rng.integers(4, size=len(images))
    for image, place in zip(images, quadrant, strict=True):
        y, x = np.array([place // 2, place % 2]) * half + rng.integers(half - SQUARE + 1, size=2)
        image[y : y + SQUARE, x : x + SQUARE] = rng.integers(256, size=3)
    return {"x": images, "class": dataset.labels["class"], "place": quadrant}


def _spoken(folder: Path, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two parts of all recordings: the test split of the file has only 300."""
    both = [open_dataset(f"{folder}/fsdd.npz:{split}") for split in ("train", "test")]
    sounds = np.concatenate([d.images[:, 0, :, 0] for d in both])
    labels = {t: np.concatenate([d.labels[t] for d in both]) for t in both[0].labels}
    order = np.random.default_rng(seed).permutation(len(sounds))
    first, second = (
        {"sounds": sounds[rows], "sample_rate": np.array(both[0].rate)}
        | {task: y[rows] for task, y in labels.items()}
        for rows in (order[:TRAIN], order[TRAIN:])
    )
    return first, second


def _of_arrays(train: dict[str, Any], test: dict[str, Any]) -> Sets:
    return Sets(source=train, train=open_dataset(train), test=open_dataset(test))


def features_of(encoder: nn.Module, sets: Sets) -> dict[str, tuple[Tensor, Tensor]]:
    """Return pooled, wide and control features of the training and of the test examples."""
    wide = Wide(encoder, fit_on_dataset(encoder, sets.train, device=CPU))
    outputs = extract(wide, sets.train.images), extract(wide, sets.test.images)
    d = wide.readout.config.pooled
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(d, wide.dim - d, generator=generator) / d**0.5
    bias = torch.randn(wide.dim - d, generator=generator)
    pooled = outputs[0][:, :d], outputs[1][:, :d]  # standardized
    first, second = (torch.cat([h, (h @ weight + bias).relu()], dim=1) for h in pooled)
    return {"pooled": pooled, "wide": outputs, "control": (first, second)}


def probed(h: tuple[Tensor, Tensor], sets: Sets, *, pooled: int | None = None) -> dict[str, float]:
    """Return the linear-probe accuracy of each task; wide features begin with the pooled ones."""
    train_y, test_y = _targets(sets)
    classes = {task: len(names) for task, names in sets.train.classes.items()}
    results = fit_linear(h[0], train_y, h[1], test_y, classes=classes, pooled=pooled)
    return {task: round(result.accuracy, 4) for task, result in results.items()}


def _targets(sets: Sets) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    first, second = (
        {task: torch.from_numpy(np.asarray(y)) for task, y in d.labels.items()}
        for d in (sets.train, sets.test)
    )
    return first, second


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, folder: Path, runs: Path, results: Path) -> None:
        self.folder, self.runs = folder, runs
        self.results = Results(results, lambda runs: {"command": COMMAND})

    def data_floors(self, data: str, seed: int) -> None:
        """Score raw pixels and the majority class."""
        key = f"{data} | pixels | seed {seed}"
        if key in self.results:
            return
        sets = open_sets(self.folder, data, seed)
        classes = {task: len(names) for task, names in sets.train.classes.items()}
        most = majority(*_targets(sets), classes=classes)
        h = pixels(sets.train.images), pixels(sets.test.images)
        accuracy = {
            "pixels": probed(h, sets),
            "majority": {task: round(score.accuracy, 4) for task, score in most.items()},
        }
        run = {"data": data, "encoder": "none", "start": "pixels", "seed": seed}
        self.results.add(key, {**run, "accuracy": accuracy})

    def encoder(self, data: str, name: str, start: str, seed: int) -> None:
        """Score an encoder; `start` is what trained it, or untrained."""
        key = f"{data} | {name} | {start} | seed {seed}"
        if key in self.results:
            return
        sets = open_sets(self.folder, data, seed)
        encoder = self.build(data, name, start, seed, sets)
        shown = sets if data == "spoken" else sets.with_channels(encoder.config.channels)
        began = time.process_time()
        found = features_of(encoder, shown)
        seconds = round(time.process_time() - began, 2)
        width = found["pooled"][0].shape[1]
        wider = {"wide": width, "control": width}
        run = {
            "data": data,
            "encoder": name,
            "start": start,
            "seed": seed,
            "accuracy": {
                kind: probed(h, shown, pooled=wider.get(kind)) for kind, h in found.items()
            },
            "width": {kind: h[0].shape[1] for kind, h in found.items()},
            "features_processor_seconds": seconds,
        }
        self.results.add(key, run)

    def build(self, data: str, name: str, start: str, seed: int, sets: Sets) -> Encoder:
        """Return an untrained encoder, or one trained on the data or on labels of CIFAR-100."""
        if start == UNTRAINED:
            recipe = make_recipe(encoder=name, seed=seed)
            return build_run_encoder(recipe, DataInfo.of(sets.train), CPU)
        settings: dict[str, Any] = {"encoder": name, "seed": seed, "method": start}
        folder = self.runs / f"{start}-{data}" / str(seed)
        if start == LABELS:
            folder = self.runs / f"{start}-{name}" / str(seed)
            settings |= {"method": "supervised", "epochs": LABEL_EPOCHS[name]}
            settings |= {"max_examples": LABEL_IMAGES[name]}
            settings |= {"lr": 1e-3} if name.startswith("vit") else {}
            source: Data = f"{self.folder}/cifar100_train.npz"
        else:
            settings |= {"epochs": EPOCHS, "max_examples": TRAIN if data == "photos" else None}
            source = sets.source
        return kept_or_trained(folder, source, **settings)[0]


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--data", choices=DATA, action="append")
    parser.add_argument("--encoder", choices=("resnet-tiny", *LARGE), action="append")
    parser.add_argument("--start", choices=STARTS, action="append")
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append")
    args = parser.parse_args()
    study = Study(args.folder, args.runs, args.json)
    names, starts = args.encoder or ("resnet-tiny", *LARGE), args.start or STARTS
    for name, seed, data in itertools.product(names, args.seed or SEEDS, args.data or DATA):
        study.data_floors(data, seed)
        for start in starts:
            if has(data, name, start, seed):
                study.encoder(data, name, start, seed)


def has(data: str, name: str, start: str, seed: int) -> bool:
    """Return whether an encoder is part of the study."""
    if name in LARGE:
        return data in LARGE_DATA and start != "view-contrast" and seed == SEEDS[0]
    return start != LABELS or (data != "spoken" and seed == SEEDS[0])


if __name__ == "__main__":
    main()
