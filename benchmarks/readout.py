"""What does the wide readout give beside the pooled features, for every method in equal time?

    python benchmarks/readout.py cifar10_train.npz cifar10_test.npz --runs FOLDER \
        --json benchmarks/results/readout.json

The methods of benchmarks/equal_time.py with the settings and epochs of its table, and view-contrast
with views `moderate`: 5,000 CIFAR-10 images, plain and with planted digits, shapes or letters; and
all 50,000 plain images, for 4 epochs of view-contrast and the time of these for the others. Every
encoder is scored by a linear probe on its pooled features and on its wide readout, beside the same
two of the untrained network, and raw pixels.

The readout is fitted on the training images, at most 5,000, without labels. The probe is fitted on
5,000 training images and scored on the test file. A run stays in FOLDER/METHOD+PLANT/SEED, with its
cost in SEED.json beside it, and is not trained again while both are there. The file of results is
rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from equal_time import CHOICES, EPOCHS, TRAIN
from study import Results, accuracies, train, write_text
from widefield.config.recipes import make_recipe
from widefield.data import Dataset, open_dataset
from widefield.data.open import Data
from widefield.encoders import Encoder, Wide, load_encoder
from widefield.evaluation.wide import fit_on_dataset
from widefield.probes import extract, pixels
from widefield.train.build import DataInfo, build_run_encoder

MODERATE = "view-contrast, moderate"
METHODS = {
    **{
        m: {"method": m}
        for m in ("view-contrast", "row-contrast", "s-diet", "simclr", "barlow-twins")
    },
    MODERATE: {"method": "view-contrast", "views": "moderate"},
}
"""Name -> what its recipe sets beside the settings that equal_time.py chose for the method."""
FLOORS = ("untrained", "pixels")
PLANTS = ("plain", "digits", "shapes", "letters")
ALL = "plain-50000"
"""The part with all images of the training file."""
ALL_EPOCHS = {name: round(4 * epochs / EPOCHS["view-contrast"]) for name, epochs in EPOCHS.items()}
SEEDS = (0, 1, 2)
CPU = torch.device("cpu")


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, train_file: Path, test_file: Path, runs: Path, results: Path) -> None:
        self.train_file, self.test_file, self.runs = train_file, test_file, runs
        self.results = Results(results, lambda runs: {"command": COMMAND})

    def method(self, name: str, plant: str, seed: int) -> None:
        """Train once, unless the run is there, and score once."""
        key = f"{name} | {plant} | seed {seed}"
        if key in self.results:
            return
        data, method = self._spec(self.train_file, plant), METHODS[name]["method"]
        settings: dict[str, Any] = {
            "epochs": (ALL_EPOCHS if plant == ALL else EPOCHS)[method],
            "max_examples": None if plant == ALL else TRAIN,
            **CHOICES[method][chosen(method)],
            **METHODS[name],
        }
        folder = self.runs / f"{name.replace(', ', '+')}+{plant}" / str(seed)
        encoder, cost = kept_or_trained(folder, data, seed=seed, **settings)
        images = open_dataset(data, max_examples=settings["max_examples"], seed=seed)
        scored = self._scored(encoder, images, plant, seed)
        about = {"method": name, "plant": plant, "seed": seed, "settings": settings}
        self.results.add(key, {**about, **scored, **cost})

    def floor(self, name: str, plant: str, seed: int) -> None:
        """Score raw pixels or an untrained encoder, unless that is done."""
        key = f"{name} | {plant} | seed {seed}"
        if key in self.results:
            return
        sets = self._sets(plant, seed)
        if name == "pixels":
            scored: dict[str, Any] = {"accuracy": {"pixels": accuracies(pixels, *sets)}}
        else:
            recipe = make_recipe(encoder="resnet-tiny", seed=seed)
            untrained = build_run_encoder(recipe, DataInfo.of(sets[0]), CPU)
            scored = self._scored(untrained, sets[0], plant, seed)
        self.results.add(key, {"method": name, "plant": plant, "seed": seed, **scored})

    def _scored(self, encoder: nn.Module, images: Dataset, plant: str, seed: int) -> dict[str, Any]:
        """Return the accuracies of both readouts; the wide one is fitted on `images`."""
        began = time.process_time()
        readout = fit_on_dataset(encoder, images, device=CPU)
        seconds = time.process_time() - began
        width, sets = readout.config.pooled, self._sets(plant, seed)
        wide = partial(extract, Wide(encoder, readout))
        return {
            "accuracy": {
                "pooled": accuracies(partial(extract, encoder), *sets),
                "wide": accuracies(wide, *sets, pooled=width),
            },
            "width": {"pooled": width, "wide": readout.dim},
            "variance": dict(zip(readout.config.names, readout.config.variance, strict=True)),
            "fit_processor_seconds": round(seconds, 2),
        }

    def _sets(self, plant: str, seed: int) -> tuple[Dataset, Dataset]:
        """Images to fit a probe on, and images to score it on."""
        return (
            open_dataset(self._spec(self.train_file, plant), max_examples=TRAIN, seed=seed),
            open_dataset(self._spec(self.test_file, plant), seed=seed, held_out=True),
        )

    @staticmethod
    def _spec(file: Path, plant: str) -> str:
        return f"{file}" if plant.startswith("plain") else f"{file}+{plant}"


def chosen(method: str) -> str:
    """Return the name of the settings that equal_time.py chose for a method."""
    results = Path(__file__).parent / "results" / "equal_time.json"
    name: str = json.loads(results.read_text())["chosen"][method]
    return name


def kept_or_trained(folder: Path, data: Data, **settings: Any) -> tuple[Encoder, dict[str, Any]]:
    """Return the encoder of a run and its cost; the run is trained unless it is there."""
    cost = folder.parent / f"{folder.name}.json"
    if not cost.exists():
        shutil.rmtree(folder, ignore_errors=True)  # a run that was interrupted
        folder.parent.mkdir(parents=True, exist_ok=True)
        trained = train(data, out=folder, **settings)
        kept = ("processor_seconds", "wall_seconds", "effective_rank")
        write_text(cost, json.dumps({name: getattr(trained, name) for name in kept}))
    return load_encoder(folder), json.loads(cost.read_text())


COMMAND = "python benchmarks/readout.py cifar10_train.npz cifar10_test.npz --runs FOLDER"


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--method", choices=(*METHODS, *FLOORS), action="append")
    parser.add_argument("--plant", choices=(*PLANTS, ALL), action="append")
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append")
    args = parser.parse_args()
    study = Study(args.train, args.test, args.runs, args.json)
    plants, methods = args.plant or (*PLANTS, ALL), args.method or (*FLOORS, *METHODS)
    for seed, plant, method in itertools.product(args.seed or SEEDS, plants, methods):
        if method in METHODS:
            study.method(method, plant, seed)
        elif plant != ALL:  # the floors of all images are those of plain ones
            study.floor(method, plant, seed)


if __name__ == "__main__":
    main()
