"""What the objectives learn in equal time: the image's class, and a feature planted on it.

    python benchmarks/objectives.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/objectives.json

5,000 CIFAR-10 images, plain and with planted shapes, digits or letters; resnet-tiny; the default
recipe of every method, under learned views too for two of them; two seeds. Each run gets the same
time: a method's epochs follow from the cost of its step, measured once beside the bare encoder's,
turn by turn, so that other work on the machine favours none. BYOL is run with
both directions too, as published. Learning rates are compared first, at half the budget, on
images of the training file that are not trained on; the recipes have the best ones, but for
SimCLR, whose default was chosen for longer runs and is replaced here. Supervised training on both
tasks is the ceiling; pixels and the untrained encoder are the floors. All are scored on the test
file by the linear probe.

The JSON file, and the same as tables in an `.md` file beside it, is rewritten after every run;
runs that it already holds are not repeated.
"""

import argparse
import itertools
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from study import Results, Run, accuracies, train, validation_sets, write_text
from widefield.bench.step import VARIANTS, bench
from widefield.data import Dataset, open_dataset
from widefield.probes import extract, pixels
from widefield.recipe import Recipe
from widefield.workflows.pretrain import build_run_encoder

TRAIN = 5000  # images
BARE_EPOCHS = 16  # about a minute of one core of a server
PLANTS = ("", "+shapes", "+digits", "+letters")
SEEDS = (0, 1)
METHODS = {
    "expert": (
        "s-diet",
        "diet",
        "simclr",
        "barlow-twins",
        "vicreg",
        "byol",
        "byol-both-directions",
        "simsiam",
        "spectral",
        "alpha-cl",
        "supervised",
    ),
    "viewmaker": ("s-diet", "simclr"),
}
"""What is trained under which views, in the order of the work and of the tables."""
PUBLISHED = {
    "": {"class": 84.5 - 86.2},
    "+shapes": {"class": 79.8 - 76.0, "shapes": 100.0 - 100.0},
    "+digits": {"class": 69.3 - 58.8, "digits": 94.3 - 86.7},
    "+letters": {"class": 71.9 - 74.8, "letters": 96.9 - 94.1},
}
"""Feature Dropout (Tamkin et al. 2022), table 1: viewmaker minus expert views, SimCLR, points."""
RATES = (2e-3, 6e-3, 2e-2)
FASTER = {"simclr": {"lr": 2e-2}}
"""Where a default was chosen for longer runs than these, and `RATES` say otherwise."""


class Study:
    """Runs what is not in the results file yet, and keeps the files up to date."""

    def __init__(self, train_file: Path, test_file: Path, results: Path) -> None:
        self.train_file, self.test_file = train_file, test_file
        self.results = Results(results, self._summary)

    def floors(self, plant: str, seed: int) -> None:
        """Score raw pixels and an untrained encoder."""
        recipe = Recipe(encoder="resnet-tiny", seed=seed)
        for name in ("pixels", "random encoder"):
            key = _key(name, "none", plant, seed)
            if key in self.results:
                continue
            sets = self._sets(plant, seed)
            untrained = partial(extract, build_run_encoder(recipe, sets[0]))
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
            limit=TRAIN,
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
        trained = train(data, **_method(method), epochs=epochs, limit=TRAIN, lr=lr)
        sets = validation_sets(self.train_file, "+digits", TRAIN, seed=0)
        accuracy = accuracies(partial(extract, trained.encoder), *sets)
        run = {"method": method, "lr": lr, "epochs": epochs, "accuracy": accuracy}
        self.results.add(key, {**run, "processor_seconds": trained.processor_seconds})

    def _epochs(self, method: str, views: str, bare: int = BARE_EPOCHS) -> int:
        """Epochs that take as long as `bare` of the bare encoder, all timed turn by turn."""
        key = f"cost | {views}"
        if key not in self.results:
            methods = list(METHODS[views])
            found = bench(encoder="resnet-tiny", rows=TRAIN, methods=methods, views=views)
            self.results.add(key, found["ratios"])
        cost: float = self.results.runs[key][f"{method}/bare"]
        return max(1, round(bare / cost))

    def _sets(self, plant: str, seed: int) -> tuple[Dataset, Dataset]:
        """Training and test images with their labels."""
        return (
            open_dataset(f"{self.train_file}{plant}", limit=TRAIN, seed=seed),
            open_dataset(f"{self.test_file}{plant}", seed=seed, held_out=True),
        )

    def _keep(
        self, key: str, method: str, views: str, plant: str, seed: int, measured: dict[str, Any]
    ) -> None:
        named = {"method": method, "views": views, "data": f"cifar10{plant}", "seed": seed}
        self.results.add(key, {**named, **measured})
        write_text(self.results.path.with_suffix(".md"), self._page())

    def _summary(self, runs: dict[str, Run]) -> dict[str, Any]:
        return {
            "command": "python benchmarks/objectives.py cifar10_train.npz cifar10_test.npz",
            "budget": {"bare_epochs": BARE_EPOCHS, "images": TRAIN},
        }

    def _page(self) -> str:
        """A table for each data set."""
        about = (
            f"Linear probe on the test file, %, after as much time as {BARE_EPOCHS} epochs of the "
            f"bare encoder on {TRAIN:,} images, mean of the seeds ± half the distance between "
            "them. Written by `benchmarks/objectives.py`."
        )
        runs = list(self.results.runs.values())
        tables = [*(_table(plant, runs) for plant in PLANTS), _learned_views(runs), _rates(runs)]
        parts = ["# What the objectives learn in equal time", about, *filter(None, tables)]
        return "\n\n".join(parts) + "\n"


def _method(name: str) -> dict[str, Any]:
    """Settings of a method or a variant of one."""
    return VARIANTS.get(name, {"method": name})


def _key(method: str, views: str, plant: str, seed: int) -> str:
    return f"{method} | {views} | cifar10{plant} | seed {seed}"


def _table(plant: str, runs: list[Run]) -> str:
    """Markdown: a row for each method under each views, a column for each task."""
    rows: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.get("data") == f"cifar10{plant}":
            rows.setdefault((run["method"], run["views"]), []).append(run)
    if not rows:
        return ""
    tasks = list(next(iter(rows.values()))[0]["accuracy"])
    head = ["method", "views", "epochs", *tasks]
    lines = [
        [
            method,
            views,
            str(same[0].get("epochs", 0)),
            *(_mean([100 * run["accuracy"][task] for run in same]) for task in tasks),
        ]
        for (method, views), same in rows.items()
    ]
    return "\n".join([f"## CIFAR-10 {plant}".rstrip(), "", *_grid(head, lines)])


def _learned_views(runs: list[Run]) -> str:
    """Markdown: what learned views change, seed by seed, beside what was published."""
    lines = []
    for plant, published in PUBLISHED.items():
        for task, theirs in published.items():
            cells = [_gains(runs, method, plant, task) for method in METHODS["viewmaker"]]
            if all(cells):
                lines.append([f"CIFAR-10 {plant}".rstrip(), task, *cells, f"{theirs:+.1f}"])
    if not lines:
        return ""
    head = ["data", "task", *METHODS["viewmaker"], "published, simclr"]
    return "\n".join(["## Learned views minus expert views, points", "", *_grid(head, lines)])


def _gains(runs: list[Run], method: str, plant: str, task: str) -> str:
    """Mean over seeds of a score under learned views minus that under expert views."""
    scores = {
        views: {
            run["seed"]: 100 * run["accuracy"][task]
            for run in runs
            if (run.get("data"), run.get("method"), run.get("views"))
            == (f"cifar10{plant}", method, views)
        }
        for views in METHODS
    }
    seeds = scores["expert"].keys() & scores["viewmaker"].keys()
    gains = [scores["viewmaker"][seed] - scores["expert"][seed] for seed in sorted(seeds)]
    return _mean(gains, sign="+") if gains else ""


def _rates(runs: list[Run]) -> str:
    """Markdown: the learning rates that were compared."""
    rows = [
        [run["method"], f"{run['lr']:g}", *(f"{100 * x:.1f}" for x in run["accuracy"].values())]
        for run in runs
        if "lr" in run
    ]
    head = ["method", "learning rate", "class", "digits"]
    about = (
        "Half the budget, CIFAR-10 +digits, 3,000 images of the training file that are not "
        "trained on, one seed. Chosen is the rate with the best class, and of those within a "
        "point of it, which is a standard error, the one with the best digits."
    )
    return "\n".join(["## Learning rates", "", about, "", *_grid(head, rows)])


def _grid(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _mean(values: list[float], sign: str = "") -> str:
    spread = f" ± {(max(values) - min(values)) / 2:.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{spread}"


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
    asked = parser.parse_args()
    parts = asked.part or ["rates", "runs"]
    study = Study(asked.train, asked.test, asked.json)
    for method, lr in itertools.product(METHODS["expert"] if "rates" in parts else (), RATES):
        study.rate(method, lr)
    if "runs" not in parts:
        return
    seeds = asked.seed or SEEDS
    for seed, plant in itertools.product(seeds, PLANTS):
        study.floors(plant, seed)
    for seed, views, plant in itertools.product(seeds, METHODS, PLANTS):
        for method in METHODS[views]:
            study.run(method, views, plant, seed)


if __name__ == "__main__":
    main()
