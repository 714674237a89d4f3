"""What do the methods learn in equal time, each with the best settings that were found for it?

    python benchmarks/equal_time.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/equal_time.json

5,000 CIFAR-10 images, resnet-tiny, as much time as 25 epochs of row-contrast. Parts:

- time: what an epoch of each method costs, the methods turn by turn; the epochs below are made
  from that, and whoever times them on another kind of machine may find others;
- choices: one setting changed at a time, with a planted digit, and on plain images too where the
  class is within two points of the method's best and there are several such; scored on 3,000
  further images of the training file, which are neither trained on nor part of the test; one seed;
- table: every such method with the settings chosen from these, on plain images and with planted
  digits or shapes, scored on the test file, over three seeds, beside floors and ceiling;
- twice: these, BYOL, MoCo and DIET with the digit and with the shape for twice as many epochs,
  ours and SimCLR on plain images too;
- epochs-1, -2, -5, -50: ours and SimCLR for as long as that many epochs of SimCLR, on plain images
  and with the digit;
- longer: ours and SimCLR with the digit for eight times as long, one seed;
- all-1, all-2, all, all-longer, all-longest: view-contrast and SimCLR on all 50,000 images, with
  the digit and on plain ones, for as long as 1, 2, 5, 20 and 50 epochs of SimCLR; those of 20
  beside row-contrast.

The rule of choice is the same for all but ours, which stand at their defaults: of the settings
whose class, the mean of both data, is within a point of the best, the one that reads the digit
best. View-contrast's default is the one of its settings that reads the class best. A
run's cost is its processor seconds, which other work on the machine hardly inflates. The file is
rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import torch

from study import Results, Run, accuracies, train, validation_sets
from widefield.config.recipes import make_recipe
from widefield.data import Dataset, open_dataset
from widefield.probes import extract, pixels
from widefield.train.build import DataInfo, build_run_encoder

TRAIN = 5000  # images, to train on and to fit a probe on
OURS = ("view-contrast", "row-contrast")
RATE_ALONE = ("byol", "moco", "diet")
"""Methods that have the best of the three rates that benchmarks/budgets.py tried."""
PLANTS = ("", "+digits", "+shapes")
SEEDS = (0, 1, 2)
EPOCHS = {
    "view-contrast": 18,
    "row-contrast": 25,
    "s-diet": 25,
    "simclr": 12,
    "barlow-twins": 12,
    "vicreg": 12,
    "byol": 17,
    "moco": 17,
    "diet": 25,
}
"""Epochs that take about the same time; Barlow Twins has a sixth more."""
CHOICE_EPOCHS = EPOCHS | {"view-contrast": 17, "simclr": 13}
"""Epochs of the choices, which were made before an epoch of each method was timed."""
ROUNDS, TIMED = 3, (1, 4)
"""Turns that each method takes in the part `time`, and the two lengths of its runs, in epochs."""
LENGTHS = {
    "epochs-1": {"view-contrast": 2, "simclr": 1},
    "epochs-2": {"view-contrast": 3, "simclr": 2},
    "epochs-5": {"view-contrast": 8, "simclr": 5},
    "epochs-50": {"row-contrast": 93, "simclr": 50},
    "longer": {"view-contrast": 144, "row-contrast": 200, "simclr": 107},
    "all-1": {"view-contrast": 2, "simclr": 1},
    "all-2": {"view-contrast": 3, "simclr": 2},
    "all": {"view-contrast": 7, "simclr": 5},
    "all-longer": {"view-contrast": 30, "row-contrast": 38, "simclr": 20},
    "all-longest": {"view-contrast": 75, "simclr": 50},
}
"""Other lengths: part -> method -> epochs."""
PARTS = ("time", "choices", "table", "twice", *LENGTHS)

NARROW = {"projector_width": 512}
LIGHTER = {"cross_entropy_weight": 10.0}
FASTER = {"lr": 1e-2}
HIGHER = {"lr": 2e-2}

CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "view-contrast": {
        "default": {},
        "cross-entropy 1": {"cross_entropy_weight": 1.0},
        "cross-entropy 3": {"cross_entropy_weight": 3.0},
        "cross-entropy 10": LIGHTER,
        "cross-entropy 100": {"cross_entropy_weight": 100.0},
        "cross-entropy 10, lr / 2": LIGHTER | {"lr": 1e-2},
        "cross-entropy 10, lr x 2": LIGHTER | {"lr": 4e-2},
        "cross-entropy 10, scale / 2": LIGHTER | {"logit_scale": 5.0},
        "cross-entropy 10, scale x 2": LIGHTER | {"logit_scale": 20.0},
        "scale x 2": {"logit_scale": 20.0},
    },
    "row-contrast": {
        "default": {},
        "lr x 2 / 5": {"lr": 8e-3},
        "scale / 2": {"logit_scale": 5.0},
        "scale x 2": {"logit_scale": 20.0},
        "head lr x 4": {"head_lr_scale": 4.0},
        "rows start at random": {"head_init": "random"},
        "projector width x 4": {"projector_width": 2048},
        "three layers in projector": {"projector_layers": 3},
        "no batch norm in projector": {"projector_batch_norm": False},
    },
    "s-diet": {
        "default": {},
        "width 512": NARROW,
        "width 512, lr x 3 / 10": NARROW | {"lr": 6e-3},
        "width 512, scale 3": NARROW | {"logit_scale": 3.0},
        "width 512, scale 10": NARROW | {"logit_scale": 10.0},
        "width 512, smoothing 0.2, scale 10": NARROW
        | {"label_smoothing": 0.2, "logit_scale": 10.0},
        "width 512, smoothing 0, scale 10": NARROW | {"label_smoothing": 0.0, "logit_scale": 10.0},
        "width 512, rows start at random": NARROW | {"head_init": "random"},
        "lr x 2": {"lr": 4e-2},
        "head lr x 4": {"head_lr_scale": 4.0},
    },
    "simclr": {
        "default": {},
        "lr / 2": {"lr": 3e-3},
        "lr x 5 / 3": {"lr": 1e-2},
        "lr x 10 / 3": {"lr": 2e-2},
        "temperature 0.05": {"temperature": 0.05},
        "temperature 0.2": {"temperature": 0.2},
        "lr x 5 / 3, temperature 0.2": FASTER | {"temperature": 0.2},
        "lr x 5 / 3, projector width x 4": FASTER | {"projector_width": 2048},
        "lr x 5 / 3, three layers in projector": FASTER | {"projector_layers": 3},
        "lr x 5 / 3, weight decay / 5": FASTER | {"weight_decay": 0.01},
    },
    "barlow-twins": {
        "default": {},
        "lr x 3 / 10": {"lr": 6e-3},
        "lr x 2": {"lr": 4e-2},
        "lr / 2": {"lr": 1e-2},
        "off-diagonal weight x 4": {"off_diagonal_weight": 0.02},
        "off-diagonal weight / 4": {"off_diagonal_weight": 0.00125},
        "projector width x 4": {"projector_width": 2048},
        "projector dim x 4": {"projector_dim": 2048},
        "projector dim / 4": {"projector_dim": 128},
        "two layers in projector": {"projector_layers": 2},
    },
    "vicreg": {
        "default": {},
        "lr x 3 / 10": {"lr": 2e-3},
        "lr x 10 / 3": {"lr": 2e-2},
        "lr x 20 / 3": {"lr": 4e-2},
        "lr x 10 / 3, variance and invariance / 2.5": HIGHER
        | {"variance_weight": 10.0, "invariance_weight": 10.0},
        "lr x 10 / 3, covariance x 4": HIGHER | {"cov_weight": 4.0},
        "lr x 10 / 3, covariance / 4": HIGHER | {"cov_weight": 0.25},
        "lr x 10 / 3, projector width x 4": HIGHER | {"projector_width": 2048},
        "lr x 10 / 3, projector dim / 4": HIGHER | {"projector_dim": 128},
        "lr x 10 / 3, two layers in projector": HIGHER | {"projector_layers": 2},
    },
    "byol": {"default": {}},
    "moco": {"default": {}},
    "diet": {"lr x 3": {"lr": 6e-3}},
}
"""Settings tried, method -> name -> what differs from the default."""


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, train_file: Path, test_file: Path, results: Path) -> None:
        self.train_file, self.test_file = train_file, test_file
        self.results = Results(results, _summary)

    def run(self, part: str, method: str, name: str, plant: str, seed: int, *, epochs: int) -> None:
        """Train once and score once, unless that is done."""
        key = f"{part} | {method} | {name} | cifar10{plant} | seed {seed}"
        if key in self.results:
            return
        settings = CHOICES[method][name]
        data = f"{self.train_file}{plant}"
        max_examples = None if part.startswith("all") else TRAIN
        trained = train(
            data, method=method, max_examples=max_examples, seed=seed, epochs=epochs, **settings
        )
        score = partial(extract, trained.encoder)
        run = {
            "part": part,
            "method": method,
            "name": name,
            "data": f"cifar10{plant}",
            "seed": seed,
            "epochs": epochs,
            "settings": settings,
            "accuracy": accuracies(score, *self._sets(part, plant, seed)),
            "processor_seconds": trained.processor_seconds,
            "wall_seconds": trained.wall_seconds,
            "effective_rank": trained.effective_rank,
        }
        self.results.add(key, run)

    def time(self, method: str, name: str, turn: int) -> None:
        """Measure an epoch: what a run takes more than a shorter one."""
        key = f"time | {method} | {name} | turn {turn}"
        if key in self.results:
            return
        settings = CHOICES[method][name]
        data = f"{self.train_file}+digits"
        short, long = (
            train(data, method=method, max_examples=TRAIN, seed=turn, epochs=epochs, **settings)
            for epochs in TIMED
        )
        more = long.processor_seconds - short.processor_seconds
        run = {"part": "time", "method": method, "name": name, "turn": turn}
        seconds = more / (TIMED[1] - TIMED[0])
        self.results.add(key, run | {"processor_seconds_an_epoch": round(seconds, 3)})

    def floors(self, plant: str, seed: int) -> None:
        """Score raw pixels and an untrained encoder."""
        recipe, device = make_recipe(encoder="resnet-tiny", seed=seed), torch.device("cpu")
        for name in ("pixels", "untrained"):
            key = f"floor | {name} | cifar10{plant} | seed {seed}"
            if key in self.results:
                continue
            sets = self._sets("table", plant, seed)
            untrained = partial(extract, build_run_encoder(recipe, DataInfo.of(sets[0]), device))
            features = pixels if name == "pixels" else untrained
            floor = {"part": "floor", "method": name, "data": f"cifar10{plant}", "seed": seed}
            self.results.add(key, {**floor, "accuracy": accuracies(features, *sets)})

    def _sets(self, part: str, plant: str, seed: int) -> tuple[Dataset, Dataset]:
        """Images to fit a probe on, and images to score it on."""
        if part == "choices":
            return validation_sets(self.train_file, plant, TRAIN, seed)
        return (
            open_dataset(f"{self.train_file}{plant}", max_examples=TRAIN, seed=seed),
            open_dataset(f"{self.test_file}{plant}", seed=seed, held_out=True),
        )


def chosen(runs: dict[str, Run], method: str) -> str:
    """Return the name of a method's settings in the table, by the rule above."""
    if method in OURS + RATE_ALONE:
        return next(iter(CHOICES[method]))
    names, scores = finalists(runs, method), tried(runs, method)
    if len(names) == 1:
        return names[0]
    both = {
        name: (scores["+digits"][name]["class"] + scores[""][name]["class"]) / 2 for name in names
    }
    near = [name for name, mean in both.items() if mean >= max(both.values()) - 0.01]
    return max(near, key=lambda name: scores["+digits"][name]["digits"])


def finalists(runs: dict[str, Run], method: str) -> list[str]:
    """Return the settings that are tried on plain images too."""
    scores = {name: accuracy["class"] for name, accuracy in tried(runs, method)["+digits"].items()}
    return [name for name, score in scores.items() if score >= max(scores.values()) - 0.02]


def tried(runs: dict[str, Run], method: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return the validation scores of a method: plant -> name of the settings -> task -> share."""
    scores: dict[str, dict[str, dict[str, float]]] = {"": {}, "+digits": {}}
    for run in runs.values():
        if (run["part"], run["method"]) == ("choices", method):
            scores[run["data"].removeprefix("cifar10")][run["name"]] = run["accuracy"]
    return scores


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return the settings of ours, and those that were chosen where all were tried."""
    return {
        "command": "python benchmarks/equal_time.py cifar10_train.npz cifar10_test.npz",
        "chosen": {m: chosen(runs, m) for m in EPOCHS if m in OURS or _all_tried(runs, m)},
    }


def _all_tried(runs: dict[str, Run], method: str) -> bool:
    """Return whether every setting was tried, and every finalist on plain images too."""
    if method in RATE_ALONE:
        return True
    scores = tried(runs, method)
    if scores["+digits"].keys() != CHOICES[method].keys():
        return False
    names = finalists(runs, method)
    return len(names) == 1 or set(names) <= scores[""].keys()


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--method", choices=tuple(EPOCHS), action="append")
    parser.add_argument("--plant", choices=PLANTS, action="append")
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append")
    args = parser.parse_args()
    parts, methods, plants = args.part or PARTS, args.method or list(EPOCHS), args.plant or PLANTS
    study = Study(args.train, args.test, args.json)
    compared = [method for method in methods if method not in RATE_ALONE]
    for method in compared if "choices" in parts else ():
        for name in CHOICES[method]:
            study.run("choices", method, name, "+digits", 0, epochs=CHOICE_EPOCHS[method])
        names = finalists(study.results.runs, method)
        for name in names if len(names) > 1 else ():
            study.run("choices", method, name, "", 0, epochs=CHOICE_EPOCHS[method])
    settings = {method: chosen(study.results.runs, method) for method in methods}
    for turn, (method, name) in itertools.product(range(ROUNDS), settings.items()):
        if "time" in parts:
            study.time(method, name, turn)
    for seed, plant in itertools.product(args.seed or SEEDS, plants):
        if "table" in parts:
            study.floors(plant, seed)
        for method, name in settings.items():
            if "table" in parts and method in compared:
                study.run("table", method, name, plant, seed, epochs=EPOCHS[method])
            if "twice" in parts and (plant or method in (*OURS, "simclr")):
                study.run("twice", method, name, plant, seed, epochs=2 * EPOCHS[method])
    for (part, lengths), seed in itertools.product(LENGTHS.items(), args.seed or SEEDS):
        if part not in parts or (part == "longer" and seed != SEEDS[0]):
            continue
        for method, epochs in lengths.items():
            for plant in ("+digits",) if part == "longer" else ("+digits", ""):
                if method in settings and plant in plants:
                    study.run(part, method, settings[method], plant, seed, epochs=epochs)


if __name__ == "__main__":
    main()
