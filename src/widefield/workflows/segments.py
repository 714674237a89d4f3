"""Weights of the segments of long recordings: equal, or by energy, as labels are predicted better.

A call of a second in a minute of noise is a sixtieth of the mean over segments, and nearly all of
their mean by energy. Steady sounds have much the same features by both.
"""

from dataclasses import replace

import numpy as np

from widefield.data import Dataset
from widefield.data.clips import Weighting
from widefield.inference.features import FeatureExtractor
from widefield.workflows.classify_labels import label_task_of

# Chosen by hand: all of their segments are encoded twice.
_MOST = 200
"""Recordings to fit on from which the weights are chosen."""
_TEXTS: dict[Weighting, str] = {"equal": "equally", "energy": "by energy"}


def with_best_weights(
    extractor: FeatureExtractor, train: Dataset, *others: Dataset, seed: int
) -> tuple[list[Dataset], tuple[str, ...]]:
    """Return `train` and others with the weights that predict held-out labels of `train` better.

    The error is that of `classify`, cross-validated on up to 200 recordings and summed over tasks.
    A note says which weights were taken. Without recordings of several segments, or where labels
    are too few to hold some out, the data stay as they are.
    """
    same = [train, *others]
    if train.clips is None or not (train.labels or train.targets):
        return same, ()
    sample = train.subset(train.spread_rows(_MOST))
    pooled = replace(extractor, kind="pooled", dim=None) if extractor.kind == "wide" else extractor
    errors = {weighting: _error(pooled, sample.weighted(weighting), seed) for weighting in _TEXTS}
    if not np.isfinite([*errors.values()]).all():
        return same, ()
    best, other = sorted(errors, key=lambda weighting: errors[weighting])  # equal ones if tied
    note = (
        f"segments of long recordings are weighted {_TEXTS[best]}: error {errors[best]:.3g} on "
        f"held-out labels of {len(sample)} to fit on, {errors[other]:.3g} {_TEXTS[other]}"
    )
    return [half if half.clips is None else half.weighted(best) for half in same], (note,)


def _error(extractor: FeatureExtractor, sample: Dataset, seed: int) -> float:
    """Return the error on held-out labels, summed over tasks; infinite if none can be held out."""
    h = extractor.features(sample.inputs).cpu()
    try:
        tasks = [label_task_of(sample, task, seed) for task in (*sample.labels, *sample.targets)]
    except ValueError:  # a task of which a sample holds too little
        return np.inf
    return float(sum(task.error(task.fit(h)) for task in tasks))
