"""Which settings make row-contrast good at short budgets? Does it beat SimCLR in equal time?

    python benchmarks/recipe_study.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/recipe_study.json

Five parts, all on 5,000 CIFAR-10 images, plain and with a planted digit, with resnet-tiny:

- knobs: one setting changed at a time, scored on 3,000 further images of the training file, which
  are neither trained on nor part of the test, at half the final epochs;
- final: the default recipes of row-contrast and SimCLR at equal processor time, scored on the test
  file, over three seeds. Both methods' settings were chosen on the knobs' images;
- rate: SimCLR as in final, at a higher learning rate;
- long, longer: the recipes of final for four and for ten times as long, with the digit, one seed.

A run's cost is its processor seconds, which other work on the machine does not inflate. The file
is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import math
import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from study import Results, Run, accuracies, train, validation_sets
from widefield.data import open_dataset
from widefield.probes import extract
from widefield.recipes import make_recipe

TRAIN = 5000  # images
KNOB_EPOCHS = {"row-contrast": 25, "simclr": 13}
PLANTS = ("+digits", "")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Full runs: epochs by method, for SimCLR a little over half, as its two views cost twice."""

    epochs: dict[str, int]
    seeds: tuple[int, ...]
    plants: tuple[str, ...] = PLANTS
    knob: str = "default"


PARTS = {
    "final": Part(epochs={"row-contrast": 50, "simclr": 27}, seeds=(0, 1, 2)),
    # The knobs' shorter runs leave SimCLR's rate in doubt.
    "rate": Part(epochs={"simclr": 27}, seeds=(0, 1, 2), knob="lr x 10 / 3"),
    "long": Part(epochs={"row-contrast": 200, "simclr": 107}, seeds=(0,), plants=("+digits",)),
    "longer": Part(epochs={"row-contrast": 500, "simclr": 267}, seeds=(0,), plants=("+digits",)),
}

ROW_CONTRAST, SIMCLR = (
    make_recipe(method=name).method.flat() for name in ("row-contrast", "simclr")
)
ROW_CONTRAST_KNOBS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"recipe": "s-diet-paper", "objective": "s-diet"},
    "published loss": {"objective": "s-diet"},
    "published loss, smoothing 0": {
        "objective": "s-diet",
        "logit_scale": 10.0,
        "label_smoothing": 0.0,
    },
    "published loss, smoothing 0.2": {
        "objective": "s-diet",
        "logit_scale": 10.0,
        "label_smoothing": 0.2,
    },
    "rows start at random": {"row_start": "random"},
    "head lr x 4": {"head_lr_scale": 4 * ROW_CONTRAST["head_lr_scale"]},
    "scale / 2": {"logit_scale": ROW_CONTRAST["logit_scale"] / 2},
    "scale x 2": {"logit_scale": 2 * ROW_CONTRAST["logit_scale"]},
    "lr x 2 / 5": {"lr": ROW_CONTRAST["lr"] * 2 / 5},
    "three layers in projector": {"projector_layers": 3},
    "no batch norm in projector": {"projector_batch_norm": False},
    "projector width x 4": {"projector_width": 4 * ROW_CONTRAST["projector_width"]},
}
SIMCLR_KNOBS: dict[str, dict[str, Any]] = {
    "default": {},
    "lr / 2": {"lr": SIMCLR["lr"] / 2},
    "lr x 5 / 3": {"lr": SIMCLR["lr"] * 5 / 3},
    "lr x 10 / 3": {"lr": SIMCLR["lr"] * 10 / 3},
    "temperature 0.05": {"temperature": 0.05},
    "temperature 0.2": {"temperature": 0.2},
}
KNOBS = {"row-contrast": ROW_CONTRAST_KNOBS, "simclr": SIMCLR_KNOBS}


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, train: Path, test: Path, results: Path) -> None:
        self.train, self.test = train, test
        self.results = Results(results, _summary)

    def run(
        self, part: str, name: str, method: str, plant: str, seed: int, **settings: Any
    ) -> None:
        """Train once and score once, unless that is done."""
        key = f"{part} | {method} | {name} | cifar10{plant} | seed {seed}"
        if key in self.results:
            return
        data = f"{self.train}{plant}"
        objective = settings.get("objective", method)
        changes = {name: value for name, value in settings.items() if name != "objective"}
        trained = train(data, method=objective, limit=TRAIN, seed=seed, **changes)
        run = {
            "part": part,
            "method": method,
            "name": name,
            "data": f"cifar10{plant}",
            "seed": seed,
            "settings": settings,
            "accuracy": self._score(trained.encoder, part, plant, seed),
            "processor_seconds": trained.processor_seconds,
            "wall_seconds": trained.wall_seconds,
            "effective_rank": trained.effective_rank,
        }
        self.results.add(key, run)

    def _score(
        self, encoder: torch.nn.Module, part: str, plant: str, seed: int
    ) -> dict[str, float]:
        if part == "knobs":
            sets = validation_sets(self.train, plant, TRAIN, seed)
        else:
            sets = (
                open_dataset(f"{self.train}{plant}", limit=TRAIN, seed=seed),
                open_dataset(f"{self.test}{plant}", seed=seed, held_out=True),
            )
        return accuracies(partial(extract, encoder), *sets)


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return means over seeds with 95 % t-intervals, and row-contrast minus SimCLR."""
    tasks = (("", "class"), ("+digits", "class"), ("+digits", "digits"))
    table = {
        part: {
            f"cifar10{plant} / {task}": _compared(runs, part, plant, task) for plant, task in tasks
        }
        for part in ("final", "rate")
    }
    return {
        "command": "python benchmarks/recipe_study.py cifar10_train.npz cifar10_test.npz",
        **{part: {name: row for name, row in rows.items() if row} for part, rows in table.items()},
    }


def _compared(runs: dict[str, Run], part: str, plant: str, task: str) -> dict[str, Any]:
    """SimCLR of a part beside the final row-contrast, and the differences seed by seed."""
    scores: dict[str, dict[int, float]] = {"row-contrast": {}, "simclr": {}}
    for run in runs.values():
        wanted = part if run["method"] == "simclr" else "final"
        if (run["part"], run["data"]) == (wanted, f"cifar10{plant}"):
            scores[run["method"]][run["seed"]] = 100 * run["accuracy"][task]
    ours, simclr = scores["row-contrast"], scores["simclr"]
    both = sorted(ours.keys() & simclr.keys())
    if len(both) < 2:
        return {}
    return {
        **{method: _mean([by_seed[s] for s in both]) for method, by_seed in scores.items()},
        "row-contrast minus simclr": _mean([ours[s] - simclr[s] for s in both]),
    }


def _mean(values: list[float]) -> dict[str, Any]:
    """Mean with the 95 % t-interval's half width."""
    t = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}[len(values)]
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return {
        "mean": round(statistics.mean(values), 2),
        "half_width": round(half, 2),
        "n": len(values),
    }


def main() -> None:
    """Run the parts that the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", choices=("knobs", *PARTS), action="append")
    parser.add_argument(
        "--method", choices=tuple(KNOB_EPOCHS), help="a process for each, side by side"
    )
    args = parser.parse_args()
    methods = [args.method] if args.method else list(KNOB_EPOCHS)
    study = Study(args.train, args.test, args.json)
    parts = args.part or [*PARTS, "knobs"]
    for name, part in PARTS.items():
        for plant, seed, method in itertools.product(part.plants, part.seeds, methods):
            if name in parts and method in part.epochs:
                settings = {"epochs": part.epochs[method], **KNOBS[method][part.knob]}
                study.run(name, part.knob, method, plant, seed, **settings)
    for method in methods if "knobs" in parts else ():
        for plant, knob in itertools.product(PLANTS, KNOBS[method]):
            settings = {"epochs": KNOB_EPOCHS[method], **KNOBS[method][knob]}
            study.run("knobs", knob, method, plant, 0, **settings)


if __name__ == "__main__":
    main()
