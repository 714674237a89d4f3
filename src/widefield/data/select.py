"""Selection of examples: the split, and a class-balanced subset of it."""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from widefield.core.errors import option
from widefield.core.rng import hash_items
from widefield.data.examples import Examples
from widefield.data.groups import held_out_groups
from widefield.data.spec import BUILTIN, Spec

# The usual 80 / 20, as docs/data.md states it; other shares would move examples between the splits
# of existing runs.
TEST_SHARE = 0.2


def split_rows(examples: Examples, spec: Spec) -> NDArray[np.int64]:
    """Return the rows of a split: all of a built-in source; 80 / 20 by hash of names of a path.

    Groups are split by their own hashes, so that none is in both parts.
    """
    names = examples.names
    if spec.split is None or spec.base in BUILTIN:
        return np.arange(len(names))
    if examples.is_test is not None:
        rows = np.flatnonzero(examples.is_test == (spec.split == "test"))
        if not len(rows):
            raise ValueError(f"'{spec}' is empty: the column 'split' names no {spec.split} example")
        return rows
    if examples.groups is not None:
        return np.flatnonzero(held_out_groups(examples.groups) == (spec.split == "test"))
    if spec.values == "pages" and len({name.rpartition(" page ")[0] for name in names}) == 1:
        group = option("group", r"regex:(page \d+)")
        raise ValueError(
            f"'{spec}' holds pages of one file, which resemble each other: score on another file, "
            f"or split the pages all the same, {group}"
        )
    share = hash_items(name.encode() for name in names) / 2.0**64
    rows = np.flatnonzero((share < TEST_SHARE) == (spec.split == "test"))
    if not len(rows):
        raise ValueError(
            f"'{spec}' is empty: the 80 / 20 hash split of {len(names)} left it none; ten examples "
            "or more seldom do"
        )
    return rows


def balanced_subset(
    labels: Mapping[str, NDArray[np.int64]],
    rows: NDArray[np.int64],
    max_examples: int | None,
    groups: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return `max_examples` of `rows`, balanced over the classes of the first task, in order.

    Takes the first example of each class, then the second of each, and so on, so that a smaller
    subset is part of a larger one. Those of a class are taken from each of its `groups` in turn:
    the first ones may all be frames of one video.
    """
    if max_examples is None:
        return rows
    if max_examples > len(rows):
        raise ValueError(
            f"{option('max_examples')} is {max_examples} and there are {len(rows)} examples; "
            f"choose a smaller {option('max_examples')}"
        )
    ids = np.zeros(len(rows), dtype=np.int64)
    for first_task in list(labels.values())[:1]:
        _, ids = np.unique(first_task[rows], return_inverse=True)  # no label counts as a class
    order = np.arange(len(rows))
    if groups is not None:
        of_group = np.stack([ids, groups[rows]])
        _, pairs = np.unique(of_group, axis=1, return_inverse=True)
        order = np.argsort(_repeat_index(pairs.ravel()), kind="stable")
    first = np.argsort(_repeat_index(ids[order]), kind="stable")[:max_examples]
    return np.sort(rows[order[first]])


def _repeat_index(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each id [n] occurs before it, int64 [n]."""
    by_id, counts = np.argsort(ids, kind="stable"), np.bincount(ids)
    position = np.empty(len(ids), dtype=np.int64)
    position[by_id] = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
    return position


def subset_without(
    failed: Collection[int],
    labels: Mapping[str, NDArray[np.int64]],
    rows: NDArray[np.int64],
    max_examples: int | None,
    groups: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return up to `max_examples` of `rows` as `balanced_subset` does, without the failed ones."""
    left = np.setdiff1d(rows, np.array(list(failed), dtype=np.int64)) if failed else rows
    count = None if max_examples is None else min(max_examples, len(left))
    return balanced_subset(labels, left, count, groups)


def spread_rows(count: int, most: int) -> NDArray[np.int64]:
    """Return up to `most` of `count` rows in order, one at random from each of `most` equal parts.

    The result is the same at each call. The first rows of a folder are of one class, and evenly
    spaced rows may be too, if classes alternate.
    """
    bounds = np.linspace(0, count, min(most, count) + 1, dtype=np.int64)
    return np.random.default_rng(0).integers(bounds[:-1], bounds[1:])
