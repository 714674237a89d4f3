"""Does `widefield explore` find what was planted, how fast, and how large is its page?

    python benchmarks/explore.py RUN DATA_FOLDER --json benchmarks/results/explore.json

50,000 CIFAR-10 images, seen by RUN, an encoder that was trained without labels; DATA_FOLDER holds
cifar10_train.npz and mnist_train.npz. 500 images each are replaced by copies of others: exact; as a
JPEG file of quality 75; a margin of 2 pixels cut off and scaled back; moved by 2 pixels; and 15 %
brighter. 2 % of the labels are wrong. The same labels are planted among 5,000 MNIST digits, seen
by their pixels, because neighbors can judge labels only where they tell the classes apart.

A planted copy is found if it is in a group with its original. CIFAR-10 has copies of its own, so
that a pair that was not planted need not be wrong: precision is that of planted pairs, and a lower
bound. The rules were chosen on CIFAR-100 and on the test files.
"""

import argparse
import io
import resource
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from study import Results
from widefield.data import open_dataset
from widefield.workflows.explore import Exploration, explore

IMAGES, DIGITS, COPIES, WRONG, SEED = 50_000, 5_000, 500, 0.02, 0

Picture = NDArray[np.uint8]


def as_jpeg(image: Picture) -> Picture:
    """Return the image as a JPEG file keeps it."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=75)
    return np.asarray(Image.open(buffer))


def cropped(image: Picture) -> Picture:
    """Return the image without a margin of 2 pixels, at its old size."""
    height, width = image.shape[:2]
    inner = Image.fromarray(image).crop((2, 2, width - 2, height - 2))
    return np.asarray(inner.resize((width, height), Image.Resampling.BILINEAR))


def moved(image: Picture) -> Picture:
    """Return the image 2 pixels lower and farther right, its edge repeated."""
    height, width = image.shape[:2]
    return np.pad(image, ((2, 0), (2, 0), (0, 0)), mode="edge")[:height, :width]


def brighter(image: Picture) -> Picture:
    """Return the image 15 % brighter."""
    return (image * 1.15).clip(0, 255).astype(np.uint8)


KINDS: dict[str, Callable[[Picture], Picture]] = {
    "exact": lambda image: image,
    "JPEG": as_jpeg,
    "cropped": cropped,
    "moved": moved,
    "brighter": brighter,
}


def with_copies(images: Picture, copies: int) -> tuple[Picture, dict[str, NDArray[np.int64]]]:
    """Return the images with copies in them, and (original, copy) of each kind, [copies, 2]."""
    images = np.array(images)
    rows = np.random.default_rng(SEED).permutation(len(images))
    pairs = rows[: 2 * copies * len(KINDS)].reshape(len(KINDS), copies, 2)
    for change, of_kind in zip(KINDS.values(), pairs, strict=True):
        for original, copy in of_kind:
            images[copy] = change(images[original])
    return images, dict(zip(KINDS, pairs, strict=True))


def with_wrong_labels(y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the labels with 2 % changed to another class."""
    rng = np.random.default_rng(SEED)
    rows = rng.permutation(len(y))[: round(WRONG * len(y))]
    y = y.copy()
    classes = int(y.max()) + 1
    y[rows] = (y[rows] + rng.integers(1, classes, len(rows))) % classes
    return y


def copies_found(found: Exploration, planted: dict[str, NDArray[np.int64]]) -> dict[str, Any]:
    """Return recall of each kind of copy, and the least that precision can be."""
    group = np.full(len(found.dataset), -1)
    for i, rows in enumerate(found.duplicates):
        group[rows] = i
    together = {kind: group[p[:, 0]] == group[p[:, 1]] for kind, p in planted.items()}
    together = {
        kind: found_here & (group[planted[kind][:, 0]] >= 0)
        for kind, found_here in together.items()
    }
    pairs = sum(len(list(combinations(rows, 2))) for rows in found.duplicates)
    hits = sum(int(row.sum()) for row in together.values())
    return {
        "groups": len(found.duplicates),
        "pairs": pairs,
        "planted_pairs": hits,
        "precision_at_least": round(hits / max(pairs, 1), 4),
        "recall": {kind: round(float(row.mean()), 4) for kind, row in together.items()},
    }


def labels_found(
    found: Exploration, given: NDArray[np.int64], true: NDArray[np.int64]
) -> dict[str, Any]:
    """Return precision and recall of the labels to check."""
    suspects = found.suspects["class"]
    wrong = given != true
    hits = int(wrong[suspects.rows].sum())
    return {
        "neighbors_agree": round(suspects.agreement, 4),
        "wrong": int(wrong.sum()),
        "suspected": len(suspects.rows),
        "precision": round(hits / max(len(suspects.rows), 1), 4),
        "recall": round(hits / int(wrong.sum()), 4),
    }


def timed(make: Callable[[], Exploration]) -> tuple[Exploration, dict[str, float]]:
    """Return what was found, with CPU and wall seconds."""
    wall, used = time.perf_counter(), _cpu()
    found = make()
    seconds = {"cpu_seconds": _cpu() - used, "seconds": time.perf_counter() - wall}
    return found, {name: round(value, 1) for name, value in seconds.items()}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cifar(run: Path, folder: Path, page: Path) -> dict[str, Any]:
    """Explore CIFAR-10 with copies and wrong labels, and leave the page."""
    data = open_dataset(f"{folder}/cifar10_train.npz", max_examples=IMAGES)
    true = data.labels["class"]
    given = with_wrong_labels(true)
    images, planted = with_copies(data.images, COPIES)
    for of_kind in planted.values():  # a copy shows what its original shows
        true[of_kind[:, 1]] = true[of_kind[:, 0]]
        given[of_kind[:, 1]] = true[of_kind[:, 0]]
    source = {"x": images, "class": given}
    found, seconds = timed(lambda: explore(run, source, out=page, overwrite=True, quiet=True))
    return {
        "images": len(images),
        **seconds,
        "page_bytes": page.stat().st_size,
        "clusters": len(found.typical),
        "in_no_cluster": round(float((found.clusters < 0).mean()), 4),
        "outliers": len(found.outliers),
        "copies": copies_found(found, planted),
        "labels": labels_found(found, given, true),
    }


def mnist(folder: Path) -> dict[str, Any]:
    """Explore MNIST with wrong labels."""
    data = open_dataset(f"{folder}/mnist_train.npz", max_examples=DIGITS)
    given = with_wrong_labels(data.labels["class"])
    source = {"x": data.images, "class": given}
    found, seconds = timed(lambda: explore("pixels", source, quiet=True))
    labels = labels_found(found, given, data.labels["class"])
    return {"images": len(data), **seconds, "labels": labels}


def main() -> None:
    """Explore, and write the numbers of each set; what is in the file already stays."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", type=Path, default=Path("explore.html"))
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    command = "python benchmarks/explore.py RUN DATA_FOLDER"
    results = Results(args.json, lambda runs: {"command": command, "seed": SEED})
    for name, measure in (
        ("CIFAR-10", lambda: cifar(args.run, args.folder, args.page)),
        ("MNIST", lambda: mnist(args.folder)),
    ):
        if name not in results:
            results.add(name, measure())


if __name__ == "__main__":
    main()
