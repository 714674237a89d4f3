"""How sharp a contrast, and how much of S-DIET's cross-entropy beside it, does view-contrast want?

    python benchmarks/view_contrast.py cifar10_train.npz \
        --json benchmarks/results/view_contrast.json

On few images and on many, in short runs and in longer ones: CIFAR-10 images with a planted digit,
resnet-tiny; class and digit, read by a linear probe that is fitted on 5,000 of the images and
scored on 3,000 further ones of the training file. All else stays at its default. The file is
rewritten after every run, and runs that it already holds are not repeated, so that two processes
may share the work.
"""

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from study import Results, Run, accuracies, train, validation_sets
from widefield.data import Dataset
from widefield.probes import extract

METHOD, PLANT = "view-contrast", "+digits"
EPOCHS = {5000: (7, 17, 34, 60), 10_000: (7,), 20_000: (7,), 45_000: (3, 7, 30)}
"""Images -> epochs of runs."""
TRIED = {
    **{
        f"weight {weight}": {"cross_entropy_weight": float(weight), "logit_scale": 10.0}
        for weight in (1, 3, 10, 30)
    },
    "weight 30, scale 20": {"cross_entropy_weight": 30.0, "logit_scale": 20.0},
    "weight 3, scale 5": {"cross_entropy_weight": 3.0, "logit_scale": 5.0},
}
"""Name -> settings: the weight of the cross-entropy, and the factor of the contrast's logits."""
SEEDS = (0, 1, 2)
FIT = 5000  # images for the probe


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--images", type=int, action="append", choices=EPOCHS)
    parser.add_argument("--epochs", type=int, action="append")
    parser.add_argument("--name", choices=TRIED, action="append")
    parser.add_argument("--seed", type=int, action="append")
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for seed, images in itertools.product(args.seed or SEEDS, args.images or EPOCHS):
        sets = _sets(args.train, images, seed)
        for epochs, name in itertools.product(EPOCHS[images], args.name or TRIED):
            key = f"{images} | {epochs} epochs | {name} | seed {seed}"
            if key not in results and epochs in (args.epochs or EPOCHS[images]):
                results.add(key, _run(args.train, sets, images, epochs, name, seed))


def _sets(file: Path, images: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return images to fit a probe on, and images that no run trains on."""
    trained_on, others = validation_sets(file, PLANT, images, seed)
    return trained_on.subset(np.arange(FIT)), others


def _run(
    file: Path, sets: tuple[Dataset, Dataset], images: int, epochs: int, name: str, seed: int
) -> Run:
    """Train once and score once."""
    trained = train(
        f"{file}{PLANT}",
        method=METHOD,
        max_examples=images,
        epochs=epochs,
        seed=seed,
        **TRIED[name],
    )
    return {
        "images": images,
        "epochs": epochs,
        "name": name,
        "seed": seed,
        "accuracy": accuracies(partial(extract, trained.encoder), *sets),
        "processor_seconds": trained.processor_seconds,
        "effective_rank": trained.effective_rank,
    }


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/view_contrast.py cifar10_train.npz"}


if __name__ == "__main__":
    main()
