"""How fast should rows move where an encoder learns slowly?

    python benchmarks/row_rates.py cifar10_train.npz --json benchmarks/results/row_rates.json

Networks without batch norm and transformers take 0.03 times a method's learning rate. Their rows
may take as little, or keep the method's own rate, or move faster yet. 500 CIFAR-10 images, batches
of 64, native stems, rows seen 55 times and 39 times where there is a second view, which takes as
long; a linear probe and a vote of 20 neighbors, fitted on 5,000 images and scored on 3,000 further
ones, all of the training file. The file is rewritten after every run, and runs that it already
holds are not repeated.
"""

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

from study import Results, Run, scores, train, validation_sets
from widefield.config.defaults import LR_SCALES
from widefield.encoders import family_of
from widefield.encoders.settings import EncoderSettings
from widefield.methods import METHODS
from widefield.probes import extract

FIT, IMAGES = 5000, 500
ENCODERS = ("vit_tiny_patch16_224", "convnext_atto")
EPOCHS = {"row-contrast": 55, "view-contrast": 39, "s-diet": 55}
ROWS = ("the encoder's", "the method's", "3 x the method's")
SEEDS = (0, 1, 2)


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--encoder", choices=ENCODERS, action="append")
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append")
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for seed, encoder in itertools.product(args.seed or SEEDS, args.encoder or ENCODERS):
        for method, rows in itertools.product(EPOCHS, ROWS):
            key = f"{encoder} | {method} | {rows} | seed {seed}"
            if key not in results:
                results.add(key, _run(args.train, encoder, method, rows, seed))


def _run(file: Path, encoder: str, method: str, rows: str, seed: int) -> Run:
    """Train once and score once."""
    multiple = LR_SCALES[family_of(EncoderSettings(name=encoder))]
    faster = dict(zip(ROWS, (1.0, 1 / multiple, 3 / multiple), strict=True))
    settings: dict[str, Any] = {
        "stem": "native",
        "lr": multiple * METHODS[method]().lr,
        "head_lr_scale": faster[rows],
        "batch_size": 64,
        "epochs": EPOCHS[method],
    }
    trained = train(
        str(file), method=method, encoder=encoder, max_examples=IMAGES, seed=seed, **settings
    )
    sets = validation_sets(file, "", FIT, seed)
    score = scores(partial(extract, trained.encoder), *sets)["class"]
    return {
        "encoder": encoder,
        "method": method,
        "rows": rows,
        "seed": seed,
        "settings": settings,
        "linear": round(score.accuracy, 4),
        "knn": round(score.knn, 4),
        "processor_seconds": trained.processor_seconds,
    }


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/row_rates.py cifar10_train.npz"}


if __name__ == "__main__":
    main()
