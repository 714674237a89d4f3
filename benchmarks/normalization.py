"""What normalizing the features, and probing before the projector, do for S-DIET.

    python benchmarks/normalization.py DATA_FOLDER --json benchmarks/results/normalization.json

S-DIET's tables 1, 3 and 4 and its figure 1c at a small scale: 5,000 images, resnet-tiny, 15
epochs, method `s-diet` with and without `--normalize`, three seeds. The learning rate is the one
that measured best for either: the default of `s-diet`, and of `diet`, which does not normalize; all
else is the same.

- `cifar100`: the probe of the class before and after the projector (tables 3 and 4), and the
  singular values above a tenth of the largest after the projector (figure 1c), for which the
  projector has 512 outputs as in the paper's recipe;
- `cifar10+stacked-digits`: the probe of the class, which image and digit share, on images with
  their digit and on images without it (table 1).

DATA_FOLDER holds cifar10_train.npz, cifar10_test.npz, cifar100_train.npz and cifar100_test.npz.
The file is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from study import Results, Run, Trained, accuracies, train
from widefield.config.recipes import make_recipe
from widefield.data import open_dataset
from widefield.metrics import large_singular_values
from widefield.probes import extract

TRAIN, EPOCHS = 5000, 15
SEEDS = (0, 1, 2)
DATA = {"cifar100": "expert", "cifar10+stacked-digits": "expert:stacked"}
"""Data -> views."""
PROBED = {"cifar100": {"": ""}, "cifar10+stacked-digits": {" kept": "", " masked": ":masked"}}
"""Data -> how its images are probed, by name, and what the data's name then ends with."""
PROJECTOR_DIM = 512
T = 4.303
"""97.5 % quantile of Student's t for three seeds."""


def files(folder: Path, data: str) -> tuple[str, str]:
    """Return the names of training and of test images."""
    name, plus, plant = data.partition("+")
    return f"{folder / name}_train.npz{plus}{plant}", f"{folder / name}_test.npz{plus}{plant}"


def measure(trained: Trained, folder: Path, data: str, seed: int) -> dict[str, Any]:
    """Probes before and after the projector, and what is left of the spectrum after it."""
    assert trained.projected is not None
    places: dict[str, nn.Module] = {"before": trained.encoder, "after": trained.projected}
    train_file, test_file = files(folder, data)
    accuracy = {}
    for name, ending in PROBED[data].items():
        fitted_on = open_dataset(f"{train_file}{ending}", max_examples=TRAIN, seed=seed)
        test = open_dataset(f"{test_file}{ending}", seed=seed, held_out=True)
        for place, encoder in places.items():
            scores = accuracies(partial(extract, encoder), fitted_on, test)
            accuracy[f"class{name}, {place}"] = scores["class"]
    h = extract(trained.projected, open_dataset(test_file, seed=seed, held_out=True).images)
    return {
        "accuracy": accuracy,
        "large_singular_values": large_singular_values(h),
        "processor_seconds": trained.processor_seconds,
    }


def summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return means over the seeds with 95 % intervals, and the differences, seed by seed."""
    return {
        "command": "python benchmarks/normalization.py DATA_FOLDER",
        "settings": {"images": TRAIN, "epochs": EPOCHS, "encoder": "resnet-tiny"},
        "table": {data: row for data in DATA if (row := _row(runs, data))},
    }


def _row(runs: dict[str, Run], data: str) -> dict[str, Any]:
    """Return what is measured of both arms on one kind of data, and between them."""
    arms = {
        normalize: [r for r in runs.values() if (r["data"], r["normalize"]) == (data, normalize)]
        for normalize in (True, False)
    }
    if any(len(arm) < len(SEEDS) for arm in arms.values()):
        return {}
    values = {normalize: [_values(run) for run in arm] for normalize, arm in arms.items()}
    row: dict[str, Any] = {}
    for name in values[True][0]:
        kept, dropped = ([v[name] for v in values[arm]] for arm in (True, False))
        row[name] = {
            "normalized": _mean(kept),
            "not": _mean(dropped),
            "normalized minus not": _mean([a - b for a, b in zip(kept, dropped, strict=True)]),
        }
    for place in (name for name in values[True][0] if name.endswith(", before")):
        after = place.replace(", before", ", after")
        row[f"{place} minus after"] = {
            name: _mean([v[place] - v[after] for v in values[arm]])
            for name, arm in (("normalized", True), ("not", False))
        }
    return row


def _values(run: Run) -> dict[str, float]:
    accuracy = {name: 100 * share for name, share in run["accuracy"].items()}
    return {**accuracy, "large singular values": run["large_singular_values"]}


def _mean(values: list[float]) -> dict[str, float]:
    half = T * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": round(statistics.mean(values), 2), "half_width": round(half, 2)}


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--data", choices=tuple(DATA), action="append")
    args = parser.parse_args()
    results = Results(args.json, summary)
    for seed, data, normalize in itertools.product(SEEDS, args.data or DATA, (True, False)):
        key = f"{data} | {'normalized' if normalize else 'not normalized'} | seed {seed}"
        if key in results:
            continue
        trained = train(
            files(args.folder, data)[0],
            method="s-diet",
            normalize=normalize,
            lr=make_recipe(method="s-diet" if normalize else "diet").method.lr,
            projector_dim=PROJECTOR_DIM,
            views=DATA[data],
            epochs=EPOCHS,
            max_examples=TRAIN,
            seed=seed,
        )
        about = {"data": data, "normalize": normalize, "seed": seed}
        results.add(key, {**about, **measure(trained, args.folder, data, seed)})


if __name__ == "__main__":
    main()
