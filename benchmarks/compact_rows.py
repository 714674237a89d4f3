"""What do compact moments of the head's rows cost in accuracy?

    python benchmarks/compact_rows.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/compact_rows.json

S-DIET with its default recipe on 5,000 CIFAR-10 images with a planted digit, with resnet-tiny:
float32 moments, bf16 moments, one second moment a row, and both. Scores are linear probes on the
test file; each variant is compared with float32 seed by seed, with the 95 % t-interval of the mean
difference. The file is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from widefield.data import open_dataset
from widefield.methods.s_diet import recipe_layout
from widefield.probes import extract, score
from widefield.recipe import Recipe
from widefield.train.hardware import choose_device, machine
from widefield.workflows.pretrain import pretrain

TRAIN, PLANT, FULL = 5000, "+digits", "float32"
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {},
    "bf16": {"row_moments": "bf16"},
    "one second moment a row": {"row_second_moment": "row"},
    "both": {"row_moments": "bf16", "row_second_moment": "row"},
}
T_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}


def run(train: Path, test: Path, epochs: int, seed: int, settings: dict[str, Any]) -> Any:
    """Train once and score once."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        done = pretrain(
            f"{train}{PLANT}",
            out=Path(folder) / "run",
            limit=TRAIN,
            encoder="resnet-tiny",
            epochs=epochs,
            seed=seed,
            checkpoint_every=10_000,
            health_every=10_000,
            quiet=True,
            **settings,
        )
    cost = time.process_time() - began
    fitted = open_dataset(f"{train}{PLANT}", limit=TRAIN, seed=seed)
    scored = open_dataset(f"{test}{PLANT}", seed=seed, held_out=True)
    device = choose_device("auto")
    features = [extract(done.encoder, d.images, device=device) for d in (fitted, scored)]
    labels = [
        {t: torch.from_numpy(y).to(device) for t, y in d.labels.items()} for d in (fitted, scored)
    ]
    classes = {t: len(names) for t, names in fitted.classes.items()}
    scores = score(features[0], labels[0], features[1], labels[1], classes=classes)
    return {
        "accuracy": {task: round(s.accuracy, 4) for task, s in scores.items()},
        "processor_seconds": round(cost, 1),
    }


def differences(runs: dict[str, Any]) -> dict[str, Any]:
    """Points of accuracy that each variant gains over float32, seed by seed."""
    table: dict[str, Any] = {}
    for name, settings in VARIANTS.items():
        layout = recipe_layout(Recipe(**settings))
        table[name] = {"bytes_a_row": layout.row_bytes(Recipe().projector_dim)}
        seeds = sorted({r["seed"] for r in runs.values() if r["name"] == name})
        by_name = {(r["name"], r["seed"]): r["accuracy"] for r in runs.values()}
        both = [s for s in seeds if (FULL, s) in by_name]
        for task in by_name[name, both[0]] if both else ():
            values = [100 * by_name[name, s][task] for s in both]
            gains = [v - 100 * by_name[FULL, s][task] for v, s in zip(values, both, strict=True)]
            table[name][task] = {"mean": round(statistics.mean(values), 2), "n": len(values)}
            if name != FULL and len(gains) in T_95:
                half = T_95[len(gains)] * statistics.stdev(gains) / math.sqrt(len(gains))
                table[name][task] |= {
                    "minus_float32": round(statistics.mean(gains), 2),
                    "half_width": round(half, 2),
                }
    return table


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3, choices=tuple(T_95))
    asked = parser.parse_args()
    runs = json.loads(asked.json.read_text())["runs"] if asked.json.exists() else {}
    for seed in range(asked.seeds):
        for name, settings in VARIANTS.items():
            key = f"{name} | {asked.epochs} epochs | seed {seed}"
            if key not in runs:
                found = run(asked.train, asked.test, asked.epochs, seed, settings)
                runs[key] = {"name": name, "seed": seed, "epochs": asked.epochs, **found}
            comparable = {k: r for k, r in runs.items() if r["epochs"] == asked.epochs}
            report = {
                "command": "python benchmarks/compact_rows.py cifar10_train.npz cifar10_test.npz",
                "machine": machine(choose_device("auto")),
                "threads": torch.get_num_threads(),
                "variants": differences(comparable),
                "runs": runs,
            }
            asked.json.parent.mkdir(parents=True, exist_ok=True)
            asked.json.write_text(json.dumps(report, indent=1) + "\n")
    for name, found in report["variants"].items():
        print(name, json.dumps(found))


if __name__ == "__main__":
    main()
