"""Which learning rate does each family of encoders take?

    python benchmarks/learning_rates.py cifar10_train.npz \
        --json benchmarks/results/learning_rates.json

2,000 CIFAR-10 images of 32 pixels, 6 epochs in batches of 64 (186 steps), one seed; a linear probe
on 3,000 further images of the same file. Encoders have their native stems, but for resnet-tiny,
so that a run takes a minute of one core. The file is rewritten after every run, and runs that it
already holds are not repeated.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from study import Results, Run, accuracies, train, validation_sets
from widefield.encoders import untrained_like
from widefield.methods import METHODS
from widefield.probes import extract

TRAIN = 2000  # images
RUN: dict[str, Any] = {"limit": TRAIN, "epochs": 6, "batch_size": 64}
ENCODERS: dict[str, dict[str, Any]] = {
    "resnet-tiny": {},
    "mobilenetv3_small_050": {"stem": "native"},
    "convnext_atto": {"stem": "native"},
    "vit_tiny_patch16_224": {"stem": "native"},
}
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Learning rates tried, as multiples of the method's own."""
TRIED = ("s-diet", "simclr")


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--method", choices=TRIED, action="append")
    parser.add_argument("--seed", type=int, action="append")
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for seed in args.seed or [0]:
        sets = validation_sets(args.train, "", TRAIN, seed)
        for method in args.method or TRIED:
            for name, stem in ENCODERS.items():
                for factor in FACTORS:
                    key = f"{method} | {name} | {factor:g} | seed {seed}"
                    if key not in results:
                        results.add(key, _run(args.train, sets, method, name, stem, factor, seed))


def _run(
    file: Path, sets: Any, method: str, name: str, stem: dict[str, Any], factor: float, seed: int
) -> Run:
    """Train once and score, beside the same encoder untrained."""
    lr = factor * METHODS[method]().lr
    trained = train(str(file), method=method, encoder=name, seed=seed, lr=lr, **RUN, **stem)
    untrained = untrained_like(trained.encoder, seed=seed)
    return {
        "method": method,
        "encoder": name,
        "factor": factor,
        "lr": lr,
        "seed": seed,
        "accuracy": accuracies(partial(extract, trained.encoder), *sets),
        "untrained": accuracies(partial(extract, untrained), *sets),
        "processor_seconds": trained.processor_seconds,
    }


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return the best factor of each encoder and method."""
    best: dict[str, Run] = {}
    for run in runs.values():
        key = f"{run['method']} | {run['encoder']}"
        if key not in best or run["accuracy"]["class"] > best[key]["accuracy"]["class"]:
            best[key] = run
    return {
        "command": "python benchmarks/learning_rates.py cifar10_train.npz",
        "best_factor": {key: run["factor"] for key, run in best.items()},
    }


if __name__ == "__main__":
    main()
