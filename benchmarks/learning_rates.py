"""Which learning rate does each family of encoders take?

    python benchmarks/learning_rates.py cifar10_train.npz \
        --json benchmarks/results/learning_rates.json

CIFAR-10 images, 6 epochs in batches of 64, one seed: 2,000 images of 32 pixels (186 steps), or
1,000 that were enlarged to 64 or 96 (90 steps), where three rates around the family's are tried. A
linear probe on 3,000 further images of the same file. Encoders have their native stems, but for
resnet-tiny, so that a run takes minutes of one core. Then, at the family's rate and 32 pixels, what
else may pay: another warm-up or weight decay, gradients clipped to a norm of 1. The file is
rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from study import Results, Run, accuracies, train, validation_sets
from widefield.config.recipes import make_recipe
from widefield.encoders import family_of
from widefield.encoders.settings import EncoderSettings
from widefield.methods import METHODS
from widefield.probes import extract
from widefield.train.build import DataInfo, build_run_encoder

TRAIN = {32: 2000, 64: 1000, 96: 1000}
"""Side of the images -> images."""
RUN: dict[str, Any] = {"method": "s-diet", "epochs": 6, "batch_size": 64}
ENCODERS: dict[str, dict[str, Any]] = {
    "resnet-tiny": {},
    "mobilenetv3_small_050": {"stem": "native"},
    "resnet18": {"stem": "native"},
    "resnet50": {"stem": "native"},
    "convnext_atto": {"stem": "native"},
    "vit_tiny_patch16_224": {"stem": "native"},
}
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Learning rates tried, as multiples of the method's own."""
BESIDE: dict[str, dict[str, Any]] = {
    "no warm-up": {"warmup_epochs": 0.0},
    "warm-up of 1 epoch": {"warmup_epochs": 1.0},
    "no weight decay": {"weight_decay": 0.0},
    "weight decay x 4": {"weight_decay": 0.2},
    "clipped to norm 1": {},
}
BESIDE_FOR = ("resnet-tiny", "resnet18", "convnext_atto", "vit_tiny_patch16_224")
SEED = 0


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--encoder", choices=ENCODERS, action="append")
    parser.add_argument("--size", type=int, choices=TRAIN, action="append")
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for size, name in itertools.product(args.size or TRAIN, args.encoder or ENCODERS):
        for factor in (None, *_factors(name, size)):
            key = f"{name} | {size} | {'untrained' if factor is None else f'{factor:g}'}"
            if key not in results:
                results.add(key, _run(args.train, name, size, factor))
    for name, beside in itertools.product(BESIDE_FOR, BESIDE):
        key = f"{name} | {beside}"
        if key not in results:
            family = family_of(EncoderSettings(name=name))
            results.add(key, _run(args.train, name, min(TRAIN), family, beside))


def _factors(name: str, size: int) -> tuple[float, ...]:
    """Return all factors, or the family's and its neighbors."""
    if size == min(TRAIN):
        return FACTORS
    family = family_of(EncoderSettings(name=name))
    first = min(max(FACTORS.index(family) - 1, 0), len(FACTORS) - 3)
    return FACTORS[first : first + 3]


def _run(file: Path, name: str, size: int, factor: float | None, beside: str = "") -> Run:
    """Train once, or not at all without a factor, and score."""
    sets = validation_sets(file, "", TRAIN[size], SEED, image_size=size)
    entry: Run = {"encoder": name, "size": size, "factor": factor, "beside": beside}
    entry["seed"] = SEED
    if factor is None:
        recipe = make_recipe(encoder=name, seed=SEED, **ENCODERS[name])
        encoder = build_run_encoder(recipe, DataInfo.of(sets[0]), torch.device("cpu"))
    else:
        settings = RUN | ENCODERS[name] | {"max_examples": TRAIN[size], "image_size": size}
        settings["lr"] = factor * METHODS[RUN["method"]]().lr
        settings |= BESIDE.get(beside, {})
        with _clipped() if "clipped" in beside else nullcontext():
            trained = train(str(file), encoder=name, seed=SEED, **settings)
        encoder = trained.encoder
        entry |= {"settings": settings, "processor_seconds": trained.processor_seconds}
    return entry | {"accuracy": accuracies(partial(extract, encoder), *sets)["class"]}


@contextmanager
def _clipped() -> Iterator[None]:
    """Clip the gradients of whatever an optimizer steps to a norm of 1."""

    def clip(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    handle = register_optimizer_step_pre_hook(clip)
    try:
        yield
    finally:
        handle.remove()


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return the best factor of each encoder at each size."""
    best: dict[str, Run] = {}
    for run in runs.values():
        if run["factor"] is None or run["beside"]:
            continue
        key = f"{run['encoder']} | {run['size']}"
        if key not in best or run["accuracy"] > best[key]["accuracy"]:
            best[key] = run
    return {
        "command": "python benchmarks/learning_rates.py cifar10_train.npz",
        "best_factor": {key: run["factor"] for key, run in best.items()},
    }


if __name__ == "__main__":
    main()
