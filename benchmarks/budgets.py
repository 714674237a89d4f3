"""What do short runs learn, on few images and on many?

    python benchmarks/budgets.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/budgets.json

Plain CIFAR-10 images, resnet-tiny, every method for nearly the same time: a step of two views
costs about twice one of one view, and one of view-contrast about three quarters of that. A linear
probe is fitted on 5,000 training images and scored on the test file, beside raw pixels and the
encoder untrained. A run's cost is its processor seconds. The file is rewritten after every run,
and runs that it already holds are not repeated.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch

from study import Results, Run, accuracies, train
from widefield.data import open_dataset
from widefield.probes import extract, pixels
from widefield.recipes import make_recipe
from widefield.train.build import DataFacts, build_run_encoder

FIT = 5000  # images for the probe
EPOCHS: dict[int, dict[str, tuple[int, ...]]] = {
    500: {"view-contrast": (10, 40), "s-diet": (14, 56), "simclr": (8, 32)},
    5000: {"view-contrast": (3, 6), "s-diet": (4, 8), "simclr": (2, 4)},
    10_000: {"view-contrast": (3, 6), "s-diet": (4, 8), "simclr": (2, 4)},
    50_000: {"view-contrast": (1, 2), "s-diet": (2,), "simclr": (1,)},
}
"""Images -> method -> epochs of its runs, shorter and longer."""
SETTINGS: dict[str, dict[str, Any]] = {"view-contrast": {}, "s-diet": {}, "simclr": {"lr": 2e-2}}
"""SimCLR's rate is the best of those that benchmarks/equal_time.py tried on plain images."""


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--images", type=int, action="append", choices=tuple(EPOCHS))
    parser.add_argument("--seed", type=int, action="append")
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for seed in args.seed or [0]:
        sets = (
            open_dataset(str(args.train), limit=FIT, seed=seed),
            open_dataset(str(args.test), seed=seed, held_out=True),
        )
        _floors(results, sets, seed)
        for images in args.images or EPOCHS:
            for method, runs in EPOCHS[images].items():
                for epochs in runs:
                    key = f"{images} | {method} | {epochs} epochs | seed {seed}"
                    if key not in results:
                        results.add(key, _run(args.train, sets, images, method, epochs, seed))


def _run(file: Path, sets: Any, images: int, method: str, epochs: int, seed: int) -> Run:
    """Train once and score once."""
    settings = SETTINGS[method]
    trained = train(str(file), method=method, limit=images, epochs=epochs, seed=seed, **settings)
    return {
        "images": images,
        "method": method,
        "epochs": epochs,
        "seed": seed,
        "settings": settings,
        "accuracy": accuracies(partial(extract, trained.encoder), *sets),
        "processor_seconds": trained.processor_seconds,
    }


def _floors(results: Results, sets: Any, seed: int) -> None:
    """Score raw pixels and the encoder untrained."""
    recipe = make_recipe(encoder="resnet-tiny", seed=seed)
    facts = DataFacts.of(sets[0])
    untrained = build_run_encoder(recipe, facts, torch.device("cpu"))
    for name, features in (("pixels", pixels), ("untrained", partial(extract, untrained))):
        key = f"floor | {name} | seed {seed}"
        if key not in results:
            score = accuracies(features, *sets)
            results.add(key, {"method": name, "images": None, "seed": seed, "accuracy": score})


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/budgets.py cifar10_train.npz cifar10_test.npz"}


if __name__ == "__main__":
    main()
