"""How many planted bits suppress the class, by objective.

    python benchmarks/bits.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/bits.json

RandBit of Chen, Luo & Li (2021), section 4, at a small scale: 2,000 CIFAR-10 images, each with a
random integer of `count` bits in as many constant channels that no view changes; resnet-tiny, the
default recipe of every objective (SimCLR at the rate of benchmarks/objectives.py), the same number
of epochs for all, two seeds. The linear probe of the pooled features is scored on images of the
test file, whose integers are drawn apart: on the class, and on the lowest four bits. The untrained
encoder is the floor.

The JSON file is rewritten after every run; runs that it already holds are not repeated. The tables
of benchmarks/NOTEBOOK.md are made from it by `make tables`.
"""

import argparse
import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from objectives import FASTER
from study import Results, Run, accuracies
from widefield.config.recipes import make_recipe
from widefield.config.resolve import RunContext, resolve
from widefield.data import Dataset, Loader, open_dataset
from widefield.probes import extract
from widefield.train.build import DataInfo, build, build_run_encoder
from widefield.train.distributed import Compute
from widefield.train.loop import Trainer
from widefield.train.step import StepMetrics

CPU = torch.device("cpu")
ENCODER = "resnet-tiny"
TRAIN, TEST, EPOCHS = 2000, 2000, 6
COUNTS = (0, 2, 4, 8, 16)
METHODS = ("view-contrast", "row-contrast", "s-diet", "simclr", "barlow-twins", "vicreg", "byol")
UNTRAINED = "random encoder"
SEEDS = (0, 1)


def measure(method: str, count: int, seed: int, files: tuple[Path, Path]) -> Run:
    """Train on images with `count` bits, unless the encoder stays untrained, and score it."""
    train_data, test_data = (f"{file}+bits:count={count}" for file in files)
    train_set = open_dataset(train_data, max_examples=TRAIN, seed=seed)
    test_set = open_dataset(test_data, max_examples=TEST, seed=seed, held_out=True)
    started = time.process_time()
    encoder = (
        untrained(train_set, seed) if method == UNTRAINED else trained(method, train_set, seed)
    )
    seconds = round(time.process_time() - started, 2)
    accuracy = accuracies(partial(extract, encoder), train_set, test_set)
    about = {"method": method, "bits": count, "seed": seed}
    return {**about, "accuracy": accuracy, "processor_seconds": seconds}


def untrained(data: Dataset, seed: int) -> nn.Module:
    """Return the encoder before training."""
    recipe = make_recipe(encoder=ENCODER, seed=seed)
    return build_run_encoder(recipe, DataInfo.of(data), CPU)


def trained(method: str, data: Dataset, seed: int) -> nn.Module:
    """Return the encoder after training, without the comparisons at the end of a run."""
    settings = {"method": method, "encoder": ENCODER, "epochs": EPOCHS, "seed": seed}
    settings |= FASTER.get(method, {})
    recipe, _ = resolve("default", settings, RunContext.of(data, device=CPU))
    state = build(recipe, DataInfo.of(data), device=CPU)
    loader = Loader(data, batch_size=recipe.batch_size, device=CPU, seed=seed)
    Trainer(state, compute=Compute.alone(CPU), loader=loader).fit(
        EPOCHS, on_step=_pass, on_epoch=_pass
    )
    return state.model.encoder.eval()


def _pass(metrics: StepMetrics) -> None:
    """Leave a step as it is."""


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {
        "command": "python benchmarks/bits.py cifar10_train.npz cifar10_test.npz",
        "settings": {"images": TRAIN, "epochs": EPOCHS, "encoder": ENCODER},
    }


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append")
    parser.add_argument("--method", choices=(UNTRAINED, *METHODS), action="append")
    args = parser.parse_args()
    results = Results(args.json, _summary)
    methods = args.method or (UNTRAINED, *METHODS)
    for seed, method, count in itertools.product(args.seed or SEEDS, methods, COUNTS):
        key = f"{method} | {count} bits | seed {seed}"
        if key not in results:
            results.add(key, measure(method, count, seed, (args.train, args.test)))


if __name__ == "__main__":
    main()
