"""What do short runs learn, on few images and on many, with encoders of three families?

    python benchmarks/budgets.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/budgets.json

Plain CIFAR-10 images, every method for nearly the same time: a step of two views costs about twice
one of one view, and one with a second view without gradient two thirds of that. The default is
view-contrast for fewer than 40 epochs and row-contrast from there, which runs on 500 images, where
there are as many. resnet-tiny has the default stem and the others their native ones, so that a run
takes minutes of one core. Two parts:

- choices: every method but ours, which stand at their defaults, at three learning rates; 5,000
  images, resnet-tiny, scored on 3,000 further images of the training file; one seed. Each method
  keeps the rate that reads the class best;
- runs: a linear probe and a vote of 20 neighbors, fitted on 5,000 training images and scored on
  the test file, beside the floors: raw pixels, and the encoder untrained with either start of its
  residual blocks, of which the better one counts; three seeds, and ten of the shortest runs, which
  take seconds and differ most by seed.

Other encoders than resnet-tiny take their family's multiple of each rate. A run's cost is its
processor seconds. The file is rewritten after every run, and runs that it already holds are not
repeated, so that two processes may share the work.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from study import Results, Run, scores, train, validation_sets
from widefield.config.defaults import DEFAULT_METHOD, LONG_METHOD, LR_SCALES
from widefield.config.recipes import make_recipe
from widefield.data import Dataset, open_dataset
from widefield.encoders import family_of
from widefield.encoders.settings import EncoderSettings
from widefield.methods import METHODS
from widefield.probes import extract, pixels
from widefield.train.build import DataInfo, build_run_encoder

FIT = 5000  # images for the probe, and to train on for the choices
ENCODERS: dict[str, dict[str, Any]] = {
    "resnet-tiny": {},
    "resnet18": {"stem": "native"},
    "vit_tiny_patch16_224": {"stem": "native"},
}
ONE_VIEW = {500: (14, 56), 5000: (4, 8, 48), 50_000: (2,)}
SECOND_WITHOUT_GRADIENT = {500: (10, 40), 5000: (3, 6, 36), 50_000: (1, 2)}
TWO_VIEWS = {500: (8, 32), 5000: (2, 4, 24), 50_000: (1,)}
EPOCHS: dict[str, dict[int, tuple[int, ...]]] = {
    "s-diet": ONE_VIEW | {50_000: (2, 4)},
    "diet": ONE_VIEW,
    "view-contrast": SECOND_WITHOUT_GRADIENT | {50_000: (1, 2, 3)},
    "row-contrast": {500: (15, 55), 5000: (4, 8, 48)},
    "byol": SECOND_WITHOUT_GRADIENT,
    "moco": SECOND_WITHOUT_GRADIENT,
    "simclr": TWO_VIEWS | {50_000: (1, 2)},
    "barlow-twins": TWO_VIEWS,
}
"""Method -> images -> epochs of its runs, from the shortest on."""
ONE_ENCODER = dict.fromkeys([(500, 0), (5000, 0), (50_000, 1), (50_000, 2)], "resnet-tiny") | {
    (5000, 2): "vit_tiny_patch16_224"
}
"""Images and place of the epochs -> the encoder that runs them, where only one does."""
FACTORS = (1 / 3, 1.0, 3.0)
OURS = (DEFAULT_METHOD, LONG_METHOD)
SEEDS = (0, 1, 2)
SHORTEST, SEEDS_OF_SHORTEST = (500, 0), range(10)
"""Images and place of the epochs whose runs have more seeds."""

Sets = tuple[Dataset, Dataset]


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--encoder", choices=ENCODERS, action="append")
    parser.add_argument("--method", choices=EPOCHS, action="append")
    parser.add_argument("--images", type=int, action="append", choices=ONE_VIEW)
    parser.add_argument("--seed", type=int, action="append")
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for method in args.method or EPOCHS:
        if method not in OURS:
            _choices(results, args.train, method)
    for seed, encoder in itertools.product(
        args.seed or SEEDS_OF_SHORTEST, args.encoder or ENCODERS
    ):
        sets = (
            open_dataset(str(args.train), max_examples=FIT, seed=seed),
            open_dataset(str(args.test), seed=seed, held_out=True),
        )
        if seed in SEEDS:
            _floors(results, sets, encoder, seed)
        for images, method in itertools.product(args.images or ONE_VIEW, args.method or EPOCHS):
            for epochs in _epochs(encoder, method, images, seed):
                key = f"{encoder} | {images} | {method} | {epochs} epochs | seed {seed}"
                if key not in results:
                    factor = _chosen(results.runs).get(method, 1.0)
                    run = _run(args.train, sets, encoder, images, method, epochs, seed, factor)
                    results.add(key, run)


def _epochs(encoder: str, method: str, images: int, seed: int) -> Iterator[int]:
    for place, epochs in enumerate(EPOCHS[method].get(images, ())):
        here = (images, place)
        seeds = SEEDS_OF_SHORTEST if here == SHORTEST else SEEDS
        if seed in seeds and ONE_ENCODER.get(here, encoder) == encoder:
            yield epochs


def _choices(results: Results, file: Path, method: str) -> None:
    """Try the rates of a method."""
    for factor in FACTORS:
        key = f"choices | {method} | lr x {factor:.2g}"
        if key not in results:
            sets = validation_sets(file, "", FIT, seed=0)
            epochs = EPOCHS[method][FIT][1]
            run = _run(file, sets, "resnet-tiny", FIT, method, epochs, 0, factor)
            results.add(key, run | {"choice": factor})


def _chosen(runs: dict[str, Run]) -> dict[str, float]:
    """Return the factor of each method's own rate that reads the class best."""
    tried = [run for run in runs.values() if "choice" in run]
    best: dict[str, Run] = {}
    for run in tried:
        held = best.setdefault(run["method"], run)
        if run["linear"] > held["linear"]:
            best[run["method"]] = run
    return {method: run["choice"] for method, run in best.items()}


def _run(
    file: Path,
    sets: Sets,
    encoder: str,
    images: int,
    method: str,
    epochs: int,
    seed: int,
    factor: float,
) -> Run:
    """Train once and score once."""
    settings = dict(ENCODERS[encoder])
    if method not in OURS:
        multiple = LR_SCALES[family_of(EncoderSettings(name=encoder))]
        settings["lr"] = factor * multiple * METHODS[method]().lr
    trained = train(
        str(file),
        method=method,
        encoder=encoder,
        max_examples=images,
        epochs=epochs,
        seed=seed,
        **settings,
    )
    return {
        **_entry(encoder, images, method, epochs, seed),
        "settings": settings,
        **_read(partial(extract, trained.encoder), sets),
        "processor_seconds": trained.processor_seconds,
    }


def _entry(encoder: str, images: int | None, method: str, epochs: int | None, seed: int) -> Run:
    return {
        "encoder": encoder,
        "images": images,
        "method": method,
        "epochs": epochs,
        "seed": seed,
    }


def _read(features: Callable[[np.ndarray], Tensor], sets: Sets) -> Run:
    score = scores(features, *sets)["class"]
    return {"linear": round(score.accuracy, 4), "knn": round(score.knn, 4)}


def _floors(results: Results, sets: Sets, encoder: str, seed: int) -> None:
    """Score raw pixels and the encoder untrained, by both starts where they differ."""
    recipe = partial(make_recipe, encoder=encoder, seed=seed, **ENCODERS[encoder])
    facts, cpu = DataInfo.of(sets[0]), torch.device("cpu")
    floors: dict[str, Callable[[], Callable[[np.ndarray], Tensor]]] = {
        "pixels": lambda: pixels,
        "untrained": lambda: partial(extract, build_run_encoder(recipe(), facts, cpu)),
    }
    if "resnet" in encoder:
        floors["untrained, torchvision's start"] = lambda: partial(
            extract, build_run_encoder(recipe(zero_init_last=False), facts, cpu)
        )
    for name, features in floors.items():
        key = f"{encoder} | floor | {name} | seed {seed}"
        if key not in results:
            entry = _entry(encoder, None, name, None, seed)
            results.add(key, entry | _read(features(), sets))


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {
        "command": "python benchmarks/budgets.py cifar10_train.npz cifar10_test.npz",
        "chosen_factor": _chosen(runs),
    }


if __name__ == "__main__":
    main()
