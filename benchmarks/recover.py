"""Does a feature that pooling hides come back into the pooled features, in the weights?

    python benchmarks/recover.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/recover.json

View-contrast on 5,000 CIFAR-10 images with a planted digit, resnet-tiny, 18 epochs. Its encoder is
trained further as `widefield recover` does, in four ways:

- digits: the directions of the wide readout that predict the digit are wanted;
- all: all directions of the wide readout are, without labels;
- no request: the control, the same steps with weight 0;
- shuffled labels: the control, the directions that predict shuffled labels are wanted.

Class and digit, predicted by a linear probe on the 128 pooled features, which is fitted on the
images of the run and scored on 3,000 of the test file; for comparison also before, and on the wide
features. Processor time is that of the whole command for `digits` and `all`, and of training alone
for the controls.

Runs that are in RUNS/view-contrast+digits/SEED already, with their processor time in SEED.json, are
not trained again. The file is rewritten after every run, and runs that it already holds are not
repeated.
"""

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from study import Results, Run, accuracies, train
from widefield.core.hardware import choose_device, choose_precision
from widefield.data import Dataset, open_dataset
from widefield.encoders import Encoder
from widefield.inference.open_encoder import load, open_encoder
from widefield.inference.splits import split_by_hash
from widefield.probes import extract, fit_linear
from widefield.train.recover import train_to_predict
from widefield.workflows.recover import default_epochs, recover, standardized_logits

PLANT = "+digits"
METHOD, IMAGES, EPOCHS, TEST = "view-contrast", 5000, 18, 3000
WAYS = ("digits", "all", "no request", "shuffled labels")
SEEDS = (0, 1, 2)


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--seed", type=int, action="append", choices=SEEDS)
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for seed in args.seed or SEEDS:
        folder = args.runs / f"{METHOD}{PLANT}" / str(seed)
        run_seconds = _train_once(args.train, folder, seed)
        sets = (
            open_dataset(f"{args.train}{PLANT}", max_examples=IMAGES, seed=seed),
            open_dataset(f"{args.test}{PLANT}", max_examples=TEST, seed=seed, held_out=True),
        )
        for way in ("before", "wide", *(args.way or WAYS)):
            key = f"{way} | seed {seed}"
            if key not in results:
                results.add(key, {"run_seconds": run_seconds} | _run(folder, sets, way, seed))


def _train_once(file: Path, folder: Path, seed: int) -> float:
    """Train the run in `folder` unless it is there; return its processor time."""
    note = folder.with_suffix(".json")
    if not note.exists():
        trained = train(
            f"{file}{PLANT}",
            method=METHOD,
            max_examples=IMAGES,
            epochs=EPOCHS,
            seed=seed,
            out=folder,
        )
        note.write_text(json.dumps({"processor_seconds": trained.processor_seconds}))
    seconds: float = json.loads(note.read_text())["processor_seconds"]
    return seconds


def _run(folder: Path, sets: tuple[Dataset, Dataset], way: str, seed: int) -> Run:
    """Train the encoder of a run further in one way, and score it once."""
    encoder: nn.Module = load(folder)
    began = time.process_time()
    if way in ("digits", "all"):
        with tempfile.TemporaryDirectory() as out:
            feature = None if way == "all" else way
            encoder = recover(
                folder, feature=feature, out=f"{out}/new", seed=seed, quiet=True
            ).encoder
    elif way == "wide":
        encoder = load(folder, features="wide")
    elif way != "before":
        data = split_by_hash(sets[0])
        wanted = _control_directions(folder, data.train, seed)
        began = time.process_time()  # training alone
        encoder = _control(
            load(folder), data.train, wanted, shuffled=way != "no request", seed=seed
        )
    seconds = time.process_time() - began
    return {
        "way": way,
        "seed": seed,
        "processor_seconds": round(seconds, 1),
        "accuracy": accuracies(partial(extract, encoder), *sets),
    }


def _control_directions(folder: Path, dataset: Dataset, seed: int) -> Tensor:
    """Return the directions that predict shuffled labels of the planted feature."""
    wide = open_encoder(folder, "wide").features(dataset.images)
    task = PLANT[1:]
    y = torch.from_numpy(np.random.default_rng(seed).permutation(dataset.labels[task]))
    classes, labels = {task: len(dataset.classes[task])}, {task: y.to(wide.device)}
    return standardized_logits(wide, fit_linear(wide, labels, wide, labels, classes=classes)[task])


def _control(
    encoder: Encoder, dataset: Dataset, wanted: Tensor, *, shuffled: bool, seed: int
) -> Encoder:
    """Train as `recover` does, for shuffled labels or with weight 0."""
    device = choose_device("auto")
    return train_to_predict(
        encoder,
        dataset.images,
        wanted,
        weight=float(shuffled),
        epochs=default_epochs(EPOCHS),
        seed=seed,
        device=device,
        precision=choose_precision("auto", device),
    )


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return mean accuracies in percent and processor time relative to the run, over seeds."""
    means = {}
    for way in ("before", "wide", *WAYS):
        found = [run for run in runs.values() if run["way"] == way]
        if found:
            means[way] = {
                "seeds": len(found),
                **{
                    task: round(100 * float(np.mean([run["accuracy"][task] for run in found])), 1)
                    for task in found[0]["accuracy"]
                },
                "share_of_run": round(
                    float(np.mean([r["processor_seconds"] / r["run_seconds"] for r in found])), 2
                ),
            }
    return {
        "command": "python benchmarks/recover.py cifar10_train.npz cifar10_test.npz",
        "means": means,
    }


if __name__ == "__main__":
    main()
