"""Do the images that `classify --suggest` names help more than images by lot?

    python benchmarks/few_labels.py DATA_FOLDER --json benchmarks/results/few_labels.json

Three data sets: scikit-learn's digits by their pixels, MNIST by its pixels, and CIFAR-10 by the
features of an encoder that was trained on the images for a short time without labels. Of 2,000
images each, one a class has a label at first. Then 10, 20, 50 and 100 labels are added, as
suggested all at once or by lot; scored are all other images. Means over ten draws of the first
labels, with 95 % intervals of the differences, draw by draw.

DATA_FOLDER holds mnist_train.npz and cifar10_train.npz.
"""

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from study import train, write_text
from widefield.core.hardware import choose_device, machine
from widefield.data import open_dataset
from widefield.probes import extract, pixels
from widefield.probes.few_labels import fit_few_labels
from widefield.probes.suggest import suggest

IMAGES, DRAWS, ADDED = 2000, 10, (10, 20, 50, 100)
EPOCHS = 20
T = 2.262
"""97.5 % quantile of Student's t for ten draws."""


def feature_sets(folder: Path) -> dict[str, tuple[NDArray[np.floating], NDArray[np.int64]]]:
    """Return features and classes of each data set."""
    digits = load_digits()
    mnist = open_dataset(f"{folder}/mnist_train.npz", max_examples=IMAGES)
    cifar = open_dataset(f"{folder}/cifar10_train.npz", max_examples=IMAGES)
    trained = train(
        f"{folder}/cifar10_train.npz", method="row-contrast", max_examples=IMAGES, epochs=EPOCHS
    )
    return {
        "digits, pixels": (digits.data, digits.target.astype(np.int64)),
        "mnist, pixels": (pixels(mnist.images).numpy(), mnist.labels["class"]),
        "cifar10, row-contrast": (
            extract(trained.encoder, cifar.images).numpy(),
            cifar.labels["class"],
        ),
    }


def compared(h: NDArray[np.floating], y: NDArray[np.int64], seed: int) -> dict[str, Any]:
    """Return accuracies after adding labels as suggested, and by lot."""
    rng = np.random.default_rng(seed)
    first = np.array([rng.choice(np.flatnonzero(y == k)) for k in range(10)])
    start = fit_few_labels(h, first, y[first], classes=10).probabilities
    lot = rng.permutation(np.setdiff1d(np.arange(len(y)), first))
    named = suggest(h, first, start, max(ADDED), seed=seed)
    return {
        "suggested": {str(n): _accuracy(h, y, np.append(first, named[:n])) for n in ADDED},
        "by lot": {str(n): _accuracy(h, y, np.append(first, lot[:n])) for n in ADDED},
    }


def _accuracy(h: NDArray[np.floating], y: NDArray[np.int64], labeled: NDArray[np.int64]) -> float:
    guess = fit_few_labels(h, labeled, y[labeled], classes=10).probabilities.argmax(1)
    rest = np.setdiff1d(np.arange(len(y)), labeled)
    return float((guess[rest] == y[rest]).mean())


def _mean(values: list[float]) -> dict[str, float]:
    half = T * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": round(100 * statistics.mean(values), 2), "half_width": round(100 * half, 2)}


def main() -> None:
    """Compare, print, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    table: dict[str, Any] = {}
    for name, (h, y) in feature_sets(args.folder).items():
        runs = [compared(h, y, seed) for seed in range(DRAWS)]
        table[name] = {
            str(n): {
                "suggested": _mean([run["suggested"][str(n)] for run in runs]),
                "by lot": _mean([run["by lot"][str(n)] for run in runs]),
                "difference": _mean(
                    [run["suggested"][str(n)] - run["by lot"][str(n)] for run in runs]
                ),
            }
            for n in ADDED
        }
        print(name, json.dumps(table[name]), flush=True)
    if args.json:
        report = {
            "command": "python benchmarks/few_labels.py DATA_FOLDER",
            "machine": machine(choose_device("auto")),
            "images": IMAGES,
            "seeds": list(range(DRAWS)),
            "epochs": EPOCHS,
            "table": table,
        }
        write_text(args.json, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
