"""Which learning rate does an objective take?

    python benchmarks/method_rates.py NAME cifar10_train.npz

Multiples of the default rate of any objective, under its default recipe: resnet-tiny, 5,000 images,
8 epochs, two seeds. Runs are scored by the linear-probe accuracy on 3,000 further images of the
same file. Results go to `benchmarks/results/method_rates/NAME.json`, which is rewritten after every
run; runs that it already holds are not repeated. A best multiple at either end asks for more.
"""

import argparse
import itertools
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from study import Results, Run, accuracies, train, validation_sets
from widefield.methods import METHODS
from widefield.probes import extract

FACTORS = (0.1, 0.3, 1.0, 3.0)
RESULTS = Path(__file__).with_name("results") / "method_rates"


def main() -> None:
    """Run what the results file lacks, and print the mean accuracy at each rate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("train", type=Path, help="a .npz pack or a folder of images with classes")
    parser.add_argument("--factor", type=float, action="append", help=f"default: {FACTORS}")
    parser.add_argument("--seed", type=int, action="append", help="default: 0 and 1")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--max-examples", type=int, default=5000)
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/method_rates")
    args = parser.parse_args()
    results = Results(args.json or RESULTS / f"{args.method}.json", _summary)
    for seed, factor in itertools.product(args.seed or (0, 1), args.factor or FACTORS):
        settings = {
            "method": args.method,
            "lr": factor * METHODS[args.method]().lr,
            "epochs": args.epochs,
            "max_examples": args.max_examples,
            "seed": seed,
        }
        key = " | ".join(f"{name} {value}" for name, value in settings.items())
        if key not in results:
            results.add(key, {**settings, **_run(args.train, settings)})
    for lr, accuracy in _summary(results.runs)["accuracy"].items():
        print(f"lr {lr}  {100 * accuracy:.1f} %")


def _run(file: Path, settings: dict[str, Any]) -> Run:
    """Train and score on images of the file that are not trained on."""
    trained = train(str(file), **settings)
    sets = validation_sets(file, "", settings["max_examples"], settings["seed"])
    accuracy = accuracies(partial(extract, trained.encoder), *sets)
    return {
        "accuracy": next(iter(accuracy.values())),
        "processor_seconds": trained.processor_seconds,
    }


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return the mean accuracy at each rate."""
    by_rate: dict[float, list[float]] = {}
    for run in runs.values():
        by_rate.setdefault(run["lr"], []).append(run["accuracy"])
    return {
        "command": "python benchmarks/method_rates.py NAME cifar10_train.npz",
        "accuracy": {f"{lr:g}": statistics.mean(by_rate[lr]) for lr in sorted(by_rate)},
    }


if __name__ == "__main__":
    main()
