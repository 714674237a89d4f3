"""Whether the images that `classify --suggest` names help more than random images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from studies.study import Arm, Measured, Scale, cpu_study
from studies.trained import Trained
from studies.verdict import interval
from widefield.inference.open_encoder import open_encoder
from widefield.probes.few_labels import fit_few_labels
from widefield.probes.suggest import suggest

DRAWS, FIRST, ADDED = 24, 5, 20
WAYS = ("suggested", "random", "least certain")
ERRORS = ("all images", "mean of classes")
SETS: dict[str, tuple[str | None, tuple[int, ...], tuple[int, ...]]] = {
    "digits 0, 3, 8": (None, (0, 3, 8), (170, 30, 30)),
    "digits, ten classes": (None, tuple(range(10)), tuple(round(170 * 0.75**i) for i in range(10))),
    "MNIST 0, 4, 9": ("mnist", (0, 4, 9), (450, 60, 60)),
    "CIFAR-10 airplane, cat, dog": ("cifar10", (0, 3, 5), (450, 60, 60)),
    "spoken digits 0, 3, 8": ("fsdd", (0, 3, 8), (280, 40, 40)),
}
"""Name -> data, classes, how many of each are drawn."""


def _opened(trained: Trained, data: str | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return features and classes of a data set: 50 directions of PCA, or scikit-learn's digits."""
    if data is None:
        return load_digits(return_X_y=True)
    spec = trained.packs.spec(data, "train" if data == "mnist" else "test")
    if data == "fsdd":
        spec = str(trained.packs.file(data))
    extractor = open_encoder(trained.folder or "pixels")
    dataset = extractor.open(spec, max_examples=None if data == "fsdd" else 5000, quiet=True)
    h = extractor.features(dataset.inputs, quiet=True).cpu().numpy()
    return PCA(50, random_state=0).fit_transform(h), dataset.labels["class"]


def errors(
    h: Any, y: Any, classes: tuple[int, ...], sizes: tuple[int, ...], seed: int
) -> dict[str, dict[str, float]]:
    """Return each error in percent after labels were added in each way."""
    rng, k = np.random.default_rng(seed), len(classes)
    of = [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in zip(classes, sizes, strict=True)]
    h, y = h[np.concatenate(of)], np.repeat(np.arange(k), [len(rows) for rows in of])
    first = np.concatenate([rng.choice(np.flatnonzero(y == c), FIRST, False) for c in range(k)])
    p = fit_few_labels(h, first, y[first], classes=k, seed=seed).probabilities
    rest, best = np.setdiff1d(np.arange(len(y)), first), np.sort(p, axis=1)
    certain_last = np.argsort((best[:, -1] - best[:, -2])[rest])
    chosen = suggest(h, first, p, ADDED, seed=seed), rng.permutation(rest), rest[certain_last]
    found: dict[str, dict[str, float]] = {error: {} for error in ERRORS}
    for way, rows in zip(WAYS, chosen, strict=True):
        known = np.append(first, rows[:ADDED])
        guess = fit_few_labels(h, known, y[known], classes=k, seed=seed).probabilities.argmax(1)
        wrong, rest_y = np.delete(guess != y, known), np.delete(y, known)
        of_classes = [wrong[rest_y == c].mean() for c in range(k) if (rest_y == c).any()]
        found["all images"][way] = 100 * float(wrong.mean())
        found["mean of classes"][way] = 100 * float(np.mean(of_classes))
    return found


def after_suggestions(trained: Trained) -> Measured:
    """Return the mean error of each way over draws, and differences with 95 % half-widths."""
    data, classes, sizes = SETS[trained.arm.about["set"]]
    h, y = _opened(trained, data)
    error = trained.arm.about["error"]
    draws = [errors(h, y, classes, sizes, seed)[error] for seed in range(DRAWS)]
    measured = {f"{way}, %": round(float(np.mean([d[way] for d in draws])), 2) for way in WAYS}
    for way in ("suggested", "least certain"):
        gap, half = interval([d[way] - d["random"] for d in draws])
        assert half is not None
        measured |= {f"{way} minus random": round(gap, 2), f"{way}: half-width": round(half, 2)}
    return measured


def _arm(name: str, error: str) -> Arm:
    """Return the encoder that sees a set: pixels, or one trained on CIFAR-10 without labels."""
    data, about = SETS[name][0], {"set": name, "error": error}
    if data == "cifar10":
        settings = {"method": "view-contrast"}
        return Arm(data="cifar10+digits", settings=settings, images=5000, about=about)
    return Arm(data=data or "mnist", settings=None, pixels=True, about=about)


SUGGEST = cpu_study(
    id="suggest",
    question="Do suggested images help more than random images, of unequal classes?",
    cpu=Scale(images=5000, epochs=18, seeds=(0,), minutes=15),
    arms={
        f"{name} ({', '.join(map(str, sizes))}), {error}": _arm(name, error)
        for name, (_, _, sizes) in SETS.items()
        for error in ERRORS
    },
    measure=after_suggestions,
    conclusion=(
        "Errors on all other images and their mean over classes, mean of 24 draws of images and "
        "first labels, after 20 labels more than five a class. Sizes of the classes are in "
        "parentheses; the half-width is that of the 95 % interval of the difference. Digits and "
        "MNIST are seen by their pixels, spoken digits by their spectrograms, CIFAR-10 by an "
        "encoder that is trained without labels."
    ),
)

STUDIES = [SUGGEST]
