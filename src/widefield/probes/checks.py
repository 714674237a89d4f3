"""Validation of features and labels for probes."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def check_rows(
    train_h: Tensor,
    train_labels: dict[str, Tensor],
    test_h: Tensor,
    test_labels: dict[str, Tensor],
    classes: dict[str, int],
) -> None:
    """Raise `ValueError` for invalid features or labels that do not match them."""
    check_features(train_h, test_h)
    for name, h, labels in (("training", train_h, train_labels), ("test", test_h, test_labels)):
        for task, count in classes.items():
            _check_labels(f"task {task!r}: {name} labels", labels.get(task), len(h), count)


def check_features(train_h: Tensor, test_h: Tensor) -> None:
    """Raise `ValueError` for features that are not finite rows of equal widths."""
    for name, h in (("training", train_h), ("test", test_h)):
        if h.ndim != 2 or len(h) == 0:
            raise ValueError(f"{name} features have shape {list(h.shape)}: give [n, D], n > 0")
        if not all_finite(h):
            raise ValueError(
                f"{name} features contain NaN or infinity, or numbers beyond float32: "
                "look at the encoder first"
            )
    if train_h.shape[1] != test_h.shape[1]:
        raise ValueError(
            f"training features have {train_h.shape[1]} columns and test features "
            f"{test_h.shape[1]}: extract both with one encoder"
        )


def all_finite(h: Tensor) -> bool:
    """Return whether h, which is not empty, has finite numbers alone, in float32, as in probes."""
    # NaN is both least and greatest; a mask of all numbers would take memory.
    return bool(torch.stack(h.aminmax()).float().isfinite().all())


def has_two_of_each(y: NDArray[np.int64]) -> bool:
    """Return whether a probe can be fitted to class ids y [n]: two classes, and two of each."""
    _, counts = np.unique(y, return_counts=True)
    return len(counts) > 1 and bool(counts.min() > 1)


def check_classes(train_labels: dict[str, Tensor], classes: dict[str, int]) -> None:
    """Raise `ValueError` for tasks without two classes, or with a class of one example."""
    for task in classes:
        present, sizes = torch.unique(train_labels[task], return_counts=True)
        if len(sizes) < 2:
            raise ValueError(f"task {task!r}: training labels hold one class: a probe needs two")
        if sizes.min() < 2:
            small = int(present[sizes.argmin()])
            raise ValueError(
                f"task {task!r}: class {small} has one training example: give it a second one "
                "(a validation split must leave one to fit on) or leave the class out"
            )


def _check_labels(name: str, labels: Tensor | None, examples: int, classes: int) -> None:
    if labels is None:
        raise ValueError(f"{name} are missing: give int64 [{examples}]")
    if labels.shape != (examples,):
        raise ValueError(
            f"{name} have shape {list(labels.shape)} for {examples} rows of features: "
            "give one label each"
        )
    if labels.dtype != torch.int64:
        raise ValueError(f"{name} have dtype {labels.dtype}: give class ids, int64")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{name} run from {int(labels.min())} to {int(labels.max())}: "
            f"give class ids 0 to {classes - 1}"
        )
