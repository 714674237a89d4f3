"""Does `explore` find what was planted, how fast, and how large is its page?

500 images each of CIFAR-10 are replaced by copies of others: exact; as a JPEG file of quality 75; a
margin of 2 pixels cut off and scaled back; moved by 2 pixels; and 15 % brighter. 2 % of the labels
are wrong. The same labels are planted among 5,000 MNIST digits, seen by their pixels, because
neighbors can judge labels only where they tell the classes apart.

A planted copy is found if it is in a group with its original. CIFAR-10 has copies of its own, so
that a pair that was not planted need not be wrong: precision is that of planted pairs, and a lower
bound. The rules were chosen on CIFAR-100 and on the test files.
"""

import io
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from studies.study import Arm, Measured, Scale, cpu_study, percent
from studies.trained import Trained
from widefield.data import open_dataset
from widefield.workflows.explore import explore
from widefield.workflows.explore_result import Exploration

DIGITS, COPIES, WRONG, SEED = 5_000, 500, 0.02, 0

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


def copies_found(found: Exploration, planted: dict[str, NDArray[np.int64]]) -> Measured:
    """Return recall of each kind of copy, and the least that precision can be, in percent."""
    group = np.full(len(found.dataset), -1)
    for i, rows in enumerate(found.duplicates):
        group[rows] = i
    together = {
        kind: (group[pairs[:, 0]] == group[pairs[:, 1]]) & (group[pairs[:, 0]] >= 0)
        for kind, pairs in planted.items()
    }
    pairs = sum(len(list(combinations(rows, 2))) for rows in found.duplicates)
    hits = sum(int(row.sum()) for row in together.values())
    recall = {f"copies: {kind}, recall, %": percent(row.mean()) for kind, row in together.items()}
    return {
        **recall,
        "copies: precision at least, %": percent(hits / max(pairs, 1)),
        "groups": len(found.duplicates),
        "pairs": pairs,
        "planted pairs": hits,
    }


def labels_found(found: Exploration, given: NDArray[np.int64], true: NDArray[np.int64]) -> Measured:
    """Return kNN accuracy, and precision and recall of the labels to check, in percent."""
    suspects, wrong = found.suspects["class"], given != true
    hits = int(wrong[suspects.rows].sum())
    return {
        "neighbors agree, %": percent(suspects.agreement),
        "wrong labels: recall, %": percent(hits / int(wrong.sum())),
        "wrong labels: precision, %": percent(hits / max(len(suspects.rows), 1)),
        "wrong labels": int(wrong.sum()),
        "suspected labels": len(suspects.rows),
    }


def planted(trained: Trained) -> Measured:
    """Explore images with wrong labels, and copies where the encoder is a trained one."""
    is_mnist = trained.arm.pixels
    spec = trained.packs.spec(trained.arm.data, "train")
    data = open_dataset(spec, max_examples=DIGITS if is_mnist else None)
    images, true = data.images, data.labels["class"]
    given, pairs = with_wrong_labels(true), dict[str, NDArray[np.int64]]()
    if not is_mnist:
        images, pairs = with_copies(images, min(COPIES, len(images) // 20))
    for of_kind in pairs.values():  # a copy shows what its original shows
        true[of_kind[:, 1]] = true[of_kind[:, 0]]
        given[of_kind[:, 1]] = true[of_kind[:, 0]]
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        found = explore(
            trained.folder or "pixels", {"x": images, "class": given}, out=page, quiet=True
        )
        size = page.stat().st_size
    return {
        "images": len(images),
        "processor seconds": round(time.process_time() - began, 1),
        "page, bytes": size,
        **(copies_found(found, pairs) if pairs else {}),
        **labels_found(found, given, true),
    }


EXPLORE = cpu_study(
    id="explore",
    question="Does `explore` find planted copies and wrong labels, and how fast?",
    cpu=Scale(images=10_000, epochs=10, seeds=(0,), minutes=30),
    arms={
        "CIFAR-10": Arm(data="cifar10", settings={"method": "view-contrast"}),
        "MNIST": Arm(data="mnist", settings=None, pixels=True),
    },
    measure=planted,
    conclusion="CIFAR-10 has copies of its own, so the precision of copies is a lower bound.",
)

STUDIES = [EXPLORE]
