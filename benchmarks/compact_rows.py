"""What do compact moments of the head's rows cost in accuracy?

    python benchmarks/compact_rows.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/compact_rows.json

row-contrast with its default settings on CIFAR-10 images with a planted digit, with resnet-tiny:
float32 moments, bf16 moments, one second moment a row, and both. Scores are linear probes on the
test file; each variant is compared with float32 seed by seed, with the 95 % t-interval of the mean
difference. The file is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from study import Results, Run, accuracies, train
from widefield.config.recipes import make_recipe
from widefield.data import open_dataset
from widefield.methods import RowContrastConfig
from widefield.probes import extract

METHOD = RowContrastConfig.name
PLANT, FULL = "+digits", "float32"
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {},
    "bf16": {"head_moments": "bf16"},
    "one second moment a row": {"head_second_moment": "row"},
    "both": {"head_moments": "bf16", "head_second_moment": "row"},
}
LIMIT, EPOCHS = 2000, 15
T_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}


def run(args: argparse.Namespace, seed: int, settings: dict[str, Any]) -> Run:
    """Train once and score once."""
    data = f"{args.train}{PLANT}"
    trained = train(
        data,
        method=METHOD,
        max_examples=args.max_examples,
        epochs=args.epochs,
        seed=seed,
        **settings,
    )
    train_set = open_dataset(data, max_examples=args.max_examples, seed=seed)
    test_set = open_dataset(f"{args.test}{PLANT}", seed=seed, held_out=True)
    return {
        "max_examples": args.max_examples,
        "epochs": args.epochs,
        "accuracy": accuracies(partial(extract, trained.encoder), train_set, test_set),
        "processor_seconds": trained.processor_seconds,
        "wall_seconds": trained.wall_seconds,
    }


def _summary(
    runs: dict[str, Run], max_examples: int = LIMIT, epochs: int = EPOCHS
) -> dict[str, Any]:
    """Mean accuracies of the variants, and points gained over float32, seed by seed."""
    table: dict[str, Any] = {}
    for name, settings in VARIANTS.items():
        method = make_recipe(method=METHOD, **settings).method
        assert isinstance(method, RowContrastConfig)
        table[name] = {"bytes_a_row": method.head.layout.row_bytes(method.projector.dim)}
        keys = [
            [_key(n, max_examples, epochs, seed) for n in (name, FULL)] for seed in range(max(T_95))
        ]
        pairs = [[runs[key]["accuracy"] for key in both] for both in keys if runs.keys() >= {*both}]
        for task in pairs[0][0] if pairs else ():
            table[name][task] = _compared([[100 * a[task] for a in both] for both in pairs])
    return {
        "command": "python benchmarks/compact_rows.py cifar10_train.npz cifar10_test.npz "
        f"--max-examples {max_examples} --epochs {epochs}",
        "variants": table,
    }


def _compared(pairs: list[list[float]]) -> dict[str, Any]:
    """Mean of the first of each pair, and of first minus second with its 95 % interval."""
    gains = [compact - full for compact, full in pairs]
    means: dict[str, Any] = {"mean": round(statistics.mean(a for a, _ in pairs), 2)}
    if len(pairs) in T_95:
        half = T_95[len(pairs)] * statistics.stdev(gains) / math.sqrt(len(pairs))
        means |= {"minus_float32": round(statistics.mean(gains), 2), "half_width": round(half, 2)}
    return {**means, "n": len(pairs)}


def _key(name: str, max_examples: int, epochs: int, seed: int) -> str:
    return f"{name} | {max_examples} images | {epochs} epochs | seed {seed}"


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--max-examples", type=int, default=LIMIT)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seeds", type=int, default=5, choices=tuple(T_95))
    args = parser.parse_args()
    results = Results(
        args.json, partial(_summary, max_examples=args.max_examples, epochs=args.epochs)
    )
    for seed in range(args.seeds):
        for name, settings in VARIANTS.items():
            key = _key(name, args.max_examples, args.epochs, seed)
            if key not in results:
                results.add(key, run(args, seed, settings))


if __name__ == "__main__":
    main()
