"""Do the images that `classify --suggest` names help more than images by lot, of unequal classes?

    python benchmarks/suggest.py DATA_FOLDER --run RUN --json FILE [--set NAME]

Classes of unequal sizes, five labels each at first. Then 20 labels are added: as suggested, by lot,
or those of which the probe is least sure. Scored are the error on all other images and its mean
over classes, mean of 24 draws of images and first labels, with 95 % intervals of the differences
from by lot, draw by draw. Digits and MNIST are seen by their pixels, spoken digits by their
spectrograms, and CIFAR-10 by RUN, an encoder trained without labels; 50 directions of PCA each.
DATA_FOLDER holds mnist_train.npz, cifar10_test.npz and fsdd.npz.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from widefield.core.hardware import choose_device, machine
from widefield.inference.open_encoder import open_encoder
from widefield.probes.few_labels import fit_few_labels
from widefield.probes.suggest import suggest

DRAWS, FIRST, ADDED, T = 24, 5, 20, 2.069
SETS: dict[str, tuple[str | None, tuple[int, ...], tuple[int, ...]]] = {
    "digits 0, 3, 8": (None, (0, 3, 8), (170, 30, 30)),
    "digits, ten classes": (None, tuple(range(10)), tuple(round(170 * 0.75**i) for i in range(10))),
    "CIFAR-10 airplane, cat, dog": ("cifar10_test.npz", (0, 3, 5), (450, 60, 60)),
    "spoken digits 0, 3, 8": ("fsdd.npz", (0, 3, 8), (280, 40, 40)),
    "MNIST 0, 4, 9": ("mnist_train.npz", (0, 4, 9), (450, 60, 60)),
}
"""Name -> file, classes, how many of each are drawn."""


def opened(name: str, folder: Path, run: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return features and classes of a data set."""
    file = SETS[name][0]
    if file is None:
        return load_digits(return_X_y=True)
    extractor = open_encoder(run if "cifar" in file else "pixels")
    dataset = extractor.open(str(folder / file), max_examples=5_000 if "fsdd" not in file else None)
    h = extractor.features(dataset.inputs).cpu().numpy()
    return PCA(50, random_state=0).fit_transform(h), dataset.labels["class"]


def errors(h: Any, y: Any, name: str, seed: int) -> dict[str, float]:
    """Return the error in percent after labels were added in each way."""
    (_, classes, sizes), rng = SETS[name], np.random.default_rng(seed)
    k = len(classes)
    of = [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in zip(classes, sizes, strict=True)]
    h, y = h[np.concatenate(of)], np.repeat(np.arange(k), [len(rows) for rows in of])
    first = np.concatenate([rng.choice(np.flatnonzero(y == c), FIRST, False) for c in range(k)])
    p = fit_few_labels(h, first, y[first], classes=k, seed=seed).probabilities
    rest, best = np.setdiff1d(np.arange(len(y)), first), np.sort(p, axis=1)
    chosen = {
        "suggested": suggest(h, first, p, ADDED, seed=seed),
        "by lot": rng.permutation(rest)[:ADDED],
        "least sure": rest[np.argsort((best[:, -1] - best[:, -2])[rest])[:ADDED]],
    }
    result = {}
    for name, rows in chosen.items():
        known = np.append(first, rows)
        guess = fit_few_labels(h, known, y[known], classes=k, seed=seed).probabilities.argmax(1)
        wrong, rest_y = np.delete(guess != y, known), np.delete(y, known)
        result[name] = 100 * float(wrong.mean())
        of_classes = [wrong[rest_y == c].mean() for c in range(k) if (rest_y == c).any()]
        result[f"{name}, mean of classes"] = 100 * float(np.mean(of_classes))
    return result


def main() -> None:
    """Compare, print, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--set", choices=SETS, action="append")
    args = parser.parse_args()
    table = json.loads(args.json.read_text())["table"] if args.json.exists() else {}
    for name in args.set or SETS:
        h, y = opened(name, args.folder, args.run)
        draws = [errors(h, y, name, seed) for seed in range(DRAWS)]
        means = {way: float(np.mean([d[way] for d in draws])) for way in draws[0]}
        row: dict[str, Any] = {way: round(mean, 2) for way, mean in means.items()}
        for way in (way for way in means if not way.startswith("by lot")):
            by_lot = "by lot, mean of classes" if "mean" in way else "by lot"
            gap = np.array([d[way] - d[by_lot] for d in draws])
            half = T * gap.std(ddof=1) / math.sqrt(DRAWS)
            row[f"{way} minus by lot"] = [round(float(gap.mean()), 2), round(float(half), 2)]
        table[name] = {"sizes": list(SETS[name][2]), **row}
        print(name, row, flush=True)
        facts = {"machine": machine(choose_device("auto")), "seeds": DRAWS, "added": ADDED}
        args.json.write_text(json.dumps({**facts, "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
