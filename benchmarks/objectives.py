"""What the objectives learn in equal time: the image's class, and a feature planted on it.

    python benchmarks/objectives.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/objectives.json

5,000 CIFAR-10 images, plain and with planted shapes, digits or letters; resnet-tiny; the default
recipe of every method, under learned views too for two of them; two seeds. Each run gets the same
time: a method's epochs follow from the cost of its step, measured once beside the bare encoder's,
turn by turn, so that other work on the machine favors none. BYOL is run with
both directions too, as published. Learning rates are compared first, at half the budget, on
images of the training file that are not trained on; the recipes have the best ones, but for
SimCLR, whose default was chosen for longer runs and is replaced here. Supervised training on both
tasks is the ceiling; pixels and the untrained encoder are the floors. All are scored on the test
file by the linear probe.

The JSON file is rewritten after every run; runs that it already holds are not repeated. The tables
of docs/objectives.md are made from it by `make tables`.
"""

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ratios.step import bench, contestants
from study import Results, Run, accuracies, train, validation_sets
from widefield.config.recipes import make_recipe
from widefield.data import Dataset, open_dataset
from widefield.probes import extract, pixels
from widefield.train.build import DataInfo, build_run_encoder

TRAIN = 5000  # images
BARE_EPOCHS = 16  # about a minute of one core of a server
PLANTS = ("", "+shapes", "+digits", "+letters")
SEEDS = (0, 1)
METHODS = {
    "expert": (
        "row-contrast",
        "s-diet",
        "diet",
        "simclr",
        "dcl",
        "barlow-twins",
        "vicreg",
        "lejepa",
        "byol",
        "byol-both-directions",
        "simsiam",
        "spectral",
        "alpha-cl",
        "supervised",
    ),
    "viewmaker": ("row-contrast", "simclr"),
}
"""What is trained under which views, in the order of the work and of the tables."""
RATES = (2e-3, 6e-3, 2e-2)
FASTER = {"simclr": {"lr": 2e-2}}
"""Where a default was chosen for longer runs than these, and `RATES` say otherwise."""


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, train_file: Path, test_file: Path, results: Path) -> None:
        self.train_file, self.test_file = train_file, test_file
        self.results = Results(results, self._summary)

    def floors(self, plant: str, seed: int) -> None:
        """Score raw pixels and an untrained encoder."""
        recipe, device = make_recipe(encoder="resnet-tiny", seed=seed), torch.device("cpu")
        for name in ("pixels", "random encoder"):
            key = _key(name, "none", plant, seed)
            if key in self.results:
                continue
            sets = self._sets(plant, seed)
            untrained = partial(extract, build_run_encoder(recipe, DataInfo.of(sets[0]), device))
            features = pixels if name == "pixels" else untrained
            self._keep(key, name, "none", plant, seed, {"accuracy": accuracies(features, *sets)})

    def run(self, method: str, views: str, plant: str, seed: int) -> None:
        """Train for the budget and score, unless that is done."""
        key = _key(method, views, plant, seed)
        if key in self.results:
            return
        epochs = self._epochs(method, views)
        trained = train(
            f"{self.train_file}{plant}",
            **_method(method),
            views=views,
            epochs=epochs,
            max_examples=TRAIN,
            seed=seed,
            **FASTER.get(method, {}),
        )
        run = {
            "epochs": epochs,
            "accuracy": accuracies(partial(extract, trained.encoder), *self._sets(plant, seed)),
            "processor_seconds": trained.processor_seconds,
            "wall_seconds": trained.wall_seconds,
            "effective_rank": trained.effective_rank,
        }
        self._keep(key, method, views, plant, seed, run)

    def rate(self, method: str, lr: float) -> None:
        """Train at one learning rate and score on the validation images, unless that is done."""
        key = f"rate {lr:g} | {method} | cifar10+digits | seed 0"
        if key in self.results:
            return
        epochs = self._epochs(method, "expert", BARE_EPOCHS // 2)
        data = f"{self.train_file}+digits"
        trained = train(data, **_method(method), epochs=epochs, max_examples=TRAIN, lr=lr)
        sets = validation_sets(self.train_file, "+digits", TRAIN, seed=0)
        accuracy = accuracies(partial(extract, trained.encoder), *sets)
        run = {"method": method, "lr": lr, "epochs": epochs, "accuracy": accuracy}
        self.results.add(key, {**run, "processor_seconds": trained.processor_seconds})

    def _epochs(self, method: str, views: str, bare: int = BARE_EPOCHS) -> int:
        """Epochs that take as long as `bare` of the bare encoder, all timed turn by turn."""
        key = f"cost | {views}"
        if key in self.results and f"{method}/bare" not in self.results.runs[key]:
            key = f"{key} | {method}"  # a method that came after the others were timed
        if key not in self.results:
            methods = [method] if key.endswith(method) else list(METHODS[views])
            measured = bench(encoder="resnet-tiny", rows=TRAIN, methods=methods, views=views)
            self.results.add(key, measured["ratios"])
        cost: float = self.results.runs[key][f"{method}/bare"]
        return max(1, round(bare / cost))

    def _sets(self, plant: str, seed: int) -> tuple[Dataset, Dataset]:
        """Training and test images with their labels."""
        return (
            open_dataset(f"{self.train_file}{plant}", max_examples=TRAIN, seed=seed),
            open_dataset(f"{self.test_file}{plant}", seed=seed, held_out=True),
        )

    def _keep(
        self, key: str, method: str, views: str, plant: str, seed: int, measured: dict[str, Any]
    ) -> None:
        named = {"method": method, "views": views, "data": f"cifar10{plant}", "seed": seed}
        self.results.add(key, {**named, **measured})

    def _summary(self, runs: dict[str, Run]) -> dict[str, Any]:
        return {
            "command": "python benchmarks/objectives.py cifar10_train.npz cifar10_test.npz",
            "budget": {"bare_epochs": BARE_EPOCHS, "images": TRAIN},
        }


def _method(name: str) -> dict[str, Any]:
    """Settings of a method or a variant of one."""
    return contestants()[name]


def _key(method: str, views: str, plant: str, seed: int) -> str:
    return f"{method} | {views} | cifar10{plant} | seed {seed}"


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", choices=("rates", "runs"), action="append")
    parser.add_argument(
        "--seed", type=int, choices=SEEDS, action="append", help="a process for each, side by side"
    )
    args = parser.parse_args()
    parts = args.part or ["rates", "runs"]
    study = Study(args.train, args.test, args.json)
    for method, lr in itertools.product(METHODS["expert"] if "rates" in parts else (), RATES):
        study.rate(method, lr)
    if "runs" not in parts:
        return
    seeds = args.seed or SEEDS
    for seed, plant in itertools.product(seeds, PLANTS):
        study.floors(plant, seed)
    for seed, views, plant in itertools.product(seeds, METHODS, PLANTS):
        for method in METHODS[views]:
            study.run(method, views, plant, seed)


if __name__ == "__main__":
    main()
