"""Overlap of training and test data: the same examples, shared groups and near-copies."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.core.errors import option
from widefield.data import Dataset, same_images
from widefield.inference.splits import TrainTest, split_by_hash
from widefield.probes.near_copies import (
    COPIES_SHARE,
    MAX_POOLED,
    Sketches,
    checked_count,
    copies_text,
    copy_groups,
    has_near_copy,
)

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


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Training and test data without near-copies of each other."""

    found: str
    """How many examples have near-copies, in words."""
    data: TrainTest | None
    """Examples to score; None if nothing is left."""

    def note(self, scores: Mapping[str, tuple[float, float, float]]) -> str:
        """Return the line on the near-copies; scores are task -> accuracy and its interval."""
        values = [
            f"{task} {100 * accuracy:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
            for task, (accuracy, low, high) in scores.items()
        ]
        return copies_text(self.found, values)


def apart(data: TrainTest) -> Apart | None:
    """Return the data without near-copies; None if there are few, or examples are grouped.

    Test examples with near-copies are left out. If few others remain, the examples are split again,
    with near-copies as groups.
    """
    train, test = data.train, data.test
    if data.groups is not None:
        return None
    fitted = Sketches.of(train.images)
    rows = test.spread_rows(checked_count(len(test), fitted))
    copied = has_near_copy(Sketches.of(test.images[rows]), fitted)
    count = int(copied.sum())
    if count < max(2, COPIES_SHARE * len(rows)):
        return None
    found = f"{count} of {len(rows)} test {test.kind} have near-copies"
    left = test.subset(rows[~copied])
    vary = len(left) > 0 and all(
        np.ptp(target.values, axis=0).all() for target in left.targets.values()
    )
    if vary and len(left) >= max(_FEW_LEFT, len(rows) / 4):
        return Apart(found=found, data=TrainTest(train=train, test=left))
    return Apart(found=found, data=_split_again(train, test))


def _split_again(train: Dataset, test: Dataset) -> TrainTest | None:
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
