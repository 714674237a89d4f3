"""Overlap of training and test data: the same examples, shared groups and near-copies."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.core.errors import option
from widefield.data import Dataset, same_images
from widefield.inference.splits import TrainTest, split_by_hash
from widefield.probes.near_copies import (
    MAX_POOLED,
    MIN_COPY_SHARE,
    Sketches,
    checked_count,
    copy_groups,
    copy_text,
    has_near_copy,
)
from widefield.probes.outcome import Outcome, score_text

# Chosen by hand.
_FEW_LEFT = 20
"""Test examples without near-copies that are enough for a score."""
# Chosen by hand: copies raise the score by at most their share.
_SMALL_OVERLAP = 0.05
"""Share of test examples in the training data that hardly changes the score."""


def count_overlap(
    test: Dataset, spec: str, hashes: NDArray[np.uint64], paths: Collection[str]
) -> int:
    """Count the examples of `test` that are in the data `spec`, with these digests and paths."""
    same = np.isin(test.digests(), hashes)
    if same_images(spec, test.spec):
        # A planted feature that is drawn again changes the pixels, not the image below it.
        same |= np.isin(test.paths, list(paths))
    return int(same.sum())


def overlap_note(test: Dataset, train: Dataset) -> list[str]:
    """Return a note if a probe is scored on examples that it was fitted on."""
    count = count_overlap(test, train.spec, train.digests(), train.paths)
    if not count:
        return _shared_groups(test, train)
    text = f"of {len(test)} test {test.kind}, {count} occur in the training data of the probe"
    if count < _SMALL_OVERLAP * len(test):
        return [f"{text}, which raises the score by at most {100 * count / len(test):.1f} points"]
    hint = f"score on others, as DATA:test with {option('train_data', 'DATA:train')} does"
    if set(test.paths).isdisjoint(train.paths):  # different files with the same content
        hint = "leave out the copies, which widefield explore lists"
    return [f"{text}, so the score is biased: {hint}"]


def _shared_groups(test: Dataset, train: Dataset) -> list[str]:
    """Return a note if groups of both sets have the same key, as in two folders."""
    if test.groups is None or train.groups is None:
        return []
    shared = np.isin(test.groups, train.groups)
    count = len(np.unique(test.groups[shared]))
    if not count:
        return []
    return [
        f"{count} groups of the test {test.kind} have the key of a group in the training data: if "
        "they are the same ones, the score is biased"
    ]


def copy_note(data: TrainTest, score: Callable[[TrainTest], Mapping[str, Outcome]]) -> list[str]:
    """Return a note on near-copies in both parts, with the scores without them; none for few.

    Test examples with near-copies are left out. If few others remain, the examples are split again,
    with near-copies as groups. Examples that are grouped already have no note.
    """
    train, test = data.train, data.test
    if data.groups is not None:
        return []
    keys = Sketches.of(train.images)
    rows = test.spread_rows(checked_count(len(test), keys))
    copied = has_near_copy(Sketches.of(test.images[rows]), keys)
    count = int(copied.sum())
    if count < max(2, MIN_COPY_SHARE * len(rows)):
        return []
    left = test.subset(rows[~copied])
    is_valid = len(left) > 0 and all(
        np.ptp(target.values, axis=0).all() for target in left.targets.values()
    )
    is_enough = is_valid and len(left) >= max(_FEW_LEFT, len(rows) / 4)
    separate = TrainTest(train=train, test=left) if is_enough else _split_pooled(train, test)
    scores = []
    for task, outcome in ({} if separate is None else score(separate)).items():
        name = task if outcome.measure == "accuracy" else f"{task} {outcome.measure}"
        text = score_text(outcome.value, outcome.measure, *outcome.interval)
        scores.append(f"{name} {text}")
    found = f"{count} of {len(rows)} test {test.kind} have near-copies"
    return [copy_text(found, scores)]


def _split_pooled(train: Dataset, test: Dataset) -> TrainTest | None:
    """Return all examples, split by groups of near-copies; None if that is not possible."""
    if len(train) + len(test) > MAX_POOLED:
        return None
    images = np.concatenate([train.images, test.images])
    pooled = Dataset(
        spec=train.spec,
        images=images,
        labels={task: np.concatenate([y, test.labels[task]]) for task, y in train.labels.items()},
        classes=train.classes,
        targets={
            task: replace(target, values=np.concatenate([target.values, test.targets[task].values]))
            for task, target in train.targets.items()
        },
        names=[*train.paths, *test.paths],
        groups=rng.bits(0, "near-copies", copy_groups(images)).view(np.int64),
        rate=train.rate,
    )
    try:
        return split_by_hash(pooled).scorable()
    except ValueError:  # too few groups, or a class in one part alone
        return None
